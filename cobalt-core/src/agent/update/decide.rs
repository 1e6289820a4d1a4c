//! What to do about an update, as a pure function.

use crate::{
    api::{
        Condition, ConditionStatus, OperatingSystem, UpdateStatus, condition_types::OPERATING_SYSTEM_UPDATE, reasons,
    },
    host::ActiveState,
};

/// Attempts for one version.
pub(super) const ATTEMPTS: i32 = 3;

/// The longest version that is taken for one.
const LONGEST: usize = 64;

/// What is known when a decision is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    /// The version that is wanted.
    pub(super) wanted: Option<&'a str>,
    /// What runs; nothing as long as that is not known.
    pub(super) running: Option<&'a OperatingSystem>,
    /// How far we are with the wanted version.
    pub(super) status: &'a UpdateStatus,
    /// How its unit is.
    pub(super) unit: Option<&'a ActiveState>,
    /// We have seen the unit run since we started it or found it.
    pub(super) watched: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing is wanted, or it is done.
    Rest,
    /// What is wanted is no version.
    Refuse,
    /// Ask how the unit is.
    Look,
    /// Start the unit.
    Start,
    /// It runs.
    Follow,
    /// It is installed.
    Done,
    /// This attempt failed.
    Failed,
    /// There are no attempts left.
    GiveUp,
}

/// Whether an update to this version is to be made.
pub(super) fn is_due(seen: &Seen<'_>) -> bool {
    match (seen.wanted, seen.running) {
        (Some(wanted), Some(running)) => {
            !wanted.is_empty()
                && running.version.as_deref() != Some(wanted)
                && seen.status.installed.as_deref() != Some(wanted)
        }
        _ => false,
    }
}

pub(super) fn decide(seen: &Seen<'_>) -> Step {
    if !is_due(seen) {
        return Step::Rest;
    }
    if seen.wanted.and_then(unit_name).is_none() {
        return Step::Refuse;
    }
    let Some(unit) = seen.unit else { return Step::Look };
    let ran = seen.watched || seen.status.in_progress();
    match unit {
        // A unit that runs once is "activating" for as long as it works.
        ActiveState::Activating | ActiveState::Active | ActiveState::Reloading | ActiveState::Deactivating => {
            Step::Follow
        }
        ActiveState::Failed if ran => Step::Failed,
        // Not running after we saw it run: done. If we did not see it, the host may have rebooted in the midst of it;
        // to install what is installed costs nothing, to believe it may cost a host.
        ActiveState::Inactive if seen.watched => Step::Done,
        _ if seen.status.retry() <= 0 => Step::GiveUp,
        _ => Step::Start,
    }
}

/// The unit that installs a version. None if the text could mean anything else in a unit's name.
pub(super) fn unit_name(version: &str) -> Option<String> {
    if version == "latest" {
        return Some("systemd-sysupdate.service".to_owned());
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '~');
    let begins = version.starts_with(|c: char| c.is_ascii_alphanumeric());
    let valid = begins && version.len() <= LONGEST && version.chars().all(plain) && !version.contains("..");
    valid.then(|| format!("systemd-sysupdate@{version}.service"))
}

/// What is said about a version.
pub(super) fn condition(version: &str, holds: bool, reason: &str, message: &str) -> Condition {
    let short: String = version.chars().take(LONGEST).collect();
    Condition::new(OPERATING_SYSTEM_UPDATE, ConditionStatus::from(holds), reason, format!("{short}: {message}"))
}

/// The version that a published condition is about, so that a restarted agent knows whose attempts were counted.
pub(super) fn subject(condition: &Condition) -> Option<&str> {
    condition.message.split_once(": ").map(|(version, _)| version)
}

/// How far we are before the first attempt, as far as what is installed is kept.
pub(super) fn fresh(installed: Option<String>) -> UpdateStatus {
    UpdateStatus { in_progress: Some(false), installed, retry: Some(ATTEMPTS) }
}

