//! The table of procedures.

use uuid::Uuid;

use super::{
    DefineFlags, DestroyFlags, DeviceFlags, DiskError, DomainFilter, DomainInfo, DomainRef, DomainStatsRecord,
    DomainStatus, JobInfo, JobStats, MetadataKind, MigrateFlags, NodeInfo, ShutdownFlags, StartFlags, StatsGroups,
    UndefineFlags, XmlFlags,
    macros::{procedures, wire_struct},
};
use crate::{typed::TypedParams, xdr::Opaque};

procedures! {
    /// Opens the connection inside the daemon.
    ConnectOpen = 1 (OpenArguments) -> ();
    /// Says goodbye.
    ConnectClose = 2 (()) -> ();
    /// The driver's name, as it spells it: `QEMU`, `CH`, `Test`.
    ConnectGetType = 3 (()) -> (String,);
    /// The hypervisor's version.
    ConnectGetVersion = 4 (()) -> (u64,);
    /// The library's version.
    ConnectGetLibVersion = 157 (()) -> (u64,);
    /// The host's name.
    ConnectGetHostname = 59 (()) -> (String,);
    /// The canonical URI.
    ConnectGetUri = 110 (()) -> (String,);
    /// Whether the daemon or the driver can do something.
    ConnectSupportsFeature = 60 ((i32,)) -> (bool,);
    /// The kinds of authentication that the daemon asks for.
    AuthList = 66 (()) -> (Vec<i32>,);
    /// The host's capabilities as XML.
    ConnectGetCapabilities = 7 (()) -> (String,);
    /// What domains may be made of, as XML.
    ConnectGetDomainCapabilities = 342 (DomainCapabilitiesArguments) -> (String,);
    /// The host's hardware.
    NodeGetInfo = 6 (()) -> NodeInfo;
    /// Free memory per NUMA cell, in bytes: first cell, how many at most.
    NodeGetCellsFreeMemory = 101 ((i32, i32)) -> (Vec<u64>,);
    /// Free memory, in bytes.
    NodeGetFreeMemory = 102 (()) -> (u64,);
    /// The list of domains.
    ConnectListAllDomains = 273 (ListAllDomainsArguments) -> ListAllDomainsReply;
    /// A running domain by its number.
    DomainLookupById = 22 ((i32,)) -> (DomainRef,);
    /// A domain by its name.
    DomainLookupByName = 23 ((String,)) -> (DomainRef,);
    /// A domain by its UUID.
    DomainLookupByUuid = 24 ((Uuid,)) -> (DomainRef,);
    /// A domain's XML.
    DomainGetXmlDesc = 14 ((DomainRef, XmlFlags)) -> (String,);
    /// The classic facts.
    DomainGetInfo = 16 ((DomainRef,)) -> DomainInfo;
    /// State and reason. The flags word is unused.
    DomainGetState = 212 ((DomainRef, u32)) -> DomainStatus;
    /// Whether it runs.
    DomainIsActive = 150 ((DomainRef,)) -> (bool,);
    /// Whether its definition is kept.
    DomainIsPersistent = 151 ((DomainRef,)) -> (bool,);
    /// Statistics of many domains at once.
    ConnectGetAllDomainStats = 344 (AllDomainStatsArguments) -> (Vec<DomainStatsRecord>,);
    /// The running job, by the classic call.
    DomainGetJobInfo = 163 ((DomainRef,)) -> JobInfo;
    /// The running or the completed job: flags 0, or 1 for completed, or 3 for completed and not forgotten.
    DomainGetJobStats = 298 ((DomainRef, u32)) -> JobStats;
    /// Aborts the running job.
    DomainAbortJob = 164 ((DomainRef,)) -> ();
    /// Migrates.
    DomainMigratePerform3Params = 305 (MigratePerformArguments) -> (Opaque,);
    /// Sets the bandwidth of migrations, in MiB/s.
    DomainMigrateSetMaxSpeed = 207 ((DomainRef, u64, u32)) -> ();
    /// The bandwidth of migrations, in MiB/s.
    DomainMigrateGetMaxSpeed = 242 ((DomainRef, u32)) -> (u64,);
    /// Sets how long a guest may stand still at the end of a migration, in milliseconds.
    DomainMigrateSetMaxDowntime = 166 ((DomainRef, u64, u32)) -> ();
    /// How long a guest may stand still at the end of a migration, in milliseconds.
    DomainMigrateGetMaxDowntime = 387 ((DomainRef, u32)) -> (u64,);
    /// Defines a domain.
    DomainDefineXmlFlags = 350 ((String, DefineFlags)) -> (DomainRef,);
    /// Starts a defined domain.
    DomainCreate = 9 ((DomainRef,)) -> ();
    /// Starts a defined domain in some way. The ch driver returns the domain without its number.
    DomainCreateWithFlags = 196 ((DomainRef, StartFlags)) -> (DomainRef,);
    /// Starts a domain without defining it.
    DomainCreateXml = 10 ((String, StartFlags)) -> (DomainRef,);
    /// Ends a domain.
    DomainDestroy = 12 ((DomainRef,)) -> ();
    /// Ends a domain in some way.
    DomainDestroyFlags = 234 ((DomainRef, DestroyFlags)) -> ();
    /// Asks the guest to shut down.
    DomainShutdownFlags = 258 ((DomainRef, ShutdownFlags)) -> ();
    /// Stops the CPUs.
    DomainSuspend = 34 ((DomainRef,)) -> ();
    /// Lets the CPUs run on.
    DomainResume = 28 ((DomainRef,)) -> ();
    /// Asks the guest to reboot.
    DomainReboot = 27 ((DomainRef, ShutdownFlags)) -> ();
    /// Presses the reset button. The flags word is unused.
    DomainReset = 245 ((DomainRef, u32)) -> ();
    /// Removes a definition.
    DomainUndefineFlags = 231 ((DomainRef, UndefineFlags)) -> ();
    /// The disks that have failed.
    DomainGetDiskErrors = 263 (DiskErrorsArguments) -> DiskErrorsReply;
    /// Adds a device.
    DomainAttachDeviceFlags = 160 ((DomainRef, String, DeviceFlags)) -> ();
    /// Takes a device away.
    DomainDetachDeviceFlags = 161 ((DomainRef, String, DeviceFlags)) -> ();
    /// Sets or removes metadata.
    DomainSetMetadata = 264 (SetMetadataArguments) -> ();
    /// Reads metadata.
    DomainGetMetadata = 265 (GetMetadataArguments) -> (String,);
    /// Sends a non-maskable interrupt. The flags word is unused.
    DomainInjectNmi = 210 ((DomainRef, u32)) -> ();
    /// Asks for events of one kind, of one domain or of all; returns the callback's number.
    ConnectDomainEventCallbackRegisterAny = 316 ((i32, Option<DomainRef>)) -> (i32,);
    /// Asks for no more events.
    ConnectDomainEventCallbackDeregisterAny = 317 ((i32,)) -> ();
}

