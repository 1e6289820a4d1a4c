//! A cache of one kind, kept current by a watch.
//!
//! Built on [`watcher`](mod@kube::runtime::watcher) with its recovery and back-off. What it adds:
//!
//! - An object that cannot be read does not stop the watch. It is logged once per version, counted, shown on
//!   `/debug/state`, and known as [`Lookup::Malformed`]: present, content unknown. Acting on it as if it were absent
//!   would create what exists or delete what is needed.
//! - Whoever is interested is told which key was touched, with the object before and after, so that one object can wake
//!   several keys. A new listing touches only what differs.
//! - Objects are pruned before they are kept ([`WatchBuilder::modify`]), and packed where there are many
//!   ([`WatchBuilder::packed`]).

mod kept;

use std::{
    collections::HashMap,
    fmt::{self, Debug},
    hash::Hash,
    sync::{Arc, RwLock},
    time::Duration,
};

use futures::StreamExt;
use jiff::Timestamp;
use kept::{Kept, Packing};
use kube::{
    Api, Resource,
    core::DeserializeGuard,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{sync::watch, time::Instant};

use super::{
    clock::Clock,
    metrics::Metrics,
    shutdown::{Chain, Shutdown},
    state::{MalformedReport, Status, WatchReport},
};

/// Longer than a watch that failed waits before it is tried again.
const LONGEST_BACKOFF: Duration = Duration::from_secs(120);

/// How many malformed objects the state page names.
const SHOWN: usize = 20;

/// The name of an object, with its namespace if it has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The namespace; none for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// The key of a cluster-scoped object.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self { namespace: None, name: name.into() }
    }

    /// The key of a namespaced object.
    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), name: name.into() }
    }

    /// The key of this object.
    pub fn of<K: Resource>(object: &K) -> Self {
        Self { namespace: object.meta().namespace.clone(), name: object.meta().name.clone().unwrap_or_default() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// What the cache knows about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<K> {
    /// The object.
    Found(Arc<K>),
    /// It exists, but cannot be read; here is why.
    Malformed(String),
    /// It does not exist (or the first listing is not complete: see [`Store::is_synced`]).
    Absent,
}

/// A change of one object.
#[derive(Clone, Debug)]
pub struct Touch<K> {
    /// Which object.
    pub key: ObjectKey,
    /// As it was; none if it is new or was malformed.
    pub before: Option<Arc<K>>,
    /// As it is; none if it is gone or malformed.
    pub after: Option<Arc<K>>,
}

struct Malformed {
    version: String,
    error: String,
}

struct Inner<K> {
    objects: HashMap<ObjectKey, Kept<K>>,
    malformed: HashMap<ObjectKey, Malformed>,
    last_event: Option<Timestamp>,
    restarts: u64,
    last_error: Option<String>,
    deaf_until: Option<Instant>,
    broken: bool,
}

impl<K> Default for Inner<K> {
    fn default() -> Self {
        Self {
            objects: HashMap::new(),
            malformed: HashMap::new(),
            last_event: None,
            restarts: 0,
            last_error: None,
            deaf_until: None,
            broken: false,
        }
    }
}

/// The cached objects. Cloned freely; all clones are the same cache.
pub struct Store<K> {
    inner: Arc<RwLock<Inner<K>>>,
    synced: watch::Receiver<bool>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), synced: self.synced.clone() }
    }
}

impl<K> Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("objects", &self.len()).finish_non_exhaustive()
    }
}

impl<K> Store<K> {
    /// Waits for the first complete listing. False if the watch ended before.
    pub async fn ready(&self) -> bool {
        self.synced.clone().wait_for(|synced| *synced).await.is_ok()
    }

    /// Whether the first listing is complete: before, an absent object may exist.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Until when the watch could not hear, after a failure: until its first event since, or, as long as there was none,
    /// until it surely has tried again. That nothing was heard before then means nothing.
    pub fn deaf_until(&self) -> Option<Instant> {
        self.read().deaf_until
    }

