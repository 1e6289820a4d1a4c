#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use DomainEvent::{ControlError, MemoryFailure, Reboot, Watchdog};

const MINUTE: Duration = Duration::from_secs(60);

fn io_error(action: IoErrorAction) -> DomainEvent {
    DomainEvent::IoError { device: "vda".into(), action, reason: "enospc".into() }
}

fn life(step: Lifecycle) -> DomainEvent {
    DomainEvent::Lifecycle(step)
}

fn domain(id: &str, state: DomainState) -> Domain {
    Domain {
        id: id.into(),
        name: format!("instance-{id}"),
        state,
        vcpus: 1,
        memory_bytes: 1,
        cells: Vec::new(),
        nova: None,
    }
}

/// A host with one VM, and a clock.
struct Host {
    incidents: Incidents,
    now: Instant,
}

impl Host {
    fn new() -> Self {
        Self { incidents: Incidents::new(Limits::default()), now: Instant::now() }
    }

    fn see(&mut self, event: &DomainEvent) -> Option<Told> {
        self.incidents.observe(&"a".into(), "instance-a", event, self.now)
    }

    fn later(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self.incidents.expire(self.now);
        self
    }

    fn list(&mut self, state: DomainState) -> &mut Self {
        self.incidents.list(&[domain("a", state)], self.now);
        self
    }

    /// The reason, and the message.
    fn shown(&self) -> (String, String) {
        let condition = self.incidents.condition();
        assert_eq!(condition.is_true(), condition.reason == "Healthy");
        (condition.reason, condition.message)
    }

    fn is_healthy(&self) -> bool {
        self.incidents.condition().is_true()
    }
}

#[test]
fn every_incident_shows_and_ends_as_its_kind_does() {
    use Lifecycle::{Crashed, Destroyed, Failed, Migrated, Resumed, Started, Stopped, SuspendedOnIoError, Undefined};
    // What happens; the reason shown; what helps at once (if anything does); whether quiet alone helps.
    let table: [(&[DomainEvent], &str, &[Lifecycle], bool); 13] = [
        (&[io_error(IoErrorAction::Pause)], "GuestIoError", &[Resumed], false),
        (&[life(SuspendedOnIoError)], "GuestIoError", &[Destroyed], false),
        (&[io_error(IoErrorAction::Pause), life(SuspendedOnIoError)], "GuestIoError", &[Stopped], false),
        (&[io_error(IoErrorAction::Report)], "GuestIoError", &[Undefined], true),
        (&[Watchdog(WatchdogAction::Reset)], "GuestWatchdog", &[Migrated], true),
        (&[Watchdog(WatchdogAction::Pause)], "GuestWatchdog", &[Stopped], false),
        (&[ControlError], "GuestControlError", &[Undefined], true),
        (&[MemoryFailure { recovered: true }], "GuestMemoryFailure", &[], true),
        (&[life(Crashed)], "GuestCrashed", &[Undefined], false),
        (&[life(Crashed), life(Stopped)], "GuestCrashed", &[Destroyed], false),
        (&[life(Failed)], "GuestCrashed", &[Migrated], false),
        // It runs again, and is shown for a while.
        (&[life(Crashed), life(Started)], "GuestCrashed", &[], true),
        (&[Watchdog(WatchdogAction::Pause), life(Resumed)], "GuestWatchdog", &[], true),
    ];
    for (events, reason, help, quiet) in table {
        let mut host = Host::new();
        for event in events {
            host.see(event);
        }
        assert_eq!(host.shown().0, reason, "{events:?}");
        assert!(host.shown().1.contains("instance-a (a"), "{events:?}");
        let mut waiting = Host { incidents: host.incidents.clone(), now: host.now };
        waiting.later(MINUTE * 60);
        assert_eq!(waiting.is_healthy(), quiet, "{events:?} after an hour");
        for step in help {
            host.see(&life(*step));
            assert!(host.is_healthy(), "{events:?}, then {step:?}");
        }
    }
}

#[test]
fn a_reboot_is_shown_and_is_no_trouble() {
    let mut host = Host::new();
    assert_eq!(host.see(&Reboot).unwrap().incident, Incident::Reboot);
    assert_eq!(host.shown(), ("Healthy".into(), "rebooted: instance-a (a)".into()));
    assert_eq!(host.incidents.next(), Some(host.now + Limits::default().quiet));
    host.later(MINUTE * 10);
    assert_eq!(host.shown(), ("Healthy".into(), String::new()));
    assert!(host.incidents.is_empty());
}

#[test]
fn the_several_reboot_events_of_one_reset_are_one() {
    let mut host = Host {
        incidents: Incidents::new(Limits { event_interval: Duration::ZERO, ..Limits::default() }),
        now: Instant::now(),
    };
    let told: Vec<bool> = [0, 1, 2, 4, 4, 20, 1]
        .into_iter()
        .map(|seconds| {
            host.now += Duration::from_secs(seconds);
            host.see(&Reboot).is_some()
        })
        .collect();
    assert_eq!(told, [true, false, false, false, false, true, false], "each within five seconds of the one before");
}

#[test]
fn one_vm_cannot_flood_the_events() {
    let mut host = Host::new();
    let mut told = 0;
    for _ in 0..600 {
        told += usize::from(host.see(&Watchdog(WatchdogAction::Reset)).is_some());
        told += usize::from(host.see(&io_error(IoErrorAction::Report)).is_some());
        host.later(Duration::from_secs(1));
    }
    assert_eq!(told, 20, "ten minutes, two kinds, one a minute each");
}

