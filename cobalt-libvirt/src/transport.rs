//! Getting a stream to a daemon: UNIX socket, TCP or TLS.

use std::{fmt, future::Future, io, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};

use crate::{
    connection::ConnectOptions,
    error::{Error, Result},
    uri::{LibvirtUri, Transport},
};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod tls;

/// What a connection runs over.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// A stream that is ready for the first message.
pub(crate) struct Connected {
    pub(crate) stream: Box<dyn Stream>,
    /// The daemon's address, for logs and errors.
    pub(crate) peer: String,
    /// Whether a password can be sent as it is: nobody else reads along, and the other side is who we think.
    pub(crate) confidential: bool,
}

pub(crate) async fn connect(uri: &LibvirtUri, options: &ConnectOptions) -> Result<Connected> {
    match uri.transport() {
        Transport::Unix => unix(uri, options).await,
        Transport::Tcp => {
            let stream = tcp(uri, options).await?;
            Ok(Connected { stream: Box::new(stream), peer: uri.peer(), confidential: false })
        }
        Transport::Tls => {
            // Our own files first: no need to bother the daemon when they are not in order.
            let connector = tls::Connector::new(uri, options)?;
            let stream = tcp(uri, options).await?;
            let stream = connector.handshake(stream, uri, options.connect_timeout).await?;
            Ok(Connected { stream, peer: uri.peer(), confidential: !uri.no_verify() })
        }
    }
}

async fn unix(uri: &LibvirtUri, options: &ConnectOptions) -> Result<Connected> {
    let mut attempts = Attempts::default();
    for path in uri.sockets(&options.run_dir, options.read_only) {
        let name = format!("unix {}", path.display());
        match attempt(options.connect_timeout, UnixStream::connect(&path)).await {
            Ok(stream) => return Ok(Connected { stream: Box::new(stream), peer: name, confidential: true }),
            Err(error) => attempts.0.push((path.display().to_string(), error)),
        }
    }
    Err(Error::connect(format!("connect to {}", uri.peer()), attempts))
}

async fn tcp(uri: &LibvirtUri, options: &ConnectOptions) -> Result<TcpStream> {
    let (host, port) = (uri.host(), uri.port());
    let addresses = attempt(options.connect_timeout, tokio::net::lookup_host((host, port)))
        .await
        .map_err(|error| Error::connect(format!("look up {host} for {}", uri.peer()), error))?;
    let mut attempts = Attempts::default();
    for address in addresses {
        match attempt(options.connect_timeout, TcpStream::connect(address)).await {
            Ok(stream) => {
                // Calls are small and each waits for its answer: Nagle would add his delay to every one.
                stream
                    .set_nodelay(true)
                    .map_err(|error| Error::connect(format!("set TCP_NODELAY for {}", uri.peer()), error))?;
                return Ok(stream);
            }
            Err(error) => attempts.0.push((address.to_string(), error)),
        }
    }
    Err(Error::connect(format!("connect to {}", uri.peer()), attempts))
}

async fn attempt<T>(timeout: Duration, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(timeout, step).await {
        Ok(result) => result,
        Err(_elapsed) => {
            let detail = format!("no answer within {} s", timeout.as_secs_f64());
            Err(io::Error::new(io::ErrorKind::TimedOut, detail))
        }
    }
}

/// Every address that was tried, and what each said.
#[derive(Debug, Default)]
struct Attempts(Vec<(String, io::Error)>);

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the name has no address");
        }
        for (index, (address, error)) in self.0.iter().enumerate() {
            write!(f, "{}{address}: {error}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for Attempts {}