    /// The object of this name.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        let kept = self.read().objects.get(key).cloned();
        kept?.object()
    }

    /// What is known about this name.
    pub fn lookup(&self, key: &ObjectKey) -> Lookup<K> {
        let kept = {
            let inner = self.read();
            match (inner.objects.get(key), inner.malformed.get(key)) {
                (Some(kept), _) => kept.clone(),
                (None, Some(bad)) => return Lookup::Malformed(bad.error.clone()),
                (None, None) => return Lookup::Absent,
            }
        };
        kept.object().map_or_else(|| Lookup::Malformed("it cannot be unpacked".to_owned()), Lookup::Found)
    }

    /// All readable objects, in no particular order.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.filter(|_| true)
    }

    /// The readable objects that satisfy `wanted`.
    pub fn filter(&self, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let inner = self.read();
        inner.objects.values().filter_map(Kept::object).filter(|object| wanted(object)).collect()
    }

    /// The keys of all objects, readable or not.
    pub fn keys(&self) -> Vec<ObjectKey> {
        let inner = self.read();
        inner.objects.keys().chain(inner.malformed.keys()).cloned().collect()
    }

    /// How many objects are readable.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Inner<K>> {
        self.inner.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn report(&self, kind: &'static str) -> WatchReport {
        let inner = self.read();
        let mut malformed: Vec<MalformedReport> = inner
            .malformed
            .iter()
            .map(|(key, bad)| MalformedReport {
                name: key.to_string(),
                resource_version: bad.version.clone(),
                error: bad.error.clone(),
            })
            .collect();
        malformed.sort_by(|a, b| a.name.cmp(&b.name));
        malformed.truncate(SHOWN);
        WatchReport {
            kind,
            synced: self.is_synced(),
            objects: inner.objects.len(),
            malformed,
            last_event: inner.last_event,
            restarts: inner.restarts,
            last_error: inner.last_error.clone(),
        }
    }
}

type Modify<K> = Box<dyn Fn(&mut K) + Send + Sync>;
type OnTouch<K> = Box<dyn Fn(&Touch<K>) + Send + Sync>;

/// Configures a watch; see [`watched_store`].
pub struct WatchBuilder<K> {
    name: &'static str,
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
    clock: Clock,
    metrics: Arc<Metrics>,
    modify: Option<Modify<K>>,
    on_touch: Vec<OnTouch<K>>,
    optional: bool,
    packing: Option<Packing<K>>,
}

impl<K> Debug for WatchBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A watch of one kind and its cache. Nothing happens until [`Watch::run`] does.
///
/// The `Api` is one of `DeserializeGuard<K>`: `Api::all(client)` infers it.
///
/// ```no_run
/// use cobalt_core::runtime::{
///     clock::Clock, metrics::Metrics, queue::Queue, shutdown::{Lifecycle, Phase}, state::Status,
///     watch::{watched_store, ObjectKey},
/// };
/// use k8s_openapi::api::core::v1::Node;
/// use kube::{Api, ResourceExt, runtime::watcher};
/// use std::sync::Arc;
///
/// # async fn example(client: kube::Client, metrics: Arc<Metrics>, status: &Status, life: &Lifecycle, queue: Queue<String>) {
/// let (nodes, watch) = watched_store::<Node>("nodes", Api::all(client), watcher::Config::default(), metrics)
///     .modify(|node| node.managed_fields_mut().clear())
///     .on_touch(move |touch| queue.add(touch.key.name.clone()))
///     .build(status);
/// life.phase(Phase::Work).spawn("watch nodes", watch.run(life.phase(Phase::Work).stopping()));
/// nodes.ready().await;
/// let node = nodes.get(&ObjectKey::cluster("node-1"));
/// # }
/// ```
pub fn watched_store<K>(
    name: &'static str,
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
    metrics: Arc<Metrics>,
) -> WatchBuilder<K> {
    WatchBuilder {
        name,
        api,
        config,
        clock: Clock::system(),
        metrics,
        modify: None,
        on_touch: Vec::new(),
        optional: false,
        packing: None,
    }
}

impl<K> WatchBuilder<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Default + Eq + Hash,
{
    /// Prunes every object before it is kept.
    #[must_use]
    pub fn modify(mut self, modify: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.modify = Some(Box::new(modify));
        self
    }

    /// Is told of every change, after the cache has it. Must not block. May be given several times.
    #[must_use]
    pub fn on_touch(mut self, on_touch: impl Fn(&Touch<K>) + Send + Sync + 'static) -> Self {
        self.on_touch.push(Box::new(on_touch));
        self
    }

