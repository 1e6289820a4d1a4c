//! The records this server answers otherwise, on purpose or for now.

use std::collections::BTreeMap;

/// Reason by record id.
pub(crate) fn list() -> BTreeMap<&'static str, &'static str> {
    let lines = include_str!("known.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries = lines.map(|line| line.split_once(": ").unwrap_or_else(|| panic!("no reason in {line:?}")));
    let mut known = BTreeMap::new();
    for (id, reason) in entries {
        assert!(known.insert(id, reason).is_none(), "{id} is listed twice");
    }
    known
}
