//! A cluster around the shared control plane: Nodes for its computes, their agents, and the operator as a program.

use std::{cell::RefCell, fmt::Write, path::Path, sync::Arc, time::Duration};

use cobalt_core::{
    agent::{Config, Heartbeat, NodeAgent, Reboots},
    api::{Eviction, Hypervisor, labels},
    ids::HostName,
    jiff::Timestamp,
    k8s_openapi::api::core::v1::Namespace,
    kube::{
        Api, Client, ResourceExt,
        api::{ListParams, Patch, PatchParams, PostParams},
    },
    runtime::shutdown::Shutdown,
};
use cobalt_rig::{Account, Boot, ControlPlane, SeenMigration, SeenServer, SeenService, Turn};
use cobalt_sim::{Cluster, Region, Timing};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::block_in_place, time::Instant};

use crate::{
    HOSTS, PROGRAM,
    guests::Guests,
    kubelet::{self, AGENTS},
    testing::{Running, Scratch, command},
};

/// Whatever is to happen has happened by then, also on a loaded machine.
const LIMIT: Duration = Duration::from_secs(400);

/// How often a condition is looked at that nobody announces.
const PAUSE: Duration = Duration::from_millis(300);

/// The availability zone of all hosts, and the aggregate that makes it.
pub(crate) const ZONE: &str = "zone-a";

/// How long a shutdown of a host may wait.
const DRAIN_TIME: Duration = Duration::from_secs(1200);

/// A cluster, for one test. Its cloud is the shared one, empty at the beginning.
pub(crate) struct World {
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) region: Region,
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    operator: RefCell<Option<Running>>,
    arguments: Vec<String>,
    kubeconfig: String,
    _scratch: Scratch,
    stop: Shutdown,
    // The turn is over when everything else has ended.
    _turn: Turn,
}

impl World {
    /// With the operator running and no Nodes yet. `None` after telling why there is no cloud.
    pub(crate) async fn new(test: &str, arguments: &[&str]) -> Option<World> {
        // Cargo's directory for integration tests lies directly below the target directory.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let turn = block_in_place(|| Turn::wait(test, target, &HOSTS))?;
        let plane = turn.plane.clone();
        block_in_place(|| furnish(&plane));

        let timing = Timing { inhibit_delay: DRAIN_TIME, boot: Duration::from_secs(5), ..Timing::default() };
        let region = Region::builder().named(HOSTS).unregistered().timing(timing).starting_at(Timestamp::now()).build();
        let cluster = region.cluster().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let text = cluster.server().kubeconfig(listener.local_addr().unwrap());
        let (serving, stop) = (cluster.clone(), Shutdown::new());
        let until = stop.clone();
        tokio::spawn(async move { serving.serve(listener, async move { until.triggered().await }).await });
        let client = cluster.client("test");
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let agents = serde_json::from_value(json!({"metadata": {"name": AGENTS}})).unwrap();
        namespaces.create(&PostParams::default(), &agents).await.unwrap();
        tokio::spawn(kubelet::run(cluster.client("kubelet"), plane.clone(), stop.clone()));

        let scratch = Scratch::new();
        let world = World {
            kubeconfig: scratch.file("kubeconfig", &text),
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            operator: RefCell::default(),
            _scratch: scratch,
            plane,
            region,
            cluster,
            client,
            stop,
            _turn: turn,
        };
        for host in HOSTS {
            world.start_agent(host);
        }
        world.start_operator();
        Some(world)
    }

    fn start_agent(&self, host: &str) {
        let name = HostName::from(host);
        let client = self.cluster.client_on(&name, &format!("agent-of-{host}")).unwrap();
        let system = Arc::new(self.region.host_system(&name).unwrap());
        let backend = Arc::new(Guests::new(self.plane.compute(host)));
        let (stop, config) = (self.stop.clone(), Config::new(host));
        let agent = move || {
            let agent = NodeAgent::new(client.clone(), config.clone(), backend.clone(), system.clone())
                .part(Heartbeat::new(AGENTS, Duration::from_secs(10)))
                .part(Reboots::new(DRAIN_TIME));
            let running = agent.run(stop.clone());
            async move { running.await.unwrap() }
        };
        drop(self.cluster.run_on(&name, agent).unwrap());
    }

    /// Starts the operator, with the arguments of the test.
    pub(crate) fn start_operator(&self) {
        let mut command = command(PROGRAM);
        command.envs(self.plane.environment());
        let tester = self.plane.environment_of(Account::Tester);
        command.envs(tester.into_iter().map(|(name, value)| (format!("SMOKE_TEST_{name}"), value)));
        command.args(["--kubeconfig", &self.kubeconfig, "--admin-bind-address", "127.0.0.1:0"]);
        command.args(OPERATOR).args(&self.arguments);
        *self.operator.borrow_mut() = Some(Running::start(&mut command));
    }

