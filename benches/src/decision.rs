//! A host as the operator decides about it most often: onboarded, at rest, in a region of a thousand.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use cobalt_core::{
    api::{
        labels,
        testing::{MADE_AT, hypervisor, node},
    },
    ids::HostName,
    nova::view::ViewOptions,
    operator::{Cloud, CloudSeen, Settings, Snapshot, Stage, stages},
};
use cobalt_sim::Region;

const HOSTS: usize = 1000;

/// All stages of an operator with a cloud, and what they see.
pub struct Decision {
    /// The stages in their order.
    pub stages: Vec<Arc<dyn Stage>>,
    /// What is decided about.
    pub seen: Snapshot,
}

impl std::fmt::Debug for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decision").field("seen", &self.seen.name).finish_non_exhaustive()
    }
}

impl Decision {
    /// Looks at a simulated region once, which ends afterwards: what was seen of it is all that is decided on.
    pub fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(Self::in_region())
    }

    async fn in_region() -> anyhow::Result<Self> {
        let region = Region::builder().hosts(HOSTS).vms_per_host(50).seed(1).build();
        for name in ["a", labels::TEST_AGGREGATE] {
            region.add_aggregate(name, None);
        }
        // Nobody is kept busy by a simulated region, so its traits need not be read at a bounded rate.
        let options = ViewOptions { trait_interval: Duration::ZERO, ..ViewOptions::default() };
        let cloud = Cloud::new(Arc::new(region.nova()), Arc::new(region.placement()), options);
        let looking = tokio::spawn(cloud.view.clone().run());
        let mut news = cloud.view.subscribe();
        let wanted = |seen: &Arc<cobalt_core::nova::view::Snapshot>| {
            seen.is_complete() && seen.trait_age(tokio::time::Instant::now()).is_some()
        };
        let view = news.wait_for(wanted).await.context("the view ended")?.clone();
        looking.abort();

        let name = region.hosts().into_iter().nth(HOSTS / 2).context("a host")?;
        let seen = Self::seen(&name, view)?;
        let client = region.client("bench").await?;
        Ok(Self { stages: stages(&Settings::default(), &cloud, &client), seen })
    }

    fn seen(name: &HostName, view: Arc<cobalt_core::nova::view::Snapshot>) -> anyhow::Result<Snapshot> {
        let mut written = hypervisor(name.as_str()).onboarded().with_instances(50).build();
        let status = written.status.get_or_insert_default();
        status.hypervisor_id = Some(view.hypervisor_on(name).context("a hypervisor")?.id.to_string());
        status.service_id = Some(view.service_on(name).context("a service")?.id.to_string());
        let mut seen = Snapshot::new(name.as_str(), MADE_AT);
        let node = node(name.as_str()).with_kvm().managed().with_label(labels::ZONE, "zone-a");
        seen.node = Some(Arc::new(node.with_internal_ip("10.0.0.1").build()));
        seen.hypervisor = Some(Arc::new(written));
        seen.cloud = CloudSeen::Known(view);
        Ok(seen)
    }
}
