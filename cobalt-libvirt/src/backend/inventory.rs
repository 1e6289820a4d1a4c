//! What domains there are.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cobalt_core::{
    Result,
    backend::{Domain, DomainState, DomainStats},
    ids::InstanceId,
};
use futures::{StreamExt, TryStreamExt, future, stream};
use uuid::Uuid;

use super::{cache::Cache, link::Live, state, stats};
use crate::{
    Error,
    client::StatsOptions,
    rpc::{DomainFilter, DomainRef, DomainStatsRecord, DomainStatus, StatsGroups, XmlFlags},
    xml::{DomainXml, Vcpus},
};

/// The groups that the seam's counters come from.
fn counter_groups() -> StatsGroups {
    StatsGroups::STATE
        | StatsGroups::VCPU
        | StatsGroups::BALLOON
        | StatsGroups::CPU_TOTAL
        | StatsGroups::INTERFACE
        | StatsGroups::BLOCK
}

/// What bulk statistics said of one domain.
struct Seen {
    id: Option<i32>,
    status: Option<DomainStatus>,
}

impl Seen {
    fn new(record: &DomainStatsRecord) -> Self {
        Self { id: record.domain.id, status: stats::status(record) }
    }
}

/// Reads domains through one connection.
pub(super) struct Inventory<'a> {
    pub(super) live: &'a Live,
    pub(super) cache: &'a Mutex<Cache>,
    pub(super) pipeline: usize,
    pub(super) xml_max_age: Duration,
}

