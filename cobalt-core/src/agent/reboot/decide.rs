//! What to do about a shutdown, as a pure function.

use std::time::Duration;

use kube::ResourceExt;
use tokio::time::Instant;

use crate::api::{Condition, ConditionStatus, Hypervisor, Maintenance, condition_types};

/// The condition: the host's instances are given time to leave before a shutdown.
pub const EVACUATE_ON_REBOOT: &str = "EvacuateOnReboot";

/// `spec.maintenanceReason` under which the agent takes its host out of service.
pub const REBOOT_REASON: &str = "cobalt-node-agent: host reboots";

/// Annotation of a Hypervisor that its agent took out of service: the boot it did so in.
pub const BOOT_ID_ANNOTATION: &str = "kvm.cloud.sap/rebooting-from-boot-id";

/// How long a drain outlives the daemon without which nothing can move.
pub(super) const LIBVIRT_PATIENCE: Duration = Duration::from_secs(60);

/// How long an agent that finds its own mark of this very boot waits for the announcement it belongs to.
pub(super) const SETTLE: Duration = Duration::from_secs(60);

/// What the agent's own hypervisor says about the guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guests {
    /// It did not answer.
    Unknown,
    /// So many there are, and so many of them run.
    Known { all: usize, active: usize },
}

/// Why a shutdown is not held back any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LetGo {
    /// There was nothing to move.
    Empty,
    /// Everything has left.
    Drained,
    /// The time is over.
    TooLate,
    /// Nothing can leave without libvirt.
    LibvirtGone,
    /// Somebody put the host back into service, or wants no evacuation.
    TakenBack,
    /// There is no Hypervisor any more.
    NoHypervisor,
}

impl LetGo {
    /// Whether running instances may go down with the host.
    pub(super) fn is_trouble(self) -> bool {
        !matches!(self, Self::Empty | Self::Drained)
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Drained => "Drained",
            Self::TooLate => "DrainTimeOver",
            Self::LibvirtGone => "LibVirtGone",
            Self::TakenBack => "TakenBack",
            Self::NoHypervisor => "NoHypervisor",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::Empty => "the host had no instances when its shutdown was announced",
            Self::Drained => "all instances have left, the host goes down",
            Self::TooLate => "the time to leave is over, the host goes down",
            Self::LibvirtGone => "libvirt does not answer and nothing can leave, the host goes down",
            Self::TakenBack => "somebody ended the maintenance, the host goes down as it is",
            Self::NoHypervisor => "the Hypervisor is gone, the host goes down",
        }
    }
}

/// An announced shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    /// No longer than this.
    pub(super) until: Instant,
    /// We have taken the host out of service for it.
    pub(super) marked: bool,
    /// It is not held back any more.
    pub(super) let_go: Option<LetGo>,
}

/// What is known when a decision is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub(super) hypervisor: Option<&'a Hypervisor>,
    pub(super) boot_id: Option<&'a str>,
    pub(super) shutdown: Option<Announced>,
    pub(super) guests: Guests,
    pub(super) libvirt_gone_since: Option<Instant>,
    pub(super) started: Instant,
    pub(super) now: Instant,
}

/// What to write into the Hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    Keep,
    /// Out of service, with our mark.
    Mark,
    /// Back into service, without our mark.
    Clear,
    /// Only our mark is taken away: the mode is somebody else's now.
    Disown,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// Hold shutdowns back.
    pub(super) hold: bool,
    /// What to write.
    pub(super) change: Change,
    /// Let an announced shutdown go on, from now on.
    pub(super) let_go: Option<LetGo>,
    /// When to look again, whatever happens.
    pub(super) look_again: Option<Instant>,
}

/// Whether the host is out of service because we said so, and nobody has said anything since.
pub(super) fn is_ours(hypervisor: &Hypervisor) -> bool {
    hypervisor.annotations().contains_key(BOOT_ID_ANNOTATION)
        && *hypervisor.spec.maintenance() == Maintenance::Auto
        && hypervisor.spec.maintenance_reason.as_deref() == Some(REBOOT_REASON)
}

/// Whether the operator says that the host is empty. Where it failed to empty it, `Evicting` stays true.
fn is_evicted(hypervisor: &Hypervisor) -> bool {
    hypervisor.is_false(condition_types::EVICTING)
        || hypervisor.status.as_ref().is_some_and(|status| status.evicted == Some(true))
            && !hypervisor.is_true(condition_types::EVICTING)
}

