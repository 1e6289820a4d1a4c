//! What the protocol says of long-running jobs, such as migrations.

use super::macros::{open_enum, wire_struct};
use crate::typed::TypedParams;

open_enum! {
    /// Whether there is a job and how it fares.
    pub enum JobKind {
        /// There is none.
        None = 0,
        /// One runs, and its end can be foreseen.
        Bounded = 1,
        /// One runs.
        Unbounded = 2,
        /// It has ended well.
        Completed = 3,
        /// It has failed.
        Failed = 4,
        /// It was aborted.
        Cancelled = 5,
    }
}

impl JobKind {
    /// Whether a job runs.
    pub fn is_running(self) -> bool {
        matches!(self, Self::Bounded | Self::Unbounded)
    }
}

wire_struct! {
    /// A job, by the classic call: times in milliseconds, amounts in bytes.
    pub struct JobInfo {
        /// Whether there is one.
        pub kind: JobKind,
        /// How long it has run.
        pub elapsed_ms: u64,
        /// How long it will run on, if that is known.
        pub remaining_ms: u64,
        /// All there is to do.
        pub data_total: u64,
        /// Of this, done.
        pub data_processed: u64,
        /// Of this, left.
        pub data_remaining: u64,
        /// Memory: all.
        pub memory_total: u64,
        /// Memory: done.
        pub memory_processed: u64,
        /// Memory: left. It grows when the guest writes faster than it is copied.
        pub memory_remaining: u64,
        /// Disks: all.
        pub file_total: u64,
        /// Disks: done.
        pub file_processed: u64,
        /// Disks: left.
        pub file_remaining: u64,
    }
}

wire_struct! {
    /// A job, by the extensible call. The first answers after a job's start have fewer parameters than later ones.
    pub struct JobStats {
        /// Whether there is one, or what became of it.
        pub kind: JobKind,
        /// Its numbers, by libvirt's names: `time_elapsed`, `memory_remaining`, `downtime`, …
        pub params: TypedParams,
    }
}
