//! What a drain would do, without doing it: which server goes where, or why not, and how long it would take.
//!
//! It reads and never writes, and needs no cluster. Placement says who has room now; the servers are then dealt out one
//! by one, the largest first, as the scheduler would: each takes from what is left of the host it goes to. The answer is a
//! forecast. What the scheduler does on the day may differ, but where this finds no place there most likely is none.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::Serialize;

use super::{
    groups::Groups,
    movability::{self, Movability},
    observe::{Candidates, Shape, candidates},
    say,
    targets::{self, Objection},
};
use crate::{
    Error, Result,
    api::MoveKind,
    ids::{HostName, InstanceId, ProviderId},
    nova::{
        Aggregate, BlockMigration, ComputeService, Migration, NovaClient, NovaHypervisor, PlacementClient, Resources,
        Server, ServiceState,
    },
    operator::acting,
    runtime::shutdown::Chain,
};

/// How to plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Whether live migrations copy local disks.
    pub block_migration: BlockMigration,
    /// Moves at a time.
    pub concurrency: usize,
    /// How fast memory and disks are copied, in MB per second and per move.
    pub mb_per_second: u64,
    /// What a move takes besides.
    pub overhead: Duration,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            block_migration: BlockMigration::Auto,
            concurrency: 1,
            mb_per_second: 500,
            overhead: Duration::from_secs(10),
        }
    }
}

/// What somebody should know about a move before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Risk {
    /// Its local disks are copied over the network while it runs.
    CopiesLocalDisk,
    /// Its local disks are copied while it is shut off, by the compute service: where that fails half-way they exist
    /// in two incomplete copies.
    LocalDiskMovesCold,
    /// A resize of its owner's is confirmed first, and cannot be reverted any more.
    ConfirmsResize,
    /// There is room in another availability zone only. A server that was made for its zone does not go there.
    OtherZone,
    /// Its owner or an operator locked it. That does not keep an administrator from moving it.
    Locked,
    /// It is busy now, and moves when that is over.
    BusyNow,
}

impl Risk {
    /// A short word for tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CopiesLocalDisk => "copies local disk",
            Self::LocalDiskMovesCold => "local disk moves cold",
            Self::ConfirmsResize => "confirms a resize",
            Self::OtherZone => "another zone",
            Self::Locked => "locked",
            Self::BusyNow => "busy now",
        }
    }

    /// Whether data could be lost.
    pub fn is_about_data(self) -> bool {
        matches!(self, Self::LocalDiskMovesCold | Self::ConfirmsResize)
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What would become of one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedMove {
    /// Its id.
    pub id: InstanceId,
    /// Its name.
    pub name: String,
    /// The project that owns it.
    pub project: String,
    /// Live, cold, or not at all.
    pub how: MoveKind,
    /// Where it would go.
    pub target: Option<HostName>,
    /// How many hosts could take it.
    pub candidates: usize,
    /// Why it cannot move.
    pub why_not: Option<String>,
    /// What should be known before.
    pub risks: Vec<Risk>,
    /// Whether any of them is about data.
    pub data_at_risk: bool,
    /// Its memory.
    pub memory_mb: u64,
    /// Its local disk, as far as its flavor names a size; the risks tell whether there is one.
    pub local_disk_gb: u64,
    /// How long its move takes, by estimate.
    pub seconds: u64,
}

/// What a drain would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EvictionPlan {
    /// The host.
    pub host: HostName,
    /// Whether the host would be empty in the end.
    pub would_succeed: bool,
    /// What is to be known about the host itself.
    pub notes: Vec<String>,
    /// Each server of the host, ordered by name.
    pub moves: Vec<PlannedMove>,
    /// How long all of it takes, by estimate.
    pub seconds: u64,
}

impl EvictionPlan {
    /// The servers that would stay.
    pub fn stuck(&self) -> impl Iterator<Item = &PlannedMove> {
        self.moves.iter().filter(|one| one.why_not.is_some())
    }
}