    /// Ends the operator as a power failure does.
    pub(crate) fn kill_operator(&self) {
        let mut operator = self.operator.borrow_mut().take().unwrap();
        operator.signal("KILL");
        operator.wait();
    }

    /// Makes the Nodes of all hosts, whose life is managed.
    pub(crate) async fn join(&self, lifecycle: &str) {
        for host in HOSTS {
            kubelet::admit(&self.client, host).await;
            let host = HostName::from(host);
            self.cluster.join(&host).await.unwrap();
            self.cluster.label(&host, labels::LIFECYCLE, Some(lifecycle)).await.unwrap();
        }
    }

    /// Makes hosts of the cloud out of all Nodes, without trying them.
    pub(crate) async fn onboard(&self) {
        self.join(labels::SKIP_TESTS).await;
        for host in HOSTS {
            self.until_hypervisor(host, "onboarded", is_onboarded).await;
        }
    }

    pub(crate) fn hypervisors(&self) -> Api<Hypervisor> {
        Api::all(self.client.clone())
    }

    pub(crate) fn evictions(&self) -> Api<Eviction> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn hypervisor(&self, host: &str) -> Hypervisor {
        self.hypervisors().get(host).await.unwrap()
    }

    /// Changes a Hypervisor's spec as a person does.
    pub(crate) async fn patch(&self, host: &str, spec: Value) {
        let params = PatchParams { field_manager: Some("person".into()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"spec": spec}));
        self.hypervisors().patch(host, &params, &patch).await.unwrap();
    }

    /// Takes a host out of service.
    pub(crate) async fn maintain(&self, host: &str) {
        self.patch(host, json!({"maintenance": "manual", "maintenanceReason": "a new fan"})).await;
    }

    /// Puts it back.
    pub(crate) async fn use_again(&self, host: &str) {
        self.patch(host, json!({"maintenance": null, "maintenanceReason": null})).await;
        self.until_hypervisor(host, "ready again", |hypervisor| hypervisor.is_true("Ready")).await;
        assert!(self.service(host).enabled, "{:?}", self.service(host));
    }

    /// Asks the cloud, or does something to it, by a way that is not the operator's.
    #[track_caller]
    pub(crate) fn cloud<T>(&self, act: impl FnOnce(&ControlPlane) -> cobalt_rig::Result<T>) -> T {
        block_in_place(|| act(&self.plane)).unwrap_or_else(|error| panic!("{error}{}", self.plane.tail()))
    }

    /// The same where it may fail.
    pub(crate) fn try_cloud<T>(
        &self,
        act: impl FnOnce(&ControlPlane) -> cobalt_rig::Result<T>,
    ) -> cobalt_rig::Result<T> {
        block_in_place(|| act(&self.plane))
    }

    /// The compute service of a host, by Nova.
    #[track_caller]
    pub(crate) fn service(&self, host: &str) -> SeenService {
        self.cloud(ControlPlane::services).into_iter().find(|service| service.host == host).unwrap()
    }

    /// The aggregates a host is in, by Nova.
    #[track_caller]
    pub(crate) fn aggregates_of(&self, host: &str) -> Vec<String> {
        let all = self.cloud(ControlPlane::aggregates);
        let having = all.into_iter().filter(|aggregate| aggregate.hosts.iter().any(|member| member == host));
        having.map(|aggregate| aggregate.name).collect()
    }

    /// The custom traits of a host, by Placement, ordered.
    #[track_caller]
    pub(crate) fn custom_traits_of(&self, host: &str) -> Vec<String> {
        let mut traits = self.cloud(|plane| plane.traits(&self.provider(host)));
        traits.retain(|name| name.starts_with("CUSTOM_"));
        traits.sort();
        traits
    }

    /// The provider of a host, by Placement.
    #[track_caller]
    pub(crate) fn provider(&self, host: &str) -> String {
        let all = self.cloud(ControlPlane::providers);
        all.into_iter().find(|provider| provider.name == host).map(|provider| provider.id).unwrap()
    }

    /// The servers on a host, by Nova.
    #[track_caller]
    pub(crate) fn servers_on(&self, host: &str) -> Vec<SeenServer> {
        self.cloud(|plane| plane.servers_on(host))
    }

    /// Boots so many servers on a host, all at once, and waits until they run.
    #[track_caller]
    pub(crate) fn boot(&self, host: &str, count: usize) -> Vec<String> {
        self.cloud(|plane| {
            let names = (0..count).map(|number| format!("server-{number}-of-{host}"));
            let ids: cobalt_rig::Result<Vec<String>> =
                names.map(|name| plane.request(&Boot::new(&name).on(host))).collect();
            let ids = ids?;
            for id in &ids {
                plane.wait_for_server(id, "ACTIVE")?;
            }
            Ok(ids)
        })
    }

    /// Fails unless each server runs on another host, has left this one exactly once, and has stayed where it went.
    #[track_caller]
    pub(crate) fn assert_moved_once(&self, host: &str, servers: &[String]) {
        for id in servers {
            let server = self.cloud(|plane| plane.server(id)).unwrap();
            assert_eq!(server.status, "ACTIVE", "{server:?}");
            let migrations = self.cloud(|plane| ended_migrations(plane, id));
            let done: Vec<_> = migrations.iter().filter(|migration| migration.status == "completed").collect();
            let from_here = done.iter().filter(|migration| migration.source == host).count();
            assert_eq!(from_here, 1, "{server:?} went {migrations:?}");
            let last = done[done.len() - 1];
            assert_eq!(
                (last.source.as_str(), &last.destination),
                (host, &server.host),
                "{server:?} went {migrations:?}"
            );
        }
    }

    /// Fails unless each server was asked to leave this host exactly once, whatever came of it.
    #[track_caller]
    pub(crate) fn assert_asked_once(&self, host: &str, servers: &[String]) {
        for id in servers {
            let mut migrations = self.cloud(|plane| ended_migrations(plane, id));
            migrations.retain(|migration| migration.source == host);
            assert_eq!(migrations.len(), 1, "{migrations:?}");
        }
    }

    /// The largest number of these servers that were on their way from a host at the same time, by the times of Nova's
    /// records. They are cut to seconds, so moves that only touch each other do not count as at the same time.
    #[track_caller]
    pub(crate) fn most_at_once(&self, host: &str, servers: &[String]) -> usize {
        let all = servers.iter().flat_map(|id| self.cloud(|plane| ended_migrations(plane, id)));
        let moves: Vec<SeenMigration> = all.filter(|migration| migration.source == host).collect();
        let at = |moment: &str| moves.iter().filter(|one| *one.created <= *moment && *one.updated > *moment).count();
        moves.iter().map(|one| at(&one.created)).max().unwrap_or(0)
    }

    /// Waits until the Hypervisor is as wanted.
    pub(crate) async fn until_hypervisor(
        &self,
        host: &str,
        what: &str,
        test: impl Fn(&Hypervisor) -> bool,
    ) -> Hypervisor {
        let api = self.hypervisors();
        self.until(&format!("{host}: {what}"), async || api.get_opt(host).await.unwrap().filter(&test)).await
    }

    /// Waits until the Eviction of a host is as wanted.
    pub(crate) async fn until_eviction(&self, host: &str, what: &str, test: impl Fn(&Eviction) -> bool) -> Eviction {
        let api = self.evictions();
        self.until(&format!("eviction of {host}: {what}"), async || api.get_opt(host).await.unwrap().filter(&test))
            .await
    }

    /// Waits until the host is empty, by its Hypervisor.
    pub(crate) async fn until_drained(&self, host: &str) -> Hypervisor {
        self.until_hypervisor(host, "drained", is_drained).await
    }

    /// Waits until so many of the servers have left the host.
    pub(crate) async fn until_left(&self, host: &str, servers: &[String], count: usize) {
        self.until(&format!("{count} servers have left {host}"), async || {
            // While the API is away there is no answer.
            let there = block_in_place(|| self.plane.servers_on(host)).ok()?;
            let left = servers.iter().filter(|id| !there.iter().any(|server| server.id == **id)).count();
            (left >= count).then_some(())
        })
        .await;
    }

    /// Waits for a condition that nobody announces; in vain it ends with everything there is to know.
    pub(crate) async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            if let Some(found) = look().await {
                eprintln!("   {:>6.1} s  {what}", since.elapsed().as_secs_f64());
                return found;
            }
            let ended = self.operator.borrow_mut().as_mut().and_then(Running::ended);
            if let Some(status) = ended {
                panic!("the operator ended ({status}) before {what}\n{}", self.story().await);
            }
            assert!(since.elapsed() < LIMIT, "never {what}\n{}", self.story().await);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// How everything is, for whoever has to find out why a test failed.
    async fn story(&self) -> String {
        let mut text = String::new();
        for hypervisor in self.hypervisors().list(&ListParams::default()).await.unwrap() {
            let _ =
                writeln!(text, "Hypervisor {}, maintenance {:?}", hypervisor.name_any(), hypervisor.spec.maintenance());
            for condition in hypervisor.conditions() {
                let (type_, reason) = (&condition.type_, &condition.reason);
                let _ = writeln!(text, "   {type_}={} {reason}: {}", condition.status, condition.message);
            }
        }
        for eviction in self.evictions().list(&ListParams::default()).await.unwrap() {
            let status = serde_json::to_string_pretty(&eviction.status).unwrap();
            let _ = writeln!(text, "Eviction {} {status}", eviction.name_any());
        }
        let _ = writeln!(text, "cloud:{}", self.plane.tail());
        text
    }

    /// The last words of the operator.
    fn said(&self) -> String {
        let said = self.operator.borrow().as_ref().map(Running::err).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(150)..].join("\n")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("operator:\n{}", self.said());
        }
        drop(self.operator.borrow_mut().take());
        self.stop.trigger();
    }
}

