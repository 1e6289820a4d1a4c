//! The words of `os-release`, as a file or as hostnamed repeats them.

use cobalt_core::host::OsFacts;

use super::text;

/// Reads `KEY=value` lines. Unknown keys, comments and what is no assignment are passed over.
pub(super) fn read<'a>(lines: impl IntoIterator<Item = &'a str>) -> OsFacts {
    let mut facts = OsFacts::default();
    let mut version_id = None;
    for line in lines {
        let Some((key, value)) = line.trim().split_once('=') else { continue };
        let value = text(&unquoted(value.trim()));
        match key {
            "PRETTY_NAME" => facts.pretty_version = value,
            "VARIANT_ID" => facts.variant_id = value,
            "VERSION_ID" => version_id = value,
            "GARDENLINUX_VERSION" => facts.version = value,
            "GARDENLINUX_COMMIT_ID_LONG" => facts.garden_linux_commit_id = value,
            "GARDENLINUX_FEATURES" => {
                facts.garden_linux_features = value.unwrap_or_default().split(',').filter_map(text).collect();
            }
            _ => {}
        }
    }
    // Everybody but Garden Linux has only this one.
    facts.version = facts.version.or(version_id);
    facts
}

/// Takes the quotes of the shell off a value.
fn unquoted(value: &str) -> String {
    for quote in ['"', '\''] {
        let inner = value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        if let Some(inner) = inner {
            return if quote == '"' { unescaped(inner) } else { inner.to_owned() };
        }
    }
    unescaped(value)
}

fn unescaped(value: &str) -> String {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        plain.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn garden_linux_is_known_by_its_own_fields() {
        let file = r#"
            ID=gardenlinux
            NAME="Garden Linux"
            PRETTY_NAME="Garden Linux 1877.2"
            VERSION_ID=1877
            VARIANT_ID=kvm-gardener_prod-amd64
            GARDENLINUX_VERSION=1877.2
            GARDENLINUX_COMMIT_ID=5e6a3f0c
            GARDENLINUX_COMMIT_ID_LONG=5e6a3f0c2f2b7b8e
            GARDENLINUX_FEATURES=log,sap,ssh,_prod, kvm,
        "#;
        let facts = read(file.lines());
        assert_eq!(facts.version.as_deref(), Some("1877.2"));
        assert_eq!(facts.pretty_version.as_deref(), Some("Garden Linux 1877.2"));
        assert_eq!(facts.variant_id.as_deref(), Some("kvm-gardener_prod-amd64"));
        assert_eq!(facts.garden_linux_commit_id.as_deref(), Some("5e6a3f0c2f2b7b8e"));
        assert_eq!(facts.garden_linux_features, ["log", "sap", "ssh", "_prod", "kvm"]);
    }

    #[test]
    fn another_distribution_has_its_version_too() {
        let facts = read(["# comment", "PRETTY_NAME='Debian GNU/Linux 12 (bookworm)'", "VERSION_ID=\"12\""]);
        assert_eq!(facts.version.as_deref(), Some("12"));
        assert_eq!(facts.pretty_version.as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert!(facts.garden_linux_features.is_empty());
    }

    #[test]
    fn what_is_empty_or_absent_is_unknown() {
        let facts = read(["VERSION_ID=", "VARIANT_ID=\"\"", "PRETTY_NAME", "GARDENLINUX_FEATURES=,"]);
        assert_eq!(facts, OsFacts::default());
    }

    #[test]
    fn the_shells_quoting_is_undone() {
        assert_eq!(unquoted(r#""a \"b\" \$c \\""#), r#"a "b" $c \"#);
        assert_eq!(unquoted(r"'a \b'"), r"a \b");
        assert_eq!(unquoted("\""), "\"");
        assert_eq!(unquoted(r"a\"), "a");
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(file in any::<String>()) {
            let facts = read(file.lines());
            prop_assert_ne!(facts.version.as_deref(), Some(""));
        }
    }
}
