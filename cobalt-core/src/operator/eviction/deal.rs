//! Room, dealt out: whether there is some for all servers of a host together.
//!
//! The servers are dealt out one by one, the largest first, as the scheduler would: each takes from what is left of the host
//! it goes to. A forecast: what the scheduler does on the day may differ.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    groups::Groups,
    say,
    targets::{self, Objection, Targets},
};
use crate::{
    Error, Result,
    ids::{HostName, InstanceId, ProviderId},
    nova::{PlacementClient, Resources, Server},
    operator::acting,
    runtime::shutdown::Chain,
};

/// What a server takes of a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape {
    resources: Resources,
    traits: BTreeSet<String>,
}

impl Shape {
    /// Of a server, by what is allocated to it where that is known.
    pub(super) fn of(server: &Server, allocated: Option<&BTreeMap<InstanceId, Resources>>) -> Self {
        let allocated = allocated.and_then(|all| all.get(&server.id)).cloned();
        let resources = allocated.unwrap_or_else(|| of_flavor(server));
        Self { resources, traits: server.required_traits.iter().cloned().collect() }
    }
}

/// The resources of a server's flavor, where its allocation is not known.
fn of_flavor(server: &Server) -> Resources {
    let all = [("VCPU", u64::from(server.vcpus)), ("MEMORY_MB", server.memory_mb), ("DISK_GB", server.local_disk_gb)];
    all.into_iter().filter(|(_, amount)| *amount > 0).map(|(class, amount)| (class.to_owned(), amount)).collect()
}

/// Who has room for a shape, and how much is left there; or why Placement does not answer that, which is about this shape
/// and not about others.
pub(super) type Candidates = std::result::Result<Vec<(ProviderId, Resources)>, String>;

/// Asks who has room for a shape. It fails if others would not be answered either.
pub(super) async fn candidates(placement: &dyn PlacementClient, shape: &Shape) -> Result<Candidates> {
    match placement.candidates(&shape.resources, &shape.traits).await {
        Ok(found) => Ok(Ok(found.into_iter().map(|one| (one.provider, one.free)).collect())),
        Err(error) if matches!(error, Error::Refused { .. } | Error::Malformed { .. }) => {
            Ok(Err(acting::words(&Chain(&error).to_string())))
        }
        Err(error) => Err(error),
    }
}

/// In this order servers are dealt out.
pub(super) fn order<'a>(servers: impl Iterator<Item = &'a Server>) -> Vec<&'a Server> {
    let mut order: Vec<&Server> = servers.collect();
    order.sort_by(|a, b| (b.memory_mb, &a.id).cmp(&(a.memory_mb, &b.id)));
    order
}

/// What has been dealt out so far.
pub(super) struct Deal<'a> {
    targets: &'a Targets<'a>,
    groups: Groups,
    taken: BTreeMap<ProviderId, Resources>,
}

/// What became of one server.
pub(super) struct Dealt<'a> {
    /// How many hosts could take it.
    pub(super) candidates: usize,
    /// Where it goes and whether that is in its own zone, or why nowhere.
    pub(super) to: std::result::Result<(&'a HostName, bool), String>,
}

/// What makes one host better than another: the same zone, then more memory left, then the name.
type Rank<'a> = (bool, u64, Reverse<&'a HostName>);

impl<'a> Deal<'a> {
    pub(super) fn new(targets: &'a Targets<'a>, groups: Groups) -> Self {
        Self { targets, groups, taken: BTreeMap::new() }
    }

    /// Chooses a host for a server: in its own zone if there is one, then the one with the most memory left, as the
    /// scheduler does.
    pub(super) fn place(&mut self, server: &Server, shape: &Shape, found: &[(ProviderId, Resources)]) -> Dealt<'a> {
        let (mut objections, mut full, mut candidates): (Vec<Objection>, _, _) = (Vec::new(), 0_usize, 0_usize);
        let mut best: Option<(Rank<'_>, &ProviderId)> = None;
        for (id, free) in found {
            let Some(target) = self.targets.get(id) else { continue };
            if let Some(objection) = self.targets.objection(server, &self.groups, target) {
                objections.push(objection);
                continue;
            }
            candidates += 1;
            let left = left(free, self.taken.get(id));
            // What a child of the provider gives is not in its own figures; that it fits once is what Placement said.
            if shape.resources.iter().any(|(class, amount)| left.get(class).is_some_and(|left| left < amount)) {
                full += 1;
                continue;
            }
            let same_zone = server.zone.is_none() || server.zone.as_deref() == target.zone();
            let rank = (same_zone, left.get("MEMORY_MB").copied().unwrap_or(0), Reverse(target.host()));
            if best.as_ref().is_none_or(|(other, _)| rank > *other) {
                best = Some((rank, id));
            }
        }
        let to = match best {
            Some(((same_zone, _, Reverse(host)), id)) => {
                let sum = self.taken.entry(id.clone()).or_default();
                for (class, amount) in &shape.resources {
                    *sum.entry(class.clone()).or_default() += amount;
                }
                self.groups.goes(&server.id, host);
                Ok((host, same_zone))
            }
            None if full > 0 => {
                let wants = say::wants(server);
                Err(format!("{full} hosts could take it, but are full when the others have gone there: {wants}"))
            }
            None => Err(targets::nobody(server, objections.into_iter())),
        };
        Dealt { candidates, to }
    }
}

fn left<'f>(free: &'f Resources, taken: Option<&Resources>) -> Cow<'f, Resources> {
    // Most hosts of a large region have been dealt nothing.
    let mut left = Cow::Borrowed(free);
    for (class, amount) in taken.into_iter().flatten() {
        if let Some(rest) = left.to_mut().get_mut(class) {
            *rest = rest.saturating_sub(*amount);
        }
    }
    left
}
