//! Packets of one port, as the bytes of a pcap file.
//!
//! [`Capture`] listens on a device of the network namespace that the process is in, within bounds of time, bytes and
//! bytes per packet; it needs `CAP_NET_RAW`. Reading it is the whole interface: who stops reading stops the capture.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use cobalt_core::ovs::CaptureRequest;
//! use cobalt_ovs::capture::Capture;
//! use futures::TryStreamExt;
//!
//! async fn ten_seconds(port: &str) -> Result<Vec<u8>, cobalt_ovs::capture::Error> {
//!     let request = CaptureRequest {
//!         port: port.to_owned(),
//!         duration: Duration::from_secs(10),
//!         max_bytes: 1 << 20,
//!         snap_len: 128,
//!     };
//!     Capture::open(&request)?.into_stream().try_concat().await
//! }
//! ```
//!
//! A port without a device (DPDK, vhost-user) is [mirrored](mirror) to an internal port first, which has one.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cobalt_core::ovs::CaptureRequest;
use futures::{Stream, stream};
use tokio::time::{Instant, sleep_until};

pub use self::{error::Error, link::bring_up, pcap::LinkType};
use self::{
    pcap::Packet,
    socket::{Received, Socket},
};

mod error;
mod link;
pub mod mirror;
mod pcap;
mod socket;

/// The longest a capture may run.
pub const MAX_DURATION: Duration = Duration::from_secs(24 * 60 * 60);
/// The most that is kept of a packet: what tools take for all of it.
pub const MAX_SNAP_LEN: u32 = 262_144;

/// About this much is handed on at once, if it is there.
const CHUNK: usize = 64 * 1024;

/// What a capture counted. It goes on counting while it is read.
#[derive(Debug, Default)]
pub struct Counters {
    packets: AtomicU64,
    cut: AtomicU64,
    dropped: AtomicU64,
}

impl Counters {
    /// Packets in the file.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Packets of which only the beginning is in the file.
    pub fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    /// Packets that the kernel dropped because nobody took them in time. They are not in the file.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// A capture that is under way: packets are kept for it from the moment it is opened.
#[derive(Debug)]
pub struct Capture {
    socket: Socket,
    deadline: Instant,
    max_bytes: u64,
    snap_len: u32,
    counters: Arc<Counters>,
}

impl Capture {
    /// Listens on the device that is called like the port.
    ///
    /// Must be called within a Tokio runtime.
    pub fn open(request: &CaptureRequest) -> Result<Self, Error> {
        let bound = |what: &'static str| Error::Bound { device: request.port.clone(), what };
        if request.duration.is_zero() || request.duration > MAX_DURATION {
            return Err(bound("a capture runs for longer than nothing and at most a day"));
        }
        if request.snap_len == 0 || request.snap_len > MAX_SNAP_LEN {
            return Err(bound("1 to 262144 bytes of a packet can be kept"));
        }
        if request.max_bytes < pcap::HEADER as u64 {
            return Err(bound("the header of the file alone takes 24 bytes"));
        }
        Ok(Self {
            socket: Socket::open(&request.port, request.snap_len)?,
            deadline: Instant::now() + request.duration,
            max_bytes: request.max_bytes,
            snap_len: request.snap_len,
            counters: Arc::default(),
        })
    }

    /// What it counts, also after it has become a stream.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// The file in pieces: first its header, then packets as they come. It ends when a bound is reached; a piece never
    /// ends within a packet.
    pub fn into_stream(self) -> impl Stream<Item = Result<Vec<u8>, Error>> + Send {
        let header = pcap::header(self.socket.link_type(), self.snap_len);
        let left = self.max_bytes - pcap::HEADER as u64;
        let pieces = VecDeque::from([Ok(header.to_vec())]);
        stream::unfold((self, pieces, Some(left)), |(mut capture, mut pieces, mut left)| async move {
            loop {
                if let Some(piece) = pieces.pop_front() {
                    return Some((piece, (capture, pieces, left)));
                }
                let (piece, rest) = capture.piece(left?).await;
                left = rest;
                pieces.extend(piece);
            }
        })
    }

    /// The next packets, and how many bytes may still come; `None` when it is over.
    async fn piece(&mut self, mut left: u64) -> (Option<Result<Vec<u8>, Error>>, Option<u64>) {
        let mut piece = Vec::new();
        while piece.len() < CHUNK {
            let received = match self.socket.try_receive() {
                Ok(Some(received)) => received,
                Ok(None) if !piece.is_empty() => break,
                Ok(None) => {
                    tokio::select! {
                        biased;
                        () = sleep_until(self.deadline) => return (None, None),
                        ready = self.socket.readable() => match ready {
                            Ok(()) => continue,
                            Err(error) => return (Some(Err(error)), None),
                        },
                    }
                }
                Err(error) => return (Some(Err(error)), None),
            };
            if Instant::now() >= self.deadline {
                return ((!piece.is_empty()).then_some(Ok(piece)), None);
            }
            self.counters.dropped.store(received.dropped, Ordering::Relaxed);
            let Received { at, bytes, length, tag, .. } = received;
            let record = Packet::new(at, bytes, length, tag, self.snap_len);
            let Some(rest) = left.checked_sub(record.wire_len() as u64) else {
                return ((!piece.is_empty()).then_some(Ok(piece)), None);
            };
            left = rest;
            self.counters.packets.fetch_add(1, Ordering::Relaxed);
            self.counters.cut.fetch_add(u64::from(record.is_cut()), Ordering::Relaxed);
            record.write(&mut piece);
        }
        (Some(Ok(piece)), Some(left))
    }
}
