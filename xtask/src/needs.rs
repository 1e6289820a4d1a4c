//! What the tests need besides Rust, and how to get it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{python, tools};

/// Something that must be there.
#[derive(Debug)]
struct Need {
    /// A program on the path, or the path of a file.
    what: &'static str,
    /// The Debian package that brings it.
    package: &'static str,
    why: &'static str,
    /// Whether nothing works without it. Otherwise the tests that need it are skipped, and say so.
    vital: bool,
}

const fn vital(what: &'static str, package: &'static str, why: &'static str) -> Need {
    Need { what, package, why, vital: true }
}

const fn rig(what: &'static str, package: &'static str, why: &'static str) -> Need {
    Need { what, package, why, vital: false }
}

/// What the C library is linked by.
pub(crate) const LIBVIRT_HEADERS: &str = "/usr/include/libvirt/libvirt.h";

/// Everything the tests call. A rig that needs more adds it here.
const NEEDS: &[Need] = &[
    vital("cc", "gcc", "links every program and compiles ring's C"),
    vital("make", "make", "builds the operator's allocator"),
    // Hosts with a real libvirtd.
    rig("libvirtd", "libvirt-daemon", "is the daemon under test"),
    rig("/var/lib/libvirt", "libvirt-daemon-system", "has the directories of the daemon"),
    rig(
        "/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so",
        "libvirt-daemon-driver-qemu",
        "lets libvirt run QEMU",
    ),
    rig("virsh", "libvirt-clients", "is the other client that ours is compared with"),
    rig("qemu-system-x86_64", "qemu-system-x86", "runs the guests"),
    rig("busybox", "busybox-static", "is all that the guests have"),
    rig("saslpasswd2", "sasl2-bin", "keeps the passwords of a daemon with a login"),
    rig("/usr/lib/x86_64-linux-gnu/sasl2/libscram.so", "libsasl2-modules", "checks them"),
    rig("ip", "iproute2", "connects the hosts"),
    rig("bash", "bash", "is the first process of a host"),
    rig("unshare", "util-linux", "makes a host"),
    rig("nsenter", "util-linux", "enters it"),
    rig("mount", "mount", "gives it its own files"),
    rig("kill", "procps", "ends daemons of hosts"),
    // Nodes with a real Open vSwitch and OVN.
    rig("ovsdb-server", "openvswitch-common", "is the switch's database"),
    rig("ovs-vswitchd", "openvswitch-switch", "is the switch under test"),
    rig("ovn-controller", "ovn-host", "tells it what to do"),
    rig("ovn-northd", "ovn-central", "tells OVN's controllers what to do"),
    rig("ovn-nbctl", "ovn-common", "makes logical networks"),
    rig("ping", "iputils-ping", "is what guests on a node send"),
    rig("ethtool", "ethtool", "sets up their cards"),
    // The second opinion on our client.
    rig(LIBVIRT_HEADERS, "libvirt-dev", "lets libvirt's own C library be linked"),
    rig("pkg-config", "pkg-config", "finds it"),
    // A private message bus with a systemd on it that does as told.
    rig("dbus-daemon", "dbus-daemon", "is the message bus of a host"),
    rig("/usr/lib/python3/dist-packages/dbusmock", "python3-dbusmock", "plays systemd on it"),
    // An OpenStack control plane, with its packages from PyPI.
    rig("mariadbd", "mariadb-server", "keeps its databases"),
    rig("mariadb-install-db", "mariadb-server", "makes them"),
    rig("mariadb", "mariadb-client", "changes them"),
    rig("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server", "carries messages between its parts"),
    rig("/usr/share/doc/python3-venv", "python3-venv", "makes the environment it runs in"),
];

/// Programs that a package above pushes out when they came from another release: they come back from this one.
const KEPT: &[(&str, &str)] = &[("qemu-img", "qemu-utils")];

/// Makes sure that all of it is there: installs it when we may, and names exactly what is missing when we may not.
pub(crate) fn ensure() -> Result<()> {
    programs()
}

/// The same with OpenStack, which comes from elsewhere and takes a while.
pub(crate) fn ensure_with_openstack() -> Result<()> {
    programs()?;
    python::prepare();
    Ok(())
}

fn programs() -> Result<()> {
    tools::prepare();
    let absent = missing(NEEDS, is_there);
    if absent.is_empty() {
        return Ok(());
    }
    if is_root() && on_path("apt-get") {
        let kept: Vec<_> = KEPT.iter().filter(|(program, _)| on_path(program)).collect();
        let installed = install(&packages(&absent)).and_then(|()| {
            let lost = kept.iter().filter(|(program, _)| !on_path(program)).map(|(_, package)| *package);
            let lost: Vec<_> = lost.collect();
            if lost.is_empty() { Ok(()) } else { install(&lost) }
        });
        if let Err(error) = installed {
            println!("   {error:#}");
        }
    }
    let absent = missing(NEEDS, is_there);
    if absent.iter().any(|need| need.vital) {
        bail!(describe(&absent));
    }
    if !absent.is_empty() {
        println!("== {}\n   (tests that need it are skipped)", describe(&absent));
    }
    Ok(())
}

