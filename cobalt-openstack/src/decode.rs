//! From the bodies of answers to the types of the seam.
//!
//! Bytes of other programs: nothing here panics, what is not understood is an error with a place, and words that a
//! newer service may use become the `Other` of their enum. What a service adds is ignored.

mod body;
mod compute;
mod resources;
mod things;
mod token;

use serde::de::DeserializeOwned;

pub use body::message;
pub(crate) use body::{next_page, shortened};
pub use compute::{aggregates, hypervisor, hypervisors, migrations, server, server_groups, servers, services};
pub(crate) use compute::{console, created};
pub(crate) use resources::{Consumer, consumer};
pub use resources::{allocations, candidates, inventories, provider, providers, traits, usages};
pub(crate) use things::{flavors, images, networks};
pub use token::{Endpoint, Token, token};

/// Any JSON body, or what is wrong with it.
pub(crate) fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}
