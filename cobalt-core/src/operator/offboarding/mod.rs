//! Stage `offboarding`: the way of a host out of Nova, and of its Hypervisor out of the cluster.
//!
//! ```text
//!   maintenance=termination
//!     onboarding ended ─▶ evicted ─▶ agent pods gone ─▶ no servers ─▶ aggregates left ─▶ service down
//!                                                                                            │ published, then
//!     Offboarded=True ◀── provider gone, with what was still booked on it ◀── service deleted ◀┘
//!
//!   deleted without that: the onboarding is aborted, where it has not ended
//!     not managed, offboarded, its Node lives, or Nova does not know it ───────────────▶ let go at once
//!     no servers, its service is down and was not declared so ─▶ service and provider deleted ─▶ let go
//!     otherwise: waits, drains nothing ─▶ the grace period is over ─▶ LeftBehind, told ─▶ let go
//! ```
//!
//! Each step that waits says for what in `Offboarded=False/Offboarding`. A service is deleted only when Nova does not hear
//! from its agent any more: an agent that still runs makes its provider anew, which then belongs to nobody and keeps the
//! agent from ever starting again. That somebody declared a service down says nothing of its agent, so it counts only for
//! a host that terminates, whose agents' Pods are gone by then.
//!
//! Nodes are watched by their labels. That we see none is not enough to take it for gone: the API server was asked.
//!
//! A [finalizer](labels::FINALIZER) keeps a managed Hypervisor from going while its host is in Nova: from the moment its
//! identities are recorded until it is offboarded, or somebody stops managing it. It never drains and never keeps an
//! object for longer than the grace period. Whoever returns to earlier programs, which do not know it, calls
//! [`release_finalizers`] first.

mod clean;
mod release;

use std::{sync::Arc, time::Duration};

use clap::Args as ClapArgs;
use jiff::{SignedDuration, Timestamp};

use self::clean::CleanUp;
pub use self::release::{Released, release_finalizers};
pub(super) use self::release::{is_held, remove_finalizer};
use super::{AbsentNode, Action, Cloud, Outcome, Plan, Snapshot, Stage, acting, hypervisor::is_terminating};
use crate::{
    api::{Condition, ConditionStatus, Maintenance, condition_types, reasons},
    nova::ServiceState,
    runtime::args::duration,
};

const HEADING: &str = "Offboarding";

/// What is said of a deleted object after what it waits for.
const DELETED: &str = ". Deleted: let go at ";

/// When to ask again whether a Node is gone, after no answer.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// What is said of a Node that is there and is not watched.
const UNLABELLED: &str = "it is there, without the labels by which this operator chooses its Nodes. Label it again, or \
                          delete it";

/// What is waited for while a test server is being deleted.
const ABORTING: &str = "Waiting for the onboarding to be aborted";

/// How everything begins that is said once Nova is being cleaned up.
const REMOVING: &str = "Removing ";

/// How hosts leave.
#[derive(ClapArgs, Clone, Debug)]
#[group(skip)]
pub struct OffboardingArgs {
    /// How long a deleted Hypervisor waits for its host to be empty and down before it is let go and left in Nova
    #[arg(long, default_value = "15m", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub deletion_grace: Duration,
}

impl OffboardingArgs {
    /// The settings they describe.
    pub fn settings(&self) -> OffboardingSettings {
        OffboardingSettings { deletion_grace: self.deletion_grace }
    }
}

/// How it is done.
#[derive(Clone, Debug)]
pub struct OffboardingSettings {
    /// How long a deleted Hypervisor waits for its host to be empty and down.
    pub deletion_grace: Duration,
}

