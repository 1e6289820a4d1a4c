//! What a daemon tells without being asked.
//!
//! Events come as messages with the number of a procedure, the number of the callback that asked for them, a domain
//! and the news. [`Event`] is all of it decoded; [`Libvirt::subscribe`](crate::Libvirt::subscribe) yields them.
//!
//! ```
//! use cobalt_libvirt::event::{Event, EventKind, Lifecycle, StoppedDetail};
//!
//! fn left_for_another_host(event: &Event) -> bool {
//!     matches!(event.kind, EventKind::Lifecycle(Lifecycle::Stopped(StoppedDetail::Migrated)))
//! }
//! ```

mod lifecycle;
#[cfg(test)]
mod tests;

use bytes::Bytes;

pub use self::lifecycle::{
    CrashedDetail, DefinedDetail, Lifecycle, PmSuspendedDetail, ResumedDetail, ShutdownDetail, StartedDetail,
    StoppedDetail, SuspendedDetail, UndefinedDetail,
};
use crate::{
    rpc::{DomainRef, MetadataKind, macros::open_enum},
    typed::TypedParams,
    xdr::{Decode, Encode, Reader, Result, Writer},
};

open_enum! {
    /// The kinds of event that can be asked for. Every driver takes every registration; whether it ever sends such an
    /// event is another matter.
    pub enum EventId {
        /// Starts, stops and so on.
        Lifecycle = 0,
        /// The guest rebooted. QEMU may tell one reboot several times.
        Reboot = 1,
        /// The watchdog bit.
        Watchdog = 3,
        /// A disk failed.
        IoError = 4,
        /// A disk failed, with a reason. Comes beside [`EventId::IoError`], not instead of it.
        IoErrorReason = 6,
        /// The daemon lost the domain's monitor.
        ControlError = 7,
        /// A block job changed; disks by path.
        BlockJob = 8,
        /// A device is gone.
        DeviceRemoved = 15,
        /// A block job changed; disks by target.
        BlockJob2 = 16,
        /// What the domain may use of the host was changed: its pins, its share of the CPUs, its disks' limits.
        Tunable = 17,
        /// The guest agent came or went.
        AgentLifecycle = 18,
        /// A device is there.
        DeviceAdded = 19,
        /// A migration begins another round over the memory.
        MigrationIteration = 20,
        /// A job has ended well. Not sent for aborted ones.
        JobCompleted = 21,
        /// The guest kept a device.
        DeviceRemovalFailed = 22,
        /// Its title, description or a note in it was changed.
        MetadataChange = 23,
        /// Host memory under the guest is broken.
        MemoryFailure = 25,
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The registration it belongs to.
    pub callback: i32,
    /// The domain it is about. After a stop it may have a number still.
    pub domain: DomainRef,
    /// The news.
    pub kind: EventKind,
}

/// A message of the daemon: an event, or something newer than this crate.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Message {
    /// An event of a domain.
    Event(Event),
    /// A message of a kind that this version does not know, as it came.
    Unknown {
        /// Its procedure.
        procedure: u32,
        /// Its payload.
        payload: Bytes,
    },
}

open_enum! {
    /// What the watchdog did.
    pub enum WatchdogAction {
        /// Nothing.
        None = 0,
        /// Paused the guest.
        Pause = 1,
        /// Reset the guest.
        Reset = 2,
        /// Ended the domain.
        PowerOff = 3,
        /// Asked the guest to shut down.
        Shutdown = 4,
        /// Nothing: debugging.
        Debug = 5,
        /// Sent a non-maskable interrupt.
        InjectNmi = 6,
    }
}

open_enum! {
    /// What was done about a failed disk.
    pub enum IoErrorAction {
        /// Nothing: the guest sees no error.
        None = 0,
        /// The guest is paused.
        Pause = 1,
        /// The guest was told.
        Report = 2,
    }
}

open_enum! {
    /// Whether the guest agent is there.
    pub enum AgentState {
        /// It is.
        Connected = 1,
        /// It is not.
        Disconnected = 2,
    }
}

open_enum! {
    /// Whose memory is broken.
    pub enum MemoryFailureRecipient {
        /// The hypervisor's.
        Hypervisor = 0,
        /// The guest's.
        Guest = 1,
    }
}

open_enum! {
    /// What was done about broken memory.
    pub enum MemoryFailureAction {
        /// Nothing; it can be recovered.
        Ignore = 0,
        /// The guest was told.
        Inject = 1,
        /// The VMM cannot go on.
        Fatal = 2,
        /// The guest was reset.
        Reset = 3,
    }
}

open_enum! {
    /// What a block job is.
    pub enum BlockJobKind {
        /// The daemon does not tell.
        Unknown = 0,
        /// Data is pulled from the base.
        Pull = 1,
        /// A copy, as in a migration with storage.
        Copy = 2,
        /// Data is committed to the base.
        Commit = 3,
        /// The same, of the layer in use.
        ActiveCommit = 4,
        /// A backup.
        Backup = 5,
    }
}

open_enum! {
    /// How a block job fares.
    pub enum BlockJobStatus {
        /// It has ended well.
        Completed = 0,
        /// It has failed.
        Failed = 1,
        /// It was cancelled.
        Cancelled = 2,
        /// It keeps both sides the same from here on.
        Ready = 3,
    }
}

