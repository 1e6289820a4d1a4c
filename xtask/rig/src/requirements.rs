//! What a rig needs of the machine.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::openstack::Venv;

/// The programs a rig calls, and the Debian packages that bring them.
const PROGRAMS: &[(&str, &str)] = &[
    ("libvirtd", "libvirt-daemon"),
    ("virsh", "libvirt-clients"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("ip", "iproute2"),
    ("saslpasswd2", "sasl2-bin"),
    ("busybox", "busybox-static"),
    ("bash", "bash"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
    ("kill", "procps"),
];

/// Files that are no programs, likewise.
const FILES: &[(&str, &str)] = &[
    ("/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so", "libvirt-daemon-driver-qemu"),
    ("/usr/lib/x86_64-linux-gnu/sasl2/libscram.so", "libsasl2-modules"),
    ("/var/lib/libvirt", "libvirt-daemon-system"),
];

/// What the OpenStack control plane needs besides namespaces.
const OPENSTACK: &[(&str, &str)] = &[
    ("mariadbd", "mariadb-server"),
    ("mariadb-install-db", "mariadb-server"),
    ("mariadb", "mariadb-client"),
    ("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server"),
    ("ip", "iproute2"),
    ("bash", "bash"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
];

/// The environment for a control plane, if one can be brought up here. Otherwise the test is told as skipped.
pub fn openstack_available(test: &str, target: &Path) -> Option<Venv> {
    let absent = OPENSTACK.iter().find(|(what, _)| !there(what));
    let reason = match (is_root(), absent, Venv::find(target)) {
        (false, ..) => "namespaces and mounts need root".to_owned(),
        (true, Some((what, package)), _) => {
            format!("there is no {what} (as root: apt-get install {package}; cargo xtask test does it)")
        }
        (true, None, Err(error)) => error.to_string(),
        (true, None, Ok(venv)) => return Some(venv),
    };
    skip(test, &reason);
    None
}

/// What the OpenStack control plane needs: a program, or the path of a file; and the Debian package that brings it.
pub fn openstack_requirements() -> impl Iterator<Item = (&'static str, &'static str)> {
    OPENSTACK.iter().copied()
}

fn there(what: &str) -> bool {
    if what.starts_with('/') { Path::new(what).exists() } else { on_path(what) }
}

/// Everything that a rig needs: a program, or the path of a file; and the Debian package that brings it.
pub fn requirements() -> impl Iterator<Item = (&'static str, &'static str)> {
    PROGRAMS.iter().chain(FILES).copied()
}

/// What is not there, each with the package that brings it.
pub fn missing() -> Vec<(&'static str, &'static str)> {
    let programs = PROGRAMS.iter().filter(|(program, _)| !on_path(program));
    let files = FILES.iter().filter(|(path, _)| !Path::new(path).exists());
    programs.chain(files).copied().collect()
}

/// Whether a rig can be brought up here. Otherwise the test is told as skipped: [`skip`].
pub fn available(test: &str) -> bool {
    let reason = if !is_root() {
        "namespaces and mounts need root".to_owned()
    } else if let [first, ..] = missing().as_slice() {
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
