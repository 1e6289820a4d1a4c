use std::collections::BTreeSet;

use bytes::Bytes;
use cobalt_libvirt::{
    frame::{MessageType, Status},
    testing::{Recording, Server},
};

use super::{Client, recording};

/// Asks everything that was asked of the real daemon, in the same order. Returns the names of the calls that succeed
/// where they failed, or the other way, or fail with another code; and the events in the order they came.
async fn ask_again(recording: &Recording) -> (BTreeSet<String>, Vec<(u32, Bytes)>) {
    let server = Server::replay(recording.clone());
    let mut client = Client::new(server.duplex());
    let (mut other, mut events) = (BTreeSet::new(), Vec::new());
    // Callback numbers are the daemon's own business, and never the same again.
    let same_again = recording.calls().iter().filter(|call| call.procedure != 317);
    for call in same_again {
        client.send(call.procedure, call.arguments.clone()).await;
        let reply = loop {
            let frame = client.frame().await;
            match frame.header.kind {
                MessageType::Reply => break frame,
                _ => events.push((frame.header.procedure, frame.payload)),
            }
        };
        let code = |status, payload: &[u8]| (status == Status::Error).then(|| payload[..4].to_vec());
        let recorded = code(recorded_status(call), &recorded_payload(call));
        if code(reply.header.status, &reply.payload) != recorded {
            other.insert(call.id.clone());
        }
        if call.procedure == 2 {
            client = Client::new(server.duplex());
        }
    }
    (other, events)
}

fn recorded_status(call: &cobalt_libvirt::testing::RecordedCall) -> Status {
    if call.answer.code().is_some() { Status::Error } else { Status::Ok }
}

fn recorded_payload(call: &cobalt_libvirt::testing::RecordedCall) -> Bytes {
    call.answer.code().map_or_else(Bytes::new, |code| code.to_be_bytes().to_vec().into())
}

/// Name of the domain, event and detail of a lifecycle message.
fn lifecycle(payload: &Bytes) -> (String, u32, u32) {
    let word = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
    let length = word(4) as usize;
    let name = String::from_utf8(payload[8..8 + length].to_vec()).unwrap();
    let after = 8 + length.next_multiple_of(4) + 16 + 4;
    (name, word(after), word(after + 4))
}

fn recorded_lifecycle(recording: &Recording) -> Vec<(String, u32, u32)> {
    let messages = recording.messages().iter().filter(|message| message.scenario.starts_with("define-start"));
    messages
        .filter(|message| message.frame.header.procedure == 318)
        .map(|message| lifecycle(&message.frame.payload))
        .collect()
}

async fn events_agree(name: &str) {
    let recording = recording(name);
    let (_, events) = ask_again(&recording).await;
    let told: Vec<_> = events.iter().filter(|(procedure, _)| *procedure == 318).map(|(_, it)| lifecycle(it)).collect();
    assert_eq!(told, recorded_lifecycle(&recording), "{name}");
}

#[tokio::test]
async fn the_replayed_cloud_hypervisor_driver_sends_the_recorded_events_in_the_recorded_order() {
    events_agree("ch-11.3").await;
}

#[tokio::test]
async fn the_replayed_test_driver_sends_the_recorded_events_in_the_recorded_order() {
    events_agree("test-9.0").await;
}

/// What depends on more than the scripted daemon has: connections that are not open yet, opened twice or read-only, the
/// process behind a domain, its guest and its disks.
const DIFFERS: [(&str, &[&str]); 3] = [
    ("ch-11.3", &["vmm-killed/lookup_by_id", "vmm-killed/suspend"]),
    ("test-9.0", &[]),
    (
        "qemu-9.0",
        &[
            "conn/connect_get_type/after_second_open",
            "conn/connect_get_uri/after_null_open",
            "conn/connect_get_version/before_open",
            "conn/connect_open/bad_uri",
            "conn/connect_open/null_uri",
            "conn/connect_open/second_time",
            "errors/define/uuid_clash",
            "errors/readonly/define",
            "errors/readonly/get_xml_secure",
            "ioerror/after_resume/get_state",
            "ioerror/get_state",
            "ioerror/resume",
            "life/reboot/agent_flag",
        ],
    ),
];

#[tokio::test]
async fn the_recorded_conversations_get_the_recorded_answers_again() {
    let mut found = Vec::new();
    for (name, _) in DIFFERS {
        let (other, _) = ask_again(&recording(name)).await;
        found.push((name, other));
    }
    let wanted = DIFFERS.map(|(name, ids)| (name, ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>()));
    assert_eq!(found, wanted);
}
