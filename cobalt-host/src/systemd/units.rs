//! The units that somebody has asked about, and which signals say something new about them.
//!
//! Asking systemd about a unit that is not in its memory loads it, and soon after it is let go again: two signals
//! that our own question has caused. Whoever took them for news would ask again, for ever. So a unit that comes and
//! goes is news only if it was last seen in another state than at rest (before it is let go, its properties tell that
//! it came to rest); and of the many notes about properties only those are news that change the state last seen.

use std::fmt::Write;

use cobalt_core::host::ActiveState;
use tracing::warn;

/// So many units are followed at once; an agent asks about a handful. Each signal is compared with all of them, and
/// names that carry a version would otherwise gather for as long as the agent runs.
const MAX_FOLLOWED: usize = 256;
const PATHS: &str = "/org/freedesktop/systemd1/unit/";

#[derive(Debug, Clone, PartialEq, Eq)]
struct Followed {
    /// The name somebody asked for; may be an alias.
    asked: String,
    /// The unit's own name.
    id: String,
    path: String,
    /// The state that whoever asks last has been told, if nothing happened since.
    seen: Option<ActiveState>,
    /// When a signal last spoke of it, on the table's own clock.
    touched: u64,
}

/// The units that somebody has asked about, as many as are followed.
#[derive(Debug, Default)]
pub(super) struct FollowedUnits {
    /// The one asked about last is the last.
    units: Vec<Followed>,
    clock: u64,
}

impl FollowedUnits {
    /// Starts to follow these units, before they are read: a change during the reading must not be lost. The answer
    /// is the moment, for [`read`](Self::read). Units that were not asked about for the longest make room for them.
    pub(super) fn asked<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) -> u64 {
        for name in names {
            let unit = if let Some(known) = self.units.iter().position(|unit| unit.asked == name) {
                self.units.remove(known)
            } else {
                let path = format!("{PATHS}{}", escaped(name));
                let (asked, id) = (name.to_owned(), name.to_owned());
                Followed { asked, id, path, seen: None, touched: self.clock }
            };
            self.units.push(unit);
        }
        let excess = self.units.len().saturating_sub(MAX_FOLLOWED);
        if let Some(first) = self.units.drain(..excess).next() {
            warn!(
                unit = first.asked,
                count = excess,
                limit = MAX_FOLLOWED,
                "too many units: some are followed no more"
            );
        }
        self.clock
    }

    /// Notes what a reading that began at `since` found. False if signals of this unit may have been missed while
    /// it was read, because it has another path than its name suggests: it must be read again.
    pub(super) fn read(&mut self, asked: &str, id: &str, path: &str, state: &ActiveState, since: u64) -> bool {
        let Some(unit) = self.units.iter_mut().find(|unit| unit.asked == asked) else { return true };
        // What a signal said meanwhile is newer, and was told: whoever reads will read again.
        if unit.touched <= since {
            unit.seen = Some(state.clone());
        }
        id.clone_into(&mut unit.id);
        let known = unit.path == path;
        path.clone_into(&mut unit.path);
        known
    }

    /// Properties of the unit at this path changed; `state` is the new one if the signal says it.
    pub(super) fn properties_changed(&mut self, path: &str, state: Option<&ActiveState>) -> Vec<String> {
        self.news(|unit| unit.path == path, |unit| state.is_none() || unit.seen.as_ref() != state, state)
    }

    /// The unit at this path was loaded or unloaded. While nobody has read its state there is nothing to compare
    /// with, and the signal may come of the very reading that is under way.
    pub(super) fn came_or_went(&mut self, path: &str) -> Vec<String> {
        let at_work = |unit: &Followed| unit.seen.as_ref().is_some_and(|seen| *seen != ActiveState::Inactive);
        self.news(|unit| unit.path == path, at_work, None)
    }

    /// A job of this unit ended: something was done to it, even if it is again as it was.
    pub(super) fn job_ended(&mut self, id: &str) -> Vec<String> {
        self.news(|unit| unit.id == id || unit.asked == id, |_| true, None)
    }

    /// All unit files were read anew.
    pub(super) fn reloaded(&mut self) -> Vec<String> {
        self.news(|_| true, |_| true, None)
    }

    /// Nothing that was seen counts any more.
    pub(super) fn forget(&mut self) {
        self.reloaded();
    }

    fn news(
        &mut self,
        about: impl Fn(&Followed) -> bool,
        is_news: impl Fn(&Followed) -> bool,
        state: Option<&ActiveState>,
    ) -> Vec<String> {
        self.clock += 1;
        let mut names = Vec::new();
        for unit in self.units.iter_mut().filter(|unit| about(unit)) {
            if is_news(unit) {
                unit.touched = self.clock;
                unit.seen = state.cloned();
                names.push(unit.asked.clone());
            }
        }
        names
    }
}

/// Whether systemd would look for a unit of this name. It passes others over, or fails the whole question for a
/// template without its instance; an empty name it takes for the caller's own unit.
pub(super) fn is_valid_name(name: &str) -> bool {
    const TYPES: [&str; 11] =
        ["service", "socket", "device", "mount", "automount", "swap", "target", "path", "timer", "slice", "scope"];
    let Some((stem, kind)) = name.rsplit_once('.') else { return false };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    name.len() < 256
        && TYPES.contains(&kind)
        && !stem.is_empty()
        && !stem.starts_with('@')
        && !stem.ends_with('@')
        && stem.bytes().all(allowed)
}

