//! What Nova tells about.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::ids::{AggregateId, HostName, InstanceId, MigrationId, ProviderId, ServiceId};

/// Whether Nova hears from a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServiceState {
    /// It reports.
    Up,
    /// It does not, or was declared down.
    Down,
    /// Nova did not say, or in a word we do not know: no reason to rely on it, and none to delete it.
    Unknown,
}

/// The `nova-compute` of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComputeService {
    /// Its UUID.
    pub id: ServiceId,
    /// Its host.
    pub host: HostName,
    /// The availability zone it counts to.
    pub zone: Option<String>,
    /// Whether the scheduler may use it.
    pub enabled: bool,
    /// Why not, in the words of who disabled it.
    pub disabled_reason: Option<String>,
    /// Whether Nova hears from it.
    pub state: ServiceState,
    /// Whether somebody declared it down.
    pub forced_down: bool,
}

/// A host's hypervisor as Nova knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NovaHypervisor {
    /// Its UUID, which is its resource provider's too.
    pub id: ProviderId,
    /// The name the hypervisor gives itself; often, not always, the host's.
    pub hostname: String,
    /// The host of its compute service.
    pub host: HostName,
    /// Its compute service.
    pub service: ServiceId,
    /// `QEMU`, `CH`, `fake`.
    pub kind: String,
    /// Whether Nova hears from it.
    pub state: ServiceState,
    /// Its servers, where they were asked for. A list of all hypervisors does not ask: Nova reads the servers of each host
    /// one after the other to answer that.
    pub servers: Option<Vec<InstanceId>>,
}

/// A server's status. Nova's words; the ones we act on are named.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerStatus {
    /// Runs.
    Active,
    /// Is being made.
    Build,
    /// Broken; the server's fault says how.
    Error,
    /// Moves while running.
    Migrating,
    /// Its CPUs are stopped.
    Paused,
    /// Is being rebuilt elsewhere or in place.
    Rebuild,
    /// Moves while shut off, or changes its flavor.
    Resize,
    /// Does not run.
    ShutOff,
    /// Sleeps.
    Suspended,
    /// Has moved and waits for a yes.
    VerifyResize,
    /// Gone, or going.
    Deleted,
    /// Another word.
    Other(String),
}

/// What Nova is doing with a server right now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TaskState {
    /// A migration runs or is queued.
    Migrating,
    /// It is being deleted.
    Deleting,
    /// It is being rebuilt, which an evacuation is.
    Rebuilding,
    /// Another task.
    Other(String),
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its id.
    pub id: InstanceId,
    /// The name its owner gave it.
    pub name: String,
    /// The project that owns it.
    pub project: String,
    /// Its status.
    pub status: ServerStatus,
    /// What is being done with it.
    pub task: Option<TaskState>,
    /// Where it is; `None` before it was placed.
    pub host: Option<HostName>,
    /// Whether the hypervisor runs it, whatever the status says.
    pub powered: bool,
    /// Whether its owner or an operator locked it.
    pub locked: bool,
    /// Its memory.
    pub memory_mb: u64,
    /// Its virtual CPUs.
    pub vcpus: u32,
    /// Local disk, which a migration must copy and an evacuation loses; 0 when it boots from a volume and has no
    /// ephemeral disk.
    pub local_disk_gb: u64,
    /// The ids of its volumes, which follow it wherever it goes.
    pub volumes: Vec<String>,
    /// Traits its flavor or image requires.
    pub required_traits: Vec<String>,
    /// Its availability zone.
    pub zone: Option<String>,
    /// Why it is in error.
    pub fault: Option<String>,
    /// When it first ran.
    pub launched_at: Option<Timestamp>,
}

/// Servers by what they are called. Letters count as they are written.
///
/// ```
/// use cobalt_core::nova::ServerName;
///
/// let own = ServerName::Exactly("smoke-hv-1".into());
/// assert!(own.fits("smoke-hv-1") && !own.fits("smoke-hv-10"));
/// assert!(ServerName::StartingWith("smoke-".into()).fits("smoke-hv-10"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServerName {
    /// This name and no other.
    Exactly(String),
    /// All names that begin with this. Beware of hosts whose names begin with each other.
    StartingWith(String),
}

impl ServerName {
    /// Whether a server of this name is meant.
    pub fn fits(&self, name: &str) -> bool {
        match self {
            Self::Exactly(wanted) => name == wanted,
            Self::StartingWith(wanted) => name.starts_with(wanted.as_str()),
        }
    }

