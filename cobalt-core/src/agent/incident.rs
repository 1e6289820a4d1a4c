//! What befalls the VMs of a host: crashes, I/O errors, watchdogs, bad memory, reboots.
//!
//! ```text
//!              it happens                    quiet for a while
//!   (nothing) ───────────▶ recent ─────────────────────────────▶ (nothing)
//!       │                    ▲
//!       │ it happens and     │ it runs again (a crash, a watchdog)
//!       │ the VM stands      │
//!       └───────────────▶ standing ────────────────────────────▶ (nothing)
//!                              it runs again (an I/O error); it is stopped, moved or removed by somebody
//! ```
//!
//! Each VM has at most one entry per kind of incident. A *standing* one lasts until something is done about it: the VM is
//! paused by a failed disk or by its watchdog, or has crashed. A *recent* one is over, and is shown for a while all the
//! same, because who looks five minutes later wants to see it. Reboots are shown and are no trouble.
//!
//! [`Incidents`] is pure: the agent's loop feeds it with events, lists and the time. What it knows from events alone (a
//! VM whose process died and that libvirt merely shows as shut off) is forgotten when the agent restarts.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use tokio::time::Instant;

use crate::{
    api::{Condition, ConditionStatus},
    backend::{Domain, DomainEvent, DomainState, IoErrorAction, Lifecycle, WatchdogAction},
    ids::InstanceId,
};

/// The condition: whether all VMs of the host are well.
pub const INSTANCES_HEALTHY: &str = "InstancesHealthy";

/// The longest name or detail that is shown; both are foreign text.
const LONGEST: usize = 64;

/// What may befall a VM, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Incident {
    /// The guest or its hypervisor process died.
    Crashed,
    /// A disk failed.
    IoError,
    /// The guest's watchdog fired.
    Watchdog,
    /// The daemon lost control over it.
    ControlError,
    /// The host found bad memory below it.
    MemoryFailure,
    /// It was reset.
    Reboot,
}

impl Incident {
    /// Every kind, the worst first.
    pub const ALL: [Self; 6] =
        [Self::Crashed, Self::IoError, Self::Watchdog, Self::ControlError, Self::MemoryFailure, Self::Reboot];

    /// The reason of the Event, and of the condition if this is the worst there is.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Crashed => "GuestCrashed",
            Self::IoError => "GuestIoError",
            Self::Watchdog => "GuestWatchdog",
            Self::ControlError => "GuestControlError",
            Self::MemoryFailure => "GuestMemoryFailure",
            Self::Reboot => "GuestRebooted",
        }
    }

    /// Whether somebody may want to do something about it.
    pub fn is_trouble(self) -> bool {
        self != Self::Reboot
    }

    fn words(self) -> &'static str {
        match self {
            Self::Crashed => "crashed",
            Self::IoError => "I/O error",
            Self::Watchdog => "watchdog fired",
            Self::ControlError => "control lost",
            Self::MemoryFailure => "bad memory",
            Self::Reboot => "rebooted",
        }
    }
}

/// How long things are shown, and how much of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long an incident that is over is shown.
    pub quiet: Duration,
    /// Reboots that follow each other this closely are one: QEMU says it several times per reset.
    pub debounce: Duration,
    /// One Event per VM and kind in this time.
    pub event_interval: Duration,
    /// So many VMs are named per kind; the rest is counted.
    pub named: usize,
    /// So many VMs are remembered; what is over for the longest time is forgotten first.
    pub remembered: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            quiet: Duration::from_secs(600),
            debounce: Duration::from_secs(5),
            event_interval: Duration::from_secs(60),
            named: 10,
            remembered: 1024,
        }
    }
}

/// Something to tell as an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// What it is.
    pub incident: Incident,
    /// A sentence for people.
    pub note: String,
}

#[derive(Clone, Debug)]
enum Until {
    /// Somebody does something about it.
    Helped,
    /// This moment.
    At(Instant),
}

#[derive(Clone, Debug)]
struct Entry {
    until: Until,
    detail: String,
}

#[derive(Clone, Debug)]
struct Vm {
    name: String,
    open: BTreeMap<Incident, Entry>,
    told: BTreeMap<Incident, Instant>,
    last_reboot: Option<Instant>,
}

/// What has befallen the VMs of one host.
#[derive(Clone, Debug)]
pub struct Incidents {
    limits: Limits,
    vms: BTreeMap<InstanceId, Vm>,
}

