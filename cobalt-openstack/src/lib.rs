//! [`NovaClient`] and [`PlacementClient`] over the OpenStack APIs.
//!
//! The bare minimum looks like this:
//!
//! ```no_run
//! use cobalt_openstack::{Cloud, NovaClient, OpenStack};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let openstack = OpenStack::connect(&Cloud::from_env()?).await?;
//! for service in openstack.nova().services().await? {
//!     println!("{} {:?}", service.host, service.state);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Concepts
//!
//! - [`Cloud`] is where, and as whom: from the `OS_*` variables, from `clouds.yaml`, with a password, the output of a
//!   command (`OS_PW_CMD`) or an application credential.
//! - [`OpenStack`] is one login. [`OpenStack::nova`], [`OpenStack::placement`] and [`OpenStack::test_bed`] are its
//!   clients; all share the token, the connections and the limits.
//! - [`Options`] are the limits: time per attempt and per call, size of an answer, requests per second and at a time,
//!   attempts. Every call has all of them.
//! - [`nova::microversion`] says which version of the API each call asks for, and why. Where the version decides what
//!   happens to a VM it is the caller's argument.
//! - Errors are those of the seams: [`cobalt_core::Error`] says what a caller can do. Behind it, as its source, is the
//!   [`HttpError`] with the status, the service's words and the request id by which the service's own logs are found.
//!   The id of what went well is logged: of reads at `debug`, of writes at `info`.
//! - [`CallObserver`] hears of each call with its outcome and duration, for metrics.
//! - [`cobalt_core::nova::view`] is one look at the whole region for everybody, so that calls at rest do not grow with
//!   the number of hosts.
//!
//! # What happens when the cloud is in trouble
//!
//! | Answer | What we do |
//! |---|---|
//! | 401 | log in again and repeat; again after a second, since Keystone revokes by the second; a third one is `Denied` |
//! | 401 to a login | `Denied`, and no login for half a minute, then for twice as long, up to a quarter of an hour: a wrong password that is repeated locks its account |
//! | a token near its end, and Keystone is away | one short attempt every quarter of a minute; the old token is good meanwhile |
//! | no endpoint in the catalog | `Configuration`, with service, interface and region |
//! | 429, and 503 with `Retry-After` | wait as long as it says, and hold all other calls back too; longer than [`Options::longest_wait`] is `Unavailable` with the wish |
//! | 503, 502, 504 | again with a growing pause, if the request may be repeated |
//! | no connection | again with a growing pause |
//! | silence | reads again, then `Timeout`; a write may have been done: look before repeating it |
//! | nonsense, or more than [`Options::max_body`] | `Malformed` |
//! | a redirect | `Refused`: it would carry our token elsewhere |
//!
//! # Why not the `openstack_sdk` family
//!
//! It was tried. Its session reads bodies of any size, does not know `Retry-After` and sends the lowest microversion that a
//! binding allows, so that the session had to be our own. What was left, `openstack_sdk_core` for clouds.yaml and the
//! catalog, cost 31 crates, five duplicate versions, a newer compiler and a licence that this tree does not allow
//! (MPL-2.0, by way of `dirs`); the umbrella crate adds a second crypto provider and forty crates more.
//!
//! # Features
//!
//! - `testing`: a scripted cloud on a socket, for tests of one's own.

mod client;
pub mod cloud;
pub mod decode;
mod error;
pub mod nova;
mod options;
pub mod placement;
mod session;
mod test_bed;
#[cfg(feature = "testing")]
pub mod testing;

pub use cobalt_core::nova::{NovaClient, PlacementClient, TestBed};

pub use self::{
    client::OpenStack,
    cloud::Cloud,
    error::{Error, HttpError, Result},
    nova::Nova,
    options::Options,
    placement::Placement,
    session::{CallObserver, CallRecord},
    test_bed::Bed,
};
