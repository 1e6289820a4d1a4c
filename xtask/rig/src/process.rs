//! Calling programs, and knowing processes again.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// No program that we wait for takes longer, on a loaded machine either.
const LIMIT: &str = "120";

/// A step towards a condition that nobody announces.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs a program to its end and returns what it wrote to its standard output.
pub(crate) fn run<I: IntoIterator<Item: AsRef<OsStr>>>(program: &str, arguments: I) -> Result<String> {
    run_with_input(program, arguments, "")
}

/// The same, with something on its standard input.
pub(crate) fn run_with_input<I: IntoIterator<Item: AsRef<OsStr>>>(
    program: &str,
    arguments: I,
    input: &str,
) -> Result<String> {
    use std::io::Write;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", LIMIT, program]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Programs of the system are found as root finds them, and speak one language.
    command.env("PATH", path()).env("LC_ALL", "C");
    let shown = shown(&command);
    let mut child = command.spawn().map_err(Error::io(format!("run `{shown}`")))?;
    if let Some(mut pipe) = child.stdin.take() {
        // A program that does not read its input has closed it.
        let _ = pipe.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(Error::io(format!("wait for `{shown}`")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let said = if said.is_empty() { output.status.to_string() } else { said };
    Err(Error::Failed { command: shown, said })
}

/// The caller's path with the system's directories behind it.
pub(crate) fn path() -> std::ffi::OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin");
    path
}

fn shown(command: &Command) -> String {
    // Without `timeout` and its arguments, which explain nothing.
    let words = command.get_args().skip(2).map(|word| word.to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}

/// Waits for a condition that has no event of its own.
pub(crate) fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) -> Result<()> {
    let started = Instant::now();
    while !condition() {
        if started.elapsed() > limit {
            return Err(Error::Late { what: format!("{what} did not happen"), seconds: limit.as_secs() });
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// A process: its id, and the time it began, because ids are used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pid: u32,
    began: String,
}

impl Process {
    pub(crate) fn own() -> Option<Process> {
        Process::of(std::process::id())
    }

    pub(crate) fn of(pid: u32) -> Option<Process> {
        Some(Process { pid, began: began(pid)? })
    }

    pub(crate) fn is_running(&self) -> bool {
        began(self.pid).is_some_and(|began| began == self.began)
    }

    pub(crate) fn to_text(&self) -> String {
        format!("{} {}\n", self.pid, self.began)
    }

    pub(crate) fn parse(text: &str) -> Option<Process> {
        let (pid, began) = text.trim_end().split_once(' ')?;
        Some(Process { pid: pid.parse().ok()?, began: began.to_owned() })
    }
}

/// The start time of a process in the kernel's clock ticks.
fn began(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name in the second field may hold anything, so fields count from the last `)`.
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
    fn a_process_is_known_again_by_its_record_and_not_by_its_id_alone() {
        let own = Process::own().expect("we are running");
        assert_eq!(Process::parse(&own.to_text()).as_ref(), Some(&own));
        assert!(own.is_running());
        assert!(!Process { began: "1".to_owned(), ..own }.is_running());
        assert_eq!(Process::parse("rubbish"), None);
    }

    #[test]
    fn a_failed_program_is_named_with_what_it_said() {
        let error = run("ls", ["/nowhere/at/all"]).expect_err("there is no such place");
        let text = error.to_string();
        assert!(text.starts_with("`ls /nowhere/at/all` failed: ls: cannot access"), "{text}");
        assert_eq!(error.category(), "failed");
    }

    #[test]
    fn input_reaches_the_program() {
        assert_eq!(run_with_input("cat", [] as [&str; 0], "a line").expect("an echo"), "a line");
    }
}