impl Inventory<'_> {
    fn cache<T>(&self, act: impl FnOnce(&mut Cache) -> T) -> T {
        act(&mut self.cache.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn seam(&self, error: Error) -> cobalt_core::Error {
        error.into_core(&self.live.driver)
    }

    /// Every domain: one list, one bulk call beside it, and one XML per domain that is new or has changed.
    pub(super) async fn all(&self, bulk: bool) -> Result<Vec<Domain>> {
        let host = self.live.host().await?;
        let libvirt = &self.live.libvirt;
        let (list, seen) = future::join(libvirt.domains(DomainFilter::NONE), self.look(bulk)).await;
        let list = list.map_err(|error| self.seam(error))?;
        let seen = seen?;
        let listed: HashSet<Uuid> = list.iter().map(|domain| domain.uuid).collect();
        let (host, seen) = (&host.cells, &seen);
        let read = list.into_iter().map(|domain| async move {
            let Some((status, xml)) = self.read(&domain, seen.get(&domain.uuid)).await? else { return Ok(None) };
            let id = InstanceId::from(domain.uuid.to_string());
            Ok::<_, cobalt_core::Error>(Some(xml.to_domain(id, domain.name, state::domain_state(&status), host)))
        });
        let found: Vec<Option<Domain>> = stream::iter(read).buffer_unordered(self.pipeline).try_collect().await?;
        let mut domains: Vec<Domain> = found.into_iter().flatten().collect();
        domains.sort_by(|one, other| one.id.cmp(&other.id));
        self.cache(|cache| cache.retain(|uuid| listed.contains(&uuid)));
        Ok(domains)
    }

    /// One domain.
    pub(super) async fn one(&self, uuid: Uuid) -> Result<Domain> {
        let host = self.live.host().await?;
        let libvirt = &self.live.libvirt;
        let domain = libvirt.domain_by_uuid(uuid).await.map_err(|error| self.seam(error))?;
        match self.read(&domain, None).await? {
            Some((status, xml)) => {
                let id = InstanceId::from(uuid.to_string());
                Ok(xml.to_domain(id, domain.name.clone(), state::domain_state(&status), &host.cells))
            }
            None => Err(cobalt_core::Error::not_found(format!("get domain {uuid}"))),
        }
    }

    /// States by one bulk call. A failure of it as a whole is no failure of the inventory: each domain is then asked for
    /// its state.
    ///
    /// The state and nothing else: for every other group the daemon asks each QEMU, one after the other.
    async fn look(&self, bulk: bool) -> Result<HashMap<Uuid, Seen>> {
        if !bulk {
            return Ok(HashMap::new());
        }
        let options = StatsOptions { nowait: true, ..StatsOptions::default() };
        match self.live.libvirt.domain_stats(&[], StatsGroups::STATE, options).await {
            Ok(records) => Ok(records.iter().map(|record| (record.domain.uuid, Seen::new(record))).collect()),
            Err(error @ Error::Remote { .. }) => {
                tracing::debug!(%error, "bulk statistics failed, asking each domain");
                Ok(HashMap::new())
            }
            Err(error) => Err(self.seam(error)),
        }
    }

    /// State and XML of a domain, side by side; `None` once it is gone.
    async fn read(&self, domain: &DomainRef, seen: Option<&Seen>) -> Result<Option<(DomainStatus, Arc<DomainXml>)>> {
        let status = async {
            match seen.and_then(|seen| seen.status.clone()) {
                Some(status) => Ok(status),
                None => self.live.libvirt.domain_status(domain).await,
            }
        };
        // The bulk call may have seen the domain after the list did: its number is as good.
        let id = seen.map_or(domain.id, |seen| seen.id);
        match future::try_join(status, self.xml(domain, id)).await {
            Ok(both) => Ok(Some(both)),
            Err(error) if error.is_no_domain() => Ok(None),
            Err(error) => Err(self.seam(error)),
        }
    }

    async fn xml(&self, domain: &DomainRef, id: Option<i32>) -> Result<Arc<DomainXml>, Error> {
        let uuid = domain.uuid;
        let (known, stamp) = self.cache(|cache| (cache.get(uuid, id, self.xml_max_age), cache.stamp(uuid)));
        if let Some(known) = known {
            return Ok(known);
        }
        let text = self.live.libvirt.domain_xml(domain, XmlFlags::NONE).await?;
        match DomainXml::parse(&text) {
            Ok(xml) => {
                let xml = Arc::new(xml);
                self.cache(|cache| cache.put(uuid, stamp, id, &xml));
                Ok(xml)
            }
            Err(error) => {
                // A domain nobody can read still occupies the host: it is told with what is known, and not kept.
                tracing::warn!(%domain, %error, "the XML of a domain makes no sense");
                let info = self.live.libvirt.domain_info(domain).await?;
                let vcpus = Vcpus { maximum: info.vcpus, current: info.vcpus, cpuset: None };
                let memory_bytes = Some(info.max_memory_kib.saturating_mul(1024));
                Ok(Arc::new(DomainXml { memory_bytes, vcpus: Some(vcpus), ..DomainXml::default() }))
            }
        }
    }

    /// Counters of all running domains, by one bulk call.
    ///
    /// libvirt fails that call as a whole if a domain dies at the wrong moment, so it is made twice before every domain
    /// is asked alone, where only the dying one is lost.
    pub(super) async fn counters(&self) -> Result<Vec<DomainStats>> {
        let libvirt = &self.live.libvirt;
        let bulk = || libvirt.domain_stats(&[], counter_groups(), StatsOptions::polling());
        let records = match bulk().await {
            Err(error @ Error::Remote { .. }) if !error.is_no_support() => {
                tracing::debug!(%error, "bulk statistics failed, trying once more");
                match bulk().await {
                    Err(error @ Error::Remote { .. }) => {
                        tracing::debug!(%error, "bulk statistics failed again, asking each domain");
                        self.counters_of_each().await
                    }
                    other => other,
                }
            }
            other => other,
        };
        let records = records.map_err(|error| self.seam(error))?;
        let by_id: BTreeMap<InstanceId, DomainStats> = records
            .iter()
            .map(stats::domain_stats)
            .filter(|stats| stats.state.is_active())
            .map(|stats| (stats.id.clone(), stats))
            .collect();
        Ok(by_id.into_values().collect())
    }

    async fn counters_of_each(&self) -> Result<Vec<DomainStatsRecord>, Error> {
        let libvirt = &self.live.libvirt;
        let domains = libvirt.domains(DomainFilter::ACTIVE).await?;
        let each = domains.into_iter().map(|domain| async move {
            let one = std::slice::from_ref(&domain);
            match libvirt.domain_stats(one, counter_groups(), StatsOptions::polling()).await {
                Ok(records) => Ok(records),
                Err(error @ Error::Remote { .. }) => {
                    tracing::debug!(%domain, %error, "a domain has no statistics");
                    Ok(Vec::new())
                }
                Err(error) => Err(error),
            }
        });
        let found: Vec<Vec<DomainStatsRecord>> =
            stream::iter(each).buffer_unordered(self.pipeline).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Whether a domain runs.
    pub(super) async fn state(&self, uuid: Uuid) -> Result<DomainState, Error> {
        let status = self.live.libvirt.domain_status(&DomainRef::from_uuid(uuid)).await?;
        Ok(state::domain_state(&status))
    }
}
