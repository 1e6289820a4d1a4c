//! The labels of a domain's series.

use crate::{backend::DomainStats, runtime::metrics::text::escaped};

/// The labels of one domain, escaped once for all its series.
pub(super) struct Labels {
    /// `domain="…",uuid="…"`.
    pub(super) domain: String,
    /// The values for its vCPUs, disks and interfaces, in the order of their maps.
    pub(super) vcpus: Vec<String>,
    pub(super) blocks: Vec<String>,
    pub(super) nets: Vec<String>,
}

impl Labels {
    pub(super) fn of(stats: &DomainStats) -> Self {
        Self {
            domain: format!("domain=\"{}\",uuid=\"{}\"", escaped(&stats.name), escaped(stats.id.as_str())),
            vcpus: stats.vcpus.keys().map(u32::to_string).collect(),
            blocks: stats.blocks.keys().map(|name| escaped(name)).collect(),
            nets: stats.nets.keys().map(|name| escaped(name)).collect(),
        }
    }
}
