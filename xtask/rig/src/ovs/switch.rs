//! An Open vSwitch: the database and the switch on top of it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::error::{Result, create};
use crate::namespace::Namespace;
use crate::ovs::daemon::Daemon;
use crate::process;

/// The schema of the switch's database.
pub(crate) const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) namespace: Namespace,
    pub(crate) database: Daemon,
    pub(crate) daemon: Daemon,
    directory: PathBuf,
}

impl Switch {
    /// `database` are more arguments of the database server and `switch` more of the switch.
    pub(crate) fn start(
        directory: &Path,
        name: &str,
        namespace: Namespace,
        database: &[String],
        switch: &[String],
    ) -> Result<Switch> {
        create(directory)?;
        let at = |file: &str| directory.join(file).display().to_string();
        process::run("ovsdb-tool", ["create", &at("conf.db"), SCHEMA])?;
        let mut arguments = vec![at("conf.db"), format!("--remote=punix:{}", at("db.sock"))];
        // Remotes that somebody adds to the database are served too.
        arguments.push("--remote=db:Open_vSwitch,Open_vSwitch,manager_options".to_owned());
        arguments.push(format!("--unixctl={}", at("ovsdb-server.ctl")));
        arguments.extend_from_slice(database);
        let database = Daemon::new("ovsdb-server", directory, "ovsdb-server", &arguments);
        let mut arguments = vec![format!("unix:{}", at("db.sock"))];
        arguments.push(format!("--unixctl={}", at("ovs-vswitchd.ctl")));
        arguments.extend_from_slice(switch);
        let daemon = Daemon::new("ovs-vswitchd", directory, "ovs-vswitchd", &arguments);
        database.start(&namespace)?;
        let started = Switch { namespace, database, daemon, directory: directory.to_owned() };
        // What the init script writes; the daemons do not.
        let version = process::run("ovs-vswitchd", ["--version"])?;
        let version = version.lines().next().and_then(|line| line.split_whitespace().last()).unwrap_or("unknown");
        started.vsctl([
            "--no-wait",
            "init",
            "--",
            "set",
            "Open_vSwitch",
            ".",
            &format!("ovs-version={version}"),
            &format!("external_ids:system-id={name}"),
        ])?;
        started.daemon.start(&started.namespace)?;
        Ok(started)
    }

    /// Where its files and sockets are.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn vsctl<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Result<String> {
        let database = format!("--db=unix:{}", self.directory.join("db.sock").display());
        let head = [database.as_str(), "--timeout=100"].map(|word| OsStr::new(word).to_owned());
        process::run("ovs-vsctl", head.into_iter().chain(arguments.into_iter().map(|word| word.as_ref().to_owned())))
    }

    /// Asks the switch by its control socket.
    pub(crate) fn appctl<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Result<String> {
        let socket = self.directory.join("ovs-vswitchd.ctl");
        let head = [OsStr::new("--timeout=100"), OsStr::new("-t"), socket.as_os_str()].map(OsStr::to_owned);
        process::run("ovs-appctl", head.into_iter().chain(arguments.into_iter().map(|word| word.as_ref().to_owned())))
    }
}
