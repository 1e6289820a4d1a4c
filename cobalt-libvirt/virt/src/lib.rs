//! [`HypervisorBackend`] over libvirt's own C library, by the `virt` crate.
//!
//! It exists to check the native client against: both read the same daemon, and a test compares what they say, call by
//! call. It is also what to take where a daemon can be reached in a way that only the C library knows (`qemu+ssh`).
//!
//! What `virt` cannot do is reported as lacking: it registers no domain events and aborts no job. Its bulk statistics
//! leak memory with every call, so that counters are read domain by domain instead. Calls block; each has a thread of
//! tokio's blocking pool for as long as it takes.
//!
//! ```no_run
//! use cobalt_core::backend::HypervisorBackend;
//! use cobalt_libvirt_virt::VirtBackend;
//!
//! # async fn example() -> cobalt_core::Result<()> {
//! let backend = VirtBackend::open("qemu:///system").await?;
//! for domain in backend.inventory().await? {
//!     println!("{} {:?}", domain.name, domain.state);
//! }
//! # Ok(()) }
//! ```

mod read;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use cobalt_core::{
    Error, Result,
    backend::{
        BackendEvent, Domain, DomainCapabilities, DomainStats, Features, HostCapabilities, HypervisorBackend,
        MigrateRequest, PowerAction, Versions,
    },
    ids::InstanceId,
};
use cobalt_libvirt::xml::{DomainCapabilitiesXml, HostXml};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use virt::{
    connect::Connect,
    error::{Error as VirtError, ErrorNumber, ErrorNumberEnum},
};

/// How long a call may take. The blocked thread itself cannot be stopped, but nobody waits for it any longer.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a migration may take.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(3600);

/// A hypervisor behind libvirt's C library. Clones share one connection.
#[derive(Clone)]
pub struct VirtBackend {
    uri: String,
    driver: String,
    features: Features,
    connection: Arc<Mutex<Connect>>,
    unsafe_migration: bool,
}

impl std::fmt::Debug for VirtBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VirtBackend").field("uri", &self.uri).finish_non_exhaustive()
    }
}

impl VirtBackend {
    /// Connects to the daemon at this URI.
    pub async fn open(uri: &str) -> Result<Self> {
        // The C library would print every error to standard error.
        virt::error::clear_error_callback();
        let operation = format!("connect to {uri}");
        let target = uri.to_owned();
        let (connection, driver, domain_capabilities) = blocking(operation.clone(), CALL_TIMEOUT, move || {
            let connection = connect(&target)?;
            let driver = connection.driver_type()?.to_lowercase();
            let lacks =
                connection.domain_capabilities(None, None, None, None, 0).is_err_and(|error| is_lacking(&error));
            Ok((connection, driver, !lacks))
        })
        .await?
        .map_err(|error| seam(operation, error))?;
        let qemu = driver == "qemu";
        let features = Features {
            domain_capabilities,
            stats: true,
            // A job can be read, but not aborted: half of it is not it.
            jobs: false,
            migration: qemu,
            power: true,
            events: Vec::new(),
        };
        let connection = Arc::new(Mutex::new(connection));
        Ok(Self { uri: uri.to_owned(), driver, features, connection, unsafe_migration: false })
    }

    /// Lets domains migrate whose disks are on what libvirt does not know to be shared.
    #[must_use]
    pub fn unsafe_migration(mut self, allowed: bool) -> Self {
        self.unsafe_migration = allowed;
        self
    }

    async fn call<T: Send + 'static>(
        &self,
        operation: impl Into<String>,
        limit: Duration,
        call: impl FnOnce(&Connect) -> std::result::Result<T, Failure> + Send + 'static,
    ) -> Result<T> {
        let (operation, connection, uri) = (operation.into(), self.connection.clone(), self.uri.clone());
        let answer = blocking(operation.clone(), limit, move || {
            let connection = {
                let mut held = connection.lock().unwrap_or_else(PoisonError::into_inner);
                // There is no word of a lost connection but the next call.
                if !held.is_alive().unwrap_or(false) {
                    *held = connect(&uri)?;
                }
                held.clone()
            };
            call(&connection)
        })
        .await?;
        answer.map_err(|failure| match failure {
            Failure::Virt(error) => seam(operation, error),
            Failure::Seam(error) => error,
        })
    }
}

/// What a call below can fail with: the library's error, or one that is in our terms already.
pub(crate) enum Failure {
    Virt(VirtError),
    Seam(Error),
}

impl From<VirtError> for Failure {
    fn from(error: VirtError) -> Self {
        Self::Virt(error)
    }
}

fn connect(uri: &str) -> std::result::Result<Connect, VirtError> {
    let connection = Connect::open(Some(uri))?;
    // Needs an event loop, which nobody runs here; without it the library's own timeouts of TCP are all there is.
    connection.set_keep_alive(-1, 0).ok();
    Ok(connection)
}

async fn blocking<T: Send + 'static>(
    operation: String,
    limit: Duration,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    match tokio::time::timeout(limit, tokio::task::spawn_blocking(call)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(panic)) => Err(Error::unavailable(operation, panic)),
        Err(_) => Err(Error::timeout(operation, limit)),
    }
}

fn is_lacking(error: &VirtError) -> bool {
    matches!(error.code(), ErrorNumberEnum::Known(ErrorNumber::NoSupport))
}

