//! What a transaction is made of, and what it answers.

use std::time::Duration;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
    ser::SerializeMap,
};
use uuid::Uuid;

use super::{
    datum::Datum,
    row::{Names, Row, RowsSeed},
};

/// How a column is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Function {
    /// The values are equal.
    Equal,
    /// They are not.
    NotEqual,
    /// The column is less.
    Less,
    /// The column is less, or equal.
    LessOrEqual,
    /// The column is greater.
    Greater,
    /// The column is greater, or equal.
    GreaterOrEqual,
    /// The column has all elements of the value.
    Includes,
    /// The column has none of them.
    Excludes,
}

impl Function {
    fn name(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Includes => "includes",
            Self::Excludes => "excludes",
        }
    }
}

/// What a row must look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    column: String,
    function: Function,
    value: Datum,
}

impl Condition {
    /// The column compares like this to the value.
    pub fn new(column: impl Into<String>, function: Function, value: impl Into<Datum>) -> Self {
        Self { column: column.into(), function, value: value.into() }
    }

    /// The column has this value.
    pub fn equal(column: impl Into<String>, value: impl Into<Datum>) -> Self {
        Self::new(column, Function::Equal, value)
    }

    pub(super) fn column(&self) -> &str {
        &self.column
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.column, self.function.name(), &self.value).serialize(serializer)
    }
}

/// How a column is changed in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    column: String,
    mutator: &'static str,
    value: Datum,
}

impl Mutation {
    /// Adds these elements or pairs.
    pub fn insert(column: impl Into<String>, value: impl Into<Datum>) -> Self {
        Self { column: column.into(), mutator: "insert", value: value.into() }
    }

    /// Removes these elements, pairs or keys.
    pub fn delete(column: impl Into<String>, value: impl Into<Datum>) -> Self {
        Self { column: column.into(), mutator: "delete", value: value.into() }
    }

    /// Adds to a number.
    pub fn add(column: impl Into<String>, value: i64) -> Self {
        Self { column: column.into(), mutator: "+=", value: value.into() }
    }
}

impl Serialize for Mutation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.column, self.mutator, &self.value).serialize(serializer)
    }
}

/// One step of a transaction. All steps happen, or none.
///
/// ```
/// use cobalt_ovs::ovsdb::{Condition, Mutation, Operation};
///
/// let ports = Operation::select("Port", [Condition::equal("name", "bond0")]).columns(["bond_mode"]);
/// assert_eq!(
///     serde_json::to_string(&ports)?,
///     r#"{"op":"select","table":"Port","where":[["name","==","bond0"]],"columns":["bond_mode"]}"#
/// );
/// let count = Operation::mutate("Open_vSwitch", [], [Mutation::add("next_cfg", 1)]);
/// # let _ = count;
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Rows that fulfil all conditions.
    Select {
        /// The table.
        table: String,
        /// What rows must look like.
        conditions: Vec<Condition>,
        /// The columns wanted; all of them if `None`.
        columns: Option<Vec<String>>,
    },
    /// A new row.
    Insert {
        /// The table.
        table: String,
        /// Its values; what is left out has its default.
        row: Row,
        /// By which name other steps refer to it.
        name: Option<String>,
    },
    /// New values for rows.
    Update {
        /// The table.
        table: String,
        /// What rows must look like.
        conditions: Vec<Condition>,
        /// The new values.
        row: Row,
    },
    /// Changes to values of rows.
    Mutate {
        /// The table.
        table: String,
        /// What rows must look like.
        conditions: Vec<Condition>,
        /// The changes.
        mutations: Vec<Mutation>,
    },
    /// Rows go.
    Delete {
        /// The table.
        table: String,
        /// What rows must look like.
        conditions: Vec<Condition>,
    },
    /// Goes on only when rows look like this.
    Wait {
        /// The table.
        table: String,
        /// What rows are looked at.
        conditions: Vec<Condition>,
        /// The columns that are compared.
        columns: Vec<String>,
        /// What they must be, or must not be.
        rows: Vec<Row>,
        /// Whether they must be, and not must not be.
        equal: bool,
        /// How long to wait for it. Nothing at all is a check.
        timeout: Duration,
    },
    /// A remark for the database's log.
    Comment(String),
    /// Gives the transaction up, for trying things out.
    Abort,
}

impl Operation {
    /// Rows that fulfil all conditions, with all columns.
    pub fn select(table: impl Into<String>, conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self::Select { table: table.into(), conditions: conditions.into_iter().collect(), columns: None }
    }

    /// Only these columns of a select; of anything else, the same.
    pub fn columns<T: Into<String>>(mut self, wanted: impl IntoIterator<Item = T>) -> Self {
        if let Self::Select { columns, .. } = &mut self {
            *columns = Some(wanted.into_iter().map(Into::into).collect());
        }
        self
    }

    /// A new row.
    pub fn insert(table: impl Into<String>, row: Row) -> Self {
        Self::Insert { table: table.into(), row, name: None }
    }

