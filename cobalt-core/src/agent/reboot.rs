//! Evacuate on reboot: a shutdown of the host waits until the instances have left.
//!
//! ```text
//!                      evacuateOnReboot            shutdown announced, has instances
//!   ┌─────┐ ─────────────────────────▶ ┌─────────┐ ─────────────────────────────────▶ ┌──────────┐
//!   │ Off │                            │ Holding │                                    │ Draining │──┐ take the host
//!   └─────┘ ◀───────────────────────── └─────────┘ ◀───────────────────────────────── └──────────┘◀─┘ out of service
//!                  no longer wanted       ▲    │           shutdown called off             │
//!                                         │    │ announced, nothing to move                │ empty, or too late, or
//!                    shutdown called off, │    ▼                                           │ libvirt stays away, or
//!                    or the host is back ┌────────┐                                        │ somebody took it back, or
//!                                        │ Let go │ ◀──────────────────────────────────────┘ the Hypervisor is gone
//!                                        └────────┘
//! ```
//!
//! In *Holding* and *Draining* the agent has a delay inhibitor; on every other edge, and when the agent ends, it is
//! dropped. The host is taken out of service by `spec.maintenance: auto` with a reason and an annotation that name this
//! agent and this boot. After the reboot, or when the shutdown is called off, exactly that is taken back: a mode that a
//! person has set or changed meanwhile is theirs, and stays.
//!
//! The host is empty when the operator says so *and* the host's own hypervisor runs nothing.

mod decide;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use clap::Args as ClapArgs;
use futures::{FutureExt, StreamExt};
use kube::Api;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};

use self::decide::{Announced, Change, Decision, Guests, Held, Seen, condition, decide};
pub use self::decide::{BOOT_ID_ANNOTATION, EVACUATE_ON_REBOOT, REBOOT_REASON};
use super::{
    node::FIELD_MANAGER,
    part::{Context, Contribution, Part},
};
use crate::{
    Error,
    api::{Hypervisor, Maintenance},
    backend::BackendEvent,
    host::{HostEvent, ShutdownInhibitor},
    publish,
    runtime::{
        Categorized,
        apply::{Applied, Applier, Target},
        args::duration,
        events::Event,
        queue::Backoff,
        shutdown::{Chain, Shutdown, TaskError},
    },
};

const HEADING: &str = "Reboots";
const NAME: &str = "reboots";
const NOT_SUPPORTED: &str = "NotSupported";
const WHY: &str = "instances are moved to other hosts";

/// How a shutdown of the host is treated.
#[derive(ClapArgs, Clone, Debug)]
#[group(skip)]
pub struct RebootArgs {
    /// How long a shutdown of the host may wait for its instances to leave. InhibitDelayMaxSec of logind limits it too
    #[arg(long, default_value = "10m", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub reboot_drain_time: Duration,

    /// Never hold a shutdown back, whatever spec.evacuateOnReboot says
    #[arg(long, help_heading = HEADING)]
    pub no_reboot_drain: bool,
}

impl RebootArgs {
    /// The part they describe.
    pub fn part(&self) -> Option<Reboots> {
        (!self.no_reboot_drain).then(|| Reboots::new(self.reboot_drain_time))
    }
}

/// Holds shutdowns of the host back until its instances have left.
#[derive(Clone, Debug)]
pub struct Reboots {
    drain_time: Duration,
}

impl Reboots {
    /// A shutdown waits no longer than this.
    pub fn new(drain_time: Duration) -> Self {
        Self { drain_time }
    }
}

#[async_trait]
impl Part for Reboots {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn run(self: Box<Self>, context: Context, stop: Shutdown) -> Result<(), TaskError> {
        Keeper::new(&self, context).run(&stop).await;
        Ok(()) // and with the keeper the inhibitor goes
    }
}

