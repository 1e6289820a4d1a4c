//! What the machine is, from whatever tells it.
//!
//! Each source fills an [`OsFacts`] as far as it can, and [`complete`] lets one source fill the gaps of another.

mod describe;
mod files;
mod os_release;
mod properties;

use cobalt_core::host::OsFacts;
use jiff::Timestamp;

pub(crate) use describe::read as from_description;
pub(crate) use files::{kernel_and_machine, os_release};
pub(crate) use properties::read as from_properties;

/// Fills what `facts` lacks from `other`.
pub(crate) fn complete(facts: OsFacts, other: OsFacts) -> OsFacts {
    OsFacts {
        version: facts.version.or(other.version),
        variant_id: facts.variant_id.or(other.variant_id),
        pretty_version: facts.pretty_version.or(other.pretty_version),
        kernel_name: facts.kernel_name.or(other.kernel_name),
        kernel_release: facts.kernel_release.or(other.kernel_release),
        kernel_version: facts.kernel_version.or(other.kernel_version),
        kernel_command_line: facts.kernel_command_line.or(other.kernel_command_line),
        hardware_vendor: facts.hardware_vendor.or(other.hardware_vendor),
        hardware_model: facts.hardware_model.or(other.hardware_model),
        hardware_serial: facts.hardware_serial.or(other.hardware_serial),
        firmware_version: facts.firmware_version.or(other.firmware_version),
        firmware_vendor: facts.firmware_vendor.or(other.firmware_vendor),
        firmware_date: facts.firmware_date.or(other.firmware_date),
        garden_linux_commit_id: facts.garden_linux_commit_id.or(other.garden_linux_commit_id),
        garden_linux_features: if facts.garden_linux_features.is_empty() {
            other.garden_linux_features
        } else {
            facts.garden_linux_features
        },
        boot_id: facts.boot_id.or(other.boot_id),
    }
}

/// A text that says something; the unknown is `None`, never an empty text.
fn text(text: &str) -> Option<String> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// Microseconds since the epoch; systemd writes the largest number when it does not know.
fn microseconds(since_epoch: u64) -> Option<Timestamp> {
    Timestamp::from_microsecond(i64::try_from(since_epoch).ok()?).ok()
}

/// The boot id as the kernel writes it, with hyphens; systemd leaves them out.
fn boot_id(id: &str) -> Option<String> {
    let digits: String = id.trim().chars().filter(|c| *c != '-').collect();
    if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let digits = digits.to_ascii_lowercase();
    Some([&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_a_boot_id_are_one() {
        let wanted = Some("3f2c8a52-0d1b-4c3e-9a77-1b2c3d4e5f60".to_owned());
        assert_eq!(boot_id("3F2C8A520d1b4c3e9a771b2c3d4e5f60\n"), wanted);
        assert_eq!(boot_id("3f2c8a52-0d1b-4c3e-9a77-1b2c3d4e5f60"), wanted);
        assert_eq!(boot_id("3f2c"), None);
        assert_eq!(boot_id("ééééééééééééééééé"), None);
    }

    #[test]
    fn an_unknown_time_is_none() {
        assert_eq!(microseconds(u64::MAX), None);
        assert_eq!(microseconds(i64::MAX as u64), None);
        assert_eq!(microseconds(1_740_787_200_000_000), "2025-03-01T00:00:00Z".parse().ok());
    }

    #[test]
    fn a_source_fills_gaps_and_overrules_nothing() {
        let some = |text: &str| Some(text.to_owned());
        let first = OsFacts { version: some("1"), ..OsFacts::default() };
        let second = OsFacts { version: some("2"), boot_id: some("b"), ..OsFacts::default() };
        assert_eq!(complete(first, second), OsFacts { version: some("1"), boot_id: some("b"), ..OsFacts::default() });
    }
}
