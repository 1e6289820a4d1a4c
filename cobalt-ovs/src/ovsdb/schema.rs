//! What tables and columns a server has.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The tables of one database, as far as a reader needs to know them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Schema {
    /// The database's name.
    pub name: String,
    /// The schema's version, such as `8.3.1`.
    #[serde(default)]
    pub version: String,
    /// The tables by name.
    #[serde(default)]
    pub tables: BTreeMap<String, TableSchema>,
}

/// One table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct TableSchema {
    /// The columns by name.
    #[serde(default)]
    pub columns: BTreeMap<String, ColumnSchema>,
}

/// One column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ColumnSchema {
    /// Whether it can hold more than one value. Changes of such columns are told as differences.
    pub composite: bool,
}

impl Schema {
    /// A column; `None` if the server has no such table or column.
    pub fn column(&self, table: &str, column: &str) -> Option<ColumnSchema> {
        self.tables.get(table)?.columns.get(column).copied()
    }
}

impl<'de> Deserialize<'de> for ColumnSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Column {
            #[serde(default)]
            r#type: Value,
        }
        // A type is the name of an atomic one, or an object where `max` is 1, a larger number or "unlimited".
        let composite = match Column::deserialize(deserializer)?.r#type.get("max") {
            None => false,
            Some(max) => max.as_u64() != Some(1),
        };
        Ok(Self { composite })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_columns_that_can_hold_several_values_are_composite() {
        let schema: Schema = serde_json::from_str(
            r#"{"name":"Open_vSwitch","version":"8.3.1","cksum":"1 2","tables":{"Bridge":{"isRoot":false,"columns":{
                "name":{"type":"string","mutable":false},
                "ifindex":{"type":{"key":"integer","min":0,"max":1}},
                "ports":{"type":{"key":{"type":"uuid","refTable":"Port"},"min":0,"max":"unlimited"}},
                "vlans":{"type":{"key":"integer","max":4096,"min":0}},
                "odd":{}
            }},"Empty":{}}}"#,
        )
        .unwrap();
        let composite = |column| schema.column("Bridge", column).map(|column| column.composite);
        assert_eq!(
            ["name", "ifindex", "ports", "vlans", "odd", "none"].map(composite),
            [Some(false), Some(false), Some(true), Some(true), Some(false), None]
        );
        assert_eq!(schema.version, "8.3.1");
    }
}