struct Keeper {
    drain_time: Duration,
    context: Context,
    api: Api<Hypervisor>,
    applier: Applier,
    inhibitor: Option<Box<dyn ShutdownInhibitor>>,
    held: Held,
    shutdown: Option<Announced>,
    guests: Guests,
    libvirt_gone_since: Option<Instant>,
    boot_id: Option<String>,
    started: Instant,
    /// What the server answered last: until the cache has caught up, this is newer.
    written: Option<Arc<Hypervisor>>,
    /// What must be asked again.
    ask: Ask,
    failures: u32,
    retry: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ask {
    boot: bool,
    inhibitor: bool,
    guests: bool,
}

impl Keeper {
    fn new(config: &Reboots, context: Context) -> Self {
        Self {
            drain_time: config.drain_time,
            api: Api::all(context.client.clone()),
            applier: Applier::new(FIELD_MANAGER, context.metrics.clone()),
            context,
            inhibitor: None,
            held: Held::No,
            shutdown: None,
            guests: Guests::Unknown,
            libvirt_gone_since: None,
            boot_id: None,
            started: Instant::now(),
            written: None,
            ask: Ask { boot: true, inhibitor: true, guests: true },
            failures: 0,
            retry: None,
        }
    }

    async fn run(mut self, stop: &Shutdown) {
        let mut own = self.context.own.clone();
        let mut host_events = self.context.host.events();
        let mut events = self.context.backend.events();
        let (mut host_ended, mut backend_ended) = (false, false);
        loop {
            let bound = self.draining_until().filter(|until| Instant::now() < *until);
            let look_again = tokio::select! {
                () = stop.triggered() => return,
                look_again = self.step() => look_again,
                // No call, however slow, makes a shutdown wait longer than it may.
                () = sleep_until(bound.unwrap_or_else(Instant::now)), if bound.is_some() => continue,
            };
            let wake = [look_again, self.retry].into_iter().flatten().min();
            tokio::select! {
                () = stop.triggered() => return,
                () = own.changed() => {}
                event = host_events.next(), if !host_ended => match event {
                    Some(event) => self.note_host(&event),
                    None => host_ended = true,
                },
                event = events.next(), if !backend_ended => match event {
                    Some(event) => self.note_backend(&event),
                    None => backend_ended = true,
                },
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
            // A host that empties itself is loud: what has arrived already is one reason to look, not many.
            while !backend_ended && let Some(Some(event)) = events.next().now_or_never() {
                self.note_backend(&event);
            }
        }
    }

    fn note_host(&mut self, event: &HostEvent) {
        match event {
            HostEvent::PrepareForShutdown(true) if self.shutdown.is_none() => {
                let limit = match self.held {
                    Held::Yes(Some(delay)) => delay.min(self.drain_time),
                    _ => self.drain_time,
                };
                self.shutdown = Some(Announced { until: Instant::now() + limit, marked: false, let_go: None });
                self.ask.guests = true;
                self.at_once();
                tracing::info!(?limit, "the host wants to shut down");
            }
            HostEvent::PrepareForShutdown(false) if self.shutdown.is_some() => self.back("the shutdown is called off"),
            HostEvent::Resync => {
                self.ask = Ask { boot: true, inhibitor: true, guests: true };
                self.at_once();
            }
            _ => {}
        }
    }

    /// Ends a pause after failures: things have changed.
    fn at_once(&mut self) {
        self.failures = 0;
        self.retry = None;
    }

    /// Until when the shutdown waits that waits now.
    fn draining_until(&self) -> Option<Instant> {
        self.shutdown.filter(|shutdown| shutdown.let_go.is_none()).map(|shutdown| shutdown.until)
    }

    /// No shutdown any more: whatever we marked for it is to be cleared without further waiting.
    fn back(&mut self, why: &'static str) {
        tracing::info!("{why}");
        self.shutdown = None;
        self.started = Instant::now().checked_sub(decide::SETTLE).unwrap_or(self.started);
        self.ask.inhibitor = true;
        self.at_once();
    }

    fn note_backend(&mut self, event: &BackendEvent) {
        self.ask.guests = true;
        match event {
            BackendEvent::Disconnected(_) => {
                self.guests = Guests::Unknown;
                self.libvirt_gone_since.get_or_insert_with(Instant::now);
            }
            BackendEvent::Connected => self.libvirt_gone_since = None,
            _ => {}
        }
    }

    /// Observes, decides, acts and says so. Returns when to look again at the latest.
    async fn step(&mut self) -> Option<Instant> {
        if !self.context.own.is_synced() {
            return None;
        }
        let due = self.retry.is_none_or(|retry| Instant::now() >= retry);
        if due {
            self.retry = None;
        }
        self.observe(due).await;
        let hypervisor = publish::newer(self.context.own.get(), self.written.take());
        self.written.clone_from(&hypervisor);
        if let (Some(hypervisor), Some(shutdown)) = (&hypervisor, &mut self.shutdown) {
            // Also what an agent before us has marked.
            shutdown.marked |= decide::is_ours(hypervisor);
        }
        let decision = decide(&self.seen(hypervisor.as_deref()));
        if let (Some(why), Some(shutdown)) = (decision.let_go, &mut self.shutdown) {
            shutdown.let_go = Some(why);
            tracing::info!(?why, guests = ?self.guests, "the shutdown is not held back any longer");
        }
        if decision.hold {
            self.hold(due).await;
        } else {
            self.inhibitor = None;
            self.held = Held::No;
        }
        if let Some(hypervisor) = hypervisor.as_deref()
            && due
        {
            self.write(hypervisor, decision).await;
        }
        self.say(decision);
        if due && self.retry.is_none() {
            self.failures = 0;
        }
        decision.look_again
    }

    fn seen<'a>(&'a self, hypervisor: Option<&'a Hypervisor>) -> Seen<'a> {
        Seen {
            hypervisor,
            boot_id: self.boot_id.as_deref(),
            shutdown: self.shutdown,
            guests: self.guests,
            libvirt_gone_since: self.libvirt_gone_since,
            started: self.started,
            now: Instant::now(),
        }
    }

    async fn observe(&mut self, due: bool) {
        let draining = self.draining_until();
        let left = draining.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return; // it is too late to ask
        }
        let limit = self.context.call_timeout;
        if self.ask.boot && due {
            match timeout(limit, self.context.host.facts()).await {
                Ok(Ok(facts)) => {
                    self.ask.boot = false;
                    if self.boot_id.is_some() && facts.boot_id != self.boot_id && self.shutdown.is_some() {
                        self.back("the host has rebooted");
                    }
                    self.boot_id = facts.boot_id;
                }
                Ok(Err(error)) => self.failed("read the boot id", &error),
                Err(_) => self.failed("read the boot id", &Error::timeout("read facts", limit)),
            }
        }
        if self.ask.guests && draining.is_some() && due {
            match timeout(limit, self.context.backend.inventory()).await {
                Ok(Ok(domains)) => {
                    self.ask.guests = false;
                    self.libvirt_gone_since = None;
                    let active = domains.iter().filter(|domain| domain.state.is_active()).count();
                    self.guests = Guests::Known { all: domains.len(), active };
                }
                answer => {
                    self.guests = Guests::Unknown;
                    self.libvirt_gone_since.get_or_insert_with(Instant::now);
                    match answer {
                        Ok(Err(error)) => self.failed("list the instances", &error),
                        _ => self.failed("list the instances", &Error::timeout("list domains", limit)),
                    }
                }
            }
        }
    }

