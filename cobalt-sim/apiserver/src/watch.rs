//! Watches: a cursor into the log of a bucket, turned into lines of JSON.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep_until};

use crate::convert;
use crate::faults::{Facts, Injected, Interruption, Matcher};
use crate::http::{Cut, Form};
use crate::registry::Resource;
use crate::server::Inner;
use crate::status::{ApiError, ApiResult};
use crate::store::{Change, Event, Object, encode, line};
use crate::table::{self, Table};
use crate::verbs::{Call, Query, bad_revision, check_options};

/// A watch that names no timeout ends by itself after this time.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45 * 60);
/// No watch lasts longer, whatever it asks for: a deadline must be a time that exists.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);
/// How often a watch tells the present revision.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// How long before its end a watch tells the present revision once more.
const LAST_BOOKMARK: Duration = Duration::from_millis(1500);
/// Events read from the log at once.
const BATCH: usize = 256;

/// Opens a watch.
pub(crate) fn open(
    server: &Arc<Inner>,
    call: &Call<'_>,
    facts: Facts,
    injected: &Injected,
) -> ApiResult<BoxStream<'static, Result<Bytes, Cut>>> {
    check_options(call.params, true)?;
    let query = Query::parse(call)?;
    let timeout = call.params.integer("timeoutSeconds")?;
    let timeout = match timeout.and_then(|t| u64::try_from(t).ok()) {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds).min(LONGEST_TIMEOUT),
        _ => DEFAULT_TIMEOUT,
    };
    let revision = match call.params.text("resourceVersion") {
        None => None,
        Some(text) => Some(text.parse::<u64>().map_err(|_| ApiError::internal(bad_revision(text)))?),
    };
    let resource = call.resource().clone();
    let bookmarks = call.params.flag("allowWatchBookmarks");
    let send_initial = call.params.get("sendInitialEvents");
    let now = Instant::now();
    let deadline = now + timeout;
    let changed = server.store.subscribe(&resource.bucket).ok_or_else(ApiError::page_not_found)?;
    server.watches.fetch_add(1, Ordering::Relaxed);
    let mut state = Watch {
        interruptions: server.faults.interruptions.subscribe(),
        server: server.clone(),
        query,
        form: call.form,
        first: true,
        facts,
        left: injected.cut_after,
        lag: injected.lag,
        changed,
        cursor: revision.unwrap_or(0),
        initial: Vec::new().into_iter(),
        mark_initial_end: false,
        bookmarks,
        next_bookmark: next_bookmark(now, deadline),
        deadline,
        ready: VecDeque::new(),
        ended: false,
        resource,
    };
    let wants_initial = match send_initial {
        Some(value) => value == "true",
        None => revision.unwrap_or(0) == 0,
    };
    if injected.relist {
        state.expire(revision.unwrap_or(0), server.store.revision());
    } else if wants_initial {
        state.start_with_all(revision, send_initial.is_some())?;
    }
    Ok(stream::unfold(state, |mut state| async move {
        let item = state.next().await?;
        Some((item, state))
    })
    .boxed())
}

struct Watch {
    server: Arc<Inner>,
    resource: Arc<Resource>,
    query: Query,
    form: Form,
    /// Nothing was told yet.
    first: bool,
    facts: Facts,
    /// Events until the watch is cut, and whether abruptly.
    left: Option<(u64, bool)>,
    lag: Duration,
    changed: watch::Receiver<u64>,
    interruptions: broadcast::Receiver<(Matcher, Interruption)>,
    /// Everything up to this revision was told or does not concern us.
    cursor: u64,
    initial: std::vec::IntoIter<Arc<Object>>,
    mark_initial_end: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    ready: VecDeque<Result<Bytes, Cut>>,
    ended: bool,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.server.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(LAST_BOOKMARK).filter(|last| *last > now);
    let next = now + BOOKMARK_PERIOD;
    match last {
        Some(last) => next.min(last),
        // Past the last one: never again.
        None if deadline - now <= LAST_BOOKMARK => deadline + BOOKMARK_PERIOD,
        None => next,
    }
}

impl Watch {
    fn start_with_all(&mut self, revision: Option<u64>, streaming: bool) -> ApiResult<()> {
        let current = self.server.store.revision();
        if let Some(revision) = revision.filter(|r| *r > current) {
            return Err(ApiError::revision_too_large(revision, current));
        }
        let namespace = self.query.namespace.as_deref();
        let snapshot = self
            .server
            .store
            .snapshot(&self.resource.bucket, namespace, None)
            .map_err(|_| ApiError::internal("the present state is always known"))?;
        let mut objects = snapshot.objects;
        if self.query.is_filtered() {
            objects.retain(|o| self.query.matches(o));
        }
        self.cursor = snapshot.revision;
        self.initial = objects.into_iter();
        self.mark_initial_end = streaming && self.bookmarks;
        Ok(())
    }

