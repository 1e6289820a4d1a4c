//! Getting a stream to a server: UNIX socket, TCP or TLS.

use std::{fmt, future::Future, io, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};

use crate::{
    error::{Error, Result},
    options::ConnectOptions,
    remote::Remote,
};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod tls;

/// What a connection runs over.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

pub(crate) async fn connect(remote: &Remote, options: &ConnectOptions) -> Result<Box<dyn Stream>> {
    match remote {
        Remote::Unix(path) => {
            let stream = attempt(options.connect_timeout, UnixStream::connect(path)).await;
            Ok(Box::new(stream.map_err(|error| Error::connect(format!("connect to {remote}"), error))?))
        }
        Remote::Tcp { host, port } => Ok(Box::new(tcp(host, *port, remote, options).await?)),
        Remote::Ssl { host, port } => {
            // Our own files first: no need to bother the server when they are not in order.
            let connector = tls::Connector::new(host, remote, options)?;
            let stream = tcp(host, *port, remote, options).await?;
            connector.handshake(stream, remote, options.connect_timeout).await
        }
    }
}

async fn tcp(host: &str, port: u16, remote: &Remote, options: &ConnectOptions) -> Result<TcpStream> {
    let addresses = attempt(options.connect_timeout, tokio::net::lookup_host((host, port)))
        .await
        .map_err(|error| Error::connect(format!("look up {host} for {remote}"), error))?;
    let mut attempts = Attempts::default();
    for address in addresses {
        match attempt(options.connect_timeout, TcpStream::connect(address)).await {
            Ok(stream) => {
                // Calls are small and each waits for its answer: Nagle would add his delay to every one.
                stream
                    .set_nodelay(true)
                    .map_err(|error| Error::connect(format!("set TCP_NODELAY for {remote}"), error))?;
                return Ok(stream);
            }
            Err(error) => attempts.0.push((address.to_string(), error)),
        }
    }
    Err(Error::connect(format!("connect to {remote}"), attempts))
}

pub(crate) async fn attempt<T>(timeout: Duration, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
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
