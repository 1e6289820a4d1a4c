//! The words full of bits that most calls take.

use super::macros::{flags, open_enum};

flags! {
    /// Which domains a list has. Nothing means all; flags of different kinds narrow the list.
    pub struct DomainFilter {
        /// Those that run (or are paused).
        ACTIVE = 1 << 0,
        /// Those that do not.
        INACTIVE = 1 << 1,
        /// Those whose definition is kept.
        PERSISTENT = 1 << 2,
        /// Those that are gone once they stop.
        TRANSIENT = 1 << 3,
        /// In state running.
        RUNNING = 1 << 4,
        /// In state paused.
        PAUSED = 1 << 5,
        /// In state shut off.
        SHUT_OFF = 1 << 6,
        /// In any other state.
        OTHER = 1 << 7,
        /// Those that start with the daemon.
        AUTOSTART = 1 << 10,
        /// Those that do not.
        NO_AUTOSTART = 1 << 11,
    }
}

impl DomainFilter {
    /// Every domain: nothing narrows the list.
    pub const ALL: DomainFilter = DomainFilter::NONE;
}

flags! {
    /// Which groups of statistics are wanted. Nothing means all that the driver has.
    pub struct StatsGroups {
        /// `state.*`
        STATE = 1 << 0,
        /// `cpu.*`
        CPU_TOTAL = 1 << 1,
        /// `balloon.*`
        BALLOON = 1 << 2,
        /// `vcpu.*`
        VCPU = 1 << 3,
        /// `net.*`
        INTERFACE = 1 << 4,
        /// `block.*`
        BLOCK = 1 << 5,
        /// `perf.*`
        PERF = 1 << 6,
        /// `iothread.*`
        IOTHREAD = 1 << 7,
        /// `memory.*`
        MEMORY = 1 << 8,
        /// `dirtyrate.*`
        DIRTY_RATE = 1 << 9,
        /// `vm.*`
        VM = 1 << 10,
    }
}

flags! {
    /// Which description of a domain is wanted.
    pub struct XmlFlags {
        /// With passwords; not on a read-only connection.
        SECURE = 1 << 0,
        /// As it will be at its next start.
        INACTIVE = 1 << 1,
        /// With the CPU spelled out.
        UPDATE_CPU = 1 << 2,
        /// As a migration would send it.
        MIGRATABLE = 1 << 3,
    }
}

flags! {
    /// How a domain starts.
    pub struct StartFlags {
        /// With its CPUs stopped.
        PAUSED = 1 << 0,
        /// To be destroyed when this connection ends.
        AUTO_DESTROY = 1 << 1,
        /// Without the host's page cache for its saved state.
        BYPASS_CACHE = 1 << 2,
        /// Anew, even if there is a saved state.
        FORCE_BOOT = 1 << 3,
        /// Only if the XML passes the schema.
        VALIDATE = 1 << 4,
    }
}

flags! {
    /// How a definition is taken.
    pub struct DefineFlags {
        /// Only if the XML passes the schema.
        VALIDATE = 1 << 0,
    }
}

flags! {
    /// How a domain is ended.
    pub struct DestroyFlags {
        /// SIGTERM only: fail rather than kill a VMM that does not go.
        GRACEFUL = 1 << 0,
        /// Its log files go, too.
        REMOVE_LOGS = 1 << 1,
    }
}

flags! {
    /// How the guest is asked to shut down or to reboot. Nothing lets the driver choose.
    pub struct ShutdownFlags {
        /// By the power button.
        ACPI = 1 << 0,
        /// By the guest agent.
        GUEST_AGENT = 1 << 1,
        /// By `initctl`; containers.
        INITCTL = 1 << 2,
        /// By a signal; containers.
        SIGNAL = 1 << 3,
        /// By the hypervisor's own channel.
        PARAVIRT = 1 << 4,
    }
}

flags! {
    /// What goes with a definition.
    pub struct UndefineFlags {
        /// The saved state.
        MANAGED_SAVE = 1 << 0,
        /// The notes about snapshots.
        SNAPSHOTS_METADATA = 1 << 1,
        /// The firmware's variables.
        NVRAM = 1 << 2,
        /// Not the firmware's variables.
        KEEP_NVRAM = 1 << 3,
        /// The notes about checkpoints.
        CHECKPOINTS_METADATA = 1 << 4,
    }
}

flags! {
    /// What a change of a device or of metadata applies to. Nothing means the domain as it is: live if it runs.
    pub struct DeviceFlags {
        /// The running domain.
        LIVE = 1 << 0,
        /// The definition for its next start.
        CONFIG = 1 << 1,
        /// Even if the guest does not agree.
        FORCE = 1 << 2,
    }
}

flags! {
    /// How a migration goes; see [`MigrateOptions`](crate::MigrateOptions), which most should use.
    pub struct MigrateFlags {
        /// The guest runs on meanwhile.
        LIVE = 1 << 0,
        /// The source's daemon does everything.
        PEER_TO_PEER = 1 << 1,
        /// Through the daemons' own connection.
        TUNNELLED = 1 << 2,
        /// The definition is kept over there.
        PERSIST_DESTINATION = 1 << 3,
        /// The definition goes here.
        UNDEFINE_SOURCE = 1 << 4,
        /// Paused at its arrival.
        PAUSED = 1 << 5,
        /// Disks are copied whole.
        NON_SHARED_DISK = 1 << 6,
        /// Disks are copied as far as they differ from their base.
        NON_SHARED_INCREMENTAL = 1 << 7,
        /// Nobody may change the domain meanwhile.
        CHANGE_PROTECTION = 1 << 8,
        /// Even if the disks may suffer.
        UNSAFE = 1 << 9,
        /// The definition only.
        OFFLINE = 1 << 10,
        /// Compressed.
        COMPRESSED = 1 << 11,
        /// Given up at an I/O error.
        ABORT_ON_ERROR = 1 << 12,
        /// The guest is slowed down until it converges.
        AUTO_CONVERGE = 1 << 13,
        /// Post-copy is possible.
        POST_COPY = 1 << 15,
        /// Encrypted.
        TLS = 1 << 16,
        /// Over several connections.
        PARALLEL = 1 << 17,
    }
}

open_enum! {
    /// Which piece of metadata.
    pub enum MetadataKind {
        /// `<description>`
        Description = 0,
        /// `<title>`
        Title = 1,
        /// An element of one's own in `<metadata>`.
        Element = 2,
    }
}
