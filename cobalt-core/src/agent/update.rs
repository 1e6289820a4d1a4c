//! Updates of the operating system, by systemd-sysupdate.
//!
//! ```text
//!            spec.version is another            unit runs
//!   ┌──────┐ ────────────────────▶ ┌──────────┐ ──────▶ ┌─────────┐ inactive   ┌───────────┐
//!   │ Rest │                       │ Starting │         │ Running │ ─────────▶ │ Completed │ ──▶ reboot, if wanted
//!   └──────┘                       └──────────┘         └─────────┘            └───────────┘
//!                                       ▲  after a pause     │ failed
//!                                       │                    ▼
//!                                       └───────────── ┌─────────┐  no attempts left: until spec.version changes
//!                                                      │ Stopped │ ◀──┐
//!                                                      └─────────┘ ───┘
//! ```
//!
//! `status.updateStatus` and the condition remember how far it is, so that a restarted agent goes on where it was: a
//! unit that runs is followed, one that failed is counted, and one that ended unseen is run once more.

mod decide;

use std::time::Duration;

use async_trait::async_trait;
use clap::Args as ClapArgs;
use futures::{StreamExt, stream::BoxStream};
use tokio::time::{Instant, sleep_until, timeout};

use self::decide::{Seen, Step, after_failure, condition, decide, fresh, subject, unit_name};
use super::part::{Context, Contribution, Part};
use crate::{
    Error,
    api::{Condition, Hypervisor, UpdateStatus, condition_types::OPERATING_SYSTEM_UPDATE, reasons},
    host::{ActiveState, HostEvent},
    runtime::{
        queue::Backoff,
        shutdown::{Chain, Shutdown, TaskError},
    },
};

const HEADING: &str = "Updates";
const NAME: &str = "updates";

/// What brings an installed update to life.
const REBOOT: &str = "systemd-sysupdate-reboot.target";

/// How long a started unit may keep silent.
const OVERDUE: Duration = Duration::from_secs(60);

/// Whether updates are made.
#[derive(ClapArgs, Clone, Debug)]
#[group(skip)]
pub struct UpdateArgs {
    /// Never update the operating system, whatever spec.version says
    #[arg(long, help_heading = HEADING)]
    pub no_os_updates: bool,
}

impl UpdateArgs {
    /// The part they describe.
    pub fn part(&self) -> Option<Updates> {
        (!self.no_os_updates).then(Updates::new)
    }
}

/// Updates the host's operating system to the version its Hypervisor wants.
#[derive(Clone, Debug, Default)]
pub struct Updates {}

impl Updates {
    /// By the units of systemd-sysupdate.
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Part for Updates {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn run(self: Box<Self>, context: Context, stop: Shutdown) -> Result<(), TaskError> {
        let events = context.host.events();
        Updater { context, progress: None, retry: None, failures: 0 }.run(events, &stop).await;
        Ok(())
    }
}

/// How far we are with one version.
struct Progress {
    version: String,
    status: UpdateStatus,
    said: Option<Condition>,
    unit: Option<ActiveState>,
    /// A start was accepted, and nothing has been heard of the unit since.
    asked: bool,
    watched: bool,
    reboot_due: bool,
}

struct Updater {
    context: Context,
    progress: Option<Progress>,
    /// Nothing is tried before this.
    retry: Option<Instant>,
    failures: u32,
}

impl Updater {
    async fn run(mut self, mut events: BoxStream<'static, HostEvent>, stop: &Shutdown) {
        let mut own = self.context.own.clone();
        let mut ended = false;
        loop {
            let more = tokio::select! {
                () = stop.triggered() => return,
                more = self.step() => more,
            };
            if more {
                continue;
            }
            let retry = self.retry;
            tokio::select! {
                () = stop.triggered() => return,
                () = own.changed() => {}
                event = events.next(), if !ended => match event {
                    Some(event) => self.note(&event),
                    None => ended = true,
                },
                () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => self.retry = None,
            }
        }
    }

