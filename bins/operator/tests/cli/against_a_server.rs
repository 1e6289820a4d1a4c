//! The whole program against a simulated API server on a socket.

use std::{collections::BTreeSet, time::Duration};

use cobalt_core::{
    api::{Hypervisor, condition_types, labels},
    ids::HostName,
    k8s_openapi::{
        api::{
            apps::v1::Deployment, coordination::v1::Lease, core::v1::Namespace, events::v1::Event,
            policy::v1::PodDisruptionBudget,
        },
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    },
    kube::{
        Api, Client, ResourceExt,
        api::{DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
        core::ApiResource,
    },
};
use cobalt_openstack::testing::{Reply, ScriptedCloud};
use cobalt_sim::{Cluster, Region};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    PROGRAM,
    testing::{LIMIT, Running, Scratch, command, get, metrics_are},
};

/// A region with an API server on a socket, and a kubeconfig that leads there.
struct Served {
    cluster: Cluster,
    _scratch: Scratch,
    kubeconfig: String,
    hosts: Vec<HostName>,
    _region: Region,
}

impl Served {
    async fn new(hosts: usize) -> Self {
        let region = Region::builder().hosts(hosts).build();
        let cluster = region.cluster().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let text = cluster.server().kubeconfig(listener.local_addr().unwrap());
        let serving = cluster.clone();
        tokio::spawn(async move { serving.serve(listener, std::future::pending()).await });
        let scratch = Scratch::new();
        let kubeconfig = scratch.file("kubeconfig", &text);
        Self { cluster, _scratch: scratch, kubeconfig, hosts: region.hosts(), _region: region }
    }

    fn client(&self) -> Client {
        self.cluster.client("test")
    }

    fn operator(&self, more: &[&str]) -> Running {
        let mut command = command(PROGRAM);
        command.args(["--kubeconfig", &self.kubeconfig, "--admin-bind-address", "127.0.0.1:0"]);
        // Its end is waited for like everything else.
        command.args(["--no-openstack", "--shutdown-grace-period=4m"]).args(more);
        Running::start(&mut command)
    }

    fn operator_in(&self, cloud: &ScriptedCloud, more: &[&str]) -> Running {
        let mut command = command(PROGRAM);
        command.args(["--kubeconfig", &self.kubeconfig, "--admin-bind-address", "127.0.0.1:0"]);
        command.args(["--agent-namespaces", "default", "--shutdown-grace-period=4m"]).args(more);
        command.envs(cloud.environment());
        Running::start(&mut command)
    }
}

/// Asks until the answer is there; what the program does has no other echo in this process.
async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let asking = async {
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, asking).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