/// Plans the drain of exactly this host. [`Error::NotFound`] if Nova has no such host.
///
/// ```
/// use cobalt_core::{ids::HostName, nova::{NovaClient, PlacementClient}, operator::eviction::{PlanOptions, plan}};
///
/// async fn may_drain(nova: &dyn NovaClient, placement: &dyn PlacementClient) -> cobalt_core::Result<bool> {
///     let plan = plan(nova, placement, &HostName::from("hv-1"), &PlanOptions::default()).await?;
///     for server in plan.stuck() {
///         println!("{} stays: {}", server.name, server.why_not.as_deref().unwrap_or_default());
///     }
///     Ok(plan.would_succeed)
/// }
/// ```
pub async fn plan(
    nova: &dyn NovaClient,
    placement: &dyn PlacementClient,
    host: &HostName,
    options: &PlanOptions,
) -> Result<EvictionPlan> {
    let (services, hypervisors) = (nova.services().await?, nova.hypervisors().await?);
    if !services.iter().any(|service| service.host == *host) {
        return Err(Error::not_found(format!("plan the eviction of {host}")));
    }
    let mut seen = Seen {
        host,
        aggregates: nova.aggregates().await?,
        servers: nova.servers_on(host).await?,
        migrations: nova.migrations(host).await?,
        services,
        hypervisors,
        wants: BTreeMap::new(),
        candidates: BTreeMap::new(),
        groups_unknown: None,
    };
    let mut groups = Groups::of(nova, host, &seen.servers).await.unwrap_or_else(|error| {
        seen.groups_unknown = Some(acting::words(&Chain(&error).to_string()));
        Groups::default()
    });
    let allocated: BTreeMap<InstanceId, Resources> = match seen.hypervisors.iter().find(|one| one.host == *host) {
        Some(own) => {
            placement.allocations(&own.id).await?.into_iter().map(|one| (one.consumer, one.resources)).collect()
        }
        None => BTreeMap::new(),
    };
    for server in &seen.servers {
        let shape = Shape::of(server, allocated.get(&server.id));
        if !seen.candidates.contains_key(&shape) {
            let found = candidates(placement, &shape).await?;
            seen.candidates.insert(shape.clone(), found);
        }
        seen.wants.insert(server.id.clone(), shape);
    }
    Ok(seen.plan(options, &mut groups))
}

struct Seen<'a> {
    host: &'a HostName,
    services: Vec<ComputeService>,
    hypervisors: Vec<NovaHypervisor>,
    aggregates: Vec<Aggregate>,
    servers: Vec<Server>,
    migrations: Vec<Migration>,
    wants: BTreeMap<InstanceId, Shape>,
    candidates: BTreeMap<Shape, Candidates>,
    /// Why Nova does not tell the server groups, if it does not.
    groups_unknown: Option<String>,
}

/// What makes one host better than another: the same zone, then more memory left, then the name.
type Rank = (bool, u64, std::cmp::Reverse<HostName>);

/// What the servers dealt out so far have taken of each host.
type Taken = BTreeMap<ProviderId, Resources>;

