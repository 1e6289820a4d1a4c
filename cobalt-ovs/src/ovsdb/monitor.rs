//! What of a database is followed, and how its changes are told.
//!
//! There are three generations of monitors. `monitor` is the standard's: whole rows, and no conditions.
//! `monitor_cond` tells differences and takes conditions. `monitor_cond_since` also numbers the transactions, so that
//! after a reconnect only what was missed comes. The newest that the server knows is used.

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use bytes::Bytes;
use serde::{
    Deserialize, Serialize, Serializer,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{json, value::RawValue};
use uuid::Uuid;

use super::{
    datum::RowId,
    operation::Condition,
    row::{Names, Row, RowSeed},
    schema::Schema,
};

/// Which rows of a table are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clause {
    /// Those that fulfil this.
    Where(Condition),
    /// None, for now.
    Never,
}

impl Serialize for Clause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Where(condition) => condition.serialize(serializer),
            Self::Never => serializer.serialize_bool(false),
        }
    }
}

/// What to follow of a database: tables, their columns, and of some tables only some rows.
///
/// Follow what is needed and nothing else: a column such as `statistics` makes the server tell every interface every
/// five seconds. What the server's schema does not have is left out, and reads as empty.
///
/// ```
/// use cobalt_ovs::ovsdb::{Condition, Follow};
///
/// let follow = Follow::new("Open_vSwitch")
///     .table("Bridge", ["name", "ports"])
///     .rows("Interface", ["name", "link_state"], [Condition::equal("type", "geneve")]);
/// # let _ = follow;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follow {
    pub(super) database: String,
    pub(super) tables: BTreeMap<String, Followed>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Followed {
    pub(super) columns: Vec<String>,
    /// A row that fulfils one of these is followed. Without any, all are.
    pub(super) clauses: Vec<Clause>,
}

impl Follow {
    /// Nothing of this database so far.
    pub fn new(database: impl Into<String>) -> Self {
        Self { database: database.into(), tables: BTreeMap::new() }
    }

    /// The database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// These columns of all rows of a table.
    pub fn table<T: Into<String>>(self, table: impl Into<String>, columns: impl IntoIterator<Item = T>) -> Self {
        self.clauses(table, columns, [])
    }

    /// These columns of the rows of a table that fulfil one of the conditions. A server that knows no conditions tells
    /// of all rows.
    pub fn rows<T: Into<String>>(
        self,
        table: impl Into<String>,
        columns: impl IntoIterator<Item = T>,
        conditions: impl IntoIterator<Item = Condition>,
    ) -> Self {
        self.clauses(table, columns, conditions.into_iter().map(Clause::Where))
    }

    /// The same with clauses, which can also be [`Clause::Never`].
    pub fn clauses<T: Into<String>>(
        mut self,
        table: impl Into<String>,
        columns: impl IntoIterator<Item = T>,
        clauses: impl IntoIterator<Item = Clause>,
    ) -> Self {
        let columns = columns.into_iter().map(Into::into).collect();
        self.tables.insert(table.into(), Followed { columns, clauses: clauses.into_iter().collect() });
        self
    }

    /// What of it this server has.
    pub(super) fn within(&self, schema: &Schema) -> Self {
        let mut known = self.clone();
        known.tables.retain(|table, _| {
            let has = schema.tables.contains_key(table);
            if !has {
                tracing::debug!(database = self.database, table, "the server has no such table");
            }
            has
        });
        for (table, followed) in &mut known.tables {
            let has = |column: &str| schema.column(table, column).is_some();
            followed.columns.retain(|column| has(column));
            let asked = followed.clauses.len();
            followed.clauses.retain(|clause| match clause {
                Clause::Where(condition) => condition.column() == "_uuid" || has(condition.column()),
                Clause::Never => true,
            });
            // Rows that can never be met are none, not all.
            if followed.clauses.is_empty() && asked > 0 {
                followed.clauses.push(Clause::Never);
            }
        }
        known
    }

    /// The arguments of a monitor under this id.
    pub(super) fn request(&self, id: &str, method: Method, since: Option<Uuid>) -> Vec<u8> {
        let tables: BTreeMap<&str, serde_json::Value> = self
            .tables
            .iter()
            .map(|(table, followed)| {
                let request = match method {
                    Method::Monitor => json!({ "columns": followed.columns }),
                    _ if followed.clauses.is_empty() => json!([{ "columns": followed.columns }]),
                    _ => json!([{ "columns": followed.columns, "where": followed.clauses }]),
                };
                (table.as_str(), request)
            })
            .collect();
        let request = match method {
            Method::CondSince => json!([self.database, id, tables, since.unwrap_or_default().to_string()]),
            Method::Cond | Method::Monitor => json!([self.database, id, tables]),
        };
        request.to_string().into_bytes()
    }