async fn judged(api: &Api<Hypervisor>, name: &str) -> Hypervisor {
    until(&format!("a verdict on {name}"), || async {
        api.get_opt(name).await.unwrap().filter(|found| found.condition(condition_types::READY).is_some())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_becomes_a_hypervisor_and_sigterm_releases_the_lease() {
    let served = Served::new(2).await;
    let mut operator = served.operator(&[
        "--leader-elect",
        "--leader-elect-namespace=kube-system",
        // A stall of this machine does not depose it.
        "--leader-elect-lease-duration=10m",
        "--leader-elect-renew-deadline=5m",
    ]);
    served.cluster.join_all().await.unwrap();

    let hypervisors: Api<Hypervisor> = Api::all(served.client());
    for host in &served.hosts {
        let hypervisor = judged(&hypervisors, host.as_str()).await;
        assert_eq!(hypervisor.spec.lifecycle_enabled, Some(false), "no Node is labelled");
        let address = hypervisor.status.as_ref().and_then(|status| status.internal_ip.clone());
        assert!(address.is_some_and(|address| address.starts_with("10.")));
    }
    served.cluster.label(&served.hosts[0], labels::LIFECYCLE, Some("true")).await.unwrap();
    until("the lifecycle to be on", || async {
        let found = hypervisors.get(served.hosts[0].as_str()).await.unwrap();
        found.spec.lifecycle_enabled().then_some(())
    })
    .await;

    let leases: Api<Lease> = Api::namespaced(served.client(), "kube-system");
    let holder = |lease: &Lease| lease.spec.clone().unwrap_or_default().holder_identity.unwrap_or_default();
    let held = leases.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(held.len(), 1, "one Lease: {held:?}");
    assert_ne!(holder(&held[0]), "", "held while it works");

    let address = operator.admin_address();
    assert_eq!(get(address, "/healthz"), "ok\n");
    until("it to be ready", || async { (get(address, "/readyz") == "ok\n").then_some(()) }).await;
    let state: Value = serde_json::from_str(&get(address, "/debug/state")).unwrap();
    assert_eq!(state["leases"][0]["mine"], true, "{state}");

    operator.signal("TERM");
    assert_eq!(operator.wait().code(), Some(0), "{}", operator.err());
    let released = leases.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(holder(&released[0]), "", "released: {released:?}");
    let events: Api<Event> = Api::all(served.client());
    let reasons: BTreeSet<_> =
        events.list(&ListParams::default()).await.unwrap().items.into_iter().filter_map(|event| event.reason).collect();
    assert!(reasons.contains("Created"), "Events sent before the end: {reasons:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_hypervisor_is_shown_and_leaves_the_others_alone() {
    let served = Served::new(2).await;
    loosen_the_definition(&served).await;
    let bad = served.hosts[0].as_str();
    let kind = ApiResource::erase::<Hypervisor>(&());
    let loose: Api<DynamicObject> = Api::all_with(served.client(), &kind);
    let object = DynamicObject::new(bad, &kind).data(json!({"spec": {"lifecycleEnabled": "perhaps"}}));
    loose.create(&PostParams::default(), &object).await.unwrap();

    let mut operator = served.operator(&[]);
    served.cluster.join_all().await.unwrap();
    let hypervisors: Api<Hypervisor> = Api::all(served.client());
    let good = judged(&hypervisors, served.hosts[1].as_str()).await;
    assert_eq!(good.spec.lifecycle_enabled, Some(false));

    let address = operator.admin_address();
    let state: Value = serde_json::from_str(&get(address, "/debug/state")).unwrap();
    let watches = state["watches"].as_array().unwrap();
    let watch = watches.iter().find(|watch| watch["kind"] == "Hypervisor").unwrap();
    assert_eq!(watch["malformed"][0]["name"], bad, "{state}");
    assert!(watch["malformed"][0]["error"].as_str().unwrap().contains("spec.lifecycleEnabled"), "{state}");
    let untouched = loose.get(bad).await.unwrap();
    assert_eq!(untouched.data["spec"]["lifecycleEnabled"], "perhaps", "nobody acts on what cannot be read");

    // Once it can be read it is looked after like the others.
    let mended = Patch::Merge(json!({"spec": {"lifecycleEnabled": true}}));
    loose.patch(bad, &PatchParams::default(), &mended).await.unwrap();
    let mended = until("the mended one to be in step with its Node", || async {
        let found = hypervisors.get(bad).await.unwrap();
        found.metadata.owner_references.is_some().then_some(found)
    })
    .await;
    assert_eq!(mended.spec.lifecycle_enabled, Some(true), "managed without a label: whose wish it is, it stays");
    operator.signal("TERM");
    assert_eq!(operator.wait().code(), Some(0), "{}", operator.err());
}

/// Puts a definition in place that takes anything for `lifecycleEnabled`, as one of another release might.
async fn loosen_the_definition(served: &Served) {
    let definitions: Api<CustomResourceDefinition> = Api::all(served.client());
    let mut definition = definitions.get("hypervisors.kvm.cloud.sap").await.unwrap();
    definition.metadata.managed_fields = None;
    let mut body = serde_json::to_value(&definition).unwrap();
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/lifecycleEnabled";
    *body.pointer_mut(field).unwrap() = json!({"x-kubernetes-preserve-unknown-fields": true});
    let definition = serde_json::from_value(body).unwrap();
    definitions.replace("hypervisors.kvm.cloud.sap", &PostParams::default(), &definition).await.unwrap();
    served.cluster.server().settle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_late_is_waited_for() {
    let region = Region::builder().hosts(1).build();
    let cluster = region.cluster().await.unwrap();
    // Connections are taken, and nobody answers yet.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scratch = Scratch::new();
    let text = cluster.server().kubeconfig(listener.local_addr().unwrap());
    let kubeconfig = scratch.file("kubeconfig", &text);
    let mut operator = Running::start(command(PROGRAM).args([
        "--no-openstack",
        "--kubeconfig",
        &kubeconfig,
        "--admin-bind-address",
        "127.0.0.1:0",
    ]));
    let admin = operator.admin_address();
    let not_ready = until("the watches to be registered", || async {
        Some(get(admin, "/readyz")).filter(|answer| answer != "ok\n")
    })
    .await;
    assert!(not_ready.contains("Hypervisor"), "it says what is missing: {not_ready}");
    assert_eq!(get(admin, "/healthz"), "ok\n", "not ready, but alive");

    cluster.join_all().await.unwrap();
    let serving = cluster.clone();
    tokio::spawn(async move { serving.serve(listener, std::future::pending()).await });
    let hypervisors: Api<Hypervisor> = Api::all(cluster.client("test"));
    judged(&hypervisors, region.hosts()[0].as_str()).await;
    operator.signal("INT");
    assert_eq!(operator.wait().code(), Some(0), "{}", operator.err());
}

/// A cloud with nothing in it, and with what happens to everything else left as an error.
async fn empty_cloud() -> ScriptedCloud {
    let cloud = ScriptedCloud::start().await.unwrap();
    for (path, body) in [
        ("/compute/v2.1/os-services", r#"{"services": []}"#),
        ("/compute/v2.1/os-hypervisors/detail", r#"{"hypervisors": []}"#),
        ("/compute/v2.1/os-aggregates", r#"{"aggregates": []}"#),
    ] {
        cloud.on("GET", path, [Reply::json(body)]);
    }
    cloud
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_observes_writes_nothing_and_says_what_it_would_do() {
    let (served, cloud) = (Served::new(2).await, empty_cloud().await);
    served.cluster.join_all().await.unwrap();
    let mut operator = served.operator_in(&cloud, &["--observe-only"]);
    let admin = operator.admin_address();
    let state = until("both wishes", || async {
        let state: Value = serde_json::from_str(&get(admin, "/debug/state")).unwrap();
        (state["observing"]["wanted"] == 2).then_some(state)
    })
    .await;
    let observing = &state["observing"];
    assert_eq!(observing["observeOnly"], true);
    assert_eq!(observing["byKind"], json!({"WriteHypervisor": 2}));
    let host = served.hosts[0].as_str();
    assert_eq!(observing["first"][0]["about"], host);
    assert_eq!(observing["first"][0]["action"], format!("create the Hypervisor {host}"));
    let text = get(admin, "/metrics");
    assert!(text.contains("cobalt_operator_withheld_actions{kind=\"WriteHypervisor\"} 2\n"), "{text}");
    operator.signal("TERM");
    assert_eq!(operator.wait().code(), Some(0), "{}", operator.err());
    let writes = served.cluster.server().counters().of_client("cobalt-operator").writes;
    assert_eq!(writes, 0);
    assert!(operator.err().contains("would do this, but only observes"), "{}", operator.err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_of_the_tests_that_fails_ends_nothing() {
    let (served, cloud) = (Served::new(1).await, empty_cloud().await);
    served.cluster.join_all().await.unwrap();
    // The operator's own password is right, the one for the tests leads nowhere.
    let mut command = command(PROGRAM);
    command.args(["--kubeconfig", &served.kubeconfig, "--admin-bind-address", "127.0.0.1:0"]);
    command.args(["--agent-namespaces", "default", "--metrics-secure=t"]).envs(cloud.environment());
    command.env("SMOKE_TEST_OS_AUTH_URL", "http://127.0.0.1:1/v3").env("SMOKE_TEST_OS_PASSWORD", "wrong");
    let mut operator = Running::start(&mut command);
    let admin = operator.admin_address();
    let hypervisors: Api<Hypervisor> = Api::all(served.client());
    judged(&hypervisors, served.hosts[0].as_str()).await;
    until("the region to be seen", || async { (get(admin, "/readyz") == "ok\n").then_some(()) }).await;
    assert!(operator.err().contains("--metrics-secure has no effect"), "{}", operator.err());
    operator.signal("TERM");
    assert_eq!(operator.wait().code(), Some(0), "{}", operator.err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hypervisor_carries_the_labels_of_its_node_that_were_asked_for() {
    let served = Served::new(2).await;
    served.cluster.join_all().await.unwrap();
    let [first, second] = [&served.hosts[0], &served.hosts[1]];
    for label in ["example.com/rack", labels::WORKER_POOL, "example.com/other"] {
        served.cluster.label(first, label, Some("7")).await.unwrap();
    }
    let carried = |hypervisor: &Hypervisor| hypervisor.labels().keys().cloned().collect::<BTreeSet<_>>();
    let chosen = format!("--transfer-labels=example.com/rack,{}", labels::ZONE);
    let mut operator = served.operator(&[&chosen, "--label-selector=example.com/other"]);
    let hypervisors: Api<Hypervisor> = Api::all(served.client());
    let found = judged(&hypervisors, first.as_str()).await;
    let wanted = ["example.com/other", "example.com/rack", labels::ZONE].map(str::to_owned);
    assert_eq!(carried(&found), wanted.into(), "what was named, and what it is chosen by");
    operator.signal("TERM");
    assert_eq!(operator.wait().code(), Some(0), "{}", operator.err());

    served.cluster.label(second, labels::WORKER_POOL, Some("7")).await.unwrap();
    let _operator = served.operator(&[]);
    let found = judged(&hypervisors, second.as_str()).await;
    assert!(carried(&found).contains(labels::WORKER_POOL), "as always, unless told otherwise: {:?}", carried(&found));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_holds_a_node_back_is_made_where_and_of_what_was_asked_for() {
    let (served, cloud) = (Served::new(1).await, empty_cloud().await);
    let host = &served.hosts[0];
    served.cluster.join_all().await.unwrap();
    served.cluster.label(host, labels::LIFECYCLE, Some("true")).await.unwrap();
    let garden = serde_json::from_value(json!({"metadata": {"name": "garden"}})).unwrap();
    Api::<Namespace>::all(served.client()).create(&PostParams::default(), &garden).await.unwrap();
    let image = "registry.example/busybox:1.37";
    let mut operator = served.operator_in(&cloud, &["--gardener-image", image, "--gardener-namespace", "garden"]);
    let name = format!("maint-{host}");
    let (deployments, budgets) =
        (Api::<Deployment>::all(served.client()), Api::<PodDisruptionBudget>::all(served.client()));
    let keepers = || async {
        let deployments = deployments.list(&ListParams::default()).await.unwrap().items;
        let budgets = budgets.list(&ListParams::default()).await.unwrap().items;
        (!deployments.is_empty() && !budgets.is_empty()).then_some((deployments, budgets))
    };
    let (deployments, budgets) = until("a Deployment and a budget", keepers).await;
    let place = |meta: &ObjectMeta| (meta.namespace.clone().unwrap(), meta.name.clone().unwrap());
    let places: Vec<_> = deployments.iter().map(|one| place(&one.metadata)).collect();
    assert_eq!(places, [("garden".to_owned(), name.clone())]);
    let places: Vec<_> = budgets.iter().map(|one| place(&one.metadata)).collect();
    assert_eq!(places, [("garden".to_owned(), name)], "one beside the other, or it would hold nothing");
    let pod = deployments[0].spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    assert_eq!(pod.containers.iter().map(|one| one.image.as_deref()).collect::<Vec<_>>(), [Some(image)]);
    operator.signal("TERM");
    assert_eq!(operator.wait().code(), Some(0), "{}", operator.err());
}

/// The names are a contract with dashboards and alerts: a change here is a change for their owners.
#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_are_as_in_the_snapshot() {
    let (served, cloud) = (Served::new(1).await, empty_cloud().await);
    let mut operator = served.operator_in(&cloud, &["--observe-only"]);
    let admin = operator.admin_address();
    let text = until("a look at the whole region", || async {
        Some(get(admin, "/metrics"))
            .filter(|text| text.contains("cobalt_openstack_view_age_seconds{part=\"aggregates\"}"))
    })
    .await;
    assert!(
        text.contains("cobalt_openstack_calls_total{service=\"compute\",call=\"services\",outcome=\"ok\"} "),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
    metrics_are(
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots"),
        &text,
        &["cobalt_operator_", "cobalt_openstack_", "cobalt_eviction_"],
    );
    operator.signal("TERM");
    assert_eq!(operator.wait().code(), Some(0), "{}", operator.err());
}
