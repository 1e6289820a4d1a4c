//! What the agent knows about its host at one moment.

use crate::{
    Error,
    backend::{Domain, DomainCapabilities, HostCapabilities, Versions},
    host::{OsFacts, Unit},
    runtime::shutdown::Chain,
};

/// One part of a [`Report`]: known, or the reason why not.
///
/// A part that could not be read does not take the others with it. Its fields keep their last published values and a
/// condition says that they are old.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Section<T> {
    /// Nobody has asked yet.
    #[default]
    NotYet,
    /// This driver or host does not offer it, and that is fine.
    NotOffered,
    /// Read.
    Known(T),
    /// Asked, and it failed. The text is the error's, with its causes.
    Failed(String),
}

impl<T> Section<T> {
    /// Whether it was asked for in vain.
    pub fn is_failed(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    /// What was read.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            _ => None,
        }
    }
}

impl<T> From<crate::Result<T>> for Section<T> {
    fn from(result: crate::Result<T>) -> Self {
        match result {
            Ok(value) => Self::Known(value),
            Err(Error::Unsupported { .. }) => Self::NotOffered,
            Err(error) => Self::Failed(Chain(&error).to_string()),
        }
    }
}

/// Everything the agent knows about its host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The driver's name.
    pub driver: String,
    /// Why there is no connection to the hypervisor, if there is none.
    pub disconnected: Option<String>,
    /// Versions of the library and the hypervisor.
    pub versions: Section<Versions>,
    /// What the host has.
    pub capabilities: Section<HostCapabilities>,
    /// What a VM may be made of.
    pub domain_capabilities: Section<DomainCapabilities>,
    /// The VMs.
    pub domains: Section<Vec<Domain>>,
    /// The operating system.
    pub facts: Section<OsFacts>,
    /// The service units the agent was told to watch.
    pub units: Section<Vec<Unit>>,
    /// Which of the units are libvirt's. They are alternatives: a host has one daemon for everything, or one per driver.
    pub libvirt_units: Vec<String>,
    /// Why what is said between agent and libvirt could be overheard or forged, if it could.
    pub insecure: Option<String>,
}
