//! Following a packet, and capturing one.

use std::time::Duration;

use cobalt_core::ovs::{CaptureRequest, OvsInspector, TraceRequest, Transport, Verdict};
use cobalt_rig::ovs::Node;
use futures::StreamExt;

use crate::rig::{LIMIT, own, shared, switch, until};

/// An echo request from the first guest to the second.
pub(crate) fn echo(node: &Node) -> TraceRequest {
    let (from, to) = (node.vm(0), node.vm(1));
    TraceRequest {
        bridge: "br-int".into(),
        in_port: from.tap(),
        ethernet: (from.mac(), to.mac()),
        vlan: None,
        ip: Some((from.address().parse().unwrap(), to.address().parse().unwrap())),
        transport: Some(Transport::IcmpEcho),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_is_followed_to_the_other_guest_and_a_stray_one_to_its_end() {
    let Some(node) = shared("a_packet_is_followed_to_the_other_guest_and_a_stray_one_to_its_end") else { return };
    let switch = switch(&node).await;
    let trace = switch.trace(&echo(&node)).await.unwrap();
    assert_eq!(trace.verdict, Verdict::Forwarded(vec![node.vm(1).tap()]), "{}", trace.text);
    assert!(trace.steps.len() > 5 && trace.steps.iter().all(|step| step.bridge == "br-int"), "{:?}", trace.steps);
    assert_eq!(trace.steps[0].table, 0);
    for transport in [Transport::Tcp(40000, 22), Transport::Udp(40000, 53), Transport::Sctp(40000, 9)] {
        let trace = switch.trace(&TraceRequest { transport: Some(transport), ..echo(&node) }).await.unwrap();
        assert_eq!(trace.verdict, Verdict::Forwarded(vec![node.vm(1).tap()]), "{transport:?}: {}", trace.text);
    }
    let mut stray = echo(&node);
    stray.ethernet.1 = "00:00:00:00:00:99".into();
    let trace = switch.trace(&stray).await.unwrap();
    assert_eq!(trace.verdict, Verdict::Dropped, "{}", trace.text);
    let nowhere = TraceRequest { in_port: "tap-nowhere".into(), ..echo(&node) };
    switch.trace(&nowhere).await.expect_err("no such port");
    let odd = TraceRequest { in_port: "1,actions=drop".into(), ..echo(&node) };
    switch.trace(&odd).await.expect_err("no name of a port");
}

/// The packets of a pcap file.
fn packets(file: &[u8]) -> Vec<&[u8]> {
    // The first word says in which order the bytes of all others are.
    let little = file[0] == 0xd4 || file[0] == 0x4d;
    let word = |bytes: &[u8]| {
        let bytes = bytes.try_into().unwrap();
        if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    };
    let mut found = Vec::new();
    let mut rest = &file[24..];
    while rest.len() >= 16 {
        let length = word(&rest[8..12]) as usize;
        found.push(&rest[16..16 + length]);
        rest = &rest[16 + length..];
    }
    assert!(rest.is_empty(), "{} bytes are left", rest.len());
    found
}

#[test]
fn a_ping_is_captured_on_the_port_of_its_guest() {
    let Some(node) = own("a_ping_is_captured_on_the_port_of_its_guest") else { return };
    let file = node
        .inside(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let switch = switch(&node).await;
                until("a first answer", async || node.vm(0).ping(&node.vm(1).address(), 1).is_ok()).await;
                let request = CaptureRequest {
                    port: node.vm(0).tap(),
                    // Bytes end it, not time.
                    duration: LIMIT,
                    max_bytes: 2000,
                    snap_len: 128,
                };
                let mut stream = switch.capture(&request).await.unwrap();
                let mut file = Vec::new();
                let reading = async {
                    while let Some(piece) = stream.next().await {
                        file.extend(piece.unwrap());
                    }
                };
                let mut ping = std::process::Command::new("nsenter");
                ping.args(node.vm(0).enter().split(' ')).args(["ping", "-n", "-i", "0.2", &node.vm(1).address()]);
                let mut pinging = ping.stdout(std::process::Stdio::null()).spawn().unwrap();
                let read = tokio::time::timeout(LIMIT, reading).await;
                pinging.kill().unwrap();
                pinging.wait().unwrap();
                read.expect("the end of the capture");
                assert!(file.len() <= 2000, "{} bytes", file.len());
                file
            })
        })
        .unwrap();
    let (request, reply) = (8, 0);
    for kind in [request, reply] {
        // Ethernet, IP without options, ICMP.
        let echo =
            |packet: &&&[u8]| packet.len() > 34 && packet[12..14] == [8, 0] && packet[23] == 1 && packet[34] == kind;
        let all = packets(&file);
        let found = all.iter().find(echo);
        let packet = found.unwrap_or_else(|| panic!("no echo of type {kind} among {} packets", all.len()));
        let addresses = [&packet[26..30], &packet[30..34]];
        let (one, two) = ([10, 0, 0, 11], [10, 0, 0, 12]);
        assert_eq!(addresses, if kind == request { [&one, &two] } else { [&two, &one] });
    }
}

#[test]
fn a_capture_ends_by_its_time_and_needs_a_port_that_exists() {
    let Some(node) = own("a_capture_ends_by_its_time_and_needs_a_port_that_exists") else { return };
    node.inside(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let switch = switch(&node).await;
            let request = |port: &str| CaptureRequest {
                port: port.to_owned(),
                duration: Duration::from_millis(300),
                max_bytes: 1 << 20,
                snap_len: 64,
            };
            let mut stream = switch.capture(&request("tap-vm2")).await.unwrap();
            let reading = async {
                let mut length = 0;
                while let Some(piece) = stream.next().await {
                    length += piece.unwrap().len();
                }
                length
            };
            assert!(tokio::time::timeout(LIMIT, reading).await.expect("the end of the capture") >= 24);
            switch.capture(&request("tap-nowhere")).await.map(drop).expect_err("no such port");
        });
    })
    .unwrap();
    // Nothing of it is left on the switch.
    assert_eq!(node.vsctl(["--bare", "list", "Mirror"]).unwrap().trim(), "");
}
