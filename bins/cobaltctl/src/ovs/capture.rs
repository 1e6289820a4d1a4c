//! From packets to a file that can be read, however it ends.
//!
//! A pcap file is a header and whole packets. Bytes come in pieces that know nothing of that, so whatever follows the
//! last whole packet is held back until the rest of it is there.

use std::{fmt, future::Future, io, path::Path, time::Duration};

use futures::StreamExt;
use hyper::body::Bytes;
use serde::Serialize;
use tokio::{
    fs::File,
    io::{AsyncWrite, AsyncWriteExt},
    time::{Instant, MissedTickBehavior, interval_at, timeout_at},
};

use super::{OvsError, http::Packets};

/// When the time of a capture is over, whoever sends ends it. If nothing and no end comes for this long then, nobody is
/// there to send any more.
const GRACE: Duration = Duration::from_secs(20);
/// How often progress is shown.
const PROGRESS: Duration = Duration::from_secs(1);
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// Longer than any packet an agent keeps; a longer one is no packet.
const LONGEST: usize = 1 << 20;

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Written {
    packets: u64,
    bytes: u64,
    interrupted: bool,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packets, bytes, interrupted } = self;
        write!(f, "{packets} packets, {bytes} bytes{}", if *interrupted { ", ended by you" } else { "" })
    }
}

/// Finds the ends of packets in a stream of bytes.
#[derive(Debug, Default)]
struct Framer {
    held: Vec<u8>,
    header: Option<bool>,
    packets: u64,
}

/// The bytes are no pcap file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("what came is no pcap file")]
struct NoPcap;

/// Nothing comes, and no end.
#[derive(Debug, thiserror::Error)]
#[error("its time is over, and neither packets nor its end have come for {GRACE:?}")]
struct Silence;

