//! An operator tested against the API server in its own process: no cluster, no sockets, virtual time.
//!
//! The operator is a dozen lines that label every ConfigMap. The test is what is worth copying: it starts a server,
//! makes the server misbehave, waits until the operator has recovered, and counts what that cost.

#![allow(clippy::print_stdout)]

use std::{sync::Arc, time::Duration};

use cobalt_apiserver::faults::{Effect, Fault, Matcher};
use cobalt_apiserver::{ApiServer, Verb};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::wait::await_condition;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

const LABEL: &str = "example.com/seen";

async fn reconcile(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.as_ref().clone());
    let label = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {LABEL: "yes"}},
    });
    maps.patch(&map.name_any(), &PatchParams::apply("labeller"), &Patch::Apply(label)).await?;
    Ok(Action::await_change())
}

fn retry(_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Client>) -> Action {
    Action::requeue(Duration::from_secs(60))
}

// Paused time: the minute until the retry passes at once, and timestamps say that it passed.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tokio::time::pause();
    let server = ApiServer::builder().seed(1).start();

    // The operator's first two patches run into a full server.
    let full = Effect::Status { code: 429, retry_after: None };
    server.faults().add(Fault::new(Matcher::client("labeller").verb(Verb::Patch).times(2), full));

    let operator = Client::new(server.service("labeller"), "default");
    let maps: Api<ConfigMap> = Api::default_namespaced(operator.clone());
    let running = Controller::new(maps, watcher::Config::default()).run(reconcile, retry, Arc::new(operator));
    tokio::spawn(running.for_each(|_| std::future::ready(())));

    // The test is a client of its own, so that its requests are not counted as the operator's.
    let tester = Client::new(server.service("tester"), "default");
    let maps: Api<ConfigMap> = Api::default_namespaced(tester);
    let map = serde_json::from_value(json!({"metadata": {"name": "greeting"}, "data": {"hello": "world"}}))?;
    maps.create(&PostParams::default(), &map).await?;

    let labelled = |map: Option<&ConfigMap>| map.is_some_and(|map| map.labels().contains_key(LABEL));
    let limit = Duration::from_secs(3600);
    tokio::time::timeout(limit, await_condition(maps, "greeting", labelled)).await??;

    let counts = server.counters().of_client("labeller");
    println!("{} requests of the operator, {} of them changed something", counts.requests, counts.writes);
    anyhow::ensure!(counts.writes == 1, "one label is one write, however often it was tried");
    Ok(())
}
