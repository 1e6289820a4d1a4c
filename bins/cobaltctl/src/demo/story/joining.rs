//! Nodes appear, agents report, Nodes change.

use std::collections::BTreeSet;

use cobalt_core::api::{HypervisorStatus, condition_types, labels, resources};
use kube::ResourceExt;
use serde_json::json;
use tokio::time::Instant;

use super::{
    super::table::{amount, gib},
    Story, Told, after, count,
};

impl Story<'_> {
    pub(super) async fn nodes_appear(&self) -> Told {
        self.chapter("Nodes appear")?;
        self.stage.start_operator();
        let since = Instant::now();
        self.stage.cluster.join_all().await?;
        let wanted = self.hosts.len();
        let messages = self
            .seen
            .until("a Hypervisor per Node, with lifecycle off and a verdict", |seen| {
                let all = seen.all();
                let off = all.iter().all(|hypervisor| hypervisor.spec.lifecycle_enabled == Some(false));
                let messages: BTreeSet<String> = all
                    .iter()
                    .filter_map(|hypervisor| hypervisor.condition(condition_types::READY))
                    .filter(|ready| ready.is_false())
                    .map(|ready| ready.message.clone())
                    .collect();
                let judged = all.iter().filter(|hypervisor| hypervisor.is_false(condition_types::READY)).count();
                (all.len() == wanted && off && judged == wanted).then_some(messages)
            })
            .await?;
        self.say(format!(
            "{} joined the cluster with the label {}. After {} the operator had made a Hypervisor for each of them.",
            count(wanted, "Node"),
            labels::VIRT_DRIVER,
            after(since),
        ))
        .await?;
        self.say(format!(
            "Their lifecycle is off, because no Node has the label {}. The operator writes that out on purpose: the \
             field's default is true, and leaving it away would bring every machine that joins into service.",
            labels::LIFECYCLE,
        ))
        .await?;
        self.say(format!("Ready is False: {}.", messages.into_iter().collect::<Vec<_>>().join("; "))).await?;
        self.end().await
    }

    pub(super) async fn agents_report(&self) -> Told {
        self.chapter("Agents report")?;
        let since = Instant::now();
        for host in &self.hosts {
            self.stage.start_agent(host)?;
        }
        let wanted = self.hosts.len();
        let reports = self
            .seen
            .until("a report of every agent", |seen| {
                let complete = |status: &HypervisorStatus| {
                    status.allocation.is_some() && status.capacity.is_some() && status.operating_system.is_some()
                };
                let reports: Vec<_> =
                    seen.all().iter().filter_map(|hypervisor| hypervisor.status.clone()).filter(complete).collect();
                (reports.len() == wanted).then_some(reports)
            })
            .await?;
        let time = after(since);
        let sum =
            |resource| reports.iter().filter_map(|status| amount(status.capacity.as_ref(), resource)).sum::<u64>();
        let vms: usize = reports.iter().map(|status| status.instances().len()).sum();
        self.say(format!(
            "A node agent started on every host. After {time} all of them had reported: {} CPUs, {} GiB of memory and \
             {} in the region.",
            sum(resources::CPU),
            gib(sum(resources::MEMORY)),
            count(vms, "VM"),
        ))
        .await?;
        let kinds: BTreeSet<String> = reports.iter().map(versions).collect();
        self.say(format!("They run {}.", kinds.into_iter().collect::<Vec<_>>().join("; "))).await?;
        self.end().await
    }

    pub(super) async fn a_node_changes(&self) -> Told {
        self.chapter("A Node changes, its Hypervisor follows")?;
        let host = self.first();
        let since = Instant::now();
        self.patch_node(
            host,
            json!({"metadata": {
                "labels": {labels::BUILDING_BLOCK: "bb042"},
                "annotations": {labels::AGGREGATES_ANNOTATION: "general-purpose, nvme"},
            }}),
        )
        .await?;
        let (hypervisor, time) = self
            .follow(since, host, "to follow the labels of its Node", |hypervisor| {
                hypervisor.labels().get(labels::BUILDING_BLOCK).is_some_and(|block| block == "bb042")
                    && !hypervisor.spec.aggregates().is_empty()
            })
            .await?;
        self.say(format!(
            "Node {host} was moved to another building block and given an annotation with its aggregates. {time} later \
             its Hypervisor had the label and the aggregates {}: the zone is one of them.",
            hypervisor.spec.aggregates().join(", "),
        ))
        .await?;
        let since = Instant::now();
        self.patch_node(
            host,
            json!({"metadata": {
                "annotations": {labels::AGGREGATES_ANNOTATION: null},
            }}),
        )
        .await?;
        let (_, time) = self
            .follow(since, host, "to follow the removal of the annotation", |hypervisor| {
                hypervisor.spec.aggregates().is_empty()
            })
            .await?;
        self.say(format!(
            "The annotation was taken away again. {time} later no aggregate was left. Taking something off a Node counts \
             as much as putting it on.",
        ))
        .await?;
        self.end().await
    }
}

/// The software of a host in a few words.
fn versions(status: &HypervisorStatus) -> String {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
    let system = status.operating_system.clone().unwrap_or_default();
    format!(
        "{} with libvirt {} and hypervisor {}",
        known(&system.pretty_version),
        known(&status.lib_virt_version),
        known(&status.hypervisor_version),
    )
}