impl Framer {
    /// Takes bytes, and gives back those up to the last whole packet.
    fn push(&mut self, chunk: &[u8]) -> Result<Vec<u8>, NoPcap> {
        self.held.extend_from_slice(chunk);
        let mut end = 0;
        let big = if let Some(big) = self.header {
            big
        } else {
            let Some(magic) = self.held.first_chunk::<4>().filter(|_| self.held.len() >= FILE_HEADER) else {
                return Ok(Vec::new());
            };
            // Microseconds and nanoseconds, in either order of bytes.
            let big = match magic {
                [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => false,
                [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => true,
                _ => return Err(NoPcap),
            };
            end = FILE_HEADER;
            *self.header.insert(big)
        };
        while let Some(length) = self.held.get(end + 8..end + 12).and_then(|field| field.first_chunk::<4>()) {
            let length = if big { u32::from_be_bytes(*length) } else { u32::from_le_bytes(*length) } as usize;
            if length > LONGEST {
                return Err(NoPcap);
            }
            let next = end + PACKET_HEADER + length;
            if next > self.held.len() {
                break;
            }
            end = next;
            self.packets += 1;
        }
        let rest = self.held.split_off(end);
        Ok(std::mem::replace(&mut self.held, rest))
    }
}

/// Writes packets until they end, as they should after this time, or somebody interrupts.
pub(super) async fn write(
    packets: Packets,
    path: &Path,
    time: Duration,
    interrupt: impl Future<Output = ()>,
) -> Result<Written, OvsError> {
    let failed = |cause| OvsError::Write { path: path.to_owned(), cause };
    if path == Path::new("-") {
        return copy(packets, tokio::io::stdout(), path, time, interrupt).await;
    }
    let file = File::create(path).await.map_err(failed)?;
    copy(packets, file, path, time, interrupt).await
}

async fn copy(
    mut packets: Packets,
    mut to: impl AsyncWrite + Unpin,
    path: &Path,
    time: Duration,
    interrupt: impl Future<Output = ()>,
) -> Result<Written, OvsError> {
    let failed = |cause: io::Error| OvsError::Write { path: path.to_owned(), cause };
    let mut framer = Framer::default();
    let mut bytes = 0_u64;
    let mut shown = 0;
    let mut tick = interval_at(Instant::now() + PROGRESS, PROGRESS);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let over = Instant::now() + time;
    let mut last = Instant::now();
    let mut interrupt = std::pin::pin!(interrupt);
    let (interrupted, broken) = loop {
        // Counted from the last that came: whoever writes slowly has much to read after that time.
        let silent = over.max(last) + GRACE;
        let next: Option<Result<Bytes, _>> = tokio::select! {
            () = &mut interrupt => break (true, None),
            _ = tick.tick() => {
                if framer.packets != shown {
                    shown = framer.packets;
                    eprintln!("{shown} packets, {bytes} bytes");
                }
                continue;
            }
            next = timeout_at(silent, packets.next()) => match next {
                Ok(next) => next,
                Err(_) => break (false, Some(Silence.into())),
            },
        };
        let whole = match next {
            None => break (false, None),
            Some(Err(cause)) => break (false, Some(cause)),
            Some(Ok(chunk)) => match framer.push(&chunk) {
                Ok(whole) => whole,
                Err(cause) => break (false, Some(cause.into())),
            },
        };
        to.write_all(&whole).await.map_err(failed)?;
        bytes += whole.len() as u64;
        last = Instant::now();
    };
    // Whoever sends is told by our leaving.
    drop(packets);
    to.flush().await.map_err(failed)?;
    match broken {
        Some(cause) => Err(OvsError::Broken { bytes, path: path.to_owned(), cause }),
        None => Ok(Written { packets: framer.packets, bytes, interrupted }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures::stream;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn file(packets: &[usize]) -> Vec<u8> {
        let mut file = vec![0; FILE_HEADER];
        file[..4].copy_from_slice(&0xa1b2_c3d4_u32.to_le_bytes());
        for length in packets {
            file.extend([0; 8]);
            file.extend(u32::try_from(*length).unwrap().to_le_bytes());
            file.extend(u32::try_from(*length).unwrap().to_le_bytes());
            file.extend(vec![7; *length]);
        }
        file
    }

    fn stream_of(chunks: Vec<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>) -> Packets {
        stream::iter(chunks).boxed()
    }

    #[test]
    fn only_whole_packets_pass_however_the_bytes_are_cut() {
        let whole = file(&[60, 0, 1500]);
        for size in 1..40 {
            let mut framer = Framer::default();
            let mut passed = Vec::new();
            for chunk in whole.chunks(size) {
                passed.extend(framer.push(chunk).unwrap());
            }
            assert_eq!((passed.len(), framer.packets), (whole.len(), 3), "{size}");
        }
        let mut framer = Framer::default();
        let cut = framer.push(&whole[..whole.len() - 1]).unwrap();
        assert_eq!(cut, file(&[60, 0]), "the last packet is not whole");
    }

    #[test]
    fn what_is_no_pcap_file_is_not_written() {
        assert_eq!(Framer::default().push(&[0; 64]), Err(NoPcap));
        let mut endless = file(&[]);
        endless.extend([0xff; 16]);
        assert_eq!(Framer::default().push(&endless), Err(NoPcap));
    }

    #[tokio::test]
    async fn an_interrupted_capture_leaves_a_whole_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cut.pcap");
        let whole = file(&[60, 60]);
        let first = Bytes::copy_from_slice(&whole[..whole.len() - 10]);
        let (seen, interrupt) = tokio::sync::oneshot::channel::<()>();
        let mut seen = Some(seen);
        let packets = stream::iter([Ok(first)])
            .chain(stream::poll_fn(move |_| {
                // All that came has been taken: now somebody presses Ctrl-C.
                drop(seen.take());
                std::task::Poll::Pending
            }))
            .boxed();
        let written = write(packets, &path, LONG, async { drop(interrupt.await) }).await.unwrap();
        assert_eq!(written, Written { packets: 1, bytes: 24 + 76, interrupted: true });
        assert_eq!(std::fs::read(path).unwrap(), file(&[60]));
    }

    #[tokio::test]
    async fn a_capture_that_breaks_off_says_so_and_keeps_what_came() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("broken.pcap");
        let chunks = vec![Ok(Bytes::from(file(&[60]))), Err("the host is gone".into())];
        let error = write(stream_of(chunks), &path, LONG, std::future::pending()).await.unwrap_err();
        assert!(error.to_string().contains("broke off after 100 bytes"), "{error}");
        assert_eq!(std::fs::read(path).unwrap(), file(&[60]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_capture_whose_host_has_died_ends_some_time_after_its_own() {
        let path = Path::new("silent.pcap");
        let (time, began) = (Duration::from_secs(30), Instant::now());
        // The header, and then nothing for ever, as from a host without power.
        let packets = stream::iter([Ok(Bytes::from(file(&[])))]).chain(stream::pending()).boxed();
        let mut written = Vec::new();
        let error = copy(packets, &mut written, path, time, std::future::pending()).await.unwrap_err();
        assert!(began.elapsed() > time && began.elapsed() < time + 2 * GRACE, "{:?}", began.elapsed());
        assert!(error.to_string().contains("broke off after 24 bytes"), "{error}");
        assert_eq!(written, file(&[]));
    }

    #[tokio::test(start_paused = true)]
    async fn packets_that_still_come_after_the_time_are_written() {
        let late = stream::iter([file(&[]), vec![0; 16], vec![0; 16], vec![0; 16]]).then(|piece| async {
            tokio::time::sleep(Duration::from_secs(15)).await;
            Ok(Bytes::from(piece))
        });
        let (path, time) = (Path::new("late.pcap"), Duration::from_secs(1));
        let mut written = Vec::new();
        let done = copy(late.boxed(), &mut written, path, time, std::future::pending()).await.unwrap();
        assert_eq!(done, Written { packets: 3, bytes: 24 + 48, interrupted: false });
    }
}
