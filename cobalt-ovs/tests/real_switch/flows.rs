//! Flows that no row of the southbound database explains.

use cobalt_core::ovs::OvsInspector;
use cobalt_rig::ovs::Daemon;
use futures::TryStreamExt;

use crate::rig::{own, switch, until};

const FOREIGN: u64 = 0xdead_beef;

#[tokio::test(flavor = "multi_thread")]
async fn foreign_and_left_over_flows_are_found_and_live_ones_are_not_called_stale() {
    const NAME: &str = "foreign_and_left_over_flows_are_found_and_live_ones_are_not_called_stale";
    let Some(node) = own(NAME) else { return };
    let switch = switch(&node).await;
    let stale = async || switch.stale_flows("br-int").await.unwrap();
    assert_eq!(stale().await.len(), 0, "a clean node");

    node.add_flow("br-int", "cookie=0xdeadbeef,table=200,priority=1,actions=drop").unwrap();
    until("the foreign flow", async || stale().await == [(FOREIGN, 1)].into()).await;

    node.leave_flows_behind(0).unwrap();
    until("left-over flows", async || stale().await.len() > 1).await;
    let left = stale().await;
    let all: Vec<_> = switch.flows("br-int", None).await.unwrap().try_collect().await.unwrap();
    for (cookie, count) in &left {
        assert_eq!(all.iter().filter(|flow| flow.cookie == *cookie).count() as u64, *count, "{cookie:#x}");
    }

    // A controller that starts writes all flows anew.
    node.start(Daemon::Controller).unwrap();
    until("a clean node", async || stale().await.is_empty()).await;
}
