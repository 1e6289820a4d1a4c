//! An operator of your own: the stages you choose, on any cloud behind the seams.
//!
//! This one brings hosts into Nova and keeps their aggregates and traits, but leaves maintenance and draining to others:
//! the stages for those are taken out of the list, and the Evictions, which no stage drains, are let alone. It adds a stage that acts: a host that goes into service is worth a line
//! in somebody's chat. Here the cloud is simulated; `cobalt_openstack::OpenStack` gives the same seams on a real one.
//!
//!     cargo run -p cobalt-examples --example custom_operator
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use async_trait::async_trait;
use cobalt_core::{
    api::{Condition, condition_types, labels},
    nova::view::ViewOptions,
    operator::{Action, Cloud, Operator, Outcome, Plan, Progress, Settings, Snapshot, Stage, stages},
    runtime::shutdown::Shutdown,
};
use cobalt_sim::Region;
use kube::Client;

/// What this operator leaves to others.
const NOT_OURS: [&str; 2] = ["maintenance", "offboarding"];

/// Tells somebody when Nova has a host in service for the first time.
struct FirstService;

impl Stage for FirstService {
    fn name(&self) -> &'static str {
        "first-service"
    }

    fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
        let Some(service) = seen.service().filter(|service| service.enabled) else { return };
        if plan.condition("FirstServiceTold").is_some_and(Condition::is_true) {
            return;
        }
        let zone = service.zone.clone().unwrap_or_default();
        let tell = Tell { host: seen.name.clone(), zone };
        // Done is said only after it was done: the outcome of the action is there when the stages decide again.
        if seen.outcomes.get(&tell.key()) == Some(&Outcome::Done) {
            plan.set(Condition::new("FirstServiceTold", true.into(), "Told", "The chat knows of this host"));
        } else {
            plan.act(Arc::new(tell));
        }
    }
}

#[derive(Debug)]
struct Tell {
    host: String,
    zone: String,
}

#[async_trait]
impl Action for Tell {
    fn key(&self) -> String {
        format!("tell of {} in service", self.host)
    }

    async fn run(&self) -> cobalt_core::Result<Progress> {
        println!("chat: {} takes servers, in zone {}", self.host, self.zone);
        Ok(Progress::Done)
    }
}

fn operator(region: &Region, client: Client) -> Operator {
    let cloud = Cloud::new(Arc::new(region.nova()), Arc::new(region.placement()), ViewOptions::default());
    let mut list = stages(&Settings::default(), &cloud, &client);
    list.retain(|stage| !NOT_OURS.contains(&stage.name()));
    list.insert(1, Arc::new(FirstService));
    // With a cloud an operator drains hosts unless told otherwise, whatever its stages are.
    Operator::new(client).cloud(cloud, Settings::default()).stages(list).drains(false)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let region = Region::builder().hosts(2).vms_per_host(3).build();
    let cluster = region.cluster().await?;
    cluster.join_all().await?;

    let stop = Shutdown::new();
    let operator = operator(&region, cluster.client("my-operator"));
    println!("{operator:?}");
    let running = tokio::spawn(operator.run(stop.clone()));

    for host in region.hosts() {
        cluster.label(&host, labels::ZONE, Some("zone-a")).await?;
        let told = |hypervisor: &cobalt_core::api::Hypervisor| hypervisor.is_true("FirstServiceTold");
        let hypervisor = cobalt_examples::wait_for(cluster.client("reader"), host.as_str(), told).await?;
        let ready = hypervisor.condition(condition_types::READY).map(|ready| ready.message.clone());
        println!("{host}: {}", ready.unwrap_or_default());
    }
    stop.trigger();
    running.await??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cobalt_core::api::{Eviction, EvictionSpec, Hypervisor};
    use kube::{Api, api::PostParams};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn draining_is_left_to_others() {
        let region = Region::builder().hosts(2).vms_per_host(1).build();
        let cluster = region.cluster().await.unwrap();
        cluster.join_all().await.unwrap();
        let (client, stop) = (cluster.client("somebody"), Shutdown::new());
        let running = tokio::spawn(operator(&region, cluster.client("my-operator")).run(stop.clone()));
        let host = region.hosts()[0].to_string();
        let told = |hypervisor: &Hypervisor| hypervisor.is_true("FirstServiceTold");
        cobalt_examples::wait_for(client.clone(), &host, told).await.unwrap();

        let evictions: Api<Eviction> = Api::all(client);
        let spec = EvictionSpec { hypervisor: host.clone(), reason: "a test".into() };
        evictions.create(&PostParams::default(), &Eviction::new(&host, spec)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(evictions.get(&host).await.unwrap().status, None, "our operator has worked on it");
        stop.trigger();
        running.await.unwrap().unwrap();
    }
}
