//! Which other hosts may take a server: what the scheduler's filters will say, as far as it can be known from outside.
//!
//! Room and required traits are Placement's to judge. Here are the rest: the host is in service, runs the same
//! hypervisor, and its aggregates and the server's group let this server in.

use std::collections::BTreeMap;

use super::{groups::Groups, say};
use crate::{
    ids::{HostName, ProviderId},
    nova::{Aggregate, ComputeService, NovaHypervisor, Server, ServiceState},
};

/// Why a host does not take a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Objection {
    /// Its compute service is disabled.
    Disabled,
    /// Nova does not hear from it.
    Down,
    /// It runs another hypervisor.
    OtherHypervisor,
    /// An aggregate keeps it for other projects.
    OtherProjects,
    /// An aggregate keeps it for servers that ask for a trait.
    TraitWanted,
    /// It has as many members of the server's group as it may.
    GroupMember,
    /// It has none of the server's group, which wants to be together.
    ApartFromGroup,
}

impl Objection {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Down => "down",
            Self::OtherHypervisor => "of another hypervisor",
            Self::OtherProjects => "kept for other projects",
            Self::TraitWanted => "kept for servers with a trait",
            Self::GroupMember => "with a member of its server group",
            Self::ApartFromGroup => "without a member of its server group",
        }
    }
}

/// The other hosts of the region, by provider.
pub(super) struct Targets<'a> {
    from: Option<&'a NovaHypervisor>,
    all: BTreeMap<&'a ProviderId, Target<'a>>,
}

/// One of them.
pub(super) struct Target<'a> {
    hypervisor: &'a NovaHypervisor,
    service: &'a ComputeService,
    aggregates: Vec<&'a Aggregate>,
}

impl<'a> Targets<'a> {
    /// All but this host.
    pub(super) fn besides(
        host: &HostName,
        hypervisors: &'a [NovaHypervisor],
        services: &'a [ComputeService],
        aggregates: &'a [Aggregate],
    ) -> Self {
        let services: BTreeMap<&HostName, &ComputeService> = services.iter().map(|one| (&one.host, one)).collect();
        let mut members: BTreeMap<&HostName, Vec<&Aggregate>> = BTreeMap::new();
        for aggregate in aggregates {
            aggregate.hosts.iter().for_each(|host| members.entry(host).or_default().push(aggregate));
        }
        let target = |hypervisor: &'a NovaHypervisor| {
            let aggregates = members.get(&hypervisor.host).cloned().unwrap_or_default();
            let service = services.get(&hypervisor.host).copied()?;
            Some((&hypervisor.id, Target { hypervisor, service, aggregates }))
        };
        let (own, others): (Vec<_>, Vec<_>) = hypervisors.iter().partition(|one| one.host == *host);
        Self { from: own.first().copied(), all: others.into_iter().filter_map(target).collect() }
    }

    /// The one with this provider, if it is a host that Nova knows.
    pub(super) fn get(&self, id: &ProviderId) -> Option<&Target<'a>> {
        self.all.get(id)
    }

    /// What there is to be said against a server on a host, apart from room and the server's own traits.
    pub(super) fn objection(&self, server: &Server, groups: &Groups, to: &Target<'_>) -> Option<Objection> {
        if !to.service.enabled {
            return Some(Objection::Disabled);
        }
        if to.service.state != ServiceState::Up || to.service.forced_down {
            return Some(Objection::Down);
        }
        // A VM cannot change its hypervisor on the way.
        if self.from.is_some_and(|from| from.kind != to.hypervisor.kind) {
            return Some(Objection::OtherHypervisor);
        }
        let closed = to.aggregates.iter().find_map(|aggregate| closed(aggregate, server));
        closed.or_else(|| groups.objection(&server.id, to.host()))
    }
}

impl<'a> Target<'a> {
    pub(super) fn host(&self) -> &'a HostName {
        &self.hypervisor.host
    }

    pub(super) fn zone(&self) -> Option<&'a str> {
        self.service.zone.as_deref()
    }
}

/// Whether the metadata of an aggregate keeps a server out: `filter_tenant_id…` lists projects, `trait:X=required` wants
/// servers that ask for X.
fn closed(aggregate: &Aggregate, server: &Server) -> Option<Objection> {
    let keys = |prefix: &'static str| {
        aggregate.metadata.iter().filter_map(move |(key, value)| Some((key.strip_prefix(prefix)?, value)))
    };
    let mut projects = keys("filter_tenant_id").flat_map(|(_, value)| value.split(',')).map(str::trim).peekable();
    if projects.peek().is_some() && !projects.any(|project| project == server.project) {
        return Some(Objection::OtherProjects);
    }
    let mut wanted = keys("trait:").filter(|(_, value)| value.as_str() == "required").map(|(name, _)| name);
    let lacks = wanted.any(|name| !server.required_traits.iter().any(|own| own == name));
    lacks.then_some(Objection::TraitWanted)
}

/// Why no host takes a server, by what those with room for it have against it.
pub(super) fn nobody(server: &Server, objections: impl Iterator<Item = Objection>) -> String {
    let mut objections = objections.peekable();
    if objections.peek().is_none() {
        return format!("no other host has room for it: {}", say::wants(server));
    }
    format!("every host with room for it is out of the question ({})", summary(objections))
}

/// Counted objections in words: `2 disabled, 1 down`.
fn summary(objections: impl Iterator<Item = Objection>) -> String {
    let mut counts: BTreeMap<Objection, usize> = BTreeMap::new();
    for objection in objections {
        *counts.entry(objection).or_default() += 1;
    }
    let words = counts.into_iter().map(|(objection, count)| format!("{count} {}", objection.as_str()));
    words.collect::<Vec<_>>().join(", ")
}