    /// A new row that other steps refer to as [`Atom::NamedUuid`](super::Atom::NamedUuid).
    pub fn insert_as(name: impl Into<String>, table: impl Into<String>, row: Row) -> Self {
        Self::Insert { table: table.into(), row, name: Some(name.into()) }
    }

    /// New values for rows.
    pub fn update(table: impl Into<String>, conditions: impl IntoIterator<Item = Condition>, row: Row) -> Self {
        Self::Update { table: table.into(), conditions: conditions.into_iter().collect(), row }
    }

    /// Changes to values of rows.
    pub fn mutate(
        table: impl Into<String>,
        conditions: impl IntoIterator<Item = Condition>,
        mutations: impl IntoIterator<Item = Mutation>,
    ) -> Self {
        let (conditions, mutations) = (conditions.into_iter().collect(), mutations.into_iter().collect());
        Self::Mutate { table: table.into(), conditions, mutations }
    }

    /// Rows go.
    pub fn delete(table: impl Into<String>, conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self::Delete { table: table.into(), conditions: conditions.into_iter().collect() }
    }

    /// A remark.
    pub fn comment(text: impl Into<String>) -> Self {
        Self::Comment(text.into())
    }

    /// For errors.
    pub(super) fn describe(&self) -> String {
        let (verb, table) = match self {
            Self::Select { table, .. } => ("select from", table),
            Self::Insert { table, .. } => ("insert into", table),
            Self::Update { table, .. } => ("update", table),
            Self::Mutate { table, .. } => ("mutate", table),
            Self::Delete { table, .. } => ("delete from", table),
            Self::Wait { table, .. } => ("wait for", table),
            Self::Comment(_) => return "comment".into(),
            Self::Abort => return "abort".into(),
        };
        format!("{verb} {table}")
    }
}

impl Serialize for Operation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Select { table, conditions, columns } => {
                map.serialize_entry("op", "select")?;
                map.serialize_entry("table", table)?;
                map.serialize_entry("where", conditions)?;
                if let Some(columns) = columns {
                    map.serialize_entry("columns", columns)?;
                }
            }
            Self::Insert { table, row, name } => {
                map.serialize_entry("op", "insert")?;
                map.serialize_entry("table", table)?;
                map.serialize_entry("row", row)?;
                if let Some(name) = name {
                    map.serialize_entry("uuid-name", name)?;
                }
            }
            Self::Update { table, conditions, row } => {
                map.serialize_entry("op", "update")?;
                map.serialize_entry("table", table)?;
                map.serialize_entry("where", conditions)?;
                map.serialize_entry("row", row)?;
            }
            Self::Mutate { table, conditions, mutations } => {
                map.serialize_entry("op", "mutate")?;
                map.serialize_entry("table", table)?;
                map.serialize_entry("where", conditions)?;
                map.serialize_entry("mutations", mutations)?;
            }
            Self::Delete { table, conditions } => {
                map.serialize_entry("op", "delete")?;
                map.serialize_entry("table", table)?;
                map.serialize_entry("where", conditions)?;
            }
            Self::Wait { table, conditions, columns, rows, equal, timeout } => {
                map.serialize_entry("op", "wait")?;
                map.serialize_entry("table", table)?;
                map.serialize_entry("where", conditions)?;
                map.serialize_entry("columns", columns)?;
                map.serialize_entry("until", if *equal { "==" } else { "!=" })?;
                map.serialize_entry("rows", rows)?;
                map.serialize_entry("timeout", &u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))?;
            }
            Self::Comment(text) => {
                map.serialize_entry("op", "comment")?;
                map.serialize_entry("comment", text)?;
            }
            Self::Abort => map.serialize_entry("op", "abort")?,
        }
        map.end()
    }
}

/// What one step of a transaction answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The rows of a select.
    pub rows: Vec<Row>,
    /// How many rows an update, a mutate or a delete met.
    pub count: u64,
    /// The row that an insert made.
    pub uuid: Option<Uuid>,
}

/// What one step answered, before it is known whether it went well.
#[derive(Debug, Default)]
pub(super) struct RawOutcome {
    pub(super) outcome: Outcome,
    pub(super) error: Option<String>,
    pub(super) details: Option<String>,
}

/// Reads the answer to a transaction: a list as long as the transaction, or longer by an error at commit, or with
/// `null` for what was not tried any more.
pub(super) fn outcomes(json: &[u8]) -> Result<Vec<RawOutcome>, serde_json::Error> {
    read(json, None)
}

/// The same, where the rows go to somebody who takes them one by one.
pub(super) fn outcomes_to(json: &[u8], each: &mut dyn FnMut(Row)) -> Result<Vec<RawOutcome>, serde_json::Error> {
    read(json, Some(each))
}

