//! How a host leaves, and that nothing is written while nothing happens.

use std::time::Duration;

use cobalt_core::{
    api::{Hypervisor, condition_types, labels},
    nova::{NovaClient, PlacementClient},
};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tokio::time::Instant;

use super::{super::stage::DEMO, DemoError, Story, Told, after, count, failed};

impl Story<'_> {
    pub(super) async fn a_host_leaves(&self) -> Told {
        self.chapter("A host leaves")?;
        let host = self.last();
        let since = Instant::now();
        self.stage.cluster.terminate(host).await?;
        let (hypervisor, time) = self
            .follow(since, host, "to be terminating", |hypervisor| {
                hypervisor.is_true(condition_types::TERMINATING) && !hypervisor.spec.maintenance().is_off()
            })
            .await?;
        self.say(format!(
            "Node {host} was marked as terminating. {time} later its Hypervisor was too, with maintenance {}, and Ready \
             was False: {}.",
            hypervisor.spec.maintenance(),
            message(&hypervisor).unwrap_or_default(),
        ))
        .await?;
        let hypervisor = self.drained(host).await?;
        if hypervisor.is_false(condition_types::EVICTING) {
            self.offboarded(since).await?;
        } else {
            let evicting = hypervisor.condition(condition_types::EVICTING).cloned().unwrap_or_default();
            self.say(format!(
                "Its servers have nowhere to go, so it is not taken out: Evicting is True, reason {}: {}. Its Node goes \
                 all the same; the operator keeps the Hypervisor for a while, says what is left in Nova, and lets go.",
                evicting.reason, evicting.message,
            ))
            .await?;
            // The story ends here for them, and for their host with it.
            self.stage.region.world().stop_compute(host)?;
        }
        self.node_goes().await
    }

    /// The drained host is taken out of Nova.
    async fn offboarded(&self, since: Instant) -> Told {
        let host = self.last();
        self.say(format!(
            "{} after that the host was empty. The operator tainted its Node ({}), so that the agents there end.",
            after(since),
            labels::OFFBOARDING_TAINT,
        ))
        .await?;
        self.tainted().await?;
        self.stage.region.world().stop_compute(host)?;
        let gone = |hypervisor: &Hypervisor| hypervisor.is_true(condition_types::OFFBOARDED);
        let (_, time) = self.follow(since, host, "to be offboarded", gone).await?;
        let nova = self.stage.region.nova().services().await.map_err(DemoError::Cloud)?;
        let placement = self.stage.region.placement().providers().await.map_err(DemoError::Cloud)?;
        self.say(format!(
            "As kubelet would, the demo ended nova-compute there. When Nova had noticed, the operator took the host out \
             of its aggregates and deleted its compute service and its provider: {time} after the first word Nova has \
             {}, Placement {}, and none of them is {host}.",
            count(nova.len(), "compute service"),
            count(placement.len(), "provider"),
        ))
        .await
    }

    /// Waits for the taint on the Node of the host that leaves.
    async fn tainted(&self) -> Told {
        const LIMIT: Duration = Duration::from_secs(60);
        let (host, since) = (self.last(), Instant::now());
        let nodes: Api<Node> = Api::all(self.stage.client(DEMO));
        loop {
            let node = nodes.get(host.as_str()).await.map_err(failed(format!("look at Node {host}")))?;
            let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            if taints.iter().any(|taint| taint.key == labels::OFFBOARDING_TAINT) {
                return Ok(());
            }
            if since.elapsed() > LIMIT {
                return Err(DemoError::NotSeen { what: format!("a taint on Node {host}"), limit: LIMIT });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn node_goes(&self) -> Told {
        let host = self.last();
        let since = Instant::now();
        self.stage.cluster.remove(host).await?;
        self.stage.stop_agent(host);
        self.seen
            .until(format!("Hypervisor {host} to go with its Node"), |seen| {
                seen.get(host.as_str()).is_none().then_some(())
            })
            .await?;
        self.say(format!(
            "The Node was deleted, and {} later its Hypervisor was gone: it belonged to the Node, so the API server's \
             garbage collector took it. {} left.",
            after(since),
            count(self.seen.all().len(), "Hypervisor"),
        ))
        .await?;
        self.end().await
    }

    pub(super) async fn rest(&self) -> Told {
        self.chapter("Rest")?;
        self.settle().await?;
        let time = Duration::from_secs(if self.narrator.look().fast { 1 } else { 3 });
        let before = self.stage.traffic();
        tokio::time::sleep(time).await;
        let after = self.stage.traffic();
        let writes = after.writes() - before.writes();
        if writes > 0 {
            return Err(DemoError::NotAtRest { writes, time });
        }
        self.say(format!(
            "Nothing happened for {}, and nothing was written: {writes} writes by the operator and the agents, {} other \
             requests. What is as it should be costs nothing.",
            super::seconds(time),
            (after.operator.requests + after.agents.requests) - (before.operator.requests + before.agents.requests),
        ))
        .await?;
        self.end().await
    }

    /// Waits until the last echoes (Events, above all) have been written.
    async fn settle(&self) -> Told {
        const QUIET: Duration = Duration::from_millis(500);
        const LIMIT: Duration = Duration::from_secs(15);
        let since = Instant::now();
        loop {
            let before = self.stage.traffic();
            tokio::time::sleep(QUIET).await;
            let writes = self.stage.traffic().writes() - before.writes();
            if writes == 0 {
                return Ok(());
            }
            if since.elapsed() > LIMIT {
                return Err(DemoError::NotAtRest { writes, time: QUIET });
            }
        }
    }
}

fn message(hypervisor: &Hypervisor) -> Option<&str> {
    hypervisor.condition(condition_types::READY).map(|ready| ready.message.as_str())
}