impl Default for OffboardingSettings {
    fn default() -> Self {
        Self { deletion_grace: Duration::from_secs(15 * 60) }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Offboarding {
    cloud: Cloud,
    settings: OffboardingSettings,
}

/// What comes next on the way out.
enum Step {
    /// Nothing, before this has happened.
    Wait(String),
    /// Nova is to be cleaned up.
    Clean,
    /// There is nothing to clean up.
    Nothing,
}

impl Offboarding {
    /// On this cloud.
    pub fn new(cloud: Cloud, settings: OffboardingSettings) -> Self {
        Self { cloud, settings }
    }
}

impl Stage for Offboarding {
    fn name(&self) -> &'static str {
        "offboarding"
    }

    fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
        if seen.hypervisor.is_none() || seen.is_leaving() && !seen.is_held() {
            return;
        }
        let spec = plan.effective_spec();
        if !spec.lifecycle_enabled() || is_offboarded(plan) && *spec.maintenance() == Maintenance::Termination {
            // Not ours to clean up, or clean.
            plan.hold(false);
        } else if seen.is_leaving() {
            self.decide_leaving(seen, plan);
        } else if *spec.maintenance() == Maintenance::Termination {
            plan.hold(true);
            self.decide_termination(seen, plan);
        } else {
            if *spec.maintenance() != Maintenance::Ha && plan.condition(condition_types::OFFBOARDED).is_some() {
                // It is wanted again.
                plan.remove(condition_types::OFFBOARDED);
            }
            if is_registered(seen, plan) {
                plan.hold(true);
            }
        }
    }
}

fn is_true(plan: &Plan, type_: &str) -> bool {
    plan.condition(type_).is_some_and(Condition::is_true)
}

fn is_offboarded(plan: &Plan) -> bool {
    is_true(plan, condition_types::OFFBOARDED)
}

/// Whether a deleted Hypervisor is made anew from its Node, which lives.
pub(super) fn is_made_anew(seen: &Snapshot) -> bool {
    match &seen.node {
        Some(node) => !is_terminating(node),
        None => seen.absent_node == AbsentNode::Unlabelled { terminating: false },
    }
}

/// Whether Nova's names of the host are recorded, or are in this pass.
fn is_registered(seen: &Snapshot, plan: &Plan) -> bool {
    let decided = plan.status.hypervisor_id.is_some() || plan.status.service_id.is_some();
    decided || seen.provider_id().is_some() || seen.service_id().is_some()
}

fn say(plan: &mut Plan, reason: &str, message: impl Into<String>) {
    plan.set(Condition::new(condition_types::OFFBOARDED, ConditionStatus::False, reason, message));
}

fn say_offboarded(plan: &mut Plan) {
    let (status, reason) = (ConditionStatus::True, reasons::OFFBOARDED);
    plan.set(Condition::new(condition_types::OFFBOARDED, status, reason, "Offboarding successful"));
    plan.hold(false);
}

/// What a host that leaves for good waits for, in the order of the drawing.
fn termination_step(seen: &Snapshot, plan: &Plan) -> Step {
    let wait = |text: &str| Step::Wait(text.to_owned());
    if is_true(plan, condition_types::ONBOARDING) {
        return wait(ABORTING);
    }
    let evicted = plan.condition(condition_types::EVICTING).is_some_and(Condition::is_false);
    if seen.service_id().is_some() && !evicted {
        return wait("Waiting for the host to be evicted");
    }
    // Before anything in Nova is looked at: that Nova knows no such host must not end it early.
    if let Some(text) = agents_left(seen, plan) {
        return Step::Wait(text);
    }
    let recorded = seen.status();
    let aggregates = plan.status.aggregates.as_deref().unwrap_or(recorded.aggregates());
    if !aggregates.is_empty() {
        let names: Vec<&str> = aggregates.iter().map(|aggregate| aggregate.name.as_str()).collect();
        return Step::Wait(acting::words(&format!(
            "Waiting for the host to leave its aggregates: {}",
            names.join(", ")
        )));
    }
    match nova_step(seen, true) {
        // What Nova does not show any more may be in Placement still.
        Step::Nothing if seen.provider_id().is_some() => Step::Clean,
        step => step,
    }
}

