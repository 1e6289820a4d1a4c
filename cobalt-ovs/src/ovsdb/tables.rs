//! The rows that are known, and how changes are worked into them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use uuid::Uuid;

use super::{
    datum::{Atom, Datum},
    monitor::{RowUpdate, Updates},
    row::Row,
    schema::Schema,
};

/// What happened to a row, with what it was and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowChange {
    /// The table.
    pub table: Arc<str>,
    /// The row.
    pub uuid: Uuid,
    /// What it was; `None` if it is new.
    pub old: Option<Arc<Row>>,
    /// What it is; `None` if it is gone.
    pub new: Option<Arc<Row>>,
}

/// The rows of the tables that are followed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tables {
    tables: BTreeMap<Arc<str>, HashMap<Uuid, Arc<Row>>>,
}

impl Tables {
    /// A row.
    pub fn row(&self, table: &str, uuid: Uuid) -> Option<&Row> {
        self.tables.get(table)?.get(&uuid).map(Arc::as_ref)
    }

    /// All rows of a table, in no order.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = (Uuid, &Row)> {
        self.tables.get(table).into_iter().flatten().map(|(uuid, row)| (*uuid, row.as_ref()))
    }

    /// How many rows there are in all tables.
    pub fn len(&self) -> usize {
        self.tables.values().map(HashMap::len).sum()
    }

    /// Whether there is no row at all.
    pub fn is_empty(&self) -> bool {
        self.tables.values().all(HashMap::is_empty)
    }

    /// Works the changes in and says what has changed by them.
    ///
    /// A change to a row that is not known is dropped: it is of a row that conditions have just excluded.
    pub fn apply(&mut self, updates: Updates, schema: &Schema) -> Vec<RowChange> {
        if updates.complete {
            return self.replace(updates);
        }
        let mut changes = Vec::new();
        for (table, rows) in updates.tables {
            let known = self.tables.entry(Arc::clone(&table)).or_default();
            for (uuid, update) in rows {
                let old = known.get(&uuid).cloned();
                let new = match (update, &old) {
                    (RowUpdate::Deleted, _) => None,
                    (RowUpdate::Whole(row), _) => Some(row),
                    (RowUpdate::Difference(_), None) => continue,
                    (RowUpdate::Difference(difference), Some(old)) => Some(changed(old, difference, |column| {
                        schema.column(&table, column).is_some_and(|column| column.composite)
                    })),
                };
                let new = new.map(|mut row| {
                    row.compact();
                    Arc::new(row)
                });
                match &new {
                    Some(row) => known.insert(uuid, Arc::clone(row)),
                    None => known.remove(&uuid),
                };
                if old != new {
                    changes.push(RowChange { table: Arc::clone(&table), uuid, old, new });
                }
            }
        }
        changes
    }

    fn replace(&mut self, updates: Updates) -> Vec<RowChange> {
        let mut before = std::mem::take(&mut self.tables);
        let mut changes = Vec::new();
        for (table, rows) in updates.tables {
            let mut old_rows = before.remove(&table).unwrap_or_default();
            let known = self.tables.entry(Arc::clone(&table)).or_default();
            for (uuid, update) in rows {
                let (RowUpdate::Whole(mut row) | RowUpdate::Difference(mut row)) = update else { continue };
                row.compact();
                let old = old_rows.remove(&uuid);
                // The same row again keeps its memory.
                let new = match &old {
                    Some(old) if **old == row => Arc::clone(old),
                    _ => Arc::new(row),
                };
                known.insert(uuid, Arc::clone(&new));
                if old.as_ref() != Some(&new) {
                    changes.push(RowChange { table: Arc::clone(&table), uuid, old, new: Some(new) });
                }
            }
            before.insert(table, old_rows);
        }
        for (table, rows) in before {
            for (uuid, old) in rows {
                changes.push(RowChange { table: Arc::clone(&table), uuid, old: Some(old), new: None });
            }
        }
        changes
    }
}

fn changed(old: &Row, difference: Row, composite: impl Fn(&str) -> bool) -> Row {
    let mut row = old.clone();
    for (column, value) in difference.into_values() {
        let value = if composite(&column) {
            match (row.get(&column).unwrap_or(&Datum::EMPTY), value) {
                (old, Datum::Map(pairs)) => changed_map(old.pairs(), pairs),
                (old, value) => changed_set(old.atoms(), value.atoms()),
            }
        } else {
            value
        };
        row.set(&column, value);
    }
    row
}

