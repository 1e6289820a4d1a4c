//! Server groups: whose members may not be together, or not apart.
//!
//! As Nova's scheduler sees it: with `anti-affinity` a host that has its number of members takes no more. With `affinity` a
//! host takes members if one is there already; and since a server counts as a member on the host that it is to leave, one
//! whose fellows are all with it goes nowhere. Soft policies are wishes, and out of the question is nobody.

use std::collections::{BTreeMap, BTreeSet};

use super::targets::Objection;
use crate::{
    ids::{HostName, InstanceId},
    nova::{GroupPolicy, NovaClient, Server, ServerGroup},
};

/// How many members elsewhere are asked where they are. What is not known about the others is the scheduler's to say.
const ASKED: usize = 100;

/// The groups of the servers of one host that bind, and where their members are.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    hard: Vec<ServerGroup>,
    places: BTreeMap<InstanceId, HostName>,
    /// How many servers of the host are in a group whose policy is a wish.
    pub(super) soft: usize,
}

impl Groups {
    /// Asks Nova for the groups of these servers, and where the members are that are not among them.
    pub(super) async fn of(nova: &dyn NovaClient, host: &HostName, servers: &[Server]) -> crate::Result<Self> {
        let here: BTreeSet<&InstanceId> = servers.iter().map(|server| &server.id).collect();
        let mut hard = nova.server_groups().await?;
        hard.retain(|group| group.members.iter().any(|member| here.contains(member)));
        let is_wish =
            |group: &&ServerGroup| matches!(group.policy, GroupPolicy::SoftAffinity | GroupPolicy::SoftAntiAffinity);
        let wishes = hard.iter().filter(is_wish).flat_map(|group| &group.members);
        let soft = wishes.filter(|member| here.contains(member)).count();
        hard.retain(|group| group.policy.is_hard());
        let mut places: BTreeMap<InstanceId, HostName> = here.iter().map(|id| ((*id).clone(), host.clone())).collect();
        let members: BTreeSet<&InstanceId> = hard.iter().flat_map(|group| &group.members).collect();
        for member in members.into_iter().filter(|member| !here.contains(*member)).take(ASKED) {
            match nova.server(member).await {
                Ok(server) => places.extend(server.host.map(|host| (member.clone(), host))),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { hard, places, soft })
    }

    /// What a server's group has against a host.
    pub(super) fn objection(&self, server: &InstanceId, to: &HostName) -> Option<Objection> {
        let group = self.hard.iter().find(|group| group.members.contains(server))?;
        let others = group.members.iter().filter(|member| *member != server);
        let there = others.filter(|member| self.places.get(*member) == Some(to)).count();
        match group.policy {
            GroupPolicy::Affinity if there == 0 => Some(Objection::ApartFromGroup),
            GroupPolicy::AntiAffinity { per_host } if there >= usize::try_from(per_host).unwrap_or(usize::MAX) => {
                Some(Objection::GroupMember)
            }
            _ => None,
        }
    }

    /// A server is to be there from now on.
    pub(super) fn goes(&mut self, server: &InstanceId, to: &HostName) {
        self.places.insert(server.clone(), to.clone());
    }
}
