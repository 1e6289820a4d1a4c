//! What a region was asked, and what the earlier operator would have written.

use std::collections::BTreeMap;

use cobalt_sim::Region;

/// Writes on one Hypervisor by the earlier operator, until it is onboarded without a smoke test. Nobody measured it: its
/// described writes are counted, and of those that may or may not happen, none.
///
/// - From the Node: the object, and its address in the status (2).
/// - Onboarding: the ids, and each of Initial, Testing, Handover, Succeeded (5).
/// - Aggregates: the test aggregates, that traits are waited for, and those of the spec (3).
/// - Traits, the taint, and after it all that the service is enabled (3).
/// - Ready: not started, each of the three steps, and ready (5).
pub(crate) const EARLIER_ONBOARDING: f64 = 18.0;

/// Its writes for the drain of so many VMs, counted the same way: one for each that has left; of the Eviction besides
/// that it is made, has begun, has passed its checks and is over; of the Hypervisor that it is disabled, evicting and
/// evicted, and as often that it is not ready because of it.
pub(crate) fn earlier_drain(vms: f64) -> f64 {
    vms + 4.0 + 6.0
}

/// The listings of the whole region. Hypervisors are never listed for one host, and 1000 of them are two pages.
const HYPERVISORS: &str = "GET /compute/v2.1/os-hypervisors/detail";
const AGGREGATES: &str = "GET /compute/v2.1/os-aggregates";
/// A look at the service of one host has the same route as the listing of all, so those are told apart by number: there is
/// one listing in a round, and aggregates are never listed otherwise.
const SERVICES: &str = "GET /compute/v2.1/os-services";
const TRAITS: &str = "GET /placement/resource_providers/{}/traits";

/// Requests to the cloud.
pub(crate) struct Calls {
    all: BTreeMap<&'static str, u64>,
    /// Regional listings.
    pub(crate) listings: u64,
    /// Reads of traits.
    pub(crate) traits: u64,
}

impl Calls {
    /// Since the last reset.
    pub(crate) fn so_far(region: &Region) -> Self {
        let all = region.openstack().counters().all();
        let of = |route: &str| all.get(route).copied().unwrap_or(0);
        let rounds = of(AGGREGATES);
        let listings = rounds + of(HYPERVISORS) + of(SERVICES).min(rounds + 1);
        Self { listings, traits: of(TRAITS), all }
    }

    /// Those that are neither: what was done for single hosts, and logins.
    pub(crate) fn about_hosts(&self) -> u64 {
        self.all.values().sum::<u64>() - self.listings - self.traits
    }

    /// To see where they went.
    pub(crate) fn show(&self) {
        for (route, count) in &self.all {
            eprintln!("{count:8} {route}");
        }
    }
}
