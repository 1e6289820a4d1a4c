//! What everybody in Cobalt may know: the Kubernetes types, the seams to the outside, the decisions and the loops.
//!
//! Cobalt runs the compute side of an OpenStack cloud on Kubernetes. This crate is its middle. It does no IO of its
//! own by default: it names what a host, a switch and a cloud are ([the seams](#the-seams)), what the cluster stores
//! ([`api`]), and, behind features, how programs are made of them.
//!
//! # The bare minimum
//!
//! Follow any hypervisor, whatever driver is behind it:
//!
//! ```
//! use cobalt_core::backend::{BackendEvent, HypervisorBackend};
//! use futures::StreamExt;
//!
//! async fn follow(backend: &dyn HypervisorBackend) {
//!     let mut events = backend.events();
//!     while let Some(event) = events.next().await {
//!         if let BackendEvent::Domain { name, event, .. } = event {
//!             eprintln!("{name}: {event:?}");
//!         }
//!     }
//! }
//! ```
//!
//! # The seams
//!
//! | Trait | What is behind it |
//! |---|---|
//! | [`HypervisorBackend`](backend::HypervisorBackend) | the VMs of one host |
//! | [`OvsInspector`](ovs::OvsInspector) | the virtual switch of one host |
//! | [`HostSystem`](host::HostSystem) | the operating system of one host |
//! | [`NovaClient`](nova::NovaClient), [`PlacementClient`](nova::PlacementClient) | the cloud |
//! | [`Fencer`](fence::Fencer) | the power of the hosts |
//!
//! They are consumer-side: a trait says what its user needs, never how a provider is built. They are object-safe and
//! held as `Arc<dyn …>`. An ability that a driver lacks is data (`features()`), and calling it anyway is
//! [`Error::Unsupported`].
//!
//! # Features
//!
//! | Feature | Adds |
//! |---|---|
//! | *(none)* | types and traits |
//! | `runtime` | [`runtime`]: logs, metrics, admin server, leases, apply-on-change, Events, graceful shutdown |
//! | `operator` | [`operator`]: the hypervisor operator as a library |
//! | `agent` | [`agent`]: the node agent as a library |
//! | `otlp` | spans to an OpenTelemetry collector ([`runtime::telemetry`]) |
//! | `testing` | mocks of every seam, builders, and the contract suites ([`contract`]) |

pub mod api;
pub mod backend;
mod error;
pub mod fence;
pub mod host;
pub mod ids;
pub mod nova;
pub mod ovs;

#[cfg(feature = "agent")]
pub mod agent;
#[cfg(feature = "testing")]
pub mod contract;
#[cfg(feature = "operator")]
pub mod operator;
#[cfg(any(feature = "operator", feature = "agent"))]
mod publish;
#[cfg(feature = "runtime")]
pub mod runtime;

pub use error::{Cause, Error, Result};

// The crates whose types stand in our signatures, so that an embedder uses the same copies.
pub use futures;
pub use jiff;
pub use k8s_openapi;
pub use kube;
pub use schemars;