/// What is in both goes, what is in one stays.
fn changed_set(old: &[Atom], difference: &[Atom]) -> Datum {
    let stays = old.iter().filter(|atom| difference.binary_search(atom).is_err());
    let comes = difference.iter().filter(|atom| old.binary_search(atom).is_err());
    Datum::set(stays.chain(comes).cloned())
}

/// A pair that is there goes, a known key gets the new value, an unknown pair comes.
fn changed_map(old: &[(Atom, Atom)], difference: Vec<(Atom, Atom)>) -> Datum {
    let mut pairs: BTreeMap<Atom, Atom> = old.iter().cloned().collect();
    for (key, value) in difference {
        if pairs.get(&key) == Some(&value) {
            pairs.remove(&key);
        } else {
            pairs.insert(key, value);
        }
    }
    Datum::map(pairs)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ROW: Uuid = Uuid::from_u128(7);

    fn schema() -> Schema {
        serde_json::from_str(
            r#"{"name":"db","tables":{"T":{"columns":{
                "name":{"type":"string"},
                "tag":{"type":{"key":"integer","min":0,"max":1}},
                "ports":{"type":{"key":"integer","min":0,"max":"unlimited"}},
                "ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}}}}"#,
        )
        .unwrap()
    }

    fn updates(update: RowUpdate, complete: bool) -> Updates {
        Updates { tables: vec![(Arc::from("T"), vec![(ROW, update)])], transaction: None, complete }
    }

    fn start() -> Tables {
        let mut tables = Tables::default();
        let row = Row::new()
            .with("name", "a")
            .with("tag", 5)
            .with("ports", Datum::set([1, 2, 3]))
            .with("ids", Datum::map([("x", "1"), ("y", "2")]));
        assert_eq!(tables.apply(updates(RowUpdate::Whole(row), true), &schema()).len(), 1);
        tables
    }

    #[test]
    fn differences_are_worked_in_by_the_kind_of_the_column() {
        let mut tables = start();
        let difference = Row::new()
            .with("tag", Datum::EMPTY)
            .with("ports", Datum::set([3, 4]))
            .with("ids", Datum::map([("x", "1"), ("y", "3"), ("z", "4")]));
        let changes = tables.apply(updates(RowUpdate::Difference(difference), false), &schema());
        assert_eq!(changes.len(), 1);
        let row = tables.row("T", ROW).unwrap();
        assert_eq!(row.str("name"), Some("a"));
        assert_eq!(row.get("tag"), None, "what is empty takes no room");
        assert_eq!(row.get("ports"), Some(&Datum::set([1, 2, 4])));
        assert_eq!(row.get("ids"), Some(&Datum::map([("y", "3"), ("z", "4")])));
        let one = Row::new().with("ports", Datum::set([1, 2, 4, 9]));
        tables.apply(updates(RowUpdate::Difference(one), false), &schema());
        assert_eq!(tables.row("T", ROW).unwrap().get("ports"), Some(&Datum::from(9)));
    }

    #[test]
    fn all_rows_again_are_a_change_only_where_they_differ() {
        let mut tables = start();
        let same = tables.row("T", ROW).unwrap().clone();
        assert_eq!(tables.apply(updates(RowUpdate::Whole(same), true), &schema()), []);
        let changes = tables.apply(updates(RowUpdate::Whole(Row::new().with("name", "b")), true), &schema());
        assert_eq!(changes[0].old.as_ref().unwrap().str("name"), Some("a"));
        assert_eq!(changes[0].new.as_ref().unwrap().str("name"), Some("b"));
        let nothing = Updates { complete: true, ..Updates::default() };
        assert_eq!(tables.apply(nothing, &schema())[0].new, None);
        assert!(tables.is_empty());
    }

    #[test]
    fn a_difference_to_a_row_nobody_knows_makes_no_row() {
        let mut tables = Tables::default();
        let unknown = updates(RowUpdate::Difference(Row::new().with("name", "b")), false);
        assert_eq!(tables.apply(unknown, &schema()), []);
        assert!(tables.is_empty());
        assert_eq!(tables.apply(updates(RowUpdate::Deleted, false), &schema()), []);
    }
}