    /// The arguments that change the conditions of the monitor with this id to those of this.
    pub(super) fn change(&self, id: &str) -> Vec<u8> {
        let tables: BTreeMap<&str, serde_json::Value> = self
            .tables
            .iter()
            .map(|(table, followed)| {
                let clauses = if followed.clauses.is_empty() { json!([true]) } else { json!(followed.clauses) };
                (table.as_str(), json!([{ "where": clauses }]))
            })
            .collect();
        json!([id, id, tables]).to_string().into_bytes()
    }
}

/// The generations of monitors, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    CondSince,
    Cond,
    Monitor,
}

impl Method {
    pub(super) const ALL: [Self; 3] = [Self::CondSince, Self::Cond, Self::Monitor];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CondSince => "monitor_cond_since",
            Self::Cond => "monitor_cond",
            Self::Monitor => "monitor",
        }
    }
}

/// What happened to one row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowUpdate {
    /// It is there now, like this. What is left out has its default.
    Whole(Row),
    /// These columns changed; those that can hold several values by what is given.
    Difference(Row),
    /// It is gone.
    Deleted,
}

/// What happened to which row of a table.
pub type TableUpdates = Vec<(Uuid, RowUpdate)>;

/// Changes of one or more transactions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Updates {
    /// By table, what happened to which row.
    pub tables: Vec<(Arc<str>, TableUpdates)>,
    /// The transaction after which the database looks like this, where the server numbers them.
    pub transaction: Option<Uuid>,
    /// Whether these are all rows there are, and not changes to what was known.
    pub complete: bool,
}

/// A change as it came, in JSON.
#[derive(Debug, Clone)]
pub(super) struct RawUpdate {
    pub(super) method: UpdateMethod,
    pub(super) params: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpdateMethod {
    Update,
    Update2,
    Update3,
}

impl UpdateMethod {
    pub(super) fn named(method: &str) -> Option<Self> {
        match method {
            "update" => Some(Self::Update),
            "update2" => Some(Self::Update2),
            "update3" => Some(Self::Update3),
            _ => None,
        }
    }
}

impl Updates {
    /// Reads the arguments of an `update`, `update2` or `update3` notification, as JSON.
    pub fn from_notification(method: &str, params: &[u8]) -> Result<Self, serde_json::Error> {
        let Some(method) = UpdateMethod::named(method) else {
            return Err(serde::de::Error::custom(format!("{method} is no update")));
        };
        Self::read(&RawUpdate { method, params: Bytes::copy_from_slice(params) }, &mut Names::default())
    }

    /// Reads the reply to a `monitor_cond_since` (`since`), or to one of the older methods.
    pub fn from_reply(reply: &[u8], since: bool) -> Result<Self, serde_json::Error> {
        let method = if since { Method::CondSince } else { Method::Cond };
        Self::initial(reply, method, &mut Names::default())
    }

    pub(super) fn read(raw: &RawUpdate, names: &mut Names) -> Result<Self, serde_json::Error> {
        if raw.method == UpdateMethod::Update3 {
            let (_, transaction, tables): (IgnoredAny, RowId, &RawValue) = serde_json::from_slice(&raw.params)?;
            let tables = read_tables(tables.get(), names)?;
            Ok(Self { tables, transaction: Some(transaction.0), complete: false })
        } else {
            let (_, tables): (IgnoredAny, &RawValue) = serde_json::from_slice(&raw.params)?;
            Ok(Self { tables: read_tables(tables.get(), names)?, transaction: None, complete: false })
        }
    }

    pub(super) fn initial(reply: &[u8], method: Method, names: &mut Names) -> Result<Self, serde_json::Error> {
        if method == Method::CondSince {
            let (found, transaction, tables): (bool, RowId, &RawValue) = serde_json::from_slice(reply)?;
            let tables = read_tables(tables.get(), names)?;
            Ok(Self { tables, transaction: Some(transaction.0), complete: !found })
        } else {
            let tables: &RawValue = serde_json::from_slice(reply)?;
            Ok(Self { tables: read_tables(tables.get(), names)?, transaction: None, complete: true })
        }
    }
}

type Tables = Vec<(Arc<str>, TableUpdates)>;

fn read_tables(json: &str, names: &mut Names) -> Result<Tables, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let tables = TablesSeed(names).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(tables)
}

/// The three levels of an update: tables, rows, what happened.
struct TablesSeed<'a>(&'a mut Names);
struct RowsSeed<'a>(&'a mut Names);
struct RowUpdateSeed<'a>(&'a mut Names);

impl<'de> DeserializeSeed<'de> for TablesSeed<'_> {
    type Value = Tables;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tables, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TablesSeed<'_> {
    type Value = Tables;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("updates by table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tables, A::Error> {
        let mut tables = Vec::new();
        while let Some(table) = map.next_key::<Cow<'de, str>>()? {
            let table = self.0.intern(&table);
            tables.push((table, map.next_value_seed(RowsSeed(self.0))?));
        }
        Ok(tables)
    }
}

impl<'de> DeserializeSeed<'de> for RowsSeed<'_> {
    type Value = TableUpdates;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RowsSeed<'_> {
    type Value = TableUpdates;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("updates by row")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut rows = Vec::new();
        while let Some(RowId(row)) = map.next_key()? {
            rows.push((row, map.next_value_seed(RowUpdateSeed(self.0))?));
        }
        Ok(rows)
    }
}

