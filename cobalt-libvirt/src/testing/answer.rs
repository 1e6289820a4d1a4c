//! What a daemon says to a call, and the events it sends.

use bytes::Bytes;

use super::wire::{Identity, Reader, Writer};
use crate::frame::Status;

/// The answer to one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub(super) status: Status,
    pub(super) payload: Bytes,
}

impl Answer {
    /// Success with this result; see [`Writer`](super::Writer).
    pub fn ok(payload: impl Into<Bytes>) -> Self {
        Self { status: Status::Ok, payload: payload.into() }
    }

    /// Success without a result.
    pub fn done() -> Self {
        Self::ok(Bytes::new())
    }

    /// A libvirt error: its code, the part of libvirt it comes from, its text.
    pub fn error(code: i32, domain: i32, message: &str) -> Self {
        let payload = Writer::new().i32(code).i32(domain).optional(Some(message)).i32(2).u32(0);
        let payload = payload.optional(Some("%s")).optional(Some(message)).optional(None).i32(-1).i32(-1).u32(0);
        Self { status: Status::Error, payload: payload.finish() }
    }

    /// The driver lacks the function.
    pub fn no_support() -> Self {
        Self::error(3, 20, "this function is not supported by the connection driver")
    }

    /// The result, or the error, in XDR.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// The libvirt error code, if this is an error.
    pub fn code(&self) -> Option<i32> {
        (self.status == Status::Error).then(|| Reader::new(&self.payload).i32()).flatten()
    }

    /// The same error about another domain.
    pub(super) fn about(&self, domain: &Identity) -> Self {
        let mut reader = Reader::new(&self.payload);
        let (Some(code), Some(from), Some(message)) = (reader.i32(), reader.i32(), reader.optional()) else {
            return self.clone();
        };
        let kind = message.split(':').next().unwrap_or_default();
        Self::error(code, from, &format!("{kind}: '{}' ({})", domain.uuid_text(), domain.name))
    }
}

/// Something that happens to a domain, as it goes over the wire.
///
/// The constructors are named after libvirt's events. What the driver behind the daemon would not send can still be
/// sent with [`Server::emit`](super::Server::emit); [`Server::happen`](super::Server::happen) asks the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// libvirt's number for the kind of event.
    pub(super) kind: i32,
    /// The procedure number of its message.
    pub(super) procedure: u32,
    pub(super) domain: Identity,
    pub(super) body: Bytes,
}

impl Event {
    fn new(kind: i32, procedure: u32, domain: &Identity, body: Writer) -> Self {
        Self { kind, procedure, domain: domain.clone(), body: body.finish() }
    }

    /// A domain came, went, started or stopped: libvirt's numbers for the event and its detail.
    pub fn lifecycle(domain: &Identity, event: i32, detail: i32) -> Self {
        Self::new(0, 318, domain, Writer::new().i32(event).i32(detail))
    }

    /// The guest was reset.
    pub fn reboot(domain: &Identity) -> Self {
        Self::new(1, 319, domain, Writer::new())
    }

    /// The guest's watchdog fired; libvirt's number for what was done.
    pub fn watchdog(domain: &Identity, action: i32) -> Self {
        Self::new(3, 321, domain, Writer::new().i32(action))
    }

    /// A disk failed; libvirt's number for what was done.
    pub fn io_error(domain: &Identity, path: &str, alias: &str, action: i32, reason: &str) -> Self {
        Self::new(6, 324, domain, Writer::new().string(path).string(alias).i32(action).string(reason))
    }

    /// The daemon lost control over the domain.
    pub fn control_error(domain: &Identity) -> Self {
        Self::new(7, 325, domain, Writer::new())
    }

    /// A device left the domain.
    pub fn device_removed(domain: &Identity, alias: &str) -> Self {
        Self::new(15, 333, domain, Writer::new().string(alias))
    }

    /// The guest agent came (1) or went (2).
    pub fn agent_lifecycle(domain: &Identity, state: i32) -> Self {
        Self::new(18, 348, domain, Writer::new().i32(state).i32(0))
    }

    /// A migration goes through the memory once more.
    pub fn migration_iteration(domain: &Identity, iteration: i32) -> Self {
        Self::new(20, 359, domain, Writer::new().i32(iteration))
    }

    /// A job ended, with these figures.
    pub fn job_completed(domain: &Identity, figures: &[(&str, u64)]) -> Self {
        let count = u32::try_from(figures.len()).unwrap_or(u32::MAX);
        let start = Writer::new().u32(count);
        let body = figures.iter().fold(start, |body, (name, value)| body.param_u64(name, *value));
        Self::new(21, 363, domain, body)
    }

    /// The host found bad memory: libvirt's numbers for who is hit and what was done.
    pub fn memory_failure(domain: &Identity, recipient: i32, action: i32) -> Self {
        Self::new(25, 423, domain, Writer::new().i32(recipient).i32(action).u32(0))
    }

    /// The payload for a client that registered for it and got this callback number.
    pub(super) fn payload(&self, callback: i32) -> Bytes {
        Writer::new().i32(callback).domain(&self.domain).raw(&self.body).finish()
    }
}
