//! Any bytes as updates of a database, worked into tables one after the other: read or refused, and all rows at once
//! leave exactly the rows they name.

#![no_main]

use cobalt_ovs::ovsdb::{RowUpdate, Schema, Tables, Updates};
use libfuzzer_sys::fuzz_target;

const SCHEMA: &str = r#"{"name":"db","tables":{"T":{"columns":{"one":{"type":"string"},
    "many":{"type":{"key":"string","min":0,"max":"unlimited"}}}}}}"#;

// Inputs are lines: a digit for the kind of message, and its JSON.
fuzz_target!(|input: &[u8]| {
    let Ok(schema) = serde_json::from_str::<Schema>(SCHEMA) else { return };
    let mut tables = Tables::default();
    for line in input.split(|byte| *byte == b'\n') {
        let Some((kind, json)) = line.split_first() else { continue };
        let updates = match kind {
            b'1' => Updates::from_notification("update", json),
            b'2' => Updates::from_notification("update2", json),
            b'3' => Updates::from_notification("update3", json),
            b'4' => Updates::from_reply(json, true),
            _ => Updates::from_reply(json, false),
        };
        let Ok(updates) = updates else { continue };
        let complete = updates.complete;
        let named: usize = updates
            .tables
            .iter()
            .map(|(_, rows)| rows.iter().filter(|(_, row)| !matches!(row, RowUpdate::Deleted)).count())
            .sum();
        let before = tables.clone();
        for change in tables.apply(updates, &schema) {
            assert_ne!(change.old, change.new);
            let new = tables.row(&change.table, change.uuid);
            assert!(complete || new == change.new.as_deref() || before.row(&change.table, change.uuid).is_none());
        }
        assert!(!complete || tables.len() <= named);
    }
});
