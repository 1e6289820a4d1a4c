//! Looking at a host that is being drained: a few calls about this host alone, and only while it is being drained.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    deal::{self, Candidates, Deal, Shape, candidates},
    groups::Groups,
    movability::{self, Movability},
    seen::{DrainSeen, HostSeen, HostState, Room, bears_out, has_moved, is_young},
    settings::DrainSettings,
    targets::{self, Targets},
};
use crate::{
    Error,
    api::{EvictionStatus, InstanceState},
    ids::{HostName, InstanceId, MigrationId, ProviderId},
    nova::{
        NovaClient, NovaHypervisor, Resources, Server,
        view::{self, Listing},
    },
    operator::{Cloud, CloudSeen, Snapshot, acting},
    runtime::shutdown::Chain,
};

/// How long an answer of Placement is good for. What it is asked for is advice; the scheduler decides.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// How many servers are asked in one look whether they move, because open records of old say so.
const DOUBTED: usize = 20;

/// What was asked not long ago, of one drain.
#[derive(Debug, Default)]
pub(super) struct Asked {
    candidates: BTreeMap<Shape, (Instant, Candidates)>,
    allocations: Option<(Instant, BTreeMap<InstanceId, Resources>)>,
    groups: Option<(Instant, Groups)>,
    /// Open records of old that are about no move, and their servers, which said so. A move that begins has a new record.
    resting: BTreeMap<MigrationId, Option<Server>>,
}

/// The Hypervisor as a stage would see it, for its name and its ids in Nova.
pub(super) fn as_stage(seen: &DrainSeen, region: Arc<view::Snapshot>, now: Timestamp) -> Snapshot {
    let mut stage = Snapshot::new(&seen.eviction.spec.hypervisor, now);
    stage.hypervisor = Some(seen.hypervisor.clone());
    stage.cloud = CloudSeen::Known(region);
    stage
}

/// Asks the cloud. The name of the host in Nova goes into `seen`.
pub(super) async fn observe(
    cloud: &Cloud,
    settings: &DrainSettings,
    seen: &mut DrainSeen,
    asked: &mut Asked,
    now: Timestamp,
) -> HostSeen {
    let region = cloud.view.snapshot();
    if !region.is_complete() {
        return HostSeen::NotAsked;
    }
    let stage = as_stage(seen, region.clone(), now);
    seen.host = stage.host();
    let hypervisor = stage.nova_hypervisor().cloned();
    match look(cloud, settings, seen, &region, hypervisor.as_ref(), &stage.names(), asked, now).await {
        Ok(known) => known,
        Err(error) => HostSeen::Unknown(acting::words(&Chain(&error).to_string())),
    }
}

#[expect(clippy::too_many_arguments, reason = "one caller, which has just gathered them")]
async fn look(
    cloud: &Cloud,
    settings: &DrainSettings,
    seen: &mut DrainSeen,
    region: &view::Snapshot,
    hypervisor: Option<&NovaHypervisor>,
    names: &[HostName],
    asked: &mut Asked,
    now: Timestamp,
) -> crate::Result<HostSeen> {
    let nova = &cloud.nova;
    let mut service = nova.service_on(&seen.host).await;
    for name in names.iter().filter(|name| **name != seen.host).cloned().collect::<Vec<_>>() {
        if service.as_ref().is_err_and(Error::is_not_found) {
            service = nova.service_on(&name).await;
            if service.is_ok() {
                seen.host = name;
            }
        }
    }
    let service = match service {
        Ok(service) => Some(service),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(error),
    };
    // Servers first: a move that begins between the two questions is then in the second answer.
    let servers = nova.servers_on(&seen.host).await?;
    if service.is_none() && servers.is_empty() {
        return Ok(HostSeen::Absent(format!("{}: Nova has no such compute service", seen.host)));
    }
    let mut state = HostState {
        id: hypervisor.map(|hypervisor| hypervisor.id.clone()),
        service,
        servers,
        migrations: nova.migrations(&seen.host).await?,
        ..HostState::default()
    };
    state.traits = match hypervisor.and_then(|hypervisor| region.traits_of(&hypervisor.id)) {
        Some(traits) => traits.names.clone(),
        None => seen.hypervisor.status.iter().flat_map(|status| status.traits.iter().flatten()).cloned().collect(),
    };
    asked.resting.retain(|id, _| state.migrations.iter().any(|one| one.id == *id && !one.phase.is_over()));
    for id in unaccounted(seen, &state, asked) {
        let answer = existing(nova.server(&id).await)?;
        state.left.insert(id, answer);
    }
    ask_doubted(nova.as_ref(), &mut state, asked, now).await?;
    if !seen.is_leaving()
        && let Err(error) = rooms(cloud, settings, seen, region, hypervisor, &mut state, asked).await
    {
        // Advice that is not to be had. The scheduler will say no, if it is a no.
        tracing::debug!(host = %seen.host, error = %Chain(&error), "Placement does not say who has room");
        let why = acting::words(&Chain(&error).to_string());
        let is_ready =
            |server: &&Server| matches!(movability::of(server, settings.block_migration), Movability::Ready(_));
        let unknown = state.servers.iter().filter(is_ready);
        state.room_unknown = unknown.map(|server| (server.id.clone(), why.clone())).collect();
    }
    Ok(HostSeen::Known(Box::new(state)))
}

