//! Which other hosts may take a server: what the scheduler's filters will say, as far as it can be known from outside.
//!
//! Room and required traits are Placement's to judge. Here are the rest: the host is in service, runs the same
//! hypervisor, and its aggregates and the server's group let this server in.

use std::collections::BTreeMap;

use super::{groups::Groups, say};
use crate::{
    ids::HostName,
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

/// Says whether a host takes a server, apart from room and the server's own traits.
pub(super) fn objection<'a>(
    server: &Server,
    groups: &Groups,
    from: Option<&NovaHypervisor>,
    to: &NovaHypervisor,
    service: &ComputeService,
    mut aggregates: impl Iterator<Item = &'a Aggregate>,
) -> Option<Objection> {
    if !service.enabled {
        return Some(Objection::Disabled);
    }
    if service.state != ServiceState::Up || service.forced_down {
        return Some(Objection::Down);
    }
    // A VM cannot change its hypervisor on the way.
    if from.is_some_and(|from| from.kind != to.kind) {
        return Some(Objection::OtherHypervisor);
    }
    aggregates.find_map(|aggregate| closed(aggregate, server)).or_else(|| groups.objection(&server.id, &to.host))
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

/// The aggregates a host is in.
pub(super) fn aggregates_of<'a>(all: &'a [Aggregate], host: &'a HostName) -> impl Iterator<Item = &'a Aggregate> {
    all.iter().filter(move |aggregate| aggregate.hosts.contains(host))
}
