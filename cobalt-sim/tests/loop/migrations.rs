use std::{sync::Arc, time::Duration};

use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Matcher},
};
use cobalt_core::{
    agent::Migrations,
    api::{Migration, MigrationStatus},
    backend::{HypervisorBackend, MigrateRequest},
    ids::{HostName, InstanceId},
    runtime::shutdown::Shutdown,
};
use cobalt_sim::{Region, SimBackend};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{LONG, Rig};

const TTL: Duration = Duration::from_secs(3600);

/// Two hosts with an agent each, and one VM on the first.
struct Pair {
    rig: Rig,
    region: Region,
    hosts: [HostName; 2],
    vm: InstanceId,
    agents: [Shutdown; 2],
}

impl Pair {
    async fn new() -> Self {
        let rig = Rig::new().await;
        let region = Region::builder().hosts(2).vms_per_host(0).seed(3).build();
        let names = region.hosts();
        let hosts = [names[0].clone(), names[1].clone()];
        rig.operator();
        let mut pair = Self {
            vm: InstanceId::from(region.boot(&hosts[0], "4").unwrap().to_string()),
            rig,
            region,
            hosts,
            agents: [Shutdown::new(), Shutdown::new()],
        };
        for at in 0..2 {
            pair.rig.add_node(pair.hosts[at].as_str(), json!({}), json!({})).await;
            pair.start_agent(at);
        }
        for host in &pair.hosts {
            pair.rig.until(host.as_str(), "reported", |hv| hv.is_true("LibVirtConnection")).await;
        }
        pair
    }

    fn start_agent(&mut self, at: usize) {
        self.agents[at] = self.rig.stop.child();
        let part = Migrations::new("default", self.hosts[at].as_str()).ttl(TTL);
        self.rig.agent_with(&self.region, &self.hosts[at], self.agents[at].clone(), |agent| agent.part(part));
    }

    fn backend(&self, at: usize) -> SimBackend {
        self.region.backend(&self.hosts[at]).unwrap()
    }

    /// Begins to move the VM from one host to the other.
    fn migrate(&self, from: usize) -> tokio::task::JoinHandle<cobalt_core::Result<()>> {
        let (backend, id) = (self.backend(from), self.vm.clone());
        let destination = format!("qemu+tcp://{}/system", self.hosts[1 - from]);
        let request = MigrateRequest { destination, live: true, copy_storage: false, persist: true };
        tokio::spawn(async move { backend.migrate(&id, &request).await })
    }

    fn api(&self) -> Api<Migration> {
        Api::namespaced(self.rig.client.clone(), "default")
    }

