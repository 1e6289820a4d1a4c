//! What can be done to domains: define, start, stop, change.

use super::Libvirt;
use crate::{
    error::Result,
    rpc::{self, DefineFlags, DestroyFlags, DeviceFlags, DomainRef, ShutdownFlags, StartFlags, UndefineFlags},
};

impl Libvirt {
    /// Defines a domain, or replaces its definition.
    pub async fn define(&self, xml: &str, flags: DefineFlags) -> Result<DomainRef> {
        Ok(self.change::<rpc::DomainDefineXmlFlags>("define domain".into(), &(xml.into(), flags)).await?.0)
    }

    /// Removes a domain's definition. A running domain runs on and is gone once it stops.
    pub async fn undefine(&self, domain: &DomainRef, flags: UndefineFlags) -> Result<()> {
        self.change::<rpc::DomainUndefineFlags>(format!("undefine domain {domain}"), &(domain.clone(), flags)).await
    }

    /// Starts a defined domain. The ch driver returns it without its number.
    pub async fn start(&self, domain: &DomainRef, flags: StartFlags) -> Result<DomainRef> {
        let operation = format!("start domain {domain}");
        Ok(self.change::<rpc::DomainCreateWithFlags>(operation, &(domain.clone(), flags)).await?.0)
    }

    /// Starts a domain that is not defined. It is gone once it stops.
    pub async fn start_transient(&self, xml: &str, flags: StartFlags) -> Result<DomainRef> {
        Ok(self.change::<rpc::DomainCreateXml>("start transient domain".into(), &(xml.into(), flags)).await?.0)
    }

    /// Ends a domain at once, by the call that every driver has.
    pub async fn destroy(&self, domain: &DomainRef) -> Result<()> {
        self.change::<rpc::DomainDestroy>(format!("destroy domain {domain}"), &(domain.clone(),)).await
    }

    /// Ends a domain in some way.
    pub async fn destroy_with(&self, domain: &DomainRef, flags: DestroyFlags) -> Result<()> {
        self.change::<rpc::DomainDestroyFlags>(format!("destroy domain {domain}"), &(domain.clone(), flags)).await
    }

    /// Asks the guest to shut down. It may not listen.
    pub async fn shutdown(&self, domain: &DomainRef, flags: ShutdownFlags) -> Result<()> {
        self.change::<rpc::DomainShutdownFlags>(format!("shut down domain {domain}"), &(domain.clone(), flags)).await
    }

    /// Asks the guest to reboot. It may not listen.
    pub async fn reboot(&self, domain: &DomainRef, flags: ShutdownFlags) -> Result<()> {
        self.change::<rpc::DomainReboot>(format!("reboot domain {domain}"), &(domain.clone(), flags)).await
    }

    /// Presses the reset button.
    pub async fn reset(&self, domain: &DomainRef) -> Result<()> {
        self.change::<rpc::DomainReset>(format!("reset domain {domain}"), &(domain.clone(), 0)).await
    }

    /// Stops the CPUs; the memory is kept.
    pub async fn suspend(&self, domain: &DomainRef) -> Result<()> {
        self.change::<rpc::DomainSuspend>(format!("suspend domain {domain}"), &(domain.clone(),)).await
    }

    /// Lets the CPUs run on.
    pub async fn resume(&self, domain: &DomainRef) -> Result<()> {
        self.change::<rpc::DomainResume>(format!("resume domain {domain}"), &(domain.clone(),)).await
    }

    /// Sends a non-maskable interrupt to the guest.
    pub async fn inject_nmi(&self, domain: &DomainRef) -> Result<()> {
        self.change::<rpc::DomainInjectNmi>(format!("inject an NMI into domain {domain}"), &(domain.clone(), 0)).await
    }

    /// Adds the device that `xml` describes.
    pub async fn attach_device(&self, domain: &DomainRef, xml: &str, flags: DeviceFlags) -> Result<()> {
        let operation = format!("attach device to domain {domain}");
        self.change::<rpc::DomainAttachDeviceFlags>(operation, &(domain.clone(), xml.into(), flags)).await
    }

    /// Asks for the removal of the device that `xml` describes. It is gone only with
    /// [`EventKind::DeviceRemoved`](crate::event::EventKind::DeviceRemoved).
    pub async fn detach_device(&self, domain: &DomainRef, xml: &str, flags: DeviceFlags) -> Result<()> {
        let operation = format!("detach device from domain {domain}");
        self.change::<rpc::DomainDetachDeviceFlags>(operation, &(domain.clone(), xml.into(), flags)).await
    }
}
