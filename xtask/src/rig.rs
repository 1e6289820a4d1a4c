//! `cargo xtask rig`: servers to play with, in the background.
//!
//! The server itself is the program `rig` of this package (feature `rigs`). `up` starts it and waits for its one
//! line of JSON; a record of the process lies in `target/rigs/NAME`, by which `down` finds and ends it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cli::{RigAction, RigArguments, RigName};
use crate::needs;
use crate::workspace::{self, cargo};

/// A real server on a loaded machine.
const START_LIMIT: Duration = Duration::from_secs(10 * 60);
const STOP_LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn run(arguments: &RigArguments) -> Result<ExitCode> {
    match arguments.action {
        RigAction::Up { rig } => up(rig)?,
        RigAction::Down { rig } => down(rig)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether somebody said where the binaries of a real server are.
pub(crate) fn assets_are_configured() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    set("KUBEBUILDER_ASSETS") || set("TEST_ASSET_KUBE_APISERVER")
}

fn directory(rig: RigName) -> PathBuf {
    workspace::target().join("rigs").join(rig.as_str())
}

fn up(rig: RigName) -> Result<()> {
    if rig == RigName::Kube && !assets_are_configured() {
        bail!("set KUBEBUILDER_ASSETS to a directory with etcd and kube-apiserver");
    }
    let directory = directory(rig);
    if let Some(process) = Process::read(&directory)?.filter(Process::is_running) {
        bail!(
            "the rig {} is up already (pid {}); `cargo xtask rig down {}` stops it",
            rig.as_str(),
            process.pid,
            rig.as_str()
        );
    }
    if rig == RigName::Openstack {
        needs::ensure_with_openstack()?;
    }
    let built = cargo(["build", "--quiet", "--package", "xtask", "--features", "rigs", "--bin", "rig"]).status();
    if !built.context("cannot run cargo")?.success() {
        bail!("the rig's program does not compile");
    }
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let log = directory.join("log");
    let errors = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    // Cargo puts the programs of one package side by side.
    let program = std::env::current_exe().context("cannot find our own program")?.with_file_name("rig");
    let mut command = Command::new(program);
    command.arg(rig.as_str()).arg(&directory).current_dir(workspace::root());
    // A process group of its own: the end of this terminal's command is not the end of the rig.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).process_group(0);
    let mut child = command.spawn().context("cannot start the rig")?;
    let process = Process::of(child.id())?;
    process.write(&directory)?;
    match first_line(&mut child) {
        Ok(line) => print!("{}", describe(rig, &line, process.pid)?),
        Err(error) => {
            // It may have ended by itself; otherwise it must not stay behind half started.
            child.kill().ok();
            child.wait().ok();
            std::fs::remove_file(directory.join(RECORD)).ok();
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            bail!("the rig {} did not start: {error:#}\n{}", rig.as_str(), said.trim_end());
        }
    }
    Ok(())
}

/// Waits for the line in which the rig says that it is ready.
fn first_line(child: &mut Child) -> Result<String> {
    let output = child.stdout.take().context("no output")?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        // The receiver is gone when the limit has passed.
        sender.send(read.map(|_| line)).ok();
    });
    let line = receiver.recv_timeout(START_LIMIT).context("it said nothing in time")??;
    if line.trim().is_empty() {
        bail!("it ended");
    }
    Ok(line)
}

fn describe(rig: RigName, line: &str, pid: u32) -> Result<String> {
    let ready: Value = serde_json::from_str(line).with_context(|| format!("the rig said `{}`", line.trim_end()))?;
    let text = |key: &str| ready[key].as_str().with_context(|| format!("the rig did not say its {key}"));
    let (what, name) = (text("what")?, rig.as_str());
    let way = match rig {
        RigName::Sim => {
            format!(
                "(pid {pid}): Kubernetes at {}, OpenStack at {}\n\n  export KUBECONFIG={}\n  . {}\n  kubectl get nodes\n  \
                 cargo run -p cobalt-examples --example hosts_list\n",
                text("server")?,
                text("cloud")?,
                text("kubeconfig")?,
                text("openrc")?
            )
        }
        RigName::Kube => {
            format!(
                "at {} (pid {pid})\n\n  export KUBECONFIG={}\n  kubectl get nodes\n",
                text("server")?,
                text("kubeconfig")?
            )
        }
        RigName::Libvirt => {
            let uris = ready["uris"].as_array().context("the rig did not say its URIs")?;
            let lines = uris.iter().filter_map(Value::as_str).map(|uri| format!("  virsh -c '{uri}' list --all\n"));
            format!("(pid {pid})\n\n{}", lines.collect::<String>())
        }
        RigName::Ovs => {
            let lines = ready["commands"].as_array().context("the rig did not say how to reach it")?;
            let lines = lines.iter().filter_map(Value::as_str).map(|command| format!("  {command}\n"));
            format!("(pid {pid})\n\n{}", lines.collect::<String>())
        }
        RigName::Openstack => {
            let variables = ready["environment"].as_object().context("the rig did not say its environment")?;
            let lines =
                variables.iter().filter_map(|(name, value)| Some(format!("  export {name}={}\n", value.as_str()?)));
            let text = lines.collect::<String>();
            format!("(pid {pid})\n\n{text}  cargo run -p cobalt-examples --example hosts_list\n")
        }
    };
    Ok(format!("{what} is up {way}\nstop it: cargo xtask rig down {name}\n"))
}

