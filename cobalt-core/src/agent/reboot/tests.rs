#![allow(clippy::unwrap_used)]

use super::{
    decide::{LIBVIRT_PATIENCE, LetGo, SETTLE},
    *,
};
use crate::api::{Condition, ConditionStatus, condition_types};

const MINUTES: Duration = Duration::from_secs(600);

fn hypervisor() -> Hypervisor {
    Hypervisor::new("node-1", crate::api::HypervisorSpec::default())
}

fn marked(boot: &str) -> Hypervisor {
    let mut object = hypervisor();
    object.metadata.annotations = Some([(BOOT_ID_ANNOTATION.to_owned(), boot.to_owned())].into());
    object.spec.maintenance = Some(Maintenance::Auto);
    object.spec.maintenance_reason = Some(REBOOT_REASON.to_owned());
    object
}

fn evicting(mut object: Hypervisor, status: ConditionStatus, reason: &str) -> Hypervisor {
    let condition = Condition::new(condition_types::EVICTING, status, reason, "");
    object.status.get_or_insert_default().conditions.push(condition);
    object
}

/// A world in which a shutdown was announced just now, of a host with three instances.
fn seen(hypervisor: &Hypervisor) -> Seen<'_> {
    let now = Instant::now();
    Seen {
        hypervisor: Some(hypervisor),
        boot_id: Some("boot-1"),
        shutdown: Some(Announced { until: now + MINUTES, marked: false, let_go: None }),
        guests: Guests::Known { all: 3, active: 3 },
        libvirt_gone_since: None,
        started: now,
        now,
    }
}

fn announced(seen: &Seen<'_>, marked: bool) -> Option<Announced> {
    seen.shutdown.map(|shutdown| Announced { marked, ..shutdown })
}

#[test]
fn a_shutdown_of_a_host_with_instances_takes_it_out_of_service_and_waits() {
    let object = hypervisor();
    let decision = decide(&seen(&object));
    assert_eq!((decision.hold, decision.change, decision.let_go), (true, Change::Mark, None));
    assert!(decision.look_again.is_some());
}

#[test]
fn a_shutdown_of_an_empty_host_is_none_of_our_business() {
    let object = hypervisor();
    let decision = decide(&Seen { guests: Guests::Known { all: 0, active: 0 }, ..seen(&object) });
    assert_eq!((decision.hold, decision.change, decision.let_go), (false, Change::Keep, Some(LetGo::Empty)));
}

#[test]
fn the_host_is_empty_only_when_operator_and_hypervisor_agree() {
    let empty = Guests::Known { all: 1, active: 0 };
    let busy = Guests::Known { all: 1, active: 1 };
    let evicted = evicting(marked("boot-1"), ConditionStatus::False, "Succeeded");
    let failed = evicting(marked("boot-1"), ConditionStatus::True, "Failed");
    let mut failed_yet_evicted = failed.clone();
    failed_yet_evicted.status.get_or_insert_default().evicted = Some(true);
    let silent = marked("boot-1");
    for (object, guests, expected) in [
        (&evicted, empty, Some(LetGo::Drained)),
        (&evicted, busy, None),
        (&evicted, Guests::Unknown, None),
        (&failed, empty, None),
        (&failed_yet_evicted, empty, None),
        (&silent, empty, None),
    ] {
        let seen = seen(object);
        let decision = decide(&Seen { guests, shutdown: announced(&seen, true), ..seen });
        assert_eq!(decision.let_go, expected, "{guests:?} {:?}", object.status);
        assert_eq!(decision.hold, expected.is_none());
    }
}

