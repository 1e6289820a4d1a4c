//! The parts of a host through their seams: hypervisor, operating system, switch, power.

mod backend;
mod fence;
mod host;
mod ovs;

pub use backend::SimBackend;
pub use fence::SimFencer;
pub use host::SimHostSystem;
pub use ovs::SimSwitch;
