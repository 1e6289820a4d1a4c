//! What is said about a drain: the conditions of its Eviction.
//!
//! `Evicting` is `False` only when the host is empty. While something cannot move it stays `True`, with the reason
//! `Blocked`; when Nova does not know a host it should know, `True` with `Failed`: readers of the contract take any
//! `False` for an empty host.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    decide::{DrainPlan, can_abort, cut, elapsed},
    seen::{DrainSeen, HostState, LibvirtWord},
    settings::DrainSettings,
};
use crate::{
    api::{
        Condition,
        ConditionStatus::{self, False, True},
        EvictedInstance, EvictionStatus, HypervisorStatus, InstanceState,
        condition_types::{EVICTING, INCOMING_MIGRATIONS_SETTLED, MIGRATING_INSTANCE, PREFLIGHT_CHECKS_SUCCEEDED},
        conditions, reasons,
    },
    nova::Server,
};

/// How many instances a message names.
const NAMED: usize = 5;

/// How long Nova and libvirt may disagree about an empty host before that is somebody's business.
const PATIENCE: Duration = Duration::from_secs(300);

const PASSED: &str = "Preflight checks passed, hypervisor is disabled and ready for eviction";
const SUCCESS: &str = "eviction completed successfully";

fn set(
    status: &mut EvictionStatus,
    type_: &str,
    holds: ConditionStatus,
    reason: &str,
    message: impl Into<String>,
    now: Timestamp,
) {
    conditions::set_condition(&mut status.conditions, Condition::new(type_, holds, reason, message), now);
}

/// Whether a condition says that the drain goes on.
pub(super) fn is_running(condition: &Condition) -> bool {
    condition.type_ == EVICTING && !condition.is_false()
}

/// Somebody looks after it.
pub(super) fn begun(now: Timestamp, status: &mut EvictionStatus) {
    if !conditions::is_true(&status.conditions, EVICTING) {
        set(status, EVICTING, True, reasons::RUNNING, "Running", now);
    }
}

/// The host may still get new instances.
pub(super) fn not_disabled(message: &str, now: Timestamp, status: &mut EvictionStatus) {
    begun(now, status);
    set(status, PREFLIGHT_CHECKS_SUCCEEDED, False, reasons::FAILED, message, now);
}

/// Another Eviction of the same host does the work.
pub(super) fn stands_back(other: &str, now: Timestamp, status: &mut EvictionStatus) {
    let message = format!("Running; Eviction {other} drains this host");
    set(status, EVICTING, True, reasons::RUNNING, message, now);
}

/// Nobody can say how far it is.
pub(super) fn unknown(why: &str, now: Timestamp, status: &mut EvictionStatus) {
    let message = format!("Running; the cloud does not answer: {}", cut(why));
    set(status, EVICTING, True, reasons::RUNNING, message, now);
}

/// Nova has no such host.
pub(super) fn absent(seen: &DrainSeen, why: &str, now: Timestamp, status: &mut EvictionStatus) {
    let counted = seen.hypervisor.status.as_ref().map_or(0, HypervisorStatus::num_instances);
    let (holds, reason, message) = match (seen.is_expected(), seen.libvirt()) {
        (_, LibvirtWord::Has(count)) => {
            (True, reasons::BLOCKED, format!("Nova does not know the host, and libvirt has {count} instances"))
        }
        (false, LibvirtWord::NotYet) if counted > 0 => {
            (True, reasons::RUNNING, "Running; waiting for a sign of life of the host's agent".to_owned())
        }
        (false, LibvirtWord::AgentSilent | LibvirtWord::Unreachable) if counted > 0 => {
            let message =
                format!("Nova does not know the host, and libvirt had {counted} instances when it was heard last");
            (True, reasons::BLOCKED, message)
        }
        (false, _) => (False, reasons::SUCCEEDED, format!("{SUCCESS} due to expected case of no hypervisor")),
        (true, LibvirtWord::Empty) => {
            (False, reasons::SUCCEEDED, format!("{SUCCESS}: Nova has no such hypervisor, libvirt no instances"))
        }
        (true, _) => (True, reasons::FAILED, format!("failed to get hypervisor {}", cut(why))),
    };
    if holds == False {
        status.outstanding_ram_mb = Some(0);
        status.outstanding_instances = Some(Vec::new());
    }
    set(status, EVICTING, holds, reason, message, now);
}

