//! How the agent behaves.

use std::time::Duration;

use super::figures;
use crate::api::Troubleshooting;

/// How the agent behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The Node's name, which is the OVSNode's too.
    pub node_name: String,
    /// Where the OVSNode lives.
    pub namespace: String,
    /// The bridge that OVN works with.
    pub integration_bridge: String,
    /// Bridges that must be there.
    pub required_bridges: Vec<String>,
    /// How long to gather changes before looking and writing once.
    pub coalesce: Duration,
    /// How often to look without any change: a daemon that hangs makes no event.
    pub probe: Duration,
    /// The longest time for one look.
    pub call_timeout: Duration,
    /// How many looks in a row, a probe's pause apart, make a port an orphan.
    pub observations: u32,
    /// How long a port may be bound to another host: that is what a VM on its way here looks like.
    pub migration_grace: Duration,
    /// How long the switch may take for a new configuration, and OVN's controller for the latest of the cloud.
    pub settle: Duration,
    /// How often to look for stale flows; none means only on demand.
    pub stale_flows: Option<Duration>,
    /// Which moves of a counter are worth a write.
    pub figures: figures::Limits,
    /// How many issues of one type are listed one by one.
    pub issues_per_type: usize,
    /// Where the agent answers questions, to be published.
    pub troubleshooting: Option<Troubleshooting>,
}

impl Config {
    /// The usual behaviour on this node.
    pub fn new(node_name: impl Into<String>) -> Self {
        Self {
            node_name: node_name.into(),
            namespace: "ovn-system".into(),
            integration_bridge: "br-int".into(),
            required_bridges: Vec::new(),
            coalesce: Duration::from_millis(100),
            probe: Duration::from_secs(10),
            call_timeout: Duration::from_secs(20),
            observations: 3,
            migration_grace: Duration::from_secs(3600),
            settle: Duration::from_secs(60),
            stale_flows: Some(Duration::from_secs(1800)),
            figures: figures::Limits::default(),
            issues_per_type: 50,
            troubleshooting: None,
        }
    }
}
