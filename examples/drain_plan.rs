//! What the drain of a host would do, in a simulated region: who goes where, who stays and why.
//!
//!     cargo run -p cobalt-examples --example drain_plan
//!
//! On a real cloud `cobaltctl plan evict HOST` asks the same.
#![allow(clippy::print_stdout)]

use cobalt_core::{
    nova::{NovaClient, PlacementClient, ServerStatus},
    operator::eviction::{EvictionPlan, PlanOptions, plan},
};
use cobalt_sim::Region;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> anyhow::Result<()> {
    let region = Region::builder().hosts(3).vms_per_host(4).seed(1).build();
    let (nova, placement, host) = (region.nova(), region.placement(), region.hosts()[0].clone());
    // One on a local disk, one shut off, one broken.
    region.boot(&host, "5")?;
    let servers = nova.servers_on(&host).await?;
    region.world().guest_shutdown(&servers[0].id)?;
    nova.reset_state(&servers[1].id, ServerStatus::Error).await?;

    print!("{}", forecast(&nova, &placement, &host).await?);
    nova.delete_server(&servers[1].id).await?;
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    print!("\nWithout the broken one:\n\n{}", forecast(&nova, &placement, &host).await?);
    Ok(())
}

async fn forecast(
    nova: &dyn NovaClient,
    placement: &dyn PlacementClient,
    host: &cobalt_core::ids::HostName,
) -> anyhow::Result<String> {
    let options = PlanOptions { concurrency: 2, ..PlanOptions::default() };
    Ok(text(&plan(nova, placement, host, &options).await?))
}

fn text(plan: &EvictionPlan) -> String {
    let lines = plan.moves.iter().map(|one| {
        let fate = match (&one.target, &one.why_not) {
            (_, Some(why)) => format!("stays: {why}"),
            (Some(target), None) => format!("{} to {target}", one.how),
            (None, None) => "leaves by itself".to_owned(),
        };
        let risks = one.risks.iter().fold(String::new(), |text, risk| format!("{text} ({risk})"));
        format!("  {:<10} {fate}{risks}\n", one.name)
    });
    let end = if plan.would_succeed {
        format!("would be empty after about {} s", plan.seconds)
    } else {
        "would not be empty".to_owned()
    };
    format!("{} {end}\n{}", plan.host, lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_one_that_stays_is_told_with_its_reason() {
        let region = Region::builder().hosts(2).vms_per_host(2).seed(1).build();
        let (nova, placement, host) = (region.nova(), region.placement(), region.hosts()[0].clone());
        let servers = nova.servers_on(&host).await.unwrap();
        nova.reset_state(&servers[1].id, ServerStatus::Error).await.unwrap();
        let said = forecast(&nova, &placement, &host).await.unwrap();
        assert!(said.starts_with("hv-000 would not be empty\n"), "{said}");
        assert!(said.contains("live to hv-001") && said.contains("stays: it is in ERROR"), "{said}");
    }
}
