//! The Eviction of a host in maintenance, and what it says.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
};

use super::Maintenance;
use crate::{
    Result,
    api::{Condition, ConditionStatus, Eviction, EvictionSpec, Hypervisor, HypervisorStatus, condition_types, reasons},
    ids::ProviderId,
    operator::{Action, AgentSeen, Cloud, FIELD_MANAGER, Outcome, Plan, Progress, Snapshot, acting, kubernetes},
    runtime::api_category,
};

/// The reason of the Evictions that maintenance makes.
pub const EVICTION_REASON: &str = "openstack-hypervisor-operator maintenance";

/// How long a drain must be over before another one begins.
const PAUSE: SignedDuration = SignedDuration::from_secs(60);

/// When a host whose drain is just over is looked at again.
const AGAIN: Duration = Duration::from_secs(30);

/// Whose an Eviction is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// It was made for this Hypervisor.
    Ours,
    /// It was made for an earlier Hypervisor of this name, and goes with it.
    Past,
    /// Somebody made it by hand.
    Theirs,
}

fn whose(eviction: &Eviction, hypervisor: &Hypervisor) -> Whose {
    let owner = eviction.owner_references().iter().find(|owner| owner.controller == Some(true));
    match owner {
        Some(owner) if Some(&owner.uid) == hypervisor.metadata.uid.as_ref() => Whose::Ours,
        Some(owner) if owner.kind == "Hypervisor" && owner.name == hypervisor.name_any() => Whose::Past,
        _ => Whose::Theirs,
    }
}

/// Who still sees instances on the host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Unknown,
    /// Nova was not asked for its servers yet.
    Unread,
    Nobody,
    Nova,
    Libvirt,
}

fn load(seen: &Snapshot) -> Load {
    if seen.region().is_none() {
        return Load::Unknown;
    }
    match seen.nova_hypervisor().map(|hypervisor| hypervisor.servers.as_deref()) {
        Some(None) => return Load::Unread,
        Some(Some([_, ..])) => return Load::Nova,
        Some(Some([])) | None => {}
    }
    // What an agent said before it fell silent is no news. Until we know whether it is, what was said of the drain stands.
    let counted = seen.hypervisor.as_ref().and_then(|hypervisor| hypervisor.status.as_ref()?.num_instances);
    match seen.agent {
        _ if counted.unwrap_or(0) == 0 => Load::Nobody,
        AgentSeen::Alive | AgentSeen::Unknown => Load::Libvirt,
        AgentSeen::NotYet => Load::Unknown,
        AgentSeen::Silent => Load::Nobody,
    }
}

fn say(plan: &mut Plan, evicting: bool, reason: &str, message: impl Into<String>) {
    plan.set(Condition::new(condition_types::EVICTING, evicting.into(), reason, message));
    plan.status.evicted = Some(!evicting);
}

fn say_running(plan: &mut Plan) {
    say(plan, true, reasons::RUNNING, "Evicting");
}

/// Maintenance is over: our Eviction goes, and with it all that was said about it.
pub(super) fn decide_end(stage: &Maintenance, hypervisor: &Hypervisor, seen: &Snapshot, plan: &mut Plan) {
    if let Some(eviction) = &seen.eviction
        && whose(eviction, hypervisor) == Whose::Ours
    {
        want_gone(stage, eviction, seen, plan);
    }
    let told = plan.condition(condition_types::EVICTING).is_some();
    if told {
        plan.remove(condition_types::EVICTING);
    }
    let evicted = hypervisor.status.as_ref().is_some_and(HypervisorStatus::evicted);
    if told || evicted {
        plan.status.evicted = Some(false);
    }
}

