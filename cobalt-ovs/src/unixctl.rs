//! The daemons' control sockets: JSON-RPC with a question and a text for an answer.
//!
//! A socket is found by the daemon's pidfile and never by what lies in the directory: a daemon that was killed leaves
//! its socket behind. Every call opens a connection of its own and has a short timeout, because a daemon that does not
//! answer is what one wants to find out.

use std::{
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use cobalt_core::ovs::Daemon;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use crate::{
    error::{Error, Result},
    jsonrpc::{Framer, Message},
    show,
};

#[cfg(all(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
mod tests;

/// How long to wait before knocking again where too many others knock.
const KNOCK: Duration = Duration::from_millis(50);

/// The way to one daemon's control socket.
///
/// ```no_run
/// use cobalt_ovs::unixctl::Unixctl;
///
/// # async fn example() -> cobalt_ovs::Result<()> {
/// let switch = Unixctl::new("/run/openvswitch", "ovs-vswitchd");
/// println!("{:?}", switch.daemon().await);
/// println!("{}", switch.call("bond/show", &["bond0"]).await?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Unixctl {
    run_dir: PathBuf,
    name: String,
    timeout: Duration,
    max_reply: usize,
}

impl Unixctl {
    /// The daemon with this name whose pidfile is in this directory.
    pub fn new(run_dir: impl Into<PathBuf>, name: impl Into<String>) -> Self {
        Self { run_dir: run_dir.into(), name: name.into(), timeout: Duration::from_secs(2), max_reply: 16 << 20 }
    }

    /// How long a call may take in all. 2 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The longest answer accepted. 16 MiB.
    pub fn max_reply(mut self, bytes: usize) -> Self {
        self.max_reply = bytes.max(1024);
        self
    }

    /// The daemon's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the daemon's socket would be, likeliest first: named by the process id, as daemons do by themselves, or
    /// under a fixed name.
    pub fn sockets(&self) -> Vec<PathBuf> {
        let fixed = self.run_dir.join(format!("{}.ctl", self.name));
        let pid = pid(&self.run_dir.join(format!("{}.pid", self.name)));
        let own = pid.map(|pid| self.run_dir.join(format!("{}.{pid}.ctl", self.name)));
        own.into_iter().chain([fixed]).collect()
    }

    /// Calls a command and gives its text.
    ///
    /// [`Error::Absent`] is a daemon that does not run, [`Error::Timeout`] one that hangs, [`Error::Socket`] one whose
    /// socket we cannot use, and [`Error::Refused`] one that does not like the command or its arguments.
    pub async fn call(&self, command: &str, arguments: &[&str]) -> Result<String> {
        let operation = || {
            let words: Vec<&str> = std::iter::once(command).chain(arguments.iter().copied()).collect();
            format!("{} of {}", words.join(" "), self.name)
        };
        match tokio::time::timeout(self.timeout, self.exchange(command, arguments, &operation)).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(Error::timeout(operation(), self.timeout)),
        }
    }

    /// How the daemon answers.
    pub async fn daemon(&self) -> Daemon {
        match self.call("version", &[]).await {
            Ok(text) => Daemon::Responsive { version: show::version(&text) },
            Err(Error::Refused { .. } | Error::Protocol { .. }) => Daemon::Responsive { version: None },
            Err(Error::Absent { .. }) => Daemon::Absent,
            Err(Error::Socket { cause, .. }) => Daemon::Inaccessible { why: cause.kind().to_string() },
            Err(error) => {
                tracing::debug!(daemon = self.name, error = crate::error::chain(&error), "no answer");
                Daemon::Unresponsive
            }
        }
    }

    async fn exchange(&self, command: &str, arguments: &[&str], operation: &impl Fn() -> String) -> Result<String> {
        let mut stream = self.connect(operation).await?;
        let broken = |error: io::Error| Error::connect(operation(), error);
        let request = json!({ "id": 0, "method": command, "params": arguments }).to_string();
        stream.write_all(request.as_bytes()).await.map_err(broken)?;
        let (mut framer, mut buffer) = (Framer::new(self.max_reply), BytesMut::new());
        loop {
            let wrong = |detail: String| Error::protocol(operation(), detail);
            if let Some(message) = framer.next(&mut buffer).map_err(|error| wrong(error.to_string()))? {
                return match read_reply(&message).map_err(|error| wrong(crate::error::chain(&error)))? {
                    Ok(text) => Ok(text),
                    Err(text) => Err(Error::refused(operation(), text.trim_end(), None)),
                };
            }
            buffer.reserve(8 * 1024);
            if stream.read_buf(&mut buffer).await.map_err(broken)? == 0 {
                return Err(broken(ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    async fn connect(&self, operation: &impl Fn() -> String) -> Result<UnixStream> {
        let mut last = io::Error::from(ErrorKind::NotFound);
        for path in self.sockets() {
            loop {
                match UnixStream::connect(&path).await {
                    Ok(stream) => return Ok(stream),
                    // A daemon that hangs leaves callers waiting until there is no room for more.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::time::sleep(KNOCK).await,
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                        last = error;
                        break;
                    }
                    Err(cause) => {
                        return Err(Error::Socket { operation: operation().into(), path: path.clone(), cause });
                    }
                }
            }
        }
        Err(Error::absent(operation(), last))
    }
}

/// Reads a whole reply of a control socket: the text, or the text of the error.
pub fn read_reply(message: &Bytes) -> Result<Result<String, String>, crate::jsonrpc::MessageError> {
    match Message::parse(message)? {
        Message::Reply { answer: Err(error), .. } => Ok(Err(error.to_string())),
        Message::Reply { answer: Ok(result), .. } => {
            // A daemon that was told to answer in JSON answers with something else than text.
            let text = serde_json::from_slice::<Option<String>>(&result).map(Option::unwrap_or_default);
            Ok(Ok(text.unwrap_or_else(|_| String::from_utf8_lossy(&result).into_owned())))
        }
        Message::Request { .. } | Message::Notification { .. } => Err(crate::jsonrpc::MessageError::Neither),
    }
}

fn pid(path: &Path) -> Option<u32> {
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
