//! Captures: within bounds, a few at a time, never longer than somebody wants them.
//!
//! A capture that is streamed ends when its reader leaves. One that is started and fetched later is kept in memory, so
//! it is small, and is thrown away some time after its end.

use std::{
    collections::HashMap,
    fmt::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::body::Bytes;
use futures::{StreamExt, stream, stream::BoxStream};
use jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    answer::Failure,
    audit::{Auditor, Deed},
    wire::{CaptureQuestion, CaptureView},
};
use crate::{
    Error,
    ovs::{CaptureRequest, OvsInspector},
    runtime::{events::Severity, lock, shutdown::Shutdown},
};

/// How many pieces of a capture wait for their reader.
const PIECES: usize = 4;

/// What a capture may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureLimits {
    /// How many run at a time.
    pub running: usize,
    /// How long one lasts at most.
    pub duration: Duration,
    /// How many bytes one has at most, if it is streamed.
    pub bytes: u64,
    /// How many bytes of a packet are kept at most.
    pub snap_len: u32,
    /// How many that were started are kept at a time, running or ended.
    pub kept: usize,
    /// How many bytes each of those has at most: they are in memory.
    pub kept_bytes: u64,
    /// How long they are kept after their end.
    pub keep: Duration,
}

impl Default for CaptureLimits {
    fn default() -> Self {
        Self {
            running: 2,
            duration: Duration::from_secs(300),
            bytes: 256 << 20,
            snap_len: 1 << 18,
            kept: 4,
            kept_bytes: 2 << 20,
            keep: Duration::from_secs(300),
        }
    }
}

/// What is taken where a question says nothing.
const SECONDS: u64 = 30;
const BYTES: u64 = 16 << 20;
const SNAP_LEN: u32 = 65_535;
/// A pcap file begins with so many bytes, and smaller bounds give no file.
const LEAST_BYTES: u64 = 24;

/// Past its time, before it is cut off: the switch ends it by itself.
const GRACE: Duration = Duration::from_secs(5);

impl CaptureLimits {
    /// The capture a question asks for, if it is within the bounds.
    pub(super) fn request(
        &self,
        question: &CaptureQuestion,
        port: &str,
        kept: bool,
    ) -> Result<CaptureRequest, Failure> {
        let most_seconds = self.duration.as_secs().max(1);
        let most_bytes = if kept { self.kept_bytes } else { self.bytes };
        let within = |field: &str, asked: u64, least: u64, most: u64| {
            if (least..=most).contains(&asked) {
                return Ok(asked);
            }
            Err(Failure::invalid(format!(
                "{field}: {asked} is not within {least} and {most}, the bounds of this agent"
            )))
        };
        let seconds = question.seconds.unwrap_or(SECONDS.min(most_seconds));
        let bytes = question.max_bytes.unwrap_or(BYTES.min(most_bytes));
        let snap_len = question.snap_len.unwrap_or(SNAP_LEN.min(self.snap_len));
        within("snapLen", snap_len.into(), 1, self.snap_len.into())?;
        Ok(CaptureRequest {
            port: port.to_owned(),
            duration: Duration::from_secs(within("seconds", seconds, 1, most_seconds)?),
            max_bytes: within("maxBytes", bytes, LEAST_BYTES, most_bytes)?,
            snap_len,
        })
    }
}

/// A capture that runs. Dropping it ends it, and notes that.
struct Live {
    packets: BoxStream<'static, crate::Result<Vec<u8>>>,
    left: u64,
    until: Instant,
    stop: Shutdown,
    end: End,
    _permit: OwnedSemaphorePermit,
}

/// Notes the end, however it comes.
struct End {
    auditor: Auditor,
    caller: String,
    port: String,
    bytes: u64,
    how: Option<String>,
}

impl Drop for End {
    fn drop(&mut self) {
        let how = self.how.take().unwrap_or_else(|| "its reader left".to_owned());
        tracing::info!(user = self.caller, port = self.port, bytes = self.bytes, how, "a capture ended");
        let deed = Deed { action: "Capture", reason: "CaptureEnded", severity: Severity::Normal };
        self.auditor.put_now(&self.caller, deed, &format!("captured on port {}: {how}", self.port));
    }
}

impl Live {
    fn give_up(&mut self, why: &str) {
        self.end.how = Some(why.to_owned());
    }