pub(super) fn decide(seen: &Seen<'_>) -> Decision {
    let mut decision = Decision { hold: false, change: Change::Keep, let_go: None, look_again: None };
    let Some(hypervisor) = seen.hypervisor else {
        let open = seen.shutdown.is_some_and(|shutdown| shutdown.let_go.is_none());
        decision.let_go = open.then_some(LetGo::NoHypervisor);
        return decision;
    };
    let wanted = hypervisor.spec.evacuate_on_reboot();
    let Some(shutdown) = seen.shutdown else {
        decision.hold = wanted;
        (decision.change, decision.look_again) = unannounced(hypervisor, seen);
        return decision;
    };
    if shutdown.let_go.is_some() {
        return decision;
    }
    if !wanted {
        decision.let_go = Some(LetGo::TakenBack);
        return decision;
    }
    let patience = seen.libvirt_gone_since.map(|since| since + LIBVIRT_PATIENCE);
    decision.let_go = match seen.guests {
        Guests::Known { all: 0, .. } if !shutdown.marked => Some(LetGo::Empty),
        Guests::Known { active: 0, .. } if is_evicted(hypervisor) => Some(LetGo::Drained),
        _ if seen.now >= shutdown.until => Some(LetGo::TooLate),
        _ if patience.is_some_and(|patience| seen.now >= patience) => Some(LetGo::LibvirtGone),
        _ if shutdown.marked && hypervisor.spec.maintenance().is_off() => Some(LetGo::TakenBack),
        _ => None,
    };
    if decision.let_go.is_some() {
        return decision;
    }
    decision.hold = true;
    decision.look_again = Some(patience.map_or(shutdown.until, |patience| patience.min(shutdown.until)));
    decision.change = if hypervisor.annotations().contains_key(BOOT_ID_ANNOTATION) && !is_ours(hypervisor) {
        Change::Disown
    } else if !shutdown.marked && hypervisor.spec.maintenance().is_off() {
        Change::Mark
    } else {
        Change::Keep
    };
    decision
}

/// What becomes of our mark while no shutdown is announced.
fn unannounced(hypervisor: &Hypervisor, seen: &Seen<'_>) -> (Change, Option<Instant>) {
    let Some(marked_in) = hypervisor.annotations().get(BOOT_ID_ANNOTATION) else { return (Change::Keep, None) };
    if !is_ours(hypervisor) {
        return (Change::Disown, None);
    }
    let rebooted = seen.boot_id.is_some_and(|boot| !marked_in.is_empty() && boot != marked_in);
    let settled = seen.started + SETTLE;
    if rebooted || seen.now >= settled { (Change::Clear, None) } else { (Change::Keep, Some(settled)) }
}

/// What the condition says; nothing if the spec wants no evacuation.
pub(super) fn condition(seen: &Seen<'_>, held: &Held, drain_time: Duration) -> Option<Condition> {
    let say = |holds: bool, reason: &str, message: String| {
        Some(Condition::new(EVACUATE_ON_REBOOT, ConditionStatus::from(holds), reason, message))
    };
    let hypervisor = seen.hypervisor.filter(|hypervisor| hypervisor.spec.evacuate_on_reboot())?;
    if let Some(shutdown) = seen.shutdown {
        return match shutdown.let_go {
            Some(why) => say(!why.is_trouble(), why.reason(), why.sentence().to_owned()),
            None if hypervisor.spec.maintenance().is_off() => {
                say(true, "Draining", "a shutdown waits until the host is out of service".into())
            }
            None => say(true, "Draining", "a shutdown waits until the instances have left".into()),
        };
    }
    match held {
        Held::No => None,
        Held::Failed(reason, why) => say(false, reason, why.clone()),
        Held::Yes(Some(delay)) if *delay < drain_time => {
            let (delay, wanted) = (delay.as_secs(), drain_time.as_secs());
            let message = format!(
                "logind lets a shutdown wait for {delay} s only, {wanted} s are wanted: set InhibitDelayMaxSec={wanted} \
                 in /etc/systemd/logind.conf.d/"
            );
            say(false, "DelayTooShort", message)
        }
        Held::Yes(_) => {
            let wanted = drain_time.as_secs();
            say(true, "Ready", format!("a shutdown waits for up to {wanted} s until the instances have left"))
        }
    }
}

/// Whether shutdowns are held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// Not.
    No,
    /// For so long at most.
    Yes(Option<Duration>),
    /// The host refused, by one word and in full.
    Failed(&'static str, String),
}
