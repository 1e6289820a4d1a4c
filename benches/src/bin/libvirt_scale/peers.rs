//! The others: what people read libvirt with today.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use cobalt_benches::steps::{Cost, Steps, measured};

use crate::ours::What;

/// Somebody who can be asked for one step after the other.
pub(crate) trait Client {
    fn step(&mut self) -> anyhow::Result<(Cost, usize)>;
}

impl Client for Steps {
    fn step(&mut self) -> anyhow::Result<(Cost, usize)> {
        Steps::step(self)
    }
}

/// libvirt-python, with the Python of the distribution.
pub(crate) fn python(uri: &str, what: What) -> anyhow::Result<Steps> {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", include_str!("peer.py"), uri, what.name()]);
    Steps::start("libvirt-python (python3-libvirt)", &mut command)
}

/// The example of the crate that wraps `virt`, built here.
pub(crate) fn build_virt() -> anyhow::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cobalt-libvirt/virt");
    // Beside our own artefacts, wherever those are.
    let target = std::env::current_exe()?.ancestors().nth(2).context("a target directory")?.join("virt");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--release", "--locked", "--example", "inventory"]).arg("--manifest-path");
    command.arg(folder.join("Cargo.toml")).arg("--target-dir").arg(&target).stdout(Stdio::null());
    ensure!(command.status()?.success(), "it does not build (it needs libvirt-dev)");
    Ok(target.join("release/examples/inventory"))
}

pub(crate) fn virt(program: &Path, uri: &str, what: What) -> anyhow::Result<Steps> {
    Steps::start("virt", Command::new(program).args([uri, what.name()]))
}

/// One session of virsh, which reads commands line by line.
pub(crate) struct Virsh {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    commands: String,
    /// Begins a line once per domain.
    each: &'static str,
}

impl Virsh {
    /// `domains` are the names of all domains; virsh has no command that describes them all.
    pub(crate) fn start(uri: &str, what: What, domains: &[String]) -> anyhow::Result<Self> {
        let groups = "--state --cpu-total --balloon --vcpu --interface --block";
        let (commands, each) = match what {
            What::Scrape => (format!("domstats {groups} --list-active --nowait\n"), "Domain:"),
            What::Inventory => {
                (domains.iter().fold(String::new(), |commands, name| commands + "dumpxml " + name + "\n"), "</domain>")
            }
            other => bail!("virsh does no {}", other.name()),
        };
        let mut command = Command::new("virsh");
        command.args(["--quiet", "--connect", uri]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("start virsh")?;
        let input = child.stdin.take().context("no way in")?;
        let output = BufReader::new(child.stdout.take().context("no way out")?);
        let mut virsh = Self { child, input, output, commands, each };
        // It connects with the first command that needs it.
        virsh.say("hostname\n")?;
        Ok(virsh)
    }

    fn say(&mut self, commands: &str) -> anyhow::Result<usize> {
        const END: &str = "cobalt-has-read-all";
        // Written by another thread: virsh answers while it reads, and neither side must wait for the other.
        let (input, output, each) = (&mut self.input, &mut self.output, self.each);
        std::thread::scope(|scope| {
            // `echo` ends no line, the prompt of the next command does.
            let writer = scope.spawn(move || input.write_all(format!("{commands}echo {END}\npwd\n").as_bytes()));
            let mut found = 0;
            let mut line = Vec::new();
            loop {
                line.clear();
                ensure!(output.read_until(b'\n', &mut line)? > 0, "virsh has ended");
                let text = String::from_utf8_lossy(&line);
                found += usize::from(text.contains(each));
                if text.starts_with(END) {
                    break;
                }
            }
            writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
            Ok(found)
        })
    }
}

impl Client for Virsh {
    fn step(&mut self) -> anyhow::Result<(Cost, usize)> {
        let commands = self.commands.clone();
        measured(self.child.id(), || self.say(&commands))
    }
}

impl Drop for Virsh {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Debian's exporter, which connects anew for each page.
pub(crate) struct OtherExporter {
    child: Child,
    address: SocketAddr,
}

impl OtherExporter {
    pub(crate) fn start(uri: &str) -> anyhow::Result<Self> {
        let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let mut command = Command::new("prometheus-libvirt-exporter");
        command.arg(format!("--web.listen-address={address}")).arg(format!("--libvirt.uri={uri}"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut exporter = Self { child: child.context("start prometheus-libvirt-exporter")?, address };
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            ensure!(started.elapsed() < Duration::from_secs(30), "it does not listen");
            ensure!(exporter.child.try_wait()?.is_none(), "it has ended");
            std::thread::sleep(Duration::from_millis(20));
        }
        exporter.step()?;
        Ok(exporter)
    }

    fn page(&self) -> anyhow::Result<usize> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        write!(stream, "GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        ensure!(page.contains("libvirt_up 1"), "it cannot read that daemon");
        Ok(page.matches("\nlibvirt_domain_info_maximum_memory_bytes{").count())
    }
}

impl Client for OtherExporter {
    fn step(&mut self) -> anyhow::Result<(Cost, usize)> {
        measured(self.child.id(), || self.page())
    }
}

impl Drop for OtherExporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
