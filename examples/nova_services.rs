//! The compute services of an OpenStack region with what Nova and Placement know of their hosts, by four calls however
//! many there are.
//!
//!     export OS_CLOUD=mycloud      # or OS_AUTH_URL, OS_USERNAME, OS_PASSWORD, …
//!     cargo run -p cobalt-examples --example nova_services
//!     cargo run -p cobalt-examples --example nova_services -- --help
//!
//! Without a cloud: `cargo xtask rig up openstack` brings one up and prints its variables.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;

use clap::Parser;
use cobalt_core::nova::{Aggregate, ComputeService, NovaHypervisor, ServiceState};
use cobalt_openstack::{Cloud, NovaClient, OpenStack, PlacementClient};

/// Lists the compute hosts of an OpenStack region.
#[derive(Parser)]
struct Args {
    /// Only hosts that are disabled, down or declared down
    #[arg(long)]
    troubled: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let openstack = OpenStack::connect(&Cloud::from_env()?).await?;
    print!("{}", hosts(&openstack, args.troubled).await?);
    Ok(())
}

async fn hosts(openstack: &OpenStack, troubled: bool) -> anyhow::Result<String> {
    let (nova, placement) = (openstack.nova(), openstack.placement());
    let (services, hypervisors, aggregates, providers) =
        tokio::try_join!(nova.services(), nova.hypervisors(), nova.aggregates(), placement.providers())?;
    let known = providers.into_iter().map(|provider| provider.id).collect::<std::collections::BTreeSet<_>>();
    let by_host: BTreeMap<_, _> = hypervisors.iter().map(|hypervisor| (&hypervisor.host, hypervisor)).collect();
    let mut rows = vec![["HOST", "ZONE", "STATE", "TYPE", "PROVIDER", "AGGREGATES"].map(String::from)];
    for service in services.iter().filter(|service| !troubled || is_troubled(service)) {
        let hypervisor = by_host.get(&service.host).copied();
        let provider = hypervisor.map(|hypervisor| known.contains(&hypervisor.id));
        rows.push(row(service, hypervisor, provider, &aggregates));
    }
    Ok(table(&rows))
}

fn is_troubled(service: &ComputeService) -> bool {
    !service.enabled || service.forced_down || service.state == ServiceState::Down
}

fn state(service: &ComputeService) -> String {
    let mut words = vec![if service.state == ServiceState::Up { "up" } else { "down" }.to_owned()];
    if service.forced_down {
        words.push("declared down".into());
    }
    if !service.enabled {
        let reason = service.disabled_reason.as_deref().unwrap_or("no reason given");
        words.push(format!("disabled: {reason}"));
    }
    words.join(", ")
}

fn row(
    service: &ComputeService,
    hypervisor: Option<&NovaHypervisor>,
    provider: Option<bool>,
    aggregates: &[Aggregate],
) -> [String; 6] {
    let mine = aggregates.iter().filter(|aggregate| aggregate.hosts.contains(&service.host));
    let mine: Vec<&str> = mine.map(|aggregate| aggregate.name.as_str()).collect();
    let dash = || "-".to_owned();
    [
        service.host.to_string(),
        service.zone.clone().unwrap_or_else(dash),
        state(service),
        hypervisor.map_or_else(dash, |hypervisor| hypervisor.kind.clone()),
        // A host without a provider gets no servers, whatever Nova says.
        provider.map_or_else(dash, |there| if there { "yes" } else { "missing" }.to_owned()),
        mine.join(","),
    ]
}

fn table(rows: &[[String; 6]]) -> String {
    let widths: [usize; 6] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use cobalt_sim::Region;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_hosts_of_a_region_are_listed_by_four_calls() -> anyhow::Result<()> {
        let region = Region::builder().hosts(2).zones(["zone-a", "zone-b"]).build();
        let nova = region.nova();
        let service = nova.service_on(&region.hosts()[1]).await?;
        nova.disable_service(&service.id, "a fan").await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (served, api) = (region.clone(), region.openstack());
        let cloud = Cloud::from_vars(api.environment(listener.local_addr()?))?;
        let serving = tokio::spawn(async move { served.serve_openstack(listener, std::future::pending()).await });

        let openstack = OpenStack::connect(&cloud).await?;
        api.counters().reset();
        let all = hosts(&openstack, false).await?;
        assert_eq!(api.counters().sum(), 4, "{:?}", api.counters().all());
        let lines: Vec<_> = all.lines().collect();
        assert_eq!(
            lines,
            [
                "HOST    ZONE    STATE                TYPE  PROVIDER  AGGREGATES",
                "hv-000  zone-a  up                   QEMU  yes       zone-a",
                "hv-001  zone-b  up, disabled: a fan  QEMU  yes       zone-b",
            ]
        );
        let troubled = hosts(&openstack, true).await?;
        assert!(!troubled.contains("hv-000") && troubled.contains("hv-001"), "{troubled}");
        serving.abort();
        Ok(())
    }

    #[test]
    fn a_disabled_host_shows_who_said_so_and_counts_as_troubled() {
        let mut service = ComputeService {
            id: "1".into(),
            host: "hv-1".into(),
            zone: None,
            enabled: true,
            disabled_reason: None,
            state: ServiceState::Up,
            forced_down: false,
        };
        assert!(!is_troubled(&service));
        service.enabled = false;
        service.disabled_reason = Some("maintenance".into());
        assert!(is_troubled(&service));
        let row = row(&service, None, None, &[]);
        assert_eq!(row, ["hv-1", "-", "up, disabled: maintenance", "-", "-", ""].map(String::from));
        assert_eq!(table(&[row]), "hv-1  -  up, disabled: maintenance  -  -\n");
    }
}
