//! One connection to one bridge.

use std::{path::Path, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::UnixStream,
    time::timeout,
};

use super::{
    Error, Result,
    message::{self, Message, kind},
    multipart::{self, Reply},
    stats::{GroupStats, PortStats, TableStats},
    version::{self, Version},
    wire::Reader,
};

/// More entries than any bridge has; an answer with more is refused.
const MAX_ENTRIES: usize = 65_536;

/// How a connection behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How long a call may take. Of a flow dump: how long the next piece may take.
    pub timeout: Duration,
}

impl Default for Options {
    /// Five seconds: a table's counters take milliseconds, and a switch that needs longer has a problem.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(5) }
    }
}

/// A connection to a bridge's management socket, `<rundir>/<bridge>.mgmt`.
///
/// One call at a time. After an error other than [`Error::Refused`] the connection is of no use any more.
///
/// ```no_run
/// use cobalt_ovs::openflow::{OpenFlow, Options, flow_counts};
///
/// async fn flows() -> Result<u64, cobalt_ovs::openflow::Error> {
///     let mut bridge = OpenFlow::connect("/run/openvswitch/br-int.mgmt", Options::default()).await?;
///     Ok(flow_counts(&bridge.table_stats().await?).values().sum())
/// }
/// ```
#[derive(Debug)]
pub struct OpenFlow<S = UnixStream> {
    stream: S,
    buffer: BytesMut,
    peer: String,
    version: Version,
    options: Options,
    xid: u32,
}

impl OpenFlow<UnixStream> {
    /// Connects to the socket at `path`.
    pub async fn connect(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let path = path.as_ref();
        let peer = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let operation = || format!("open OpenFlow to {}", path.display());
        let stream = match timeout(options.timeout, UnixStream::connect(path)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(cause)) => return Err(Error::Connect { operation: operation(), cause }),
            Err(_) => return Err(Error::Timeout { operation: operation(), after: options.timeout }),
        };
        Self::handshake(stream, peer, options).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> OpenFlow<S> {
    /// Agrees on a version over any stream. `peer` names the bridge in errors.
    pub async fn handshake(stream: S, peer: impl Into<String>, options: Options) -> Result<Self> {
        let peer = peer.into();
        let operation = format!("greet {peer}");
        let buffer = BytesMut::new();
        let mut this = Self { stream, buffer, peer, version: Version::V1_5, options, xid: 0 };
        match timeout(options.timeout, this.greet(&operation)).await {
            Ok(result) => result.map(|()| this),
            Err(_) => Err(Error::Timeout { operation, after: options.timeout }),
        }
    }

    /// The version agreed on.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The bridge, as it is named in errors.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    pub(crate) fn options(&self) -> Options {
        self.options
    }

    async fn greet(&mut self, operation: &str) -> Result<()> {
        let xid = self.next_xid();
        self.send(operation, &Message::new(Version::V1_5.wire(), kind::HELLO, xid, version::hello())).await?;
        loop {
            let message = self.receive(operation).await?;
            match message.kind {
                kind::HELLO => {
                    self.version = version::agree(message.version, &message.body)
                        .map_err(|detail| Error::Version { operation: operation.to_owned(), detail })?;
                    return Ok(());
                }
                kind::ERROR => {
                    let detail = multipart::error(operation, &message.body).to_string();
                    return Err(Error::Version { operation: operation.to_owned(), detail });
                }
                // It speaks before it greets; its greeting may still come.
                _ => {}
            }
        }
    }

