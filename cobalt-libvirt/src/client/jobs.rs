//! Long-running jobs: migration, and looking at it.

use std::time::Duration;

use super::Libvirt;
use crate::{
    error::Result,
    rpc::{self, DomainRef, JobInfo, JobStats, MigrateFlags},
    typed::TypedParams,
    xdr::Opaque,
};

/// Which job is asked about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum JobQuery {
    /// The one that runs.
    #[default]
    Running,
    /// The last one that completed. The daemon forgets it by this.
    Completed,
    /// The last one that completed, which the daemon keeps.
    CompletedKeep,
}

impl JobQuery {
    fn flags(self) -> u32 {
        match self {
            Self::Running => 0,
            Self::Completed => 1,
            Self::CompletedKeep => 3,
        }
    }
}

/// How a domain migrates from daemon to daemon.
///
/// ```
/// use cobalt_libvirt::MigrateOptions;
///
/// let options = MigrateOptions { persist: true, undefine_source: true, ..MigrateOptions::live("qemu+tcp://b/system") };
/// assert!(options.live);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct MigrateOptions {
    /// The other daemon's URI, as this connection's daemon reaches it.
    pub destination: String,
    /// Keep the guest running meanwhile.
    pub live: bool,
    /// Keep the definition over there.
    pub persist: bool,
    /// Remove the definition here.
    pub undefine_source: bool,
    /// Copy the disks, too. They must exist over there, at least empty.
    pub copy_storage: bool,
    /// Slow the guest down until it converges.
    pub auto_converge: bool,
    /// Even if the daemon fears for the disks. The field is called this because the word itself is taken.
    pub unsafe_: bool,
    /// Refuse other changes of the domain meanwhile.
    pub change_protection: bool,
    /// MiB/s at most.
    pub bandwidth: Option<u64>,
    /// Where the data goes, if not where the other daemon says: `tcp://10.0.0.7`.
    pub migrate_uri: Option<String>,
    /// A new name over there.
    pub destination_name: Option<String>,
    /// The domain's XML over there.
    pub destination_xml: Option<String>,
    /// How long to wait for the end. The migration does not end when we stop waiting:
    /// [`Libvirt::abort_job`] ends it.
    pub timeout: Duration,
    /// Flags without a field here.
    pub flags: MigrateFlags,
}

impl MigrateOptions {
    /// How long a migration may take unless said otherwise: half a day.
    pub const TIMEOUT: Duration = Duration::from_secs(12 * 60 * 60);

    /// A live migration to `destination`, and nothing more.
    pub fn live(destination: impl Into<String>) -> Self {
        Self {
            destination: destination.into(),
            live: true,
            persist: false,
            undefine_source: false,
            copy_storage: false,
            auto_converge: false,
            unsafe_: false,
            change_protection: false,
            bandwidth: None,
            migrate_uri: None,
            destination_name: None,
            destination_xml: None,
            timeout: Self::TIMEOUT,
            flags: MigrateFlags::NONE,
        }
    }

    fn wire_flags(&self) -> MigrateFlags {
        [
            (self.live, MigrateFlags::LIVE),
            (self.persist, MigrateFlags::PERSIST_DESTINATION),
            (self.undefine_source, MigrateFlags::UNDEFINE_SOURCE),
            (self.copy_storage, MigrateFlags::NON_SHARED_DISK),
            (self.auto_converge, MigrateFlags::AUTO_CONVERGE),
            (self.unsafe_, MigrateFlags::UNSAFE),
            (self.change_protection, MigrateFlags::CHANGE_PROTECTION),
        ]
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .fold(self.flags | MigrateFlags::PEER_TO_PEER, |flags, (_, flag)| flags | flag)
    }