    async fn hold(&mut self, due: bool) {
        // While a shutdown is announced logind takes no new ones, and the one we have is good.
        let renew = self.ask.inhibitor && self.shutdown.is_none();
        // What a host does not have it is not asked for again before something about it has changed.
        let in_vain = matches!(self.held, Held::Failed(NOT_SUPPORTED, _)) && !self.ask.inhibitor;
        if !due || in_vain || (self.inhibitor.is_some() && !renew) {
            return;
        }
        let limit = self.context.call_timeout;
        let answer = timeout(limit, self.context.host.inhibit_shutdown(WHY)).await;
        match answer.unwrap_or_else(|_| Err(Error::timeout(format!("delay shutdown ({WHY})"), limit))) {
            Ok(inhibitor) => {
                self.ask.inhibitor = false;
                self.held = Held::Yes(inhibitor.max_delay());
                // The old one is dropped after the new one is there: no gap.
                self.inhibitor = Some(inhibitor);
            }
            Err(error) => {
                if self.inhibitor.is_none() {
                    let reason = if error.is_unsupported() { NOT_SUPPORTED } else { "Failed" };
                    self.held = Held::Failed(reason, Chain(&error).to_string());
                }
                if error.is_unsupported() {
                    self.ask.inhibitor = false;
                } else {
                    self.failed("hold shutdowns back", &error);
                }
            }
        }
    }