    async fn next(&mut self) -> Option<crate::Result<Bytes>> {
        if self.end.how.is_some() {
            return None;
        }
        let next = tokio::select! {
            biased;
            () = self.stop.triggered() => Err("it was stopped"),
            () = sleep_until(self.until) => Err("its time was over"),
            next = self.packets.next() => Ok(next),
        };
        let ended = match next {
            Ok(Some(Ok(chunk))) if chunk.len() as u64 <= self.left => {
                self.left -= chunk.len() as u64;
                self.end.bytes += chunk.len() as u64;
                return Some(Ok(chunk.into()));
            }
            Ok(Some(Ok(_))) => "its bytes were used up".to_owned(),
            Ok(Some(Err(error))) => {
                self.end.how = Some(format!("it failed ({})", error.category()));
                return Some(Err(error));
            }
            Ok(None) => "it is complete".to_owned(),
            Err(why) => why.to_owned(),
        };
        self.end.how = Some(ended);
        None
    }
}

/// A capture that was started, and what it has so far.
struct Kept {
    view: CaptureView,
    owner: String,
    chunks: Vec<Bytes>,
    /// It ended by a failure: what there is of it is not all.
    failed: bool,
    changed: watch::Sender<()>,
    stop: Shutdown,
}

/// All captures of an agent.
pub(super) struct Captures {
    pub(super) limits: CaptureLimits,
    running: Arc<Semaphore>,
    kept: Arc<Mutex<HashMap<String, Kept>>>,
    auditor: Auditor,
    stop: Shutdown,
}

/// A stream of a capture's bytes.
pub(super) type PacketStream = BoxStream<'static, Result<Bytes, Error>>;

impl Captures {
    pub(super) fn new(limits: CaptureLimits, auditor: Auditor, stop: Shutdown) -> Self {
        let running = Arc::new(Semaphore::new(limits.running.max(1)));
        Self { limits, running, kept: Arc::default(), auditor, stop }
    }

    async fn open(
        &self,
        switch: &dyn OvsInspector,
        request: &CaptureRequest,
        caller: &str,
        stop: Shutdown,
    ) -> Result<Live, Failure> {
        let permit = self.running.clone().try_acquire_owned().map_err(|_| {
            let most = self.limits.running;
            Failure::too_many(format!("{most} captures run on this host already, which is the most it allows"))
        })?;
        let packets = switch.capture(request).await?;
        let deed = Deed { action: "Capture", reason: "CaptureStarted", severity: Severity::Normal };
        self.auditor.put_now(caller, deed, &format!("captures on port {}", request.port));
        let end = End {
            auditor: self.auditor.clone(),
            caller: caller.to_owned(),
            port: request.port.clone(),
            bytes: 0,
            how: None,
        };
        let until = Instant::now() + request.duration + GRACE;
        Ok(Live { packets, left: request.max_bytes, until, stop, end, _permit: permit })
    }

    /// Begins a capture that lives as long as the stream does.
    pub(super) async fn stream(
        &self,
        switch: &dyn OvsInspector,
        request: &CaptureRequest,
        caller: &str,
    ) -> Result<PacketStream, Failure> {
        let mut live = self.open(switch, request, caller, self.stop.clone()).await?;
        let (send, mut packets) = mpsc::channel(PIECES);
        // A task of its own: a reader that stops reading must not keep the capture beyond its time.
        tokio::spawn(async move {
            loop {
                let chunk = tokio::select! {
                    () = send.closed() => return,
                    chunk = live.next() => chunk,
                };
                let Some(chunk) = chunk else { return };
                match timeout_at(live.until, send.send(chunk)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return,
                    Err(_) => {
                        live.give_up("its reader did not read");
                        return;
                    }
                }
            }
        });
        Ok(stream::poll_fn(move |context| packets.poll_recv(context)).boxed())
    }