wire_struct! {
    /// See [`ConnectOpen`].
    pub struct OpenArguments {
        /// The driver's URI, such as `qemu:///system`.
        pub name: Option<String>,
        /// 1 for read-only.
        pub flags: u32,
    }
}

wire_struct! {
    /// See [`ConnectGetDomainCapabilities`]. What is not given is the host's default.
    #[derive(Default)]
    pub struct DomainCapabilitiesArguments {
        /// The emulator's path.
        pub emulator: Option<String>,
        /// The guest's architecture.
        pub arch: Option<String>,
        /// The machine type.
        pub machine: Option<String>,
        /// `kvm`, `qemu`, …
        pub virt_type: Option<String>,
        /// Unused.
        pub flags: u32,
    }
}

wire_struct! {
    /// See [`ConnectListAllDomains`].
    pub struct ListAllDomainsArguments {
        /// Whether the list is wanted, not only its length.
        pub need_results: bool,
        /// Which domains.
        pub filter: DomainFilter,
    }
}

wire_struct! {
    /// See [`ConnectListAllDomains`].
    pub struct ListAllDomainsReply {
        /// The domains, in no particular order.
        pub domains: Vec<DomainRef>,
        /// How many there are.
        pub count: u32,
    }
}

wire_struct! {
    /// See [`ConnectGetAllDomainStats`].
    pub struct AllDomainStatsArguments {
        /// Which domains; all if empty.
        pub domains: Vec<DomainRef>,
        /// Which groups.
        pub groups: StatsGroups,
        /// Which domains, and how.
        pub flags: u32,
    }
}

wire_struct! {
    /// See [`DomainMigratePerform3Params`].
    pub struct MigratePerformArguments {
        /// The domain.
        pub domain: DomainRef,
        /// The other daemon, as this one reaches it.
        pub destination: Option<String>,
        /// Bandwidth and so on.
        pub params: TypedParams,
        /// State of a migration that the client conducts; empty when the daemons do.
        pub cookie: Opaque,
        /// How.
        pub flags: MigrateFlags,
    }
}

wire_struct! {
    /// See [`DomainGetDiskErrors`].
    pub struct DiskErrorsArguments {
        /// The domain.
        pub domain: DomainRef,
        /// How many at most; 0 asks for the number of disks.
        pub max: u32,
        /// Unused.
        pub flags: u32,
    }
}

wire_struct! {
    /// See [`DomainGetDiskErrors`].
    pub struct DiskErrorsReply {
        /// The failed disks.
        pub errors: Vec<DiskError>,
        /// How many; with `max` 0 how many there could be.
        pub count: i32,
    }
}

wire_struct! {
    /// See [`DomainSetMetadata`].
    pub struct SetMetadataArguments {
        /// The domain.
        pub domain: DomainRef,
        /// Which piece.
        pub kind: MetadataKind,
        /// The new value; nothing removes it.
        pub value: Option<String>,
        /// The namespace prefix of an element.
        pub key: Option<String>,
        /// The namespace of an element.
        pub uri: Option<String>,
        /// Where.
        pub flags: DeviceFlags,
    }
}

wire_struct! {
    /// See [`DomainGetMetadata`].
    pub struct GetMetadataArguments {
        /// The domain.
        pub domain: DomainRef,
        /// Which piece.
        pub kind: MetadataKind,
        /// The namespace of an element.
        pub uri: Option<String>,
        /// Where.
        pub flags: DeviceFlags,
    }
}