    /// The name, or its beginning.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Exactly(name) | Self::StartingWith(name) => name,
        }
    }
}

impl std::fmt::Display for ServerName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exactly(name) => f.write_str(name),
            Self::StartingWith(name) => write!(f, "{name}…"),
        }
    }
}

/// How to make a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewServer {
    /// Its name.
    pub name: String,
    /// The flavor's id; [`TestBed::flavor_called`](super::TestBed::flavor_called) knows it by its name.
    pub flavor: String,
    /// The image's id, also if it boots from a volume, which is then filled from it.
    pub image: String,
    /// The network's id; `None` for no network.
    pub network: Option<String>,
    /// Availability zone, with a host as `zone:host`.
    pub availability_zone: Option<String>,
    /// Boot from a new volume instead of a local disk.
    pub volume: Option<NewVolume>,
}

/// A volume that comes and goes with its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVolume {
    /// Its size.
    pub size_gb: u32,
    /// Its type; `None` for what the cloud makes of that.
    pub kind: Option<String>,
}

/// Whether a live migration copies local disks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum BlockMigration {
    /// Nova looks and decides.
    #[default]
    Auto,
    /// Copy them.
    Yes,
    /// Do not; fails if there are any.
    No,
}

/// How an evacuated server is to end. Nova 2.95 leaves it shut off, 2.94 starts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AfterEvacuation {
    /// Run, if it ran before.
    Run,
    /// Stay shut off until somebody starts it.
    StayOff,
}

/// What kind of move a migration record is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MigrationKind {
    /// While it runs.
    Live,
    /// While it is shut off.
    Cold,
    /// Away from a dead host.
    Evacuation,
    /// To another flavor.
    Resize,
    /// Another word.
    Other(String),
}

/// How far a migration is. Nova's words, grouped by what one can do about it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MigrationPhase {
    /// Waits for its turn (`queued`, `accepted`): its time does not count.
    Queued,
    /// Prepares (`preparing`, `pre-migrating`).
    Preparing,
    /// Runs and can be aborted.
    Running,
    /// Past the point of return (`post-migrating`), or on its way back (`reverting`).
    Finishing,
    /// The server has moved, and waits for a yes (`finished`).
    Unconfirmed,
    /// The yes was said, and the old place is cleaned up (`confirming`). Until that is over the server shows nothing of
    /// it, and a second yes is refused.
    Confirming,
    /// Done (`completed`, `done`, `confirmed`).
    Completed,
    /// Stopped by request.
    Cancelled,
    /// Failed.
    Failed,
    /// Another word.
    Other(String),
}

impl MigrationPhase {
    /// Whether nothing more will happen.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled | Self::Failed)
    }
}

/// One migration record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Its id.
    pub id: MigrationId,
    /// The server.
    pub server: InstanceId,
    /// What kind of move.
    pub kind: MigrationKind,
    /// How far.
    pub phase: MigrationPhase,
    /// From where.
    pub source: HostName,
    /// To where, once that is decided.
    pub destination: Option<HostName>,
    /// Since when.
    pub created_at: Option<Timestamp>,
    /// Last change.
    pub updated_at: Option<Timestamp>,
}

/// What a server group asks of the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupPolicy {
    /// All members on one host.
    Affinity,
    /// So many members on one host at most; one, unless the group has a rule.
    AntiAffinity {
        /// How many.
        per_host: u32,
    },
    /// The same as a wish.
    SoftAffinity,
    /// The same as a wish.
    SoftAntiAffinity,
    /// Another word.
    Other(String),
}

impl GroupPolicy {
    /// Nova's word.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Affinity => "affinity",
            Self::AntiAffinity { .. } => "anti-affinity",
            Self::SoftAffinity => "soft-affinity",
            Self::SoftAntiAffinity => "soft-anti-affinity",
            Self::Other(word) => word,
        }
    }

    /// Whether a host that breaks it is out of the question, and not just worse.
    pub fn is_hard(&self) -> bool {
        matches!(self, Self::Affinity | Self::AntiAffinity { .. })
    }
}

/// Servers that are to be together, or apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerGroup {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it asks for.
    pub policy: GroupPolicy,
    /// Its members that exist. A server is in one group at most.
    pub members: Vec<InstanceId>,
}

/// A named set of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregate {
    /// Its number.
    pub id: AggregateId,
    /// Its UUID.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// The availability zone it makes, if it makes one.
    pub zone: Option<String>,
    /// Its members, ordered.
    pub hosts: Vec<HostName>,
    /// Its metadata.
    pub metadata: BTreeMap<String, String>,
}