impl Incidents {
    /// Nothing has happened yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, vms: BTreeMap::new() }
    }

    /// Takes note of an event, and says what is worth an Event.
    pub fn observe(&mut self, id: &InstanceId, name: &str, event: &DomainEvent, now: Instant) -> Option<Told> {
        self.expire(now);
        match event {
            DomainEvent::Lifecycle(step) => self.step(id, name, *step, now),
            DomainEvent::Reboot => {
                let debounce = self.limits.debounce;
                let last = self.vm(id, name, now).last_reboot.replace(now);
                if last.is_some_and(|last| now.saturating_duration_since(last) < debounce) {
                    return None;
                }
                self.open(id, name, Incident::Reboot, false, "", now)
            }
            DomainEvent::Watchdog(action) => {
                let stands = *action == WatchdogAction::Pause;
                self.open(id, name, Incident::Watchdog, stands, watchdog(*action), now)
            }
            DomainEvent::IoError { device, action, reason } => {
                let detail = if reason.is_empty() { device.clone() } else { format!("{device}: {reason}") };
                self.open(id, name, Incident::IoError, *action == IoErrorAction::Pause, &detail, now)
            }
            DomainEvent::ControlError => self.open(id, name, Incident::ControlError, false, "", now),
            DomainEvent::MemoryFailure { recovered } => {
                let detail = if *recovered { "the guest survived" } else { "the guest did not survive" };
                self.open(id, name, Incident::MemoryFailure, false, detail, now)
            }
            DomainEvent::JobCompleted(_)
            | DomainEvent::MigrationIteration(_)
            | DomainEvent::AgentConnected(_)
            | DomainEvent::DeviceRemoved(_) => None,
        }
    }

    fn step(&mut self, id: &InstanceId, name: &str, step: Lifecycle, now: Instant) -> Option<Told> {
        match step {
            Lifecycle::Crashed => return self.open(id, name, Incident::Crashed, true, "", now),
            Lifecycle::Failed => {
                return self.open(id, name, Incident::Crashed, true, "its process died", now);
            }
            // The event of the disk comes first and knows more.
            Lifecycle::SuspendedOnIoError => {
                let known = self.vms.get(id).is_some_and(|vm| vm.open.contains_key(&Incident::IoError));
                let told = self.open(id, name, Incident::IoError, true, "", now);
                return told.filter(|_| !known);
            }
            Lifecycle::Started | Lifecycle::StartedByMigration | Lifecycle::Resumed | Lifecycle::ResumedByMigration => {
                self.runs(id, now);
            }
            Lifecycle::Shutdown | Lifecycle::Stopped => self.stopped(id),
            Lifecycle::Destroyed => self.helped(id, &[Incident::Crashed, Incident::IoError, Incident::Watchdog]),
            Lifecycle::Migrated | Lifecycle::Undefined => {
                if let Some(vm) = self.vms.get_mut(id) {
                    vm.open.clear();
                }
            }
            Lifecycle::Defined | Lifecycle::Suspended | Lifecycle::SuspendedByMigration => {}
        }
        None
    }

    /// Compares with the whole list of VMs: events may have been missed, or come before this agent.
    pub fn list(&mut self, domains: &[Domain], now: Instant) {
        self.expire(now);
        for domain in domains {
            match domain.state {
                DomainState::PausedOnIoError => self.found(domain, Incident::IoError, now),
                DomainState::Crashed => self.found(domain, Incident::Crashed, now),
                DomainState::Running => self.runs(&domain.id, now),
                DomainState::ShutOff => self.stopped(&domain.id),
                // On its way, or asleep, or paused by who knows whom: nobody has helped it yet.
                DomainState::Paused | DomainState::ShuttingDown | DomainState::Suspended | DomainState::Unknown => {}
            }
        }
        let there = |id: &InstanceId| domains.iter().any(|domain| domain.id == *id);
        let gone: Vec<InstanceId> = self.vms.keys().filter(|id| !there(id)).cloned().collect();
        for id in gone {
            // A VM without a definition vanishes with its crash, which is no reason not to show the crash.
            self.over(&id, &[Incident::Crashed], now);
            self.stopped(&id);
        }
    }

    /// Forgets what has been quiet for long enough.
    pub fn expire(&mut self, now: Instant) {
        let interval = self.limits.event_interval;
        self.vms.retain(|_, vm| {
            vm.open.retain(|_, entry| !matches!(entry.until, Until::At(at) if at <= now));
            vm.told.retain(|_, at| now.saturating_duration_since(*at) < interval);
            !vm.open.is_empty() || !vm.told.is_empty()
        });
    }

    /// When [`Incidents::expire`] will change what is shown.
    pub fn next(&self) -> Option<Instant> {
        let entries = self.vms.values().flat_map(|vm| vm.open.values());
        entries.filter_map(|entry| if let Until::At(at) = entry.until { Some(at) } else { None }).min()
    }

    /// What to publish.
    pub fn condition(&self) -> Condition {
        let mut message = String::new();
        let mut worst = None;
        for incident in Incident::ALL {
            let mut vms: Vec<_> = self
                .vms
                .iter()
                .filter_map(|(id, vm)| Some((vm.name.as_str(), id, &vm.open.get(&incident)?.detail)))
                .collect();
            if vms.is_empty() {
                continue;
            }
            vms.sort_unstable();
            worst = worst.or(Some(incident).filter(|incident| incident.is_trouble()));
            let separator = if message.is_empty() { "" } else { "; " };
            let _ = write!(message, "{separator}{}: ", incident.words());
            for (position, (name, id, detail)) in vms.iter().take(self.limits.named).enumerate() {
                let separator = if position == 0 { "" } else { ", " };
                let _ = write!(message, "{separator}{}", vm_text(name, id, detail));
            }
            if let Some(more) = vms.len().checked_sub(self.limits.named).filter(|more| *more > 0) {
                let _ = write!(message, " and {more} more");
            }
        }
        match worst {
            Some(incident) => Condition::new(INSTANCES_HEALTHY, ConditionStatus::False, incident.reason(), message),
            None => Condition::new(INSTANCES_HEALTHY, ConditionStatus::True, "Healthy", message),
        }
    }

    /// How many VMs are remembered.
    pub fn len(&self) -> usize {
        self.vms.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.vms.is_empty()
    }

    fn vm(&mut self, id: &InstanceId, name: &str, now: Instant) -> &mut Vm {
        if !self.vms.contains_key(id) {
            self.make_room(now);
        }
        self.vms.entry(id.clone()).or_insert_with(|| Vm {
            name: cut(name),
            open: BTreeMap::new(),
            told: BTreeMap::new(),
            last_reboot: None,
        })
    }

    /// Drops the VM that matters least: first one whose incidents are over, the earliest of them.
    fn make_room(&mut self, now: Instant) {
        if self.vms.len() < self.limits.remembered {
            return;
        }
        let weight = |vm: &Vm| {
            let until = |entry: &Entry| if let Until::At(at) = entry.until { at } else { now + self.limits.quiet * 2 };
            vm.open.values().map(until).max()
        };
        if let Some(least) = self.vms.iter().min_by_key(|(_, vm)| weight(vm)).map(|(id, _)| id.clone()) {
            self.vms.remove(&least);
        }
    }

    fn open(
        &mut self,
        id: &InstanceId,
        name: &str,
        incident: Incident,
        stands: bool,
        detail: &str,
        now: Instant,
    ) -> Option<Told> {
        let until = if stands { Until::Helped } else { Until::At(now + self.limits.quiet) };
        let interval = self.limits.event_interval;
        let vm = self.vm(id, name, now);
        let detail = cut(detail);
        let entry = vm.open.entry(incident).or_insert_with(|| Entry { until: until.clone(), detail: String::new() });
        // What stands still stands when it happens once more in passing; and an empty word does not replace a good one.
        if !matches!(entry.until, Until::Helped) {
            entry.until = until;
        }
        if !detail.is_empty() {
            entry.detail = detail;
        }
        if vm.told.get(&incident).is_some_and(|at| now.saturating_duration_since(*at) < interval) {
            return None;
        }
        vm.told.insert(incident, now);
        let text = vm_text(&vm.name, id, &vm.open[&incident].detail);
        Some(Told { incident, note: format!("{}: {text}", incident.words()) })
    }

    /// A listing shows what an event would have told.
    fn found(&mut self, domain: &Domain, incident: Incident, now: Instant) {
        let vm = self.vm(&domain.id, &domain.name, now);
        vm.open.entry(incident).or_insert_with(|| Entry { until: Until::Helped, detail: String::new() }).until =
            Until::Helped;
    }

    fn runs(&mut self, id: &InstanceId, now: Instant) {
        self.helped(id, &[Incident::IoError]);
        self.over(id, &[Incident::Crashed, Incident::Watchdog], now);
    }

    /// It does not run, so nothing of what held it up matters; that it crashed does.
    fn stopped(&mut self, id: &InstanceId) {
        self.helped(id, &[Incident::IoError, Incident::Watchdog]);
    }

    fn helped(&mut self, id: &InstanceId, incidents: &[Incident]) {
        if let Some(vm) = self.vms.get_mut(id) {
            vm.open.retain(|incident, entry| !(incidents.contains(incident) && matches!(entry.until, Until::Helped)));
        }
    }

    /// What stood is over, and shown a while longer.
    fn over(&mut self, id: &InstanceId, incidents: &[Incident], now: Instant) {
        let until = now + self.limits.quiet;
        let entries = self.vms.get_mut(id).into_iter().flat_map(|vm| vm.open.iter_mut());
        for (_, entry) in entries.filter(|(incident, _)| incidents.contains(incident)) {
            if matches!(entry.until, Until::Helped) {
                entry.until = Until::At(until);
            }
        }
    }
}

fn vm_text(name: &str, id: &InstanceId, detail: &str) -> String {
    if detail.is_empty() { format!("{name} ({id})") } else { format!("{name} ({id}, {detail})") }
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

fn watchdog(action: WatchdogAction) -> &'static str {
    match action {
        WatchdogAction::None => "nothing done",
        WatchdogAction::Pause => "paused",
        WatchdogAction::Reset => "reset",
        WatchdogAction::PowerOff => "powered off",
        WatchdogAction::Shutdown => "shut down",
        WatchdogAction::Debug => "debugged",
        WatchdogAction::InjectNmi => "interrupted",
    }
}

#[cfg(test)]
mod tests;
