//! One host.

use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result, create};
use crate::guest::Guest;
use crate::libvirt::HostOptions;
use crate::libvirt::config::Files;
use crate::libvirt::daemon::Daemon;
use crate::namespace::Namespace;
use crate::network::Network;
use crate::pki::Authority;
use crate::place::Place;
use crate::process;

/// A libvirtd with a cold cache on a loaded machine.
const START_LIMIT: Duration = Duration::from_secs(300);

/// A machine with a libvirtd, a QEMU and a network of its own.
#[derive(Debug)]
pub struct Host {
    // First of all: the end of the namespaces is the end of everything in them.
    namespace: Namespace,
    daemon: Daemon,
    files: Files,
    name: String,
    address: String,
    pki: PathBuf,
}

impl Host {
    pub(crate) fn start(
        place: &Place,
        network: &Network,
        authority: &Authority,
        cache: &Path,
        number: u8,
        options: &HostOptions,
    ) -> Result<Host> {
        let named = |number: u8| format!("host{number}.rig{}.test", place.number());
        let name = named(number);
        let files = Files { directory: place.directory().join(format!("host{number}")) };
        let namespace = Namespace::new()?;
        let address = network.connect(place, number, &namespace)?;
        let neighbours = (1..=16).map(|number| format!("{} {}\n", Network::address(place, number), named(number)));
        files.write(&name, number, &address, &neighbours.collect::<String>(), options)?;
        authority.server(&files.pki(), &[&name, &address])?;
        namespace.run(["hostname", &name])?;
        // Nothing of the real machine's /run, its message bus least of all.
        namespace.run(["mount", "-t", "tmpfs", "tmpfs", "/run"])?;
        namespace.run(["mkdir", "/run/libvirt"])?;
        for (own, target) in files.mounts(cache) {
            namespace.run([OsStr::new("mount"), OsStr::new("--bind"), own.as_os_str(), OsStr::new(target)])?;
        }
        let host =
            Host { namespace, daemon: Daemon::default(), files, name, address, pki: authority.client().to_owned() };
        host.daemon.start(&host.namespace, &host.files)?;
        Ok(host)
    }

    /// Its name, which the other hosts resolve.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address, reachable from here and from the other hosts.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// QEMU over plain TCP, without login.
    pub fn tcp(&self) -> String {
        format!("qemu+tcp://{}/system", self.address)
    }

    /// QEMU over TLS, with the client certificate of this rig.
    pub fn tls(&self) -> String {
        format!("qemu+tls://{}/system?pkipath={}", self.address, self.pki.display())
    }

    /// QEMU over the daemon's socket in the file system.
    pub fn unix(&self) -> String {
        format!("qemu+unix:///system?socket={}", self.socket().display())
    }

    /// libvirt's own test driver in this daemon, over TCP.
    pub fn test_driver(&self) -> String {
        format!("test+tcp://{}/default", self.address)
    }

    /// The socket of [`Host::unix`].
    pub fn socket(&self) -> PathBuf {
        self.files.run("libvirt-sock")
    }

    /// Runs `virsh` against this host and returns what it printed.
    pub fn virsh<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Result<String> {
        let uri = self.unix();
        let head = ["--quiet", "--connect", uri.as_str()].map(|word| OsStr::new(word).to_owned());
        process::run("virsh", head.into_iter().chain(arguments.into_iter().map(|word| word.as_ref().to_owned())))
    }

    /// Defines a domain and leaves it shut off.
    pub fn define(&self, guest: &Guest) -> Result<()> {
        self.define_all(std::slice::from_ref(guest))
    }

    /// Defines many domains in one session, which takes milliseconds each.
    pub fn define_all(&self, guests: &[Guest]) -> Result<()> {
        let directory = self.files.directory.join("xml");
        create(&directory)?;
        let mut script = String::new();
        for guest in guests {
            let path = directory.join(format!("{}.xml", guest.name()));
            crate::error::write(&path, guest.xml())?;
            // Writing to a String does not fail.
            let _ = writeln!(script, "define {}", path.display());
        }
        let uri = self.unix();
        let said = process::run_with_input("virsh", ["--connect", uri.as_str()], &script)?;
        // A session of virsh goes on after a command that failed.
        let defined = said.matches("defined from").count();
        if defined == guests.len() {
            return Ok(());
        }
        Err(Error::Failed { command: format!("define {} domains", guests.len()), said })
    }

    /// Runs a program on this host and returns what it printed.
    pub fn run<I: IntoIterator<Item: AsRef<OsStr>>>(&self, command: I) -> Result<String> {
        self.namespace.run(command)
    }

    /// Ends libvirtd without a warning. Guests run on.
    pub fn kill_daemon(&self) -> Result<()> {
        self.daemon.end(&self.namespace, &self.files, "KILL")
    }

    /// Asks libvirtd to end, and waits for it. Guests run on.
    pub fn stop_daemon(&self) -> Result<()> {
        self.daemon.end(&self.namespace, &self.files, "TERM")
    }

    /// Starts libvirtd again and waits until it answers.
    pub fn start_daemon(&self) -> Result<()> {
        self.daemon.start(&self.namespace, &self.files)?;
        self.wait_until_ready()
    }

    /// Stops libvirtd and starts it again.
    pub fn restart_daemon(&self) -> Result<()> {
        self.stop_daemon()?;
        self.start_daemon()
    }

    /// Lets libvirtd hang: connections stay open, and nobody answers.
    pub fn freeze_daemon(&self) -> Result<()> {
        Daemon::freeze(&self.namespace, &self.files)
    }

    /// Lets a frozen libvirtd go on.
    pub fn thaw_daemon(&self) -> Result<()> {
        self.daemon.thaw(&self.namespace, &self.files)
    }

    /// Kills the QEMU of a domain.
    pub fn kill_guest(&self, name: &str) -> Result<()> {
        let note = self.files.run("qemu").join(format!("{name}.pid"));
        let pid = std::fs::read_to_string(&note).map_err(Error::io(format!("read {}", note.display())))?;
        self.run(["kill", "-s", "KILL", pid.trim()]).map(drop)
    }

    /// A file system of its own with so much space, which only this host sees. The same path again resizes it.
    pub fn small_disk(&self, name: &str, kibibytes: u32) -> Result<PathBuf> {
        let path = self.files.directory.join("disks").join(name);
        let size = format!("size={kibibytes}k");
        let again = path.exists();
        create(&path)?;
        let options = if again { format!("remount,{size}") } else { size };
        let words = ["mount", "-t", "tmpfs", "-o", &options, "tmpfs"].map(OsStr::new);
        self.run(words.into_iter().chain([path.as_os_str()]))?;
        Ok(path)
    }

    /// What libvirtd has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.files.log()).unwrap_or_default()
    }

    /// What a guest has written to its console so far.
    pub fn console(&self, name: &str) -> String {
        let path = self.files.directory.join("lib/consoles").join(name);
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
    }

    pub(crate) fn wait_until_ready(&self) -> Result<()> {
        create(&self.files.directory.join("lib/consoles"))?;
        let what = format!("libvirtd of {} answering", self.name);
        process::wait_until(&what, START_LIMIT, || {
            // The call returns when the drivers are up, so most often this loops for the socket only.
            self.daemon.has_ended() || (self.socket().exists() && self.virsh(["version"]).is_ok())
        })?;
        if self.daemon.has_ended() {
            let output = std::fs::read_to_string(self.files.directory.join("output")).unwrap_or_default();
            let said = format!("{}{}", output, self.log()).trim_end().to_owned();
            return Err(Error::Failed { command: format!("libvirtd of {}", self.name), said });
        }
        Ok(())
    }
}
