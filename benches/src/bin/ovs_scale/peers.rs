//! The others: what people ask Open vSwitch with today.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use cobalt_rig::ovs::Scale;

use crate::{Client, once::Ending};

/// The tool that everybody's scripts call. It lists the interfaces; the rest of an inventory would be three more calls.
pub(crate) fn vsctl(scale: &Scale) -> Client {
    let database = format!("--db={}", scale.database());
    let command = move || {
        let mut command = Command::new("ovs-vsctl");
        command.args([database.as_str(), "--format=json", "list", "Interface"]);
        command
    };
    // Each row begins with its id; no other value of an interface is one.
    Client {
        name: "ovs-vsctl --format=json list Interface",
        command: Box::new(command),
        ending: Ending::Ends("[[\"uuid\",", 0),
    }
}

/// Open vSwitch's own library for Python, with the Python of the distribution.
pub(crate) fn python(scale: &Scale) -> anyhow::Result<Client> {
    let there = Command::new("/usr/bin/python3").args(["-c", "import ovs.db.idl"]).stderr(Stdio::null()).status()?;
    ensure!(there.success(), "python3-openvswitch is not installed");
    let database = scale.database();
    let command = move || {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", include_str!("peer.py"), &database]);
        command
    };
    Ok(Client { name: "python3-openvswitch's IDL", command: Box::new(command), ending: Ending::Says })
}

/// The crate `ovsdb`, in a workspace of its own.
pub(crate) fn ovsdb(scale: &Scale) -> anyhow::Result<Client> {
    let program = build()?;
    let socket = scale.directory().join("db.sock");
    let command = move || {
        let mut command = Command::new(&program);
        command.arg(&socket);
        command
    };
    Ok(Client { name: "crate ovsdb", command: Box::new(command), ending: Ending::Says })
}

fn build() -> anyhow::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ovsdb");
    // Beside our own artefacts, wherever those are.
    let target = std::env::current_exe()?.ancestors().nth(2).context("a target directory")?.join("ovsdb");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.args(["build", "--quiet", "--release", "--locked", "--manifest-path"]).arg(folder.join("Cargo.toml"));
    command.arg("--target-dir").arg(&target).stdout(Stdio::null());
    ensure!(command.status()?.success(), "the client on the crate ovsdb does not build");
    Ok(target.join("release/cobalt-benches-ovsdb"))
}

/// The tool for flows.
pub(crate) fn ofctl(scale: &Scale, verb: &'static str) -> Client {
    let socket = format!("unix:{}", scale.directory().join("br-int.mgmt").display());
    let command = move || {
        let mut command = Command::new("ovs-ofctl");
        command.args(["--protocols=OpenFlow13", verb, &socket]);
        command
    };
    let (name, ending) = match verb {
        "dump-aggregate" => ("ovs-ofctl dump-aggregate", Ending::Tells("flow_count=")),
        _ => ("ovs-ofctl dump-flows", Ending::Ends("cookie=", 0)),
    };
    Client { name, command: Box::new(command), ending }
}
