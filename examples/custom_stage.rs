//! A stage of your own in the operator's list.
//!
//! The stage below decides a condition from what was seen, and nothing else: no IO, no clock. The operator does the rest:
//! it writes the condition when it changes, keeps it when the stage is dropped again, and tells people by an Event.
//!
//!     cargo run -p cobalt-examples --example custom_stage
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use cobalt_core::{
    api::{Condition, labels},
    operator::{Operator, Plan, Snapshot, Stage, default_stages},
    runtime::shutdown::Shutdown,
};
use cobalt_sim::Region;

/// Says whether a host stands in one of the zones that have emergency power.
struct EmergencyPower {
    zones: Vec<String>,
}

impl Stage for EmergencyPower {
    fn name(&self) -> &'static str {
        "emergency-power"
    }

    fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
        let Some(zone) = seen.node_label(labels::ZONE) else {
            return; // nothing to say yet; what was said before is kept
        };
        let backed = self.zones.iter().any(|known| known == zone);
        let reason = if backed { "ZoneHasGenerator" } else { "ZoneHasNone" };
        plan.set(Condition::new("EmergencyPower", backed.into(), reason, format!("zone {zone}")));
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let region = Region::builder().hosts(2).zones(["zone-a", "zone-b"]).build();
    let cluster = region.cluster().await?;
    cluster.join_all().await?;

    let mut stages = default_stages();
    stages.insert(1, Arc::new(EmergencyPower { zones: vec!["zone-b".into()] }));
    let stop = Shutdown::new();
    tokio::spawn(Operator::new(cluster.client("my-operator")).stages(stages).run(stop.clone()));

    for host in region.hosts() {
        let client = cluster.client("reader");
        let judged = |hypervisor: &cobalt_core::api::Hypervisor| hypervisor.condition("EmergencyPower").is_some();
        let hypervisor = cobalt_examples::wait_for(client, host.as_str(), judged).await?;
        if let Some(condition) = hypervisor.condition("EmergencyPower") {
            println!("{host}: EmergencyPower={} ({}: {})", condition.status, condition.reason, condition.message);
        }
    }
    stop.trigger();
    Ok(())
}