/// The migrations of a server once all of them are over: Nova says so a moment after the server has arrived.
fn ended_migrations(plane: &ControlPlane, server: &str) -> cobalt_rig::Result<Vec<SeenMigration>> {
    let since = std::time::Instant::now();
    loop {
        let all = plane.migrations_of(server)?;
        let is_over =
            |one: &SeenMigration| ["completed", "error", "failed", "cancelled"].contains(&one.status.as_str());
        if all.iter().all(is_over) || since.elapsed() > LIMIT {
            return Ok(all);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether a host is empty, and was said to be.
pub(crate) fn is_drained(hypervisor: &Hypervisor) -> bool {
    let evicting = hypervisor.condition("Evicting");
    evicting.is_some_and(|evicting| evicting.is_false() && evicting.reason == "Succeeded")
        && hypervisor.status.as_ref().is_some_and(|status| status.evicted == Some(true))
}

/// Whether a host is in the cloud, for good.
pub(crate) fn is_onboarded(hypervisor: &Hypervisor) -> bool {
    let onboarding = hypervisor.condition("Onboarding");
    onboarding.is_some_and(|onboarding| onboarding.is_false() && onboarding.reason == "Succeeded")
        && hypervisor.is_true("Ready")
}

/// The reason of a condition.
pub(crate) fn reason<'a>(hypervisor: &'a Hypervisor, type_: &str) -> &'a str {
    hypervisor.condition(type_).map_or("", |condition| &condition.reason)
}

/// What every test wants of the operator: quick looks, since people wait for the tests.
const OPERATOR: [&str; 20] = [
    "--agent-namespaces",
    AGENTS,
    "--heartbeat-namespace",
    AGENTS,
    "--agent-pods-interval",
    "2s",
    "--view-interval",
    "5s",
    "--eviction-poll-interval",
    "1s",
    "--smoke-test-image",
    IMAGE,
    "--smoke-test-network",
    NETWORK,
    "--smoke-test-boot-from",
    "image",
    "--smoke-test-poll-interval",
    "1s",
    "--smoke-test-retry-interval",
    "5s",
];

/// What hosts are tried with: a project of its own has them.
const IMAGE: &str = "cirros-kvm";
const NETWORK: &str = "smoke-tests";

/// Makes the cloud as a test wants to find it: the aggregates are there, no server is, and moves take their usual time.
fn furnish(plane: &ControlPlane) {
    let furnish = || -> cobalt_rig::Result<()> {
        let aggregates = plane.aggregates()?;
        let wanted = [(ZONE, Some(ZONE)), (labels::TEST_AGGREGATE, None), ("gold", None), ("silver", None)];
        for (name, zone) in wanted {
            if !aggregates.iter().any(|aggregate| aggregate.name == name) {
                plane.add_aggregate(name, zone)?;
            }
        }
        let (_, body) = plane.api("GET", "image", &format!("/v2/images?name={IMAGE}"), None)?;
        if body["images"].as_array().is_some_and(Vec::is_empty) {
            plane.add_image(IMAGE)?;
        }
        let (_, body) = plane.api("GET", "network", &format!("/v2.0/networks?name={NETWORK}"), None)?;
        if body["networks"].as_array().is_some_and(Vec::is_empty) {
            plane.add_network(Account::Tester, NETWORK, false)?;
        }
        for host in HOSTS {
            plane.compute(host).allow_migrations()?;
            plane.compute(host).unmute_guests()?;
            plane.compute(host).migrations_take(Duration::from_secs(3))?;
            for server in plane.servers_on(host)? {
                plane.api("DELETE", "compute", &format!("/servers/{}", server.id), None)?;
            }
        }
        let since = std::time::Instant::now();
        for host in HOSTS {
            while !plane.servers_on(host)?.is_empty() {
                assert!(since.elapsed() < LIMIT, "servers stay on {host}{}", plane.tail());
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    };
    furnish().unwrap_or_else(|error| panic!("{error}{}", plane.tail()));
}