#[test]
fn the_worst_gives_the_reason_and_all_are_named() {
    let mut host = Host::new();
    host.see(&Reboot);
    host.see(&Watchdog(WatchdogAction::Pause));
    host.see(&io_error(IoErrorAction::Pause));
    let (reason, message) = host.shown();
    assert_eq!(reason, "GuestIoError");
    assert_eq!(
        message,
        "I/O error: instance-a (a, vda: enospc); watchdog fired: instance-a (a, paused); rebooted: instance-a (a)"
    );
}

#[test]
fn a_hundred_sick_vms_are_counted_and_not_all_named() {
    let mut incidents = Incidents::new(Limits::default());
    let now = Instant::now();
    for n in 0..100 {
        let id = InstanceId::from(format!("{n:03}").as_str());
        incidents.observe(&id, &"long".repeat(1000), &life(Lifecycle::Crashed), now);
    }
    let message = incidents.condition().message;
    assert!(message.ends_with(" and 90 more"), "{message}");
    assert!(message.len() < 1024, "{}", message.len());
}

#[test]
fn the_list_tells_what_happened_before_this_agent_and_what_was_missed() {
    let mut host = Host::new();
    host.list(DomainState::PausedOnIoError);
    assert_eq!(host.shown().0, "GuestIoError");
    host.list(DomainState::Running);
    assert!(host.is_healthy(), "resumed while we were away");
    host.list(DomainState::Crashed);
    assert_eq!(host.shown().0, "GuestCrashed");
    host.list(DomainState::Running).later(MINUTE * 10);
    assert!(host.is_healthy());
    host.see(&io_error(IoErrorAction::Pause));
    host.list(DomainState::Paused);
    assert!(!host.is_healthy(), "a driver that does not tell why it is paused does not heal it");
    host.incidents.list(&[], host.now);
    assert!(host.is_healthy(), "gone");
}

#[test]
fn a_crash_that_takes_its_vm_with_it_is_shown_for_a_while() {
    let mut host = Host::new();
    host.see(&life(Lifecycle::Crashed));
    host.incidents.list(&[], host.now);
    assert_eq!(host.shown().0, "GuestCrashed");
    host.later(MINUTE * 10);
    assert!(host.is_healthy());
}

fn any_event() -> impl Strategy<Value = DomainEvent> {
    use Lifecycle as L;
    prop_oneof![
        Just(Reboot),
        Just(ControlError),
        any::<bool>().prop_map(|recovered| MemoryFailure { recovered }),
        prop::sample::select(vec![WatchdogAction::Reset, WatchdogAction::Pause]).prop_map(Watchdog),
        prop::sample::select(vec![IoErrorAction::Pause, IoErrorAction::Report, IoErrorAction::None]).prop_map(io_error),
        prop::sample::select(vec![
            L::Defined,
            L::Undefined,
            L::Started,
            L::Suspended,
            L::SuspendedOnIoError,
            L::Resumed,
            L::Stopped,
            L::Destroyed,
            L::Migrated,
            L::Failed,
            L::Crashed,
        ])
        .prop_map(life),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Event(u8, DomainEvent),
    List(Vec<(u8, DomainState)>),
    Wait(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let states = vec![
        DomainState::Running,
        DomainState::Paused,
        DomainState::PausedOnIoError,
        DomainState::ShutOff,
        DomainState::Crashed,
    ];
    prop_oneof![
        6 => (0..8_u8, any_event()).prop_map(|(vm, event)| Step::Event(vm, event)),
        1 => prop::collection::vec((0..8_u8, prop::sample::select(states)), 0..8).prop_map(Step::List),
        2 => (0..400_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_it_stays_bounded_and_heals_when_all_is_well(
        steps in prop::collection::vec(any_step(), 0..200),
        remembered in 6..=8_usize,
    ) {
        let limits = Limits { remembered, named: 3, ..Limits::default() };
        // A VM that was forgotten to make room may be told of once more.
        let forgets = remembered < 8;
        let mut incidents = Incidents::new(limits);
        let mut now = Instant::now();
        let mut told: BTreeMap<(u8, Incident), Instant> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Event(vm, event) => {
                    let id = InstanceId::from(vm.to_string().as_str());
                    if let Some(Told { incident, .. }) = incidents.observe(&id, "vm", &event, now) {
                        let before = told.insert((vm, incident), now);
                        prop_assert!(forgets || before.is_none_or(|at| now - at >= limits.event_interval));
                    }
                    if matches!(event, DomainEvent::IoError { action: IoErrorAction::Pause, .. }) {
                        prop_assert!(incidents.condition().is_false());
                    }
                }
                Step::List(list) => {
                    let unique: BTreeMap<u8, DomainState> = list.into_iter().collect();
                    let list: Vec<_> = unique.into_iter().map(|(vm, state)| domain(&vm.to_string(), state)).collect();
                    incidents.list(&list, now);
                }
                Step::Wait(seconds) => {
                    now += Duration::from_secs(seconds);
                    incidents.expire(now);
                }
            }
            prop_assert!(incidents.len() <= limits.remembered);
            prop_assert!(incidents.condition().message.len() < 4096);
            prop_assert!(incidents.next().is_none_or(|at| at > now && at <= now + limits.quiet));
        }
        let all: Vec<_> = (0..8).map(|vm| domain(&vm.to_string(), DomainState::Running)).collect();
        incidents.list(&all, now);
        incidents.expire(now + limits.quiet);
        prop_assert_eq!(incidents.condition().message, "");
        prop_assert!(incidents.condition().is_true() && incidents.is_empty());
    }
}
