//! Running a child: its lines, its end, and a limit on its time.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// What a child did.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) timed_out: bool,
    /// Standard output and standard error, in the order of arrival.
    pub(crate) lines: Vec<String>,
}

impl Finished {
    pub(crate) fn success(&self) -> bool {
        self.status.success() && !self.timed_out
    }
}

/// Runs the command to its end. `on_line` sees each line as it comes; `on_minute` is told the time since the
/// start about once a minute, so that a person or a CI system sees that something goes on.
pub(crate) fn run(
    mut command: Command,
    limit: Duration,
    mut on_line: impl FnMut(&str),
    mut on_minute: impl FnMut(Duration),
) -> Result<Finished> {
    const MINUTE: Duration = Duration::from_secs(60);
    let started = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let (sender, receiver) = sync_channel(1024);
    forward(child.stdout.take(), sender.clone());
    forward(child.stderr.take(), sender);
    let mut lines = Vec::new();
    let mut timed_out = false;
    let mut next_minute = MINUTE;
    loop {
        // Also a child that never stops talking has a limit.
        if started.elapsed() >= limit {
            timed_out = true;
            child.kill().context("cannot end a child that ran too long")?;
            break;
        }
        if started.elapsed() >= next_minute {
            on_minute(started.elapsed());
            next_minute += MINUTE;
        }
        match next(&receiver, next_minute.min(limit).saturating_sub(started.elapsed())) {
            Next::Line(line) => {
                on_line(&line);
                lines.push(line);
            }
            Next::Silence => {}
            Next::End => break,
        }
    }
    let status = child.wait().context("cannot learn how a child ended")?;
    Ok(Finished { status, timed_out, lines })
}

enum Next {
    Line(String),
    Silence,
    End,
}

fn next(receiver: &Receiver<String>, wait: Duration) -> Next {
    match receiver.recv_timeout(wait) {
        Ok(line) => Next::Line(line),
        Err(RecvTimeoutError::Timeout) => Next::Silence,
        Err(RecvTimeoutError::Disconnected) => Next::End,
    }
}

fn forward(stream: Option<impl Read + Send + 'static>, sender: SyncSender<String>) {
    let Some(stream) = stream else { return };
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut bytes = Vec::new();
        // Not `lines()`: one byte that is no UTF-8 must not hide the rest.
        while reader.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_owned();
            bytes.clear();
            if sender.send(line).is_err() {
                break;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Finished {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, limit, |_| {}, |_| {}).expect("sh runs")
    }

    #[test]
    fn both_streams_and_the_exit_code_are_seen() {
        let finished = shell("echo out; echo err >&2; printf 'no newline'; exit 3", Duration::from_secs(60));
        let mut lines = finished.lines.clone();
        lines.sort();
        assert_eq!(lines, ["err", "no newline", "out"]);
        assert_eq!(finished.status.code(), Some(3));
        assert!(!finished.success());
    }

    #[test]
    fn a_child_that_exceeds_its_limit_is_ended_and_has_failed() {
        for script in ["exec sleep 600", "exec yes"] {
            let finished = shell(script, Duration::from_millis(50));
            assert!(finished.timed_out && !finished.success(), "{script}");
        }
    }
}