fn missing(needs: &'static [Need], there: impl Fn(&str) -> bool) -> Vec<&'static Need> {
    needs.iter().filter(|need| !there(need.what)).collect()
}

fn packages(missing: &[&Need]) -> Vec<&'static str> {
    let mut packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn describe(missing: &[&Need]) -> String {
    let lines = missing.iter().map(|need| format!("\n  {} (it {})", need.what, need.why));
    let install = packages(missing).join(" ");
    format!("missing on this machine:{}\nas root: apt-get install {install}", lines.collect::<String>())
}

fn install(packages: &[&str]) -> Result<()> {
    println!("== preparing: apt-get install {}", packages.join(" "));
    // The programs are wanted, not daemons that run from now on.
    let _quiet = NoDaemons::begin(Path::new(POLICY));
    for arguments in [vec!["update"], [&["install", "--yes", "--no-install-recommends"], packages].concat()] {
        let mut command = Command::new("apt-get");
        command.args(&arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(std::process::Stdio::null());
        let status = command.status().context("cannot run apt-get")?;
        if !status.success() {
            bail!("apt-get {} failed", arguments.join(" "));
        }
    }
    Ok(())
}

/// What Debian's packages ask whether they may start their daemons.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// While it lives, no package that is installed starts a daemon. A policy that is there already stays as it is.
#[derive(Debug)]
struct NoDaemons<'a> {
    ours: Option<&'a Path>,
}

impl NoDaemons<'_> {
    fn begin(policy: &Path) -> NoDaemons<'_> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = std::fs::File::options();
        let made = options.create_new(true).write(true).mode(0o755).open(policy);
        let written =
            made.and_then(|mut file| file.write_all(b"#!/bin/sh\n# Of cargo xtask, for a moment.\nexit 101\n"));
        if let Err(error) = &written
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            println!("   packages may start daemons: cannot write {} ({error})", policy.display());
        }
        NoDaemons { ours: written.is_ok().then_some(policy) }
    }
}

impl Drop for NoDaemons<'_> {
    fn drop(&mut self) {
        if let Some(policy) = self.ours {
            // If it cannot be removed there is nobody to tell; its second line says whose it is.
            let _ = std::fs::remove_file(policy);
        }
    }
}

pub(crate) fn is_there(what: &str) -> bool {
    if what.starts_with('/') { Path::new(what).exists() } else { on_path(what) }
}

pub(crate) fn on_path(program: &str) -> bool {
    // Daemons lie where only the path of root leads.
    let system = ["/usr/sbin", "/sbin"].map(Into::into);
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(system).any(|directory| directory.join(program).is_file())
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    // Our own entry in /proc belongs to the user we run as.
    Path::new("/proc/self").metadata().is_ok_and(|own| own.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        assert!(missing(NEEDS, |_| true).is_empty());
        let text = describe(&missing(NEEDS, |what| what != "cc"));
        assert!(text.contains("cc (it links") && text.ends_with("apt-get install gcc"), "{text}");
    }

    #[test]
    fn a_package_is_asked_for_once() {
        let text = describe(&missing(NEEDS, |what| !["unshare", "nsenter"].contains(&what)));
        assert!(text.ends_with("apt-get install util-linux"), "{text}");
    }

    #[test]
    fn a_policy_about_daemons_is_ours_for_a_moment_and_that_of_others_stays() {
        let path = std::env::temp_dir().join(format!("cobalt-policy-{}", std::process::id()));
        drop(std::fs::remove_file(&path));
        let quiet = NoDaemons::begin(&path);
        let answer = Command::new(&path).args(["openvswitch-switch", "start"]).status().expect("an answer");
        assert_eq!(answer.code(), Some(101), "forbidden");
        drop(NoDaemons::begin(&path));
        assert!(path.exists(), "it belongs to the first");
        drop(quiet);
        assert!(!path.exists());
    }

    #[cfg(feature = "rigs")]
    #[test]
    fn everything_a_rig_needs_is_brought() {
        for (what, package) in cobalt_rig::requirements().chain(cobalt_rig::openstack_requirements()) {
            assert!(NEEDS.iter().any(|need| need.what == what && need.package == package), "{what} of {package}");
        }
    }
}
