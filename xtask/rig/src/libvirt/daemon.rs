//! The process of one libvirtd.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::libvirt::config::Files;
use crate::namespace::Namespace;
use crate::process;

/// A libvirtd that can be ended and started again.
#[derive(Debug, Default)]
pub(crate) struct Daemon {
    /// `nsenter`, which ends when the daemon has.
    child: Mutex<Option<Child>>,
}

impl Daemon {
    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts it unless it runs.
    pub(crate) fn start(&self, namespace: &Namespace, files: &Files) -> Result<()> {
        let mut child = self.child();
        if child.is_some() {
            return Ok(());
        }
        let path = files.directory.join("output");
        let open = || File::options().create(true).append(true).open(&path);
        let (output, errors) = (open(), open());
        let opened = Error::io(format!("open {}", path.display()));
        let (output, errors) = output.and_then(|output| Ok((output, errors?))).map_err(opened)?;
        // The note of an earlier daemon would be taken for that of this one.
        let _ = std::fs::remove_file(files.run("libvirtd.pid"));
        let mut command = Command::new("nsenter");
        command.args(namespace.enter()).args(["libvirtd", "--listen", "--config", "/etc/libvirt/libvirtd.conf"]);
        command.args(["--pid-file", "/run/libvirt/libvirtd.pid"]).env("PATH", process::path()).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        *child = Some(command.spawn().map_err(Error::io("run nsenter"))?);
        Ok(())
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        match self.child().as_mut() {
            Some(child) => !matches!(child.try_wait(), Ok(None)),
            None => true,
        }
    }

    /// Ends it by a signal and waits for its end.
    pub(crate) fn end(&self, namespace: &Namespace, files: &Files, signal: &str) -> Result<()> {
        let mut slot = self.child();
        let Some(mut child) = slot.take() else { return Ok(()) };
        let sent = self::signal(namespace, files, signal);
        // `nsenter` stops together with a daemon that is stopped, and would not see its end.
        resume(&child);
        sent?;
        child.wait().map(drop).map_err(Error::io("wait for the end of libvirtd"))
    }

    pub(crate) fn freeze(namespace: &Namespace, files: &Files) -> Result<()> {
        signal(namespace, files, "STOP")
    }

    pub(crate) fn thaw(&self, namespace: &Namespace, files: &Files) -> Result<()> {
        signal(namespace, files, "CONT")?;
        if let Some(child) = self.child().as_ref() {
            resume(child);
        }
        Ok(())
    }
}

fn signal(namespace: &Namespace, files: &Files, signal: &str) -> Result<()> {
    let note = files.run("libvirtd.pid");
    let pid = std::fs::read_to_string(&note).map_err(Error::io(format!("read {}", note.display())))?;
    namespace.run(["kill", "-s", signal, pid.trim()]).map(drop)
}

fn resume(child: &Child) {
    // It has ended meanwhile, or gets the signal.
    let _ = process::run("kill", ["-s", "CONT", &child.id().to_string()]);
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Its namespace is gone by now, and so is the daemon.
        if let Some(mut child) = self.child().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
