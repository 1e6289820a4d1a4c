//! Updates of the operating system: run once, counted, never for ever.

use std::time::Duration;

use cobalt_core::{agent::Updates, api::Hypervisor, host::ActiveState, ids::HostName, runtime::shutdown::Shutdown};
use cobalt_sim::{Region, Timing};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Rig, reason};

const UPDATE: &str = "OperatingSystemUpdate";

struct Updated {
    rig: Rig,
    region: Region,
    host: HostName,
    agent: Shutdown,
}

impl Updated {
    async fn new() -> Self {
        let rig = Rig::new().await;
        // Far longer than a minute: an update under way must not look like one that is done.
        let timing = Timing { os_update: Duration::from_secs(300), ..Timing::default() };
        let region = Region::builder().hosts(1).vms_per_host(1).timing(timing).seed(3).build();
        let host = region.hosts().remove(0);
        let agent = rig.stop.child();
        let this = Self { rig, region, host, agent };
        this.rig.operator();
        this.start_agent(this.agent.clone());
        this.rig.add_node(this.host.as_str(), json!({}), json!({})).await;
        this.until("reported", |hv| version(hv) == Some("1877.2")).await;
        this.rig.rest().await;
        this
    }

    fn start_agent(&self, stop: Shutdown) {
        self.rig.agent_with(&self.region, &self.host, stop, |agent| agent.part(Updates::new()));
    }

    async fn until(&self, what: &str, test: impl Fn(&Hypervisor) -> bool) -> Hypervisor {
        self.rig.until(self.host.as_str(), what, test).await
    }

    async fn want(&self, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.rig.hypervisors().patch(self.host.as_str(), &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits for the unit to run, and makes it fail.
    async fn fail(&self, version: &str, left: i32) {
        self.until("running", |hv| reason(hv, UPDATE) == Some("Running")).await;
        self.set_unit(version, ActiveState::Failed);
        self.until("failed", |hv| progress(hv) == (false, left)).await;
    }

    fn set_unit(&self, version: &str, state: ActiveState) {
        let unit = format!("systemd-sysupdate@{version}.service");
        self.region.world().set_unit(&self.host, &unit, state).unwrap();
    }

    fn reboots(&self) -> usize {
        self.region.world().log().iter().filter(|note| note.text.ends_with(" reboots")).count()
    }
}

fn version(hypervisor: &Hypervisor) -> Option<&str> {
    hypervisor.status.as_ref()?.operating_system.as_ref()?.version.as_deref()
}

fn installed(hypervisor: &Hypervisor) -> Option<&str> {
    hypervisor.status.as_ref()?.update_status.as_ref()?.installed.as_deref()
}

fn progress(hypervisor: &Hypervisor) -> (bool, i32) {
    let status = hypervisor.status.clone().unwrap_or_default().update_status.unwrap_or_default();
    (status.in_progress(), status.retry())
}

fn is(hypervisor: &Hypervisor, word: &str) -> bool {
    reason(hypervisor, UPDATE) == Some(word)
}

#[tokio::test(start_paused = true)]
async fn an_update_is_followed_to_its_end_and_the_host_reboots_once_if_wanted() {
    let updated = Updated::new().await;
    updated.want(json!({"version": "1877.3", "reboot": true})).await;
    let running = updated.until("running", |hv| is(hv, "Running")).await;
    assert_eq!(progress(&running), (true, 3));
    tokio::time::sleep(Duration::from_secs(200)).await;
    updated.until("still running", |hv| is(hv, "Running") && progress(hv).0).await;
    let done = updated.until("completed", |hv| is(hv, "Completed")).await;
    assert_eq!((installed(&done), progress(&done)), (Some("1877.3"), (false, 3)));
    assert!(done.is_true(UPDATE));
    updated.until("on the new version", |hv| version(hv) == Some("1877.3")).await;
    updated.rig.rest().await;
    assert_eq!(updated.reboots(), 1);
    updated.rig.an_hour_of_rest(&[("agent", 1), ("operator", 4)]).await;
    assert_eq!(updated.reboots(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_the_wish_for_it_nothing_reboots() {
    let updated = Updated::new().await;
    updated.want(json!({"version": "1877.3"})).await;
    updated.until("completed", |hv| is(hv, "Completed")).await;
    updated.rig.rest().await;
    assert_eq!(updated.reboots(), 0);
    updated.rig.an_hour_of_rest(&[("agent", 1), ("operator", 4)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_update_is_tried_three_times_and_then_only_for_another_version() {
    let updated = Updated::new().await;
    updated.want(json!({"version": "1877.3"})).await;
    for left in [2, 1, 0] {
        updated.fail("1877.3", left).await;
    }
    updated.rig.rest().await;
    let stopped = updated.until("stopped", |hv| is(hv, "Stopped")).await;
    assert!(stopped.condition(UPDATE).unwrap().message.contains("change spec.version"));
    assert_eq!(stopped.spec.version.as_deref(), Some("1877.3"), "the wish is not ours to take back");
    updated.rig.an_hour_of_rest(&[("agent", 1), ("operator", 4)]).await;
    // Not even after a restart.
    updated.agent.trigger();
    updated.start_agent(updated.rig.stop.clone());
    tokio::time::sleep(Duration::from_secs(1200)).await;
    updated.until("still stopped", |hv| is(hv, "Stopped") && progress(hv) == (false, 0)).await;
    updated.want(json!({"version": "1877.4"})).await;
    let done = updated.until("completed", |hv| is(hv, "Completed")).await;
    assert_eq!((installed(&done), progress(&done)), (Some("1877.4"), (false, 3)));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_restarts_in_the_midst_follows_the_update_that_runs() {
    let updated = Updated::new().await;
    updated.want(json!({"version": "1877.3"})).await;
    updated.fail("1877.3", 2).await;
    updated.until("running again", |hv| is(hv, "Running")).await;
    updated.agent.trigger();
    tokio::time::sleep(Duration::from_secs(60)).await;
    updated.start_agent(updated.rig.stop.child());
    tokio::time::sleep(Duration::from_secs(60)).await;
    updated.until("under way", |hv| is(hv, "Running") && progress(hv) == (true, 2)).await;
    updated.until("completed", |hv| is(hv, "Completed")).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_while_the_agent_was_away_is_counted() {
    let updated = Updated::new().await;
    updated.want(json!({"version": "1877.3"})).await;
    updated.until("running", |hv| is(hv, "Running")).await;
    updated.agent.trigger();
    tokio::time::sleep(Duration::from_secs(10)).await;
    updated.set_unit("1877.3", ActiveState::Failed);
    updated.start_agent(updated.rig.stop.clone());
    updated.until("counted", |hv| progress(hv).1 == 2).await;
    updated.until("completed by the next attempt", |hv| is(hv, "Completed")).await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_would_name_another_unit_is_refused() {
    let updated = Updated::new().await;
    updated.want(json!({"version": "../../etc/passwd"})).await;
    let refused = updated.until("refused", |hv| is(hv, "Stopped")).await;
    assert!(refused.is_false(UPDATE));
    updated.want(json!({"version": "latest"})).await;
    let done = updated.until("completed", |hv| is(hv, "Completed")).await;
    assert_eq!(installed(&done), Some("latest"));
}
