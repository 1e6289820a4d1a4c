//! A server with roles, an agent's endpoints, and people.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use axum::{Router, body::Body};
use cobalt_apiserver::{ApiServer, Identity};
use cobalt_core::{
    Result,
    agent::ovs::endpoints::{Endpoints, Limits},
    api::{OVSNode, crd},
    ids::HostName,
    ovs::{CaptureRequest, Flow, OvsChange, OvsFeatures, OvsInspector, OvsSnapshot, Trace, TraceRequest},
    runtime::{
        client,
        clock::Clock,
        events::{self, Recorder},
        metrics::Metrics,
        shutdown::Shutdown,
        watch::ObjectKey,
    },
};
use cobalt_sim::{Region, SimSwitch};
use futures::{StreamExt, stream, stream::BoxStream};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::{
    api::events::v1::Event, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt;

pub(crate) const NAMESPACE: &str = "ovn-system";
/// Longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// An agent's endpoints, and all they need.
pub(crate) struct Rig {
    pub(crate) server: ApiServer,
    pub(crate) admin: Client,
    pub(crate) region: Region,
    pub(crate) host: HostName,
    pub(crate) stop: Shutdown,
    publisher: tokio::task::JoinHandle<()>,
    recorder: Recorder,
    limits: Limits,
    audience: Option<String>,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        let region = Region::builder().hosts(3).vms_per_host(2).seed(5).build();
        let host = region.hosts().remove(0);
        let server = ApiServer::builder()
            .rbac()
            .seed(1)
            .token("alices-token", Identity::new("alice", ["network"]))
            .token("bobs-token", Identity::new("bob", ["strangers"]))
            .token("carols-token", Identity::new("carol", ["readers"]))
            .start();
        let admin = Client::new(server.service("admin"), "default");
        let stop = Shutdown::new();
        let agent = limited(&server, "events");
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let (recorder, publisher) = events::recorder(agent, "cobalt-ovs-agent", "pod-0", clock, Arc::default());
        let running = publisher.run(stop.clone());
        let publisher = tokio::spawn(async move { running.await.unwrap_or_else(|never| match never {}) });
        let (limits, audience) = (Limits::default(), None);
        let rig = Self { server, admin, region, host, stop, publisher, recorder, limits, audience };
        rig.furnish().await;
        rig
    }

    pub(crate) fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.limits);
        self
    }

    pub(crate) fn audience(mut self, audience: &str) -> Self {
        self.audience = Some(audience.into());
        self
    }

    /// Our kinds, the OVSNode, the agent's role and a role for people.
    async fn furnish(&self) {
        for definition in crd::all() {
            self.create::<CustomResourceDefinition>(None, serde_json::to_value(definition).unwrap()).await;
        }
        self.server.settle().await;
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        self.create::<k8s_openapi::api::core::v1::Namespace>(None, namespace).await;
        let node = json!({
            "apiVersion": "ovs.c5c3.io/v1alpha1", "kind": "OVSNode",
            "metadata": {"name": self.host.as_str()}, "spec": {"nodeRef": {"name": self.host.as_str()}},
        });
        self.create::<OVSNode>(Some(NAMESPACE), node).await;
        self.role(
            "ovs-agent",
            &json!([
                {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
                {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
                {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
                {"apiGroups": ["ovs.c5c3.io"], "resources": ["ovsnodes"], "verbs": ["get"]},
                {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["endpoints-tls"],
                 "verbs": ["get", "list", "watch"]},
            ]),
            &json!({"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "ovs-agent"}),
        )
        .await;
        self.role(
            "troubleshooter",
            &json!([
                {"apiGroups": ["ovs.c5c3.io"], "resources": ["ovsnodes/trace", "ovsnodes/capture"], "verbs": ["create"]},
                {"apiGroups": ["ovs.c5c3.io"], "resources": ["ovsnodes/diagnose"], "verbs": ["get"]},
            ]),
            &json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "network"}),
        )
        .await;
        self.role(
            "reader",
            &json!([{"apiGroups": ["ovs.c5c3.io"], "resources": ["ovsnodes/diagnose"], "verbs": ["get"]}]),
            &json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "readers"}),
        )
        .await;
    }

    pub(crate) async fn create<K: Resource<DynamicType = ()>>(&self, namespace: Option<&str>, body: Value) {
        let mut path = K::url_path(&(), namespace);
        path.push_str("?fieldManager=test");
        let mut body = body;
        body["apiVersion"] = K::api_version(&()).into();
        body["kind"] = K::kind(&()).into();
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(serde_json::to_vec(&body).unwrap()).unwrap();
        self.admin.request::<Value>(request).await.unwrap();
    }

    pub(crate) async fn role(&self, name: &str, rules: &Value, subject: &Value) {
        use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
        self.create::<ClusterRole>(None, json!({"metadata": {"name": name}, "rules": rules})).await;
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        let binding = json!({"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]});
        self.create::<ClusterRoleBinding>(None, binding).await;
    }

    pub(crate) async fn unbind(&self, name: &str) {
        let bindings: Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> = Api::all(self.admin.clone());
        bindings.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// A token of a service account of this name, which is made and may do everything here.
    pub(crate) async fn service_account(&self, name: &str, audiences: &[&str]) -> String {
        use k8s_openapi::api::core::v1::ServiceAccount;
        self.create::<ServiceAccount>(Some(NAMESPACE), json!({"metadata": {"name": name}})).await;
        self.role(
            &format!("{name}-troubleshooter"),
            &json!([{"apiGroups": ["ovs.c5c3.io"], "resources": ["*"], "verbs": ["*"]}]),
            &json!({"kind": "ServiceAccount", "namespace": NAMESPACE, "name": name}),
        )
        .await;
        let wanted = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": audiences, "expirationSeconds": 600},
        });
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin.clone(), NAMESPACE);
        let wanted = serde_json::from_value(wanted).unwrap();
        let made = accounts.create_token_request(name, &PostParams::default(), &wanted).await.unwrap();
        made.status.unwrap().token
    }

    pub(crate) fn switch(&self) -> SimSwitch {
        self.region.switch(&self.host).unwrap()
    }

    pub(crate) fn endpoints(&self, switch: impl OvsInspector + 'static) -> Endpoints {
        let object = ObjectKey::namespaced(NAMESPACE, self.host.as_str());
        Endpoints::new(limited(&self.server, "agent"), object, Arc::new(switch))
            .recorder(self.recorder.clone())
            .limits(self.limits.clone())
            .audience(self.audience.clone())
    }

    /// The routes, without a socket: time may be virtual.
    pub(crate) fn router(&self) -> Router {
        self.endpoints(self.switch()).router(&self.stop)
    }

    /// The ports of the host's VMs, with the VMs.
    pub(crate) async fn taps(&self) -> Vec<(String, String)> {
        let snapshot = self.switch().snapshot().await.unwrap();
        let ports = snapshot.interfaces.into_iter();
        ports.filter_map(|port| Some((port.name, port.instance?))).collect()
    }

    /// Ends the publisher of Events and shows what it has sent.
    pub(crate) async fn events(self) -> Vec<Event> {
        self.stop.trigger();
        drop(self.recorder);
        tokio::time::timeout(LONG, self.publisher).await.unwrap().unwrap();
        let api: Api<Event> = Api::namespaced(self.admin, NAMESPACE);
        api.list(&ListParams::default()).await.unwrap().items
    }
}

