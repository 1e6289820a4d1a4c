//! What a real daemon (libvirt 9.0) said when it was provoked.

use bytes::BytesMut;
use serde_json::Value;

use super::*;
use crate::{connection::remote_error, frame};

const EDGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded/protocol-edge.jsonl"));

fn records() -> Vec<Value> {
    EDGE.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn bytes(frame: &Value) -> Option<BytesMut> {
    let hex = frame["hex"].as_str()?;
    Some((0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect())
}

fn word(value: &Value) -> u32 {
    match value {
        Value::String(hex) => u32::from_str_radix(hex.trim_start_matches("0x"), 16).unwrap(),
        // Procedures are shown signed.
        number => number.as_i64().unwrap().to_be_bytes()[4..].iter().fold(0, |word, byte| word << 8 | u32::from(*byte)),
    }
}

#[test]
fn every_recorded_frame_is_cut_and_joined_to_the_same_bytes() {
    let (mut whole, mut broken) = (0, 0);
    for record in records() {
        for recorded in record["sent"].as_array().unwrap().iter().chain(record["received"].as_array().unwrap()) {
            let (Some(wire), Some(header)) = (bytes(recorded), recorded["header"].as_object()) else { continue };
            match frame::decode(&mut wire.clone(), MAX_FRAME) {
                Ok(Some(frame)) => {
                    whole += 1;
                    assert_eq!(frame.to_bytes(), wire);
                    assert_eq!(frame.wire_len(), word(&header["len"]) as usize);
                    let expected = Header {
                        program: word(&header["prog"]),
                        version: word(&header["vers"]),
                        procedure: word(&header["proc"]),
                        kind: word(&header["type"]).into(),
                        serial: word(&header["serial"]),
                        status: word(&header["status"]).into(),
                    };
                    assert_eq!(frame.header, expected);
                }
                refused_or_incomplete => {
                    broken += 1;
                    // The daemon hangs up where we refuse, and waits where we wait.
                    let open = record["connection"] == "stays open";
                    assert_eq!(refused_or_incomplete.is_ok(), open, "{}", record["id"]);
                }
            }
        }
    }
    assert_eq!((whole, broken), (158, 10));
}

#[test]
fn every_recorded_error_keeps_its_code_domain_and_text() {
    let mut errors = 0;
    for record in records() {
        for recorded in record["received"].as_array().unwrap() {
            let frame = frame::decode(&mut bytes(recorded).unwrap(), MAX_FRAME).unwrap().unwrap();
            if frame.header.status != Status::Error {
                continue;
            }
            errors += 1;
            let error = remote_error::decode("try".into(), &frame.payload);
            let Error::Remote { code, domain, message, .. } = &error else { panic!("{error}") };
            let shown = &recorded["payload"];
            if shown.is_null() {
                assert_eq!(record["id"], "string_invalid_utf8");
                assert!(error.is_no_domain() && message.contains('\u{fffd}'), "{error}");
            } else {
                assert_eq!((*code, *domain), (word(&shown["code"]), word(&shown["domain"])));
                assert_eq!(message, shown["message"].as_str().unwrap());
            }
        }
    }
    assert_eq!(errors, 27);
}

/// The recorded answers of `id` to whatever we say, which must be what was said then.
async fn replay(id: &str, uri: &str) -> Result<Connection> {
    let record = records().into_iter().find(|record| record["id"] == id).unwrap();
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let mut peer = Peer::new(theirs);
    let server = tokio::spawn(async move {
        let list = |name: &str| record[name].as_array().unwrap().iter().filter_map(bytes).collect::<Vec<_>>();
        for (sent, received) in list("sent").iter().zip(list("received")) {
            assert_eq!(peer.next().await.unwrap().to_bytes(), sent);
            peer.raw(&received).await;
        }
    });
    let uri: LibvirtUri = uri.parse().unwrap();
    let options = ConnectOptions::new().credentials(Credentials::new("wire", "secret"));
    let result = Connection::open(Box::new(ours), uri.peer(), false, &uri, &options).await;
    server.await.unwrap();
    result
}

#[tokio::test]
async fn a_real_sasl_daemon_on_plain_tcp_is_refused_for_its_mechanisms() {
    let error = replay("sasl/init", "qemu+tcp://10.78.0.13/system").await.unwrap_err();
    assert!(error.to_string().contains("the daemon offers DIGEST-MD5; this client has"), "{error}");
}

#[test]
fn our_pings_and_pongs_are_those_of_the_daemon() {
    let record = records().into_iter().find(|record| record["id"] == "keepalive_ping_serial_7").unwrap();
    let pong = Frame::new(Header::keepalive(PONG), Bytes::new()).to_bytes();
    assert_eq!(bytes(&record["received"][0]).unwrap(), pong);
    let record = records().into_iter().find(|record| record["id"] == "keepalive_ping").unwrap();
    let ping = Frame::new(Header::keepalive(PING), Bytes::new()).to_bytes();
    assert_eq!(bytes(&record["sent"][0]).unwrap(), ping);
}
