use std::{net::Ipv6Addr, path::PathBuf, str::FromStr};

use percent_encoding::percent_decode_str;

use super::{DaemonMode, LibvirtUri, Options, Transport};
use crate::error::Error;

/// Parameters that only concern transports we do not have, or checks we do not make. libvirt ignores them elsewhere too.
const IGNORED: &[&str] = &[
    "command",
    "auth",
    "netcat",
    "keyfile",
    "known_hosts",
    "known_hosts_verify",
    "sshauth",
    "no_sanity",
    "no_tty",
    "proxy",
];

impl FromStr for LibvirtUri {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).map_err(|detail| Error::uri(text, detail))
    }
}

fn parse(text: &str) -> Result<LibvirtUri, String> {
    let (scheme, rest) = text
        .split_once("://")
        .ok_or("expected driver[+transport]://[host][:port]/path, for instance qemu:///system")?;
    if rest.contains('#') {
        return Err("a fragment (#…) has no meaning here".into());
    }
    if let Some(bad) = rest.chars().find(|c| c.is_whitespace() || c.is_control()) {
        return Err(format!("{bad:?} must be percent-encoded"));
    }
    let (driver, named) = match scheme.split_once('+') {
        Some((driver, transport)) => (driver, Some(transport)),
        None => (scheme, None),
    };
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if driver.is_empty() || !driver.chars().all(legal) {
        return Err(format!("{driver:?} is no driver name; expected one like qemu, ch or test"));
    }
    let (location, query) = match rest.split_once('?') {
        Some((location, query)) => (location, Some(query)),
        None => (rest, None),
    };
    let (authority, path) = match location.find('/') {
        Some(at) => location.split_at(at),
        None => return Err(format!("a path is expected after the host, for instance {driver}:///system")),
    };
    let (user, host, port) = parse_authority(authority)?;
    let transport = choose_transport(named, host.is_some())?;
    if transport == Transport::Unix && !authority.is_empty() {
        return Err("a UNIX socket is on this machine: expected no host, port or user".into());
    }
    let options = parse_query(query.unwrap_or_default())?;
    if transport == Transport::Unix && path.starts_with("/session") && options.socket.is_none() {
        return Err("a session daemon has its socket in the user's runtime directory: name it by ?socket=/path".into());
    }
    Ok(LibvirtUri { driver: driver.into(), transport, user, host, port, path: path.into(), options })
}

fn choose_transport(named: Option<&str>, has_host: bool) -> Result<Transport, String> {
    match named {
        None if has_host => Ok(Transport::Tls),
        None | Some("unix") => Ok(Transport::Unix),
        Some("tcp") => Ok(Transport::Tcp),
        Some("tls") => Ok(Transport::Tls),
        Some(other @ ("ssh" | "libssh" | "libssh2" | "ext")) => {
            Err(format!("the transport {other} is not supported by this client; it has unix, tcp and tls"))
        }
        Some(other) => Err(format!("unknown transport {other:?}; expected unix, tcp or tls")),
    }
}

type Authority = (Option<String>, Option<String>, Option<u16>);

fn parse_authority(authority: &str) -> Result<Authority, String> {
    let (user, location) = match authority.rsplit_once('@') {
        Some((user, location)) => (Some(decode(user, "user")?), location),
        None => (None, authority),
    };
    if user.as_deref().is_some_and(|user| user.is_empty() || user.contains(':')) {
        return Err("the part before @ is a user name; a password does not belong into a URI".into());
    }
    let (host, port) = if let Some(bracketed) = location.strip_prefix('[') {
        let (host, after) = bracketed.split_once(']').ok_or("an IPv6 address is closed by ]")?;
        let address = host.split_once('%').map_or(host, |(address, _zone)| address);
        if address.parse::<Ipv6Addr>().is_err() {
            return Err(format!("[{host}] is no IPv6 address"));
        }
        let port = match after {
            "" => None,
            after => Some(after.strip_prefix(':').ok_or("after ] only a :port may follow")?),
        };
        (host, port)
    } else {
        match location.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (location, None),
        }
    };
    if port.is_some_and(|port| port.contains(':')) {
        return Err("an IPv6 address stands in brackets, [::1]".into());
    }
    let ipv6 = location.starts_with('[');
    if !ipv6 && !host.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '.' | '_')) {
        return Err(format!("{host:?} is no host name"));
    }
    let port = match port {
        None => None,
        Some(port) => match port.parse::<u16>() {
            Ok(number) if number > 0 && port.bytes().all(|b| b.is_ascii_digit()) => Some(number),
            _ => return Err(format!("{port:?} is no port; expected 1 to 65535")),
        },
    };
    Ok((user, (!host.is_empty()).then(|| host.to_owned()), port))
}

fn parse_query(query: &str) -> Result<Options, String> {
    let mut options = Options::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (key, value) = (decode(key, "parameter name")?, decode(value, key)?);
        match key.as_str() {
            "socket" => options.socket = Some(absolute(&key, value)?),
            "pkipath" => options.pki_path = Some(absolute(&key, value)?),
            "no_verify" => options.no_verify = flag(&key, &value)?,
            "name" if value.is_empty() => return Err("name= is empty".into()),
            "name" => options.name = Some(value),
            "mode" => {
                options.mode = match value.as_str() {
                    "auto" => DaemonMode::Auto,
                    "legacy" => DaemonMode::Legacy,
                    "direct" => DaemonMode::Direct,
                    other => return Err(format!("mode={other} is unknown; expected auto, legacy or direct")),
                }
            }
            "tls_priority" => return Err("tls_priority is a GnuTLS setting and not supported by this client".into()),
            ignored if IGNORED.contains(&ignored) => {}
            _ => options.rest.push((key, value)),
        }
    }
    Ok(options)
}

fn absolute(key: &str, value: String) -> Result<PathBuf, String> {
    if value.starts_with('/') { Ok(value.into()) } else { Err(format!("{key}={value} is not an absolute path")) }
}

fn flag(key: &str, value: &str) -> Result<bool, String> {
    // Any other number is true to libvirt as well.
    value.parse::<i64>().map(|number| number != 0).map_err(|_| format!("{key}={value}; expected 0 or 1"))
}

fn decode(text: &str, what: &str) -> Result<String, String> {
    match percent_decode_str(text).decode_utf8() {
        Ok(text) if text.contains('\0') => Err(format!("a NUL in {what}")),
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(format!("the percent-encoding in {what} is not UTF-8")),
    }
}
