//! Rows, and reading them without a tree of JSON in between.

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use uuid::Uuid;

use super::datum::{Atom, Datum};

/// One row: values by column. A column that is empty may be left out.
///
/// ```
/// use cobalt_ovs::ovsdb::Row;
///
/// let row: Row = serde_json::from_str(r#"{"name":"br-int","ports":["set",[]],"datapath_type":""}"#)?;
/// assert_eq!(row.str("name"), Some("br-int"));
/// assert_eq!(row.uuids("ports").count(), 0);
/// assert_eq!(row.str("no_such_column"), None);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// Ordered by column.
    values: Vec<(Arc<str>, Datum)>,
}

impl Row {
    /// A row of these values, for an insert or update.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with this value.
    pub fn with(mut self, column: &str, value: impl Into<Datum>) -> Self {
        self.set(&Arc::from(column), value.into());
        self
    }

    pub(super) fn set(&mut self, column: &Arc<str>, value: Datum) {
        match self.find(column) {
            Ok(at) => self.values[at].1 = value,
            Err(at) => self.values.insert(at, (Arc::clone(column), value)),
        }
    }

    fn find(&self, column: &str) -> Result<usize, usize> {
        self.values.binary_search_by(|(known, _)| known.as_ref().cmp(column))
    }

    /// What is not there needs no room.
    pub(super) fn compact(&mut self) {
        self.values.retain(|(_, value)| !value.is_empty());
        self.values.shrink_to_fit();
    }

    /// A column's value.
    pub fn get(&self, column: &str) -> Option<&Datum> {
        self.find(column).ok().map(|at| &self.values[at].1)
    }

    /// All that is there, in order of the columns.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Datum)> {
        self.values.iter().map(|(column, value)| (column.as_ref(), value))
    }

    pub(super) fn into_values(self) -> Vec<(Arc<str>, Datum)> {
        self.values
    }

    /// A column with one text.
    pub fn str(&self, column: &str) -> Option<&str> {
        self.get(column)?.as_str()
    }

    /// A column with one whole number.
    pub fn integer(&self, column: &str) -> Option<i64> {
        self.get(column)?.as_atom()?.as_i64()
    }

    /// A column with one truth.
    pub fn boolean(&self, column: &str) -> Option<bool> {
        self.get(column)?.as_atom()?.as_bool()
    }

    /// A column that refers to one row.
    pub fn uuid(&self, column: &str) -> Option<Uuid> {
        self.get(column)?.as_atom()?.as_uuid()
    }

    /// A column that refers to rows.
    pub fn uuids(&self, column: &str) -> impl Iterator<Item = Uuid> + '_ {
        self.get(column).map(Datum::atoms).unwrap_or_default().iter().filter_map(Atom::as_uuid)
    }

    /// The value of a key of a column with a map from text to text.
    pub fn key(&self, column: &str, key: &str) -> Option<&str> {
        self.get(column)?.get(key)
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RowSeed(&mut Names::default()).deserialize(deserializer)
    }
}

/// The names of tables and columns, each kept once.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<Arc<str>>);

impl Names {
    pub(super) fn intern(&mut self, name: &str) -> Arc<str> {
        match self.0.binary_search_by(|known| known.as_ref().cmp(name)) {
            Ok(at) => Arc::clone(&self.0[at]),
            Err(at) => {
                let name = Arc::from(name);
                self.0.insert(at, Arc::clone(&name));
                name
            }
        }
    }
}

/// Reads one row.
pub(super) struct RowSeed<'a>(pub(super) &'a mut Names);

impl<'de> DeserializeSeed<'de> for RowSeed<'_> {
    type Value = Row;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Row, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RowSeed<'_> {
    type Value = Row;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row, A::Error> {
        let mut values = Vec::with_capacity(map.size_hint().unwrap_or_default().min(64));
        while let Some(column) = map.next_key::<Cow<'de, str>>()? {
            // Changes with every write and says nothing that an update does not.
            if column == "_version" {
                map.next_value::<IgnoredAny>()?;
            } else {
                values.push((self.0.intern(&column), map.next_value()?));
            }
        }
        values.sort_by(|one, other| one.0.cmp(&other.0));
        values.dedup_by(|one, other| one.0 == other.0);
        Ok(Row { values })
    }
}

/// Reads a list of rows and hands them on one by one: whoever wants a little of each need not have all at once.
pub(super) struct RowsSeed<'a, 'b>(pub(super) &'a mut Names, pub(super) &'b mut dyn FnMut(Row));

impl<'de> DeserializeSeed<'de> for RowsSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for RowsSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of rows")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(row) = seq.next_element_seed(RowSeed(self.0))? {
            (self.1)(row);
        }
        Ok(())
    }
}