#[test]
fn every_way_out_of_a_drain_lets_the_shutdown_go() {
    let object = marked("boot-1");
    let base = seen(&object);
    let shutdown = announced(&base, true);
    let late = Seen { shutdown, now: base.now + MINUTES, ..base };
    let gone = Seen { shutdown, libvirt_gone_since: Some(base.now), now: base.now + LIBVIRT_PATIENCE, ..base };
    let deleted = Seen { shutdown, hypervisor: None, ..base };
    let off = hypervisor();
    let taken_back = Seen { shutdown, hypervisor: Some(&off), ..base };
    let mut unwanted = object.clone();
    unwanted.spec.evacuate_on_reboot = Some(false);
    let unwanted = Seen { shutdown, hypervisor: Some(&unwanted), ..base };
    for (seen, expected) in [
        (late, LetGo::TooLate),
        (gone, LetGo::LibvirtGone),
        (deleted, LetGo::NoHypervisor),
        (taken_back, LetGo::TakenBack),
        (unwanted, LetGo::TakenBack),
    ] {
        let decision = decide(&seen);
        assert_eq!((decision.hold, decision.let_go), (false, Some(expected)));
        // And it stays so: what was let go is not held again.
        let shutdown = seen.shutdown.map(|shutdown| Announced { let_go: Some(expected), ..shutdown });
        let decision = decide(&Seen { shutdown, ..seen });
        assert_eq!((decision.hold, decision.let_go, decision.change), (false, None, Change::Keep));
    }
}

#[test]
fn a_short_absence_of_libvirt_is_waited_for() {
    let object = marked("boot-1");
    let base = seen(&object);
    let away = Seen { guests: Guests::Unknown, libvirt_gone_since: Some(base.now), ..base };
    let decision = decide(&away);
    assert!(decision.hold);
    assert_eq!(decision.look_again, Some(base.now + LIBVIRT_PATIENCE));
}

#[test]
fn the_mark_is_cleared_after_a_reboot_and_only_if_it_is_still_ours() {
    let ours = marked("boot-0");
    let mut manual = marked("boot-0");
    manual.spec.maintenance = Some(Maintenance::Manual);
    let mut reworded = marked("boot-0");
    reworded.spec.maintenance_reason = Some("waiting for a new disk".into());
    let mut unmarked = marked("boot-0");
    unmarked.metadata.annotations = None;
    for (object, expected) in [
        (&ours, Change::Clear),
        (&manual, Change::Disown),
        (&reworded, Change::Disown),
        (&unmarked, Change::Keep),
        (&hypervisor(), Change::Keep),
    ] {
        let decision = decide(&Seen { shutdown: None, ..seen(object) });
        assert_eq!((decision.change, decision.hold), (expected, true), "{:?}", object.spec);
    }
}

#[test]
fn a_restarted_agent_waits_for_the_announcement_that_its_mark_belongs_to() {
    let object = marked("boot-1");
    let base = Seen { shutdown: None, ..seen(&object) };
    let decision = decide(&base);
    assert_eq!((decision.change, decision.look_again), (Change::Keep, Some(base.started + SETTLE)));
    assert_eq!(decide(&Seen { now: base.started + SETTLE, ..base }).change, Change::Clear);
    // And if it comes, the mark stays.
    assert_eq!(decide(&seen(&object)).change, Change::Keep);
}

#[test]
fn a_mode_of_somebody_else_is_never_replaced() {
    for mode in [Maintenance::Manual, Maintenance::Ha, Maintenance::Termination, Maintenance::Auto] {
        let mut object = hypervisor();
        object.spec.maintenance = Some(mode);
        let decision = decide(&seen(&object));
        assert_eq!((decision.hold, decision.change), (true, Change::Keep));
    }
}

#[test]
fn a_delay_that_is_too_short_is_told_with_its_remedy() {
    let object = hypervisor();
    let seen = Seen { shutdown: None, ..seen(&object) };
    let short = condition(&seen, &Held::Yes(Some(Duration::from_secs(5))), MINUTES).unwrap();
    assert_eq!((short.is_false(), short.reason.as_str()), (true, "DelayTooShort"));
    assert!(
        short.message.contains("5 s only") && short.message.contains("InhibitDelayMaxSec=600"),
        "{}",
        short.message
    );
    for enough in [Some(MINUTES), None] {
        assert_eq!(condition(&seen, &Held::Yes(enough), MINUTES).unwrap().reason, "Ready");
    }
    let mut unwanted = object.clone();
    unwanted.spec.evacuate_on_reboot = Some(false);
    assert_eq!(condition(&Seen { hypervisor: Some(&unwanted), ..seen }, &Held::No, MINUTES), None);
}
