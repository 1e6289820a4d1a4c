//! Where a database is: `unix:/run/openvswitch/db.sock`, `tcp:10.0.0.1:6642`, `ssl:sb.example:6642`.

use std::{fmt, path::PathBuf, str::FromStr};

use crate::error::Error;

/// The port of a database server that names none.
const DEFAULT_PORT: u16 = 6640;

/// One address, written as `ovs-vsctl --db` and OVN's `ovn-remote` write it.
///
/// ```
/// use cobalt_ovs::Remote;
///
/// let remote: Remote = "ssl:[2001:db8::1]:6642".parse()?;
/// assert_eq!(remote, Remote::Ssl { host: "2001:db8::1".into(), port: 6642 });
/// assert_eq!(remote.to_string(), "ssl:[2001:db8::1]:6642");
/// assert_eq!(Remote::list("ssl:10.0.0.1:6642,ssl:10.0.0.2:6642")?.len(), 2);
/// # Ok::<(), cobalt_ovs::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Remote {
    /// A UNIX socket.
    Unix(PathBuf),
    /// TCP, for trusted networks.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// TLS, with a client certificate where the server asks for one.
    Ssl {
        /// A name or an address; the server's certificate must be for it, unless told otherwise.
        host: String,
        /// The port.
        port: u16,
    },
}

impl Remote {
    /// A UNIX socket.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::Unix(path.into())
    }

    /// The members of a cluster, separated by commas.
    pub fn list(text: &str) -> Result<Vec<Self>, Error> {
        let remotes: Vec<Self> = text
            .split(',')
            .map(str::trim)
            .filter(|remote| !remote.is_empty())
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        if remotes.is_empty() { Err(Error::address(text, "there is no address")) } else { Ok(remotes) }
    }
}

impl FromStr for Remote {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |detail: &str| Error::address(text, detail);
        let (scheme, rest) =
            text.split_once(':').ok_or_else(|| wrong("write unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT"))?;
        match scheme {
            "unix" if rest.is_empty() => Err(wrong("the path is missing")),
            "unix" => Ok(Self::Unix(rest.into())),
            "tcp" | "ssl" => {
                let (host, port) = host_and_port(rest).ok_or_else(|| wrong("write HOST:PORT or [ADDRESS]:PORT"))?;
                Ok(if scheme == "tcp" { Self::Tcp { host, port } } else { Self::Ssl { host, port } })
            }
            "punix" | "ptcp" | "pssl" => Err(wrong("this is where a server listens, not where one is reached")),
            _ => Err(wrong("the scheme must be unix, tcp or ssl")),
        }
    }
}

fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
    } else {
        match text.split_once(':') {
            // An address of version 6 without brackets has no port that could be told from it.
            Some((_, rest)) if rest.contains(':') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port != 0)?,
        None => DEFAULT_PORT,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match self {
            Self::Unix(path) => return write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } => ("tcp", host, port),
            Self::Ssl { host, port } => ("ssl", host, port),
        };
        if host.contains(':') { write!(f, "{scheme}:[{host}]:{port}") } else { write!(f, "{scheme}:{host}:{port}") }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_the_same() {
        for text in ["unix:/run/ovn/ovnsb_db.sock", "tcp:127.0.0.1:6640", "ssl:sb.example:6642", "tcp:[::1]:6640"] {
            assert_eq!(text.parse::<Remote>().unwrap().to_string(), text);
        }
        assert_eq!("tcp:::1".parse::<Remote>().unwrap().to_string(), "tcp:[::1]:6640");
        assert_eq!("ssl:a".parse::<Remote>().unwrap().to_string(), "ssl:a:6640");
    }

    #[test]
    fn what_cannot_work_says_what_would() {
        for text in ["", "/run/db.sock", "unix:", "tcp:", "tcp:a:b", "tcp:a:0", "tcp:a:70000", "tcp:[::1", "http://a"] {
            assert_eq!(text.parse::<Remote>().unwrap_err().category(), "address", "{text}");
        }
        let error = "punix:/run/db.sock".parse::<Remote>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "address \"punix:/run/db.sock\": this is where a server listens, not where one is reached"
        );
        assert!(Remote::list(" , ").is_err());
    }
}