    fn note(&mut self, event: &HostEvent) {
        let Some(progress) = &mut self.progress else { return };
        let ours = match event {
            HostEvent::UnitChanged(name) => unit_name(&progress.version).as_ref() == Some(name),
            HostEvent::Resync => true,
            HostEvent::PrepareForShutdown(_) => false,
        };
        if ours {
            // What was seen before a gap may have been another boot's.
            progress.watched = (progress.watched || progress.asked) && *event != HostEvent::Resync;
            if std::mem::take(&mut progress.asked) {
                self.retry = None;
            }
            progress.unit = None;
        }
    }

    /// One step, and whether there is more to do at once.
    async fn step(&mut self) -> bool {
        let Some(own) = self.context.own.get() else { return false };
        self.turn(&own);
        let Some(progress) = &self.progress else { return false };
        if progress.reboot_due && self.retry.is_none() {
            self.reboot(&own).await;
            return false;
        }
        if progress.asked && self.retry.is_none() {
            return self.overdue().await;
        }
        let running = own.status.as_ref().and_then(|status| status.operating_system.as_ref());
        let step = decide(&Seen {
            wanted: Some(&progress.version),
            running,
            status: &progress.status,
            unit: progress.unit.as_ref(),
            watched: progress.watched,
        });
        match step {
            Step::Refuse => {
                self.say(false, reasons::STOPPED, "not a version that can be installed");
                false
            }
            Step::Look if self.retry.is_none() => self.look().await,
            Step::Start if self.retry.is_none() => self.start().await,
            Step::Rest | Step::Look | Step::Start => false,
            Step::Follow => {
                self.change(|progress| {
                    progress.watched |= !progress.asked;
                    progress.status.in_progress = Some(true);
                });
                self.say(true, reasons::RUNNING, "the update runs");
                false
            }
            Step::Done => {
                let reboot = own.spec.reboot();
                self.change(|progress| {
                    let installed = Some(progress.version.clone());
                    progress.status = fresh(installed);
                    (progress.watched, progress.reboot_due) = (false, reboot);
                });
                let message =
                    if reboot { "installed, the host reboots" } else { "installed, to be used after a reboot" };
                self.say(true, reasons::COMPLETED, message);
                reboot
            }
            Step::Failed => {
                self.failed_attempt("the unit failed");
                false
            }
            Step::GiveUp => {
                // Said when the last attempt failed; after a restart it is published already.
                self.retry = None;
                false
            }
        }
    }

    /// Turns to the version that is wanted now.
    fn turn(&mut self, own: &Hypervisor) {
        let Some(version) = own.spec.version.as_deref().filter(|version| !version.is_empty()) else {
            self.progress = None;
            return;
        };
        if self.progress.as_ref().is_some_and(|progress| progress.version == version) {
            return;
        }
        let published = own.status.as_ref().and_then(|status| status.update_status.clone()).unwrap_or_default();
        let said = own.condition(OPERATING_SYSTEM_UPDATE);
        // Only a restarted agent may go on with what is published, and only if that is about the same version.
        let resumed = self.progress.is_none() && said.and_then(subject) == Some(version);
        let status = if resumed { published } else { fresh(published.installed) };
        self.progress = Some(Progress {
            version: version.to_owned(),
            status,
            said: None,
            unit: None,
            asked: false,
            watched: false,
            reboot_due: false,
        });
        (self.failures, self.retry) = (0, None);
    }

    async fn look(&mut self) -> bool {
        let Some(unit) = self.progress.as_ref().and_then(|progress| unit_name(&progress.version)) else { return false };
        let limit = self.context.call_timeout;
        let answer = timeout(limit, self.context.host.units(std::slice::from_ref(&unit))).await;
        match answer.unwrap_or_else(|_| Err(Error::timeout(format!("read unit {unit}"), limit))) {
            Ok(units) => {
                self.failures = 0;
                let active = units.into_iter().next().map_or(ActiveState::Inactive, |unit| unit.active);
                self.change(|progress| progress.unit = Some(active));
                true
            }
            Err(error) => {
                self.pause(&error);
                false
            }
        }
    }

