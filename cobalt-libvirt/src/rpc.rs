//! The procedures of libvirt's remote protocol that this crate speaks: numbers, arguments, results.
//!
//! Each procedure is a type, its arguments and its result are plain structs, and both can be written and read: the
//! client writes arguments and reads results, a test server does the opposite. The methods of
//! [`Libvirt`](crate::Libvirt) are the comfortable way to call them. A procedure that is missing here can be added
//! from outside, and called with [`Libvirt::call`](crate::Libvirt::call):
//!
//! ```no_run
//! use cobalt_libvirt::{DomainRef, Libvirt, rpc::Procedure};
//!
//! struct DomainGetOsType;
//!
//! impl Procedure for DomainGetOsType {
//!     const NUMBER: u32 = 19;
//!     type Arguments = (DomainRef,);
//!     type Reply = (String,);
//! }
//!
//! # async fn example(libvirt: Libvirt, domain: DomainRef) -> cobalt_libvirt::Result<()> {
//! let (kind,) = libvirt.call::<DomainGetOsType>("get OS type", &(domain,)).await?;
//! assert_eq!(kind, "hvm");
//! # Ok(())
//! # }
//! ```

mod domain;
mod flags;
mod host;
mod job;
pub(crate) mod macros;
mod procedures;

pub use self::{
    domain::{DiskError, DiskErrorKind, DomainInfo, DomainRef, DomainState, DomainStatsRecord, DomainStatus},
    flags::{
        DefineFlags, DestroyFlags, DeviceFlags, DomainFilter, MetadataKind, MigrateFlags, ShutdownFlags, StartFlags,
        StatsGroups, UndefineFlags, XmlFlags,
    },
    host::NodeInfo,
    job::{JobInfo, JobKind, JobStats},
    procedures::*,
};
use crate::xdr::{Decode, Encode};

/// One remote procedure.
pub trait Procedure {
    /// Its number in the protocol.
    const NUMBER: u32;
    /// What it takes; `()` for nothing.
    type Arguments: Encode;
    /// What it returns; `()` for nothing.
    type Reply: Decode;
}
