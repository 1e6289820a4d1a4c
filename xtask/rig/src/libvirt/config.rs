//! The files of one host.

use std::path::{Path, PathBuf};

use crate::error::{Result, create, write};
use crate::libvirt::{HostOptions, Sasl};
use crate::process;

/// Below the host's own directory, and where the host sees it.
const MOUNTS: &[(&str, &str)] = &[
    ("etc", "/etc/libvirt"),
    ("lib", "/var/lib/libvirt"),
    ("run", "/run/libvirt"),
    ("log", "/var/log/libvirt"),
    ("sasl2", "/etc/sasl2"),
    ("hosts", "/etc/hosts"),
];

/// The files of one host.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) directory: PathBuf,
}

impl Files {
    pub(crate) fn run(&self, name: &str) -> PathBuf {
        self.directory.join("run").join(name)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.directory.join("log/libvirtd.log")
    }

    /// Where the certificate of the server goes.
    pub(crate) fn pki(&self) -> PathBuf {
        self.directory.join("etc/pki")
    }

    /// What has to be mounted where, in this order.
    pub(crate) fn mounts(&self, cache: &Path) -> Vec<(PathBuf, &'static str)> {
        let own = MOUNTS.iter().map(|&(name, target)| (self.directory.join(name), target));
        own.chain([(cache.to_owned(), "/var/cache/libvirt")]).collect()
    }

    /// Writes everything but the certificates. `neighbours` are the lines of `/etc/hosts`.
    pub(crate) fn write(
        &self,
        name: &str,
        number: u8,
        address: &str,
        neighbours: &str,
        options: &HostOptions,
    ) -> Result<()> {
        for directory in ["etc", "lib", "run", "log", "sasl2"] {
            create(&self.directory.join(directory))?;
        }
        let etc = self.directory.join("etc");
        write(&self.directory.join("hosts"), format!("127.0.0.1 localhost\n{neighbours}"))?;
        write(&etc.join("libvirtd.conf"), libvirtd(number, address, options.sasl.is_some()))?;
        write(&etc.join("qemu.conf"), qemu(address))?;
        if let Some(sasl) = &options.sasl {
            self.write_sasl(name, sasl)?;
        }
        Ok(())
    }

    fn write_sasl(&self, name: &str, sasl: &Sasl) -> Result<()> {
        let configuration = format!("mech_list: {}\nsasldb_path: /etc/libvirt/passwd.db\n", sasl.mechanisms);
        write(&self.directory.join("sasl2/libvirt.conf"), configuration)?;
        let database = self.directory.join("etc/passwd.db").display().to_string();
        // Users belong to a realm, which is the name of the host unless the server says otherwise.
        let arguments = ["-p", "-c", "-a", "libvirt", "-u", name, "-f", &database, &sasl.user];
        process::run_with_input("saslpasswd2", arguments, &sasl.password).map(drop)
    }
}

fn libvirtd(number: u8, address: &str, sasl: bool) -> String {
    let auth = if sasl { "sasl" } else { "none" };
    format!(
        "listen_tcp = 1\nlisten_tls = 1\nlisten_addr = \"{address}\"\ntcp_port = \"16509\"\ntls_port = \"16514\"\n\
         auth_tcp = \"none\"\nauth_tls = \"{auth}\"\nauth_unix_ro = \"none\"\nauth_unix_rw = \"none\"\n\
         unix_sock_group = \"root\"\nunix_sock_rw_perms = \"0700\"\n\
         ca_file = \"/etc/libvirt/pki/cacert.pem\"\ncert_file = \"/etc/libvirt/pki/servercert.pem\"\n\
         key_file = \"/etc/libvirt/pki/serverkey.pem\"\ncrl_file = \"\"\n\
         host_uuid = \"c0ba1700-0000-4000-8000-{number:012}\"\n\
         log_outputs = \"2:file:/var/log/libvirt/libvirtd.log\"\n",
    )
}

/// QEMU as root and unconfined, without virtlogd: there is neither systemd nor a policy in a host like this.
fn qemu(address: &str) -> String {
    format!(
        "user = \"root\"\ngroup = \"root\"\nsecurity_driver = \"none\"\nnamespaces = []\ncgroup_controllers = []\n\
         remember_owner = 0\nstdio_handler = \"file\"\nmax_core = 0\n\
         migration_address = \"{address}\"\nmigration_host = \"{address}\"\n",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_its_own_identity_and_address() {
        let (one, two) = (libvirtd(1, "10.0.0.11", false), libvirtd(2, "10.0.0.12", true));
        assert!(one.contains("host_uuid = \"c0ba1700-0000-4000-8000-000000000001\"") && one.contains("10.0.0.11"));
        assert!(two.contains("-000000000002\"") && two.contains("auth_tls = \"sasl\""), "{two}");
    }
}
