//! The figures of every VM, for Prometheus: what a separate libvirt exporter would tell, without a second program that
//! connects to libvirt.
//!
//! [`Exporter`] is a [`Source`]: each scrape is one bulk call to the hypervisor, shared by all who scrape at that moment.
//! A driver without statistics has `libvirt_up` and what the list of its VMs tells.
//!
//! Two spellings are common, and [`Names`] chooses: the documented one (`libvirt_domain_block_read_bytes_total` with
//! `device`, `libvirt_domain_net_…` with `interface`) and that of the exporters in the distributions
//! (`libvirt_domain_block_stats_read_bytes_total` and `libvirt_domain_interface_stats_…` with `target_device`). Dashboards
//! exist for both, so both are on by default. Every domain's series carry `domain` (the name on the host) and `uuid`.
//!
//! What a host can make us say is bounded by [`Limits`]; what is left out is counted.

mod families;
mod labels;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use tokio::time::timeout;

use self::{
    families::{BLOCK, DOMAIN, INTERFACE, Set, VCPU},
    labels::Labels,
};
use crate::{
    Error, Result,
    backend::{DomainStats, HypervisorBackend},
    runtime::{
        metrics::{
            Metrics, Source,
            text::{Kind, Text},
        },
        shutdown::Chain,
    },
};

/// Less than the ten seconds that Prometheus waits by default.
const PATIENCE: Duration = Duration::from_secs(8);

/// Which spelling of the metrics is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// The documented one.
    pub documented: bool,
    /// That of the exporters in the distributions.
    pub distributions: bool,
}

impl Default for Names {
    fn default() -> Self {
        Self { documented: true, distributions: true }
    }
}

impl Names {
    fn has(self, set: Set) -> bool {
        match set {
            Set::Both => self.documented || self.distributions,
            Set::Documented => self.documented,
            Set::Distributions => self.distributions,
        }
    }
}