    /// Tells the time of events by this clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Keeps objects as text, which takes a third of the memory, and makes each anew for whoever asks: for kinds of which
    /// there are thousands, each looked at now and then.
    #[must_use]
    pub fn packed(mut self) -> Self
    where
        K: Serialize + PartialEq,
    {
        self.packing = Some(Packing::json());
        self
    }

    /// A program is ready without it: for what may not be installed, or not allowed.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// The cache and the watch that fills it, registered in `status`: shown on its page, and not ready before the first
    /// listing is complete.
    pub fn build(self, status: &Status) -> (Store<K>, Watch<K>) {
        let (synced, is_synced) = watch::channel(false);
        let store = Store { inner: Arc::default(), synced: is_synced };
        let (shown, checked, kind) = (store.clone(), store.clone(), self.name);
        status.watch(move || shown.report(kind));
        let optional = self.optional;
        status.ready_check(format!("watch {kind}"), move || {
            if optional || checked.is_synced() {
                return Ok(());
            }
            Err(checked.read().last_error.clone().unwrap_or_else(|| "first listing not complete".to_owned()))
        });
        (store.clone(), Watch { builder: self, store, synced, listing: None })
    }
}

/// The watch behind a [`Store`].
pub struct Watch<K> {
    builder: WatchBuilder<K>,
    store: Store<K>,
    synced: watch::Sender<bool>,
    /// The listing being received; replaces the cache as a whole when it is complete.
    listing: Option<Listing<K>>,
}

impl<K> Debug for Watch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("name", &self.builder.name).finish_non_exhaustive()
    }
}

/// A watch that ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
#[error("watch {kind}: ended by itself")]
pub struct WatchEnded {
    kind: &'static str,
}

/// What a listing has changed: which object, as it was and as it is.
type Changed<K> = (ObjectKey, Option<Kept<K>>, Option<Kept<K>>);

struct Listing<K> {
    objects: HashMap<ObjectKey, Kept<K>>,
    malformed: HashMap<ObjectKey, Malformed>,
}

impl<K> Watch<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Default + Eq + Hash,
{
    /// Keeps the cache current until `stop`.
    ///
    /// A watcher never ends by itself; should it ever, that is an error, or the cache would grow stale in silence.
    pub async fn run(mut self, stop: Shutdown) -> Result<(), WatchEnded> {
        let events = watcher(self.builder.api.clone(), self.builder.config.clone()).default_backoff();
        let mut events = std::pin::pin!(events);
        loop {
            let event = tokio::select! {
                () = stop.triggered() => return Ok(()),
                event = events.next() => event,
            };
            match event {
                Some(Ok(event)) => self.handle(event),
                Some(Err(error)) => self.failed(&error),
                None => return Err(WatchEnded { kind: self.builder.name }),
            }
        }
    }

    fn failed(&self, error: &watcher::Error) {
        // The server ends watches by 410 as a matter of course: the watcher lists anew.
        let expired = matches!(error, watcher::Error::WatchError(status) if status.code == 410);
        let text = Chain(error).to_string();
        if expired {
            tracing::debug!(kind = self.builder.name, error = text, "watch expired, listing anew");
        } else {
            tracing::warn!(kind = self.builder.name, error = text, "watch failed, trying again");
        }
        self.builder.metrics.watch_restart(self.builder.name);
        let mut inner = self.write();
        inner.restarts += 1;
        inner.last_error = Some(text);
        inner.deaf_until = Some(Instant::now() + LONGEST_BACKOFF);
        inner.broken = true;
    }

    fn handle(&mut self, event: Event<DeserializeGuard<K>>) {
        // A listing that begins has heard nothing yet.
        if !matches!(event, Event::Init) {
            let mut inner = self.write();
            if std::mem::take(&mut inner.broken) {
                inner.deaf_until = Some(Instant::now());
            }
        }
        match event {
            Event::Init => {
                self.listing = Some(Listing { objects: HashMap::new(), malformed: HashMap::new() });
            }
            Event::InitApply(guard) => self.listed(guard),
            Event::InitDone => self.replace(),
            Event::Apply(guard) => self.applied(guard),
            Event::Delete(guard) => {
                let key = ObjectKey::of(&guard);
                let mut inner = self.write();
                let before = inner.objects.remove(&key).and_then(|kept| kept.object());
                let was_malformed = inner.malformed.remove(&key).is_some();
                drop(inner);
                if before.is_some() || was_malformed {
                    self.touched([Touch { key, before, after: None }]);
                }
            }
        }
    }

