//! What happens to VMs, and the jobs that run on them.

use std::time::Duration;

use crate::ids::InstanceId;

/// The kinds of domain event a driver may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A domain came, went, started or stopped.
    Lifecycle,
    /// The guest was reset.
    Reboot,
    /// The guest's watchdog fired.
    Watchdog,
    /// A disk failed.
    IoError,
    /// A job ended, with its final figures.
    JobCompleted,
    /// A migration copied the memory once more.
    MigrationIteration,
    /// The daemon lost control over the domain.
    ControlError,
    /// The guest agent came or went.
    AgentLifecycle,
    /// The host found bad memory.
    MemoryFailure,
    /// A device left the domain.
    DeviceRemoved,
}

impl EventKind {
    /// Every kind there is.
    pub const ALL: [Self; 10] = [
        Self::Lifecycle,
        Self::Reboot,
        Self::Watchdog,
        Self::IoError,
        Self::JobCompleted,
        Self::MigrationIteration,
        Self::ControlError,
        Self::AgentLifecycle,
        Self::MemoryFailure,
        Self::DeviceRemoved,
    ];

    /// A short word for it, as in metrics and in libvirt's own tools.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lifecycle => "lifecycle",
            Self::Reboot => "reboot",
            Self::Watchdog => "watchdog",
            Self::IoError => "io-error",
            Self::JobCompleted => "job-completed",
            Self::MigrationIteration => "migration-iteration",
            Self::ControlError => "control-error",
            Self::AgentLifecycle => "agent-lifecycle",
            Self::MemoryFailure => "memory-failure",
            Self::DeviceRemoved => "device-removed",
        }
    }
}

/// What an event stream carries.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendEvent {
    /// There is a connection; whatever was known before may be old, so list again.
    Connected,
    /// The connection is gone, and why. The backend tries to get it back.
    Disconnected(String),
    /// The reader was too slow and this many events are lost: list again.
    Lagged(u64),
    /// Something happened to a domain.
    Domain {
        /// Which domain.
        id: InstanceId,
        /// Its name on this host.
        name: String,
        /// What happened.
        event: DomainEvent,
    },
}

/// What happened to a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DomainEvent {
    /// It came, went, started or stopped.
    Lifecycle(Lifecycle),
    /// The guest was reset. Some hypervisors say so several times per reset.
    Reboot,
    /// The guest's watchdog fired, and this was done about it.
    Watchdog(WatchdogAction),
    /// A disk failed.
    IoError {
        /// The disk's target name in the guest, or its alias.
        device: String,
        /// What was done about it.
        action: IoErrorAction,
        /// The hypervisor's reason, such as `enospc`; empty when it gave none.
        reason: String,
    },
    /// A job ended.
    JobCompleted(Box<Job>),
    /// A migration copied the memory for the nth time.
    MigrationIteration(u32),
    /// The daemon lost control over the domain.
    ControlError,
    /// The guest agent is there, or not.
    AgentConnected(bool),
    /// The host found bad memory below this domain.
    MemoryFailure {
        /// Whether the guest survived it.
        recovered: bool,
    },
    /// A device left the domain.
    DeviceRemoved(String),
}

impl DomainEvent {
    /// Which kind of event this is.
    pub fn kind(&self) -> EventKind {
        match self {
            Self::Lifecycle(_) => EventKind::Lifecycle,
            Self::Reboot => EventKind::Reboot,
            Self::Watchdog(_) => EventKind::Watchdog,
            Self::IoError { .. } => EventKind::IoError,
            Self::JobCompleted(_) => EventKind::JobCompleted,
            Self::MigrationIteration(_) => EventKind::MigrationIteration,
            Self::ControlError => EventKind::ControlError,
            Self::AgentConnected(_) => EventKind::AgentLifecycle,
            Self::MemoryFailure { .. } => EventKind::MemoryFailure,
            Self::DeviceRemoved(_) => EventKind::DeviceRemoved,
        }
    }
}