fn read(json: &[u8], each: Option<&mut dyn FnMut(Row)>) -> Result<Vec<RawOutcome>, serde_json::Error> {
    struct List<'a>(Option<&'a mut dyn FnMut(Row)>);

    impl<'de> Visitor<'de> for List<'_> {
        type Value = Vec<RawOutcome>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list of outcomes")
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Self::Value, A::Error> {
            let (mut names, mut all) = (Names::default(), Vec::new());
            while let Some(one) = seq.next_element_seed(OutcomeSeed(&mut names, &mut self.0))? {
                all.push(one);
            }
            Ok(all)
        }
    }

    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let all = deserializer.deserialize_seq(List(each))?;
    deserializer.end()?;
    Ok(all)
}

struct OutcomeSeed<'a, 'b, 'c>(&'a mut Names, &'b mut Option<&'c mut dyn FnMut(Row)>);

impl<'de> DeserializeSeed<'de> for OutcomeSeed<'_, '_, '_> {
    type Value = RawOutcome;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<RawOutcome, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for OutcomeSeed<'_, '_, '_> {
    type Value = RawOutcome;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an outcome or null")
    }

    fn visit_unit<E>(self) -> Result<RawOutcome, E> {
        Ok(RawOutcome::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawOutcome, A::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Member {
            Rows,
            Count,
            Uuid,
            Error,
            Details,
            #[serde(other)]
            Other,
        }
        let mut found = RawOutcome::default();
        while let Some(member) = map.next_key()? {
            match member {
                Member::Rows => {
                    let rows = &mut found.outcome.rows;
                    let mut keep = |row| rows.push(row);
                    let each: &mut dyn FnMut(Row) = match self.1 {
                        Some(each) => each,
                        None => &mut keep,
                    };
                    map.next_value_seed(RowsSeed(self.0, each))?;
                }
                Member::Count => found.outcome.count = map.next_value()?,
                Member::Uuid => {
                    found.outcome.uuid = map.next_value::<Datum>()?.as_atom().and_then(super::Atom::as_uuid);
                }
                Member::Error => found.error = map.next_value()?,
                Member::Details => found.details = map.next_value()?,
                Member::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::ovsdb::Atom;

    fn json(operation: &Operation) -> String {
        serde_json::to_string(operation).unwrap()
    }

    #[test]
    fn operations_are_written_as_the_standard_has_them() {
        let mirror = Row::new().with("name", "m0").with("select_all", true);
        assert_eq!(
            json(&Operation::insert_as("m", "Mirror", mirror)),
            r#"{"op":"insert","table":"Mirror","row":{"name":"m0","select_all":true},"uuid-name":"m"}"#
        );
        let named = Atom::NamedUuid("m".into());
        let add = Mutation::insert("mirrors", Datum::set([named]));
        assert_eq!(
            json(&Operation::mutate("Bridge", [Condition::equal("name", "br-int")], [add])),
            r#"{"op":"mutate","table":"Bridge","where":[["name","==","br-int"]],"mutations":[["mirrors","insert",["named-uuid","m"]]]}"#
        );
        assert_eq!(
            json(&Operation::delete("Mirror", [Condition::new("name", Function::NotEqual, "m1")])),
            r#"{"op":"delete","table":"Mirror","where":[["name","!=","m1"]]}"#
        );
        assert_eq!(
            json(&Operation::update("Bridge", [], Row::new().with("mirrors", Datum::EMPTY))),
            r#"{"op":"update","table":"Bridge","where":[],"row":{"mirrors":["set",[]]}}"#
        );
        let wait = Operation::Wait {
            table: "Bridge".into(),
            conditions: vec![Condition::equal("name", "br-int")],
            columns: vec!["fail_mode".into()],
            rows: vec![Row::new().with("fail_mode", "secure")],
            equal: true,
            timeout: Duration::ZERO,
        };
        assert_eq!(
            json(&wait),
            r#"{"op":"wait","table":"Bridge","where":[["name","==","br-int"]],"columns":["fail_mode"],"until":"==","rows":[{"fail_mode":"secure"}],"timeout":0}"#
        );
        assert_eq!(json(&Operation::comment("why")), r#"{"op":"comment","comment":"why"}"#);
        assert_eq!(json(&Operation::Abort), r#"{"op":"abort"}"#);
    }

    #[test]
    fn outcomes_of_every_kind_are_read() {
        let all = outcomes(
            br#"[{"rows":[{"_uuid":["uuid","550e8400-e29b-41d4-a716-446655440000"],"_version":["uuid","x"],"name":"a"}]},
                 {"count":3},{"uuid":["uuid","550e8400-e29b-41d4-a716-446655440000"]},{},null,
                 {"error":"constraint violation","details":"no","new":[1]}]"#,
        )
        .unwrap();
        assert_eq!(all.len(), 6);
        assert_eq!(all[0].outcome.rows[0].str("name"), Some("a"));
        assert!(all[0].outcome.rows[0].uuid("_uuid").is_some());
        assert_eq!(all[1].outcome.count, 3);
        assert!(all[2].outcome.uuid.is_some());
        assert_eq!(all[5].error.as_deref(), Some("constraint violation"));
        assert!(outcomes(b"{}").is_err());
        assert!(outcomes(b"[7]").is_err());
    }
}
