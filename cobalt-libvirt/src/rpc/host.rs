//! What the protocol says of a host.

use super::macros::wire_struct;
use crate::xdr::CharArray;

wire_struct! {
    /// A host's hardware in short. On hosts with several NUMA nodes of different size the product of the parts is not
    /// the number of CPUs; the capabilities XML is exact.
    pub struct NodeInfo {
        /// The CPU model or architecture; [`CharArray::text`] reads it.
        pub model: CharArray<32>,
        /// Memory, in KiB.
        pub memory_kib: u64,
        /// CPUs that are online.
        pub cpus: i32,
        /// Their clock, 0 if unknown.
        pub mhz: i32,
        /// NUMA cells, 1 if it is not known.
        pub nodes: i32,
        /// CPU sockets per cell.
        pub sockets: i32,
        /// Cores per socket.
        pub cores: i32,
        /// Threads per core.
        pub threads: i32,
    }
}
