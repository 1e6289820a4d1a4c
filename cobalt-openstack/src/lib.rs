//! [`NovaClient`] and [`PlacementClient`] over the OpenStack APIs.
//!
//! **This crate has no implementation yet.** It holds the name and the place: authentication, the two clients and
//! the region view shared by all controllers will live here, and nothing else.
//!
//! What can be used today is the seams themselves and their simulated implementation in `cobalt-sim`:
//!
//! ```
//! use cobalt_openstack::NovaClient;
//!
//! async fn enabled_hosts(nova: &dyn NovaClient) -> cobalt_core::Result<usize> {
//!     Ok(nova.services().await?.iter().filter(|service| service.enabled).count())
//! }
//! ```

pub use cobalt_core::nova::{NovaClient, PlacementClient};
