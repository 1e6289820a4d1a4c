//! How a host leaves, and that nothing is written while nothing happens.

use std::time::Duration;

use cobalt_core::{
    api::{Hypervisor, condition_types, labels},
    nova::{NovaClient, PlacementClient},
};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tokio::time::Instant;

use super::{
    super::{
        observe::LIMIT,
        stage::{DEMO, Traffic},
    },
    DemoError, Story, Told, after, count, failed,
};

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
        let time = Duration::from_secs(if self.narrator.look().fast { 1 } else { 3 });
        let requests = quiet(|| self.stage.traffic(), time).await?;
        self.say(format!(
            "Nothing happened for {}, and nothing was written: 0 writes by the operator and the agents, {requests} other \
             requests. What is as it should be costs nothing.",
            super::seconds(time),
        ))
        .await?;
        self.end().await
    }
}

/// Waits for this long a time in which nothing is written, and tells how many requests there were in it.
///
/// What has happened has echoes (Events, above all), and on a busy machine they come late. Each only means to wait anew; a
/// region that never rests is the error.
async fn quiet(traffic: impl Fn() -> Traffic, time: Duration) -> Result<u64, DemoError> {
    let since = Instant::now();
    loop {
        let before = traffic();
        tokio::time::sleep(time).await;
        let after = traffic();
        let writes = after.writes() - before.writes();
        if writes == 0 {
            return Ok(after.requests() - before.requests());
        }
        if since.elapsed() > LIMIT {
            return Err(DemoError::NotAtRest { writes, time, limit: LIMIT });
        }
    }
}

fn message(hypervisor: &Hypervisor) -> Option<&str> {
    hypervisor.condition(condition_types::READY).map(|ready| ready.message.as_str())
}

#[cfg(test)]
mod tests {
    use cobalt_apiserver::Counts;

    use super::*;

    const TIME: Duration = Duration::from_secs(1);

    /// Waits for an operator that asks something every second, and has written so often after so many of them.
    async fn rest_of(written: impl Fn(u64) -> u64) -> Result<u64, DemoError> {
        let began = Instant::now();
        let traffic = || {
            let second = began.elapsed().as_secs();
            Traffic { operator: Counts { requests: second, writes: written(second) }, ..Traffic::default() }
        };
        quiet(traffic, TIME).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_write_only_means_to_wait_anew() {
        let began = Instant::now();
        assert_eq!(rest_of(|second| second.min(4)).await.ok(), Some(1));
        assert_eq!(began.elapsed().as_secs(), 5, "until a second was quiet");
    }

    #[tokio::test(start_paused = true)]
    async fn a_region_that_never_rests_is_an_error() {
        let told = rest_of(|second| second).await;
        assert!(matches!(told, Err(DemoError::NotAtRest { writes: 1, .. })), "{told:?}");
    }
}
