//! The clients on a cloud that answers as it was told: what goes wrong, and what we make of it.
#![allow(clippy::unwrap_used)]

mod calls;
mod faults;
mod login;
mod test_bed;
mod tls;
mod traces;

use std::{sync::Arc, time::Duration};

use cobalt_openstack::{Nova, OpenStack, Options, Placement, testing::ScriptedCloud};

/// Limits that make trouble short.
fn quick() -> Options {
    Options {
        attempt_timeout: Duration::from_secs(20),
        call_timeout: Duration::from_secs(60),
        backoff: Duration::from_millis(5),
        rate: 10_000.0,
        burst: 1000,
        ..Options::default()
    }
}

async fn connected(options: Options) -> (ScriptedCloud, Nova, Placement) {
    let cloud = ScriptedCloud::start().await.unwrap();
    let openstack = OpenStack::connect_with(&cloud.cloud(), options, None).await.unwrap();
    (cloud, openstack.nova(), openstack.placement())
}

/// The text of an error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Counts calls by service, name and outcome.
fn counter() -> (Arc<std::sync::Mutex<Vec<cobalt_openstack::CallRecord>>>, Arc<dyn cobalt_openstack::CallObserver>) {
    let records: Arc<std::sync::Mutex<Vec<cobalt_openstack::CallRecord>>> = Arc::default();
    let keep = records.clone();
    let observer = move |record: &cobalt_openstack::CallRecord| keep.lock().unwrap().push(*record);
    (records, Arc::new(observer))
}
