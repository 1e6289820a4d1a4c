//! The tables behind the database server.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::ovsdb::{Atom, Datum, Row};

/// One change of one row.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) table: String,
    pub(super) uuid: Uuid,
    pub(super) old: Option<Arc<Row>>,
    pub(super) new: Option<Arc<Row>>,
}

/// What a client follows.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    pub(super) id: Value,
    /// 1, 2 or 3, as in the names of the notifications.
    pub(super) generation: u8,
    /// By table: columns and conditions.
    pub(super) tables: BTreeMap<String, (Vec<String>, Option<Vec<Value>>)>,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) database: String,
    pub(super) schema: Value,
    pub(super) tables: BTreeMap<String, BTreeMap<Uuid, Arc<Row>>>,
    /// What happened, by the number it happened under.
    pub(super) history: Vec<(Uuid, Change)>,
    /// Which of the servers this is: two never give the same id.
    number: u128,
    next: u128,
}

static SERVERS: AtomicU64 = AtomicU64::new(0);

impl Model {
    pub(super) fn new(database: &str, schema: Value) -> Self {
        let number = u128::from(SERVERS.fetch_add(1, Ordering::Relaxed)) << 32;
        let (database, tables) = (database.to_owned(), BTreeMap::new());
        Self { database, schema, tables, history: Vec::new(), number, next: 1 }
    }

    /// Ids whose first 32 bits differ, since those are what cookies are made of.
    pub(super) fn fresh(&mut self) -> Uuid {
        self.next += 1;
        Uuid::from_u128((self.next << 96) | self.number | self.next)
    }

    pub(super) fn last(&self) -> Uuid {
        self.history.last().map_or(Uuid::from_u128(u128::MAX), |(transaction, _)| *transaction)
    }

    pub(super) fn put(&mut self, table: &str, uuid: Uuid, row: Option<Row>) -> Change {
        let rows = self.tables.entry(table.to_owned()).or_default();
        let new = row.map(Arc::new);
        let old = match &new {
            Some(row) => rows.insert(uuid, Arc::clone(row)),
            None => rows.remove(&uuid),
        };
        let change = Change { table: table.to_owned(), uuid, old, new };
        let transaction = self.fresh();
        self.history.push((transaction, change.clone()));
        change
    }

    fn composite(&self, table: &str, column: &str) -> bool {
        let max = &self.schema["tables"][table]["columns"][column]["type"]["max"];
        !max.is_null() && max.as_u64() != Some(1)
    }

    /// All rows that are followed, as `initial`.
    pub(super) fn initial(&self, watch: &Watch) -> Value {
        let mut updates = Map::new();
        for (table, rows) in &self.tables {
            for (uuid, row) in rows {
                let change = Change { table: table.clone(), uuid: *uuid, old: None, new: Some(Arc::clone(row)) };
                self.add(&mut updates, watch, &change, "initial");
            }
        }
        updates.into()
    }

    /// What one change looks like to this watch; `None` if it concerns nothing that is followed.
    pub(super) fn update(&self, watch: &Watch, change: &Change) -> Option<Value> {
        let mut updates = Map::new();
        self.add(&mut updates, watch, change, "insert");
        (!updates.is_empty()).then(|| updates.into())
    }

    /// What all changes since then look like; `None` if nobody remembers.
    pub(super) fn since(&self, watch: &Watch, since: Uuid) -> Option<Value> {
        let at = self.history.iter().position(|(transaction, _)| *transaction == since)?;
        let mut updates = Map::new();
        for (_, change) in &self.history[at + 1..] {
            self.add(&mut updates, watch, change, "insert");
        }
        Some(updates.into())
    }

