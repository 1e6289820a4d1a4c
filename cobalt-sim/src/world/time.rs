//! The world's time: one clock, one agenda of what is due, one task that follows it.
//!
//! Nothing in the world has a task or a timer of its own. What must happen later stands in the [`Agenda`]; whoever
//! looks at the world first brings it up to date, and the driver task makes sure that somebody does. Time is
//! Tokio's: under `start_paused` it is virtual.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    sync::{Arc, Weak},
    time::Duration,
};

use jiff::Timestamp;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{HostId, Inner};

/// Where the world's timestamps come from: a fixed start plus the time Tokio says has passed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Timestamp,
    origin: Instant,
}

impl Clock {
    pub(crate) fn starting_at(start: Timestamp) -> Self {
        Self { start, origin: Instant::now() }
    }

    /// The timestamp of a moment.
    pub(crate) fn at(&self, moment: Instant) -> Timestamp {
        let elapsed = moment.saturating_duration_since(self.origin);
        self.start.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}

/// How long things take. The defaults are short enough for a demo and long enough to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Nova notices a silent compute service after this long (`service_down_time`).
    pub service_down: Duration,
    /// The cluster gives a silent Node up after this long (`node-monitor-grace-period`).
    pub node_grace: Duration,
    /// Nova's compute agent looks at its host again after this long.
    pub compute_periodic: Duration,
    /// From a request for power-off to darkness.
    pub power_off: Duration,
    /// From power to a running operating system.
    pub boot: Duration,
    /// From a running operating system to a reporting compute agent.
    pub compute_start: Duration,
    /// A libvirt daemon's restart.
    pub daemon_restart: Duration,
    /// Making a server.
    pub build: Duration,
    /// Deleting a server.
    pub delete: Duration,
    /// From a started guest to the first lines on its console.
    pub guest_boot: Duration,
    /// Choosing a target and preparing it.
    pub prepare: Duration,
    /// Copying one GiB of guest memory.
    pub copy_per_gib: Duration,
    /// The last step of a migration, which cannot be taken back.
    pub finish: Duration,
    /// Cleaning up the place that a confirmed server has left.
    pub confirm: Duration,
    /// Rebuilding a server of a dead host.
    pub evacuate: Duration,
    /// An operating system update.
    pub os_update: Duration,
    /// How long a shutdown waits for those who delay it (`InhibitDelayMaxSec`).
    pub inhibit_delay: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            service_down: Duration::from_secs(60),
            node_grace: Duration::from_secs(40),
            compute_periodic: Duration::from_secs(60),
            power_off: Duration::from_secs(2),
            boot: Duration::from_secs(60),
            compute_start: Duration::from_secs(5),
            daemon_restart: Duration::from_secs(3),
            build: Duration::from_secs(4),
            delete: Duration::from_secs(2),
            guest_boot: Duration::from_secs(5),
            prepare: Duration::from_secs(1),
            copy_per_gib: Duration::from_millis(400),
            finish: Duration::from_millis(500),
            confirm: Duration::from_secs(2),
            evacuate: Duration::from_secs(4),
            os_update: Duration::from_secs(30),
            inhibit_delay: Duration::from_secs(300),
        }
    }
}

/// What is due at some moment. An entry that the world has overtaken (another boot, another step) does nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Due {
    /// The power goes, unless somebody switched it on again meanwhile.
    PowerOff(HostId, u32),
    /// The operating system is up.
    OsUp(HostId, u32),
    /// The compute agent reports.
    ComputeUp(HostId, u32),
    /// The libvirt daemon is back.
    DaemonUp(HostId, u32),
    /// The compute agent looks at its host.
    ComputePeriodic(HostId, u32),
    /// A delayed shutdown is not delayed any longer.
    ShutdownNow(HostId, u32),
    /// A unit that runs once has ended.
    UnitDone(HostId, u32, String),
    /// A server is made, or cannot be.
    ServerBuilt(Uuid),
    /// A server is gone.
    ServerDeleted(Uuid),
    /// A migration takes its next step.
    Migration(u64, u32),
    /// A migration has gone through the memory once more.
    Iteration(u64, u32),
    /// A domain's own migration, without Nova, is over.
    DirectMigration(HostId, Uuid, u32),
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    at: Instant,
    /// Keeps entries of one moment in the order they were made.
    order: u64,
    due: Due,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Everything that is to happen, soonest first.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    entries: BinaryHeap<Reverse<Entry>>,
    order: u64,
}

impl Agenda {
    pub(crate) fn add(&mut self, at: Instant, due: Due) {
        self.order += 1;
        self.entries.push(Reverse(Entry { at, order: self.order, due }));
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.entries.peek().map(|Reverse(entry)| entry.at)
    }

    /// The next entry that is due at `now`, with its moment.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Instant, Due)> {
        if self.next_at()? > now {
            return None;
        }
        self.entries.pop().map(|Reverse(entry)| (entry.at, entry.due))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// What the driver task waits for besides time.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    /// The agenda has a new first entry.
    pub(crate) sooner: Notify,
    /// The world is gone.
    pub(crate) over: CancellationToken,
}

/// Follows the agenda until the world is gone. Holds the world only while it works on it.
pub(crate) async fn drive(world: Weak<Inner>, wake: Arc<Wake>) {
    loop {
        let next = {
            let Some(world) = world.upgrade() else { return };
            world.catch_up()
        };
        let time = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wake.over.cancelled() => return,
            () = wake.sooner.notified() => {}
            () = time => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_due_at_one_moment_happens_in_the_order_it_was_planned() {
        let mut agenda = Agenda::default();
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let server = |n| Due::ServerBuilt(Uuid::from_u128(n));
        agenda.add(later, server(2));
        agenda.add(now, server(1));
        agenda.add(later, server(3));
        assert_eq!(agenda.pop(now), Some((now, server(1))));
        assert_eq!(agenda.pop(now), None);
        assert_eq!(agenda.pop(later), Some((later, server(2))));
        assert_eq!(agenda.pop(later), Some((later, server(3))));
        assert_eq!(agenda.len(), 0);
    }
}
