//! The first start on a living cloud: everything is looked at, nothing is touched.

use std::{collections::BTreeMap, time::Duration};

use cobalt_core::{
    nova::NovaClient,
    operator::{CertificateSettings, GardenerSettings, Settings},
    runtime::shutdown::Shutdown,
};
use cobalt_sim::Region;
use kube::api::ListParams;
use serde_json::json;

use super::{Rig, say};

/// Everything that an operator can be told to do.
fn everything() -> Settings {
    let mut settings = Settings::default();
    settings.gardener = Some(GardenerSettings::default());
    settings.certificates = Some(CertificateSettings::default());
    settings.heartbeat_namespace = Some("default".into());
    settings.agent_namespaces = vec!["default".into()];
    settings
}

/// The state of everything that an operator could have changed.
async fn state(rig: &Rig) -> BTreeMap<String, String> {
    let mut state = BTreeMap::new();
    for hypervisor in rig.hypervisors().list(&ListParams::default()).await.unwrap() {
        let version = hypervisor.metadata.resource_version.unwrap_or_default();
        state.insert(format!("hypervisor {}", hypervisor.metadata.name.unwrap_or_default()), version);
    }
    let (services, aggregates) = (rig.nova.services().await.unwrap(), rig.nova.aggregates().await.unwrap());
    state.insert("services".into(), format!("{services:?}"));
    state.insert("aggregates".into(), format!("{aggregates:?}"));
    state
}

#[tokio::test(start_paused = true)]
async fn a_region_with_drift_is_left_as_it_is_and_the_wishes_are_listed() {
    let rig = Rig::new(Region::builder().hosts(3).vms_per_host(2).build()).await;
    rig.cluster.join_all().await.unwrap();
    let hosts = rig.region.hosts();
    // What an earlier operator has left behind: Hypervisors, one of them empty and to go.
    let before = Shutdown::new();
    rig.operator_until(Settings::default(), before.clone());
    for host in &hosts {
        rig.until(host, "made", |hv| hv.status.is_some()).await;
    }
    rig.cluster.manage(&hosts[0], true).await.unwrap();
    rig.until(&hosts[0], "managed", |hv| hv.spec.lifecycle_enabled()).await;
    before.trigger();
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.patch(&hosts[0], json!({"maintenance": "termination"})).await;
    say(&rig, &hosts[0], "Evicting", "False", "Succeeded").await;
    // And what has happened since.
    rig.cluster.label(&hosts[1], "kubernetes.metal.cloud.sap/bb", Some("bb999")).await.unwrap();

    let untouched = state(&rig).await;
    let calls = rig.nova.faults().all_calls();
    rig.cluster.server().counters().reset();
    let operator = rig.new_operator(everything()).observe_only(true);
    let hand = operator.hand();
    tokio::spawn(operator.run(rig.stop.clone()));
    let about = |host: &str| -> Vec<String> {
        hand.wishes().into_iter().filter(|wish| wish.about == host).map(|wish| wish.action).collect()
    };
    rig.wait("a wish about each", async || {
        about(hosts[0].as_str()).iter().any(|wish| wish.starts_with("create the Deployment"))
            && about(hosts[1].as_str()).iter().any(|wish| wish.contains("labels"))
    })
    .await;
    assert!(hand.wishes_by_kind().contains_key("ApplyKeeper"), "{:?}", hand.wishes_by_kind());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(state(&rig).await, untouched);
    let counters = rig.cluster.server().counters();
    assert_eq!(counters.of_client("operator").writes, 0, "{:?}", counters.all());
    let asked = rig.nova.faults().all_calls();
    let new = asked.iter().filter(|(call, count)| calls.get(*call) != Some(count)).map(|(call, _)| *call);
    let looks = ["services", "hypervisors", "hypervisor", "aggregates", "traits"];
    let new: Vec<_> = new.filter(|call| !looks.contains(call)).collect();
    assert!(new.is_empty(), "{new:?}");

    // A wish that is fulfilled by somebody else is none any more.
    rig.cluster.label(&hosts[1], "kubernetes.metal.cloud.sap/bb", Some("bb000")).await.unwrap();
    rig.wait("no wish left", async || !about(hosts[1].as_str()).iter().any(|wish| wish.contains("labels"))).await;
}
