//! The connection to the daemon: made, watched, lost, and made again.
//!
//! ```text
//!             ┌────────────── wait, doubled each time ◀──┐
//!             ▼                                          │ failed
//!    ┌──────────────┐  open, ask, register   ┌───────────┴──┐
//! ──▶│  connecting  ├───────────────────────▶│  (attempt)   │
//!    └──────────────┘                        └───────────┬──┘
//!             ▲                                          │ Connected
//!             │ Disconnected, wait                       ▼
//!             └──────────────────────────────────── connected: events are passed on
//! ```
//!
//! `Connected` is told only when callbacks are registered: whoever lists after it and follows the events misses
//! nothing. `Disconnected` is told once per lost connection, not once per failed attempt.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use cobalt_core::{
    Result,
    backend::{BackendEvent, Features, Versions},
    ids::InstanceId,
};
use futures::StreamExt;
use tokio::sync::watch;
use uuid::Uuid;

use super::{
    cache::Cache,
    events,
    features::{self, Ability},
    options::BackendOptions,
    topic::Topic,
};
use crate::{
    Error,
    client::{EventSubscription, JobQuery, Libvirt, Notice, StatsOptions},
    event::{EventId, Message},
    rpc::{DomainCapabilitiesArguments, DomainRef, StatsGroups},
    uri::LibvirtUri,
    xml::HostXml,
};

/// How the connection to the daemon fares, for metrics and diagnostics.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionState {
    /// Whether there is a connection.
    pub connected: bool,
    /// Since when that is so.
    pub since: Instant,
    /// How many connections were made after the first.
    pub reconnects: u64,
    /// How many attempts failed since there was a connection.
    pub failed_attempts: u64,
    /// Why the last connection ended or the last attempt failed; kept after a success.
    pub last_error: Option<String>,
}

/// One connection and what is known through it.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) libvirt: Libvirt,
    pub(super) driver: String,
    pub(super) versions: Versions,
    /// The host's shape, which does not change while a daemon runs.
    host: Mutex<Option<Arc<HostXml>>>,
}

impl Live {
    /// The host's shape, asked for once per connection.
    pub(super) async fn host(&self) -> Result<Arc<HostXml>> {
        let known = self.host.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Some(host) => Ok(host),
            None => self.fresh_host().await,
        }
    }

    /// The host's shape, asked for now.
    pub(super) async fn fresh_host(&self) -> Result<Arc<HostXml>> {
        let seam = |error: Error| error.into_core(&self.driver);
        let text = self.libvirt.capabilities().await.map_err(seam)?;
        let mut host = HostXml::parse(&text).map_err(|error| error.into_seam("get capabilities"))?;
        if host.cells.is_empty() {
            let node = self.libvirt.node_info().await.map_err(seam)?;
            host = host.or_one_cell(node.memory_kib.saturating_mul(1024), u32::try_from(node.cpus).unwrap_or_default());
        }
        let host = Arc::new(host);
        *self.host.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&host));
        Ok(host)
    }
}

/// What changes with the connection, under one lock, so that nobody sees half of a change.
#[derive(Debug)]
struct Link {
    live: Option<Arc<Live>>,
    topic: Topic,
    driver: String,
    features: Features,
    state: ConnectionState,
    connected_before: bool,
}

/// What all handles of a backend and its supervisor share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) uri: LibvirtUri,
    pub(super) options: BackendOptions,
    pub(super) cache: Mutex<Cache>,
    link: Mutex<Link>,
    /// Goes up with each finished attempt.
    attempts: watch::Sender<u64>,
}

impl Shared {
    pub(super) fn new(uri: LibvirtUri, options: BackendOptions) -> Self {
        let driver = uri.driver().to_owned();
        let link = Link {
            live: None,
            topic: Topic::new(options.event_capacity),
            features: features::known(&driver).unwrap_or_else(features::hoped),
            driver,
            state: ConnectionState {
                connected: false,
                since: Instant::now(),
                reconnects: 0,
                failed_attempts: 0,
                last_error: None,
            },
            connected_before: false,
        };
        Self { uri, options, cache: Mutex::default(), link: Mutex::new(link), attempts: watch::Sender::new(0) }
    }