    async fn write(&mut self, observed: &Hypervisor, decision: Decision) {
        let desired = match decision.change {
            Change::Keep => return,
            Change::Mark => self.mark(),
            Change::Clear => json!({}),
            Change::Disown => {
                let mut body = publish::ours(Some(observed), &self.applier.owned(observed, Target::Main));
                if let Some(annotations) = body["metadata"]["annotations"].as_object_mut() {
                    annotations.remove(BOOT_ID_ANNOTATION);
                }
                body
            }
        };
        let limit = self.context.call_timeout;
        match timeout(limit, self.applier.main_unless_changed(&self.api, observed, &desired)).await {
            Ok(Ok(applied)) => {
                if let (Change::Mark, Some(shutdown)) = (decision.change, &mut self.shutdown) {
                    shutdown.marked = true;
                }
                if let Applied::Written(object) = applied {
                    self.tell(observed, decision.change);
                    self.written = Some(Arc::new(*object));
                }
            }
            // Somebody was faster: the watch brings what they wrote, and we decide again.
            Ok(Err(error)) => self.failed(error.category(), &error),
            Err(_) => self.failed("write the maintenance mode", &Error::timeout("apply Hypervisor", limit)),
        }
    }

    /// The fields of the Hypervisor that say: out of service, by us, for this boot's end.
    fn mark(&self) -> Value {
        json!({
            "metadata": {"annotations": {BOOT_ID_ANNOTATION: self.boot_id.clone().unwrap_or_default()}},
            "spec": {"maintenance": Maintenance::Auto, "maintenanceReason": REBOOT_REASON},
        })
    }

    fn tell(&self, hypervisor: &Hypervisor, change: Change) {
        let (reason, note) = match change {
            Change::Mark => ("ShutdownAnnounced", "the host wants to shut down and is taken out of service"),
            Change::Clear => ("ShutdownOver", "the host is put back into service after its shutdown"),
            Change::Disown | Change::Keep => return,
        };
        tracing::info!("{note}");
        self.context.recorder.publish(Event::normal(hypervisor, "Reboot", reason, note));
    }

    fn say(&self, decision: Decision) {
        let hypervisor = self.written.as_deref();
        let wanted = condition(&self.seen(hypervisor), &self.held, self.drain_time);
        if let (Some(why), Some(hypervisor), Some(said)) = (decision.let_go, hypervisor, &wanted) {
            let event = if why.is_trouble() { Event::warning::<Hypervisor> } else { Event::normal };
            self.context.recorder.publish(event(hypervisor, "Reboot", &said.reason, said.message.clone()));
        }
        let contribution = match wanted {
            Some(condition) => Contribution::condition(condition),
            // Not held yet says nothing; not wanted takes the word back.
            None if hypervisor.is_some_and(|hypervisor| hypervisor.spec.evacuate_on_reboot()) => return,
            None => Contribution::without(EVACUATE_ON_REBOOT),
        };
        self.context.board.put(NAME, contribution);
    }

    fn failed(&mut self, what: &str, error: &(dyn std::error::Error + 'static)) {
        self.failures += 1;
        // A shutdown does not wait for long pauses.
        let limit = Duration::from_secs(if self.shutdown.is_some() { 5 } else { 300 });
        let retry_in = Backoff { first: Duration::from_secs(1), limit }.after(self.failures);
        self.retry = Some(Instant::now() + retry_in);
        tracing::warn!(what, ?retry_in, error = %Chain(error), "trying again");
    }
}