    fn params(&self) -> TypedParams {
        let mut params = TypedParams::builder();
        if let Some(bandwidth) = self.bandwidth {
            params.push("bandwidth", bandwidth);
        }
        for (name, value) in [
            ("migrate_uri", &self.migrate_uri),
            ("destination_name", &self.destination_name),
            ("destination_xml", &self.destination_xml),
        ] {
            if let Some(value) = value {
                params.push(name, value.as_str());
            }
        }
        params.build()
    }
}

impl Libvirt {
    /// Migrates a domain to another daemon and returns when it has left, or why it has not.
    ///
    /// The daemons do it among themselves: this connection only waits, and if it ends, or the future is dropped, the
    /// migration goes on. Meanwhile the domain can be watched with [`job_stats`](Self::job_stats) and stopped with
    /// [`abort_job`](Self::abort_job), upon which this fails with
    /// [`OPERATION_ABORTED`](crate::error::code::OPERATION_ABORTED).
    pub async fn migrate_p2p(&self, domain: &DomainRef, options: &MigrateOptions) -> Result<()> {
        let arguments = rpc::MigratePerformArguments {
            domain: domain.clone(),
            destination: Some(options.destination.clone()),
            params: options.params(),
            cookie: Opaque::default(),
            flags: options.wire_flags(),
        };
        let operation = format!("migrate domain {domain} to {}", options.destination);
        self.call_within::<rpc::DomainMigratePerform3Params>(operation, &arguments, options.timeout).await.map(drop)
    }

    /// A domain's running job, by the classic call.
    pub async fn job_info(&self, domain: &DomainRef) -> Result<JobInfo> {
        self.call::<rpc::DomainGetJobInfo>(format!("get job of domain {domain}"), &(domain.clone(),)).await
    }

    /// A domain's job, with all that is known of it. None is [`JobKind::None`](crate::rpc::JobKind::None), not an
    /// error. The target of a running migration answers
    /// [`OPERATION_UNSUPPORTED`](crate::error::code::OPERATION_UNSUPPORTED).
    pub async fn job_stats(&self, domain: &DomainRef, query: JobQuery) -> Result<JobStats> {
        let operation = match query {
            JobQuery::Running => format!("get job statistics of domain {domain}"),
            JobQuery::Completed | JobQuery::CompletedKeep => {
                format!("get statistics of the completed job of domain {domain}")
            }
        };
        self.call::<rpc::DomainGetJobStats>(operation, &(domain.clone(), query.flags())).await
    }

    /// Asks a domain's running job to stop.
    pub async fn abort_job(&self, domain: &DomainRef) -> Result<()> {
        self.call::<rpc::DomainAbortJob>(format!("abort job of domain {domain}"), &(domain.clone(),)).await
    }

    /// The bandwidth that migrations of a domain may use, in MiB/s. Very large means unlimited.
    pub async fn migrate_max_speed(&self, domain: &DomainRef) -> Result<u64> {
        let operation = format!("get migration bandwidth of domain {domain}");
        Ok(self.call::<rpc::DomainMigrateGetMaxSpeed>(operation, &(domain.clone(), 0)).await?.0)
    }

    /// Sets the bandwidth that migrations of a domain may use, in MiB/s; also of the one that runs.
    pub async fn set_migrate_max_speed(&self, domain: &DomainRef, mib_per_second: u64) -> Result<()> {
        let operation = format!("set migration bandwidth of domain {domain} to {mib_per_second} MiB/s");
        self.call::<rpc::DomainMigrateSetMaxSpeed>(operation, &(domain.clone(), mib_per_second, 0)).await
    }

    /// Sets how long the guest may stand still at the end of the running migration.
    pub async fn set_migrate_max_downtime(&self, domain: &DomainRef, downtime: Duration) -> Result<()> {
        let milliseconds = u64::try_from(downtime.as_millis()).unwrap_or(u64::MAX);
        let operation = format!("set migration downtime of domain {domain} to {milliseconds} ms");
        self.call::<rpc::DomainMigrateSetMaxDowntime>(operation, &(domain.clone(), milliseconds, 0)).await
    }
}
