//! Starts, stops and what lies between, with libvirt's details.

use crate::{
    rpc::macros::open_enum,
    xdr::{Decode, Encode, Reader, Result, Writer},
};

macro_rules! lifecycle {
    ($($(#[$meta:meta])* $variant:ident($detail:ty) = $number:literal,)*) => {
        /// What happened to a domain's life, and how it came to it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Lifecycle {
            $($(#[$meta])* $variant($detail),)*
            /// A number that this version has no name for.
            Other {
                /// What happened.
                event: i32,
                /// How it came to it.
                detail: i32,
            },
        }

        impl Lifecycle {
            /// From libvirt's two numbers.
            pub fn from_numbers(event: i32, detail: i32) -> Self {
                match event {
                    $($number => Self::$variant(detail.into()),)*
                    event => Self::Other { event, detail },
                }
            }

            /// libvirt's two numbers.
            pub fn numbers(self) -> (i32, i32) {
                match self {
                    $(Self::$variant(detail) => ($number, detail.into()),)*
                    Self::Other { event, detail } => (event, detail),
                }
            }
        }
    };
}

lifecycle! {
    /// There is a definition, or another one.
    Defined(DefinedDetail) = 0,
    /// The definition is gone.
    Undefined(UndefinedDetail) = 1,
    /// It runs. QEMU tells [`Lifecycle::Resumed`] before this.
    Started(StartedDetail) = 2,
    /// Its CPUs stand still.
    Suspended(SuspendedDetail) = 3,
    /// Its CPUs run on.
    Resumed(ResumedDetail) = 4,
    /// It does not run any more.
    Stopped(StoppedDetail) = 5,
    /// The guest has shut down; [`Lifecycle::Stopped`] follows.
    Shutdown(ShutdownDetail) = 6,
    /// The guest sleeps.
    PmSuspended(PmSuspendedDetail) = 7,
    /// The guest has died.
    Crashed(CrashedDetail) = 8,
}

impl Encode for Lifecycle {
    fn encode(&self, out: &mut Writer) {
        self.numbers().encode(out);
    }
}

impl Decode for Lifecycle {
    fn decode(from: &mut Reader<'_>) -> Result<Self> {
        let (event, detail) = Decode::decode(from)?;
        Ok(Self::from_numbers(event, detail))
    }
}

open_enum! {
    /// How a definition came.
    pub enum DefinedDetail {
        /// It is new.
        Added = 0,
        /// It was changed.
        Updated = 1,
        /// The domain has another name.
        Renamed = 2,
        /// From a snapshot.
        FromSnapshot = 3,
    }
}

open_enum! {
    /// How a definition went.
    pub enum UndefinedDetail {
        /// It was removed.
        Removed = 0,
        /// The domain has another name.
        Renamed = 1,
    }
}

open_enum! {
    /// How a domain started.
    pub enum StartedDetail {
        /// It booted.
        Booted = 0,
        /// It came from another host.
        Migrated = 1,
        /// From a saved state.
        Restored = 2,
        /// From a snapshot.
        FromSnapshot = 3,
        /// The guest woke up.
        Wakeup = 4,
    }
}

open_enum! {
    /// Why the CPUs stand still.
    pub enum SuspendedDetail {
        /// Somebody asked for it.
        Paused = 0,
        /// For the last step of a migration.
        Migrated = 1,
        /// A disk failed.
        IoError = 2,
        /// The watchdog bit.
        Watchdog = 3,
        /// Restored, and paused when it was saved.
        Restored = 4,
        /// From a snapshot, and paused when it was taken.
        FromSnapshot = 5,
        /// Something failed in the daemon.
        ApiError = 6,
        /// For post-copy.
        PostCopy = 7,
        /// Post-copy failed: its memory is on two hosts.
        PostCopyFailed = 8,
    }
}

open_enum! {
    /// Why the CPUs run on.
    pub enum ResumedDetail {
        /// Somebody asked for it.
        Unpaused = 0,
        /// A migration has ended.
        Migrated = 1,
        /// From a snapshot.
        FromSnapshot = 2,
        /// On the other host, for post-copy.
        PostCopy = 3,
        /// Post-copy failed.
        PostCopyFailed = 4,
    }
}

open_enum! {
    /// Why a domain does not run any more.
    pub enum StoppedDetail {
        /// The guest shut down.
        Shutdown = 0,
        /// Somebody destroyed it.
        Destroyed = 1,
        /// The guest crashed.
        Crashed = 2,
        /// It went to another host.
        Migrated = 3,
        /// Its state was saved.
        Saved = 4,
        /// The VMM died, or an incoming migration failed.
        Failed = 5,
        /// A snapshot of a stopped domain was restored.
        FromSnapshot = 6,
    }
}

open_enum! {
    /// Who shut the guest down.
    pub enum ShutdownDetail {
        /// It is not known.
        Finished = 0,
        /// The guest itself.
        Guest = 1,
        /// The host asked for it.
        Host = 2,
    }
}

open_enum! {
    /// Where the guest's memory sleeps.
    pub enum PmSuspendedDetail {
        /// In memory.
        Memory = 0,
        /// On disk.
        Disk = 1,
    }
}

open_enum! {
    /// How the guest died.
    pub enum CrashedDetail {
        /// Its kernel panicked.
        Panicked = 0,
        /// Its crash kernel took over.
        Crashloaded = 1,
    }
}
