//! Every frame decodes and encodes to the same bytes.

use std::collections::{BTreeMap, BTreeSet};

use cobalt_libvirt::{
    event::Message,
    frame::{MessageType, PROGRAM_REMOTE, Status},
};

use crate::{codec, recording};

// The counts are worth seeing when a recording is added.
#[allow(clippy::print_stdout)]
#[test]
fn every_recorded_frame_of_a_known_type_encodes_to_the_bytes_it_came_from() {
    let (mut same, mut broken, mut skipped) = (0, BTreeSet::new(), BTreeMap::<(u32, u32), usize>::new());
    for recorded in recording::all() {
        let header = recorded.frame.header;
        match codec::of(&recorded.frame) {
            None => *skipped.entry((header.program, header.procedure)).or_default() += 1,
            Some(codec) => match codec(header.procedure, &recorded.frame.payload) {
                Ok(bytes) if recorded.frame.payload == bytes => same += 1,
                other => {
                    broken.insert(format!("{}: {}", recorded.place, if other.is_ok() { "differs" } else { "fails" }));
                }
            },
        }
    }
    let skipped_frames: usize = skipped.values().sum();
    println!("{same} frames the same, {} odd, {skipped_frames} without a type: {skipped:?}", broken.len());
    assert_eq!(broken.iter().map(String::as_str).collect::<Vec<_>>(), ODD);
    assert_eq!(same, 1679);
    let procedures: BTreeSet<u32> =
        skipped.keys().filter(|(program, _)| *program == PROGRAM_REMOTE).map(|(_, procedure)| *procedure).collect();
    assert_eq!(procedures.into_iter().collect::<Vec<_>>(), WITHOUT_A_TYPE);
}

/// Frames that were broken on purpose when they were recorded, and what we make of them. We are as lenient as libvirt:
/// padding, flags above one and bytes at the end do not matter, so such frames read well and are written properly.
const ODD: &[&str] = &[
    "protocol-edge.jsonl:10 type_reply_from_client: fails",
    "protocol-edge.jsonl:31 payload_truncated: fails",
    "protocol-edge.jsonl:32 payload_missing: fails",
    "protocol-edge.jsonl:33 payload_trailing_garbage: differs",
    "protocol-edge.jsonl:34 payload_trailing_after_args: differs",
    "protocol-edge.jsonl:35 string_length_lie: fails",
    "protocol-edge.jsonl:37 string_nonzero_padding: differs",
    "protocol-edge.jsonl:38 string_invalid_utf8: differs",
    "protocol-edge.jsonl:40 optional_flag_2: differs",
    "protocol-edge.jsonl:41 array_over_max: fails",
    "protocol-edge.jsonl:42 typed_param_unknown_type: fails",
];

/// Procedures that were recorded and that this crate does not speak, and numbers that do not exist. 3 is here for its
/// frames of a wrong type or status, 67 and 68 belong to the login, 318 is an event sent as a call.
const WITHOUT_A_TYPE: &[u32] = &[
    0,
    3,
    5,
    15,
    17,
    19,
    20,
    25,
    29,
    51,
    64,
    65,
    67,
    68,
    70,
    122,
    149,
    159,
    183,
    194,
    200,
    202,
    203,
    223,
    225,
    227,
    228,
    229,
    230,
    255,
    262,
    274,
    277,
    280,
    281,
    283,
    284,
    285,
    293,
    302,
    303,
    306,
    307,
    312,
    318,
    337,
    340,
    351,
    353,
    360,
    361,
    364,
    396,
    418,
    426,
    450,
    9999,
    4_294_967_295,
];

#[test]
fn every_procedure_of_ours_occurs_in_the_recordings_both_ways() {
    let frames = recording::all();
    for procedure in codec::PROCEDURES {
        for kind in [MessageType::Call, MessageType::Reply] {
            let seen = frames.iter().any(|recorded| {
                let header = recorded.frame.header;
                header.procedure == *procedure && header.kind == kind && header.status == Status::Ok
            });
            assert!(seen, "{kind:?} of procedure {procedure}");
        }
    }
}

#[test]
fn every_recorded_event_is_of_a_known_kind() {
    let mut kinds = BTreeMap::<u32, usize>::new();
    for recorded in recording::all() {
        let header = recorded.frame.header;
        if header.program == PROGRAM_REMOTE && header.kind == MessageType::Event && header.procedure >= 318 {
            let message = Message::decode(header.procedure, &recorded.frame.payload).unwrap();
            assert!(matches!(message, Message::Event(_)), "{}", recorded.place);
            *kinds.entry(header.procedure).or_default() += 1;
        }
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), RECORDED_EVENTS);
}

/// Procedure and how often: lifecycle, reboot, watchdog, I/O error without and with a reason, control error, device
/// removed, agent lifecycle, device added, migration iteration, job completed.
const RECORDED_EVENTS: &[(u32, usize)] =
    &[(318, 86), (319, 16), (321, 1), (322, 1), (324, 1), (325, 1), (333, 1), (348, 3), (354, 1), (359, 12), (363, 3)];

#[test]
fn no_cut_of_a_recorded_frame_panics() {
    for recorded in recording::all() {
        let Some(codec) = codec::of(&recorded.frame) else { continue };
        let payload = &recorded.frame.payload;
        for end in (0..payload.len()).step_by(if payload.len() > 2000 { 97 } else { 1 }) {
            let _ = codec(recorded.frame.header.procedure, &payload.slice(..end));
        }
    }
}