    fn add(&self, updates: &mut Map<String, Value>, watch: &Watch, change: &Change, arrival: &str) {
        let Some((columns, clauses)) = watch.tables.get(&change.table) else { return };
        let seen = |row: &Option<Arc<Row>>| {
            row.clone().filter(|row| clauses.as_ref().is_none_or(|clauses| matches(row, change.uuid, clauses)))
        };
        let (old, new) = (seen(&change.old), seen(&change.new));
        let shown = |row: &Row| -> Map<String, Value> {
            row.iter()
                .filter(|(column, _)| columns.iter().any(|wanted| wanted == column))
                .map(|(column, value)| (column.to_owned(), json!(value)))
                .collect()
        };
        let what = match (old, new, watch.generation) {
            (None, None, _) => return,
            (old, new, 1) => {
                let mut what = Map::new();
                if let Some(old) = old {
                    what.insert("old".into(), shown(&old).into());
                }
                if let Some(new) = new {
                    what.insert("new".into(), shown(&new).into());
                }
                what.into()
            }
            (None, Some(new), _) => json!({ arrival: shown(&new) }),
            (Some(_), None, _) => json!({ "delete": null }),
            (Some(old), Some(new), _) => {
                let difference = self.difference(&change.table, &old, &new, columns);
                if difference.is_empty() {
                    return;
                }
                json!({ "modify": difference })
            }
        };
        let table = updates.entry(change.table.clone()).or_insert_with(|| json!({}));
        table[change.uuid.to_string()] = what;
    }

    fn difference(&self, table: &str, old: &Row, new: &Row, columns: &[String]) -> Map<String, Value> {
        let mut difference = Map::new();
        for column in columns {
            let nothing = Datum::EMPTY;
            let (was, is) = (old.get(column).unwrap_or(&nothing), new.get(column).unwrap_or(&nothing));
            if was == is {
                continue;
            }
            let told = if !self.composite(table, column) {
                json!(is)
            } else if was.pairs().is_empty() && is.pairs().is_empty() {
                let lone = |one: &[Atom], other: &[Atom]| -> Vec<Atom> {
                    one.iter().filter(|atom| !other.contains(atom)).cloned().collect()
                };
                let both = [lone(was.atoms(), is.atoms()), lone(is.atoms(), was.atoms())].concat();
                json!(Datum::set(both))
            } else {
                let gone = was.pairs().iter().filter(|(key, _)| !is.pairs().iter().any(|(other, _)| other == key));
                let come = is.pairs().iter().filter(|pair| !was.pairs().contains(pair));
                json!(Datum::map(gone.chain(come).cloned()))
            };
            difference.insert(column.clone(), told);
        }
        difference
    }

    /// Answers a select; `None` for anything else.
    pub(super) fn select(&self, operation: &Value) -> Option<Value> {
        if operation["op"] != "select" {
            return None;
        }
        let columns = operation["columns"].as_array();
        let wanted = |column: &str| columns.is_none_or(|columns| columns.iter().any(|wanted| wanted == column));
        let clauses: Vec<Value> = operation["where"].as_array().cloned().unwrap_or_default();
        let rows: Vec<Value> = self
            .tables
            .get(operation["table"].as_str()?)
            .into_iter()
            .flatten()
            .filter(|(uuid, row)| clauses.iter().all(|clause| matches(row, **uuid, std::slice::from_ref(clause))))
            .map(|(uuid, row)| {
                let mut shown: Map<String, Value> = row
                    .iter()
                    .filter(|(column, _)| wanted(column))
                    .map(|(column, value)| (column.to_owned(), json!(value)))
                    .collect();
                if wanted("_uuid") {
                    shown.insert("_uuid".into(), json!(Atom::Uuid(*uuid)));
                }
                shown.into()
            })
            .collect();
        Some(json!({ "rows": rows }))
    }
}

/// Whether a row fulfils one of the clauses.
fn matches(row: &Row, uuid: Uuid, clauses: &[Value]) -> bool {
    clauses.iter().any(|clause| match clause {
        Value::Bool(it) => *it,
        clause => {
            let (column, wanted) = (clause[0].as_str().unwrap_or_default(), clause[2].clone());
            // A number that is not there is zero.
            let number = row.integer(column).unwrap_or_default();
            match (clause[1].as_str(), wanted.as_i64()) {
                (Some("<"), Some(bound)) => return number < bound,
                (Some(">="), Some(bound)) => return number >= bound,
                _ => {}
            }
            let wanted: Datum = serde_json::from_value(wanted).unwrap_or(Datum::EMPTY);
            let found =
                if column == "_uuid" { Datum::from(uuid) } else { row.get(column).cloned().unwrap_or(Datum::EMPTY) };
            let equal = found == wanted;
            if clause[1] == "!=" { !equal } else { equal }
        }
    })
}
