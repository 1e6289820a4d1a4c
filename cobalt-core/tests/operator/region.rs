//! A region of one host, as a view has seen it.

use std::sync::Arc;

use cobalt_apiserver::ApiServer;
use cobalt_core::{
    api::Hypervisor,
    ids::{AggregateId, HostName, ProviderId, ServiceId},
    nova::{
        Aggregate, ComputeService, MockNovaClient, MockPlacementClient, NovaHypervisor, ServiceState, Traits,
        view::ViewOptions,
    },
    operator::{Cloud, CloudSeen, Plan, Snapshot},
};
use kube::Client;

/// A cloud that answers nothing: a decision asks nobody.
pub(crate) fn cloud() -> Cloud {
    Cloud::new(Arc::new(MockNovaClient::new()), Arc::new(MockPlacementClient::new()), ViewOptions::default())
}

/// A client that nobody uses.
pub(crate) fn client() -> Client {
    Client::new(ApiServer::builder().start().service("nobody"), "default")
}

/// What Nova has of the host of a Hypervisor: its service, up and enabled, and its hypervisor, empty.
pub(crate) fn region(of: &Hypervisor) -> Region {
    let host = HostName::new(of.metadata.name.clone().unwrap());
    let status = of.status.clone().unwrap_or_default();
    let service = ServiceId::new(status.service_id.unwrap_or_else(|| "service".into()));
    let provider = ProviderId::new(status.hypervisor_id.unwrap_or_else(|| "provider".into()));
    Region {
        services: vec![ComputeService {
            id: service.clone(),
            host: host.clone(),
            zone: None,
            enabled: true,
            disabled_reason: None,
            state: ServiceState::Up,
            forced_down: false,
        }],
        hypervisors: vec![NovaHypervisor {
            id: provider,
            hostname: host.to_string(),
            host: host.clone(),
            service,
            kind: "QEMU".into(),
            state: ServiceState::Up,
            servers: Some(Vec::new()),
        }],
        host,
        aggregates: Vec::new(),
        traits: None,
    }
}

#[derive(Clone)]
pub(crate) struct Region {
    host: HostName,
    services: Vec<ComputeService>,
    hypervisors: Vec<NovaHypervisor>,
    aggregates: Vec<Aggregate>,
    traits: Option<Vec<String>>,
}

impl Region {
    pub(crate) fn disabled(mut self, reason: Option<&str>) -> Self {
        let service = &mut self.services[0];
        (service.enabled, service.disabled_reason) = (false, reason.map(str::to_owned));
        self
    }

    pub(crate) fn down(mut self) -> Self {
        self.services[0].state = ServiceState::Down;
        self
    }

    pub(crate) fn forced_down(mut self) -> Self {
        self.services[0].forced_down = true;
        self.down()
    }

    pub(crate) fn with_servers(mut self, servers: usize) -> Self {
        self.hypervisors[0].servers = Some((0..servers).map(|n| format!("vm-{n}").into()).collect());
        self
    }

    /// Known to nobody.
    pub(crate) fn unknown(mut self) -> Self {
        self.services.clear();
        self.hypervisors.clear();
        self
    }

    pub(crate) fn aggregate(mut self, name: &str, zone: Option<&str>, member: bool) -> Self {
        self.aggregates.push(Aggregate {
            id: AggregateId::new(format!("{}", self.aggregates.len() + 1)),
            uuid: format!("uuid of {name}"),
            name: name.to_owned(),
            zone: zone.map(str::to_owned),
            hosts: if member { vec![self.host.clone()] } else { Vec::new() },
            metadata: zone.iter().map(|zone| ("availability_zone".to_owned(), (*zone).to_owned())).collect(),
        });
        self
    }

    pub(crate) fn renamed(mut self, old: &str, new: &str) -> Self {
        let aggregate = self.aggregates.iter_mut().find(|one| one.name == old).unwrap();
        new.clone_into(&mut aggregate.name);
        self
    }

    pub(crate) fn with_traits(mut self, names: &[&str]) -> Self {
        self.traits = Some(names.iter().map(|name| (*name).to_owned()).collect());
        self
    }

    /// As a view shows it that has looked at everything.
    pub(crate) async fn seen(self) -> CloudSeen {
        let mut nova = MockNovaClient::new();
        let provider = self.hypervisors.first().map(|one| one.id.clone());
        let (services, hypervisors, aggregates) = (self.services, self.hypervisors, self.aggregates);
        nova.expect_services().returning(move || Ok(services.clone()));
        nova.expect_hypervisors().returning(move || Ok(hypervisors.clone()));
        nova.expect_aggregates().returning(move || Ok(aggregates.clone()));
        let mut placement = MockPlacementClient::new();
        let failed = || cobalt_core::Error::not_found("read traits");
        placement.expect_traits().returning(move |_| Err(failed()));
        let cloud = Cloud::new(Arc::new(nova), Arc::new(placement), ViewOptions::default());
        let run = tokio::spawn(cloud.view.clone().run());
        let mut news = cloud.view.subscribe();
        news.wait_for(|seen| seen.is_complete()).await.unwrap();
        run.abort();
        if let (Some(provider), Some(names)) = (provider, self.traits) {
            cloud.view.learn_traits(&provider, Traits { names: names.into_iter().collect(), generation: 1 });
        }
        CloudSeen::Known(cloud.view.snapshot())
    }

    pub(crate) async fn around(self, mut seen: Snapshot) -> Snapshot {
        seen.cloud = self.seen().await;
        seen
    }
}

/// What a plan wants done, in words.
pub(crate) fn wishes(plan: &Plan) -> Vec<String> {
    plan.actions().values().map(|action| action.describe()).collect()
}

/// `status/reason` of a condition.
pub(crate) fn said(plan: &Plan, type_: &str) -> Option<String> {
    plan.condition(type_).map(|condition| format!("{}/{}", condition.status, condition.reason))
}
