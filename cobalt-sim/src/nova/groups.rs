//! Server groups: which servers are to be together, or apart.

use std::collections::{BTreeMap, BTreeSet};

use cobalt_core::{
    ids::InstanceId,
    nova::{GroupPolicy, ServerGroup},
};
use uuid::Uuid;

use super::scheduler::Allowed;
use crate::{
    error::{Result, SimError},
    world::{HostId, State, World, instance, parse},
};

/// One server group.
#[derive(Debug)]
pub(crate) struct GroupRecord {
    pub(crate) name: String,
    pub(crate) policy: GroupPolicy,
    /// Also those that have been deleted since.
    pub(crate) members: BTreeSet<Uuid>,
}

impl World {
    /// Makes a server group of these servers, wherever they are, and answers its id. A real cloud takes members at their
    /// birth only, and so keeps to the policy from the beginning.
    pub fn add_server_group(&self, name: &str, policy: GroupPolicy, members: &[InstanceId]) -> Result<String> {
        self.with(|state| {
            let unknown =
                |vm: &InstanceId| SimError::UnknownVm { operation: "make a server group".into(), vm: vm.clone() };
            let known = |vm: &InstanceId| parse(vm).filter(|id| state.nova.servers.contains_key(id));
            let members = members.iter().map(|vm| known(vm).ok_or_else(|| unknown(vm))).collect::<Result<_>>()?;
            let id = state.random_uuid();
            state.nova.groups.insert(id, GroupRecord { name: name.to_owned(), policy, members });
            Ok(id.to_string())
        })
    }
}

impl State {
    /// The groups with those members that exist.
    pub(crate) fn show_groups(&self) -> Vec<ServerGroup> {
        let show = |(id, group): (&Uuid, &GroupRecord)| ServerGroup {
            id: id.to_string(),
            name: group.name.clone(),
            policy: group.policy.clone(),
            members: group
                .members
                .iter()
                .filter(|id| self.nova.servers.contains_key(id))
                .copied()
                .map(instance)
                .collect(),
        };
        self.nova.groups.iter().map(show).collect()
    }

    /// Where a server may go by its group. One that has to be with the others has to be with itself too, and its own host
    /// is none to go to: as in a real cloud, it goes nowhere as long as all of them are together.
    pub(crate) fn allowed(&self, server: Uuid) -> Allowed {
        let Some(group) = self.nova.groups.values().find(|group| group.members.contains(&server)) else {
            return Allowed::All;
        };
        let mut count: BTreeMap<HostId, u32> = BTreeMap::new();
        for member in &group.members {
            let here = self.nova.servers.get(member).and_then(|server| server.host);
            let coming = self.nova.current_migration(*member).and_then(|number| self.nova.migrations.get(&number));
            let coming = coming.and_then(|record| record.destination).filter(|to| Some(*to) != here);
            for host in here.into_iter().chain(coming) {
                *count.entry(host).or_default() += 1;
            }
        }
        match group.policy {
            GroupPolicy::Affinity => Allowed::Only(count.into_keys().collect()),
            GroupPolicy::AntiAffinity { per_host } => Allowed::AllBut(
                count.into_iter().filter(|(_, count)| *count >= per_host).map(|(host, _)| host).collect(),
            ),
            _ => Allowed::All,
        }
    }
}