/// How many series one host may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// VMs.
    pub domains: usize,
    /// vCPUs of one VM.
    pub vcpus: usize,
    /// Disks of one VM, and its network interfaces.
    pub devices: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { domains: 2000, vcpus: 512, devices: 64 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct What {
    what: &'static str,
}

/// Tells Prometheus how every VM of the host fares.
///
/// ```no_run
/// use cobalt_core::{agent::exporter::Exporter, backend::HypervisorBackend, runtime::metrics::Metrics};
/// use std::{sync::Arc, time::Duration};
///
/// # async fn example(backend: Arc<dyn HypervisorBackend>) {
/// let metrics = Metrics::new();
/// metrics.source("libvirt", Duration::from_secs(9), Exporter::new(backend, &metrics));
/// assert!(metrics.scrape().await.contains("libvirt_up "));
/// # }
/// ```
pub struct Exporter {
    backend: Arc<dyn HypervisorBackend>,
    names: Names,
    limits: Limits,
    patience: Duration,
    dropped: Family<What, Counter>,
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exporter").field("names", &self.names).field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Exporter {
    /// An exporter with the usual bounds; what it leaves out is counted in `metrics`.
    pub fn new(backend: Arc<dyn HypervisorBackend>, metrics: &Metrics) -> Self {
        let dropped = Family::default();
        metrics.register(|registry| {
            let help = "Domains and devices left out of a scrape because there are too many";
            registry.register("agent_exporter_dropped", help, dropped.clone());
        });
        Self { backend, names: Names::default(), limits: Limits::default(), patience: PATIENCE, dropped }
    }

    /// Chooses the spelling.
    #[must_use]
    pub fn names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// How long the hypervisor may take to answer; one that takes longer is down for this scrape.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Chooses the bounds.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    async fn ask(&self) -> Result<Vec<DomainStats>> {
        if self.backend.features().stats {
            match self.backend.stats().await {
                Err(Error::Unsupported { .. }) => {}
                answer => return answer,
            }
        }
        let domains = self.backend.inventory().await?;
        let active = domains.into_iter().filter(|domain| domain.state.is_active());
        Ok(active
            .map(|domain| {
                let mut stats = DomainStats::new(domain.id, domain.name, domain.state);
                stats.vcpus_maximum = Some(domain.vcpus);
                stats.memory.maximum_bytes = Some(domain.memory_bytes);
                stats
            })
            .collect())
    }

    /// The text for these VMs. One family after the other, as the format wants it, so each label is made only once.
    fn write(&self, mut all: Vec<DomainStats>) -> String {
        self.cap(&mut all);
        let labels: Vec<Labels> = all.iter().map(Labels::of).collect();
        let vms = || all.iter().zip(&labels);
        let mut text = Text::with_capacity(all.len() * 8 * 1024);
        text.family("libvirt_up", Kind::Gauge, "Whether the hypervisor answered").plain(1);
        for row in DOMAIN.iter().filter(|row| self.names.has(row.set)) {
            let mut family = text.family(row.name, row.kind, row.help);
            for (domain, labels) in vms() {
                family.sample(&labels.domain, None, (row.value)(domain));
            }
        }
        for row in VCPU.iter().filter(|row| self.names.has(row.set)) {
            let mut family = text.family(row.name, row.kind, row.help);
            for (domain, labels) in vms() {
                for (vcpu, stats) in domain.vcpus.values().enumerate() {
                    family.sample(&labels.domain, Some((row.label, &labels.vcpus[vcpu])), (row.value)(stats));
                }
            }
        }
        for row in BLOCK.iter().filter(|row| self.names.has(row.set)) {
            let mut family = text.family(row.name, row.kind, row.help);
            for (domain, labels) in vms() {
                for (block, stats) in domain.blocks.values().enumerate() {
                    family.sample(&labels.domain, Some((row.label, &labels.blocks[block])), (row.value)(stats));
                }
            }
        }
        if self.names.distributions {
            let mut family = text.family("libvirt_domain_block_meta", Kind::Gauge, "Where a disk's data lies");
            for (domain, labels) in vms() {
                for (block, stats) in domain.blocks.values().enumerate() {
                    if let Some(source) = &stats.source {
                        family.meta(&labels.domain, ("target_device", &labels.blocks[block]), ("source_file", source));
                    }
                }
            }
        }
        for row in INTERFACE.iter().filter(|row| self.names.has(row.set)) {
            let mut family = text.family(row.name, row.kind, row.help);
            for (domain, labels) in vms() {
                for (net, stats) in domain.nets.values().enumerate() {
                    family.sample(&labels.domain, Some((row.label, &labels.nets[net])), (row.value)(stats));
                }
            }
        }
        text.finish()
    }

    fn cap(&self, all: &mut Vec<DomainStats>) {
        let Limits { domains, vcpus, devices } = self.limits;
        let dropped = |what: &'static str, count: usize| {
            if count > 0 {
                self.dropped.get_or_create(&What { what }).inc_by(u64::try_from(count).unwrap_or(u64::MAX));
            }
        };
        dropped("domain", all.len().saturating_sub(domains));
        all.truncate(domains);
        for domain in all {
            dropped("vcpu", keep(&mut domain.vcpus, vcpus));
            dropped("block", keep(&mut domain.blocks, devices));
            dropped("interface", keep(&mut domain.nets, devices));
        }
    }
}

/// Keeps the first so many, and answers how many were not.
pub(super) fn keep<K: Clone + Ord, V>(map: &mut BTreeMap<K, V>, most: usize) -> usize {
    let Some(first) = map.keys().nth(most).cloned() else { return 0 };
    map.split_off(&first).len()
}

#[async_trait]
impl Source for Exporter {
    async fn scrape(&self) -> String {
        let answer = timeout(self.patience, self.ask()).await;
        match answer.unwrap_or_else(|_| Err(Error::timeout("get domain statistics", self.patience))) {
            Ok(all) => self.write(all),
            Err(error) => {
                tracing::debug!(category = error.category(), error = %Chain(&error), "no figures of the hypervisor");
                let mut text = Text::with_capacity(128);
                text.family("libvirt_up", Kind::Gauge, "Whether the hypervisor answered").plain(0);
                text.finish()
            }
        }
    }
}

#[cfg(all(test, feature = "testing"))]
pub(super) mod tests;
