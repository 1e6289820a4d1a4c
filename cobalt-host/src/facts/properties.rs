//! The properties of hostnamed, for hosts whose hostnamed has no `Describe` (systemd before 249).

use std::collections::HashMap;

use cobalt_core::host::OsFacts;
use zbus::{OwnedVariant, Variant};

use super::{boot_id, microseconds, text};

/// What `GetAll` answers.
pub(crate) type Properties = HashMap<String, OwnedVariant>;

/// Reads what old and new versions have; a property of an unexpected type is unknown.
pub(crate) fn read(properties: &Properties) -> OsFacts {
    let fact = |name: &str| match properties.get(name).map(|value| &**value) {
        Some(Variant::Str(value)) => text(value.as_str()),
        _ => None,
    };
    OsFacts {
        pretty_version: fact("OperatingSystemPrettyName"),
        kernel_name: fact("KernelName"),
        kernel_release: fact("KernelRelease"),
        kernel_version: fact("KernelVersion"),
        hardware_vendor: fact("HardwareVendor"),
        hardware_model: fact("HardwareModel"),
        firmware_version: fact("FirmwareVersion"),
        firmware_vendor: fact("FirmwareVendor"),
        firmware_date: match properties.get("FirmwareDate").map(|value| &**value) {
            Some(Variant::U64(date)) => microseconds(*date),
            _ => None,
        },
        boot_id: properties.get("BootID").and_then(|value| boot_id(&hex(value)?)),
        ..OsFacts::default()
    }
}

/// An array of bytes as hexadecimal digits.
fn hex(bytes: &Variant<'_>) -> Option<String> {
    let Variant::Array(bytes) = bytes else { return None };
    bytes.iter().map(|byte| if let Variant::U8(byte) = byte { Some(format!("{byte:02x}")) } else { None }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned<'a>(value: impl Into<Variant<'a>>) -> OwnedVariant {
        value.into().try_to_owned().expect("no descriptors")
    }

    #[test]
    fn properties_are_read_and_unexpected_types_are_unknown() {
        let id: Vec<u8> = (0..16).collect();
        let properties = Properties::from([
            ("KernelName".to_owned(), owned("Linux")),
            ("KernelRelease".to_owned(), owned(7_u32)),
            ("HardwareModel".to_owned(), owned("")),
            ("FirmwareDate".to_owned(), owned(1_740_787_200_000_000_u64)),
            ("BootID".to_owned(), owned(id)),
        ]);
        let wanted = OsFacts {
            kernel_name: Some("Linux".into()),
            firmware_date: "2025-03-01T00:00:00Z".parse().ok(),
            boot_id: Some("00010203-0405-0607-0809-0a0b0c0d0e0f".into()),
            ..OsFacts::default()
        };
        assert_eq!(read(&properties), wanted);
    }
}
