//! VMs, libvirt and the scheduler do as they like; the status says so.

use cobalt_core::{
    agent::Config,
    api::{Hypervisor, HypervisorStatus, condition_types, resources},
    ids::InstanceId,
};
use serde_json::json;
use tokio::time::Instant;

use super::{super::table::amount, Story, Told, count, failed};

impl Story<'_> {
    pub(super) async fn vms_come_and_go(&self) -> Told {
        self.chapter("VMs come and go")?;
        let host = self.second();
        let since = Instant::now();
        let vm = self.stage.region.boot(host, "3")?;
        let (hypervisor, time) = self
            .follow(since, host, "to show the new VM", |hypervisor| is_active(hypervisor, &vm) == Some(true))
            .await?;
        self.say(format!(
            "A VM was started on {host}. The Hypervisor showed it {time} later: {} now. An agent gathers events for \
             up to {} and then writes once.",
            count(instances(&hypervisor), "VM"),
            super::millis(Config::new("").coalesce),
        ))
        .await?;

        let others = hypervisor.status.iter().flat_map(HypervisorStatus::instances);
        let another =
            others.filter(|other| other.active && other.id != vm.as_str()).map(|other| other.id.clone()).next();
        let who = if another.is_some() { "Another VM" } else { "The VM" };
        let victim = InstanceId::new(another.unwrap_or_else(|| vm.to_string()));
        let since = Instant::now();
        self.stage.region.world().guest_crash(&victim)?;
        let (hypervisor, time) = self
            .follow(since, host, "to show the crashed VM", |hypervisor| is_active(hypervisor, &victim) == Some(false))
            .await?;
        self.say(format!(
            "{who} crashed. {time} later the Hypervisor showed it as not active; it still counts \
             ({}), because it is still defined there and its memory is still promised.",
            count(instances(&hypervisor), "VM"),
        ))
        .await?;
        self.end().await
    }

    pub(super) async fn libvirt_goes_away(&self) -> Told {
        self.chapter("libvirt goes away, and comes back")?;
        let host = self.second();
        let since = Instant::now();
        self.stage.region.world().stop_daemon(host)?;
        let lost = |hypervisor: &Hypervisor| {
            hypervisor.is_false(condition_types::LIBVIRT_CONNECTION) && !stale(hypervisor).is_empty()
        };
        let (hypervisor, time) = self.follow(since, host, "to say that libvirt is gone", lost).await?;
        let reason =
            hypervisor.condition(condition_types::LIBVIRT_CONNECTION).map(|condition| condition.reason.clone());
        self.say(format!(
            "libvirt on {host} stopped. {time} later LibVirtConnection was False, reason {}. On the host {} run on. \
             What was known of them stays published ({}), and the conditions {} say that it is old.",
            reason.unwrap_or_default(),
            count(self.stage.region.world().host(host)?.active_vms, "guest"),
            count(instances(&hypervisor), "VM"),
            stale(&hypervisor).join(", "),
        ))
        .await?;
        let since = Instant::now();
        self.stage.region.world().start_daemon(host)?;
        let (hypervisor, time) = self
            .follow(since, host, "to say that libvirt is back", |hypervisor| {
                hypervisor.is_true(condition_types::LIBVIRT_CONNECTION) && stale(hypervisor).is_empty()
            })
            .await?;
        self.say(format!(
            "libvirt is back, and {time} later so was the connection. Everything was read again: {}.",
            count(instances(&hypervisor), "VM"),
        ))
        .await?;
        self.end().await
    }

    pub(super) async fn the_scheduler_writes(&self) -> Told {
        self.chapter("The scheduler writes too")?;
        let host = self.first();
        let before = self.seen.until_one(host.as_str(), "to have a capacity", |h| effective_cpus(h).is_some()).await?;
        let since = Instant::now();
        self.patch_hypervisor("cortex", host, json!({"spec": {"overcommit": {"cpu": 3.0}}}))
            .await
            .map_err(failed(format!("patch Hypervisor {host} as cortex")))?;
        let wanted = effective_cpus(&before).map(|cpus| cpus * 3);
        let (hypervisor, time) = self
            .follow(since, host, "to offer three times its CPUs, by the word of cortex alone", |hypervisor| {
                effective_cpus(hypervisor) == wanted && owners(hypervisor, "f:overcommit") == ["cortex"]
            })
            .await?;
        self.say(format!(
            "Cortex, the scheduler, set spec.overcommit of {host} to 3 for CPUs, by a merge patch of its own. {time} \
             later the agent offered {} CPUs instead of {}. The field is owned by cortex alone: neither the operator \
             nor the agent has touched it.",
            effective_cpus(&hypervisor).unwrap_or_default(),
            effective_cpus(&before).unwrap_or_default(),
        ))
        .await?;
        self.end().await
    }
}

fn is_active(hypervisor: &Hypervisor, vm: &InstanceId) -> Option<bool> {
    let instances = hypervisor.status.as_ref()?.instances();
    instances.iter().find(|instance| instance.id == vm.as_str()).map(|instance| instance.active)
}

fn instances(hypervisor: &Hypervisor) -> usize {
    hypervisor.status.as_ref().map_or(0, |status| status.instances().len())
}

fn effective_cpus(hypervisor: &Hypervisor) -> Option<u64> {
    amount(hypervisor.status.as_ref()?.effective_capacity.as_ref(), resources::CPU)
}

/// The conditions that call their section old.
fn stale(hypervisor: &Hypervisor) -> Vec<&str> {
    let old = hypervisor.conditions().iter().filter(|condition| condition.reason == "Stale");
    old.map(|condition| condition.type_.as_str()).collect()
}

/// The managers that own a field of the spec.
fn owners<'a>(hypervisor: &'a Hypervisor, field: &str) -> Vec<&'a str> {
    let entries = hypervisor.metadata.managed_fields.iter().flatten();
    entries
        .filter(|entry| {
            entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer(&format!("/f:spec/{field}")).is_some())
        })
        .filter_map(|entry| entry.manager.as_deref())
        .collect()
}
