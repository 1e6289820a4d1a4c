//! What the protocol says of a domain.

use std::fmt;

use uuid::Uuid;

use super::macros::{open_enum, wire_struct};
use crate::{
    typed::TypedParams,
    xdr::{Decode, Encode, Reader, Result, Writer},
};

/// The identity of a domain. Daemons go by the UUID; name and number come along.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DomainRef {
    /// Its name on that host.
    pub name: String,
    /// Its UUID, the same wherever it moves.
    pub uuid: Uuid,
    /// Its number while it runs. Another one after each start; the ch driver takes the VMM's process id.
    pub id: Option<i32>,
}

impl DomainRef {
    /// A domain of which only the UUID is known. That is enough for every call.
    pub fn from_uuid(uuid: Uuid) -> Self {
        Self { name: uuid.to_string(), uuid, id: None }
    }
}

impl fmt::Display for DomainRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.uuid)
    }
}

impl Encode for DomainRef {
    fn encode(&self, out: &mut Writer) {
        out.string(&self.name);
        self.uuid.encode(out);
        out.i32(self.id.unwrap_or(-1));
    }
}

impl Decode for DomainRef {
    fn decode(from: &mut Reader<'_>) -> Result<Self> {
        let (name, uuid, id) = Decode::decode(from)?;
        Ok(Self { name, uuid, id: (id != -1).then_some(id) })
    }
}

open_enum! {
    /// Whether a domain runs.
    pub enum DomainState {
        /// The driver does not tell.
        None = 0,
        /// Its CPUs run.
        Running = 1,
        /// It waits for a resource.
        Blocked = 2,
        /// Its CPUs are stopped.
        Paused = 3,
        /// It is being shut down.
        ShuttingDown = 4,
        /// It does not run.
        ShutOff = 5,
        /// It died.
        Crashed = 6,
        /// The guest sleeps.
        Suspended = 7,
    }
}

wire_struct! {
    /// A domain's state and why it is in it.
    pub struct DomainStatus {
        /// The state.
        pub state: DomainState,
        /// The reason; its meaning depends on the state.
        pub reason: i32,
    }
}

impl DomainStatus {
    /// Whether it is paused because a disk failed.
    pub fn is_paused_on_io_error(&self) -> bool {
        self.state == DomainState::Paused && self.reason == 5
    }
}

wire_struct! {
    /// The classic facts about a domain.
    pub struct DomainInfo {
        /// The state.
        pub state: DomainState,
        /// Memory it may have at most, in KiB.
        pub max_memory_kib: u64,
        /// Memory it has, in KiB.
        pub memory_kib: u64,
        /// Its virtual CPUs.
        pub vcpus: u32,
        /// CPU time used so far, in nanoseconds; 0 while it does not run.
        pub cpu_time_ns: u64,
    }
}

wire_struct! {
    /// The statistics of one domain out of a bulk reply.
    pub struct DomainStatsRecord {
        /// The domain.
        pub domain: DomainRef,
        /// The numbers, by libvirt's names: `cpu.time`, `vcpu.0.time`, `block.0.rd.bytes`, …
        pub params: TypedParams,
    }
}

open_enum! {
    /// What is wrong with a disk.
    pub enum DiskErrorKind {
        /// Nothing.
        None = 0,
        /// Something.
        Unspecified = 1,
        /// There is no space left.
        NoSpace = 2,
    }
}

wire_struct! {
    /// A disk that has failed.
    pub struct DiskError {
        /// Its target name, such as `vda`.
        pub disk: String,
        /// How.
        pub kind: DiskErrorKind,
    }
}