/// What is waited for until no agent's Pod is left on the host. Without a Node there are no Pods on it.
fn agents_left(seen: &Snapshot, plan: &Plan) -> Option<String> {
    const WAITING: &str = "Waiting for agent pods to leave the node";
    let told = plan.condition(condition_types::AGENT_PODS_EVICTED);
    if seen.is_node_gone() || seen.node.is_some() && told.is_some_and(Condition::is_true) {
        return None;
    }
    Some(match (&seen.node, &seen.absent_node) {
        (Some(_), _) => match told.filter(|told| told.reason == reasons::FAILED) {
            Some(failed) => format!("{WAITING}: {}", failed.message),
            None => WAITING.to_owned(),
        },
        (None, AbsentNode::Unlabelled { .. }) => format!("{WAITING}: {UNLABELLED}"),
        (None, AbsentNode::Failed(why)) => format!("{WAITING}: whether there still is one is not known: {why}"),
        (None, AbsentNode::NotAsked | AbsentNode::Gone) => WAITING.to_owned(),
    })
}

/// What a host whose Hypervisor was deleted waits for.
///
/// One that Nova does not show is not ours to remove: its cell may be down. Unless we have begun: then its service is gone
/// because we deleted it, and its provider may be there still. So what was begun is remembered in what is said.
fn abandoned_step(seen: &Snapshot, plan: &Plan) -> Step {
    if is_true(plan, condition_types::ONBOARDING) {
        return Step::Wait(ABORTING.to_owned());
    }
    let told = plan.condition(condition_types::OFFBOARDED);
    let begun = told.is_some_and(|it| it.is_false() && it.message.starts_with(REMOVING));
    match nova_step(seen, false) {
        Step::Nothing if begun && seen.provider_id().is_some() => Step::Clean,
        Step::Wait(text) if begun => Step::Wait(format!("{REMOVING}{} from Nova has begun. {text}", seen.host())),
        step => step,
    }
}

/// What Nova must show of a host before it is cleaned up; `agents_gone` if a service that was declared down is one whose
/// agent has ended.
fn nova_step(seen: &Snapshot, agents_gone: bool) -> Step {
    if seen.region().is_none() {
        return Step::Wait("Waiting for Nova to answer".to_owned());
    }
    let (hypervisor, service) = (seen.nova_hypervisor(), seen.service());
    match hypervisor.map(|hypervisor| hypervisor.servers.as_deref()) {
        Some(None) => return Step::Wait("Waiting for Nova to say which servers are on the host".to_owned()),
        Some(Some([_, ..])) => {
            let host = seen.host();
            let text = format!("Servers are still on the host: openstack server list --all-projects --host {host}");
            return Step::Wait(text);
        }
        Some(Some([])) | None => {}
    }
    match service {
        Some(service) if service.state != ServiceState::Down => {
            Step::Wait("Waiting for nova-compute to end: the compute service of the host is still up".to_owned())
        }
        Some(service) if service.forced_down && !agents_gone => Step::Wait(clean::FORCED_DOWN.to_owned()),
        None if hypervisor.is_none() => Step::Nothing,
        _ => Step::Clean,
    }
}

impl Offboarding {
    fn decide_termination(&self, seen: &Snapshot, plan: &mut Plan) {
        match self.advance(termination_step(seen, plan), true, seen, plan) {
            Ok(()) => say_offboarded(plan),
            Err(text) => say(plan, reasons::OFFBOARDING, text),
        }
    }

    /// Goes a step on; `Err` says what is waited for.
    fn advance(&self, step: Step, agents_gone: bool, seen: &Snapshot, plan: &mut Plan) -> Result<(), String> {
        let clean = CleanUp::new(&self.cloud, seen, agents_gone);
        if matches!(seen.absent_node, AbsentNode::Failed(_)) {
            plan.again_after(ASK_AGAIN);
        }
        if seen.outcomes.get(&clean.key()) == Some(&Outcome::Done) {
            return Ok(());
        }
        match step {
            Step::Nothing => Ok(()),
            Step::Wait(text) => Err(text),
            Step::Clean => {
                let intent = clean.describe();
                // What is about to be done is published first. After a failure it has been, and saying it in the same
                // words again at each attempt keeps the object still.
                let told = plan.condition(condition_types::OFFBOARDED).map(|it| it.message.clone());
                let told = told.map(|told| told.split_once(DELETED).map_or(&*told, |it| it.0).to_owned());
                Err(match acting::want(seen, plan, Arc::new(clean)) {
                    Some(Outcome::Failed { message, .. }) => {
                        format!("{intent}. This failed and is tried again: {message}")
                    }
                    Some(Outcome::Underway(text)) => text,
                    _ => told.filter(|told| told.starts_with(&intent)).unwrap_or(intent),
                })
            }
        }
    }