impl<'de> DeserializeSeed<'de> for RowUpdateSeed<'_> {
    type Value = RowUpdate;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<RowUpdate, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RowUpdateSeed<'_> {
    type Value = RowUpdate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what happened to a row")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RowUpdate, A::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum What {
            Initial,
            Insert,
            Modify,
            New,
            #[serde(other)]
            Other,
        }
        // `delete` carries nothing, and the standard's monitor tells it by an `old` without a `new`.
        let mut found = RowUpdate::Deleted;
        while let Some(what) = map.next_key()? {
            match what {
                What::Initial | What::Insert | What::New => {
                    found = RowUpdate::Whole(map.next_value_seed(RowSeed(self.0))?);
                }
                What::Modify => found = RowUpdate::Difference(map.next_value_seed(RowSeed(self.0))?),
                What::Other => {
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

    const ROW: &str = "550e8400-e29b-41d4-a716-446655440000";

    fn follow() -> Follow {
        Follow::new("db").table("Bridge", ["name", "new_column"]).table("Novelty", ["x"]).rows(
            "Port",
            ["name"],
            [Condition::equal("name", "a"), Condition::equal("nothing", "b")],
        )
    }

    fn schema() -> Schema {
        serde_json::from_str(
            r#"{"name":"db","tables":{"Bridge":{"columns":{"name":{}}},"Port":{"columns":{"name":{}}}}}"#,
        )
        .unwrap()
    }

    fn request(method: Method) -> String {
        String::from_utf8(follow().within(&schema()).request("m1", method, None)).unwrap()
    }

    #[test]
    fn what_the_server_does_not_have_is_not_asked_for() {
        assert_eq!(
            request(Method::CondSince),
            r#"["db","m1",{"Bridge":[{"columns":["name"]}],"Port":[{"columns":["name"],"where":[["name","==","a"]]}]},"00000000-0000-0000-0000-000000000000"]"#
        );
        assert_eq!(
            request(Method::Monitor),
            r#"["db","m1",{"Bridge":{"columns":["name"]},"Port":{"columns":["name"]}}]"#
        );
        let only = Follow::new("db").rows("Port", ["name"], [Condition::equal("nothing", "b")]).within(&schema());
        assert_eq!(only.tables["Port"].clauses, [Clause::Never], "a condition nobody can meet has no rows");
        assert_eq!(String::from_utf8(only.change("m")).unwrap(), r#"["m","m",{"Port":[{"where":[false]}]}]"#);
    }

    #[test]
    fn all_generations_of_updates_are_read() {
        let whole = |name: &str| RowUpdate::Whole(Row::new().with("name", name));
        let read = |method: &str, params: String| Updates::from_notification(method, params.as_bytes()).unwrap();
        let first = |updates: &Updates| updates.tables[0].1[0].1.clone();
        let old = read("update", format!(r#"["m",{{"B":{{"{ROW}":{{"old":{{"name":"a"}},"new":{{"name":"b"}}}}}}}}]"#));
        assert_eq!(first(&old), whole("b"));
        let gone = read("update", format!(r#"["m",{{"B":{{"{ROW}":{{"old":{{"name":"a"}}}}}}}}]"#));
        assert_eq!(first(&gone), RowUpdate::Deleted);
        let modified = read("update2", format!(r#"[7,{{"B":{{"{ROW}":{{"modify":{{"name":"b"}}}}}}}}]"#));
        assert_eq!(first(&modified), RowUpdate::Difference(Row::new().with("name", "b")));
        let deleted = read("update3", format!(r#"["m","{ROW}",{{"B":{{"{ROW}":{{"delete":null}}}}}}]"#));
        assert_eq!(first(&deleted), RowUpdate::Deleted);
        assert_eq!(deleted.transaction, Some(Uuid::try_parse(ROW).unwrap()));
        let initial = Updates::from_reply(
            format!(r#"[false,"{ROW}",{{"B":{{"{ROW}":{{"initial":{{"name":"a"}}}}}}}}]"#).as_bytes(),
            true,
        );
        assert_eq!(first(&initial.as_ref().unwrap().clone()), whole("a"));
        assert!(initial.unwrap().complete);
        assert!(!Updates::from_reply(format!(r#"[true,"{ROW}",{{}}]"#).as_bytes(), true).unwrap().complete);
        assert!(Updates::from_reply(b"{}", false).unwrap().complete);
    }

    #[test]
    fn nonsense_is_refused() {
        for (method, params) in [
            ("update", "[]"),
            ("update", r#"["m",[]]"#),
            ("update2", r#"["m",{"B":{"no-uuid":{}}}]"#),
            ("update3", r#"["m","no-uuid",{}]"#),
            ("steal", "[]"),
        ] {
            assert!(Updates::from_notification(method, params.as_bytes()).is_err(), "{method} {params}");
        }
    }
}
