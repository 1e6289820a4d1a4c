//! The decision about a drain: what is seen on the left, what is wanted on the right.

mod plan;
mod property;
mod table;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cobalt_core::{
    api::{ConditionStatus, EvictedInstance, Eviction, Hypervisor, conditions, testing},
    nova::{ComputeService, Migration, MigrationKind, MigrationPhase, Server, ServerStatus, ServiceState},
    operator::{
        AgentSeen,
        eviction::{DrainPlan, DrainSeen, DrainSettings, HostSeen, HostState, InFlight, Room},
    },
};
use jiff::Timestamp;
use serde_json::json;

const START: Timestamp = Timestamp::constant(1_770_000_000, 0);

fn at(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

fn hypervisor(disabled: bool, instances: i32) -> Hypervisor {
    let status = if disabled { "True" } else { "False" };
    serde_json::from_value(json!({
        "metadata": {"name": "hv-1"},
        "spec": {},
        "status": {
            "hypervisorId": "p-1", "serviceId": "s-1", "numInstances": instances,
            "conditions": [
                {"type": "HypervisorDisabled", "status": status, "reason": "Succeeded", "message": ""},
                {"type": "LibVirtConnection", "status": "True", "reason": "Connected", "message": ""},
            ],
        },
    }))
    .unwrap()
}

fn service(enabled: bool) -> ComputeService {
    ComputeService {
        id: "s-1".into(),
        host: "hv-1".into(),
        zone: None,
        enabled,
        disabled_reason: None,
        state: ServiceState::Up,
        forced_down: false,
    }
}

fn server(id: &str, status: ServerStatus) -> Server {
    Server {
        id: id.into(),
        name: format!("name-{id}"),
        project: "p".into(),
        powered: status == ServerStatus::Active,
        status,
        task: None,
        host: Some("hv-1".into()),
        locked: false,
        memory_mb: 1000,
        vcpus: 1,
        local_disk: false,
        local_disk_gb: 0,
        volumes: Vec::new(),
        required_traits: Vec::new(),
        zone: None,
        fault: None,
        created_at: None,
        launched_at: None,
    }
}

fn migration(number: usize, server: &str, kind: MigrationKind, phase: MigrationPhase) -> Migration {
    Migration {
        id: number.to_string().into(),
        server: server.into(),
        kind,
        phase,
        source: "hv-1".into(),
        destination: Some("hv-2".into()),
        created_at: Some(START),
        updated_at: Some(START),
    }
}

fn seen(eviction: Eviction, state: HostState) -> DrainSeen {
    DrainSeen {
        eviction: Arc::new(eviction),
        hypervisor: Arc::new(hypervisor(true, 0)),
        agent: AgentSeen::Unknown,
        host: "hv-1".into(),
        cloud: HostSeen::Known(Box::new(HostState { service: Some(service(false)), ..state })),
        stands_back_for: None,
        elsewhere: InFlight::default(),
        empty_since: None,
        stopping: BTreeMap::new(),
        outcomes: BTreeMap::new(),
    }
}

fn with_servers(servers: Vec<Server>) -> DrainSeen {
    seen(testing::eviction("hv-1").running().build(), HostState { servers, ..HostState::default() })
}

fn settings(concurrency: usize) -> DrainSettings {
    let mut settings = DrainSettings::default();
    settings.concurrency = concurrency;
    settings
}

fn state_of<'a>(plan: &'a DrainPlan, id: &str) -> &'a EvictedInstance {
    plan.status.instances().iter().find(|one| one.id == id).unwrap()
}

fn reason(plan: &DrainPlan, type_: &str) -> (ConditionStatus, String) {
    let found = conditions::find(&plan.status.conditions, type_).unwrap();
    (found.status, found.reason.clone())
}

fn room(host: &str, free: u64) -> Arc<Room> {
    Arc::new(Room { host: host.into(), zone: None, free: [("MEMORY_MB".to_owned(), free)].into() })
}
