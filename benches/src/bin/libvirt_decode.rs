//! Instructions per decoding, counted by valgrind: the same on every run and every machine of one kind.
//!
//! The program runs itself under `valgrind --tool=callgrind` twice for each path, once with few repetitions and once with
//! more; the difference has no start-up in it. To see where the instructions go, keep the profile:
//!
//! ```sh
//! cargo build --release -p cobalt-benches --bin libvirt_decode --config 'profile.release.strip="none"'
//! valgrind --tool=callgrind target/release/libvirt_decode stats 10
//! callgrind_annotate callgrind.out.* | head -40
//! ```

#![allow(clippy::cast_precision_loss, reason = "figures are read by people")]

use std::{hint::black_box, path::Path, process::Command};

use anyhow::{Context, ensure};
use clap::{Parser, ValueEnum};
use cobalt_benches::Figure;
use cobalt_libvirt::{
    bytes::{Bytes, BytesMut},
    event::Message,
    frame::{self, Frame, Header},
    rpc::DomainStatsRecord,
    testing::{Identity, Recording, Server, Writer},
    xdr,
    xml::{DomainCapabilitiesXml, DomainXml, HostXml},
};

const DOMAINS: usize = 300;
const BULK_STATS: u32 = 344;
const LIFECYCLE: u32 = 318;
const XML: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cobalt-libvirt/tests/recorded/xml");

/// What is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// The reply with the statistics of 300 domains is cut out of what was read.
    Frame,
    /// That reply is decoded, and every number in it read.
    Stats,
    /// A lifecycle event.
    Event,
    /// The XML of a domain with Nova's metadata.
    Domain,
    /// The capabilities of a host with two sockets.
    Capabilities,
    /// The domain capabilities of QEMU.
    DomainCapabilities,
}

#[derive(Parser)]
struct Args {
    /// Decode only this, without counting; for a profiler
    subject: Option<Subject>,
    /// How often
    #[arg(default_value_t = 1)]
    times: usize,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(subject) = args.subject {
        return decode(subject, args.times);
    }
    for subject in Subject::value_variants() {
        const FEW: usize = 2;
        const MORE: usize = 12;
        let each = (count(*subject, MORE)? - count(*subject, FEW)?) / (MORE - FEW) as f64;
        let name = subject.to_possible_value().context("a name")?;
        Figure::new(format!("libvirt_decode.{}", name.get_name().replace('-', "_")), each, "instructions").print()?;
        if *subject == Subject::Stats {
            let (_, params) = stats()?;
            Figure::new("libvirt_decode.stats_per_parameter", each / params as f64, "instructions").print()?;
        }
    }
    Ok(())
}

/// Instructions of this program decoding so often.
fn count(subject: Subject, times: usize) -> anyhow::Result<f64> {
    let name = subject.to_possible_value().context("a name")?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args([name.get_name(), &times.to_string()])
        .output()
        .context("run valgrind (Debian: apt-get install valgrind)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind failed: {said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let number = collected.and_then(|(_, number)| number.trim().parse().ok());
    number.with_context(|| format!("valgrind counted nothing: {said}"))
}

fn decode(subject: Subject, times: usize) -> anyhow::Result<()> {
    match subject {
        Subject::Frame => {
            let wire = Frame::new(Header::call(BULK_STATS, 1), stats()?.0).to_bytes();
            // The socket would have filled the buffers. There are as many in every run, so that they cancel out.
            let mut buffers: Vec<BytesMut> = (0..times.max(16)).map(|_| BytesMut::from(wire.as_ref())).collect();
            for buffer in buffers.iter_mut().take(times) {
                black_box(frame::decode(buffer, frame::MAX_FRAME)?);
            }
        }
        Subject::Stats => {
            let (payload, params) = stats()?;
            for _ in 0..times {
                let (records,): (Vec<DomainStatsRecord>,) = xdr::from_bytes(&payload)?;
                let numbers = records.iter().flat_map(|record| record.params.iter());
                let read: usize =
                    numbers.map(|(name, value)| usize::from(!black_box((name, value)).0.is_empty())).sum();
                ensure!(params == read, "{read} parameters of {params}");
            }
        }
        Subject::Event => {
            let domain = Identity::new("instance-00000001", "55555555-bbbb-4000-8000-000000000001", 7);
            let domain = domain.context("an identity")?;
            let payload = Writer::new().i32(17).domain(&domain).i32(2).i32(0).finish();
            for _ in 0..times {
                black_box(Message::decode(LIFECYCLE, &payload)?);
            }
        }
        Subject::Domain => read_xml("domain-nova-metadata-9.0-handmade.xml", times, DomainXml::parse)?,
        Subject::Capabilities => read_xml("capabilities-2socket-2cell-handmade.xml", times, HostXml::parse)?,
        Subject::DomainCapabilities => {
            read_xml("domcapabilities-qemu-kvm-q35-9.0-recorded.xml", times, DomainCapabilitiesXml::parse)?;
        }
    }
    Ok(())
}

fn read_xml<T, E>(file: &str, times: usize, parse: fn(&str) -> Result<T, E>) -> anyhow::Result<()>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let text = std::fs::read_to_string(Path::new(XML).join(file)).with_context(|| format!("read {file}"))?;
    for _ in 0..times {
        black_box(parse(&text)?);
    }
    Ok(())
}

/// The reply about 300 running domains, each like one recorded, and how many parameters it has.
fn stats() -> anyhow::Result<(Bytes, usize)> {
    let recorded = Path::new(XML).with_file_name("qemu-9.0.jsonl");
    let server = Server::replay(Recording::parse(&std::fs::read_to_string(recorded)?)?);
    for n in 0..DOMAINS {
        let uuid = format!("55555555-bbbb-4000-8000-{n:012}");
        server.start_domain(&format!("instance-{n:08x}"), &uuid).context("a domain")?;
    }
    let everything = Writer::new().u32(0).u32(0).u32(0).finish();
    let payload = server.call(BULK_STATS, &everything).payload().clone();
    let (records,): (Vec<DomainStatsRecord>,) = xdr::from_bytes(&payload)?;
    ensure!(records.len() == DOMAINS, "{} records", records.len());
    let params = records.iter().map(|record| record.params.len()).sum();
    Ok((payload, params))
}
