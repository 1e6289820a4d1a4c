//! A simulated region: hosts with VMs, switches and BMCs, a Nova and a Placement above them, and a Kubernetes API
//! server beside them, as one consistent world in one process.
//!
//! It is made for three uses: tests of programs that are too dangerous to try on a real cloud, demonstrations without
//! a cluster, and learning how such a region behaves when something breaks. The programs under test are unchanged:
//! they see the seams of [`cobalt_core`] and a `kube::Client`.
//!
//! # The bare minimum
//!
//! ```
//! use cobalt_core::backend::HypervisorBackend;
//! use cobalt_sim::Region;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let region = Region::builder().hosts(3).vms_per_host(8).seed(7).build();
//! let host = &region.hosts()[0];
//! let domains = region.backend(host)?.inventory().await?;
//! assert_eq!(domains.len(), 8);
//! # Ok(())
//! # }
//! ```
//!
//! # The parts
//!
//! | Handle | Seam |
//! |---|---|
//! | [`Region::backend`] | [`HypervisorBackend`](cobalt_core::backend::HypervisorBackend): the VMs of one host |
//! | [`Region::host_system`] | [`HostSystem`](cobalt_core::host::HostSystem): its operating system |
//! | [`Region::switch`] | [`OvsInspector`](cobalt_core::ovs::OvsInspector): its switch |
//! | [`Region::fencer`] | [`Fencer`](cobalt_core::fence::Fencer): the BMCs |
//! | [`Region::nova`], [`Region::placement`] | [`NovaClient`](cobalt_core::nova::NovaClient), [`PlacementClient`](cobalt_core::nova::PlacementClient): the cloud |
//! | [`Region::openstack`] | the same cloud as an OpenStack API over HTTP, for clients of their own: [`openstack`] |
//! | [`Region::cluster`] | the Kubernetes API, with Cobalt's kinds and a kubelet per host: [`Cluster`] |
//! | [`Region::world`] | the world itself: [`World`], to make things happen |
//!
//! A host runs QEMU or Cloud Hypervisor ([`Driver`]); the second lacks what it lacks in reality.
//!
//! # Making things happen
//!
//! Actions on the [`World`] are what a person, a guest or fate would do: cut the power, hang a host, crash a guest,
//! restart a daemon, unplug a network. What follows from it follows by itself, in its own time: without power guests
//! end, the backend is unreachable, and Nova notices after its own delay.
//!
//! ```
//! use std::time::Duration;
//!
//! use cobalt_core::{fence::Fencer, nova::{NovaClient, ServiceState}};
//! use cobalt_sim::Region;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let region = Region::builder().hosts(2).vms_per_host(3).build();
//! let host = &region.hosts()[0];
//! region.world().power_cut(host)?;
//!
//! assert!(region.fencer().power(host).await?.is_proof());
//! assert_eq!(region.nova().services().await?[0].state, ServiceState::Up, "not noticed yet");
//! tokio::time::sleep(Duration::from_secs(61)).await;
//! assert_eq!(region.nova().services().await?[0].state, ServiceState::Down);
//! # Ok(())
//! # }
//! ```
//!
//! Nothing protects a region from its operator: evacuating a host that still runs makes its VMs run twice, as it
//! would in reality. [`World::check`] tells, and every test should end with it:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! # let region = cobalt_sim::Region::builder().build();
//! assert_eq!(region.world().check(), []);
//! # }
//! ```
//!
//! # Faults
//!
//! There are three kinds, in three places:
//!
//! - what breaks in the world is an action of the [`World`] (a dead BMC, a hung switch, migrations that fail);
//! - what breaks between a program and a seam belongs to one handle ([`faults::Faults`]: fail, delay, hang, lose the
//!   answer);
//! - what breaks between a program and Kubernetes belongs to the API server ([`Cluster::server`] has its faults by
//!   client name), or to the host the program runs on ([`Cluster::client_on`], [`Cluster::run_on`]).
//!
//! ```
//! use cobalt_core::backend::HypervisorBackend;
//! use cobalt_sim::{Region, faults::Failure};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let region = Region::builder().hosts(1).build();
//! let backend = region.backend(&region.hosts()[0])?;
//! backend.faults().fail_next("inventory", Failure::Unavailable);
//! assert!(backend.inventory().await.is_err_and(|error| error.is_transient()));
//! assert!(backend.inventory().await.is_ok());
//! # Ok(())
//! # }
//! ```
//!
//! # Time
//!
//! All time is Tokio's. In a test with `#[tokio::test(start_paused = true)]` it is virtual: an hour passes as soon as
//! everybody waits. In a demonstration it is real. How long things take is [`Timing`]. At rest nothing is planned and
//! nothing wakes up, however many VMs there are: the world has one agenda and one task.
//!
//! # Chance
//!
//! All randomness comes from the seed. The same seed and the same actions give the same ids, the same decisions and
//! the same [log](World::log), to the letter.
//!
//! # Kubernetes
//!
//! ```
//! use cobalt_core::api::Hypervisor;
//! use cobalt_sim::Region;
//! use kube::{Api, api::ListParams};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let region = Region::builder().hosts(2).build();
//! let cluster = region.cluster().await?;
//! cluster.join_all().await?; // the Nodes appear
//! cluster.manage(&region.hosts()[0], true).await?; // one of them gets the lifecycle label
//!
//! let hypervisors: Api<Hypervisor> = Api::all(cluster.client("my-program"));
//! assert!(hypervisors.list(&ListParams::default()).await?.items.is_empty(), "no operator runs yet");
//! # Ok(())
//! # }
//! ```
//!
//! # What it simplifies
//!
//! One cell, one project's view (everything is seen by an administrator), no quotas, no volumes or networks as objects
//! of their own. Tunnels form a ring instead of a mesh. A guest that somebody starts behind Nova's back is accepted,
//! where a real Nova would stop it again.

pub mod cluster;
pub mod error;
pub mod faults;
mod nova;
pub mod openstack;
mod programs;
mod region;
mod seams;
mod topic;
mod world;

pub use cluster::Cluster;
pub use error::SimError;
pub use nova::{Flavor, SimNova, SimPlacement, SimTestBed};
pub use openstack::OpenStackApi;
pub use region::{Region, RegionBuilder};
pub use seams::{SimBackend, SimFencer, SimHostSystem, SimSwitch};
pub use world::{DaemonState, Driver, HostStatus, Note, Orphan, SwitchFault, Timing, Violation, VmSpec, World};

// The crate whose types stand in our signatures.
pub use cobalt_apiserver as apiserver;
