//! The bridges over OpenFlow, beside what the switch's own tool says.

use cobalt_ovs::openflow::{OpenFlow, Options, flow_counts, normalized};
use cobalt_rig::ovs::{Daemon, Node};
use futures::TryStreamExt;

use crate::rig::{own, shared};

async fn bridge(node: &Node, name: &str) -> OpenFlow {
    OpenFlow::connect(node.openflow(name), Options::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn flows_read_as_the_switchs_own_tool_writes_them() {
    let Some(node) = shared("flows_read_as_the_switchs_own_tool_writes_them") else { return };
    for name in ["br-int", "br-ex", "br-provider"] {
        let ours: Vec<_> = bridge(&node, name).await.flows(None).try_collect().await.unwrap();
        let mut ours: Vec<_> = ours.iter().map(normalized::flow).collect();
        let said = node.ofctl("dump-flows", name, &["--no-names"]).unwrap();
        let mut theirs: Vec<_> = normalized::text(&said);
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs, "{name}");
        assert!(name != "br-int" || ours.len() > 100, "{} flows", ours.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flows_are_counted_per_table_without_a_dump() {
    let Some(node) = shared("flows_are_counted_per_table_without_a_dump") else { return };
    let mut open = bridge(&node, "br-int").await;
    let counts = flow_counts(&open.table_stats().await.unwrap());
    let dumped: Vec<_> = open.flows(None).try_collect().await.unwrap();
    for (table, count) in &counts {
        assert_eq!(dumped.iter().filter(|flow| flow.table == *table).count() as u64, *count, "table {table}");
    }
    assert_eq!(counts.values().sum::<u64>(), dumped.len() as u64);
    let (&table, &count) = counts.iter().max_by_key(|(_, count)| **count).unwrap();
    let one: Vec<_> = bridge(&node, "br-int").await.flows(Some(table)).try_collect().await.unwrap();
    assert_eq!(one.len() as u64, count);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_that_is_restricted_to_one_version_is_understood() {
    let Some(node) = own("a_bridge_that_is_restricted_to_one_version_is_understood") else { return };
    for version in ["OpenFlow13", "OpenFlow14", "OpenFlow15"] {
        node.vsctl(["set", "Bridge", "br-provider", &format!("protocols={version}")]).unwrap();
        let mut open = bridge(&node, "br-provider").await;
        open.echo().await.unwrap();
        assert!(!flow_counts(&open.table_stats().await.unwrap()).is_empty(), "{version}");
        assert!(!open.port_stats().await.unwrap().is_empty(), "{version}");
        assert_eq!(open.version().to_string().replace("1.", "OpenFlow1"), version);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_that_hangs_or_died_is_an_error_in_time() {
    let Some(node) = own("a_switch_that_hangs_or_died_is_an_error_in_time") else { return };
    // One that lives may take a while on a busy machine; of one that is frozen half a second is enough to know.
    let patient = Options { timeout: std::time::Duration::from_secs(10) };
    let quick = Options { timeout: std::time::Duration::from_millis(500) };
    let mut open = OpenFlow::connect(node.openflow("br-int"), patient).await.unwrap();
    node.freeze(Daemon::Switch).unwrap();
    open.echo().await.expect_err("nobody answers");
    OpenFlow::connect(node.openflow("br-int"), quick).await.map(drop).expect_err("nobody answers");
    // The socket stays on disk.
    node.kill(Daemon::Switch).unwrap();
    OpenFlow::connect(node.openflow("br-int"), quick).await.map(drop).expect_err("nobody listens");
    node.start(Daemon::Switch).unwrap();
    bridge(&node, "br-int").await.echo().await.unwrap();
}
