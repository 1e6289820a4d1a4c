//! A capture on the loopback device, which needs the right to raw sockets.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use cobalt_core::ovs::CaptureRequest;
use cobalt_ovs::capture::{Capture, Error};
use futures::{StreamExt, TryStreamExt};
use tokio::net::UdpSocket;

fn on_loopback() -> CaptureRequest {
    CaptureRequest { port: "lo".into(), duration: Duration::from_secs(60), max_bytes: 1 << 20, snap_len: 96 }
}

/// The capture, or a loud skip where we may not.
fn open(test: &str, request: &CaptureRequest) -> Option<Capture> {
    match Capture::open(request) {
        Err(error @ Error::Denied { .. }) => {
            cobalt_rig::skip(test, &error.to_string());
            None
        }
        opened => Some(opened.unwrap()),
    }
}

/// Sends datagrams with this text to nobody in particular.
async fn send(text: &str, count: usize) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for _ in 0..count {
        socket.send_to(text.as_bytes(), socket.local_addr().unwrap()).await.unwrap();
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn a_packet_is_in_the_file_with_its_time_and_cut_to_its_bound() {
    let Some(capture) = open("capture", &on_loopback()) else { return };
    let counters = capture.counters();
    let mut stream = Box::pin(capture.into_stream());
    let header = stream.next().await.unwrap().unwrap();
    assert_eq!(header.len(), 24);
    assert_eq!(header[..4], [0xa1, 0xb2, 0x3c, 0x4d]);
    let marker = "cobalt-capture-test-one";
    let text = format!("{marker}{}", "x".repeat(200));
    // Others use the device too, and on a busy machine the kernel drops what is not read in time: ours is sent until it
    // is seen.
    let mut again = tokio::time::interval(Duration::from_millis(100));
    let mut seen = Vec::new();
    while !contains(&seen, marker) {
        tokio::select! {
            chunk = stream.next() => seen = chunk.unwrap().unwrap(),
            _ = again.tick() => send(&text, 1).await,
        }
    }
    let (mut rest, mut found) = (&seen[..], None);
    while let Some((head, after)) = rest.split_first_chunk::<16>() {
        let word = |at: usize| u32::from_be_bytes(*head[at..].first_chunk().unwrap());
        let (packet, after) = after.split_at(word(8) as usize);
        assert!(word(8) <= 96);
        if contains(packet, marker) {
            found = Some((word(0), word(8), word(12)));
        }
        rest = after;
    }
    let (seconds, kept, length) = found.unwrap();
    assert!(seconds > 1_700_000_000, "the kernel's time");
    assert_eq!(kept, 96);
    assert_eq!(length as usize, 14 + 20 + 8 + marker.len() + 200);
    assert!(counters.packets() >= 1 && counters.cut() >= 1);
}

#[tokio::test]
async fn the_bound_on_bytes_ends_the_file_between_two_packets() {
    let request = CaptureRequest { max_bytes: 24 + 3 * (16 + 96), ..on_loopback() };
    let Some(capture) = open("capture", &request) else { return };
    let counters = capture.counters();
    let text = "y".repeat(300);
    let (file, ()) = tokio::join!(capture.into_stream().try_concat(), send(&text, 20));
    let file = file.unwrap();
    assert!(file.len() as u64 <= request.max_bytes);
    assert!(counters.packets() >= 3);
}

#[tokio::test]
async fn the_bound_on_time_ends_a_capture_that_sees_nothing() {
    let request = CaptureRequest { duration: Duration::from_millis(50), ..on_loopback() };
    let Some(capture) = open("capture", &request) else { return };
    let file: Vec<u8> = capture.into_stream().try_concat().await.unwrap();
    assert!(file.len() >= 24);
}

#[tokio::test]
async fn a_request_without_bounds_is_refused() {
    for request in [
        CaptureRequest { duration: Duration::ZERO, ..on_loopback() },
        CaptureRequest { duration: Duration::MAX, ..on_loopback() },
        CaptureRequest { max_bytes: 23, ..on_loopback() },
        CaptureRequest { snap_len: 0, ..on_loopback() },
        CaptureRequest { snap_len: 262_145, ..on_loopback() },
    ] {
        let error = Capture::open(&request).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Bound { .. }), "{request:?}: {error}");
    }
}
