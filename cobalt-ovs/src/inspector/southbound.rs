//! What OVN's southbound database knows of this host.
//!
//! The database is of the whole cloud, and every host follows it: so only the rows that concern this host are asked
//! for, and the conditions change with the ports that are plugged here.

use std::collections::{BTreeMap, BTreeSet};

use cobalt_core::ovs::{Binding, Interface};
use uuid::Uuid;

use crate::{
    error::Result,
    ovsdb::{Clause, Condition, Follow, Function, Operation, Ovsdb, Replica, Row, Schema, Tables},
};

pub(super) const DATABASE: &str = "OVN_Southbound";

/// The tables whose rows flows are made of. Only those that a server has are asked for.
const SOURCES: [&str; 16] = [
    "BFD",
    "Chassis",
    "Chassis_Template_Var",
    "DNS",
    "Datapath_Binding",
    "ECMP_Nexthop",
    "FDB",
    "IGMP_Group",
    "Load_Balancer",
    "Logical_DP_Group",
    "Logical_Flow",
    "MAC_Binding",
    "Meter",
    "Multicast_Group",
    "Port_Binding",
    "Static_MAC_Binding",
];

/// The largest of them is asked for in parts, by where in the pipeline its rows are: all at once would be a message of
/// many megabytes. Few parts, because the server looks through the whole table for each.
const LARGEST: (&str, &str) = ("Logical_Flow", "table_id");
const BOUNDS: [i64; 3] = [8, 16, 24];

/// Port bindings and the host's own row come by conditions that are not known yet.
pub(super) fn follow() -> Follow {
    Follow::new(DATABASE)
        .table("SB_Global", ["nb_cfg"])
        .table("Chassis", ["name"])
        .clauses("Chassis_Private", ["name", "nb_cfg"], [Clause::Never])
        .clauses(
            "Port_Binding",
            ["logical_port", "type", "chassis", "additional_chassis", "parent_port"],
            [Clause::Never],
        )
}

/// The table of logical ports.
pub(super) const PORTS: &str = "Port_Binding";

/// Follows what concerns this host with these logical ports, and says which these are of [`PORTS`]. When it returns
/// well, it is there.
pub(super) async fn narrow(
    replica: &Replica,
    chassis_id: Option<&str>,
    logical_ports: &BTreeSet<&str>,
) -> Result<Option<Vec<Clause>>> {
    let Some(chassis_id) = chassis_id else { return Ok(None) };
    let own = vec![Clause::Where(Condition::equal("name", chassis_id))];
    replica.follow_rows("Chassis_Private", own).await?;
    let chassis = replica.read(|tables| chassis(tables, chassis_id));
    let ports = logical_ports.iter().map(|port| Condition::equal("logical_port", *port));
    let bound = chassis.map(|chassis| Condition::equal("chassis", chassis));
    let mut clauses: Vec<Clause> = ports.chain(bound).map(Clause::Where).collect();
    if clauses.is_empty() {
        clauses.push(Clause::Never);
    }
    replica.follow_rows(PORTS, clauses.clone()).await?;
    Ok(Some(clauses))
}

fn chassis(tables: &Tables, name: &str) -> Option<Uuid> {
    tables.rows("Chassis").find(|(_, row)| row.str("name") == Some(name)).map(|(uuid, _)| uuid)
}

/// What the database knows of this host.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// By logical port: whether it is here, or where.
    bindings: BTreeMap<String, Option<Binding>>,
    /// The hosts of the cloud.
    hosts: BTreeSet<String>,
    pub(super) lag: Option<u64>,
    pub(super) wanted: Option<u64>,
    pub(super) unplugged: Vec<String>,
}

impl Known {
    /// What OVN makes of a logical port; `None` if it is not decided.
    pub(super) fn binding(&self, logical_port: &str) -> Option<Binding> {
        self.bindings.get(logical_port).map_or(Some(Binding::Unknown), Clone::clone)
    }

    pub(super) fn has_host(&self, chassis: &str) -> bool {
        self.hosts.contains(chassis)
    }
}