    /// Begins a capture that is fetched later.
    pub(super) async fn start(
        &self,
        switch: &dyn OvsInspector,
        request: &CaptureRequest,
        caller: &str,
        now: Timestamp,
    ) -> Result<CaptureView, Failure> {
        let full = || {
            let most = self.limits.kept;
            Failure::too_many(format!("{most} captures are kept already, which is the most; delete one, or wait"))
        };
        if lock(&self.kept).len() >= self.limits.kept {
            return Err(full());
        }
        let stop = self.stop.child();
        let mut live = self.open(switch, request, caller, stop.clone()).await?;
        let id = random_id()?;
        let view = CaptureView {
            id: id.clone(),
            port: request.port.clone(),
            started_at: now,
            seconds: request.duration.as_secs(),
            bytes: 0,
            ended: None,
        };
        let changed = watch::Sender::new(());
        let new = Kept {
            view: view.clone(),
            owner: caller.to_owned(),
            chunks: Vec::new(),
            failed: false,
            changed,
            stop: stop.clone(),
        };
        {
            let mut kept = lock(&self.kept);
            // Others may have come first while the switch was asked.
            if kept.len() >= self.limits.kept {
                return Err(full());
            }
            kept.insert(id.clone(), new);
        }
        let (kept, keep) = (self.kept.clone(), self.limits.keep);
        tokio::spawn(async move {
            while let Some(chunk) = live.next().await {
                let mut kept = lock(&kept);
                let Some(capture) = kept.get_mut(&id) else { return };
                match chunk {
                    Ok(chunk) => {
                        capture.view.bytes += chunk.len() as u64;
                        capture.chunks.push(chunk);
                        capture.changed.send_replace(());
                    }
                    Err(_) => capture.failed = true,
                }
            }
            if let Some(capture) = lock(&kept).get_mut(&id) {
                capture.view.ended.clone_from(&live.end.how);
                capture.changed.send_replace(());
            }
            // The place among those that run is free from here on.
            drop(live);
            tokio::select! {
                () = stop.triggered() => {}
                () = tokio::time::sleep(keep) => {}
            }
            lock(&kept).remove(&id);
        });
        Ok(view)
    }

    /// The captures of a caller.
    pub(super) fn list(&self, caller: &str) -> Vec<CaptureView> {
        let kept = lock(&self.kept);
        let mut own: Vec<_> = kept.values().filter(|kept| kept.owner == caller).map(|kept| kept.view.clone()).collect();
        own.sort_by(|a, b| (a.started_at, &a.id).cmp(&(b.started_at, &b.id)));
        own
    }

    /// The bytes of a capture from its beginning, until it has ended. One that failed, or is thrown away meanwhile, ends
    /// with an error: what came of it must not look like all of it.
    pub(super) fn fetch(&self, id: &str, caller: &str) -> Result<PacketStream, Failure> {
        let changes = {
            let kept = lock(&self.kept);
            let found = kept.get(id).filter(|kept| kept.owner == caller);
            found.ok_or_else(|| unknown(id))?.changed.subscribe()
        };
        let state = (self.kept.clone(), id.to_owned(), changes, 0_usize);
        Ok(stream::unfold(Some(state), |state| async move {
            let (kept, id, mut changes, at) = state?;
            let broken = loop {
                changes.mark_unchanged();
                let (chunk, ended) = match lock(&kept).get(&id) {
                    None => break "it was thrown away".to_owned(),
                    Some(capture) => {
                        let ended = capture.view.ended.clone().map(|how| (how, capture.failed));
                        (capture.chunks.get(at).cloned(), ended)
                    }
                };
                match (chunk, ended) {
                    (Some(chunk), _) => return Some((Ok(chunk), Some((kept, id, changes, at + 1)))),
                    (None, Some((how, true))) => break how,
                    (None, Some((_, false))) => return None,
                    // That nobody can change it any more is found in the next turn: it is gone then.
                    (None, None) => {
                        let _ = changes.changed().await;
                    }
                }
            };
            let cause = std::io::Error::other(broken);
            Some((Err(Error::unavailable(format!("read the capture {id}"), cause)), None))
        })
        .boxed())
    }

    /// Ends a capture and throws it away.
    pub(super) fn delete(&self, id: &str, caller: &str) -> Result<CaptureView, Failure> {
        let mut kept = lock(&self.kept);
        if kept.get(id).is_none_or(|kept| kept.owner != caller) {
            return Err(unknown(id));
        }
        let capture = kept.remove(id).ok_or_else(|| unknown(id))?;
        capture.stop.trigger();
        let mut view = capture.view;
        view.ended.get_or_insert_with(|| "it was stopped".to_owned());
        Ok(view)
    }
}

fn unknown(id: &str) -> Failure {
    let id: String = id.chars().take(64).collect();
    Failure::not_found(format!("there is no capture {id:?} of yours; a capture is thrown away some time after its end"))
}

/// Nobody guesses it, and whoever knows it still needs the right.
fn random_id() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    let failed = |_| Failure::unavailable("the host gives no random numbers");
    SystemRandom::new().fill(&mut bytes).map_err(failed)?;
    Ok(bytes.iter().fold(String::new(), |mut id, byte| {
        let _ = write!(id, "{byte:02x}"); // a String takes everything
        id
    }))
}
