//! From a stream to an open connection: who we are, what both sides can do, what to open.

use bytes::Bytes;

use super::{ConnectOptions, Connection};
use crate::{
    error::{Error, Result},
    sasl,
    uri::LibvirtUri,
    xdr::{self, Reader, Writer},
};

const CONNECT_OPEN: u32 = 1;
const CONNECT_SUPPORTS_FEATURE: u32 = 60;
const AUTH_LIST: u32 = 66;

/// Both sides answer pings.
const FEATURE_PROGRAM_KEEPALIVE: i32 = 10;
const OPEN_READ_ONLY: u32 = 1;
/// More kinds of authentication than anybody will invent.
const MAX_AUTH_TYPES: usize = 20;

const AUTH_NONE: u32 = 0;
const AUTH_SASL: u32 = 1;
const AUTH_POLKIT: u32 = 2;

pub(super) async fn open(
    connection: &Connection,
    confidential: bool,
    uri: &LibvirtUri,
    options: &ConnectOptions,
) -> Result<()> {
    authenticate(connection, confidential, uri, options).await?;
    let timeout = options.connect_timeout;

    if options.keepalive_interval.is_some() {
        let mut arguments = Writer::new();
        arguments.i32(FEATURE_PROGRAM_KEEPALIVE);
        let operation = "ask whether the daemon answers pings";
        match connection.call(CONNECT_SUPPORTS_FEATURE, arguments.into_bytes(), operation, timeout).await {
            Ok(reply) => {
                if decode(operation, &reply, Reader::i32)? != 0 {
                    connection.start_keepalive().await;
                }
            }
            // A daemon that does not know the question does not answer pings either.
            Err(error @ Error::Remote { .. }) => {
                tracing::debug!(peer = connection.peer(), %error, "no keepalive on this connection");
            }
            Err(error) => return Err(error),
        }
    }

    let name = uri.remote_name();
    let mut arguments = Writer::new();
    arguments.bool(true);
    arguments.string(&name);
    arguments.u32(if options.read_only { OPEN_READ_ONLY } else { 0 });
    connection.call(CONNECT_OPEN, arguments.into_bytes(), format!("open {name}"), timeout).await?;
    Ok(())
}

async fn authenticate(
    connection: &Connection,
    confidential: bool,
    uri: &LibvirtUri,
    options: &ConnectOptions,
) -> Result<()> {
    let operation = "ask how to authenticate";
    let reply = connection.call(AUTH_LIST, Bytes::new(), operation, options.connect_timeout).await?;
    let offered = decode(operation, &reply, |reader| {
        let count = reader.count(MAX_AUTH_TYPES, 4)?;
        (0..count).map(|_| reader.u32()).collect::<xdr::Result<Vec<_>>>()
    })?;
    if offered.is_empty() || offered.contains(&AUTH_NONE) {
        Ok(())
    } else if offered.contains(&AUTH_SASL) {
        sasl::login(connection, confidential, uri, options).await
    } else {
        let detail = if offered.contains(&AUTH_POLKIT) {
            "the daemon asks for polkit, which this client does not have; \
             set auth_unix_rw = \"none\" and guard the socket by its group, or use SASL"
                .to_owned()
        } else {
            format!("the daemon asks for an unknown kind of authentication ({offered:?})")
        };
        Err(Error::authentication(connection.peer(), detail, None))
    }
}

/// Decode a reply, or say which call it answered badly.
pub(crate) fn decode<'a, T>(
    operation: &'static str,
    reply: &'a Bytes,
    decode: impl FnOnce(&mut Reader<'a>) -> xdr::Result<T>,
) -> Result<T> {
    decode(&mut Reader::shared(reply)).map_err(|error| Error::protocol(operation, error.to_string()))
}
