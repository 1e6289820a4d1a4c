//! What a drain would do, without doing it: which server goes where, or why not, and how long it would take.
//!
//! It reads and never writes, and needs no cluster. Placement says who has room now, and that is dealt out. The
//! answer is a forecast, but where this finds no place there most likely is none.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    time::Duration,
};

use serde::Serialize;

use super::{
    deal::{self, Candidates, Deal, Shape, candidates},
    groups::Groups,
    movability::{self, Movability},
    observe::existing,
    seen::{bears_out, has_moved},
    targets::Targets,
};
use crate::{
    Error, Result,
    api::MoveKind,
    ids::{HostName, InstanceId},
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
        elsewhere: BTreeMap::new(),
        services,
        hypervisors,
        allocated: BTreeMap::new(),
        candidates: BTreeMap::new(),
        groups_unknown: None,
    };
    for one in seen.migrations.iter().filter(|one| !one.phase.is_over()) {
        let known = seen.elsewhere.contains_key(&one.server) || seen.servers.iter().any(|here| here.id == one.server);
        if !known {
            seen.elsewhere.insert(one.server.clone(), existing(nova.server(&one.server).await)?);
        }
    }
    let groups = Groups::of(nova, host, &seen.servers).await.unwrap_or_else(|error| {
        seen.groups_unknown = Some(acting::words(&Chain(&error).to_string()));
        Groups::default()
    });
    if let Some(own) = seen.hypervisors.iter().find(|one| one.host == *host) {
        let all = placement.allocations(&own.id).await?;
        seen.allocated = all.into_iter().map(|one| (one.consumer, one.resources)).collect();
    }
    for server in &seen.servers {
        if let Entry::Vacant(new) = seen.candidates.entry(Shape::of(server, Some(&seen.allocated))) {
            let found = candidates(placement, new.key()).await?;
            new.insert(found);
        }
    }
    Ok(seen.plan(options, groups))
}

struct Seen<'a> {
    host: &'a HostName,
    services: Vec<ComputeService>,
    hypervisors: Vec<NovaHypervisor>,
    aggregates: Vec<Aggregate>,
    servers: Vec<Server>,
    migrations: Vec<Migration>,
    /// The servers of open migrations that are not on the host; `None` if they do not exist any more.
    elsewhere: BTreeMap<InstanceId, Option<Server>>,
    /// What each server takes, where Placement says so.
    allocated: BTreeMap<InstanceId, Resources>,
    candidates: BTreeMap<Shape, Candidates>,
    /// Why Nova does not tell the server groups, if it does not.
    groups_unknown: Option<String>,
}

impl Seen<'_> {
    fn plan(&self, options: &PlanOptions, groups: Groups) -> EvictionPlan {
        let targets = Targets::besides(self.host, &self.hypervisors, &self.services, &self.aggregates);
        let notes = self.notes(&groups);
        let mut deal = Deal::new(&targets, groups);
        let order = deal::order(self.servers.iter());
        let mut moves: Vec<PlannedMove> =
            order.into_iter().map(|server| self.one(server, options, &mut deal)).collect();
        let seconds =
            makespan(moves.iter().filter(|one| one.why_not.is_none()).map(|one| one.seconds), options.concurrency);
        moves.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        EvictionPlan {
            host: self.host.clone(),
            would_succeed: moves.iter().all(|one| one.why_not.is_none()),
            notes,
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
        let says = |one: &&Migration| {
            let server = self.elsewhere.get(&one.server).and_then(Option::as_ref);
            server.is_some_and(|server| bears_out(server, one))
        };
        let open = || self.migrations.iter().filter(|one| !one.phase.is_over()).filter(says);
        let incoming = open().filter(|one| one.source != *self.host).count();
        if incoming > 0 {
            notes.push(format!("{incoming} migrations to the host are under way: a drain stops or awaits them"));
        }
        let resized = open().filter(|one| one.source == *self.host && has_moved(one));
        let names = resized.filter_map(|one| Some(self.elsewhere.get(&one.server)?.as_ref()?.name.as_str()));
        let names: Vec<&str> = names.collect();
        if !names.is_empty() {
            notes.push(format!(
                "resizes away from the host that nobody has confirmed: a drain confirms them, and they cannot be reverted any \
                 more: {}",
                names.join(", ")
            ));
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

    fn one(&self, server: &Server, options: &PlanOptions, deal: &mut Deal<'_>) -> PlannedMove {
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
                planned.risks.push(Risk::BusyNow);
                let open = || self.migrations.iter().filter(|one| one.server == server.id && !one.phase.is_over());
                let leaves = open().find(|one| one.source == *self.host);
                // One that has just come leaves again.
                if leaves.is_some() || !open().any(|one| one.destination.as_ref() == Some(self.host)) {
                    planned.target = leaves.and_then(|one| one.destination.clone());
                    planned.seconds = seconds(&planned, options);
                    return planned;
                }
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
        self.place(server, &mut planned, deal);
        planned.risks.sort();
        planned.data_at_risk = planned.risks.iter().any(|risk| risk.is_about_data());
        planned.seconds = seconds(&planned, options);
        planned
    }

    /// Chooses a host.
    fn place(&self, server: &Server, planned: &mut PlannedMove, deal: &mut Deal<'_>) {
        let shape = Shape::of(server, Some(&self.allocated));
        let to = match self.candidates.get(&shape) {
            Some(Ok(found)) => {
                let dealt = deal.place(server, &shape, found);
                planned.candidates = dealt.candidates;
                dealt.to
            }
            Some(Err(why)) => Err(format!("Placement does not say who has room for it: {why}")),
            None => return,
        };
        match to {
            Ok((host, same_zone)) => {
                planned.risks.extend((!same_zone).then_some(Risk::OtherZone));
                planned.target = Some(host.clone());
            }
            Err(why) => (planned.how, planned.why_not) = (MoveKind::None, Some(why)),
        }
    }
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