/// In maintenance: an Eviction until the host is empty, and what it says.
pub(super) fn decide_drain(stage: &Maintenance, hypervisor: &Hypervisor, seen: &Snapshot, plan: &mut Plan) {
    let evicted = plan.condition(condition_types::EVICTING).is_some_and(Condition::is_false);
    let load = load(seen);
    let eviction = seen.eviction.as_deref();
    let over = eviction.is_some_and(|eviction| has_succeeded(eviction) && about(eviction, hypervisor));
    if matches!(load, Load::Nova | Load::Unread) && (over || evicted) && !looked(stage, seen, plan) {
        // The host may have been looked at before the last instance left. What was said stands for a moment.
        if !evicted {
            say_running(plan);
        }
        return;
    }
    if evicted && matches!(load, Load::Nobody | Load::Unknown | Load::Unread) {
        return say(plan, false, reasons::SUCCEEDED, "Evicted");
    }
    let Some(eviction) = eviction else {
        let create = Create::new(stage, hypervisor);
        match acting::want(seen, plan, Arc::new(create)) {
            Some(Outcome::Failed { message, .. }) => {
                let message = format!("Cannot create the Eviction: {message}");
                say(plan, true, reasons::FAILED, message);
            }
            _ => say_running(plan),
        }
        return;
    };
    let whose = whose(eviction, hypervisor);
    if whose == Whose::Past || eviction.metadata.deletion_timestamp.is_some() {
        // When it is gone we are woken, and make one of our own.
        return say_running(plan);
    }
    if !about(eviction, hypervisor) {
        let message = format!("The Eviction of this name is about another host: {}", eviction.spec.hypervisor);
        return say(plan, true, reasons::BLOCKED, acting::words(&message));
    }
    match (over, load, whose) {
        (true, Load::Nobody, _) => say(plan, false, reasons::SUCCEEDED, "Evicted"),
        (true, Load::Unknown | Load::Unread, _) => {}
        (true, Load::Libvirt, _) => {
            let message = "Nova has no instances on the host any more, but its agent still counts some";
            say(plan, true, reasons::RUNNING, message);
        }
        (true, Load::Nova, Whose::Theirs) => {
            let message = "The Eviction of this host is over and was not made for this maintenance, but instances are \
                           on the host: delete it to have them moved";
            say(plan, true, reasons::BLOCKED, message);
        }
        (true, Load::Nova, _) if is_just_over(eviction, seen.now) => {
            // Nova's list of hypervisors may show what its list of servers does not, which the drain went by. Without a
            // pause, one such server had an Eviction made and deleted every few seconds.
            let message = "The drain has just ended, but Nova shows instances on the host again: another one follows \
                           if they stay";
            say(plan, true, reasons::RUNNING, message);
            plan.again_after(AGAIN);
        }
        (true, Load::Nova, _) => {
            // They came after the drain. A new one begins when the old one is gone.
            want_gone(stage, eviction, seen, plan);
            say_running(plan);
        }
        (false, ..) => mirror(eviction, plan),
    }
}

fn about(eviction: &Eviction, hypervisor: &Hypervisor) -> bool {
    eviction.spec.hypervisor == hypervisor.name_any()
}

fn has_succeeded(eviction: &Eviction) -> bool {
    let evicting = eviction.condition(condition_types::EVICTING);
    evicting.is_some_and(|it| it.status == ConditionStatus::False && it.reason == reasons::SUCCEEDED)
}

/// Whether an Eviction succeeded less than [`PAUSE`] ago.
fn is_just_over(eviction: &Eviction, now: Timestamp) -> bool {
    let ended = eviction.condition(condition_types::EVICTING).and_then(|it| it.last_transition_time.as_ref());
    ended.is_some_and(|ended| now.duration_since(ended.0) < PAUSE)
}

/// What an Eviction says that has not succeeded. That it has ended is not enough: the host is not empty.
fn mirror(eviction: &Eviction, plan: &mut Plan) {
    let evicting = eviction.condition(condition_types::EVICTING);
    match evicting.map(|it| (it.status, it.reason.as_str(), it.message.as_str())) {
        Some((_, reasons::BLOCKED, message)) => say(plan, true, reasons::BLOCKED, acting::words(message)),
        Some((ConditionStatus::False, _, message) | (_, reasons::FAILED, message)) => {
            say(plan, true, reasons::FAILED, acting::words(message));
        }
        _ => say_running(plan),
    }
}

fn want_gone(stage: &Maintenance, eviction: &Eviction, seen: &Snapshot, plan: &mut Plan) {
    let Some(uid) = eviction.uid().filter(|_| eviction.metadata.deletion_timestamp.is_none()) else { return };
    let delete = Delete { client: Kubernetes(stage.client.clone()), name: eviction.name_any(), uid };
    acting::want(seen, plan, Arc::new(delete));
}

