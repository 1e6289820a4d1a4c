//! What befalls VMs, as it shows in the status, in Events and in the metrics.

use std::{sync::Arc, time::Duration};

use cobalt_core::{
    agent::exporter::Exporter,
    backend::{HypervisorBackend, PowerAction, WatchdogAction},
    ids::{HostName, InstanceId},
    runtime::{events, metrics::Metrics},
};
use cobalt_sim::{Driver, Region};
use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};
use serde_json::json;

use super::{Rig, clock, reason};

/// A host with three VMs, its agent at rest.
struct Watched {
    rig: Rig,
    region: Region,
    host: HostName,
    metrics: Arc<Metrics>,
}

impl Watched {
    async fn new() -> Self {
        let rig = Rig::new().await;
        let region = Region::builder().hosts(1).vms_per_host(3).seed(3).build();
        let host = region.hosts().remove(0);
        let metrics = Arc::new(Metrics::new());
        let client = rig.program("agent events");
        let (recorder, publisher) = events::recorder(client, "agent", "agent-0", clock(), metrics.clone());
        tokio::spawn(publisher.run(rig.stop.clone()));
        rig.operator();
        rig.agent_with(&region, &host, rig.stop.clone(), |agent| agent.recorder(recorder).metrics(metrics.clone()));
        rig.add_node(host.as_str(), json!({}), json!({})).await;
        let this = Self { rig, region, host, metrics };
        this.until("healthy", "Healthy").await;
        this.rig.rest().await;
        this
    }

    async fn vm(&self) -> InstanceId {
        self.region.backend(&self.host).unwrap().inventory().await.unwrap().remove(0).id
    }

    async fn until(&self, what: &str, wanted: &str) -> String {
        let host = self.host.as_str();
        let seen = self.rig.until(host, what, |hv| reason(hv, "InstancesHealthy") == Some(wanted)).await;
        seen.condition("InstancesHealthy").unwrap().message.clone()
    }

    /// The reasons of all Events so far, in order.
    async fn told(&self) -> Vec<String> {
        self.rig.rest().await;
        let events: Api<Event> = Api::all(self.rig.client.clone());
        let mut list = events.list(&ListParams::default()).await.unwrap().items;
        list.sort_by_key(|event| event.event_time.clone().map(|time| time.0));
        list.into_iter().filter_map(|event| event.reason).filter(|reason| reason.starts_with("Guest")).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_stopped_by_its_disk_is_shown_until_it_runs_again() {
    let watched = Watched::new().await;
    let vm = watched.vm().await;
    let began = tokio::time::Instant::now();
    watched.region.world().disk_error(&vm, "vda", "enospc").unwrap();
    let message = watched.until("sick", "GuestIoError").await;
    assert!(began.elapsed() < Duration::from_secs(2), "by its event, not by a resync");
    assert!(message.contains("vda: enospc") && message.contains(vm.as_str()), "{message}");
    watched.rig.an_hour_of_rest(&[("agent", 1)]).await;
    watched.region.backend(&watched.host).unwrap().power(&vm, PowerAction::Resume).await.unwrap();
    assert_eq!(watched.until("healed", "Healthy").await, "");
    assert_eq!(watched.told().await, ["GuestIoError"], "told once, though two events tell of it");
}

#[tokio::test(start_paused = true)]
async fn a_reboot_is_shown_for_a_while_and_told_once() {
    let watched = Watched::new().await;
    let vm = watched.vm().await;
    watched.region.world().guest_reboot(&vm).unwrap();
    let host = watched.host.as_str();
    let message = |hv: &cobalt_core::api::Hypervisor| hv.condition("InstancesHealthy").unwrap().message.clone();
    watched.rig.until(host, "rebooted", |hv| message(hv).starts_with("rebooted: ")).await;
    tokio::time::sleep(Duration::from_secs(601)).await;
    watched.rig.until(host, "quiet", |hv| message(hv).is_empty()).await;
    assert_eq!(watched.told().await, ["GuestRebooted"]);
}

#[tokio::test(start_paused = true)]
async fn a_watchdog_and_a_crash_are_told_and_the_worse_one_gives_the_reason() {
    let watched = Watched::new().await;
    let vm = watched.vm().await;
    watched.region.world().guest_watchdog(&vm, WatchdogAction::Reset).unwrap();
    watched.until("watchdog", "GuestWatchdog").await;
    watched.region.world().guest_crash(&vm).unwrap();
    let message = watched.until("crashed", "GuestCrashed").await;
    assert!(message.contains("crashed: ") && message.contains("watchdog fired: "), "{message}");
    let mut told = watched.told().await;
    told.sort();
    assert_eq!(told, ["GuestCrashed", "GuestRebooted", "GuestWatchdog"]);
}

#[tokio::test(start_paused = true)]
async fn events_are_counted_and_the_time_to_their_write_is_measured() {
    let watched = Watched::new().await;
    let vm = watched.vm().await;
    watched.region.world().disk_error(&vm, "vda", "enospc").unwrap();
    watched.until("sick", "GuestIoError").await;
    watched.rig.rest().await;
    let text = watched.metrics.encode();
    for line in [
        "cobalt_agent_libvirt_events_total{kind=\"io-error\"} 1",
        "cobalt_agent_libvirt_connected 1",
        "cobalt_agent_libvirt_connections_total 1",
        "cobalt_agent_domains{state=\"paused_on_io_error\"} 1",
        "cobalt_agent_domains{state=\"running\"} 2",
        "cobalt_agent_driver{driver=\"qemu\"} 1",
        "cobalt_agent_event_to_status_seconds_count 1",
        "cobalt_agent_event_to_status_seconds_bucket{le=\"0.25\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    watched.region.world().stop_daemon(&watched.host).unwrap();
    watched.rig.until(watched.host.as_str(), "lost", |hv| hv.is_false("LibVirtConnection")).await;
    assert!(watched.metrics.encode().contains("cobalt_agent_libvirt_connected 0"));
}

#[tokio::test(start_paused = true)]
async fn the_exporter_tells_of_every_vm_whatever_the_driver_can() {
    for (driver, line) in [(Driver::Qemu, "libvirt_domain_vcpu_time_seconds_total{"), (Driver::CloudHypervisor, "")] {
        let region = Region::builder().hosts(1).vms_per_host(3).driver(driver).seed(3).build();
        let host = region.hosts().remove(0);
        let metrics = Metrics::new();
        let backend = Arc::new(region.backend(&host).unwrap());
        metrics.source("libvirt", Duration::from_secs(9), Exporter::new(backend, &metrics));
        let text = metrics.scrape().await;
        assert!(text.contains("\nlibvirt_up 1\n") && text.contains(line), "{text}");
        assert_eq!(text.matches("\nlibvirt_domain_info_vcpus{").count(), 3);
        region.world().stop_daemon(&host).unwrap();
        let text = metrics.scrape().await;
        assert!(text.contains("\nlibvirt_up 0\n") && !text.contains("libvirt_domain_"), "{text}");
    }
}
