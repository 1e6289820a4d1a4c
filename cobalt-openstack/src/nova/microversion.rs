//! The version of Nova's API that each call asks for, and why.
//!
//! A microversion changes what is answered and sometimes what is done. Each call has the lowest that gives what it
//! needs, so that old clouds are served too, and never a higher one by accident. A cloud that does not have it answers
//! [`Error::Unsupported`](cobalt_core::Error::Unsupported).

use cobalt_core::nova::AfterEvacuation;

/// Services are known by UUID, and one `PUT` changes them (Pike).
pub const SERVICES: &str = "2.53";

/// Hypervisors are known by UUID, can be asked for with their servers, and come in pages (Pike). Not 2.88 or above:
/// there Nova asks every compute host for its uptime, one by one, to answer a list.
pub const HYPERVISORS: &str = "2.53";

/// Servers come with what their flavor was when they were made, extra specs included (Queens), and with `locked`.
pub const SERVERS: &str = "2.61";

/// Flavors as they always were.
pub const FLAVORS: &str = "2.1";

/// Volume types in block devices (Stein), `networks: none`.
pub const CREATE_SERVER: &str = "2.67";

/// A target host is asked for through the scheduler and cannot be forced (Stein); `block_migration: auto`.
pub const LIVE_MIGRATE: &str = "2.68";

/// The first in which a cold migration takes a host (Queens). The scheduler has to agree, as with a live one.
pub const COLD_MIGRATE: &str = "2.56";

/// Migrations in pages, with their type (Queens).
pub const MIGRATIONS: &str = "2.59";

/// A queued live migration can be aborted, not only a running one (Rocky).
pub const ABORT_MIGRATION: &str = "2.65";

/// Server groups with one policy and its rules (Rocky).
pub const SERVER_GROUPS: &str = "2.64";

/// Aggregates with their UUIDs (Ocata).
pub const AGGREGATES: &str = "2.41";

/// Nova decides by the microversion how an evacuated server ends: up to 2.94 it runs if it ran before, from 2.95
/// (Antelope) it stays off. So that is the caller's decision.
pub const fn evacuate(after: AfterEvacuation) -> &'static str {
    match after {
        AfterEvacuation::Run => "2.68",
        AfterEvacuation::StayOff => "2.95",
    }
}
