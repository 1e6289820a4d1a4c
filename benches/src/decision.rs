//! A host as the operator decides about it most often: onboarded, at rest, in a region of a thousand. And one with 50
//! servers that is being drained.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use cobalt_core::{
    api::{
        ConditionStatus, Eviction, condition_types, labels,
        testing::{MADE_AT, eviction, hypervisor, node},
    },
    ids::HostName,
    jiff::Timestamp,
    nova::{Migration, MigrationKind, MigrationPhase, NovaClient, Server, ServerStatus, view::ViewOptions},
    operator::{
        AgentSeen, Cloud, CloudSeen, Outcome, Settings, Snapshot, Stage,
        eviction::{DrainSeen, DrainSettings, HostSeen, HostState, InFlight, Room, decide},
        stages,
    },
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

/// A host that is drained eight servers at a time, and what is seen of it at one look.
#[derive(Debug)]
pub struct Drain {
    /// What is decided about.
    pub seen: DrainSeen,
    /// How hosts are drained.
    pub settings: DrainSettings,
    /// When.
    pub now: Timestamp,
}

impl Drain {
    /// Looks at it in the middle: eight servers move, the others are recorded and wait, each has been moved before, and
    /// twenty hosts have room for it.
    pub fn under_way() -> anyhow::Result<Self> {
        let mut drain = Self::new()?;
        drain.settings.target_concurrency = 2;
        let HostSeen::Known(mut state) = drain.seen.cloud else { bail!("the host was not seen") };
        let other = |number: usize| HostName::new(format!("other-{number}"));
        let room = |number| Room { host: other(number), zone: None, free: [("MEMORY_MB".to_owned(), 9000)].into() };
        let rooms: Vec<Arc<Room>> = (0..20).map(room).map(Arc::new).collect();
        state.room = state.servers.iter().map(|server| (server.id.clone(), rooms.clone())).collect();
        let record = |number: usize, server: &Server, phase| Migration {
            id: number.to_string().into(),
            server: server.id.clone(),
            kind: MigrationKind::Live,
            phase,
            source: drain.seen.host.clone(),
            destination: Some(other(number % 20)),
            created_at: Some(drain.now),
            updated_at: Some(drain.now),
        };
        let past = state.servers.iter().enumerate();
        let past: Vec<Migration> =
            past.map(|(number, server)| record(number, server, MigrationPhase::Completed)).collect();
        // The first look, written down.
        drain.seen.cloud = HostSeen::Known(state.clone());
        let first = decide(&drain.seen, &drain.settings, drain.now);
        drain.seen.outcomes = first.steps.iter().map(|step| (step.key(), Outcome::Done)).collect();
        let status = decide(&drain.seen, &drain.settings, drain.now).status;
        let moves = |server: &Server| drain.seen.outcomes.contains_key(&format!("move {}", server.id));
        let begun = state.servers.iter().filter(|server| moves(server)).enumerate();
        let begun = begun.map(|(number, server)| record(100 + number, server, MigrationPhase::Running));
        state.migrations = begun.chain(past).collect();
        for server in state.servers.iter_mut().filter(|server| moves(server)) {
            server.status = ServerStatus::Migrating;
        }
        drain.seen.outcomes.clear();
        drain.seen.eviction = Arc::new(Eviction { status: Some(status), ..(*drain.seen.eviction).clone() });
        drain.seen.cloud = HostSeen::Known(state);
        Ok(drain)
    }

    /// Looks at a simulated host once.
    pub fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(Self::of_a_host())
    }

    async fn of_a_host() -> anyhow::Result<Self> {
        let region = Region::builder().hosts(2).vms_per_host(50).seed(1).build();
        let (nova, host) = (region.nova(), region.hosts().into_iter().next().context("a host")?);
        let id = nova.service_on(&host).await?.id;
        nova.disable_service(&id, "to be drained").await?;
        let (service, servers) = (nova.service_on(&host).await?, nova.servers_on(&host).await?);
        let state = HostState { service: Some(service), servers, ..HostState::default() };
        let mut settings = DrainSettings::default();
        settings.concurrency = 8;
        let seen = DrainSeen {
            eviction: Arc::new(eviction(host.as_str()).running().build()),
            hypervisor: Arc::new(
                hypervisor(host.as_str())
                    .onboarded()
                    .with_instances(50)
                    .with_condition(condition_types::HYPERVISOR_DISABLED, ConditionStatus::True, "Succeeded")
                    .build(),
            ),
            agent: AgentSeen::Alive,
            host,
            cloud: HostSeen::Known(Box::new(state)),
            stands_back_for: None,
            elsewhere: InFlight::default(),
            empty_since: None,
            stopping: BTreeMap::new(),
            outcomes: BTreeMap::new(),
        };
        Ok(Self { seen, settings, now: MADE_AT })
    }
}
