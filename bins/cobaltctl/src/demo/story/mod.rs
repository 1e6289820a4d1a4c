//! The story: what is made to happen, what was then seen, and nothing else.

mod drain;
mod joining;
mod leaving;
mod running;
mod serving;

use std::{collections::BTreeMap, fmt::Write as _, path::Path, sync::Arc, time::Duration};

use cobalt_core::{
    api::{Hypervisor, labels},
    ids::HostName,
};
use k8s_openapi::api::{core::v1::Node, events::v1::Event};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::Value;
use tokio::time::Instant;

pub(super) use self::drain::progress;
use super::{
    Args, DemoError,
    narrate::Narrator,
    observe::Observer,
    stage::{DEMO, Stage},
};

type Told = Result<(), DemoError>;

/// Everybody on the stage, and what the story needs to speak of them.
pub(super) struct Story<'a> {
    stage: &'a Stage,
    narrator: &'a Narrator,
    seen: &'a Observer,
    hosts: Vec<HostName>,
    began: Instant,
}

impl<'a> Story<'a> {
    /// A story about the hosts on this stage.
    pub(super) fn new(stage: &'a Stage, narrator: &'a Narrator, seen: &'a Observer) -> Self {
        Self { stage, narrator, seen, hosts: stage.region.hosts(), began: Instant::now() }
    }

    /// Tells it from the first word to the last.
    ///
    /// `kubeconfig` leads others to the same API server.
    pub(super) async fn tell(&self, args: &Args, kubeconfig: Option<&Path>) -> Told {
        self.prologue(args, kubeconfig).await?;
        self.nodes_appear().await?;
        self.agents_report().await?;
        self.a_node_changes().await?;
        self.vms_come_and_go().await?;
        self.libvirt_goes_away().await?;
        self.the_scheduler_writes().await?;
        self.hosts_go_into_service().await?;
        self.maintenance().await?;
        self.a_host_leaves().await?;
        self.rest().await?;
        self.summary(kubeconfig.is_some()).await
    }

    async fn prologue(&self, args: &Args, kubeconfig: Option<&Path>) -> Told {
        self.narrator.heading("Cobalt: a region in one process")?;
        self.say(format!(
            "{} and {} (seed {}), a Kubernetes API server, a Nova and a Placement, the Cobalt operator and one node \
             agent per host. The hosts, the VMs, the cloud and the API server are simulated. The operator and the agents are the programs themselves, in \
             real time; what is told here was seen through the API.",
            count(self.hosts.len(), "host"),
            count(usize::from(args.vms), "VM"),
            args.seed,
        ))
        .await?;
        if let Some(path) = kubeconfig {
            self.narrator.line(&format!("export KUBECONFIG={}", path.display()))?;
        }
        Ok(())
    }

    async fn summary(&self, holds: bool) -> Told {
        let traffic = self.stage.traffic();
        let hosts = self.hosts.len() as u64;
        self.narrator.heading("Summary")?;
        self.say(format!(
            "The story took {:.1} s. The API server counted {} requests of the operator and {} of the agents, watches \
             and Events included.",
            self.began.elapsed().as_secs_f64(),
            traffic.operator.requests,
            traffic.agents.requests,
        ))
        .await?;
        self.say(format!(
            "Writes to Hypervisors: {} by the operator and {} by the agents, for {}: {:.1} per Hypervisor, with all \
             that happened to them. At rest: none.",
            traffic.operator_writes,
            traffic.agent_writes,
            count(self.hosts.len(), "host"),
            ratio(traffic.operator_writes + traffic.agent_writes, hosts),
        ))
        .await?;
        self.say(format!(
            "Nova and Placement were asked {} times. The regional lists among them do not grow with the number of hosts.",
            self.stage.cloud_calls(),
        ))
        .await?;
        self.say(self.events().await?).await?;
        self.narrator.heading("To try next")?;
        if holds {
            let node = self.second();
            self.narrator.line(&format!("kubectl describe hypervisor {}", self.first()))?;
            self.narrator.line(&format!("kubectl label node {node} {}=", labels::LIFECYCLE))?;
            self.narrator.line(&format!("kubectl label node {node} {}-", labels::LIFECYCLE))?;
            return Ok(());
        }
        self.narrator.line("cobaltctl demo --hold          keep the region and look at it with kubectl")?;
        self.narrator.line("cobaltctl demo --nodes 100     the same story with more hosts")?;
        self.narrator.line("cobaltctl crds                 the definitions for a cluster of yours")?;
        Ok(())
    }