/// A client with the agent's rights, which gives up on a silent server.
fn limited(server: &ApiServer, name: &str) -> Client {
    let limits = client::limits(Duration::from_secs(20), Arc::new(Metrics::new()));
    let identity = Identity::service_account(NAMESPACE, "ovs-agent");
    Client::new(tower::Layer::layer(&limits, server.service_as(name, identity)), "default")
}

pub(crate) fn request(method: &str, path: &str, token: &str, body: &Value) -> Request<Body> {
    let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
    let request = Request::builder().method(method).uri(path).header("host", "node");
    request.header("authorization", format!("Bearer {token}")).body(Body::from(body)).unwrap()
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> Response<Body> {
    router.clone().oneshot(request).await.unwrap()
}

pub(crate) async fn bytes(response: Response<Body>) -> Vec<u8> {
    response.into_body().collect().await.unwrap().to_bytes().to_vec()
}

/// The answer's code and JSON.
pub(crate) async fn ask(router: &Router, method: &str, path: &str, token: &str, body: Value) -> (StatusCode, Value) {
    let response = send(router, request(method, path, token, &body)).await;
    let code = response.status();
    let body = bytes(response).await;
    (code, serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{error}: {body:?}")))
}

/// A switch whose captures never end by themselves, and which knows how many run.
#[derive(Clone)]
pub(crate) struct Endless {
    inner: SimSwitch,
    running: watch::Sender<usize>,
    broken: Arc<Mutex<Option<cobalt_core::Error>>>,
}

/// Counts a capture down when it is dropped.
struct Running(watch::Sender<usize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

impl Endless {
    pub(crate) fn new(inner: SimSwitch) -> Self {
        Self { inner, running: watch::Sender::new(0), broken: Arc::default() }
    }

    /// Lets the next capture fail after its first packets.
    pub(crate) fn break_next(&self, error: cobalt_core::Error) {
        *self.broken.lock().unwrap() = Some(error);
    }

    /// Waits until so many captures run.
    pub(crate) async fn running(&self, wanted: usize) {
        let mut running = self.running.subscribe();
        tokio::time::timeout(LONG, running.wait_for(|running| *running == wanted)).await.unwrap().unwrap();
    }
}

#[async_trait]
impl OvsInspector for Endless {
    fn features(&self) -> OvsFeatures {
        self.inner.features()
    }

    async fn snapshot(&self) -> Result<OvsSnapshot> {
        self.inner.snapshot().await
    }

    fn changes(&self) -> BoxStream<'static, OvsChange> {
        self.inner.changes()
    }

    async fn trace(&self, request: &TraceRequest) -> Result<Trace> {
        self.inner.trace(request).await
    }

    async fn capture(&self, request: &CaptureRequest) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
        let first = self.inner.capture(request).await?;
        self.running.send_modify(|running| *running += 1);
        let running = Running(self.running.clone());
        let last = match self.broken.lock().unwrap().take() {
            Some(error) => stream::iter([Err(error)]).boxed(),
            None => stream::pending().boxed(),
        };
        Ok(first.chain(last).map(move |chunk| (chunk, &running).0).boxed())
    }

    /// Breaks after three flows if it is told to.
    async fn flows(&self, bridge: &str, table: Option<u8>) -> Result<BoxStream<'static, Result<Flow>>> {
        let flows = self.inner.flows(bridge, table).await?;
        Ok(match self.broken.lock().unwrap().take() {
            Some(error) => flows.take(3).chain(stream::iter([Err(error)])).boxed(),
            None => flows,
        })
    }
}
