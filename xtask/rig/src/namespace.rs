//! Namespaces with a first process that ends when we do.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use crate::error::{Error, Result};
use crate::process;

/// A set of namespaces of its own, processes included.
///
/// Its first process is a shell without a script: it reads our pipe until the end, and meanwhile collects the
/// processes that lost their parent, as the first process must (libvirt makes a daemon of each QEMU, and takes one
/// that nobody collects for one that cannot be killed).
#[derive(Debug)]
pub(crate) struct Namespace {
    holder: Child,
    /// Seen from outside.
    init: u32,
}

/// What [`Namespace::enter`] enters.
const ALL: [&str; 4] = ["--mount", "--net", "--uts", "--pid"];

impl Namespace {
    pub(crate) fn new() -> Result<Namespace> {
        let mut command = Command::new("unshare");
        command.args(["--fork", "--kill-child", "--mount-proc", "--propagation=private"]).args(ALL);
        command.args(["bash", "--noprofile", "--norc"]).env("PATH", process::path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let holder = command.spawn().map_err(Error::io("run unshare"))?;
        let mut namespace = Namespace { holder, init: 0 };
        namespace.init = namespace.first_process()?;
        Ok(namespace)
    }

    /// Waits until the first process answers, and finds its id.
    fn first_process(&mut self) -> Result<u32> {
        let doing = "talk to the first process of a namespace";
        let pipe = self.holder.stdin.as_mut().ok_or_else(|| lost(doing))?;
        pipe.write_all(b"echo ready\n").map_err(Error::io(doing))?;
        let output = self.holder.stdout.take().ok_or_else(|| lost(doing))?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(Error::io(doing))?;
        let holder = self.holder.id();
        let children = format!("/proc/{holder}/task/{holder}/children");
        let text = std::fs::read_to_string(&children).map_err(Error::io(format!("read {children}")))?;
        let pid = text.split_whitespace().next().and_then(|pid| pid.parse().ok());
        pid.filter(|_| line == "ready\n").ok_or_else(|| lost(doing))
    }

    /// Removes a directory when the namespaces end, in whatever way we do: everybody within is gone by then.
    pub(crate) fn remove_at_end(&mut self, directory: &std::path::Path) -> Result<()> {
        let doing = "talk to the first process of a namespace";
        let path = directory.display().to_string();
        if path.contains(['\'', '\n']) {
            return Err(lost(doing));
        }
        let pipe = self.holder.stdin.as_mut().ok_or_else(|| lost(doing))?;
        let line = format!("trap \"kill -KILL -1; rm -rf -- '{path}'\" EXIT\n");
        pipe.write_all(line.as_bytes()).map_err(Error::io(doing))
    }

    /// The id of the first process, by which others find the namespaces.
    pub(crate) fn pid(&self) -> String {
        self.init.to_string()
    }

    /// The arguments of `nsenter` to run a program in all of the namespaces.
    pub(crate) fn enter(&self) -> Vec<String> {
        let mut arguments = vec![format!("--target={}", self.init)];
        arguments.extend(ALL.map(str::to_owned));
        arguments
    }

    /// Runs a program within.
    pub(crate) fn run<I: IntoIterator<Item: AsRef<OsStr>>>(&self, command: I) -> Result<String> {
        let mut arguments: Vec<std::ffi::OsString> = self.enter().into_iter().map(Into::into).collect();
        arguments.extend(command.into_iter().map(|word| word.as_ref().to_owned()));
        process::run("nsenter", arguments)
    }

    /// The words with which a process within was started, by its id there; `None` if there is none, or only a corpse.
    pub(crate) fn command_line(&self, pid: u32) -> Option<String> {
        // The namespaces have a /proc of their own, which is seen from here through their first process.
        let words = std::fs::read(format!("/proc/{}/root/proc/{pid}/cmdline", self.init)).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        (!words.is_empty()).then_some(words)
    }

    /// Whether there is a process with this id within, if only a corpse.
    pub(crate) fn has_process(&self, pid: u32) -> bool {
        std::path::Path::new(&format!("/proc/{}/root/proc/{pid}", self.init)).exists()
    }

    /// Runs a program of ours in the network only, so that ids of processes mean what they mean outside.
    pub(crate) fn run_in_network<const N: usize>(&self, command: [&str; N]) -> Result<String> {
        let target = format!("--target={}", self.init);
        process::run("nsenter", [target.as_str(), "--net"].into_iter().chain(command))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The end of the pipe is the end of the shell, and that of everything within.
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

fn lost(doing: &str) -> Error {
    Error::Io { doing: doing.to_owned(), source: std::io::ErrorKind::BrokenPipe.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_ends_with_the_namespaces_though_somebody_still_writes_to_it() {
        let test = "a_directory_ends_with_the_namespaces_though_somebody_still_writes_to_it";
        if !crate::requirements::namespaces_available(test) {
            return;
        }
        let base = tempfile::tempdir().expect("a directory");
        let directory = base.path().join("its own");
        std::fs::create_dir(&directory).expect("a directory within");
        let mut namespace = Namespace::new().expect("namespaces");
        namespace.remove_at_end(&directory).expect("an order");
        let file = directory.join("busy");
        let busy = format!("(while :; do date >> '{}'; done) > /dev/null 2>&1 &", file.display());
        namespace.run(["bash", "-c", &busy]).expect("a process within");
        crate::process::wait_until("a first line", std::time::Duration::from_secs(60), || file.exists())
            .expect("a line");
        drop(namespace);
        assert!(!directory.exists());
    }
}