    async fn start(&mut self) -> bool {
        let Some(unit) = self.progress.as_ref().and_then(|progress| unit_name(&progress.version)) else { return false };
        let limit = self.context.call_timeout;
        let answer = timeout(limit, self.context.host.start_unit(&unit)).await;
        match answer.unwrap_or_else(|_| Err(Error::timeout(format!("start unit {unit}"), limit))) {
            Ok(()) => {
                tracing::info!(unit, "update started");
                // Published only now: a crash before this leaves nothing that claims to run.
                self.change(|progress| {
                    // An accepted start may not have begun: the unit's own word is waited for, and not too long.
                    progress.unit = Some(ActiveState::Activating);
                    (progress.asked, progress.watched) = (true, false);
                    progress.status.in_progress = Some(true);
                });
                self.retry = Some(Instant::now() + OVERDUE);
                self.say(true, reasons::RUNNING, "the update runs");
                false
            }
            // A host that does not answer has not refused: that is not an attempt.
            Err(error) if error.is_transient() => {
                self.pause(&error);
                false
            }
            Err(error) => {
                self.failed_attempt(&Chain(&error).to_string());
                false
            }
        }
    }

    /// Nothing was heard of a unit that was to start: asks.
    async fn overdue(&mut self) -> bool {
        if !self.look().await {
            return false;
        }
        let found = self.progress.as_mut().and_then(|progress| {
            progress.asked = false;
            progress.unit.clone()
        });
        if found == Some(ActiveState::Inactive) {
            self.failed_attempt("the unit was started and did not run");
            return false;
        }
        true
    }

    async fn reboot(&mut self, own: &Hypervisor) {
        if !own.spec.reboot() {
            self.change(|progress| progress.reboot_due = false);
            return;
        }
        let limit = self.context.call_timeout;
        let answer = timeout(limit, self.context.host.start_unit(REBOOT)).await;
        match answer.unwrap_or_else(|_| Err(Error::timeout(format!("start unit {REBOOT}"), limit))) {
            Ok(()) => {
                tracing::info!(unit = REBOOT, "reboot asked for");
                self.change(|progress| progress.reboot_due = false);
            }
            Err(error) => {
                self.say(
                    true,
                    reasons::COMPLETED,
                    &format!("installed, but the host does not reboot: {}", Chain(&error)),
                );
                self.pause(&error);
            }
        }
    }

    fn failed_attempt(&mut self, why: &str) {
        let Some(progress) = &mut self.progress else { return };
        let (status, said) = after_failure(&progress.status, &progress.version, why);
        tracing::warn!(version = progress.version, left = status.retry(), why, "the update failed");
        let left = status.retry();
        (progress.status, progress.said) = (status, Some(said));
        (progress.unit, progress.asked, progress.watched) = (None, false, false);
        self.publish();
        let backoff = Backoff { first: Duration::from_secs(30), limit: Duration::from_secs(600) };
        let failed = u32::try_from(decide::ATTEMPTS - left).unwrap_or(1);
        self.retry = (left > 0).then(|| Instant::now() + backoff.after(failed));
    }

    /// The host does not answer now: later.
    fn pause(&mut self, error: &Error) {
        self.failures += 1;
        let backoff = Backoff { first: Duration::from_secs(1), limit: Duration::from_secs(300) };
        let retry_in = backoff.after(self.failures);
        self.retry = Some(Instant::now() + retry_in);
        tracing::warn!(?retry_in, category = error.category(), error = %Chain(error), "the update waits for the host");
    }

    fn change(&mut self, change: impl FnOnce(&mut Progress)) {
        if let Some(progress) = &mut self.progress {
            change(progress);
        }
    }

    fn say(&mut self, holds: bool, reason: &str, message: &str) {
        self.change(|progress| progress.said = Some(condition(&progress.version, holds, reason, message)));
        self.publish();
    }

    fn publish(&self) {
        let Some(Progress { status, said: Some(said), .. }) = &self.progress else { return };
        let contribution =
            Contribution { update_status: Some(status.clone()), ..Contribution::condition(said.clone()) };
        self.context.board.put(NAME, contribution);
    }
}