/// After one attempt has failed.
pub(super) fn after_failure(status: &UpdateStatus, version: &str, why: &str) -> (UpdateStatus, Condition) {
    let left = (status.retry() - 1).max(0);
    let message = if left > 0 {
        format!("{why}; attempts left: {left}")
    } else {
        format!("{why}; no attempts left: change spec.version to try again")
    };
    let status = UpdateStatus { in_progress: Some(false), retry: Some(left), ..status.clone() };
    (status, condition(version, false, reasons::STOPPED, &message))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn status(in_progress: bool, installed: Option<&str>, retry: i32) -> UpdateStatus {
        UpdateStatus { in_progress: Some(in_progress), installed: installed.map(str::to_owned), retry: Some(retry) }
    }

    fn system(version: Option<&str>) -> OperatingSystem {
        OperatingSystem { version: version.map(str::to_owned), ..OperatingSystem::default() }
    }

    fn step(wanted: &str, status: &UpdateStatus, unit: Option<&ActiveState>, watched: bool) -> Step {
        decide(&Seen { wanted: Some(wanted), running: Some(&system(Some("1.0"))), status, unit, watched })
    }

    #[test]
    fn an_update_is_due_only_for_another_version_than_runs_or_is_installed() {
        let (none, done) = (fresh(None), status(false, Some("1.1"), 3));
        let (old, silent) = (system(Some("1.0")), system(None));
        let seen = |wanted, running, status| is_due(&Seen { wanted, running, status, unit: None, watched: false });
        assert!(seen(Some("1.1"), Some(&old), &none));
        assert!(seen(Some("1.1"), Some(&silent), &none), "a host that does not tell its version");
        assert!(!seen(Some("1.1"), None, &none), "not before the facts are known");
        assert!(!seen(Some("1.0"), Some(&old), &none));
        assert!(!seen(Some("1.1"), Some(&old), &done));
        assert!(!seen(Some(""), Some(&old), &none));
        assert!(!seen(None, Some(&old), &none));
    }

    #[test]
    fn each_state_of_the_unit_leads_to_its_step() {
        use ActiveState::{Activating, Active, Deactivating, Failed, Inactive};
        let (idle, under_way, spent) = (status(false, None, 3), status(true, None, 2), status(false, None, 0));
        for (status, unit, watched, expected) in [
            (&idle, None, false, Step::Look),
            (&idle, Some(Inactive), false, Step::Start),
            (&idle, Some(Failed), false, Step::Start),
            (&idle, Some(Activating), false, Step::Follow),
            (&under_way, Some(Activating), true, Step::Follow),
            (&under_way, Some(Active), true, Step::Follow),
            (&under_way, Some(Deactivating), true, Step::Follow),
            (&under_way, Some(Inactive), true, Step::Done),
            (&under_way, Some(Inactive), false, Step::Start),
            (&under_way, Some(Failed), true, Step::Failed),
            (&under_way, Some(Failed), false, Step::Failed),
            (&spent, Some(Inactive), false, Step::GiveUp),
            (&spent, Some(Failed), false, Step::GiveUp),
            (&spent, Some(Activating), false, Step::Follow),
        ] {
            let found = step("1.1", status, unit.as_ref(), watched);
            assert_eq!(found, expected, "{status:?} {unit:?} {watched}");
        }
    }

    #[test]
    fn only_a_plain_version_becomes_part_of_a_unit_name() {
        assert_eq!(unit_name("1877.3").unwrap(), "systemd-sysupdate@1877.3.service");
        assert_eq!(unit_name("latest").unwrap(), "systemd-sysupdate.service");
        assert!(unit_name("1877.3-rc1+b2~x_y").is_some());
        let long = "1".repeat(65);
        for bad in ["", ".1", "-1", "1/2", "a..b", "1 2", r"1\x2f2", "1%n", "1@2", "../../etc", "1\n2", "ä", &long] {
            assert_eq!(unit_name(bad), None, "{bad:?}");
            assert_eq!(step(bad, &fresh(None), None, false) == Step::Refuse, !bad.is_empty(), "{bad:?}");
        }
    }

    #[test]
    fn attempts_are_counted_down_and_never_below_none() {
        let (once, said) = after_failure(&fresh(None), "1.1", "the unit failed");
        assert_eq!((once.retry(), once.in_progress()), (2, false));
        assert_eq!(subject(&said), Some("1.1"));
        let (last, said) = after_failure(&status(true, None, 1), "1.1", "the unit failed");
        assert_eq!(last.retry(), 0);
        assert!(said.message.contains("change spec.version"), "{}", said.message);
        assert_eq!(after_failure(&last, "1.1", "again").0.retry(), 0);
    }
}
