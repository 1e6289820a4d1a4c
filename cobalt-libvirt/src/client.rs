//! The client: one connection to one daemon, with a method per call.

mod domains;
mod jobs;
mod power;
mod subscription;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use tokio::io::{AsyncRead, AsyncWrite};

use self::subscription::Registry;
pub use self::{
    domains::StatsOptions,
    jobs::{JobQuery, MigrateOptions},
    subscription::{EventSubscription, Notice},
};
use crate::{
    connection::{ConnectOptions, Connection},
    error::{CloseReason, Error, Operation, Result},
    rpc::{self, NodeInfo, Procedure},
    uri::LibvirtUri,
    xdr,
};

/// A call that changes a domain waits this long inside the daemon for another job on that domain, before the daemon
/// answers [`OPERATION_TIMEOUT`](crate::error::code::OPERATION_TIMEOUT). To hear that is better than to give up first.
const BUSY_DOMAIN: Duration = Duration::from_secs(30);

/// A connection to a libvirt daemon.
///
/// Clones are cheap and share the connection; it is closed when the last of them is dropped. Calls run side by side,
/// each within its timeout, and may be given up at any time by dropping their future. There is no reconnection here:
/// once [`closed`](Self::closed), every call fails, and a new connection has to be made.
///
/// Errors name the operation and its arguments, and carry the daemon's error code; see [`Error`].
///
/// ```no_run
/// use cobalt_libvirt::{DomainFilter, Libvirt};
///
/// # async fn example() -> cobalt_libvirt::Result<()> {
/// let libvirt = Libvirt::connect("qemu:///system").await?;
/// println!("libvirt {} on {}", libvirt.library_version().await?, libvirt.hostname().await?);
/// for domain in libvirt.domains(DomainFilter::ACTIVE).await? {
///     let status = libvirt.domain_status(&domain).await?;
///     println!("{domain}: {:?}", status.state);
/// }
/// libvirt.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Libvirt {
    inner: Arc<Inner>,
}

struct Inner {
    connection: Connection,
    registry: Registry,
}

impl fmt::Debug for Libvirt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Libvirt").field("peer", &self.peer()).field("closed", &self.is_closed()).finish()
    }
}

impl Libvirt {
    /// Connects to the daemon that `uri` names, with the default options: `qemu:///system`,
    /// `qemu+tcp://host/system`, `ch+unix:///system?socket=/run/…`.
    pub async fn connect(uri: &str) -> Result<Self> {
        Self::connect_with(&uri.parse()?, &ConnectOptions::default()).await
    }