    fn listed(&mut self, guard: DeserializeGuard<K>) {
        let key = ObjectKey::of(&guard);
        match self.read_object(&key, guard) {
            Ok(object) => {
                // An object that is as we have it is kept as it is: no second copy, no touch.
                let version = object.meta().resource_version.as_deref();
                let known = self.store.read().objects.get(&key).filter(|known| known.is_version(version)).cloned();
                let kept = known.unwrap_or_else(|| Kept::new(&object, self.builder.packing));
                if let Some(listing) = &mut self.listing {
                    listing.objects.insert(key, kept);
                }
            }
            Err(bad) => {
                if let Some(listing) = &mut self.listing {
                    listing.malformed.insert(key, bad);
                }
            }
        }
    }

    fn replace(&mut self) {
        let Some(listing) = self.listing.take() else { return };
        let mut changed: Vec<Changed<K>> = Vec::new();
        {
            let mut inner = self.write();
            let mut old = std::mem::replace(&mut inner.objects, listing.objects);
            let old_malformed = std::mem::replace(&mut inner.malformed, listing.malformed);
            for (key, after) in &inner.objects {
                let before = old.remove(key);
                let same = before.as_ref().is_some_and(|before| before.is_same(after));
                if !same {
                    changed.push((key.clone(), before, Some(after.clone())));
                }
            }
            for (key, bad) in &inner.malformed {
                let known = old_malformed.get(key).is_some_and(|known| known.version == bad.version);
                if !known {
                    changed.push((key.clone(), old.remove(key), None));
                }
            }
            let unlisted = |key: &ObjectKey| !inner.objects.contains_key(key) && !inner.malformed.contains_key(key);
            changed.extend(old_malformed.into_keys().filter(unlisted).map(|key| (key, None, None)));
            changed.extend(old.into_iter().map(|(key, before)| (key, Some(before), None)));
            inner.last_error = None;
        }
        // One by one: a listing of a thousand that were packed does not have them all unpacked at once.
        let object = |kept: Option<Kept<K>>| kept.and_then(|kept| kept.object());
        self.touched(changed.into_iter().map(|(key, before, after)| Touch {
            key,
            before: object(before),
            after: object(after),
        }));
        self.synced.send_replace(true);
    }

    fn applied(&mut self, guard: DeserializeGuard<K>) {
        let key = ObjectKey::of(&guard);
        let read = self.read_object(&key, guard);
        let mut inner = self.write();
        let touch = match read {
            Ok(object) => {
                inner.malformed.remove(&key);
                let before = inner.objects.insert(key.clone(), Kept::new(&object, self.builder.packing));
                Touch { key, before: before.and_then(|kept| kept.object()), after: Some(object) }
            }
            Err(bad) => {
                let before = inner.objects.remove(&key).and_then(|kept| kept.object());
                inner.malformed.insert(key.clone(), bad);
                Touch { key, before, after: None }
            }
        };
        inner.last_error = None;
        drop(inner);
        self.touched([touch]);
    }

    fn read_object(&self, key: &ObjectKey, guard: DeserializeGuard<K>) -> Result<Arc<K>, Malformed> {
        match guard.0 {
            Ok(mut object) => {
                if let Some(modify) = &self.builder.modify {
                    modify(&mut object);
                }
                Ok(Arc::new(object))
            }
            Err(invalid) => {
                let version = invalid.metadata.resource_version.unwrap_or_default();
                let known = self.store.read().malformed.get(key).is_some_and(|known| known.version == version);
                if !known {
                    tracing::warn!(
                        kind = self.builder.name, object = %key, resource_version = version, error = invalid.error,
                        "object cannot be read; it is left alone until it changes"
                    );
                    self.builder.metrics.watch_malformed(self.builder.name);
                }
                Err(Malformed { version, error: invalid.error })
            }
        }
    }

    fn touched(&self, touches: impl IntoIterator<Item = Touch<K>>) {
        let objects = {
            let mut inner = self.write();
            inner.last_event = Some(self.builder.clock.now());
            inner.objects.len()
        };
        self.builder.metrics.watch_objects(self.builder.name, objects);
        for touch in touches {
            for on_touch in &self.builder.on_touch {
                on_touch(&touch);
            }
        }
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Inner<K>> {
        self.store.inner.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
