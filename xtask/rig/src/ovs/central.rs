//! OVN's databases and northd.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::error::{Result, create};
use crate::namespace::Namespace;
use crate::network::Network;
use crate::ovs::daemon::Daemon;
use crate::pki::Authority;
use crate::place::Place;
use crate::process;

/// How one database is reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// By its socket in the file system.
    #[default]
    Unix,
    /// Over plain TCP.
    Tcp,
    /// Over TLS with a client's certificate.
    Ssl,
}

const TCP_PORT: u16 = 6642;
const SSL_PORT: u16 = 16642;

#[derive(Debug)]
pub(crate) struct Central {
    pub(crate) namespace: Namespace,
    pub(crate) northbound: Daemon,
    pub(crate) southbound: Daemon,
    pub(crate) northd: Daemon,
    directory: PathBuf,
    address: String,
}

impl Central {
    /// Host number `number` on the network.
    pub(crate) fn start(place: &Place, network: &Network, authority: &Authority, number: u8) -> Result<Central> {
        let directory = place.directory().join("central");
        create(&directory)?;
        let namespace = Namespace::new()?;
        let address = network.connect(place, number, &namespace)?;
        authority.server(&directory.join("pki"), &[&address])?;
        let at = |file: &str| directory.join(file).display().to_string();
        let mut southbound = tls(&directory.join("pki"));
        southbound.push(format!("--remote=ptcp:{TCP_PORT}:{address}"));
        southbound.push(format!("--remote=pssl:{SSL_PORT}:{address}"));
        let database = |name: &str, more: &[String]| {
            process::run(
                "ovsdb-tool",
                ["create", &at(&format!("{name}.db")), &format!("/usr/share/ovn/ovn-{name}.ovsschema")],
            )?;
            let mut arguments = vec![at(&format!("{name}.db"))];
            arguments.push(format!("--remote=punix:{}", at(&format!("{name}.sock"))));
            arguments.push(format!("--unixctl={}", at(&format!("{name}.ctl"))));
            arguments.extend_from_slice(more);
            let daemon = Daemon::new("ovsdb-server", &directory, name, &arguments);
            daemon.start(&namespace)?;
            Ok::<_, crate::Error>(daemon)
        };
        let (northbound, southbound) = (database("nb", &[])?, database("sb", &southbound)?);
        let arguments = [
            format!("--ovnnb-db=unix:{}", at("nb.sock")),
            format!("--ovnsb-db=unix:{}", at("sb.sock")),
            format!("--unixctl={}", at("northd.ctl")),
        ];
        let northd = Daemon::new("ovn-northd", &directory, "northd", &arguments);
        let central = Central { namespace, northbound, southbound, northd, directory: directory.clone(), address };
        central.nbctl(["init"])?;
        central.sbctl(["init"])?;
        central.northd.start(&central.namespace)?;
        Ok(central)
    }

    /// The southbound database.
    pub(crate) fn remote(&self, way: Way) -> String {
        match way {
            Way::Unix => format!("unix:{}", self.directory.join("sb.sock").display()),
            Way::Tcp => format!("tcp:{}:{TCP_PORT}", self.address),
            Way::Ssl => format!("ssl:{}:{SSL_PORT}", self.address),
        }
    }

    pub(crate) fn nbctl<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Result<String> {
        self.control("ovn-nbctl", "nb.sock", arguments)
    }

    pub(crate) fn sbctl<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Result<String> {
        self.control("ovn-sbctl", "sb.sock", arguments)
    }

    fn control<I: IntoIterator<Item: AsRef<OsStr>>>(
        &self,
        program: &str,
        socket: &str,
        arguments: I,
    ) -> Result<String> {
        let database = format!("--db=unix:{}", self.directory.join(socket).display());
        let head = [database.as_str(), "--no-leader-only", "--timeout=100"].map(|word| OsStr::new(word).to_owned());
        process::run(program, head.into_iter().chain(arguments.into_iter().map(|word| word.as_ref().to_owned())))
    }
}

/// What a database server takes to speak TLS, with files as the rig's authority writes them.
pub(crate) fn tls(pki: &Path) -> Vec<String> {
    let at = |file: &str| pki.join(file).display().to_string();
    vec![
        format!("--private-key={}", at("serverkey.pem")),
        format!("--certificate={}", at("servercert.pem")),
        format!("--ca-cert={}", at("cacert.pem")),
    ]
}
