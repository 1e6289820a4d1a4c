//! A shutdown of the host waits until the instances have left, and never longer than it may.

use std::time::Duration;

use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Matcher},
};
use cobalt_core::{
    agent::{BOOT_ID_ANNOTATION, EVACUATE_ON_REBOOT, REBOOT_REASON, Reboots},
    api::{Hypervisor, Maintenance},
    ids::HostName,
    runtime::shutdown::Shutdown,
};
use cobalt_sim::{Region, Timing};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Rig, reason};

const DRAIN_TIME: Duration = Duration::from_secs(600);

/// A host with VMs and an agent that looks after its reboots.
struct Watched {
    rig: Rig,
    region: Region,
    host: HostName,
    agent: Shutdown,
}

impl Watched {
    async fn new(vms: usize, inhibit_delay: Duration) -> Self {
        let rig = Rig::new().await;
        let timing = Timing { inhibit_delay, ..Timing::default() };
        let region = Region::builder().hosts(1).vms_per_host(vms).timing(timing).seed(3).build();
        let host = region.hosts().remove(0);
        let agent = rig.stop.child();
        let this = Self { rig, region, host, agent };
        this.rig.operator();
        this.start_agent(this.agent.clone());
        this.rig.add_node(this.host.as_str(), json!({}), json!({})).await;
        this.rig.until(this.host.as_str(), "reported", |hv| hv.is_true("LibVirtConnection")).await;
        this.patch(json!({"spec": {"evacuateOnReboot": true}})).await;
        this.until("watched", |hv| hv.condition(EVACUATE_ON_REBOOT).is_some()).await;
        this.rig.rest().await;
        this
    }

    async fn usual(vms: usize) -> Self {
        Self::new(vms, Duration::from_secs(1200)).await
    }

    fn start_agent(&self, stop: Shutdown) {
        self.rig.agent_with(&self.region, &self.host, stop, |agent| agent.part(Reboots::new(DRAIN_TIME)));
    }

    async fn until(&self, what: &str, test: impl Fn(&Hypervisor) -> bool) -> Hypervisor {
        self.rig.until(self.host.as_str(), what, test).await
    }

    async fn get(&self) -> Hypervisor {
        self.rig.hypervisors().get(self.host.as_str()).await.unwrap()
    }

    /// A person's edit.
    async fn patch(&self, patch: Value) {
        let params = PatchParams { field_manager: Some("a person".into()), ..PatchParams::default() };
        self.rig.hypervisors().patch(self.host.as_str(), &params, &Patch::Merge(patch)).await.unwrap();
    }

    /// What an operator says about its drain.
    async fn evicting(&self, status: &str, reason: &str) {
        let condition = json!({"type": "Evicting", "status": status, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let body = json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
            "status": {"conditions": [condition]}});
        let params = PatchParams::apply("drain").force();
        self.rig.hypervisors().patch_status(self.host.as_str(), &params, &Patch::Apply(body)).await.unwrap();
    }

    fn empty(&self) {
        let world = self.region.world();
        for vm in world.servers() {
            world.delete(&vm).unwrap();
        }
    }

    fn is_up(&self) -> bool {
        self.region.world().host(&self.host).unwrap().running
    }