/// Whether the servers of the host were read for themselves in this pass; if not, wants that.
fn looked(stage: &Maintenance, seen: &Snapshot, plan: &mut Plan) -> bool {
    let Some(hypervisor) = seen.nova_hypervisor() else { return true };
    let look = Look { cloud: stage.cloud.clone(), id: hypervisor.id.clone() };
    if seen.outcomes.get(&look.key()) == Some(&Outcome::Done) {
        return true;
    }
    plan.act(Arc::new(look));
    false
}

/// Reads the servers of one host: newer than any list of the region.
#[derive(Debug)]
struct Look {
    cloud: Cloud,
    id: ProviderId,
}

#[async_trait]
impl Action for Look {
    fn key(&self) -> String {
        "look for servers on the host".to_owned()
    }

    fn describe(&self) -> String {
        format!("look for servers on hypervisor {}", self.id)
    }

    async fn run(&self) -> Result<Progress> {
        match self.cloud.nova.hypervisor(&self.id).await {
            Ok(hypervisor) => self.cloud.view.learn_hypervisor(hypervisor),
            Err(error) if error.is_not_found() => self.cloud.view.forget_hypervisor(&self.id),
            Err(error) => return Err(error),
        }
        Ok(Progress::Done)
    }
}

/// A client in an action, which is printed.
#[derive(Clone)]
struct Kubernetes(Client);

impl std::fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kubernetes")
    }
}

#[derive(Debug)]
struct Create {
    client: Kubernetes,
    eviction: Eviction,
}

impl Create {
    fn new(stage: &Maintenance, hypervisor: &Hypervisor) -> Self {
        let name = hypervisor.name_any();
        let labels: BTreeMap<String, String> = hypervisor
            .labels()
            .iter()
            .filter(|(key, _)| stage.labels.contains(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let owner = OwnerReference {
            api_version: Hypervisor::api_version(&()).into_owned(),
            kind: Hypervisor::kind(&()).into_owned(),
            name: name.clone(),
            uid: hypervisor.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        let eviction = Eviction {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: (!labels.is_empty()).then_some(labels),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            spec: EvictionSpec { hypervisor: name, reason: EVICTION_REASON.to_owned() },
            status: None,
        };
        Self { client: Kubernetes(stage.client.clone()), eviction }
    }
}

#[async_trait]
impl Action for Create {
    fn key(&self) -> String {
        "create the eviction".to_owned()
    }

    fn describe(&self) -> String {
        format!("create Eviction {}, which moves all instances away", self.eviction.name_any())
    }

    async fn run(&self) -> Result<Progress> {
        let api: Api<Eviction> = Api::all(self.client.0.clone());
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match api.create(&params, &self.eviction).await {
            Ok(_) => Ok(Progress::Done),
            // Somebody was faster, or the cache is behind. Whose it is, the next look tells.
            Err(error) if api_category(&error) == "already_exists" => Ok(Progress::Done),
            Err(error) => Err(kubernetes::failed(format!("create Eviction {}", self.eviction.name_any()), error)),
        }
    }
}

#[derive(Debug)]
struct Delete {
    client: Kubernetes,
    name: String,
    uid: String,
}

#[async_trait]
impl Action for Delete {
    fn key(&self) -> String {
        format!("delete the eviction {}", self.uid)
    }

    fn describe(&self) -> String {
        format!("delete Eviction {}", self.name)
    }

    async fn run(&self) -> Result<Progress> {
        let api: Api<Eviction> = Api::all(self.client.0.clone());
        let this_one = Preconditions { uid: Some(self.uid.clone()), ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(this_one), ..DeleteParams::default() };
        match api.delete(&self.name, &params).await {
            Ok(_) => Ok(Progress::Done),
            // Gone, or another one in its place.
            Err(error) if matches!(api_category(&error), "not_found" | "conflict") => Ok(Progress::Done),
            Err(error) => Err(kubernetes::failed(format!("delete Eviction {}", self.name), error)),
        }
    }
}
