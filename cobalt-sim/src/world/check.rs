//! The laws of the world. A test that ends with a broken one has found a bug, in the program or in the world.

use std::{collections::BTreeMap, fmt};

use cobalt_core::{
    ids::{HostName, InstanceId},
    nova::{MigrationKind, ServerStatus, TaskState},
};
use uuid::Uuid;

use super::{HostId, Os, State, instance};

/// A broken law.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A VM runs on more than one host.
    SplitBrain {
        /// The VM.
        vm: InstanceId,
        /// Where it runs.
        hosts: Vec<HostName>,
    },
    /// A domain is active on a host without power.
    GhostGuest {
        /// The VM.
        vm: InstanceId,
        /// The dark host.
        host: HostName,
    },
    /// A provider has an allocation of nobody.
    OrphanAllocation {
        /// The consumer that does not exist.
        consumer: InstanceId,
        /// Where it is allocated.
        host: HostName,
    },
    /// A server has a host and no allocation there.
    MissingAllocation {
        /// The server.
        vm: InstanceId,
        /// Its host.
        host: HostName,
    },
    /// A provider promised more than it may, or its sums are wrong.
    Overbooked {
        /// The host.
        host: HostName,
    },
    /// A domain that Nova made is on a host that reports, while Nova has it elsewhere or nowhere.
    StrayDomain {
        /// The VM.
        vm: InstanceId,
        /// Where the domain is.
        host: HostName,
    },
    /// Nova says that a server runs on a host that reports, and it is not there.
    MissingDomain {
        /// The server.
        vm: InstanceId,
        /// Where it should be.
        host: HostName,
    },
    /// A server is being moved by nobody.
    StuckTask {
        /// The server.
        vm: InstanceId,
    },
    /// More than one migration moves a server.
    TwoMigrations {
        /// The server.
        vm: InstanceId,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SplitBrain { vm, hosts } => {
                let hosts: Vec<&str> = hosts.iter().map(HostName::as_str).collect();
                write!(f, "VM {vm} runs on {}", hosts.join(" and "))
            }
            Self::GhostGuest { vm, host } => write!(f, "VM {vm} runs on {host}, which has no power"),
            Self::OrphanAllocation { consumer, host } => {
                write!(f, "{host} has an allocation of {consumer}, who is nobody")
            }
            Self::MissingAllocation { vm, host } => write!(f, "server {vm} is on {host} and has no allocation there"),
            Self::Overbooked { host } => write!(f, "{host} promised more than it may, or its sums are wrong"),
            Self::StrayDomain { vm, host } => {
                write!(f, "domain {vm} is on {host}, and Nova has it elsewhere or nowhere")
            }
            Self::MissingDomain { vm, host } => write!(f, "server {vm} should run on {host} and is not there"),
            Self::StuckTask { vm } => write!(f, "server {vm} is being moved by nobody"),
            Self::TwoMigrations { vm } => write!(f, "more than one migration moves server {vm}"),
        }
    }
}

impl State {
    pub(super) fn check(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        self.check_guests(&mut found);
        self.check_allocations(&mut found);
        self.check_servers(&mut found);
        found
    }

    fn check_guests(&self, found: &mut Vec<Violation>) {
        let mut running: BTreeMap<Uuid, Vec<HostId>> = BTreeMap::new();
        for id in self.host_ids() {
            let host = self.host(id);
            let obeys = self.obeys(id);
            for (vm, domain) in &host.domains {
                if domain.state.is_active() {
                    running.entry(*vm).or_default().push(id);
                    if !host.power {
                        found.push(Violation::GhostGuest { vm: instance(*vm), host: host.name.clone() });
                    }
                }
                let elsewhere = self.nova.servers.get(vm).is_none_or(|server| server.host != Some(id));
                if domain.managed && obeys && elsewhere && self.nova.current_migration(*vm).is_none() {
                    found.push(Violation::StrayDomain { vm: instance(*vm), host: host.name.clone() });
                }
            }
        }
        for (vm, hosts) in running.into_iter().filter(|(_, hosts)| hosts.len() > 1) {
            let hosts = hosts.into_iter().map(|id| self.host(id).name.clone()).collect();
            found.push(Violation::SplitBrain { vm: instance(vm), hosts });
        }
    }

    fn check_allocations(&self, found: &mut Vec<Violation>) {
        let migrations: std::collections::BTreeSet<Uuid> = self
            .nova
            .migrations
            .values()
            .filter(|record| !record.phase.is_over())
            .map(|record| record.consumer)
            .collect();
        for (id, provider) in &self.nova.providers {
            let host = &self.host(*id).name;
            let mut sum = crate::nova::Amounts::default();
            for (consumer, amounts) in &provider.allocations {
                sum.add(*amounts);
                if !self.nova.servers.contains_key(consumer) && !migrations.contains(consumer) {
                    found.push(Violation::OrphanAllocation { consumer: instance(*consumer), host: host.clone() });
                }
            }
            if sum != provider.used || !sum.fits(provider.capacity()) {
                found.push(Violation::Overbooked { host: host.clone() });
            }
        }
    }

    fn check_servers(&self, found: &mut Vec<Violation>) {
        let mut moving: BTreeMap<Uuid, usize> = BTreeMap::new();
        for record in self.nova.migrations.values().filter(|record| !record.phase.is_over()) {
            *moving.entry(record.server).or_default() += 1;
        }
        for (id, server) in &self.nova.servers {
            let vm = instance(*id);
            let moves = moving.get(id).copied().unwrap_or(0);
            if moves > 1 {
                found.push(Violation::TwoMigrations { vm: vm.clone() });
            }
            let busy = matches!(server.task, Some(TaskState::Migrating | TaskState::Rebuilding));
            if busy && moves == 0 {
                found.push(Violation::StuckTask { vm: vm.clone() });
            }
            let Some(at) = server.host else { continue };
            let host = self.host(at);
            if let Some(provider) = self.nova.providers.get(&at) {
                let kept = || {
                    self.nova.migrations.values().any(|record| {
                        record.server == *id
                            && !record.phase.is_over()
                            && record.kind != MigrationKind::Evacuation
                            && provider.allocations.contains_key(&record.consumer)
                    })
                };
                if !provider.allocations.contains_key(id) && !kept() {
                    found.push(Violation::MissingAllocation { vm: vm.clone(), host: host.name.clone() });
                }
            }
            let reports = host.compute_running && host.os == Os::Up && !host.partitioned;
            let should_run = server.status == ServerStatus::Active && server.task.is_none() && moves == 0;
            let runs = host.domains.get(id).is_some_and(|domain| domain.state.is_active());
            if reports && should_run && !runs {
                found.push(Violation::MissingDomain { vm, host: host.name.clone() });
            }
        }
    }
}