    /// Waits until the host goes down, and tells how long that took.
    async fn down(&self) -> Duration {
        let began = Instant::now();
        while self.is_up() {
            assert!(began.elapsed() < 3 * DRAIN_TIME, "it never goes down");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        began.elapsed()
    }

    async fn draining(&self) -> Hypervisor {
        self.region.world().reboot(&self.host).unwrap();
        self.until("out of service", |hv| hv.spec.maintenance() == &Maintenance::Auto).await
    }
}

const AT_ONCE: Duration = Duration::from_secs(1);

fn is_marked(hypervisor: &Hypervisor) -> bool {
    hypervisor.annotations().contains_key(BOOT_ID_ANNOTATION)
}

#[tokio::test(start_paused = true)]
async fn a_reboot_waits_for_the_drain_and_the_host_comes_back_into_service() {
    let watched = Watched::usual(3).await;
    assert_eq!(reason(&watched.get().await, EVACUATE_ON_REBOOT), Some("Ready"));
    let marked = watched.draining().await;
    assert_eq!(marked.spec.maintenance_reason.as_deref(), Some(REBOOT_REASON));
    assert!(is_marked(&marked));
    watched.evicting("True", "Running").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(watched.is_up(), "it waits");
    // Nova alone, or the host alone, is not believed.
    watched.evicting("False", "Succeeded").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(watched.is_up(), "VMs still run here");
    watched.empty();
    assert!(watched.down().await < AT_ONCE);
    let back = watched.until("back in service", |hv| hv.spec.maintenance().is_off()).await;
    assert!(!is_marked(&back));
    assert_eq!(back.spec.maintenance_reason, None);
    watched.until("watched again", |hv| reason(hv, EVACUATE_ON_REBOOT) == Some("Ready")).await;
    watched.rig.rest().await;
    watched.rig.an_hour_of_rest(&[("agent", 1), ("operator", 4)]).await;
}

#[tokio::test(start_paused = true)]
async fn the_reboot_of_an_empty_host_is_not_held_back_and_nothing_is_set() {
    let watched = Watched::usual(0).await;
    watched.region.world().reboot(&watched.host).unwrap();
    assert!(watched.down().await < AT_ONCE);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(watched.is_up());
    let after = watched.get().await;
    assert!(after.spec.maintenance().is_off() && !is_marked(&after));
    // And the next one is held back again.
    watched.region.boot(&watched.host, "2").unwrap();
    watched.draining().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_fails_is_waited_for_until_the_bound_and_no_longer() {
    let watched = Watched::usual(2).await;
    watched.draining().await;
    watched.evicting("True", "Failed").await;
    let took = watched.down().await;
    assert!(took + AT_ONCE > DRAIN_TIME && took < DRAIN_TIME + AT_ONCE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_called_off_puts_the_host_back_into_service_and_it_is_watched_on() {
    let watched = Watched::usual(2).await;
    watched.draining().await;
    watched.region.world().cancel_shutdown(&watched.host).unwrap();
    let back = watched.until("back in service", |hv| hv.spec.maintenance().is_off()).await;
    assert!(!is_marked(&back));
    watched.rig.rest().await;
    watched.draining().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(watched.is_up(), "the next one waits too");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_ends_lets_the_shutdown_go() {
    let watched = Watched::usual(2).await;
    watched.draining().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    watched.agent.trigger();
    assert!(watched.down().await < AT_ONCE);
    // The one that starts after the boot clears what its predecessor has set.
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(is_marked(&watched.get().await));
    watched.start_agent(watched.rig.stop.clone());
    watched.until("back in service", |hv| hv.spec.maintenance().is_off() && !is_marked(hv)).await;
}

#[tokio::test(start_paused = true)]
async fn without_libvirt_nothing_can_leave_and_the_shutdown_goes_on() {
    let watched = Watched::usual(2).await;
    watched.draining().await;
    watched.region.world().restart_daemon(&watched.host).unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(watched.is_up(), "a restart of the daemon is waited for");
    watched.region.world().stop_daemon(&watched.host).unwrap();
    let took = watched.down().await;
    assert!(took > Duration::from_secs(30) && took < Duration::from_secs(120), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_hypervisor_lets_the_shutdown_go() {
    let watched = Watched::usual(2).await;
    watched.draining().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    watched.rig.hypervisors().delete(watched.host.as_str(), &DeleteParams::default()).await.unwrap();
    assert!(watched.down().await < AT_ONCE);
}

#[tokio::test(start_paused = true)]
async fn a_person_who_ends_the_maintenance_or_the_wish_is_obeyed() {
    for patch in [json!({"maintenance": null, "maintenanceReason": null}), json!({"evacuateOnReboot": false})] {
        let watched = Watched::usual(2).await;
        watched.draining().await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        watched.patch(json!({"spec": patch})).await;
        assert!(watched.down().await < AT_ONCE);
    }
}

#[tokio::test(start_paused = true)]
async fn a_mode_that_a_person_sets_meanwhile_stays_after_the_reboot() {
    let watched = Watched::usual(2).await;
    watched.draining().await;
    // Only the mode: the reason is still the one the agent wrote, and a manual mode must have one.
    watched.patch(json!({"spec": {"maintenance": "manual"}})).await;
    watched.until("disowned", |hv| !is_marked(hv)).await;
    watched.evicting("False", "Succeeded").await;
    watched.empty();
    assert!(watched.down().await < AT_ONCE);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let after = watched.get().await;
    assert_eq!(after.spec.maintenance(), &Maintenance::Manual);
    assert_eq!(after.spec.maintenance_reason.as_deref(), Some(REBOOT_REASON));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_in_maintenance_already_is_waited_for_and_left_so() {
    let watched = Watched::usual(2).await;
    watched.patch(json!({"spec": {"maintenance": "manual", "maintenanceReason": "new disks"}})).await;
    watched.evicting("True", "Running").await;
    watched.region.world().reboot(&watched.host).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(watched.is_up());
    watched.empty();
    watched.evicting("False", "Succeeded").await;
    assert!(watched.down().await < AT_ONCE);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let after = watched.get().await;
    assert_eq!(after.spec.maintenance_reason.as_deref(), Some("new disks"));
    assert!(!is_marked(&after));
}

#[tokio::test(start_paused = true)]
async fn a_silent_api_server_does_not_hold_the_shutdown_longer_than_the_bound() {
    let watched = Watched::usual(2).await;
    let writes = Matcher::client("agent").verb(Verb::Patch).resource("hypervisors.kvm.cloud.sap");
    watched.rig.server.faults().add(Fault::new(writes, Effect::Latency { millis: 3_600_000 }));
    watched.region.world().reboot(&watched.host).unwrap();
    let took = watched.down().await;
    assert!(took < DRAIN_TIME + AT_ONCE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_mode_is_set_although_the_first_attempts_fail() {
    let watched = Watched::usual(2).await;
    let writes = Matcher::client("agent").verb(Verb::Patch).resource("hypervisors.kvm.cloud.sap").times(3);
    watched.rig.server.faults().add(Fault::new(writes, Effect::Status { code: 503, retry_after: None }));
    watched.draining().await;
    assert!(watched.is_up());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_waits_too_short_says_so_and_how_to_change_it() {
    let watched = Watched::new(1, Duration::from_secs(5)).await;
    let condition = watched.get().await.condition(EVACUATE_ON_REBOOT).unwrap().clone();
    assert_eq!((condition.is_false(), condition.reason.as_str()), (true, "DelayTooShort"));
    assert!(condition.message.contains("InhibitDelayMaxSec=600"), "{}", condition.message);
    watched.patch(json!({"spec": {"evacuateOnReboot": false}})).await;
    watched.until("not said any more", |hv| hv.condition(EVACUATE_ON_REBOOT).is_none()).await;
    watched.region.world().reboot(&watched.host).unwrap();
    assert!(watched.down().await < AT_ONCE, "nobody holds it back");
}