    fn next_xid(&mut self) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        self.xid
    }

    async fn send(&mut self, operation: &str, message: &Message) -> Result<()> {
        let mut wire = BytesMut::new();
        message.encode(&mut wire);
        let sent = self.stream.write_all(&wire).await;
        sent.map_err(|cause| Error::Closed { operation: operation.to_owned(), cause: Some(cause) })
    }

    /// The next message that is not a question whether we are there.
    async fn receive(&mut self, operation: &str) -> Result<Message> {
        loop {
            let message = match message::read(&mut self.stream, &mut self.buffer).await {
                Ok(Some(message)) => message,
                Ok(None) => return Err(Error::Closed { operation: operation.to_owned(), cause: None }),
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    return Err(Error::Protocol { operation: operation.to_owned(), detail: error.to_string() });
                }
                Err(cause) => return Err(Error::Closed { operation: operation.to_owned(), cause: Some(cause) }),
            };
            if message.kind != kind::ECHO_REQUEST {
                return Ok(message);
            }
            let reply = Message { kind: kind::ECHO_REPLY, ..message };
            self.send(operation, &reply).await?;
        }
    }

    /// Asks whether the bridge is there, and waits for its answer.
    pub async fn echo(&mut self) -> Result<()> {
        let operation = format!("echo to {}", self.peer);
        let after = self.options.timeout;
        let call = async {
            let xid = self.next_xid();
            let question = Message::new(self.version.wire(), kind::ECHO_REQUEST, xid, Bytes::new());
            self.send(&operation, &question).await?;
            loop {
                let message = self.receive(&operation).await?;
                match message.kind {
                    kind::ECHO_REPLY if message.xid == xid => return Ok(()),
                    kind::ERROR if message.xid == xid => return Err(multipart::error(&operation, &message.body)),
                    _ => {}
                }
            }
        };
        match timeout(after, call).await {
            Ok(result) => result,
            Err(_) => Err(Error::Timeout { operation, after }),
        }
    }

    /// Asks for statistics of a kind; the replies are to be read one by one.
    pub(crate) async fn request(&mut self, operation: &str, what: u16, body: &[u8]) -> Result<u32> {
        let xid = self.next_xid();
        let mut request = BytesMut::with_capacity(8 + body.len());
        request.put_u16(what);
        request.put_bytes(0, 6);
        request.put_slice(body);
        let message = Message::new(self.version.wire(), kind::MULTIPART_REQUEST, xid, request);
        self.send(operation, &message).await?;
        Ok(xid)
    }

    /// The next reply to the request `xid`. Everything else a switch may say unasked is passed over.
    pub(crate) async fn reply(&mut self, operation: &str, xid: u32, what: u16) -> Result<Reply> {
        loop {
            let message = self.receive(operation).await?;
            if message.xid != xid {
                continue;
            }
            match message.kind {
                kind::MULTIPART_REPLY => return Reply::read(operation, what, &message.body),
                kind::ERROR => return Err(multipart::error(operation, &message.body)),
                _ => {}
            }
        }
    }

    /// All entries of all replies, which must be few.
    async fn entries<T>(
        &mut self,
        operation: String,
        what: u16,
        body: &[u8],
        read: impl Fn(&mut Reader<'_>, Version) -> Option<T>,
    ) -> Result<Vec<T>> {
        let after = self.options.timeout;
        let call = async {
            let xid = self.request(&operation, what, body).await?;
            let mut entries = Vec::new();
            loop {
                let reply = self.reply(&operation, xid, what).await?;
                let mut from = Reader::new(&reply.body);
                while !from.is_empty() {
                    let Some(entry) = read(&mut from, self.version) else {
                        let detail = format!("entry {} is not whole", entries.len());
                        return Err(Error::Protocol { operation: operation.clone(), detail });
                    };
                    entries.push(entry);
                    if entries.len() > MAX_ENTRIES {
                        let detail = format!("more than {MAX_ENTRIES} entries");
                        return Err(Error::Protocol { operation: operation.clone(), detail });
                    }
                }
                if !reply.more {
                    return Ok(entries);
                }
            }
        };
        match timeout(after, call).await {
            Ok(result) => result,
            Err(_) => Err(Error::Timeout { operation, after }),
        }
    }

    /// What the bridge counts about its tables: the cheap way to count flows.
    pub async fn table_stats(&mut self) -> Result<Vec<TableStats>> {
        let operation = format!("read the tables of {}", self.peer);
        self.entries(operation, multipart::TABLES, &[], |from, _| TableStats::read(from)).await
    }

    /// What the bridge counts about its ports.
    pub async fn port_stats(&mut self) -> Result<Vec<PortStats>> {
        let operation = format!("read the ports of {}", self.peer);
        let any = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        self.entries(operation, multipart::PORTS, &any, PortStats::read).await
    }

    /// What the bridge counts about its groups.
    pub async fn group_stats(&mut self) -> Result<Vec<GroupStats>> {
        let operation = format!("read the groups of {}", self.peer);
        let all = [0xff, 0xff, 0xff, 0xfc, 0, 0, 0, 0];
        self.entries(operation, multipart::GROUPS, &all, |from, _| GroupStats::read(from)).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
