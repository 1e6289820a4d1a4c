//! What there is: lists, lookups, descriptions, states, statistics.

use uuid::Uuid;

use super::Libvirt;
use crate::{
    error::Result,
    rpc::{
        self, DeviceFlags, DiskError, DomainFilter, DomainInfo, DomainRef, DomainStatsRecord, DomainStatus,
        MetadataKind, StatsGroups, XmlFlags,
    },
};

/// How many failed disks a daemon reports at most.
const MAX_DISK_ERRORS: u32 = 256;

/// How statistics are gathered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatsOptions {
    /// Only of running domains.
    pub active_only: bool,
    /// Do not wait for a domain that is busy: what is not to be had at once is left out. Without it one stuck domain
    /// holds up the answer for all.
    pub nowait: bool,
    /// Also of the images below each disk.
    pub backing_chain: bool,
    /// Fail if the driver lacks one of the groups, instead of leaving it out.
    pub enforce_groups: bool,
}

impl StatsOptions {
    /// What a poller wants: running domains, and no waiting.
    pub fn polling() -> Self {
        Self { active_only: true, nowait: true, ..Self::default() }
    }

    fn bits(self) -> u32 {
        [
            (self.active_only, DomainFilter::ACTIVE.bits()),
            (self.nowait, 1 << 29),
            (self.backing_chain, 1 << 30),
            (self.enforce_groups, 1 << 31),
        ]
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .fold(0, |bits, (_, bit)| bits | bit)
    }
}

impl Libvirt {
    /// The domains that pass `filter`, in no particular order.
    pub async fn domains(&self, filter: DomainFilter) -> Result<Vec<DomainRef>> {
        let arguments = rpc::ListAllDomainsArguments { need_results: true, filter };
        Ok(self.call::<rpc::ConnectListAllDomains>("list domains", &arguments).await?.domains)
    }

    /// A domain by its UUID.
    pub async fn domain_by_uuid(&self, uuid: Uuid) -> Result<DomainRef> {
        Ok(self.call::<rpc::DomainLookupByUuid>(format!("look up domain {uuid}"), &(uuid,)).await?.0)
    }

    /// A domain by its name.
    pub async fn domain_by_name(&self, name: &str) -> Result<DomainRef> {
        Ok(self.call::<rpc::DomainLookupByName>(format!("look up domain {name:?}"), &(name.into(),)).await?.0)
    }

    /// A running domain by its number.
    pub async fn domain_by_id(&self, id: i32) -> Result<DomainRef> {
        Ok(self.call::<rpc::DomainLookupById>(format!("look up domain number {id}"), &(id,)).await?.0)
    }

    /// A domain's description.
    pub async fn domain_xml(&self, domain: &DomainRef, flags: XmlFlags) -> Result<String> {
        let operation = format!("get XML of domain {domain}");
        Ok(self.call::<rpc::DomainGetXmlDesc>(operation, &(domain.clone(), flags)).await?.0)
    }

    /// A domain's state and the reason for it.
    pub async fn domain_status(&self, domain: &DomainRef) -> Result<DomainStatus> {
        self.call::<rpc::DomainGetState>(format!("get state of domain {domain}"), &(domain.clone(), 0)).await
    }

    /// The classic facts about a domain.
    pub async fn domain_info(&self, domain: &DomainRef) -> Result<DomainInfo> {
        self.call::<rpc::DomainGetInfo>(format!("get information on domain {domain}"), &(domain.clone(),)).await
    }

    /// Whether a domain runs.
    pub async fn is_active(&self, domain: &DomainRef) -> Result<bool> {
        let operation = format!("get whether domain {domain} is active");
        Ok(self.call::<rpc::DomainIsActive>(operation, &(domain.clone(),)).await?.0)
    }

    /// Whether a domain's definition is kept when it stops.
    pub async fn is_persistent(&self, domain: &DomainRef) -> Result<bool> {
        let operation = format!("get whether domain {domain} is persistent");
        Ok(self.call::<rpc::DomainIsPersistent>(operation, &(domain.clone(),)).await?.0)
    }

    /// Statistics of `domains`, or of all if there are none, in one call.
    ///
    /// A domain that does not exist is left out of the answer. A domain that goes away *during* the call may fail it
    /// as a whole; callers that poll should try again.
    ///
    /// ```no_run
    /// use cobalt_libvirt::{Libvirt, StatsGroups, StatsOptions};
    ///
    /// # async fn example(libvirt: Libvirt) -> cobalt_libvirt::Result<()> {
    /// let groups = StatsGroups::STATE | StatsGroups::CPU_TOTAL;
    /// for record in libvirt.domain_stats(&[], groups, StatsOptions::polling()).await? {
    ///     println!("{}: {:?} ns", record.domain, record.params.get_u64("cpu.time"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn domain_stats(
        &self,
        domains: &[DomainRef],
        groups: StatsGroups,
        options: StatsOptions,
    ) -> Result<Vec<DomainStatsRecord>> {
        let operation = match domains {
            [] => "get statistics of all domains".into(),
            [domain] => format!("get statistics of domain {domain}"),
            several => format!("get statistics of {} domains", several.len()),
        };
        let arguments = rpc::AllDomainStatsArguments { domains: domains.to_vec(), groups, flags: options.bits() };
        Ok(self.call::<rpc::ConnectGetAllDomainStats>(operation, &arguments).await?.0)
    }

    /// The disks of a running domain that have failed.
    pub async fn disk_errors(&self, domain: &DomainRef) -> Result<Vec<DiskError>> {
        let operation = format!("get disk errors of domain {domain}");
        let arguments = rpc::DiskErrorsArguments { domain: domain.clone(), max: MAX_DISK_ERRORS, flags: 0 };
        Ok(self.call::<rpc::DomainGetDiskErrors>(operation, &arguments).await?.errors)
    }

    /// The element of namespace `uri` in a domain's metadata. The namespace's prefix is not in it, though it is in the
    /// domain's XML.
    pub async fn metadata(&self, domain: &DomainRef, uri: &str, flags: DeviceFlags) -> Result<String> {
        let operation = format!("get metadata {uri} of domain {domain}");
        let arguments = rpc::GetMetadataArguments {
            domain: domain.clone(),
            kind: MetadataKind::Element,
            uri: Some(uri.into()),
            flags,
        };
        Ok(self.call::<rpc::DomainGetMetadata>(operation, &arguments).await?.0)
    }

    /// Puts an element into a domain's metadata, under namespace `uri` with the prefix `prefix`, in place of the one
    /// that was there. Without `xml` it is removed.
    pub async fn set_metadata(
        &self,
        domain: &DomainRef,
        uri: &str,
        prefix: &str,
        xml: Option<&str>,
        flags: DeviceFlags,
    ) -> Result<()> {
        let verb = if xml.is_some() { "set" } else { "remove" };
        let arguments = rpc::SetMetadataArguments {
            domain: domain.clone(),
            kind: MetadataKind::Element,
            value: xml.map(Into::into),
            key: Some(prefix.into()),
            uri: Some(uri.into()),
            flags,
        };
        self.change::<rpc::DomainSetMetadata>(format!("{verb} metadata {uri} of domain {domain}"), &arguments).await
    }
}
