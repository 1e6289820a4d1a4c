//! Which libvirt an agent talks to.

use std::{io, net::IpAddr, path::PathBuf};

use clap::{Args as ClapArgs, ValueEnum};

use crate::runtime::args::path;

const HEADING: &str = "Hypervisor";

/// Where libvirt is, in the words of the flags and of the environment of earlier agents.
///
/// ```text
///   --libvirt-uri    the URI; one that is local and names no socket is completed with --libvirt-socket
///   --libvirt-socket that socket
///   --node-ip        <driver>+tcp://NODE_IP:16509/system
///   none of them     <driver>:///system, by the usual sockets of this machine
/// ```
#[derive(ClapArgs, Clone, Debug, Default)]
#[group(skip)]
pub struct LibvirtArgs {
    /// Connection URI of libvirt, such as `qemu:///system`, `qemu+tls://node-1/system` or `ch+unix:///system?socket=PATH`
    /// [default: by the socket or the address below]
    #[arg(long, env = "LIBVIRT_DEFAULT_URI", value_name = "URI", help_heading = HEADING)]
    pub libvirt_uri: Option<String>,

    /// Socket of libvirt on this machine, for a URI that names neither host nor socket, or none
    #[arg(long, env = "LIBVIRT_SOCKET", value_name = "PATH", help_heading = HEADING)]
    pub libvirt_socket: Option<String>,

    /// Address of this node; without URI and socket libvirt is expected there, on TCP port 16509 [default: the
    /// address of `--host-ip-address`]
    #[arg(long, env = "NODE_IP", value_name = "IP", value_parser = host, help_heading = HEADING)]
    pub node_ip: Option<String>,

    /// Driver of libvirt where no URI names one [default: as the Node's virt-driver label says, `qemu` without one]
    #[arg(long, value_enum, value_name = "DRIVER", help_heading = HEADING)]
    pub driver: Option<LibvirtDriver>,

    /// User to log in as where libvirt asks for it by SASL [default: the user in the URI]
    #[arg(long, env = "LIBVIRT_USERNAME", value_name = "NAME", help_heading = HEADING)]
    pub libvirt_username: Option<String>,

    /// File with the password of that user, such as one of a mounted Secret; a line break at its end is not part of it
    #[arg(long, env = "LIBVIRT_PASSWORD_FILE", value_parser = path, value_name = "FILE", help_heading = HEADING)]
    pub libvirt_password_file: Option<PathBuf>,
}

/// A driver of libvirt.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LibvirtDriver {
    /// QEMU and KVM.
    Qemu,
    /// Cloud Hypervisor.
    Ch,
}

impl LibvirtDriver {
    /// What the value of a Node's virt-driver label means.
    pub fn from_label(value: &str) -> Self {
        if matches!(value, "ch" | "cloud-hypervisor") { Self::Ch } else { Self::Qemu }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Ch => "ch",
        }
    }
}

/// An address or a host name, empty as in an environment that is set to nothing.
fn host(text: &str) -> Result<String, String> {
    if text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-' | '_' | '%')) {
        return Ok(text.to_owned());
    }
    Err("expected an address such as 192.0.2.1 or 2001:db8::1".to_owned())
}

