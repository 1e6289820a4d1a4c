//! What people ask the agent of a real node, and what is left of it.

use std::time::Duration;

use cobalt_rig::ovs::Node;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    time::timeout,
};

use crate::rig::{LIMIT, Rig};

/// How a file of packets begins.
const PCAP: [u8; 4] = 0xa1b2_3c4d_u32.to_be_bytes();

/// Reads an answer until there is this in it.
async fn until(stream: &mut (impl AsyncRead + Unpin), what: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    let reading = async {
        while !read.windows(what.len()).any(|bytes| bytes == what) {
            assert!(stream.read_buf(&mut read).await.unwrap() > 0, "ended: {}", String::from_utf8_lossy(&read));
        }
    };
    timeout(LIMIT, reading).await.expect("an answer");
    read
}

/// The mirrors on the switch.
fn mirrors(node: &Node) -> String {
    node.vsctl(["--bare", "--columns=name", "list", "Mirror"]).unwrap().trim().to_owned()
}

/// Waits until there are none, or some.
async fn mirrored(rig: &Rig, wanted: bool) {
    let waiting = async {
        while mirrors(&rig.node).is_empty() == wanted {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(timeout(LIMIT, waiting).await.is_ok(), "mirrors: {:?}; {}", mirrors(&rig.node), rig.agent.err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_goes_with_its_client_with_its_agent_and_after_a_crash_with_the_next_agent() {
    const NAME: &str = "a_mirror_goes_with_its_client_with_its_agent_and_after_a_crash_with_the_next_agent";
    let Some(mut rig) = Rig::up(NAME).await else { return };
    let question = format!("{{\"port\": \"{}\", \"seconds\": 200}}", rig.node.tunnel().unwrap());
    let pcap = PCAP;
    // A client that goes away in the middle.
    let mut stream = rig.ask("POST", "/v1/capture", &question).await;
    until(&mut stream, &pcap).await;
    mirrored(&rig, true).await;
    drop(stream);
    mirrored(&rig, false).await;
    // An agent that is asked to end.
    let mut stream = rig.ask("POST", "/v1/capture", &question).await;
    until(&mut stream, &pcap).await;
    rig.agent.signal("TERM");
    rig.agent.wait();
    assert_eq!(mirrors(&rig.node), "", "it waits until nothing is left");
    drop(stream);
    // One that crashes, and the next.
    rig.restart();
    let mut stream = rig.ask("POST", "/v1/capture", &question).await;
    until(&mut stream, &pcap).await;
    rig.crash();
    drop(stream);
    assert_ne!(mirrors(&rig.node), "", "nobody was there to remove it");
    rig.restart();
    mirrored(&rig, false).await;
    assert!(!rig.node.vsctl(["list-ports", "br-int"]).unwrap().contains("cobalt"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_ping_is_traced_and_captured_over_https() {
    let Some(rig) = Rig::up("a_real_ping_is_traced_and_captured_over_https").await else { return };
    let (one, two) = (rig.node.vm(0), rig.node.vm(1));
    let question = format!("{{\"from\": \"{}\", \"to\": \"{}\"}}", one.uuid(), two.uuid());
    let mut stream = rig.ask("POST", "/v1/trace", &question).await;
    let mut answer = String::new();
    timeout(LIMIT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.contains("\"verdict\":\"forwarded\"") && answer.contains(&two.tap()), "{answer}");

    let question = format!("{{\"port\": \"{}\", \"seconds\": 200, \"snapLen\": 128}}", two.tap());
    let mut stream = rig.ask("POST", "/v1/capture", &question).await;
    until(&mut stream, &PCAP).await;
    one.ping(&two.address(), 5).unwrap();
    // An echo request as it arrives: ICMP, from the one to the other.
    until(&mut stream, &[10, 0, 0, 11, 10, 0, 0, 12]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_flows_are_looked_for_on_demand() {
    let Some(rig) = Rig::up("stale_flows_are_looked_for_on_demand").await else { return };
    rig.node.add_flow("br-int", "cookie=0xdeadbeef,table=200,priority=1,actions=drop").unwrap();
    let mut stream = rig.ask("POST", "/v1/stale-flows", "").await;
    until(&mut stream, b" 202 ").await;
    let found = async {
        loop {
            let mut answer = String::new();
            rig.ask("GET", "/v1/stale-flows", "").await.read_to_string(&mut answer).await.unwrap();
            if answer.contains("0xdeadbeef") {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let answer = timeout(LIMIT, found).await.expect("the foreign flow");
    assert!(answer.contains("\"flows\":1"), "{answer}");
}