/// A server that may be gone.
pub(super) fn existing(answer: crate::Result<Server>) -> crate::Result<Option<Server>> {
    match answer {
        Ok(server) => Ok(Some(server)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Asks the servers elsewhere of which an open record of old says that they are on their way, the newest first. So many in
/// one look at most: those to the host are believed until it is their turn, which it is soon, because one answer about a
/// record whose server rests is enough.
async fn ask_doubted(
    nova: &dyn NovaClient,
    state: &mut HostState,
    asked: &mut Asked,
    now: Timestamp,
) -> crate::Result<()> {
    let mut may_ask = DOUBTED;
    for one in state.migrations.iter().filter(|one| !one.phase.is_over()) {
        let known = state.left.contains_key(&one.server) || state.servers.iter().any(|here| here.id == one.server);
        if !known && !is_young(one, now) {
            let answer = match asked.resting.get(&one.id) {
                Some(answer) => answer.clone(),
                None if may_ask == 0 => continue,
                None => {
                    may_ask -= 1;
                    existing(nova.server(&one.server).await)?
                }
            };
            state.left.insert(one.server.clone(), answer);
        }
        if let Some(answer) = state.left.get(&one.server)
            && !is_young(one, now)
            && !answer.as_ref().is_some_and(|server| bears_out(server, one))
        {
            asked.resting.insert(one.id.clone(), answer.clone());
        }
    }
    Ok(())
}

/// Servers that are not on the host and about which something is to be known: those that were there, and those that
/// wait for a yes to having moved away.
fn unaccounted(seen: &DrainSeen, state: &HostState, asked: &Asked) -> BTreeSet<InstanceId> {
    let here: BTreeSet<&InstanceId> = state.servers.iter().map(|server| &server.id).collect();
    let records = seen.eviction.status.iter().flat_map(EvictionStatus::instances);
    let were_here = records.filter(|record| !record.state.is_finished()).map(|record| InstanceId::new(&record.id));
    let waiting = state.migrations.iter().filter(|one| one.source == seen.host && has_moved(one));
    let waiting = waiting.filter(|one| !asked.resting.contains_key(&one.id)).map(|one| one.server.clone());
    were_here.chain(waiting).filter(|id| !here.contains(id)).collect()
}

/// Who could take the servers that are to be asked to move.
async fn rooms(
    cloud: &Cloud,
    settings: &DrainSettings,
    seen: &DrainSeen,
    region: &view::Snapshot,
    hypervisor: Option<&NovaHypervisor>,
    state: &mut HostState,
    asked: &mut Asked,
) -> crate::Result<()> {
    let records = seen.eviction.status.iter().flat_map(EvictionStatus::instances);
    let tried: BTreeSet<&str> = records
        .filter(|record| record.attempts > 0 || record.state == InstanceState::Queued)
        .map(|record| record.id.as_str())
        .collect();
    let ready: Vec<&Server> = state
        .servers
        .iter()
        .filter(|server| matches!(movability::of(server, settings.block_migration), Movability::Ready(_)))
        .filter(|server| settings.target_concurrency > 0 || !tried.contains(server.id.as_str()))
        .collect();
    if ready.is_empty() {
        return Ok(());
    }
    // What those take that were asked to move before, or cannot yet, is not there for the others.
    let leaves = |server: &&Server| movability::leaves(server, settings.block_migration);
    let leaving: Vec<&Server> = state.servers.iter().filter(leaves).collect();
    let placement = cloud.placement.as_ref();
    let now = Instant::now();
    let fresh = |at: Instant| now.saturating_duration_since(at) < GOOD_FOR;
    if let Some(hypervisor) = hypervisor
        && !asked.allocations.as_ref().is_some_and(|(at, _)| fresh(*at))
    {
        let all = placement.allocations(&hypervisor.id).await?;
        let by_consumer = all.into_iter().map(|one| (one.consumer, one.resources)).collect();
        asked.allocations = Some((now, by_consumer));
    }
    asked.candidates.retain(|_, (at, _)| fresh(*at));
    if !asked.groups.as_ref().is_some_and(|(at, _)| fresh(*at)) {
        // Whoever may not see them has to try.
        let groups = Groups::of(cloud.nova.as_ref(), &seen.host, &state.servers).await.unwrap_or_else(|error| {
            tracing::debug!(host = %seen.host, error = %Chain(&error), "Nova does not tell the server groups");
            Groups::default()
        });
        asked.groups = Some((now, groups));
    }
    for server in &leaving {
        let shape = Shape::of(server, asked.allocations.as_ref().map(|(_, all)| all));
        if let Entry::Vacant(new) = asked.candidates.entry(shape) {
            let found = candidates(placement, new.key()).await?;
            new.insert((now, found));
        }
    }
    let groups = asked.groups.as_ref().map(|(_, groups)| groups.clone()).unwrap_or_default();
    let targets = Targets::besides(
        &seen.host,
        region.hypervisors.as_ref().map_or(&[], Listing::items),
        region.services.as_ref().map_or(&[], Listing::items),
        region.aggregates.as_ref().map_or(&[], Listing::items),
    );
    let mut shared: BTreeMap<&Shape, Vec<(&ProviderId, Arc<Room>)>> = BTreeMap::new();
    for (shape, (_, found)) in &asked.candidates {
        let room = |(id, free): &(ProviderId, Resources)| {
            let target = targets.get(id)?;
            let zone = target.zone().map(str::to_owned);
            Some(Arc::new(Room { host: target.host().clone(), zone, free: free.clone() }))
        };
        let rooms = found.iter().flatten().filter_map(|one| Some((&one.0, room(one)?)));
        shared.insert(shape, rooms.collect());
    }
    let mut deal = Deal::new(&targets, groups.clone());
    let (mut rooms, mut no_room, mut unknown) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut short = BTreeMap::new();
    for server in deal::order(leaving.into_iter()) {
        let shape = Shape::of(server, asked.allocations.as_ref().map(|(_, all)| all));
        let found = match asked.candidates.get(&shape) {
            Some((_, Ok(found))) => found,
            Some((_, Err(why))) => {
                unknown.insert(server.id.clone(), why.clone());
                continue;
            }
            None => continue,
        };
        let (mut fits, mut objections) = (Vec::new(), Vec::new());
        for (id, room) in shared.get(&shape).into_iter().flatten() {
            let Some(target) = targets.get(id) else { continue };
            match targets.objection(server, &groups, target) {
                Some(objection) => objections.push(objection),
                None => fits.push(room.clone()),
            }
        }
        if fits.is_empty() {
            no_room.insert(server.id.clone(), targets::nobody(server, objections.into_iter()));
        } else if let Err(why) = deal.place(server, &shape, found).to {
            short.insert(server.id.clone(), why);
        }
        rooms.insert(server.id.clone(), fits);
    }
    (state.room, state.no_room, state.room_unknown, state.short) = (rooms, no_room, unknown, short);
    Ok(())
}
