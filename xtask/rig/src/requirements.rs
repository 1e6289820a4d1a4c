//! What a rig needs of the machine.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::openstack::Venv;

/// Something, and the Debian package that brings it.
type Need = (&'static str, &'static str);

/// The programs that every rig calls.
const NAMESPACES: &[Need] =
    &[("ip", "iproute2"), ("bash", "bash"), ("unshare", "util-linux"), ("nsenter", "util-linux"), ("kill", "procps")];

/// What hosts with libvirt need besides: programs, and files by their path.
const LIBVIRT: &[Need] = &[
    ("libvirtd", "libvirt-daemon"),
    ("virsh", "libvirt-clients"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("saslpasswd2", "sasl2-bin"),
    ("busybox", "busybox-static"),
    ("mount", "mount"),
    ("/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so", "libvirt-daemon-driver-qemu"),
    ("/usr/lib/x86_64-linux-gnu/sasl2/libscram.so", "libsasl2-modules"),
    ("/var/lib/libvirt", "libvirt-daemon-system"),
];

/// What a node with Open vSwitch and OVN needs besides.
const OVS: &[Need] = &[
    ("ovsdb-server", "openvswitch-common"),
    ("ovs-vswitchd", "openvswitch-switch"),
    ("ovn-controller", "ovn-host"),
    ("ovn-northd", "ovn-central"),
    ("ovn-nbctl", "ovn-common"),
    ("ping", "iputils-ping"),
    ("ethtool", "ethtool"),
];

/// What the OpenStack control plane needs besides.
const OPENSTACK: &[Need] = &[
    ("mariadbd", "mariadb-server"),
    ("mariadb-install-db", "mariadb-server"),
    ("mariadb", "mariadb-client"),
    ("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server"),
];

/// The environment for a control plane, if one can be brought up here. Otherwise the test is told as skipped.
pub fn openstack_available(test: &str, target: &Path) -> Option<Venv> {
    if !possible(test, &absent(OPENSTACK)) {
        return None;
    }
    Venv::find(target).inspect_err(|error| skip(test, &error.to_string())).ok()
}

/// What the OpenStack control plane needs: a program, or the path of a file; and the Debian package that brings it.
pub fn openstack_requirements() -> impl Iterator<Item = (&'static str, &'static str)> {
    NAMESPACES.iter().chain(OPENSTACK).copied()
}

/// Everything that a rig needs: a program, or the path of a file; and the Debian package that brings it.
pub fn requirements() -> impl Iterator<Item = (&'static str, &'static str)> {
    NAMESPACES.iter().chain(LIBVIRT).chain(OVS).copied()
}

/// What hosts with libvirt need and is not there, each with the package that brings it.
pub fn missing() -> Vec<(&'static str, &'static str)> {
    absent(LIBVIRT)
}

/// What a node with Open vSwitch needs and is not there, likewise.
pub fn ovs_missing() -> Vec<(&'static str, &'static str)> {
    absent(OVS)
}

fn absent(needs: &[Need]) -> Vec<Need> {
    let there = |what: &str| if what.starts_with('/') { Path::new(what).exists() } else { on_path(what) };
    NAMESPACES.iter().chain(needs).filter(|(what, _)| !there(what)).copied().collect()
}

/// Whether namespaces can be made here. Otherwise the test is told as skipped.
#[cfg(test)]
pub(crate) fn namespaces_available(test: &str) -> bool {
    possible(test, &absent(&[]))
}

/// Whether hosts with libvirt can be brought up here. Otherwise the test is told as skipped: [`skip`].
pub fn available(test: &str) -> bool {
    possible(test, &missing())
}

/// Whether a node with Open vSwitch can be brought up here. Otherwise the test is told as skipped.
pub fn ovs_available(test: &str) -> bool {
    // The bridges' own ports are made of it; no package brings it.
    if !Path::new("/dev/net/tun").exists() {
        skip(test, "there is no /dev/net/tun (the kernel's driver `tun`)");
        return false;
    }
    possible(test, &ovs_missing())
}

fn possible(test: &str, missing: &[Need]) -> bool {
    let reason = if !is_root() {
        "namespaces and mounts need root".to_owned()
    } else if let [first, ..] = missing {
        format!("there is no {} (as root: apt-get install {}; cargo xtask test does it)", first.0, first.1)
    } else {
        return true;
    };
    skip(test, &reason);
    false
}

/// Says on the standard error that a test cannot run here. On CI (`CI=true`) that is a failure.
///
/// # Panics
///
/// When `CI` is `true`.
pub fn skip(test: &str, reason: &str) {
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!ci, "on CI nothing may be skipped: {test}: {reason}");
    // Past the capture of the test harness: a skip must be seen.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

fn on_path(program: &str) -> bool {
    // The system's own directories too: daemons are not on the path of every user.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path).chain(system).any(|directory| directory.join(program).is_file())
}

fn is_root() -> bool {
    // Our own entry in /proc belongs to the user we run as.
    Path::new("/proc/self").metadata().is_ok_and(|own| own.uid() == 0)
}
