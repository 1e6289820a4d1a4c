//! Dumps recorded from Open vSwitch 3.1 under OVN 23.03, beside what `ovs-ofctl` wrote of the same bridges.
//!
//! `br-int` is a chassis with a logical switch and router, access lists, a load balancer, translation and DHCP; `br-odd`
//! has one flow for every match and action that the switch would take.

#![allow(clippy::unwrap_used)]

use std::{fs, path::PathBuf};

use bytes::BytesMut;
use cobalt_ovs::openflow::{self, Version, message, normalized};

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
