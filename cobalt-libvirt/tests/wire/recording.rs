//! Reads the recordings.

use bytes::{Bytes, BytesMut};
use cobalt_libvirt::frame::{self, Frame};
use serde_json::Value;

pub(crate) const FILES: [&str; 10] = [
    "ch-11.3.jsonl",
    "ch-11.3-messages.jsonl",
    "protocol-edge.jsonl",
    "qemu-9.0.jsonl",
    "qemu-9.0-messages.jsonl",
    "qemu-9.0-migration.jsonl",
    "qemu-9.0-migration-messages.jsonl",
    "qemu-9.0-virsh-sessions.jsonl",
    "test-9.0.jsonl",
    "test-9.0-messages.jsonl",
];

/// One frame of a recording.
pub(crate) struct Recorded {
    /// File and the record's id.
    pub(crate) place: String,
    pub(crate) frame: Frame,
    /// The recorder's own reading of the payload.
    pub(crate) payload: Value,
}

/// All frames of one file. What is no frame at all (the broken records of the edge file) is left out.
pub(crate) fn frames(file: &str) -> Vec<Recorded> {
    let path = format!("{}/tests/recorded/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut frames = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let record: Value = serde_json::from_str(line).unwrap();
        let id = record["id"].as_str().or(record["name"].as_str()).unwrap_or_default();
        let place = format!("{file}:{} {id}", number + 1);
        let single = ["request", "response", "frame"].into_iter().map(|field| &record[field]);
        let several = ["sent", "received"].into_iter().filter_map(|field| record[field].as_array()).flatten();
        for recorded in single.chain(several) {
            if let Some(frame) = recorded["hex"].as_str().and_then(one_frame) {
                frames.push(Recorded { place: place.clone(), frame, payload: recorded["payload"].clone() });
            }
        }
    }
    frames
}

pub(crate) fn all() -> Vec<Recorded> {
    FILES.iter().flat_map(|file| frames(file)).collect()
}

fn one_frame(hex: &str) -> Option<Frame> {
    let mut bytes = BytesMut::from(&unhex(hex)[..]);
    let frame = frame::decode(&mut bytes, frame::MAX_FRAME).ok()??;
    bytes.is_empty().then_some(frame)
}

pub(crate) fn unhex(hex: &str) -> Bytes {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}