/// A unit's name as the last part of its object path.
fn escaped(name: &str) -> String {
    let mut path = String::with_capacity(name.len());
    for (index, byte) in name.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || (index > 0 && byte.is_ascii_digit()) {
            path.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(path, "_{byte:02x}");
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "libvirtd.service";
    const PATH: &str = "/org/freedesktop/systemd1/unit/libvirtd_2eservice";

    fn read_as(state: &ActiveState) -> FollowedUnits {
        let mut units = FollowedUnits::default();
        let since = units.asked([NAME]);
        assert!(units.read(NAME, NAME, PATH, state, since));
        units
    }

    #[test]
    fn the_traces_of_our_own_question_are_no_news() {
        let mut units = read_as(&ActiveState::Inactive);
        assert!(units.came_or_went(PATH).is_empty());
        assert!(units.properties_changed(PATH, Some(&ActiveState::Inactive)).is_empty());
        let since = units.asked(["absent.service"]);
        let path = "/org/freedesktop/systemd1/unit/absent_2eservice";
        assert!(units.came_or_went(path).is_empty(), "the answer to the first question is on its way");
        units.read("absent.service", "absent.service", path, &ActiveState::Inactive, since);
        assert!(units.came_or_went(path).is_empty());
        let mut running = read_as(&ActiveState::Active);
        assert_eq!(running.came_or_went(PATH), [NAME]);
    }

    #[test]
    fn each_new_state_is_news_once() {
        let mut units = read_as(&ActiveState::Inactive);
        assert_eq!(units.properties_changed(PATH, Some(&ActiveState::Activating)), [NAME]);
        assert!(units.properties_changed(PATH, Some(&ActiveState::Activating)).is_empty());
        assert_eq!(units.properties_changed(PATH, Some(&ActiveState::Active)), [NAME]);
        assert_eq!(units.properties_changed(PATH, None), [NAME], "the state may be among what is not said");
        assert!(units.properties_changed("/org/freedesktop/systemd1/unit/other", None).is_empty());
    }

    #[test]
    fn a_reading_older_than_a_signal_does_not_hide_the_next_one() {
        let mut units = read_as(&ActiveState::Inactive);
        let since = units.asked([NAME]);
        assert_eq!(units.properties_changed(PATH, Some(&ActiveState::Active)), [NAME]);
        units.read(NAME, NAME, PATH, &ActiveState::Inactive, since);
        assert_eq!(units.properties_changed(PATH, Some(&ActiveState::Inactive)), [NAME]);
    }

    #[test]
    fn an_alias_is_followed_under_the_name_that_was_asked_for() {
        let mut units = FollowedUnits::default();
        let since = units.asked(["openvswitch-switch.service"]);
        let path = "/org/freedesktop/systemd1/unit/openvswitch_2eservice";
        let read = |units: &mut FollowedUnits| {
            units.read("openvswitch-switch.service", "openvswitch.service", path, &ActiveState::Active, since)
        };
        assert!(!read(&mut units), "signals of the other path were not heard yet");
        assert!(read(&mut units));
        assert_eq!(units.job_ended("openvswitch.service"), ["openvswitch-switch.service"]);
        assert_eq!(units.properties_changed(path, Some(&ActiveState::Failed)), ["openvswitch-switch.service"]);
    }

    #[test]
    fn of_too_many_units_those_asked_about_last_are_followed() {
        let mut units = read_as(&ActiveState::Active);
        let update = |number: usize| format!("systemd-sysupdate@{number}.service");
        for number in 0..MAX_FOLLOWED - 1 {
            units.asked([update(number).as_str()]);
        }
        assert_eq!(units.reloaded().len(), MAX_FOLLOWED);
        units.asked([NAME]);
        units.asked([update(MAX_FOLLOWED).as_str()]);
        assert_eq!(units.reloaded().len(), MAX_FOLLOWED);
        assert_eq!(units.job_ended(NAME), [NAME], "it was asked about again");
        assert_eq!(units.job_ended(&update(MAX_FOLLOWED)), [update(MAX_FOLLOWED)]);
        assert!(units.job_ended(&update(0)).is_empty());
        let since = units.asked([NAME]);
        assert!(units.read(&update(0), NAME, PATH, &ActiveState::Active, since), "nothing to read again for");
    }

    #[test]
    fn names_that_systemd_would_stumble_over_are_known() {
        for good in [NAME, "systemd-sysupdate@1877.2.service", "a\\x2db.mount", "-.slice"] {
            assert!(is_valid_name(good), "{good}");
        }
        for bad in ["", "libvirtd", ".service", "x@.service", "a b.service", "a/b.service", "x.exe", "@x.service"] {
            assert!(!is_valid_name(bad), "{bad}");
        }
        assert!(!is_valid_name(&format!("{}.service", "x".repeat(300))));
    }

    #[test]
    fn object_paths_are_escaped_as_systemd_does() {
        assert_eq!(format!("{PATHS}{}", escaped(NAME)), PATH);
        assert_eq!(escaped("9p-a@1.mount"), "_39p_2da_401_2emount");
    }
}
