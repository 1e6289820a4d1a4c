//! Every event of a libvirt daemon as a line, until Ctrl-C. A daemon that goes away is waited for.
//!
//! The pattern is the one of every program that keeps a picture of a host: subscribe, list, follow; and after a gap
//! (the connection ended, or events were lost) all of it again.
//!
//!     cargo run -p cobalt-examples --example events_follow
//!     cargo run -p cobalt-examples --example events_follow -- qemu+tcp://10.0.0.7/system

use std::{io::Write, time::Duration};

use clap::Parser;
use cobalt_libvirt::{
    ConnectOptions, DomainFilter, Libvirt, LibvirtUri, Notice,
    event::{EventId, EventKind, Message},
};
use futures::StreamExt;

/// Follows the events of a libvirt daemon.
#[derive(Parser)]
struct Args {
    /// Where the daemon is: qemu:///system, qemu+tcp://HOST/system, qemu+tls://HOST/system, ch:///system
    #[arg(default_value = "qemu:///system")]
    uri: LibvirtUri,
}

const EVERYTHING: [EventId; 15] = [
    EventId::Lifecycle,
    EventId::Reboot,
    EventId::Watchdog,
    EventId::IoErrorReason,
    EventId::ControlError,
    EventId::BlockJob2,
    EventId::DeviceAdded,
    EventId::DeviceRemoved,
    EventId::DeviceRemovalFailed,
    EventId::AgentLifecycle,
    EventId::MigrationIteration,
    EventId::JobCompleted,
    EventId::MemoryFailure,
    EventId::Tunable,
    EventId::MetadataChange,
];

/// Waits before another attempt: doubled each time, and at most the second of them.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    tokio::select! {
        ended = follow(&args.uri, WAITS, std::io::stdout()) => ended,
        pressed = tokio::signal::ctrl_c() => Ok(pressed?),
    }
}

/// Ends only with an error that another attempt will not mend, such as a refused login.
async fn follow(uri: &LibvirtUri, (first, most): (Duration, Duration), mut out: impl Write) -> anyhow::Result<()> {
    let mut wait = first;
    loop {
        match connected(uri, &mut out).await {
            Ok(why) => {
                writeln!(out, "-- connection to {uri} lost: {why}")?;
                wait = first;
            }
            Err(error) if error.downcast_ref().is_some_and(cobalt_libvirt::Error::is_transient) => {
                writeln!(out, "-- {error:#}")?;
            }
            Err(error) => return Err(error),
        }
        writeln!(out, "-- trying again in {wait:?}")?;
        tokio::time::sleep(wait).await;
        wait = most.min(wait * 2);
    }
}

/// Follows one connection and tells how it ended.
async fn connected(uri: &LibvirtUri, out: &mut impl Write) -> anyhow::Result<String> {
    let libvirt = Libvirt::connect_with(uri, &ConnectOptions::new().read_only(true)).await?;
    let mut events = libvirt.subscribe(&EVERYTHING).await?;
    let running = libvirt.domains(DomainFilter::ACTIVE).await?.len();
    writeln!(out, "-- connected to {uri}, {running} domains run")?;
    while let Some(notice) = events.next().await {
        match notice {
            Notice::Message(Message::Event(event)) => writeln!(out, "{}: {}", event.domain, line(&event.kind))?,
            Notice::Message(other) => writeln!(out, "-- a message of kind {} that is not known", other.procedure())?,
            Notice::Lagged(lost) => writeln!(out, "-- {lost} events lost: a list would have to be made anew")?,
            _ => {}
        }
    }
    Ok(libvirt.closed().await.to_string())
}

fn line(kind: &EventKind) -> String {
    match kind {
        EventKind::Lifecycle(lifecycle) => format!("{lifecycle:?}"),
        EventKind::JobCompleted { params } => {
            let number = |name| params.get_u64(name).map_or_else(|| "?".to_owned(), |number| number.to_string());
            format!("JobCompleted after {} ms, standing still for {} ms", number("time_elapsed"), number("downtime"))
        }
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io;

    use cobalt_libvirt::testing::{Event, Recording, Server};
    use tokio::sync::mpsc;

    use super::*;

    /// Each line as a message.
    struct Lines(String, mpsc::UnboundedSender<String>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push_str(std::str::from_utf8(bytes).map_err(io::Error::other)?);
            while let Some((line, rest)) = self.0.split_once('\n') {
                self.1.send(line.to_owned()).map_err(io::Error::other)?;
                self.0 = rest.to_owned();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    async fn until(lines: &mut mpsc::UnboundedReceiver<String>, part: &str) -> String {
        let wanted = async {
            loop {
                let line = lines.recv().await.unwrap();
                if line.contains(part) {
                    return line;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wanted).await.expect(part)
    }

    #[tokio::test]
    async fn events_are_told_before_and_after_a_restart_of_the_daemon() {
        let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../cobalt-libvirt/tests/recorded/qemu-9.0.jsonl");
        let server = Server::replay(Recording::parse(&std::fs::read_to_string(recorded).unwrap()).unwrap());
        let domain = server.start_domain("web", "55555555-bbbb-4000-8000-000000000001").unwrap();
        let uri = format!("qemu+tcp://{}/system", server.listen_tcp().await.unwrap()).parse().unwrap();
        let (sender, mut lines) = mpsc::unbounded_channel();
        let waits = (Duration::from_millis(5), Duration::from_millis(50));
        let task = tokio::spawn(async move { follow(&uri, waits, Lines(String::new(), sender)).await });

        until(&mut lines, "1 domains run").await;
        server.emit(&Event::reboot(&domain));
        assert!(until(&mut lines, "Reboot").await.starts_with("web (55555555-"));

        server.stop().await;
        until(&mut lines, "lost").await;
        server.start().await.unwrap();
        until(&mut lines, "connected").await;
        server.emit(&Event::job_completed(&domain, &[("time_elapsed", 1200), ("downtime", 17)]));
        until(&mut lines, "after 1200 ms, standing still for 17 ms").await;
        task.abort();
    }
}