    /// Connects with options of one's own.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use cobalt_libvirt::{ConnectOptions, Libvirt};
    ///
    /// # async fn example() -> cobalt_libvirt::Result<()> {
    /// let options = ConnectOptions::new().read_only(true).call_timeout(Duration::from_secs(5));
    /// let libvirt = Libvirt::connect_with(&"qemu+tcp://10.0.0.7/system".parse()?, &options).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_with(uri: &LibvirtUri, options: &ConnectOptions) -> Result<Self> {
        Connection::connect(uri, options).await.map(Self::on)
    }

    /// Speaks over a stream that somebody else has made, such as a tunnel. `peer` names it in logs and errors; `uri`
    /// says what to open at its other end. A stream is taken for one that others can read, so passwords are not sent
    /// over it in the clear.
    pub async fn over<S>(stream: S, peer: impl Into<String>, uri: &LibvirtUri, options: &ConnectOptions) -> Result<Self>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Connection::open(Box::new(stream), peer.into(), false, uri, options).await.map(Self::on)
    }

    fn on(connection: Connection) -> Self {
        Self { inner: Arc::new(Inner { connection, registry: Registry::default() }) }
    }

    /// The daemon's address, for logs.
    pub fn peer(&self) -> &str {
        self.inner.connection.peer()
    }

    /// Waits for the end of the connection and tells why it ended.
    pub async fn closed(&self) -> Arc<CloseReason> {
        self.inner.connection.closed().await
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.inner.connection.is_closed()
    }

    /// Says goodbye to the daemon. Calls that are still pending fail.
    pub async fn close(&self) {
        self.inner.connection.close().await;
    }

    /// Calls any procedure within the ordinary timeout; see [`rpc`] for how to describe one. `operation` says what is
    /// done to what, for errors.
    pub async fn call<P: Procedure>(
        &self,
        operation: impl Into<Operation>,
        arguments: &P::Arguments,
    ) -> Result<P::Reply> {
        self.call_within::<P>(operation, arguments, self.inner.connection.call_timeout()).await
    }

    /// Calls any procedure within a timeout of its own.
    pub async fn call_within<P: Procedure>(
        &self,
        operation: impl Into<Operation>,
        arguments: &P::Arguments,
        timeout: Duration,
    ) -> Result<P::Reply> {
        let operation = operation.into();
        let payload = xdr::to_bytes(arguments);
        let reply = self.inner.connection.call(P::NUMBER, payload, operation.clone(), timeout).await?;
        xdr::from_bytes(&reply).map_err(|error| Error::protocol(operation, format!("decode the answer: {error}")))
    }

    /// Calls a procedure that may have to wait for another job on its domain.
    async fn change<P: Procedure>(&self, operation: String, arguments: &P::Arguments) -> Result<P::Reply> {
        let timeout = self.inner.connection.call_timeout().saturating_add(BUSY_DOMAIN);
        self.call_within::<P>(operation, arguments, timeout).await
    }

    /// The driver, as it spells itself: `QEMU`, `CH`, `Test`.
    pub async fn driver_type(&self) -> Result<String> {
        Ok(self.call::<rpc::ConnectGetType>("get driver type", &()).await?.0)
    }

    /// The hypervisor's version.
    pub async fn hypervisor_version(&self) -> Result<Version> {
        Ok(self.call::<rpc::ConnectGetVersion>("get hypervisor version", &()).await?.0.into())
    }

    /// The daemon's version.
    pub async fn library_version(&self) -> Result<Version> {
        Ok(self.call::<rpc::ConnectGetLibVersion>("get libvirt version", &()).await?.0.into())
    }

    /// The name of the daemon's host, as the host sees it.
    pub async fn hostname(&self) -> Result<String> {
        Ok(self.call::<rpc::ConnectGetHostname>("get host name", &()).await?.0)
    }

    /// The daemon's canonical URI for what is open, such as `qemu:///system`.
    pub async fn uri(&self) -> Result<String> {
        Ok(self.call::<rpc::ConnectGetUri>("get URI", &()).await?.0)
    }

    /// The host's capabilities, as XML.
    pub async fn capabilities(&self) -> Result<String> {
        Ok(self.call::<rpc::ConnectGetCapabilities>("get capabilities", &()).await?.0)
    }

    /// What domains may be made of, as XML. The default request asks for the host's default machine.
    pub async fn domain_capabilities(&self, request: &rpc::DomainCapabilitiesArguments) -> Result<String> {
        let operation = match (&request.virt_type, &request.arch) {
            (None, None) => "get domain capabilities".into(),
            (kind, arch) => format!(
                "get domain capabilities for type {} and architecture {}",
                kind.as_deref().unwrap_or("default"),
                arch.as_deref().unwrap_or("default")
            ),
        };
        Ok(self.call::<rpc::ConnectGetDomainCapabilities>(operation, request).await?.0)
    }

    /// The host's hardware in short.
    pub async fn node_info(&self) -> Result<NodeInfo> {
        self.call::<rpc::NodeGetInfo>("get node information", &()).await
    }

    /// Free memory of the host, in bytes.
    pub async fn free_memory(&self) -> Result<u64> {
        Ok(self.call::<rpc::NodeGetFreeMemory>("get free memory", &()).await?.0)
    }

    /// Free memory of each NUMA cell, in bytes: at most `count` cells, from cell `first` on.
    pub async fn cells_free_memory(&self, first: u16, count: u16) -> Result<Vec<u64>> {
        let operation = format!("get free memory of {count} cells from {first}");
        Ok(self.call::<rpc::NodeGetCellsFreeMemory>(operation, &(first.into(), count.into())).await?.0)
    }
}

/// A version as libvirt counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first part.
    pub major: u64,
    /// The second.
    pub minor: u64,
    /// The third.
    pub release: u64,
}

impl From<u64> for Version {
    fn from(number: u64) -> Self {
        Self { major: number / 1_000_000, minor: number / 1000 % 1000, release: number % 1000 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.release)
    }
}
