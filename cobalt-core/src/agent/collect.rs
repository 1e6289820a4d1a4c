//! Asking the host, as little as possible: everything after a (re)connection, then only what an event touched.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::timeout;

use super::{
    node::Config,
    report::{Report, Section},
};
use crate::{
    Error, Result,
    backend::{BackendEvent, Domain, HypervisorBackend},
    host::{HostEvent, HostSystem},
    ids::InstanceId,
};

/// From this many touched domains on, one listing is cheaper than asking for each.
const LIST_INSTEAD: usize = 16;

/// What must be asked again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Dirty {
    /// Everything of the hypervisor.
    pub(super) backend: bool,
    /// These domains.
    pub(super) domains: BTreeSet<InstanceId>,
    /// The facts of the operating system.
    pub(super) facts: bool,
    /// Its units.
    pub(super) units: bool,
    /// The connection is gone, and why.
    pub(super) disconnected: Option<String>,
}

impl Dirty {
    /// Everything.
    pub(super) fn all() -> Self {
        Self { backend: true, facts: true, units: true, ..Self::default() }
    }

    /// Notes what an event of the hypervisor touches.
    pub(super) fn note(&mut self, event: BackendEvent) {
        match event {
            BackendEvent::Connected => {
                self.backend = true;
                self.disconnected = None;
            }
            BackendEvent::Lagged(_) => self.backend = true,
            BackendEvent::Disconnected(why) => {
                self.backend = false;
                self.disconnected = Some(why);
            }
            BackendEvent::Domain { id, .. } => {
                self.domains.insert(id);
            }
        }
    }

    /// Adds what somebody else wants asked.
    pub(super) fn add(&mut self, other: Dirty) {
        self.backend |= other.backend;
        self.facts |= other.facts;
        self.units |= other.units;
        self.domains.extend(other.domains);
    }

    /// Notes what an event of the host touches. A shutdown is somebody else's concern.
    pub(super) fn note_host(&mut self, event: &HostEvent) {
        match event {
            HostEvent::UnitChanged(_) => self.units = true,
            HostEvent::Resync => (self.facts, self.units) = (true, true),
            HostEvent::PrepareForShutdown(_) => {}
        }
    }
}

/// Keeps a [`Report`] current.
pub(super) struct Collector {
    backend: Arc<dyn HypervisorBackend>,
    host: Arc<dyn HostSystem>,
    units: Vec<String>,
    limit: Duration,
    domains: BTreeMap<InstanceId, Domain>,
    report: Report,
}

impl Collector {
    pub(super) fn new(backend: Arc<dyn HypervisorBackend>, host: Arc<dyn HostSystem>, config: &Config) -> Self {
        let report = Report {
            driver: backend.driver(),
            libvirt_units: config.libvirt_units.clone(),
            insecure: config.insecure.clone(),
            ..Report::default()
        };
        let (units, limit) = (config.watched_units(), config.call_timeout);
        Self { backend, host, units, limit, domains: BTreeMap::new(), report }
    }

    pub(super) fn report(&self) -> &Report {
        &self.report
    }

    /// Asks what must be asked and updates the report.
    pub(super) async fn refresh(&mut self, dirty: Dirty) {
        if dirty.facts {
            self.report.facts = bounded(self.limit, "read facts of the host", self.host.facts()).await.into();
        }
        if dirty.units {
            self.refresh_units().await;
        }
        if let (Some(why), false) = (&dirty.disconnected, dirty.backend) {
            self.lose(why);
        } else if dirty.backend || (self.report.disconnected.is_some() && !dirty.domains.is_empty()) {
            self.refresh_backend().await;
        } else if dirty.domains.len() >= LIST_INSTEAD {
            self.refresh_inventory().await;
        } else if self.report.domains.known().is_some() {
            self.refresh_domains(dirty.domains).await;
        } else if !dirty.domains.is_empty() {
            self.refresh_inventory().await;
        }
    }

    async fn refresh_units(&mut self) {
        self.report.units = if self.host.features().units && !self.units.is_empty() {
            bounded(self.limit, "read units of the host", self.host.units(&self.units)).await.into()
        } else {
            Section::NotOffered
        };
    }

    async fn refresh_backend(&mut self) {
        let (backend, limit) = (self.backend.clone(), self.limit);
        let versions = bounded(limit, "read versions", backend.versions()).await;
        let unreachable =
            matches!(versions, Err(Error::Unavailable { .. } | Error::Timeout { .. } | Error::Denied { .. }));
        let versions = Section::from(versions);
        // The first call tells whether there is a connection at all; without one the others need not be tried.
        if let (true, Section::Failed(why)) = (unreachable, &versions) {
            return self.lose(&why.clone());
        }
        self.report.disconnected = None;
        self.report.versions = versions;
        // A driver may know itself, and what it can do, only once it is connected.
        self.report.driver = backend.driver();
        let features = backend.features();
        self.report.capabilities = bounded(limit, "read capabilities", backend.capabilities()).await.into();
        self.report.domain_capabilities = if features.domain_capabilities {
            bounded(limit, "read domain capabilities", backend.domain_capabilities()).await.into()
        } else {
            Section::NotOffered
        };
        self.refresh_inventory().await;
    }

    async fn refresh_inventory(&mut self) {
        match bounded(self.limit, "list domains", self.backend.inventory()).await {
            Ok(domains) => {
                self.domains = domains.into_iter().map(|domain| (domain.id.clone(), domain)).collect();
                self.publish_domains();
            }
            Err(error) => self.report.domains = Err(error).into(),
        }
    }

    async fn refresh_domains(&mut self, ids: BTreeSet<InstanceId>) {
        for id in ids {
            match bounded(self.limit, "read a domain", self.backend.domain(&id)).await {
                Ok(domain) => {
                    self.domains.insert(id, domain);
                }
                Err(error) if error.is_not_found() => {
                    self.domains.remove(&id);
                }
                Err(error) => {
                    self.report.domains = Err(error).into();
                    return;
                }
            }
        }
        self.publish_domains();
    }

    /// What must be asked again because it could not be read.
    pub(super) fn missing(&self) -> Option<Dirty> {
        let report = &self.report;
        let backend = report.versions.is_failed()
            || report.capabilities.is_failed()
            || report.domain_capabilities.is_failed()
            || report.domains.is_failed();
        let (facts, units) = (report.facts.is_failed(), report.units.is_failed());
        (backend || facts || units).then(|| Dirty { backend, facts, units, ..Dirty::default() })
    }

    fn publish_domains(&mut self) {
        self.report.domains = Section::Known(self.domains.values().cloned().collect());
    }

    /// The connection is gone: what was known stays published, and is old.
    fn lose(&mut self, why: &str) {
        let report = &mut self.report;
        report.disconnected = Some(why.to_owned());
        report.versions = Section::Failed(why.to_owned());
        report.capabilities = Section::Failed(why.to_owned());
        report.domains = Section::Failed(why.to_owned());
        if report.domain_capabilities != Section::NotOffered {
            report.domain_capabilities = Section::Failed(why.to_owned());
        }
    }
}

async fn bounded<T>(limit: Duration, operation: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(limit, call).await.unwrap_or_else(|_| Err(Error::timeout(operation, limit)))
}