    async fn next(&mut self) -> Option<Result<Bytes, Cut>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if self.ended {
                return None;
            }
            // Looked at on each pass: a busy watch may never come to wait.
            let now = Instant::now();
            if let Ok(interruption) = self.interruptions.try_recv() {
                self.heed(&interruption);
            } else if now >= self.deadline {
                self.ended = true;
            } else if self.left.is_some_and(|(left, _)| left == 0) {
                self.cut();
            } else if let Some(object) = self.initial.next() {
                self.tell_initial(&object);
            } else if self.mark_initial_end {
                self.mark_initial_end = false;
                self.tell_bookmark(true);
            } else if self.bookmarks && now >= self.next_bookmark {
                self.tell_bookmark(false);
                self.next_bookmark = next_bookmark(now, self.deadline);
            } else {
                self.changed.borrow_and_update();
                if let Some(until) = self.read_log(now) {
                    self.wait(until).await;
                }
            }
        }
    }

    /// Reads on in the log; if there was nothing to tell, the time to wait for. What lags stays in the log so long.
    fn read_log(&mut self, now: Instant) -> Option<Instant> {
        let batch = match self.server.store.events_after(&self.resource.bucket, self.cursor, BATCH) {
            Ok(batch) => batch,
            Err(forgotten) => {
                self.expire(self.cursor, forgotten.floor);
                return None;
            }
        };
        for event in &batch.events {
            let due = event.at + self.lag;
            if !self.lag.is_zero() && due > now {
                return Some(due);
            }
            self.tell(event);
            self.cursor = event.revision;
        }
        self.cursor = batch.seen;
        self.ended |= batch.last;
        (batch.events.is_empty() && !batch.last).then_some(self.deadline)
    }

    /// Waits until there may be something to do, at most until the given time.
    async fn wait(&mut self, until: Instant) {
        let bookmark = if self.bookmarks { self.next_bookmark } else { self.deadline };
        tokio::select! {
            biased;
            changed = self.changed.changed() => {
                // The bucket was replaced: its definition was deleted and made again.
                self.ended |= changed.is_err();
            }
            interruption = self.interruptions.recv() => {
                if let Ok(interruption) = interruption {
                    self.heed(&interruption);
                }
            }
            () = sleep_until(until.min(bookmark).min(self.deadline)) => {}
        }
    }

    fn heed(&mut self, (matcher, how): &(Matcher, Interruption)) {
        if matcher.concerns_watch(&self.facts) {
            self.interrupt(*how);
        }
    }

    fn interrupt(&mut self, how: Interruption) {
        match how {
            Interruption::End => self.ended = true,
            Interruption::Break => {
                self.ready.push_back(Err(Cut));
                self.ended = true;
            }
            Interruption::Expire => self.expire(self.cursor, self.server.store.revision()),
        }
    }

    fn cut(&mut self) {
        if self.left.is_some_and(|(_, abrupt)| abrupt) {
            self.ready.push_back(Err(Cut));
        }
        self.ended = true;
    }

    /// Tells that the log no longer reaches back to where the watch wants to go on.
    fn expire(&mut self, asked: u64, floor: u64) {
        let status = ApiError::expired(format!("too old resource version: {asked} ({floor})"));
        let bytes = line("ERROR", &encode(&status.to_json()));
        self.ready.push_back(Ok(bytes));
        self.ended = true;
    }

    fn count(&mut self) {
        if let Some((left, _)) = &mut self.left {
            *left = left.saturating_sub(1);
        }
    }

    fn tell_initial(&mut self, object: &Object) {
        let body = self.body(object);
        // Three pieces instead of one copy: the encoding is shared with every other reader.
        self.ready.push_back(Ok(Bytes::from_static(b"{\"type\":\"ADDED\",\"object\":")));
        self.ready.push_back(Ok(body));
        self.ready.push_back(Ok(Bytes::from_static(b"}\n")));
        self.count();
    }

    fn body(&mut self, object: &Object) -> Bytes {
        match self.form {
            Form::Whole if self.resource.is_storage_form(&object.value) => object.json(),
            Form::Whole => encode(&convert::to_version(&self.resource, &object.value)),
            Form::Metadata => encode(&convert::partial(&object.value)),
            Form::Table(table) => self.row(table, &object.value),
        }
    }

    fn row(&mut self, table: Table, object: &Value) -> Bytes {
        let first = std::mem::take(&mut self.first);
        table::event(table, &self.resource, object, self.server.clock.now(), first)
    }

    /// Tells an event as this watch sees it: an object that leaves the selection is deleted for it.
    fn tell(&mut self, event: &Event) {
        if self.left.is_some_and(|(left, _)| left == 0) {
            return;
        }
        let before = event.previous.as_ref().is_some_and(|state| self.query.matches_state(state));
        let after = event.change != Change::Deleted && self.query.matches_state(&event.object);
        let change = match (before, after) {
            (false, false) => return,
            (false, true) => Change::Added,
            (true, true) => Change::Modified,
            (true, false) => Change::Deleted,
        };
        let object = event.object.object();
        let shared = self.form == Form::Whole && change == event.change && self.resource.is_storage_form(&object.value);
        let bytes = if shared {
            event.line(&object)
        } else if change == Change::Deleted && event.change != Change::Deleted {
            line(change.name(), &self.body(&left_behind(event)))
        } else {
            line(change.name(), &self.body(&object))
        };
        self.ready.push_back(Ok(bytes));
        self.count();
    }

    fn tell_bookmark(&mut self, initial_end: bool) {
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, api_version): (&str, String) = match self.form {
            Form::Whole | Form::Table(_) => (&self.resource.kind, self.resource.api_version()),
            Form::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
        };
        let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        let body = match self.form {
            Form::Table(table) => self.row(table, &object),
            Form::Whole | Form::Metadata => encode(&object),
        };
        self.ready.push_back(Ok(line("BOOKMARK", &body)));
    }
}

/// The last state inside the selection, under the revision at which the object left it.
fn left_behind(event: &Event) -> Object {
    let previous = event.previous.as_ref().unwrap_or(&event.object).object();
    let mut value: Value = previous.value.clone();
    value["metadata"]["resourceVersion"] = event.revision.to_string().into();
    Object::new(previous.key.clone(), event.revision, value)
}
