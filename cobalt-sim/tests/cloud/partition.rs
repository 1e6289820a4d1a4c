//! Operators for parts of a region leave each other's parts alone.

use std::{sync::Arc, time::Duration};

use cobalt_core::{
    ids::HostName,
    operator::{Settings, default_stages},
};
use cobalt_sim::Region;
use kube::ResourceExt;

use super::Rig;

const LABEL: &str = "example.com/part";

fn part(rig: &Rig, name: &str) {
    let mut settings = Settings::default();
    settings.label_selector = format!("{LABEL}={name}");
    let operator = rig.new_operator(Settings::default()).settings(settings);
    tokio::spawn(operator.run(rig.stop.clone()));
}

async fn label_of(rig: &Rig, host: &HostName) -> Option<String> {
    rig.hypervisors().get_opt(host.as_str()).await.unwrap()?.labels().get(LABEL).cloned()
}

#[tokio::test(start_paused = true)]
async fn each_part_has_its_nodes_and_a_node_that_moves_takes_its_hypervisor_along() {
    let rig = Rig::new(Region::builder().hosts(3).build()).await;
    rig.cluster.join_all().await.unwrap();
    let hosts = rig.region.hosts();
    rig.cluster.label(&hosts[0], LABEL, Some("a")).await.unwrap();
    rig.cluster.label(&hosts[1], LABEL, Some("b")).await.unwrap();
    part(&rig, "a");
    rig.until(&hosts[0], "made", |hv| hv.labels().get(LABEL).is_some_and(|part| part == "a")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(rig.hypervisors().get_opt(hosts[1].as_str()).await.unwrap().is_none(), "not its part");
    assert!(rig.hypervisors().get_opt(hosts[2].as_str()).await.unwrap().is_none(), "nobody's part");

    part(&rig, "b");
    rig.until(&hosts[1], "made by the other", |hv| hv.labels().get(LABEL).is_some_and(|part| part == "b")).await;
    rig.cluster.label(&hosts[0], LABEL, Some("b")).await.unwrap();
    rig.wait("moved", async || label_of(&rig, &hosts[0]).await.as_deref() == Some("b")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.at_rest(Duration::from_secs(600)).await;
}

#[tokio::test(start_paused = true)]
async fn a_hypervisor_from_the_time_before_there_were_parts_is_taken_over_and_not_made_anew() {
    let rig = Rig::new(Region::builder().hosts(1).build()).await;
    rig.cluster.join_all().await.unwrap();
    let host = rig.region.hosts().remove(0);
    let whole = cobalt_core::runtime::shutdown::Shutdown::new();
    let operator = rig.new_operator(Settings::default()).stages(Arc::from(default_stages()));
    tokio::spawn(operator.run(whole.clone()));
    let made = rig.until(&host, "made", |hv| hv.status.is_some()).await;
    rig.patch(&host, serde_json::json!({"evacuateOnReboot": true})).await;
    whole.trigger();
    rig.cluster.label(&host, LABEL, Some("a")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(label_of(&rig, &host).await, None);
    part(&rig, "a");
    let taken = rig.until(&host, "labelled", |hv| hv.labels().contains_key(LABEL)).await;
    assert_eq!(taken.uid(), made.uid());
    assert_eq!(taken.spec.evacuate_on_reboot, Some(true), "what a person made of it is kept");
    rig.until(&host, "judged", |hv| hv.condition("Ready").is_some()).await;
}