/// A step in a domain's life. The details are those that change what one does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lifecycle {
    /// It was defined or redefined.
    Defined,
    /// Its definition was removed.
    Undefined,
    /// It started here from nothing.
    Started,
    /// It arrived by migration.
    StartedByMigration,
    /// Its CPUs were stopped.
    Suspended,
    /// Its CPUs were stopped for the last step of a migration away.
    SuspendedByMigration,
    /// Its CPUs were stopped because a disk failed.
    SuspendedOnIoError,
    /// Its CPUs run again.
    Resumed,
    /// Its CPUs run, here, after a migration.
    ResumedByMigration,
    /// The guest finished its shutdown.
    Shutdown,
    /// It stopped by itself or by request.
    Stopped,
    /// It was ended at once by request.
    Destroyed,
    /// It left by migration.
    Migrated,
    /// The hypervisor process died.
    Failed,
    /// The guest crashed.
    Crashed,
}

/// What a watchdog did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WatchdogAction {
    /// Nothing; it only says so.
    None,
    /// Stopped the guest's CPUs.
    Pause,
    /// Reset the guest.
    Reset,
    /// Ended the guest.
    PowerOff,
    /// Asked the guest to shut down.
    Shutdown,
    /// Took a dump.
    Debug,
    /// Injected an interrupt.
    InjectNmi,
}

/// What the hypervisor did when a disk failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IoErrorAction {
    /// Nothing; the error was passed over.
    None,
    /// Stopped the guest until someone helps.
    Pause,
    /// Told the guest.
    Report,
}

/// What a job does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobOperation {
    /// The driver does not say.
    #[default]
    Unknown,
    /// Starts the domain.
    Start,
    /// Saves its memory to a file.
    Save,
    /// Restores it from a file.
    Restore,
    /// Brings it in from another host.
    MigrationIn,
    /// Moves it to another host.
    MigrationOut,
    /// Takes a snapshot.
    Snapshot,
    /// Goes back to a snapshot.
    SnapshotRevert,
    /// Removes a snapshot.
    SnapshotDelete,
    /// Dumps its memory.
    Dump,
    /// Backs its disks up.
    Backup,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobOutcome {
    /// It runs and knows its end.
    #[default]
    Running,
    /// It runs and does not know its end.
    RunningUnbounded,
    /// It ended well.
    Completed,
    /// It ended badly.
    Failed,
    /// Somebody stopped it.
    Cancelled,
}

impl JobOutcome {
    /// Whether the job is under way. Real migrations run as [`JobOutcome::RunningUnbounded`]: QEMU does not know its end.
    pub fn is_running(self) -> bool {
        matches!(self, JobOutcome::Running | JobOutcome::RunningUnbounded)
    }
}

/// A job on a domain with its figures. What the driver does not tell is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Job {
    /// What it does.
    pub operation: JobOperation,
    /// How far it is.
    pub outcome: JobOutcome,
    /// Time since its start.
    pub elapsed: Option<Duration>,
    /// Time it thinks it needs yet.
    pub remaining: Option<Duration>,
    /// Time the guest stood still, or will.
    pub downtime: Option<Duration>,
    /// Time for preparations.
    pub setup: Option<Duration>,
    /// Everything to be moved.
    pub data: Progress,
    /// Memory to be moved.
    pub memory: Progress,
    /// Disks to be moved.
    pub disk: Progress,
    /// Speed of the memory transfer, in bytes per second.
    pub memory_bps: Option<u64>,
    /// Speed of the disk transfer, in bytes per second.
    pub disk_bps: Option<u64>,
    /// Pages dirtied by the guest, per second.
    pub memory_dirty_rate: Option<u64>,
    /// Size of such a page, in bytes.
    pub memory_page_size: Option<u64>,
    /// How many times the memory has been gone through.
    pub memory_iteration: Option<u64>,
    /// Pages that were all zero.
    pub memory_constant: Option<u64>,
    /// Pages sent as they were.
    pub memory_normal: Option<u64>,
    /// The same in bytes.
    pub memory_normal_bytes: Option<u64>,
    /// Pages the destination asked for after the switch.
    pub memory_postcopy_requests: Option<u64>,
    /// How much the guest is slowed to let the migration end, in percent.
    pub auto_converge_throttle: Option<u32>,
    /// Why it failed.
    pub error: Option<String>,
}

/// Bytes moved and bytes to move.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// All of it.
    pub total: Option<u64>,
    /// Done.
    pub processed: Option<u64>,
    /// Left.
    pub remaining: Option<u64>,
}
