//! The JSON that hostnamed's `Describe` answers.

use cobalt_core::host::OsFacts;
use serde_json::{Map, Value};

use super::{boot_id, microseconds, os_release, text};

/// A longer answer is not looked at; real ones have about 2 KiB.
const MAX_DESCRIPTION: usize = 256 * 1024;

/// Reads a description. A field that is missing, null or of an unexpected kind is unknown; only what is no JSON
/// object at all is an error, told in words.
pub(crate) fn read(description: &str) -> Result<OsFacts, String> {
    if description.len() > MAX_DESCRIPTION {
        return Err(format!("{} bytes, more than {MAX_DESCRIPTION}", description.len()));
    }
    let fields: Map<String, Value> = serde_json::from_str(description).map_err(|error| error.to_string())?;
    let field = |name: &str| fields.get(name).and_then(Value::as_str).and_then(text);
    let release = fields.get("OperatingSystemReleaseData").and_then(Value::as_array);
    let release = os_release::read(release.into_iter().flatten().filter_map(Value::as_str));
    Ok(OsFacts {
        pretty_version: release.pretty_version.clone().or_else(|| field("OperatingSystemPrettyName")),
        kernel_name: field("KernelName"),
        kernel_release: field("KernelRelease"),
        kernel_version: field("KernelVersion"),
        hardware_vendor: field("HardwareVendor"),
        hardware_model: field("HardwareModel"),
        hardware_serial: field("HardwareSerial"),
        firmware_version: field("FirmwareVersion"),
        firmware_vendor: field("FirmwareVendor"),
        firmware_date: fields.get("FirmwareDate").and_then(Value::as_u64).and_then(microseconds),
        boot_id: field("BootID").and_then(|id| boot_id(&id)),
        ..release
    })
}

#[cfg(test)]
mod tests {
    use proptest::{collection, prelude::*};

    use super::*;

    #[test]
    fn a_description_is_read_whole() {
        let facts = read(
            r##"{"Hostname": "node-1", "KernelName": "Linux", "KernelRelease": "6.12.44", "KernelVersion": "#1 SMP",
                "OperatingSystemPrettyName": "Garden Linux 1877.2",
                "OperatingSystemReleaseData": ["PRETTY_NAME=Garden Linux 1877.2", "GARDENLINUX_VERSION=1877.2"],
                "HardwareVendor": "Dell Inc.", "HardwareModel": "PowerEdge R760", "HardwareSerial": null,
                "FirmwareVersion": "2.3.5", "FirmwareVendor": "Dell Inc.", "FirmwareDate": 1740787200000000,
                "BootID": "3f2c8a520d1b4c3e9a771b2c3d4e5f60"}"##,
        )
        .expect("a description");
        assert_eq!(facts.version.as_deref(), Some("1877.2"));
        assert_eq!(facts.hardware_serial, None);
        assert_eq!(facts.firmware_date, "2025-03-01T00:00:00Z".parse().ok());
        assert_eq!(facts.boot_id.as_deref(), Some("3f2c8a52-0d1b-4c3e-9a77-1b2c3d4e5f60"));
    }

    #[test]
    fn a_field_of_an_unexpected_kind_is_unknown_and_the_others_are_read() {
        let facts = read(
            r#"{"KernelName": 7, "KernelRelease": "6.1", "FirmwareDate": "soon", "BootID": [],
                "OperatingSystemReleaseData": {"PRETTY_NAME": "x"}, "HardwareModel": ""}"#,
        )
        .expect("an object");
        assert_eq!(facts, OsFacts { kernel_release: Some("6.1".into()), ..OsFacts::default() });
    }

    #[test]
    fn what_is_no_object_or_too_long_is_an_error() {
        assert!(read("[]").is_err());
        assert!(read("").is_err());
        assert!(read(&"[".repeat(100_000)).is_err(), "depth is bounded");
        let long = format!(r#"{{"KernelName": "{}"}}"#, "x".repeat(MAX_DESCRIPTION));
        assert!(read(&long).expect_err("too long").contains("more than"));
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "(PRETTY_NAME|GARDENLINUX_[A-Z_]{0,20}|VERSION_ID)=.{0,20}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 6, |inner| {
            prop_oneof![
                collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                collection::btree_map("[A-Za-z]{0,8}", inner, 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    const FIELDS: [&str; 8] = [
        "KernelName",
        "KernelRelease",
        "OperatingSystemReleaseData",
        "OperatingSystemPrettyName",
        "FirmwareDate",
        "HardwareSerial",
        "BootID",
        "HardwareModel",
    ];

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(description in any::<String>()) {
            let _ = read(&description);
        }

        #[test]
        fn any_value_in_any_field_gives_facts_without_empty_texts(
            values in collection::vec((proptest::sample::select(&FIELDS[..]), json()), 0..12)
        ) {
            let fields: Map<String, Value> =
                values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            let facts = read(&Value::Object(fields).to_string()).expect("an object");
            for fact in [facts.version, facts.pretty_version, facts.kernel_name, facts.hardware_model, facts.boot_id] {
                prop_assert_ne!(fact.as_deref(), Some(""));
            }
        }
    }
}
