//! Dumps recorded from Open vSwitch 3.1 under OVN 23.03, beside what `ovs-ofctl` wrote of the same bridges.
//!
//! `br-int` is a chassis with a logical switch and router, access lists, a load balancer, translation and DHCP; `br-odd`
//! has one flow for every match and action that the switch would take.

#![allow(clippy::unwrap_used)]

use std::{fs, path::PathBuf};

use bytes::BytesMut;
use cobalt_ovs::openflow::{self, Version, message, normalized};
use proptest::prelude::*;

fn recorded(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/openflow").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The bodies of recorded replies, after the header of the multipart.
fn bodies(name: &str) -> Vec<Vec<u8>> {
    let mut buffer = BytesMut::from(&recorded(name)[..]);
    let mut bodies = Vec::new();
    while let Some(message) = message::decode(&mut buffer).unwrap() {
        bodies.push(message.body[8..].to_vec());
    }
    assert!(buffer.is_empty());
    bodies
}

fn assert_same(bridge: &str, version: Version) {
    let ours: Vec<_> = bodies(&format!("{bridge}-{version}.flows"))
        .iter()
        .flat_map(|body| openflow::flows_in(body, version))
        .map(|flow| normalized::flow(&flow))
        .collect();
    let theirs = normalized::text(&String::from_utf8(recorded(&format!("{bridge}-{version}.txt"))).unwrap());
    let mut wrong = Vec::new();
    for flow in &ours {
        if !theirs.contains(flow) {
            let near = theirs.iter().find(|other| (other.0, other.1, other.2) == (flow.0, flow.1, flow.2));
            wrong.push(format!("ours   {flow:?}\ntheirs {near:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ\n{}", wrong.len(), ours.len(), wrong.join("\n"));
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn the_flows_of_a_chassis_read_as_the_switchs_own_tool_writes_them() {
    assert_same("br-int", Version::V1_5);
}

#[test]
fn every_match_and_action_reads_as_the_switchs_own_tool_writes_it() {
    for version in Version::ALL {
        assert_same("br-odd", version);
    }
}

#[test]
fn the_counters_of_a_flow_are_read() {
    let flows: Vec<_> =
        bodies("br-int-1.5.flows").iter().flat_map(|body| openflow::flows_in(body, Version::V1_5)).collect();
    let first = flows.iter().find(|flow| flow.table == 0 && flow.matched == "in_port=1").unwrap();
    assert!(first.packets > 0 && first.bytes > first.packets && first.age.as_secs() > 60);
    assert_eq!(first.priority, 100);
}

#[test]
fn what_is_unknown_is_shown_with_its_numbers_and_bytes() {
    // A flow of table 3 that matches a field of class 0x7777 and does an action of vendor 0x123456.
    let mut flow = vec![0, 0, 0, 0, 3, 0, 0, 7];
    flow.extend([0; 16]);
    flow.extend([0, 1, 0, 10, 0x77, 0x77, 0x0b, 2, 0, 1, 0, 0, 0, 0, 0, 0]);
    flow.extend([0, 0, 0, 4, 0, 0, 0, 0]);
    flow.extend([0, 4, 0, 40, 0, 0, 0, 0]);
    flow.extend([0xff, 0xff, 0, 16, 0, 0x12, 0x34, 0x56, 0, 9, 1, 2, 3, 4, 5, 6]);
    flow.extend([0, 99, 0, 8, 0xaa, 0xbb, 0xcc, 0xdd]);
    flow.extend([0, 17, 0, 3, 1, 2, 3, 4]);
    let length = u16::try_from(flow.len()).unwrap().to_be_bytes();
    flow[..2].copy_from_slice(&length);
    let [flow] = &openflow::flows_in(&flow, Version::V1_5)[..] else { panic!("one flow") };
    assert_eq!((flow.table, flow.priority), (3, 7));
    assert_eq!(flow.matched, "field(class=0x7777,type=5)=0/0x1");
    let expected = "experimenter(vendor=0x123456,type=9,01.02.03.04.05.06),action(type=99,aa.bb.cc.dd),\
                    malformed(00.11.00.03.01.02.03.04)";
    assert_eq!(flow.actions, expected);
}

proptest! {
    #[test]
    fn no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for version in Version::ALL {
            openflow::flows_in(&bytes, version);
        }
    }

    /// A recorded dump with some bytes changed is read, shown or refused.
    #[test]
    fn no_change_of_a_recorded_dump_is_too_odd(changes in prop::collection::vec((any::<u16>(), any::<u8>()), 1..30)) {
        for version in Version::ALL {
            let mut body = bodies(&format!("br-odd-{version}.flows")).remove(0);
            for (at, byte) in &changes {
                let at = usize::from(*at) % body.len();
                body[at] = *byte;
            }
            openflow::flows_in(&body, version);
        }
    }
}
