//! Being asked to end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for whoever wants the program to end: Ctrl-C, a plain `kill`, a terminal that is closed. From its making on
/// none of them ends the program by itself, so that it can leave things tidy.
pub(super) struct Interrupt {
    signals: Vec<Signal>,
}

impl Interrupt {
    pub(super) fn listen() -> io::Result<Self> {
        let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate()];
        // Whoever ran us with nohup wants us to outlive the terminal.
        if !ignores(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), SignalKind::hangup()) {
            kinds.push(SignalKind::hangup());
        }
        Ok(Self { signals: kinds.into_iter().map(signal).collect::<io::Result<_>>()? })
    }

    /// Waits for the first of them.
    pub(super) async fn came(mut self) {
        let waiting = self.signals.iter_mut().map(|signal| Box::pin(signal.recv()));
        futures::future::select_all(waiting).await;
    }
}

/// Whether a process with this status ignores a signal.
fn ignores(status: &str, kind: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    u32::try_from(kind.as_raw_value() - 1).is_ok_and(|bit| mask.checked_shr(bit).is_some_and(|mask| mask & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_run_with_nohup_ignores_the_end_of_its_terminal_and_nothing_else() {
        let status = "Name:\tcobaltctl\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert!(ignores(status, SignalKind::hangup()));
        assert!(!ignores(status, SignalKind::terminate()) && !ignores(status, SignalKind::interrupt()));
        assert!(!ignores("", SignalKind::hangup()));
    }
}
