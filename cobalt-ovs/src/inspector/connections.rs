//! Our own OpenFlow connections, counted.
//!
//! The switch counts all connections it has, ours included: those of another snapshot, or of somebody who reads flows for
//! minutes. Whether anybody *else* is connected is known only by taking ours away.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

/// How many there are. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(super) struct Connections(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    open: AtomicU64,
    /// Goes up whenever one comes or goes.
    changes: AtomicU64,
}

/// One connection, for as long as this lives. It begins before the connection does and ends after it.
#[derive(Debug)]
pub(super) struct Connection(Arc<Counts>);

/// What there was at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    open: u64,
    changes: u64,
}

impl Connections {
    pub(super) fn one(&self) -> Connection {
        self.0.open.fetch_add(1, SeqCst);
        self.0.changes.fetch_add(1, SeqCst);
        Connection(Arc::clone(&self.0))
    }

    pub(super) fn now(&self) -> Moment {
        Moment { changes: self.0.changes.load(SeqCst), open: self.0.open.load(SeqCst) }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, SeqCst);
        self.0.changes.fetch_add(1, SeqCst);
    }
}

/// Whether others than us and the configured controllers are connected, given what the switch counted between two
/// moments; `None` if it cannot be told, because connections of ours came or went meanwhile. One that came or went
/// shortly before the first moment the switch may not have noticed: one such count is not to be believed.
pub(super) fn others(counted: u64, configured: u64, before: Moment, after: Moment) -> Option<bool> {
    let (least, most) = (before.open.min(after.open), before.open.max(after.open));
    if counted <= configured.saturating_add(least) && before == after {
        Some(false)
    } else if counted > configured.saturating_add(most) && before == after {
        Some(true)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_connections_are_nobody_elses() {
        let ours = Connections::default();
        let none = ours.now();
        assert_eq!(others(3, 0, none, none), Some(true));
        assert_eq!(others(0, 0, none, none), Some(false));
        let reading = ours.one();
        let one = ours.now();
        assert_eq!(others(1, 0, one, one), Some(false), "that is us");
        assert_eq!(others(2, 1, one, one), Some(false), "and that a configured controller");
        assert_eq!(others(4, 0, one, one), Some(true));
        drop(reading);
        assert_eq!(ours.now().open, 0);
    }

    #[test]
    fn nothing_is_said_while_ours_come_and_go() {
        let ours = Connections::default();
        let before = ours.now();
        drop(ours.one());
        assert_eq!(before.open, ours.now().open);
        assert_eq!(others(1, 0, before, ours.now()), None, "it may have been ours");
    }
}