fn given(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

impl LibvirtArgs {
    /// Whether the Node's virt-driver label makes a difference.
    pub fn wants_label(&self) -> bool {
        self.driver.is_none() && given(self.libvirt_uri.as_ref()).is_none()
    }

    /// The same, where this node has that address unless another was given.
    #[must_use]
    pub fn or_address(&self, address: Option<IpAddr>) -> Self {
        let given = given(self.node_ip.as_ref()).map(str::to_owned);
        Self { node_ip: given.or_else(|| address.map(|address| address.to_string())), ..self.clone() }
    }

    /// The URI, for a Node with this virt-driver label.
    pub fn uri(&self, label: Option<&str>) -> String {
        let by_label = || label.map_or(LibvirtDriver::Qemu, LibvirtDriver::from_label);
        let driver = self.driver.unwrap_or_else(by_label).name();
        let socket = given(self.libvirt_socket.as_ref());
        match (given(self.libvirt_uri.as_ref()), socket, given(self.node_ip.as_ref())) {
            (Some(uri), Some(socket), _) => with_socket(uri, socket),
            (Some(uri), None, _) => uri.to_owned(),
            (None, Some(socket), _) => with_socket(&format!("{driver}:///system"), socket),
            (None, None, Some(address)) => format!("{driver}+tcp://{}:16509/system", bracketed(address)),
            (None, None, None) => format!("{driver}:///system"),
        }
    }

    /// Name and password for a login, if there is a password. The name is empty where only the URI has one.
    pub fn credentials(&self) -> io::Result<Option<(String, String)>> {
        let Some(file) = self.libvirt_password_file.as_deref().filter(|file| !file.as_os_str().is_empty()) else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(file).map_err(|error| {
            io::Error::new(error.kind(), format!("read the password of libvirt from {}: {error}", file.display()))
        })?;
        let password = text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
        Ok(Some((given(self.libvirt_username.as_ref()).unwrap_or_default().to_owned(), password.to_owned())))
    }

    /// Why a connection by this URI could be overheard or forged: plain TCP to another machine than this node. Other
    /// names of this node are its address, its loopback and its own name.
    pub fn insecure(&self, uri: &str, node_name: &str) -> Option<String> {
        let (scheme, rest) = uri.split_once("://")?;
        if scheme.rsplit_once('+').is_none_or(|(_, transport)| transport != "tcp") {
            return None;
        }
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let host = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            Some((inside, _)) => inside,
            None => host.split_once(':').map_or(host, |(host, _)| host),
        };
        let address: Option<IpAddr> = host.parse().ok();
        let same = |other: &str| match (address, other.parse::<IpAddr>()) {
            (Some(address), Ok(other)) => address == other,
            _ => host.eq_ignore_ascii_case(other),
        };
        let own = host.is_empty()
            || host.eq_ignore_ascii_case("localhost")
            || address.is_some_and(|address| address.is_loopback())
            || same(node_name)
            || given(self.node_ip.as_ref()).is_some_and(same);
        (!own).then(|| {
            format!("libvirt is spoken to at {host} over plain TCP, which is not this node: use +tls or a socket")
        })
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Names the socket in a URI of this machine that does not name one.
fn with_socket(uri: &str, socket: &str) -> String {
    let Some((scheme, rest)) = uri.split_once("://") else { return uri.to_owned() };
    let (driver, transport) = scheme.split_once('+').unwrap_or((scheme, "unix"));
    if transport != "unix" || !rest.starts_with('/') || rest.contains("socket=") {
        return uri.to_owned();
    }
    let sign = if rest.contains('?') { '&' } else { '?' };
    // What would end the value is escaped; everything else a path is made of may stand in a query.
    let socket = socket.replace('%', "%25").replace('&', "%26").replace('#', "%23").replace(' ', "%20");
    format!("{driver}+unix://{rest}{sign}socket={socket}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn args(uri: &str, socket: &str, ip: &str) -> LibvirtArgs {
        let some = |text: &str| Some(text.to_owned()); // empty is what an empty variable gives
        LibvirtArgs {
            libvirt_uri: some(uri),
            libvirt_socket: some(socket),
            node_ip: some(ip),
            ..LibvirtArgs::default()
        }
    }

    #[test]
    fn a_uri_comes_before_a_socket_before_an_address_before_this_machine() {
        let sock = "/run/libvirt/libvirt-sock";
        for (args, expected) in [
            (args("test+tcp://h/default", sock, "192.0.2.1"), "test+tcp://h/default"),
            (args("ch:///system", sock, "192.0.2.1"), "ch+unix:///system?socket=/run/libvirt/libvirt-sock"),
            (
                args("qemu:///system?mode=direct", sock, ""),
                "qemu+unix:///system?mode=direct&socket=/run/libvirt/libvirt-sock",
            ),
            (args("qemu:///system?socket=/a", sock, ""), "qemu:///system?socket=/a"),
            (args("", sock, "192.0.2.1"), "qemu+unix:///system?socket=/run/libvirt/libvirt-sock"),
            (args("", "", "192.0.2.1"), "qemu+tcp://192.0.2.1:16509/system"),
            (args("", "", "2001:db8::1"), "qemu+tcp://[2001:db8::1]:16509/system"),
            (args("", "", ""), "qemu:///system"),
        ] {
            assert_eq!(args.uri(None), expected, "{args:?}");
        }
        let other = "192.0.2.7".parse().ok();
        assert_eq!(args("", "", "").or_address(other).uri(None), "qemu+tcp://192.0.2.7:16509/system");
        assert_eq!(args("", "", "192.0.2.1").or_address(other).uri(None), "qemu+tcp://192.0.2.1:16509/system");
    }

    #[test]
    fn the_driver_is_the_flags_then_the_labels_then_qemu() {
        let plain = args("", "", "192.0.2.1");
        assert!(plain.wants_label());
        assert_eq!(plain.uri(Some("ch")), "ch+tcp://192.0.2.1:16509/system");
        assert_eq!(plain.uri(Some("kvm")), "qemu+tcp://192.0.2.1:16509/system");
        let flag = LibvirtArgs { driver: Some(LibvirtDriver::Ch), ..plain };
        assert!(!flag.wants_label());
        assert_eq!(flag.uri(Some("kvm")), "ch+tcp://192.0.2.1:16509/system");
        assert!(!args("qemu:///system", "", "").wants_label());
    }

    #[test]
    fn plain_tcp_is_fine_on_the_node_itself_and_nowhere_else() {
        let args = args("", "", "192.0.2.1");
        for fine in [
            "qemu:///system",
            "qemu+tls://192.0.2.9/system",
            "qemu+unix:///system?socket=/a+tcp://b",
            "qemu+tcp://192.0.2.1:16509/system",
            "qemu+tcp://127.0.0.1/system",
            "qemu+tcp://[::1]:16509/system",
            "ch+tcp://user@LOCALHOST/system",
            "qemu+tcp://node-1/system",
            "qemu+tcp:///system",
        ] {
            assert_eq!(args.insecure(fine, "node-1"), None, "{fine}");
        }
        for open in ["qemu+tcp://192.0.2.9:16509/system", "ch+tcp://[2001:db8::1]/system", "qemu+tcp://node-10/system"]
        {
            assert!(args.insecure(open, "node-1").is_some_and(|why| why.contains("plain TCP")), "{open}");
        }
    }

    #[test]
    fn a_password_comes_from_its_file_without_the_end_of_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        for (text, password) in [("secret\n", "secret"), ("secret", "secret"), (" two\n\r\n", " two\n"), ("", "")] {
            std::fs::write(&file, text).unwrap();
            let args = LibvirtArgs {
                libvirt_username: Some("agent".into()),
                libvirt_password_file: Some(file.clone()),
                ..LibvirtArgs::default()
            };
            assert_eq!(args.credentials().unwrap(), Some(("agent".to_owned(), password.to_owned())), "{text:?}");
        }
        assert_eq!(LibvirtArgs::default().credentials().unwrap(), None);
        let gone = LibvirtArgs { libvirt_password_file: Some(folder.path().join("none")), ..LibvirtArgs::default() };
        assert!(gone.credentials().unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn an_address_that_would_change_the_uri_is_refused() {
        for bad in ["192.0.2.1/x", "a@b", "a?b", "a b"] {
            assert!(host(bad).is_err(), "{bad}");
        }
        assert!(host("").is_ok() && host("fe80::1%eth0").is_ok());
    }
}