pub(super) fn read(tables: &Tables, chassis_id: Option<&str>, interfaces: &[Interface]) -> Known {
    let own = chassis_id.and_then(|name| chassis(tables, name));
    let claimed: BTreeSet<&str> = interfaces.iter().filter_map(|port| port.logical_port.as_deref()).collect();
    let hosts: BTreeMap<Uuid, &str> =
        tables.rows("Chassis").filter_map(|(uuid, row)| Some((uuid, row.str("name")?))).collect();
    let mut known = Known { hosts: hosts.values().map(ToString::to_string).collect(), ..Known::default() };
    for (_, row) in tables.rows("Port_Binding") {
        let Some(port) = row.str("logical_port") else { continue };
        let kind = row.str("type").unwrap_or_default();
        let at = row.uuid("chassis");
        let here = own.is_some() && (at == own || row.uuids("additional_chassis").any(|other| Some(other) == own));
        if at.is_some()
            && at == own
            && kind.is_empty()
            && row.str("parent_port").is_none_or(str::is_empty)
            && !claimed.contains(port)
        {
            known.unplugged.push(port.to_owned());
        }
        // A local port is on every host, and bound to none.
        let binding = if here || kind == "localport" {
            Some(Binding::Here)
        } else {
            at.map(|at| Binding::Elsewhere(hosts.get(&at).map_or_else(|| at.to_string(), ToString::to_string)))
        };
        known.bindings.insert(port.to_owned(), binding);
    }
    known.unplugged.sort();
    let number = |table: &str, name: Option<&str>| {
        let row = tables.rows(table).find(|(_, row)| name.is_none() || row.str("name") == name);
        row.map(|(_, row)| row.integer("nb_cfg").unwrap_or_default())
    };
    known.wanted = number("SB_Global", None).and_then(|wanted| u64::try_from(wanted).ok());
    // A host that is not in the database is not behind it.
    known.lag = chassis_id.and_then(|_| {
        let (wanted, done) = (number("SB_Global", None)?, number("Chassis_Private", chassis_id)?);
        Some(u64::try_from(wanted.saturating_sub(done)).unwrap_or_default())
    });
    known
}

/// The cookies that a row of the database explains: the first 32 bits of its id.
pub(super) async fn cookies(db: &Ovsdb) -> Result<BTreeSet<u32>> {
    let schema = db.schema(DATABASE).await?;
    let mut cookies = BTreeSet::new();
    for table in SOURCES.into_iter().filter(|table| schema.tables.contains_key(*table)) {
        for part in parts(&schema, table) {
            let rows = Operation::select(table, part).columns(["_uuid"]);
            let take = |row: Row| cookies.extend(row.uuid("_uuid").map(|uuid| uuid.as_fields().0));
            db.select_each(DATABASE, &rows, take).await?;
        }
    }
    Ok(cookies)
}

/// Conditions each of which some rows of a table fulfil, and every row exactly one.
fn parts(schema: &Schema, table: &str) -> Vec<Vec<Condition>> {
    let (largest, column) = LARGEST;
    if table != largest || schema.column(table, column).is_none() {
        return vec![Vec::new()];
    }
    let from = std::iter::once(None).chain(BOUNDS.map(Some));
    let to = BOUNDS.map(Some).into_iter().chain([None]);
    let part = |(from, to): (Option<i64>, Option<i64>)| {
        let from = from.map(|bound| Condition::new(column, Function::GreaterOrEqual, bound));
        let to = to.map(|bound| Condition::new(column, Function::Less, bound));
        from.into_iter().chain(to).collect()
    };
    from.zip(to).map(part).collect()
}

/// Flows by cookie that no row explains. Zero is what OVN gives to flows that are of no row.
pub(super) fn unexplained(flows: &BTreeMap<u64, u64>, cookies: &BTreeSet<u32>) -> BTreeMap<u64, u64> {
    let explained = |cookie: u64| cookie == 0 || u32::try_from(cookie).is_ok_and(|cookie| cookies.contains(&cookie));
    flows.iter().filter(|(cookie, _)| !explained(**cookie)).map(|(cookie, count)| (*cookie, *count)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
