//! Every domain of a libvirt daemon, by one bulk call, however many there are.
//!
//!     cargo run -p cobalt-examples --example domains_list
//!     cargo run -p cobalt-examples --example domains_list -- qemu+tcp://10.0.0.7/system
//!     cargo run -p cobalt-examples --example domains_list -- --help
#![allow(clippy::print_stdout)]

use clap::Parser;
use cobalt_libvirt::{
    ConnectOptions, Libvirt, LibvirtUri, StatsGroups, StatsOptions,
    rpc::{DomainState, DomainStatsRecord},
};

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

async fn domains(libvirt: &Libvirt) -> cobalt_libvirt::Result<Vec<DomainStatsRecord>> {
    let groups = StatsGroups::STATE | StatsGroups::CPU_TOTAL | StatsGroups::BALLOON | StatsGroups::VCPU;
    // One stuck domain must not hold up the list of all others.
    let options = StatsOptions { nowait: true, ..StatsOptions::default() };
    let mut records = libvirt.domain_stats(&[], groups, options).await?;
    records.sort_by(|one, other| one.domain.name.cmp(&other.domain.name));
    Ok(records)
}

fn table(records: &[DomainStatsRecord]) -> String {
    let mut rows = vec![["ID", "NAME", "STATE", "VCPUS", "MEMORY", "CPU TIME"].map(String::from)];
    rows.extend(records.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let [id, name, state, vcpus, memory, cpu] = [0, 1, 2, 3, 4, 5].map(width);
    let line = |[a, b, c, d, e, f]: &[String; 6]| {
        format!("{a:>id$}  {b:<name$}  {c:<state$}  {d:>vcpus$}  {e:>memory$}  {f:>cpu$}\n")
    };
    rows.iter().map(line).collect()
}

/// What a driver does not tell is a dash: no driver tells everything of every domain.
fn row(record: &DomainStatsRecord) -> [String; 6] {
    let number = |name| record.params.get_u64(name);
    let text = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let state = record.params.get_i64("state.state").and_then(|state| i32::try_from(state).ok());
    [
        text(record.domain.id.map(|id| id.to_string())),
        record.domain.name.clone(),
        text(state.map(|state| word(state.into()).to_owned())),
        text(number("vcpu.current").map(|count| count.to_string())),
        text(number("balloon.current").map(|kib| format!("{} MiB", kib / 1024))),
        text(number("cpu.time").map(|ns| format!("{}.{} s", ns / 1_000_000_000, ns / 100_000_000 % 10))),
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

    #[test]
    fn a_uri_that_cannot_work_is_refused_before_anything_is_tried() {
        let refused = Args::try_parse_from(["domains_list", "qemu+carrier-pigeon://host/system"]).err().unwrap();
        assert!(refused.to_string().contains("carrier-pigeon"), "{refused}");
    }
}