impl Seen<'_> {
    fn plan(&self, options: &PlanOptions, groups: &mut Groups) -> EvictionPlan {
        let mut order: Vec<&Server> = self.servers.iter().collect();
        order.sort_by(|a, b| (b.memory_mb, &a.id).cmp(&(a.memory_mb, &b.id)));
        let mut taken = Taken::new();
        let mut moves: Vec<PlannedMove> =
            order.into_iter().map(|server| self.one(server, options, &mut taken, groups)).collect();
        let seconds =
            makespan(moves.iter().filter(|one| one.why_not.is_none()).map(|one| one.seconds), options.concurrency);
        moves.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        EvictionPlan {
            host: self.host.clone(),
            would_succeed: moves.iter().all(|one| one.why_not.is_none()),
            notes: self.notes(groups),
            moves,
            seconds,
        }
    }

    fn service(&self, host: &HostName) -> Option<&ComputeService> {
        self.services.iter().find(|service| service.host == *host)
    }

    fn is_down(&self) -> bool {
        self.service(self.host).is_none_or(|service| service.state != ServiceState::Up || service.forced_down)
    }

    fn notes(&self, groups: &Groups) -> Vec<String> {
        let mut notes = Vec::new();
        if self.service(self.host).is_some_and(|service| service.enabled) {
            notes.push("the host is enabled: a drain disables it first".to_owned());
        }
        let incoming = self.migrations.iter().filter(|one| !one.phase.is_over() && one.source != *self.host).count();
        if incoming > 0 {
            notes.push(format!("{incoming} migrations to the host are under way: a drain stops or awaits them"));
        }
        match groups.soft {
            0 => {}
            1 => notes.push("1 server is in a server group whose policy is a wish: it may not be kept".to_owned()),
            soft => {
                notes.push(format!("{soft} servers are in server groups whose policy is a wish: it may not be kept"));
            }
        }
        if let Some(why) = &self.groups_unknown {
            notes.push(format!("server groups were not seen, and may keep servers here: {why}"));
        }
        notes
    }

    fn one(&self, server: &Server, options: &PlanOptions, taken: &mut Taken, groups: &mut Groups) -> PlannedMove {
        let mut planned = PlannedMove {
            id: server.id.clone(),
            name: server.name.clone(),
            project: server.project.clone(),
            how: MoveKind::None,
            target: None,
            candidates: 0,
            why_not: None,
            risks: Vec::new(),
            data_at_risk: false,
            memory_mb: server.memory_mb,
            local_disk_gb: server.local_disk_gb,
            seconds: 0,
        };
        if server.locked {
            planned.risks.push(Risk::Locked);
        }
        let as_it_runs = if server.powered { MoveKind::Live } else { MoveKind::Cold };
        match movability::of(server, options.block_migration) {
            Movability::Ready(how) => planned.how = how,
            Movability::ToConfirm => {
                planned.how = as_it_runs;
                planned.risks.push(Risk::ConfirmsResize);
            }
            Movability::Moving => {
                planned.how = as_it_runs;
                let current = self.migrations.iter().find(|one| one.server == server.id && !one.phase.is_over());
                planned.target = current.and_then(|one| one.destination.clone());
                planned.risks.push(Risk::BusyNow);
                planned.seconds = seconds(&planned, options);
                return planned;
            }
            // It leaves by itself.
            Movability::Busy(_) if server.task == Some(crate::nova::TaskState::Deleting) => {
                planned.risks.push(Risk::BusyNow);
                return planned;
            }
            Movability::Busy(_) => {
                planned.how = MoveKind::Live;
                planned.risks.push(Risk::BusyNow);
            }
            Movability::Not(why) => {
                planned.why_not = Some(why);
                return planned;
            }
        }
        if self.is_down() {
            planned.how = MoveKind::None;
            planned.why_not = Some("the host's compute service is down: nothing can be moved, only evacuated".into());
            return planned;
        }
        if server.local_disk {
            planned.risks.push(match planned.how {
                MoveKind::Cold => Risk::LocalDiskMovesCold,
                _ => Risk::CopiesLocalDisk,
            });
        }
        self.place(server, &mut planned, taken, groups);
        planned.risks.sort();
        planned.data_at_risk = planned.risks.iter().any(|risk| risk.is_about_data());
        planned.seconds = seconds(&planned, options);
        planned
    }

    /// Chooses a host: in its own zone if there is one, then the one with the most memory left, as the scheduler does.
    fn place(&self, server: &Server, planned: &mut PlannedMove, taken: &mut Taken, groups: &mut Groups) {
        let own = self.hypervisors.iter().find(|one| one.host == *self.host);
        let Some((shape, found)) = self.wants.get(&server.id).and_then(|shape| self.candidates.get_key_value(shape))
        else {
            return;
        };
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                planned.how = MoveKind::None;
                planned.why_not = Some(format!("Placement does not say who has room for it: {why}"));
                return;
            }
        };
        let mut objections: Vec<Objection> = Vec::new();
        let mut full = 0_usize;
        let mut best: Option<(Rank, ProviderId, HostName)> = None;
        for (id, free) in found {
            let known = self.hypervisors.iter().find(|one| one.id == *id && one.host != *self.host);
            let Some((other, service)) = known.and_then(|other| Some((other, self.service(&other.host)?))) else {
                continue;
            };
            let aggregates = targets::aggregates_of(&self.aggregates, &other.host);
            if let Some(objection) = targets::objection(server, groups, own, other, service, aggregates) {
                objections.push(objection);
                continue;
            }
            planned.candidates += 1;
            let left = left(free, taken.get(id));
            // What a child of the provider gives is not in its own figures; that it fits once is what Placement said.
            if shape.resources.iter().any(|(class, amount)| left.get(class).is_some_and(|left| left < amount)) {
                full += 1;
                continue;
            }
            let same_zone = server.zone.is_none() || server.zone == service.zone;
            let memory = left.get("MEMORY_MB").copied().unwrap_or(0);
            let rank = (same_zone, memory, std::cmp::Reverse(other.host.clone()));
            if best.as_ref().is_none_or(|(other, _, _)| rank > *other) {
                best = Some((rank, id.clone(), other.host.clone()));
            }
        }
        if let Some(((same_zone, _, _), id, host)) = best {
            let sum = taken.entry(id).or_default();
            for (class, amount) in &shape.resources {
                *sum.entry(class.clone()).or_default() += amount;
            }
            if !same_zone {
                planned.risks.push(Risk::OtherZone);
            }
            groups.goes(&server.id, &host);
            planned.target = Some(host);
            return;
        }
        planned.how = MoveKind::None;
        planned.why_not = Some(if full > 0 {
            let wants = say::wants(server);
            format!("{full} hosts could take it, but are full when the others have gone there: {wants}")
        } else {
            targets::nobody(server, objections.into_iter())
        });
    }
}

fn left(free: &Resources, taken: Option<&Resources>) -> Resources {
    let mut left = free.clone();
    for (class, amount) in taken.into_iter().flatten() {
        if let Some(rest) = left.get_mut(class) {
            *rest = rest.saturating_sub(*amount);
        }
    }
    left
}

fn seconds(planned: &PlannedMove, options: &PlanOptions) -> u64 {
    let memory = if planned.how == MoveKind::Live { planned.memory_mb } else { 0 };
    let bytes = memory + planned.local_disk_gb * 1024;
    options.overhead.as_secs() + bytes.div_ceil(options.mb_per_second.max(1))
}

/// How long moves take of which so many run at a time, each beginning when there is a place.
fn makespan(seconds: impl Iterator<Item = u64>, concurrency: usize) -> u64 {
    let mut places = vec![0_u64; concurrency.max(1)];
    for length in seconds {
        if let Some(first) = places.iter_mut().min() {
            *first += length;
        }
    }
    places.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_at_a_time_share_the_length() {
        assert_eq!(makespan([10, 10, 10, 10].into_iter(), 1), 40);
        assert_eq!(makespan([10, 10, 10, 10].into_iter(), 2), 20);
        assert_eq!(makespan([30, 10, 10].into_iter(), 2), 30);
        assert_eq!(makespan([].into_iter(), 0), 0);
    }
}