/// By the code alone: the texts change between versions.
fn seam(operation: String, error: VirtError) -> Error {
    use ErrorNumber as N;
    let reason = error.message().to_owned();
    let ErrorNumberEnum::Known(code) = error.code() else { return Error::refused(operation, reason) };
    match code {
        N::NoSupport => Error::unsupported(operation, "this driver"),
        N::NoDomain => Error::not_found(operation),
        N::OperationInvalid | N::ResourceBusy => Error::conflict(operation, reason),
        N::AuthFailed | N::AuthCancelled | N::AuthUnavailable | N::AccessDenied | N::OperationDenied => {
            Error::Denied { operation, cause: Some(Box::new(error)) }
        }
        N::NoConnect | N::SystemError | N::Rpc | N::InternalError => Error::unavailable(operation, error),
        _ => Error::refused(operation, reason),
    }
}

#[async_trait]
impl HypervisorBackend for VirtBackend {
    fn driver(&self) -> String {
        self.driver.clone()
    }

    fn features(&self) -> Features {
        self.features.clone()
    }

    async fn versions(&self) -> Result<Versions> {
        self.call("get versions", CALL_TIMEOUT, |connection| {
            let text = |version: u32| format!("{}.{}.{}", version / 1_000_000, version / 1000 % 1000, version % 1000);
            Ok(Versions {
                library: Some(text(connection.lib_version()?)),
                hypervisor: Some(text(connection.hyp_version()?)),
            })
        })
        .await
    }

    async fn capabilities(&self) -> Result<HostCapabilities> {
        self.call("get capabilities", CALL_TIMEOUT, |connection| Ok(read::host(connection)?.capabilities())).await
    }

    async fn domain_capabilities(&self) -> Result<DomainCapabilities> {
        self.call("get domain capabilities", CALL_TIMEOUT, |connection| {
            let text = connection.domain_capabilities(None, None, None, None, 0)?;
            let parsed = DomainCapabilitiesXml::parse(&text);
            Ok(parsed.map_err(|error| Failure::Seam(error.into_seam("get domain capabilities")))?.capabilities)
        })
        .await
    }

    async fn inventory(&self) -> Result<Vec<Domain>> {
        self.call("list domains", CALL_TIMEOUT, |connection| {
            let host: HostXml = read::host(connection)?;
            let mut domains = Vec::new();
            for domain in connection.list_all_domains(0)? {
                match read::domain(&domain, &host) {
                    Ok(domain) => domains.push(domain),
                    // It went while we asked.
                    Err(Failure::Virt(error)) if read::is_gone(&error) => {}
                    Err(other) => return Err(other),
                }
            }
            domains.sort_by(|one, other| one.id.cmp(&other.id));
            Ok(domains)
        })
        .await
    }

    async fn domain(&self, id: &InstanceId) -> Result<Domain> {
        let uuid = id.to_string();
        self.call(format!("get domain {id}"), CALL_TIMEOUT, move |connection| {
            let host = read::host(connection)?;
            read::domain(&connection.lookup_domain_by_uuid_string(&uuid)?, &host)
        })
        .await
    }

    async fn stats(&self) -> Result<Vec<DomainStats>> {
        self.call("get domain statistics", CALL_TIMEOUT, |connection| {
            let mut all = Vec::new();
            for domain in connection.list_all_domains(virt::sys::VIR_CONNECT_LIST_DOMAINS_ACTIVE)? {
                match read::stats(&domain) {
                    Ok(stats) => all.push(stats),
                    Err(Failure::Virt(error)) if read::is_gone(&error) => {}
                    Err(other) => return Err(other),
                }
            }
            all.sort_by(|one: &DomainStats, other| one.id.cmp(&other.id));
            Ok(all)
        })
        .await
    }

    /// Says once that there is a connection; the library gives no other word.
    fn events(&self) -> BoxStream<'static, BackendEvent> {
        stream::once(async { BackendEvent::Connected }).chain(stream::pending()).boxed()
    }

    async fn migrate(&self, id: &InstanceId, request: &MigrateRequest) -> Result<()> {
        use virt::sys;
        let operation = format!("migrate domain {id} to {}", request.destination);
        if !self.features.migration {
            return Err(Error::unsupported(operation, self.driver()));
        }
        let flags = [
            (true, sys::VIR_MIGRATE_PEER2PEER),
            (request.live, sys::VIR_MIGRATE_LIVE),
            (request.copy_storage, sys::VIR_MIGRATE_NON_SHARED_DISK),
            (request.persist, sys::VIR_MIGRATE_PERSIST_DEST | sys::VIR_MIGRATE_UNDEFINE_SOURCE),
            (self.unsafe_migration, sys::VIR_MIGRATE_UNSAFE),
        ];
        let flags = flags.iter().filter(|(on, _)| *on).fold(0, |all, (_, flag)| all | flag);
        let (uuid, destination) = (id.to_string(), request.destination.clone());
        self.call(operation, MIGRATION_TIMEOUT, move |connection| {
            let domain = connection.lookup_domain_by_uuid_string(&uuid)?;
            domain.migrate_to_uri3(Some(&destination), virt::domain::MigrateParameters::default(), flags)?;
            Ok(())
        })
        .await
    }

    async fn power(&self, id: &InstanceId, action: PowerAction) -> Result<()> {
        let uuid = id.to_string();
        self.call(format!("{action:?} domain {id}"), CALL_TIMEOUT, move |connection| {
            let domain = connection.lookup_domain_by_uuid_string(&uuid)?;
            match action {
                PowerAction::Start => domain.create()?,
                PowerAction::Destroy => domain.destroy()?,
                PowerAction::Reset => domain.reset()?,
                PowerAction::Suspend => domain.suspend()?,
                PowerAction::Resume => domain.resume()?,
                other => {
                    return Err(Failure::Seam(Error::unsupported(format!("{other:?} domain {uuid}"), "this client")));
                }
            }
            Ok(())
        })
        .await
    }
}
