//! Controller `eviction`: it drains a host.
//!
//! ```text
//!   observe: the host's servers, its migrations, the servers that have left the list, who has room
//!   decide:  one pure function over that and what the Eviction says already
//!   act:     each step looks again, then asks Nova
//!   publish: one status write per pass, if anything is new
//! ```
//!
//! # The drain
//!
//! ```text
//!                   service disabled,           nothing left by Nova, twice,
//!   ┌──────────────┐ in Nova too  ┌─────────┐   nothing left by libvirt     ┌───────────┐
//!   │ not disabled │ ───────────▶ │ Running │ ────────────────────────────▶ │ Succeeded │  Evicting=False
//!   └──────────────┘              └─────────┘                               └───────────┘
//!          ▲                        │  ▲    ▲──────────────────────────────────┘ libvirt has instances again,
//!          │                        │  │                                         and the host is still disabled
//!          └────────────────────────┘  │ something can move again
//!            somebody enabled it    │  │
//!                                   ▼  │ all that is left cannot move
//!                                 ┌─────────┐
//!                                 │ Blocked │  Evicting stays True: the host is not empty
//!                                 └─────────┘
//! ```
//!
//! A host that Nova does not know has nothing to drain, unless Nova should know it: then the drain is `Failed`, which is
//! `True` as well, and is looked at again.
//!
//! # One instance
//!
//! ```text
//!             a place is free          Nova begins          it is elsewhere
//!   Pending ──────────────────▶ Queued ───────────▶ Migrating ─────────────▶ Moved
//!      ▲                          │                 │      │ cold             ▲
//!      │ pause over               │                 │      └──▶ Confirming ───┘
//!      │                          ▼   too long      ▼
//!   Failed ◀──────────────────────┴─── Aborting ◀───┘      deleted, from anywhere ──▶ Gone
//!      │                                  └──▶ Overdue ──▶ Failed, Moved
//!      │ tried too often
//!      ▼            pause over, or room, or it can move again
//!   Blocked ──────────────────────────────────────────────────▶ Pending
//! ```
//!
//! `Overdue` is one that takes too long and does not stop, or cannot be stopped, whether it moves or is confirmed. It is
//! waited for, but has no place any more. It still counts where moves of several drains do: in the region, and to one host.
//!
//! `Waiting` is one with which something else is being done: it is built, rebuilt, deleted, or has just been moved here. One
//! that waits too long is blocked. What cannot move at all (suspended, in error, …) is blocked at once, and the others go on.
//!
//! Nova's word counts, not ours: a server that Nova says is moving is moving, whoever asked for it, and one that is
//! elsewhere has moved. So a crash between asking and writing down forgets at most a number, and nothing is asked to
//! move twice: Nova marks a server before it answers, and each step looks at that mark. A record of a migration counts
//! together with that mark, or while it is young: records may be left open for ever.
//!
//! # Deleting an Eviction
//!
//! While it has moves under way, an Eviction has a finalizer. When it is deleted, nothing new begins; live migrations are
//! stopped, those past the point of return and cold ones are seen to their end. Moves that begin now are others'. After
//! [`release`](DrainSettings::release) it goes all the same, with a warning: a deletion never hangs.
//!
//! # Several Evictions of one host
//!
//! The oldest works; the others say so, ask nobody, and have their turn when it has ended, or was deleted and is not held
//! any more.

mod act;
mod controller;
mod counts;
mod deal;
mod decide;
mod groups;
mod movability;
mod observe;
mod plan;
mod say;
mod seen;
mod settings;
mod targets;

pub(super) use self::controller::{Drains, take_over};
pub use self::{
    decide::{DrainPlan, Step, decide},
    plan::{EvictionPlan, PlanOptions, PlannedMove, Risk, plan},
    seen::{DrainSeen, HostSeen, HostState, InFlight, LibvirtWord, Moves, Room},
    settings::{BlockMigrationWord, DrainArgs, DrainSettings},
};