    /// The Events our programs have recorded, by reason.
    async fn events(&self) -> Result<String, DemoError> {
        let api: Api<Event> = Api::all(self.stage.client(DEMO));
        let events = api.list(&ListParams::default()).await.map_err(failed("list the Events"))?.items;
        let mut reasons = BTreeMap::<String, usize>::new();
        for event in &events {
            *reasons.entry(event.reason.clone().unwrap_or_default()).or_default() += 1;
        }
        let mut text = format!("{} tell the story to kubectl describe:", count(events.len(), "Event"));
        for (index, (reason, times)) in reasons.iter().enumerate() {
            let _ = write!(text, "{} {reason} ×{times}", if index == 0 { "" } else { "," });
        }
        text.push('.');
        Ok(text)
    }

    async fn say(&self, text: impl AsRef<str>) -> Told {
        Ok(self.narrator.say(text.as_ref()).await?)
    }

    fn chapter(&self, title: &str) -> Told {
        Ok(self.narrator.chapter(title)?)
    }

    /// Ends a chapter with the table as it is now.
    async fn end(&self) -> Told {
        let live = self.narrator.look().live;
        self.narrator.table(super::picture(self.seen, live))?;
        Ok(self.narrator.end_of_chapter().await?)
    }

    /// The host most of the story is about.
    fn first(&self) -> &HostName {
        &self.hosts[0]
    }

    /// The host whose VMs and libvirt have trouble: another one, if there is one.
    fn second(&self) -> &HostName {
        &self.hosts[1 % self.hosts.len()]
    }

    /// The host that leaves.
    fn last(&self) -> &HostName {
        &self.hosts[self.hosts.len() - 1]
    }

    /// A merge patch of a Node, as the metal automation would send it.
    async fn patch_node(&self, node: &HostName, patch: Value) -> Told {
        const WHO: &str = "metal-automation";
        let api: Api<Node> = Api::all(self.stage.client(WHO));
        let params = PatchParams { field_manager: Some(WHO.into()), ..PatchParams::default() };
        api.patch(node.as_str(), &params, &Patch::Merge(patch))
            .await
            .map_err(failed(format!("patch Node {node}")))
            .map(drop)
    }

    /// A merge patch of a Hypervisor by somebody else than us.
    async fn patch_hypervisor(&self, who: &str, name: &HostName, patch: Value) -> Result<Hypervisor, kube::Error> {
        let api: Api<Hypervisor> = Api::all(self.stage.client(who));
        let params = PatchParams { field_manager: Some(who.into()), ..PatchParams::default() };
        api.patch(name.as_str(), &params, &Patch::Merge(patch)).await
    }

    /// Waits for a Hypervisor to be as wanted, and tells how long after `since` it was.
    async fn follow(
        &self,
        since: Instant,
        host: &HostName,
        what: &str,
        is: impl Fn(&Hypervisor) -> bool,
    ) -> Result<(Arc<Hypervisor>, String), DemoError> {
        let found = self.seen.until_one(host.as_str(), what, is).await?;
        Ok((found, after(since)))
    }
}

/// The time since then, for people.
fn after(since: Instant) -> String {
    let time = since.elapsed();
    if time < Duration::from_secs(10) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

/// `100 ms`.
fn millis(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// `3 seconds`.
fn seconds(time: Duration) -> String {
    count(usize::try_from(time.as_secs()).unwrap_or(usize::MAX), "second")
}

/// `1 host`, `4 hosts`.
fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people, with one digit")]
fn ratio(part: u64, of: u64) -> f64 {
    part as f64 / of.max(1) as f64
}

fn failed(operation: impl Into<String>) -> impl FnOnce(kube::Error) -> DemoError {
    let operation = operation.into();
    move |cause| DemoError::Request { operation, cause: Box::new(cause) }
}