    fn link<T>(&self, act: impl FnOnce(&mut Link) -> T) -> T {
        act(&mut self.link.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn cache<T>(&self, act: impl FnOnce(&mut Cache) -> T) -> T {
        act(&mut self.cache.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until an attempt to connect has ended, well or not.
    pub(super) async fn first_attempt(&self) {
        let mut attempts = self.attempts.subscribe();
        let _ = attempts.wait_for(|count| *count > 0).await;
    }

    pub(super) fn live(&self) -> Result<Arc<Live>, Option<String>> {
        self.link(|link| link.live.clone().ok_or_else(|| link.state.last_error.clone()))
    }

    pub(super) fn driver(&self) -> String {
        self.link(|link| link.driver.clone())
    }

    pub(super) fn features(&self) -> Features {
        self.link(|link| link.features.clone())
    }

    /// The driver said that it lacks this.
    pub(super) fn lacks(&self, ability: Ability) {
        self.link(|link| features::without(&mut link.features, ability));
    }

    pub(super) fn state(&self) -> ConnectionState {
        self.link(|link| link.state.clone())
    }

    pub(super) fn subscribe(&self) -> super::topic::Reader {
        self.link(|link| {
            let first = link.live.is_some().then_some(BackendEvent::Connected);
            link.topic.subscribe(first)
        })
    }

    pub(super) fn readers(&self) -> usize {
        self.link(|link| link.topic.readers())
    }

    fn publish(&self, event: &BackendEvent) {
        self.link(|link| link.topic.publish(event));
    }

    fn up(&self, live: Arc<Live>, features: Features) {
        self.cache(Cache::clear);
        self.link(|link| {
            link.driver.clone_from(&live.driver);
            link.features = features;
            link.live = Some(live);
            link.state.connected = true;
            link.state.since = Instant::now();
            link.state.failed_attempts = 0;
            link.state.reconnects += u64::from(link.connected_before);
            link.connected_before = true;
            link.topic.publish(&BackendEvent::Connected);
        });
        self.attempts.send_modify(|count| *count += 1);
    }

    fn down(&self, why: String) {
        self.link(|link| {
            link.live = None;
            link.state.connected = false;
            link.state.since = Instant::now();
            link.state.last_error = Some(why.clone());
            link.topic.publish(&BackendEvent::Disconnected(why));
        });
    }

    fn failed(&self, why: String) {
        self.link(|link| {
            link.state.failed_attempts += 1;
            link.state.last_error = Some(why);
        });
        self.attempts.send_modify(|count| *count += 1);
    }

    /// Connects, and connects again, for as long as it is polled.
    pub(super) async fn supervise(self: Arc<Self>) {
        let mut attempt = 0;
        loop {
            match self.attempt().await {
                Ok((live, features, subscription)) => {
                    tracing::info!(peer = live.libvirt.peer(), driver = live.driver, "connected to libvirt");
                    let (libvirt, began) = (live.libvirt.clone(), tokio::time::Instant::now());
                    self.up(live, features);
                    self.follow(subscription).await;
                    let why = chain(&libvirt.closed().await);
                    tracing::warn!(peer = libvirt.peer(), reason = why, "lost the connection to libvirt");
                    self.down(why);
                    // A daemon that takes us and throws us out at once is not one to run against at full speed.
                    if began.elapsed() > self.options.reconnect_most {
                        attempt = 0;
                    }
                }
                Err(error) => {
                    let why = chain(&error);
                    tracing::debug!(uri = %self.uri, attempt, error = why, "no connection to libvirt");
                    self.failed(why);
                }
            }
            tokio::time::sleep(self.options.wait(attempt)).await;
            attempt = attempt.saturating_add(1);
        }
    }

    /// Opens a connection and asks what is to be known before it is announced.
    async fn attempt(&self) -> Result<(Arc<Live>, Features, EventSubscription), Error> {
        let libvirt = Libvirt::connect_with(&self.uri, &self.options.connection).await?;
        let driver = libvirt.driver_type().await?.to_lowercase();
        let versions = Versions {
            library: told(libvirt.library_version().await)?.map(|version| version.to_string()),
            hypervisor: told(libvirt.hypervisor_version().await)?.map(|version| version.to_string()),
        };
        let features = match features::known(&driver) {
            Some(features) => features,
            None => probe(&libvirt).await?,
        };
        let subscription = register(&libvirt).await?;
        let live = Live { libvirt, driver, versions, host: Mutex::new(None) };
        Ok((Arc::new(live), features, subscription))
    }

    /// Passes events on until the connection ends.
    async fn follow(&self, mut subscription: EventSubscription) {
        while let Some(notice) = subscription.next().await {
            match notice {
                Notice::Lagged(lost) => {
                    // Whatever was lost may have changed any domain.
                    self.cache(Cache::clear);
                    self.publish(&BackendEvent::Lagged(lost));
                }
                Notice::Message(Message::Event(event)) => {
                    let uuid = event.domain.uuid;
                    let told = self.cache(|cache| {
                        let told = events::domain_event(&event.kind, |alias| cache.disk_target(uuid, alias));
                        cache.invalidate(uuid);
                        told
                    });
                    if let Some(told) = told {
                        let id = InstanceId::from(uuid.to_string());
                        self.publish(&BackendEvent::Domain { id, name: event.domain.name, event: told });
                    } else {
                        tracing::debug!(domain = %event.domain, kind = ?event.kind, "an event without a word for it");
                    }
                }
                Notice::Message(message) => {
                    tracing::debug!(procedure = message.procedure(), "an unknown kind of event");
                }
            }
        }
    }
}

/// `None` where the driver has no such call.
fn told<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(it) => Ok(Some(it)),
        Err(error) if error.is_no_support() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Registers for all events that are wanted; an older daemon may know fewer of them.
async fn register(libvirt: &Libvirt) -> Result<EventSubscription, Error> {
    match libvirt.subscribe(&events::WANTED).await {
        Err(Error::Remote { .. }) => {}
        other => return other,
    }
    let mut known = vec![EventId::Lifecycle];
    for kind in events::WANTED.into_iter().filter(|kind| *kind != EventId::Lifecycle) {
        match libvirt.subscribe(&[kind]).await {
            Ok(subscription) => {
                subscription.close().await;
                known.push(kind);
            }
            Err(error @ Error::Remote { .. }) => tracing::debug!(?kind, %error, "the daemon knows no such event"),
            Err(error) => return Err(error),
        }
    }
    libvirt.subscribe(&known).await
}

/// Asks a driver that nobody knows what it can do. A call that it lacks is refused before its arguments are looked at,
/// so that a domain that does not exist is good enough to ask about.
async fn probe(libvirt: &Libvirt) -> Result<Features, Error> {
    let nobody = DomainRef::from_uuid(Uuid::nil());
    let anything = DomainCapabilitiesArguments { emulator: None, arch: None, machine: None, virt_type: None, flags: 0 };
    let has = |answer: Result<(), Error>| match answer {
        Err(error) if error.is_no_support() => Ok(false),
        Ok(()) | Err(Error::Remote { .. }) => Ok(true),
        Err(error) => Err(error),
    };
    let groups = StatsGroups::STATE;
    Ok(Features {
        domain_capabilities: has(libvirt.domain_capabilities(&anything).await.map(drop))?,
        stats: has(libvirt.domain_stats(&[], groups, StatsOptions::polling()).await.map(drop))?,
        jobs: has(libvirt.job_stats(&nobody, JobQuery::Running).await.map(drop))?,
        migration: has(libvirt.migrate_max_speed(&nobody).await.map(drop))?,
        ..features::hoped()
    })
}

/// An error with its causes in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