/// After a look at a host that Nova knows and that gets no new instances.
pub(super) fn look(
    seen: &DrainSeen,
    state: &HostState,
    plan: &mut DrainPlan,
    settings: &DrainSettings,
    now: Timestamp,
) {
    let empty = plan.empty;
    let again = Duration::min(settings.poll, PATIENCE);
    let status = &mut plan.status;
    settled(seen, state, status, now);
    let all: Vec<EvictedInstance> = status.instances().to_vec();
    let blocked: Vec<&EvictedInstance> = all.iter().filter(|one| is_stuck(one)).collect();
    let mut passed = vec![PASSED.to_owned()];
    passed.extend((!blocked.is_empty()).then(|| stuck(&blocked)));
    passed.extend(short(state));
    set(status, PREFLIGHT_CHECKS_SUCCEEDED, True, reasons::SUCCEEDED, passed.join("; "), now);
    if let Some((reason, message)) = last_move(&all) {
        set(status, MIGRATING_INSTANCE, False, reason, message, now);
    }
    let working = all.iter().any(|one| !one.state.is_finished() && !is_stuck(one));
    let (holds, reason, message) = if empty {
        let since = seen.empty_since.map(|since| elapsed(since, now));
        when_empty(seen, since.is_some_and(|since| since >= again), since.is_some_and(|since| since >= PATIENCE))
    } else if working || blocked.is_empty() {
        let mut words = vec!["Running".to_owned()];
        // Without targets from us nobody waits for it: the scheduler asks Placement itself.
        words.extend((settings.target_concurrency > 0).then(|| no_target(state)).flatten());
        words.extend((!blocked.is_empty()).then(|| stuck(&blocked)));
        (True, reasons::RUNNING, words.join("; "))
    } else {
        (True, reasons::BLOCKED, stuck(&blocked))
    };
    set(status, EVICTING, holds, reason, message, now);
}

/// For how many servers no target can be chosen, and why.
fn no_target(state: &HostState) -> Option<String> {
    let unknown = &state.room_unknown;
    let why = cut(unknown.values().next()?);
    let servers = instances(unknown.len());
    Some(format!("no target can be chosen for {servers}, Placement does not say who has room: {why}"))
}

/// Nova has nothing on the host any more. It is believed when it says so twice, because what the scheduler sent a moment
/// before the host was disabled arrives a moment after; and when libvirt does not object.
fn when_empty(seen: &DrainSeen, twice: bool, long: bool) -> (ConditionStatus, &'static str, String) {
    let running = |message: &str| (True, reasons::RUNNING, message.to_owned());
    if !twice {
        return running("Running");
    }
    let word = match seen.libvirt() {
        // Leases that cannot be read must not hold a drain up for ever.
        LibvirtWord::NotYet if long => seen.written_word(),
        word => word,
    };
    match word {
        LibvirtWord::Empty => (False, reasons::SUCCEEDED, SUCCESS.to_owned()),
        LibvirtWord::NoAgent => {
            (False, reasons::SUCCEEDED, format!("{SUCCESS} by the word of Nova alone: no agent reports from the host"))
        }
        LibvirtWord::Has(_) if !long => running("Running; waiting for the host's agent to report no instances"),
        LibvirtWord::Has(count) => {
            (True, reasons::BLOCKED, format!("Nova has no server on the host, and libvirt has {count} instances"))
        }
        // A host that is dead as a whole has nothing that could run there, and could never be taken out otherwise.
        LibvirtWord::AgentSilent if seen.is_down() => {
            let why = "by the word of Nova alone: the host's agent and its compute service are silent";
            (False, reasons::SUCCEEDED, format!("{SUCCESS} {why}"))
        }
        LibvirtWord::AgentSilent | LibvirtWord::NotYet if !long => {
            running("Running; waiting for a sign of life of the host's agent")
        }
        LibvirtWord::NotYet => running("Running; waiting for a sign of life of the host's agent"),
        LibvirtWord::AgentSilent => {
            let message = "Nova has no server on the host, but its agent gives no sign of life to confirm that";
            (True, reasons::BLOCKED, message.to_owned())
        }
        LibvirtWord::Unreachable if !long => running("Running; waiting for the host's agent to reach libvirt"),
        LibvirtWord::Unreachable => {
            let message = "Nova has no server on the host, but its agent cannot reach libvirt to confirm that";
            (True, reasons::BLOCKED, message.to_owned())
        }
    }
}

