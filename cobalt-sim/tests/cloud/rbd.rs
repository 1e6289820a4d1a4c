//! A host whose way to the storage is required: its agent listens for the monitors of Ceph, and the operator waits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cobalt_core::{
    agent::{Ceph, Config, NodeAgent, RBD_REACHABLE},
    api::{condition_types as types, labels, reasons},
    ids::HostName,
    operator::{Settings, onboarding::Checks},
    runtime::shutdown::Shutdown,
};
use cobalt_sim::Region;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{Rig, message, reason};

/// A monitor on a real socket. It takes connections and keeps silent, until told to speak.
async fn monitor(speaks: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let speaks = speaks.load(Ordering::SeqCst);
            tokio::spawn(async move {
                if speaks {
                    stream.write_all(b"ceph v2\n\x10\x00").await.unwrap();
                }
                // Until the other end has had enough.
                let _ = stream.read(&mut [0]).await;
            });
        }
    });
    address
}

/// Starts the node agent of a host, which connects to these monitors.
fn agent_until(rig: &Rig, host: &HostName, monitors: &[&str], stop: Shutdown) {
    let backend = Arc::new(rig.region.backend(host).unwrap());
    let system = Arc::new(rig.region.host_system(host).unwrap());
    let monitors = monitors.iter().map(|one| one.parse().unwrap()).collect();
    let agent = NodeAgent::new(rig.program("agent"), Config::new(host.as_str()), backend, system)
        .clock(rig.clock())
        .part(Ceph::new(monitors, Duration::from_secs(60)));
    tokio::spawn(agent.run(stop));
}

#[tokio::test(start_paused = true)]
async fn a_host_is_onboarded_when_a_monitor_of_its_storage_answers_and_not_before() {
    let rig = Rig::new(Region::builder().hosts(1).unregistered().new_services_disabled().build()).await;
    rig.region.add_aggregate(labels::TEST_AGGREGATE, None);
    let host = rig.region.hosts().remove(0);
    let mut settings = Settings::default();
    settings.onboarding.checks = Checks { conditions: vec![RBD_REACHABLE.into()], ..Checks::default() };
    rig.operator_until(settings, rig.stop.clone());
    rig.cluster.join(&host).await.unwrap();
    rig.cluster.label(&host, labels::LIFECYCLE, Some(labels::SKIP_TESTS)).await.unwrap();
    rig.region.world().start_compute(&host).unwrap();
    let told = async |what: &str| {
        rig.until(&host, what, |seen| message(seen, types::ONBOARDING).is_some_and(|told| told.ends_with(what))).await
    };
    told("waiting for condition RBDReachable: nobody has written it").await;

    let speaks = Arc::new(AtomicBool::new(false));
    let monitor = monitor(speaks.clone()).await;
    agent_until(&rig, &host, &[&monitor], rig.stop.clone());
    told(&format!(
        "waiting for condition RBDReachable: it is False (Unreachable): 0 of 1 monitors answer; {monitor}: no answer \
         within 5s"
    ))
    .await;
    let writes = || rig.cluster.server().counters().of_client("agent").writes;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = writes();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(writes(), before, "ten looks that found the same");
    assert_eq!(reason(&rig.hypervisor(&host).await, types::ONBOARDING), Some(reasons::INITIAL));
    assert!(!rig.service(&host).await.enabled, "it takes no servers");

    speaks.store(true, Ordering::SeqCst);
    let seen = rig.until(&host, "onboarded", |seen| reason(seen, types::ONBOARDING) == Some(reasons::SUCCEEDED)).await;
    assert!(rig.service(&host).await.enabled);
    let reachable = seen.condition(RBD_REACHABLE).unwrap();
    assert_eq!((reachable.reason.as_str(), reachable.message.as_str()), ("Reachable", "1 of 1 monitors answer"));
}

#[tokio::test(start_paused = true)]
async fn what_was_said_of_monitors_goes_with_them() {
    let rig = Rig::new(Region::builder().hosts(1).build()).await;
    let host = rig.region.hosts().remove(0);
    rig.operator_until(Settings::default(), rig.stop.clone());
    rig.cluster.join(&host).await.unwrap();
    let monitor = monitor(Arc::new(AtomicBool::new(true))).await;
    let first = Shutdown::new();
    agent_until(&rig, &host, &[&monitor], first.clone());
    rig.until(&host, "reachable", |seen| seen.is_true(RBD_REACHABLE)).await;
    first.trigger();
    agent_until(&rig, &host, &[], rig.stop.clone());
    rig.until(&host, "without a word on it", |seen| seen.condition(RBD_REACHABLE).is_none()).await;
}