/// The kinds of message: procedure, variant, fields in wire order after callback and domain.
macro_rules! event_kinds {
    ($($(#[$meta:meta])* $procedure:literal $variant:ident $({ $($(#[$field_meta:meta])* $field:ident: $kind:ty,)* })?)*) => {
        /// What an event tells.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum EventKind {
            /// Starts, stops and so on.
            Lifecycle(Lifecycle),
            $($(#[$meta])* $variant $({ $($(#[$field_meta])* $field: $kind,)* })?,)*
        }

        impl EventKind {
            /// The procedure number of its messages.
            pub fn procedure(&self) -> u32 {
                match self {
                    Self::Lifecycle(_) => 318,
                    $(Self::$variant { .. } => $procedure,)*
                }
            }

            /// `None` for a procedure that we do not know.
            fn decode(procedure: u32, from: &mut Reader<'_>) -> Result<Option<Self>> {
                Ok(Some(match procedure {
                    318 => Self::Lifecycle(Decode::decode(from)?),
                    $($procedure => Self::$variant $({ $($field: Decode::decode(from)?,)* })?,)*
                    _ => return Ok(None),
                }))
            }

            fn is_known(procedure: u32) -> bool {
                matches!(procedure, 318 $(| $procedure)*)
            }
        }

        impl Encode for EventKind {
            #[allow(unused_variables)]
            fn encode(&self, out: &mut Writer) {
                match self {
                    Self::Lifecycle(lifecycle) => lifecycle.encode(out),
                    $(Self::$variant $({ $($field,)* })? => { $($($field.encode(out);)*)? })*
                }
            }
        }
    };
}

event_kinds! {
    /// The guest rebooted.
    319 Reboot
    /// The watchdog bit.
    321 Watchdog {
        /// And did this.
        action: WatchdogAction,
    }
    /// A disk failed.
    322 IoError {
        /// Its file or device on the host.
        path: String,
        /// Its name inside the domain, such as `virtio-disk0`.
        device: String,
        /// What was done.
        action: IoErrorAction,
    }
    /// A disk failed, with a reason.
    324 IoErrorReason {
        /// Its file or device on the host.
        path: String,
        /// Its name inside the domain, such as `virtio-disk0`.
        device: String,
        /// What was done.
        action: IoErrorAction,
        /// Why: `enospc`, or nothing.
        reason: String,
    }
    /// The daemon lost the domain's monitor.
    325 ControlError
    /// A block job changed.
    326 BlockJob {
        /// The disk's path on the host.
        disk: String,
        /// What it does.
        job: BlockJobKind,
        /// How it fares.
        status: BlockJobStatus,
    }
    /// A device is gone.
    333 DeviceRemoved {
        /// Its name inside the domain.
        device: String,
    }
    /// A block job changed.
    339 BlockJob2 {
        /// The disk's target, such as `vda`.
        disk: String,
        /// What it does.
        job: BlockJobKind,
        /// How it fares.
        status: BlockJobStatus,
    }
    /// What the domain may use of the host was changed.
    346 Tunable {
        /// What is new, such as `cputune.vcpupin0`.
        params: TypedParams,
    }
    /// The guest agent came or went.
    348 AgentLifecycle {
        /// Which of the two.
        state: AgentState,
        /// Why: 1 the domain started, 2 the channel.
        reason: i32,
    }
    /// A device is there.
    354 DeviceAdded {
        /// Its name inside the domain.
        device: String,
    }
    /// A migration begins another round.
    359 MigrationIteration {
        /// Which, from 1.
        iteration: i32,
    }
    /// A job has ended well.
    363 JobCompleted {
        /// Its numbers at its end.
        params: TypedParams,
    }
    /// The guest kept a device.
    367 DeviceRemovalFailed {
        /// Its name inside the domain.
        device: String,
    }
    /// Its title, description or a note in it was changed.
    379 MetadataChange {
        /// Which piece.
        kind: MetadataKind,
        /// The namespace of a note.
        uri: Option<String>,
    }
    /// Host memory under the guest is broken.
    423 MemoryFailure {
        /// Whose memory.
        recipient: MemoryFailureRecipient,
        /// What was done.
        action: MemoryFailureAction,
        /// 1: something must be done at once; 2: it happened while another failure was handled.
        flags: u32,
    }
}

impl Message {
    /// Reads the payload of a message. Only a known kind with a broken payload is an error.
    pub fn decode(procedure: u32, payload: &Bytes) -> Result<Self> {
        if !EventKind::is_known(procedure) {
            return Ok(Self::Unknown { procedure, payload: payload.clone() });
        }
        let mut from = Reader::shared(payload);
        let (callback, domain) = Decode::decode(&mut from)?;
        Ok(match EventKind::decode(procedure, &mut from)? {
            Some(kind) => Self::Event(Event { callback, domain, kind }),
            None => Self::Unknown { procedure, payload: payload.clone() },
        })
    }

    /// The procedure number of the message.
    pub fn procedure(&self) -> u32 {
        match self {
            Self::Event(event) => event.kind.procedure(),
            Self::Unknown { procedure, .. } => *procedure,
        }
    }

    /// The registration it belongs to. Every message about domains starts with it, known or not.
    pub fn callback(&self) -> Option<i32> {
        match self {
            Self::Event(event) => Some(event.callback),
            Self::Unknown { payload, .. } => Reader::new(payload).i32().ok(),
        }
    }
}

impl Encode for Message {
    fn encode(&self, out: &mut Writer) {
        match self {
            Self::Event(event) => {
                (event.callback, &event.domain).encode(out);
                event.kind.encode(out);
            }
            Self::Unknown { payload, .. } => out.raw(payload),
        }
    }
}