fn down(rig: RigName) -> Result<()> {
    let directory = directory(rig);
    let Some(process) = Process::read(&directory)? else {
        println!("the rig {} is not up", rig.as_str());
        return Ok(());
    };
    if process.is_running() {
        let status = Command::new("kill").args(["-TERM", &process.pid.to_string()]).status();
        status.context("cannot run kill")?;
        let started = Instant::now();
        // A process that is not our child has no event to wait for.
        while process.is_running() {
            if started.elapsed() > STOP_LIMIT {
                bail!("the rig {} (pid {}) did not end within {} s", rig.as_str(), process.pid, STOP_LIMIT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("the rig {} is down", rig.as_str());
    } else {
        println!("the rig {} had ended by itself; its log is {}", rig.as_str(), directory.join("log").display());
    }
    std::fs::remove_file(directory.join(RECORD)).context("cannot remove the record of the rig")
}

const RECORD: &str = "process";

/// A process that we started: its id, and the time it began, because ids are used again.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    began: String,
}

impl Process {
    fn of(pid: u32) -> Result<Process> {
        let began = began(pid).with_context(|| format!("process {pid} ended at once"))?;
        Ok(Process { pid, began })
    }

    fn is_running(&self) -> bool {
        began(self.pid).is_some_and(|began| began == self.began)
    }

    fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(RECORD);
        std::fs::write(&path, format!("{} {}\n", self.pid, self.began))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn read(directory: &Path) -> Result<Option<Process>> {
        let path = directory.join(RECORD);
        match std::fs::read_to_string(&path) {
            Ok(text) => Process::parse(&text).map(Some).with_context(|| format!("{} is damaged", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    fn parse(text: &str) -> Option<Process> {
        let (pid, began) = text.trim_end().split_once(' ')?;
        Some(Process { pid: pid.parse().ok()?, began: began.to_owned() })
    }
}

/// The start time of a running process in the kernel's clock ticks; `None` when there is none, or only a corpse.
fn began(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    start_time(&stat)
}

/// The command name in the second field may hold spaces and parentheses, so fields count from the last `)`.
fn start_time(stat: &str) -> Option<String> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    if fields.first() == Some(&"Z") {
        return None;
    }
    fields.get(19).map(|&ticks| ticks.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_command_name() {
        let tail = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(start_time(&format!("42 (a) b)) {tail}")), Some("4711".to_owned()));
        assert_eq!(start_time("42 (x) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711"), None);
        assert_eq!(start_time(""), None);
    }

    #[test]
    fn a_process_is_known_by_id_and_start_time() {
        let own = Process::of(std::process::id()).expect("we are running");
        assert!(own.is_running());
        let reused = Process { began: "1".to_owned(), ..own };
        assert!(!reused.is_running());
    }

    #[test]
    fn a_record_survives_being_written_and_damage_is_seen() {
        let own = Process { pid: 42, began: "4711".to_owned() };
        assert_eq!(Process::parse("42 4711\n"), Some(own));
        assert_eq!(Process::parse("rubbish"), None);
    }

    #[test]
    fn the_way_to_a_rig_is_described() {
        let line = r#"{"what":"a server","server":"http://127.0.0.1:1","kubeconfig":"/tmp/k"}"#;
        let text = describe(RigName::Kube, line, 7).expect("a description");
        assert!(text.contains("export KUBECONFIG=/tmp/k") && text.contains("rig down kube"), "{text}");
        assert!(describe(RigName::Sim, line, 7).is_err(), "it does not say where its cloud is");
        let line = r#"{"what":"a region","server":"http://127.0.0.1:1","kubeconfig":"/tmp/k","cloud":"http://127.0.0.1:2",
            "openrc":"/tmp/o"}"#;
        let text = describe(RigName::Sim, line, 7).expect("a description");
        assert!(text.contains("\n  export KUBECONFIG=/tmp/k\n  . /tmp/o\n"), "{text}");
        assert!(text.contains("OpenStack at http://127.0.0.1:2") && text.contains("rig down sim"), "{text}");
        assert!(describe(RigName::Sim, "panic!", 7).is_err());
        let line = r#"{"what":"libvirt","uris":["qemu+tcp://10.0.0.1/system"]}"#;
        let text = describe(RigName::Libvirt, line, 7).expect("a description");
        assert!(text.contains("virsh -c 'qemu+tcp://10.0.0.1/system' list"), "{text}");
        let line = r#"{"what":"a switch","commands":["ovs-vsctl --db=unix:/tmp/db.sock show"]}"#;
        let text = describe(RigName::Ovs, line, 7).expect("a description");
        assert!(text.contains("\n  ovs-vsctl --db=unix:/tmp/db.sock show\n"), "{text}");
        let line = r#"{"what":"OpenStack","environment":{"OS_AUTH_URL":"http://10.0.0.1:5000/v3"}}"#;
        let text = describe(RigName::Openstack, line, 7).expect("a description");
        assert!(text.contains("export OS_AUTH_URL=http://10.0.0.1:5000/v3\n"), "{text}");
    }
}
