//! One daemon of Open vSwitch or OVN.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::process;

/// A daemon on a loaded machine.
const LIMIT: Duration = Duration::from_secs(300);

/// A daemon that can be ended, frozen and started again.
///
/// What it leaves on disk when it is killed stays there, as on a real host: its note of its process id and its
/// sockets.
#[derive(Debug)]
pub(crate) struct Daemon {
    program: &'static str,
    /// Where it notes its process id. Also the words by which it is known: no other process has them.
    note: PathBuf,
    /// The whole command line.
    command: Vec<String>,
}

impl Daemon {
    /// `name` is that of its files in the directory, which is also where all its sockets are.
    pub(crate) fn new(program: &'static str, directory: &Path, name: &str, arguments: &[String]) -> Daemon {
        let at = |file: &str| directory.join(file).display().to_string();
        let mut command = vec!["env".to_owned()];
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR", "OVN_RUNDIR", "OVN_LOGDIR"] {
            command.push(format!("{variable}={}", directory.display()));
        }
        command.push(program.to_owned());
        command.extend_from_slice(arguments);
        let note = directory.join(format!("{name}.pid"));
        // It goes to the background when it is ready, so that the call returns then.
        command.extend(["--detach".to_owned(), "--no-chdir".to_owned()]);
        command.push(format!("--pidfile={}", note.display()));
        command.push(format!("--log-file={}", at(&format!("{name}.log"))));
        Daemon { program, note, command }
    }

    /// Starts it unless it runs, and waits until it is ready.
    pub(crate) fn start(&self, namespace: &Namespace) -> Result<()> {
        if self.pid(namespace).is_some() {
            return Ok(());
        }
        namespace.run(&self.command)?;
        self.known(namespace).map(drop)
    }

    /// Its id within the namespaces, if it runs.
    pub(crate) fn pid(&self, namespace: &Namespace) -> Option<u32> {
        let pid = std::fs::read_to_string(&self.note).ok()?.trim().parse().ok()?;
        let words = namespace.command_line(pid)?;
        // A note may outlive its daemon, and an id may be used again.
        words.contains(&*self.note.to_string_lossy()).then_some(pid)
    }

    /// Ends it by a signal and waits for its end; one that is frozen ends too.
    pub(crate) fn end(&self, namespace: &Namespace, signal: &str) -> Result<()> {
        let Some(pid) = self.pid(namespace) else { return Ok(()) };
        send(namespace, pid, signal)?;
        if signal != "KILL" {
            send(namespace, pid, "CONT")?;
        }
        let what = format!("the end of {}", self.program);
        // Until it is collected: its last thread may hold its sockets for a moment longer.
        process::wait_until(&what, LIMIT, || !namespace.has_process(pid))
    }

    /// Sends a signal that it survives.
    pub(crate) fn signal(&self, namespace: &Namespace, signal: &str) -> Result<()> {
        send(namespace, self.known(namespace)?, signal)
    }

    fn known(&self, namespace: &Namespace) -> Result<u32> {
        self.pid(namespace).ok_or_else(|| Error::Failed {
            command: self.program.to_owned(),
            said: format!("it does not run: {} names no process of ours", self.note.display()),
        })
    }
}

fn send(namespace: &Namespace, pid: u32, signal: &str) -> Result<()> {
    namespace.run(["kill", "-s", signal, &pid.to_string()]).map(drop)
}
