//! Real servers to test against, on one machine and without a trace.
//!
//! [`Hosts`] are machines as libvirt sees them: each has its own network, mounts, processes and name, and runs a real
//! libvirtd with a real QEMU. They reach each other over a bridge, so that live migration is the real thing.
//!
//! ```no_run
//! use cobalt_rig::{Guest, Hosts};
//!
//! # fn main() -> Result<(), cobalt_rig::Error> {
//! let hosts = Hosts::up(2)?;
//! let host = hosts.host(0);
//! host.define(&Guest::new("vm1").memory_mib(64))?;
//! host.virsh(["start", "vm1"])?;
//! println!("{} and {} reach it", host.tcp(), host.tls());
//! # Ok(())
//! # }
//! ```
//!
//! [`Guest`] writes the XML of a domain. With a [`Kernel`] it boots a Linux that carries out one [`Act`]: it reboots,
//! panics, forgets its watchdog, fills its disk. The kernel is fetched by `cargo xtask test`.
//!
//! [`ovs::Node`] is a machine with a real Open vSwitch and OVN: bridges, a bond that negotiates with a second switch, a
//! tunnel, VMs that ping each other, and a method for everything that can go wrong.
//!
//! [`ControlPlane`] is a real Keystone, Placement, Glance and Nova with as many computes as wanted, whose guests alone are
//! not real.
//!
//! ```no_run
//! use cobalt_rig::{ControlPlane, Venv};
//!
//! # fn main() -> Result<(), cobalt_rig::Error> {
//! let venv = Venv::find(std::path::Path::new("target"))?;
//! let plane = ControlPlane::up(&venv, &["hv-1", "hv-10"])?;
//! let server = plane.boot("hv-1", "a-server")?;
//! plane.compute("hv-1").refuse_migrations(&[&server])?;
//! println!("log in at {}", plane.auth_url());
//! # Ok(())
//! # }
//! ```
//!
//! For tests there is one plane per process, and a [`Turn`] on it. What they find there:
//!
//! | Wanted | By |
//! |---|---|
//! | computes of any name, added, stopped as kubelet does, killed, started again | [`ControlPlane::start_compute`], [`stop_compute`](ControlPlane::stop_compute), [`kill_compute`](ControlPlane::kill_compute), [`wait_for_compute`](ControlPlane::wait_for_compute) |
//! | the guests of a host, and when they change | [`Compute::guests`], [`Compute::watch`] |
//! | live migrations (eight at a time per host) that take long, or fail | [`Compute::migrations_take`], [`refuse_migrations`](Compute::refuse_migrations) |
//! | servers that cannot be made | [`Compute::refuse_guests`] |
//! | servers that say nothing on their consoles | [`Compute::mute_guests`] |
//! | servers on a host or anywhere, of any flavor, in any project | [`ControlPlane::boot`], [`request`](ControlPlane::request) with a [`Boot`], [`act`](ControlPlane::act), [`delete`](ControlPlane::delete) |
//! | aggregates, zones, flavors with extra specs, images, networks | [`ControlPlane::add_aggregate`], [`add_flavor`](ControlPlane::add_flavor), [`add_image`](ControlPlane::add_image), [`add_network`](ControlPlane::add_network) |
//! | a service that is away or comes back; tokens that are worth nothing | [`ControlPlane::kill`], [`start`](ControlPlane::start), [`restart`](ControlPlane::restart), [`revoke_tokens`](ControlPlane::revoke_tokens) |
//! | who logs in: the operator, the project of smoke tests, a customer | [`Account`], [`ControlPlane::environment_of`] |
//! | the truth, by another way than the one under test | [`ControlPlane::services`], [`providers`](ControlPlane::providers), [`allocations`](ControlPlane::allocations), [`aggregates`](ControlPlane::aggregates), [`servers_on`](ControlPlane::servers_on), [`migrations_of`](ControlPlane::migrations_of) |
//!
//! # Nothing stays behind
//!
//! The first process of every host reads from a pipe that only our process holds. When we end, in whatever way, the
//! pipe closes, that process ends, and the kernel ends everything else in its namespaces: daemons, guests, interfaces.
//! What can be left is a directory with a note of its owner; the next rig removes it. (What a control plane has in it,
//! which is more, goes with its namespaces.)
//!
//! # Requirements
//!
//! Root, and the programs that [`missing`], [`ovs::missing`] and [`openstack_requirements`] name. A test calls
//! [`available`], [`ovs::available`] or [`openstack_available`] first, which tells why it cannot run.

mod error;
mod guest;
mod libvirt;
mod namespace;
mod network;
mod openstack;
pub mod ovs;
mod pki;
mod place;
mod process;
mod requirements;

pub use error::{Error, Result};
pub use guest::{Act, Disk, DomainType, Guest, Kernel};
pub use libvirt::{Host, HostOptions, Hosts, Sasl};
pub use openstack::{
    Account, Boot, Compute, ComputeGuest, ControlPlane, ControlService, GuestState, GuestWatch, SeenAggregate,
    SeenMigration, SeenProvider, SeenServer, SeenService, Turn, Venv,
};
pub use requirements::{available, missing, openstack_available, openstack_requirements, requirements, skip};