fn settled(seen: &DrainSeen, state: &HostState, status: &mut EvictionStatus, now: Timestamp) {
    let incoming: Vec<_> = state.incoming(&seen.host, now).collect();
    let past = |one: &&&crate::nova::Migration| !can_abort(one);
    let waiting = incoming.iter().filter(past).count();
    let aborting = incoming.len() - waiting;
    let (holds, reason, message) = if aborting > 0 {
        (False, reasons::ABORTING_INCOMING_MIGRATIONS, format!("stopping {aborting} migrations to this host"))
    } else if waiting > 0 {
        (False, reasons::WAITING_FOR_INCOMING_MIGRATIONS, format!("waiting for {waiting} migrations to this host"))
    } else {
        (True, reasons::SETTLED, "no instance is on its way to this host".to_owned())
    };
    set(status, INCOMING_MIGRATIONS_SETTLED, holds, reason, message, now);
}

/// How the last move went: the first that failed and is not over with, or else the last that ended.
fn last_move(instances: &[EvictedInstance]) -> Option<(&'static str, String)> {
    let failed = instances.iter().find(|one| is_stuck(one) || one.state == InstanceState::Failed);
    if let Some(one) = failed {
        let why = one.error.as_deref().unwrap_or("nobody said why");
        return Some((reasons::FAILED, format!("Migration of instance {} failed: {why}", one.id)));
    }
    let skipped = |one: &&EvictedInstance| {
        one.state == InstanceState::Waiting && one.error.as_deref() == Some("it is being deleted")
    };
    if let Some(one) = instances.iter().find(skipped) {
        return Some((reasons::FAILED, format!("Live migration of terminating instance {} skipped", one.id)));
    }
    let ended = instances.iter().filter(|one| one.state.is_finished());
    let last = ended.max_by_key(|one| (one.finished_at.as_ref().map(|at| at.0), &one.id))?;
    let message = match last.state {
        InstanceState::Gone => format!("Instance {} is gone", last.id),
        _ => format!("Migration of instance {} finished", last.id),
    };
    Some((reasons::SUCCEEDED, message))
}

/// Whether an instance stays where it is until something changes, or nobody knows for how long.
fn is_stuck(record: &EvictedInstance) -> bool {
    matches!(record.state, InstanceState::Blocked | InstanceState::Overdue)
}

/// Which instances cannot move, and why.
fn stuck(blocked: &[&EvictedInstance]) -> String {
    let name = |one: &&EvictedInstance| {
        let name = if one.name.is_empty() { &one.id } else { &one.name };
        format!("{name} ({})", one.error.as_deref().unwrap_or("nobody said why"))
    };
    format!("{} cannot move: {}", instances(blocked.len()), named(blocked.iter().map(name)))
}

/// Which servers find no room once the others have gone, and why.
fn short(state: &HostState) -> Option<String> {
    let name = |server: &Server| Some(format!("{} ({})", server.name, state.short.get(&server.id)?));
    let names: Vec<String> = state.servers.iter().filter_map(name).collect();
    let text = || {
        format!("there is not room for all: {} would stay: {}", instances(names.len()), named(names.iter().cloned()))
    };
    (!names.is_empty()).then(text)
}

fn instances(count: usize) -> String {
    if count == 1 { "1 instance".to_owned() } else { format!("{count} instances") }
}

/// The first of them.
fn named(all: impl ExactSizeIterator<Item = String>) -> String {
    let count = all.len();
    let mut named: Vec<String> = all.take(NAMED).collect();
    if count > NAMED {
        named.push(format!("and {} more", count - NAMED));
    }
    named.join(", ")
}

/// What a server asks of a host, in words.
pub(super) fn wants(server: &Server) -> String {
    let mut wants = vec![format!("{} VCPU", server.vcpus), format!("{} MB", server.memory_mb)];
    if server.local_disk_gb > 0 {
        wants.push(format!("{} GB disk", server.local_disk_gb));
    }
    wants.extend(server.required_traits.iter().cloned());
    wants.join(", ")
}
