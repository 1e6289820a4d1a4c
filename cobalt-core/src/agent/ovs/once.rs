//! One look at a switch, for people at a shell: what an agent would publish, without a cluster.

use std::{sync::Arc, time::Duration};

use kube::Resource;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{Config, figures, follow::look, memory::Memory, status::decide};
use crate::{
    agent::Section,
    api::{OVSNode, OVSNodeStatus},
    ovs::OvsInspector,
    runtime::clock::Clock,
};

/// Between two looks at a switch that is not connected yet.
const PAUSE: Duration = Duration::from_millis(100);

/// What an agent would publish.
#[derive(Clone, Debug, PartialEq)]
pub struct Once {
    /// The OVSNode.
    pub node: Value,
    /// Its status, for whoever prints it in another way.
    pub status: OVSNodeStatus,
    /// Why the switch could not be looked at, if it could not.
    pub disconnected: Option<String>,
}

/// Looks at the switch once. A database that is not connected yet is given this long.
///
/// What takes several looks to be sure of (orphan ports, a bridge that does not answer, a lag) is not told by one.
///
/// ```no_run
/// use cobalt_core::{agent::ovs::{Config, once}, ovs::OvsInspector, runtime::clock::Clock};
/// use std::{sync::Arc, time::Duration};
///
/// # async fn example(switch: Arc<dyn OvsInspector>) {
/// let seen = once(switch, &Config::new("node-1"), &Clock::system(), Duration::from_secs(10)).await;
/// assert!(seen.disconnected.is_none(), "{:?}", seen.status.issues);
/// # }
/// ```
pub async fn once(inspector: Arc<dyn OvsInspector>, config: &Config, clock: &Clock, patience: Duration) -> Once {
    let deadline = Instant::now() + patience;
    let (seen, disconnected) = loop {
        let seen = look(inspector.as_ref(), config.call_timeout).await;
        let why = match &seen {
            Section::Known(snapshot) if snapshot.database_connected => None,
            Section::Failed(why) => Some(why.clone()),
            _ => Some("the switch's database is not connected".to_owned()),
        };
        if why.is_none() || Instant::now() + PAUSE > deadline {
            break (seen, why);
        }
        sleep(PAUSE).await;
    };
    let now = clock.now();
    let wanted = decide(&seen, &OVSNodeStatus::default(), &Memory::default(), now, config);
    let status = figures::hold(wanted, None, now, &config.figures);
    let node = json!({
        "apiVersion": OVSNode::api_version(&()),
        "kind": OVSNode::kind(&()),
        "metadata": {"name": config.node_name, "namespace": config.namespace},
        "spec": {"nodeRef": {"name": config.node_name}},
        "status": status,
    });
    Once { node, status, disconnected }
}
