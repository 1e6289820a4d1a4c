//! The error codes that callers decide on. There are about a hundred; the others are only shown.

/// The catch-all of the drivers.
pub const INTERNAL_ERROR: u32 = 1;
/// The daemon is out of memory.
pub const NO_MEMORY: u32 = 2;
/// The driver has no such function.
pub const NO_SUPPORT: u32 = 3;
/// A host name does not resolve.
pub const UNKNOWN_HOST: u32 = 4;
/// The daemon cannot reach its hypervisor, or knows no driver for the URI.
pub const NO_CONNECT: u32 = 5;
/// The connection is not (or no longer) open inside the daemon.
pub const INVALID_CONN: u32 = 6;
/// An argument does not make sense.
pub const INVALID_ARG: u32 = 8;
/// The driver tried and failed.
pub const OPERATION_FAILED: u32 = 9;
/// XML is not well-formed or lacks something.
pub const XML_ERROR: u32 = 27;
/// A domain of that name or UUID exists.
pub const DOM_EXIST: u32 = 28;
/// Not on a read-only connection.
pub const OPERATION_DENIED: u32 = 29;
/// A system call failed in the daemon, for instance on the monitor socket of a domain that just went away.
pub const SYSTEM_ERROR: u32 = 38;
/// The RPC layer: unknown procedure, arguments that do not decode, authentication missing.
pub const RPC: u32 = 39;
/// No such domain.
pub const NO_DOMAIN: u32 = 42;
/// The credentials are wrong.
pub const AUTH_FAILED: u32 = 45;
/// The domain's state forbids it.
pub const OPERATION_INVALID: u32 = 55;
/// The configuration asks for something the driver lacks.
pub const CONFIG_UNSUPPORTED: u32 = 67;
/// Another job kept the domain busy for too long.
pub const OPERATION_TIMEOUT: u32 = 68;
/// The migration arrived but could not be made persistent.
pub const MIGRATE_PERSIST_FAILED: u32 = 69;
/// An argument or flag the driver lacks.
pub const ARGUMENT_UNSUPPORTED: u32 = 74;
/// The job was aborted by a client.
pub const OPERATION_ABORTED: u32 = 78;
/// The user gave up authenticating.
pub const AUTH_CANCELLED: u32 = 79;
/// No metadata of that kind.
pub const NO_DOMAIN_METADATA: u32 = 80;
/// Migration would risk the disks.
pub const MIGRATE_UNSAFE: u32 = 81;
/// Not for this domain as it is configured or used now.
pub const OPERATION_UNSUPPORTED: u32 = 84;
/// The guest agent does not answer.
pub const AGENT_UNRESPONSIVE: u32 = 86;
/// Something the call needs is in use.
pub const RESOURCE_BUSY: u32 = 87;
/// Access control said no.
pub const ACCESS_DENIED: u32 = 88;
/// The CPUs do not match.
pub const CPU_INCOMPATIBLE: u32 = 91;
/// No way to ask for authentication.
pub const AUTH_UNAVAILABLE: u32 = 94;
/// The device is not there.
pub const DEVICE_MISSING: u32 = 99;

/// Whether time alone may cure it.
pub(crate) fn is_transient(code: u32) -> bool {
    matches!(
        code,
        NO_MEMORY
            | NO_CONNECT
            | INVALID_CONN
            | SYSTEM_ERROR
            | DOM_EXIST
            | OPERATION_INVALID
            | OPERATION_TIMEOUT
            | OPERATION_ABORTED
            | AGENT_UNRESPONSIVE
            | RESOURCE_BUSY
    )
}