    async fn until(&self, what: &str, test: impl Fn(&MigrationStatus) -> bool) -> Migration {
        let deadline = tokio::time::Instant::now() + LONG;
        loop {
            let seen = self.api().get_opt(&self.vm.to_string()).await.unwrap();
            match seen {
                Some(found) if found.status.as_ref().is_some_and(&test) => return found,
                last if tokio::time::Instant::now() > deadline => panic!("never {what}; last: {last:#?}"),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Origin, destination and type, as words.
    async fn ended(&self) -> (String, Option<String>, String) {
        let found = self.until("ended", |status| status.ended.is_some()).await;
        // The other side may have a last word.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let status = self.api().get(&found.metadata.name.unwrap()).await.unwrap().status.unwrap();
        (status.origin.unwrap(), status.destination, status.type_.unwrap())
    }

    fn name(&self, at: usize) -> String {
        self.hosts[at].as_str().to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn a_migration_has_both_its_ends_its_progress_and_its_outcome() {
    let pair = Pair::new().await;
    let moving = pair.migrate(0);
    let running = pair.until("running", |status| status.data_processed.is_some()).await.status.unwrap();
    assert_eq!((running.type_.as_deref(), running.operation.as_deref()), (Some("bounded"), Some("migration_out")));
    assert!(running.mem_bps.unwrap().ends_with("iB/s"));
    let numbers = running.progress.unwrap();
    assert!(numbers.data_total_bytes.unwrap() > 0 && numbers.elapsed_ms.is_some());
    moving.await.unwrap().unwrap();
    assert_eq!(pair.ended().await, (pair.name(0), Some(pair.name(1)), "completed".into()));
    let status = pair.api().get(&pair.vm.to_string()).await.unwrap().status.unwrap();
    assert!(status.arrived.is_some() && status.started.unwrap().0 <= status.ended.unwrap().0);
    assert_eq!(status.progress.unwrap().data_remaining_bytes, Some(0));
}

#[tokio::test(start_paused = true)]
async fn an_aborted_migration_is_told_as_such_and_the_vm_stayed() {
    let pair = Pair::new().await;
    let moving = pair.migrate(0);
    pair.until("running", |status| status.data_processed.is_some()).await;
    pair.backend(0).abort_job(&pair.vm).await.unwrap();
    assert!(moving.await.unwrap().is_err());
    let (origin, _, outcome) = pair.ended().await;
    assert_eq!((origin, outcome.as_str()), (pair.name(0), "cancelled"));
}

#[tokio::test(start_paused = true)]
async fn a_migration_that_fails_says_why() {
    let pair = Pair::new().await;
    let moving = pair.migrate(0);
    pair.until("running", |status| status.data_processed.is_some()).await;
    pair.region.world().stop_daemon(&pair.hosts[1]).unwrap();
    assert!(moving.await.unwrap().is_err());
    let (_, _, outcome) = pair.ended().await;
    assert_eq!(outcome, "failed");
    assert!(pair.api().get(&pair.vm.to_string()).await.unwrap().status.unwrap().err_msg.is_some());
}

#[tokio::test(start_paused = true)]
async fn there_and_back_is_one_object_with_the_ends_of_the_last_one() {
    let pair = Pair::new().await;
    pair.migrate(0).await.unwrap().unwrap();
    assert_eq!(pair.ended().await, (pair.name(0), Some(pair.name(1)), "completed".into()));
    pair.migrate(1).await.unwrap().unwrap();
    pair.until("told by the other", |status| status.origin.as_deref() == Some(pair.hosts[1].as_str())).await;
    assert_eq!(pair.ended().await, (pair.name(1), Some(pair.name(0)), "completed".into()));
    assert_eq!(pair.api().list(&kube::api::ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_speaks_while_the_one_before_it_is_removed_stays() {
    let pair = Pair::new().await;
    pair.migrate(0).await.unwrap().unwrap();
    pair.ended().await;
    // The origin has looked, and its removal is on the way when the new destination is heard.
    let removal = Matcher::client("agent").verb(Verb::Patch).resource("migrations.kvm.cloud.sap").times(1);
    pair.rig.server.faults().add(Fault::new(removal, Effect::Latency { millis: 500 }));
    let moving = pair.migrate(1);
    while pair.rig.server.faults().fired().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let name = pair.vm.to_string();
    let word = json!({
        "apiVersion": "kvm.cloud.sap/v1alpha1",
        "kind": "Migration",
        "metadata": {"name": name},
        "status": {"destination": pair.name(0), "receivingSince": "2026-01-02T00:00:00Z"},
    });
    let destination = PatchParams::apply("cobalt-node-agent-destination").force();
    pair.api().patch_status(&name, &destination, &Patch::Apply(word)).await.unwrap();

    let leaves = |status: &MigrationStatus| status.origin == Some(pair.name(1)) && status.data_processed.is_some();
    let seen = pair.until("on its way", leaves).await.status.unwrap();
    assert_eq!((seen.destination, seen.ended), (Some(pair.name(0)), None));
    moving.await.unwrap().unwrap();
    assert_eq!(pair.ended().await, (pair.name(1), Some(pair.name(0)), "completed".into()));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_restarts_in_the_middle_takes_it_up_again() {
    let mut pair = Pair::new().await;
    let moving = pair.migrate(0);
    pair.until("running", |status| status.data_processed.is_some()).await;
    pair.agents[0].trigger();
    pair.start_agent(0);
    moving.await.unwrap().unwrap();
    assert_eq!(pair.ended().await, (pair.name(0), Some(pair.name(1)), "completed".into()));
}

#[tokio::test(start_paused = true)]
async fn one_that_ended_while_no_agent_watched_is_ended_by_the_next() {
    let mut pair = Pair::new().await;
    let moving = pair.migrate(0);
    pair.until("running", |status| status.data_processed.is_some()).await;
    pair.agents[0].trigger();
    moving.await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(pair.api().get(&pair.vm.to_string()).await.unwrap().status.unwrap().ended.is_none());
    pair.start_agent(0);
    assert_eq!(pair.ended().await, (pair.name(0), Some(pair.name(1)), "completed".into()));
}

#[tokio::test(start_paused = true)]
async fn a_finished_one_goes_after_its_time_and_costs_nothing_until_then() {
    let pair = Pair::new().await;
    pair.migrate(0).await.unwrap().unwrap();
    pair.ended().await;
    pair.rig.rest().await;
    pair.rig.server.counters().reset();
    tokio::time::sleep(TTL / 2).await;
    assert_eq!(pair.rig.counts("agent").writes, 0);
    assert!(pair.api().get_opt(&pair.vm.to_string()).await.unwrap().is_some());
    tokio::time::sleep(TTL).await;
    assert!(pair.api().get_opt(&pair.vm.to_string()).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_object_deleted_in_the_middle_is_made_anew() {
    let pair = Pair::new().await;
    let moving = pair.migrate(0);
    pair.until("running", |status| status.data_processed.is_some()).await;
    pair.api().delete(&pair.vm.to_string(), &kube::api::DeleteParams::default()).await.unwrap();
    moving.await.unwrap().unwrap();
    assert_eq!(pair.ended().await, (pair.name(0), Some(pair.name(1)), "completed".into()));
}

#[tokio::test(start_paused = true)]
async fn a_resumed_vm_is_no_migration() {
    use cobalt_core::backend::PowerAction;
    let pair = Pair::new().await;
    let backend = Arc::new(pair.backend(0));
    backend.power(&pair.vm, PowerAction::Suspend).await.unwrap();
    backend.power(&pair.vm, PowerAction::Resume).await.unwrap();
    pair.rig.rest().await;
    assert!(pair.api().get_opt(&pair.vm.to_string()).await.unwrap().is_none());
}