    fn decide_leaving(&self, seen: &Snapshot, plan: &mut Plan) {
        let told = plan.condition(condition_types::OFFBOARDED).is_some_and(|it| it.reason == reasons::LEFT_BEHIND);
        if is_made_anew(seen) || told || is_offboarded(plan) {
            // Made anew from its Node; or let go as it was said; or nothing is left.
            plan.hold(false);
            return;
        }
        plan.hold(true);
        let terminating = plan.effective_spec().maintenance() == &Maintenance::Termination;
        let unknown = seen.node.is_none() && matches!(seen.absent_node, AbsentNode::NotAsked | AbsentNode::Failed(_));
        let step = if terminating {
            termination_step(seen, plan)
        } else if unknown {
            Step::Wait("Waiting for the API server to say whether the Node is gone".to_owned())
        } else {
            abandoned_step(seen, plan)
        };
        match self.advance(step, terminating, seen, plan) {
            Ok(()) => say_offboarded(plan),
            Err(text) => {
                // A drain that goes on has limits of its own.
                let drains = plan.condition(condition_types::EVICTING);
                let drains = terminating && drains.is_some_and(|it| it.is_true() && it.reason == reasons::RUNNING);
                self.wait(seen, plan, &text, drains);
            }
        }
    }

    /// Waits for as long as a deleted object may be kept, then says that it is let go, and what stays.
    fn wait(&self, seen: &Snapshot, plan: &mut Plan, text: &str, drains: bool) {
        let deadline = self.deadline(seen, plan);
        if seen.now < deadline || drains {
            let until = deadline.strftime("%Y-%m-%dT%H:%M:%SZ");
            let drained = if drains { ", or when the drain ends" } else { "" };
            say(plan, reasons::OFFBOARDING, format!("{text}{DELETED}{until}{drained}"));
            if let Ok(left) = Duration::try_from(deadline.duration_since(seen.now)) {
                plan.again_after(left.max(Duration::from_secs(1)));
            }
            return;
        }
        let mut remains = Vec::new();
        let named = |kind: &str, id: Option<String>| id.map(|id| format!("{kind} {id}"));
        remains.extend(named("compute service", seen.service_id().map(|id| id.to_string())));
        remains.extend(named("resource provider", seen.provider_id().map(|id| id.to_string())));
        let aggregates: Vec<String> = seen.nova_aggregates().iter().map(|one| one.name.clone()).collect();
        remains.extend(named("aggregates", (!aggregates.is_empty()).then(|| aggregates.join(", "))));
        let servers = seen.nova_hypervisor().and_then(|hypervisor| hypervisor.servers.as_ref()).map_or(0, Vec::len);
        remains.extend(named("servers:", (servers > 0).then(|| servers.to_string())));
        let remains = acting::words(&remains.join(", "));
        say(plan, reasons::LEFT_BEHIND, format!("{text}. Let go all the same; left in Nova: {remains}"));
    }

    /// When a deleted object is let go at the latest, counted from its deletion, or from the end of its drain if that was
    /// later. As long as nothing was seen of Nova it is twice that: an operator that has just started looks first.
    fn deadline(&self, seen: &Snapshot, plan: &Plan) -> Timestamp {
        let deleted = seen.hypervisor.as_ref().and_then(|hypervisor| hypervisor.metadata.deletion_timestamp.as_ref());
        let evicted = plan.condition(condition_types::EVICTING).filter(|it| it.is_false());
        let evicted = evicted.and_then(|it| it.last_transition_time.as_ref());
        let begin = deleted.max(evicted).map_or(seen.now, |time| time.0);
        let factor = if seen.region().is_some() { 1 } else { 2 };
        let grace = SignedDuration::try_from(self.settings.deletion_grace * factor).unwrap_or(SignedDuration::ZERO);
        begin.saturating_add(grace).unwrap_or(Timestamp::MAX)
    }
}
