//! Every domain of a libvirt daemon, by one bulk call, however many there are; one by one where the driver has none.
//!
//!     cargo run -p cobalt-examples --example domains_list
//!     cargo run -p cobalt-examples --example domains_list -- qemu+tcp://10.0.0.7/system
//!     cargo run -p cobalt-examples --example domains_list -- --help
#![allow(clippy::print_stdout)]

use clap::Parser;
use cobalt_libvirt::{
    ConnectOptions, DomainFilter, DomainRef, Libvirt, LibvirtUri, StatsGroups, StatsOptions,
    rpc::{DomainState, DomainStatsRecord},
};
use futures::future::join_all;

/// Lists the domains of a libvirt daemon.
#[derive(Parser)]
struct Args {
    /// Where the daemon is: qemu:///system, qemu+tcp://HOST/system, qemu+tls://HOST/system, ch:///system
    #[arg(default_value = "qemu:///system")]
    uri: LibvirtUri,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let libvirt = Libvirt::connect_with(&Args::parse().uri, &ConnectOptions::new().read_only(true)).await?;
    print!("{}", table(&domains(&libvirt).await?));
    libvirt.close().await;
    Ok(())
}

/// What is shown of a domain. What a driver does not tell is `None`: no driver tells everything of every domain.
struct Line {
    domain: DomainRef,
    state: Option<DomainState>,
    vcpus: Option<u64>,
    memory_kib: Option<u64>,
    cpu_ns: Option<u64>,
}

async fn domains(libvirt: &Libvirt) -> cobalt_libvirt::Result<Vec<Line>> {
    let groups = StatsGroups::STATE | StatsGroups::CPU_TOTAL | StatsGroups::BALLOON | StatsGroups::VCPU;
    // One stuck domain must not hold up the list of all others.
    let options = StatsOptions { nowait: true, ..StatsOptions::default() };
    let mut lines = match libvirt.domain_stats(&[], groups, options).await {
        Ok(records) => records.into_iter().map(Line::from).collect(),
        // Cloud Hypervisor's driver has no bulk statistics.
        Err(error) if error.is_no_support() => one_by_one(libvirt).await?,
        Err(error) => return Err(error),
    };
    lines.sort_by(|one, other| one.domain.name.cmp(&other.domain.name));
    Ok(lines)
}

/// Side by side: the client sends the next question before the last answer is there.
async fn one_by_one(libvirt: &Libvirt) -> cobalt_libvirt::Result<Vec<Line>> {
    let domains = libvirt.domains(DomainFilter::ALL).await?;
    let asked = join_all(domains.iter().map(|domain| libvirt.domain_info(domain))).await;
    let mut lines = Vec::new();
    for (domain, info) in domains.into_iter().zip(asked) {
        match info {
            Ok(info) => lines.push(Line {
                domain,
                state: Some(info.state),
                vcpus: Some(info.vcpus.into()),
                memory_kib: Some(info.memory_kib),
                cpu_ns: Some(info.cpu_time_ns),
            }),
            // Gone since it was listed.
            Err(error) if error.is_no_domain() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(lines)
}

impl From<DomainStatsRecord> for Line {
    fn from(record: DomainStatsRecord) -> Self {
        let number = |name| record.params.get_u64(name);
        let state = record.params.get_i64("state.state").and_then(|state| i32::try_from(state).ok());
        Self {
            state: state.map(DomainState::from),
            vcpus: number("vcpu.current"),
            memory_kib: number("balloon.current"),
            cpu_ns: number("cpu.time"),
            domain: record.domain,
        }
    }
}

fn table(lines: &[Line]) -> String {
    let mut rows = vec![["ID", "NAME", "STATE", "VCPUS", "MEMORY", "CPU TIME"].map(String::from)];
    rows.extend(lines.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let [id, name, state, vcpus, memory, cpu] = [0, 1, 2, 3, 4, 5].map(width);
    let line = |[a, b, c, d, e, f]: &[String; 6]| {
        format!("{a:>id$}  {b:<name$}  {c:<state$}  {d:>vcpus$}  {e:>memory$}  {f:>cpu$}\n")
    };
    rows.iter().map(line).collect()
}

fn row(line: &Line) -> [String; 6] {
    let text = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    [
        text(line.domain.id.map(|id| id.to_string())),
        line.domain.name.clone(),
        text(line.state.map(|state| word(state).to_owned())),
        text(line.vcpus.map(|count| count.to_string())),
        text(line.memory_kib.map(|kib| format!("{} MiB", kib / 1024))),
        text(line.cpu_ns.map(|ns| format!("{}.{} s", ns / 1_000_000_000, ns / 100_000_000 % 10))),
    ]
}

fn word(state: DomainState) -> &'static str {
    match state {
        DomainState::Running => "running",
        DomainState::Blocked => "blocked",
        DomainState::Paused => "paused",
        DomainState::ShuttingDown => "shutting down",
        DomainState::ShutOff => "shut off",
        DomainState::Crashed => "crashed",
        DomainState::Suspended => "asleep",
        _ => "unknown",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use cobalt_libvirt::testing::{Recording, Server};

    #[tokio::test]
    async fn all_domains_are_listed_in_order_by_one_bulk_call() {
        const BULK: u32 = 344;
        let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../cobalt-libvirt/tests/recorded/qemu-9.0.jsonl");
        let server = Server::replay(Recording::parse(&std::fs::read_to_string(recorded).unwrap()).unwrap());
        server.start_domain("web", "55555555-bbbb-4000-8000-000000000001").unwrap();
        let xml = "<domain type='kvm'><name>db</name><uuid>55555555-bbbb-4000-8000-000000000002</uuid></domain>";
        server.put_domain(xml, false).unwrap();
        let address = server.listen_tcp().await.unwrap();
        let libvirt = Libvirt::connect(&format!("qemu+tcp://{address}/system")).await.unwrap();

        let table = table(&domains(&libvirt).await.unwrap());

        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].starts_with("ID  NAME  STATE"), "{table}");
        assert!(lines[1].contains("db") && lines[1].contains("shut off"), "{table}");
        assert!(lines[2].contains("web") && lines[2].contains("running") && lines[2].contains(" MiB"), "{table}");
        assert_eq!((lines.len(), server.count(BULK)), (3, 1), "{table}");
    }

    #[tokio::test]
    async fn a_driver_without_bulk_statistics_is_asked_for_each_domain() {
        let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../cobalt-libvirt/tests/recorded/ch-11.3.jsonl");
        let server = Server::replay(Recording::parse(&std::fs::read_to_string(recorded).unwrap()).unwrap());
        server.start_domain("web", "55555555-bbbb-4000-8000-000000000001").unwrap();
        let address = server.listen_tcp().await.unwrap();
        let libvirt = Libvirt::connect(&format!("ch+tcp://{address}/system")).await.unwrap();
        let table = table(&domains(&libvirt).await.unwrap());
        let line = table.lines().nth(1).unwrap();
        assert!(line.contains("web") && line.contains("running") && line.contains(" MiB"), "{table}");
    }

    #[test]
    fn a_uri_that_cannot_work_is_refused_before_anything_is_tried() {
        let refused = Args::try_parse_from(["domains_list", "qemu+carrier-pigeon://host/system"]).err().unwrap();
        assert!(refused.to_string().contains("carrier-pigeon"), "{refused}");
    }
}
