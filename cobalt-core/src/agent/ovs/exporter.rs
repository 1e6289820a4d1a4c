//! The figures of a switch, for Prometheus: what the known exporters tell of a host, and what none of them does (bonds and
//! LACP, orphans, stale flows, whether the daemons answer). Of `dpif-netdev/pmd-perf-show` that is the rounds and sleeps of
//! the threads and no histogram; of OVN's databases and of `ovn-northd`, which are on other hosts, nothing.
//!
//! [`Exporter`] is a [`Source`]: each scrape is one look at the switch and one round of its counters, shared by all who
//! scrape at that moment. What took several looks to find out comes from the agent's [`Verdict`].
//!
//! The names of a switch's counters are its own and differ between versions. Those everybody knows have families of their
//! own (`ovs_interface_rx_packets_total`), all others are labels (`ovs_interface_statistics_total{statistic="…"}`). What a
//! host can make us say is bounded by [`Limits`]; what is left out is counted.

mod families;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use tokio::time::{Instant, timeout};

use super::Verdict;
use crate::{
    Error,
    ovs::{OvsCounters, OvsInspector, OvsSnapshot},
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

/// How many series one switch may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Interfaces, and queues of interfaces.
    pub interfaces: usize,
    /// Bridges, bonds, members of one bond, datapaths, and threads that forward packets.
    pub parts: usize,
    /// Counters of one interface beside those that have families of their own.
    pub statistics: usize,
    /// Coverage counters of one daemon, and its memory counters.
    pub counters: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { interfaces: 2500, parts: 64, statistics: 64, counters: 512 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct What {
    what: &'static str,
}

/// Tells Prometheus how the switch fares.
///
/// ```no_run
/// use cobalt_core::{agent::ovs::exporter::Exporter, ovs::OvsInspector, runtime::metrics::Metrics};
/// use std::{sync::Arc, time::Duration};
///
/// # async fn example(switch: Arc<dyn OvsInspector>) {
/// let metrics = Metrics::new();
/// metrics.source("ovs", Duration::from_secs(9), Exporter::new(switch, &metrics));
/// assert!(metrics.scrape().await.contains("ovs_up "));
/// # }
/// ```
pub struct Exporter {
    inspector: Arc<dyn OvsInspector>,
    verdict: Option<Verdict>,
    limits: Limits,
    patience: Duration,
    dropped: Family<What, Counter>,
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exporter").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Exporter {
    /// An exporter with the usual bounds; what it leaves out is counted in `metrics`.
    pub fn new(inspector: Arc<dyn OvsInspector>, metrics: &Metrics) -> Self {
        let dropped = Family::default();
        metrics.register(|registry| {
            let help = "Interfaces and counters left out of a scrape because there are too many";
            registry.register("ovs_agent_exporter_dropped", help, dropped.clone());
        });
        Self { inspector, verdict: None, limits: Limits::default(), patience: PATIENCE, dropped }
    }

    /// Tells what this agent concludes too.
    #[must_use]
    pub fn verdict(mut self, verdict: Verdict) -> Self {
        self.verdict = Some(verdict);
        self
    }

    /// Chooses the bounds.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How long the switch may take to answer; one that takes longer is down for this scrape.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The switch and its counters; no counters where there are none.
    async fn ask(&self) -> crate::Result<(OvsSnapshot, OvsCounters, Duration)> {
        let began = Instant::now();
        let snapshot = self.inspector.snapshot().await?;
        let took = began.elapsed();
        let counters = if self.inspector.features().counters {
            self.inspector.counters().await.unwrap_or_else(|error| {
                tracing::debug!(category = error.category(), error = %Chain(&error), "no counters of the switch");
                OvsCounters::default()
            })
        } else {
            OvsCounters::default()
        };
        Ok((snapshot, counters, took))
    }

    fn cap(&self, snapshot: &mut OvsSnapshot, counters: &mut OvsCounters) {
        let Limits { interfaces, parts, statistics, counters: most } = self.limits;
        let dropped = |what: &'static str, count: usize| {
            if count > 0 {
                self.dropped.get_or_create(&What { what }).inc_by(u64::try_from(count).unwrap_or(u64::MAX));
            }
        };
        dropped("interface", shorten(&mut snapshot.interfaces, interfaces));
        dropped("bridge", shorten(&mut snapshot.bridges, parts));
        dropped("bond", shorten(&mut snapshot.bonds, parts));
        for bond in &mut snapshot.bonds {
            dropped("member", shorten(&mut bond.members, parts));
        }
        for interface in &mut snapshot.interfaces {
            let mut kept = 0;
            let before = interface.statistics.len();
            interface.statistics.retain(|name, _| {
                let known = families::is_known(name);
                kept += usize::from(!known);
                known || kept <= statistics
            });
            dropped("statistic", before - interface.statistics.len());
        }
        dropped("pmd", shorten(&mut counters.pmds, parts));
        let mut queues = interfaces;
        for pmd in &mut counters.pmds {
            dropped("queue", shorten(&mut pmd.queues, queues));
            queues -= pmd.queues.len();
        }
        dropped("datapath", crate::agent::exporter::keep(&mut counters.datapaths, parts));
        for daemon in counters.coverage.values_mut().chain(counters.memory.values_mut()) {
            dropped("counter", crate::agent::exporter::keep(daemon, most));
        }
    }
}

/// Keeps the first so many, and answers how many were not.
fn shorten<T>(list: &mut Vec<T>, most: usize) -> usize {
    let more = list.len().saturating_sub(most);
    list.truncate(most);
    more
}

#[async_trait]
impl Source for Exporter {
    async fn scrape(&self) -> String {
        let answer = timeout(self.patience, self.ask()).await;
        let mut text = Text::with_capacity(64 * 1024);
        match answer.unwrap_or_else(|_| Err(Error::timeout("look at the switch", self.patience))) {
            Ok((mut snapshot, mut counters, took)) => {
                self.cap(&mut snapshot, &mut counters);
                let up = u64::from(snapshot.database_connected);
                text.family("ovs_up", Kind::Gauge, "Whether the switch's database answered").plain(up);
                families::write(&mut text, &snapshot, &counters, took);
            }
            Err(error) => {
                tracing::debug!(category = error.category(), error = %Chain(&error), "no figures of the switch");
                text.family("ovs_up", Kind::Gauge, "Whether the switch's database answered").plain(0);
            }
        }
        let issues = self.verdict.as_ref().map(|verdict| (verdict.issues(), verdict.stale_flows()));
        if let Some((issues, stale_flows)) = issues {
            families::write_verdict(&mut text, issues.as_ref(), stale_flows);
        }
        text.finish()
    }
}

type Labelled<'a> = BTreeMap<&'a str, String>;

#[cfg(all(test, feature = "testing"))]
mod tests;
