//! [`HypervisorBackend`] over libvirt, for QEMU/KVM and Cloud Hypervisor.
//!
//! **This crate has no implementation yet.** It holds the name and the place: the asynchronous client for libvirt's
//! wire protocol and the backend on top of it will live here, and nothing else. Until then there is nothing to
//! construct, on purpose: an agent without a backend is refused at start rather than fed by a stand-in.
//!
//! What can be used today is the seam itself and its simulated implementation in `cobalt-sim`:
//!
//! ```
//! use cobalt_libvirt::HypervisorBackend;
//!
//! fn works_with_any(backend: &dyn HypervisorBackend) -> String {
//!     backend.driver()
//! }
//! ```

pub use cobalt_core::backend::HypervisorBackend;
