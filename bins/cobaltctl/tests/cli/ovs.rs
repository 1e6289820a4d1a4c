//! `cobaltctl ovs`, against an agent's endpoints on a simulated switch and an API server that knows roles.

use std::{process::Command, sync::Arc};

use cobalt_apiserver::{ApiServer, Identity};
use cobalt_core::{
    agent::ovs::{
        Config, OvsAgent,
        endpoints::{Endpoints, TlsSource},
    },
    api::{OVSNode, Troubleshooting, crd},
    jiff::{SignedDuration, Timestamp},
    ovs::OvsInspector,
    runtime::{shutdown::Shutdown, watch::ObjectKey},
};
use cobalt_sim::{Region, SimSwitch, SwitchFault};
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    PROGRAM,
    forward::Forwarding,
    testing::{LIMIT, Running, Said, Scratch, command, run},
};

const NAMESPACE: &str = "ovn-system";

/// A host with an agent, and a cluster around it.
struct Served {
    region: Region,
    admin: Client,
    node: String,
    taps: Vec<String>,
    address: std::net::SocketAddr,
    server: ApiServer,
    scratch: Scratch,
    stop: Shutdown,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.trigger();
    }
}

async fn post(client: &Client, path: &str, body: &Value) {
    let request = http::Request::post(path).header("content-type", "application/json");
    client.request::<Value>(request.body(serde_json::to_vec(body).unwrap()).unwrap()).await.unwrap();
}

impl Served {
    async fn new() -> Self {
        Self::with(|switch| switch).await
    }

    /// A switch that differs from the usual one.
    async fn with(changed: impl FnOnce(SimSwitch) -> SimSwitch) -> Self {
        let region = Region::builder().hosts(2).vms_per_host(2).seed(5).build();
        let host = region.hosts().remove(0);
        let server = ApiServer::builder()
            .rbac()
            .seed(1)
            .token("alices-token", Identity::new("alice", ["network"]))
            .token("bobs-token", Identity::new("bob", ["readers"]))
            .start();
        let admin = Client::new(server.service("admin"), "default");
        for definition in crd::all() {
            Api::all(admin.clone()).create(&PostParams::default(), &definition).await.unwrap();
        }
        server.settle().await;
        let node = host.to_string();
        post(&admin, "/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACE}})).await;
        let group = "/apis/ovs.c5c3.io/v1alpha1";
        let body = json!({"apiVersion": "ovs.c5c3.io/v1alpha1", "kind": "OVSNode", "metadata": {"name": node},
                          "spec": {"nodeRef": {"name": node}}});
        post(&admin, &format!("{group}/namespaces/{NAMESPACE}/ovsnodes"), &body).await;
        let read = json!({"apiGroups": ["ovs.c5c3.io"], "resources": ["ovsnodes"], "verbs": ["get", "list"]});
        let all = json!({"apiGroups": ["ovs.c5c3.io"], "resources": ["ovsnodes/trace", "ovsnodes/capture", "ovsnodes/diagnose"], "verbs": ["get", "create"]});
        let token = json!({"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]});
        let lives = json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]});
        for (group, rules) in [("network", json!([read, all, lives])), ("readers", json!([read, token]))] {
            let subject = json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": group});
            role(&admin, group, &rules, &subject).await;
        }
        post(
            &admin,
            &format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"),
            &json!({"metadata": {"name": "tracer"}}),
        )
        .await;
        let tracer = json!({"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "tracer"});
        role(&admin, "tracer", &json!([all]), &tracer).await;

        let stop = Shutdown::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (serving, ending) = (server.clone(), stop.clone());
        tokio::spawn(async move { serving.serve(listener, async move { ending.triggered().await }).await });

        let switch = changed(region.switch(&host).unwrap());
        let snapshot = switch.snapshot().await.unwrap();
        let taps = snapshot.interfaces.iter().filter(|port| port.instance.is_some()).map(|port| port.name.clone());
        let taps = taps.collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let object = ObjectKey::namespaced(NAMESPACE, &node);
        let switch: Arc<dyn OvsInspector> = Arc::new(switch);
        let config = Config { stale_flows: None, ..Config::new(&node) };
        let agent = OvsAgent::new(Client::new(server.service("agent"), "default"), config, switch.clone());
        let endpoints = Endpoints::new(Client::new(server.service("agent"), "default"), object, switch)
            .demand(agent.demand())
            .tls(TlsSource::SelfSigned(vec![node.clone()]));
        let mut published = endpoints.published();
        tokio::spawn(endpoints.serve(listener, [127, 0, 0, 1].into(), stop.clone()));
        let told = async {
            loop {
                if let Some(told) = published.get() {
                    return told;
                }
                published.changed().await;
            }
        };
        let told = tokio::time::timeout(LIMIT, told).await.unwrap();
        let served = Self { region, admin, node, taps, address, server, scratch: Scratch::new(), stop };
        served.publish(&told).await;
        // It publishes nothing here, as there is no Node; it looks for stale flows.
        tokio::spawn(agent.run(served.stop.clone()));
        served
    }

    async fn publish(&self, told: &Troubleshooting) {
        let nodes: Api<OVSNode> = Api::namespaced(self.admin.clone(), NAMESPACE);
        let status = json!({"status": {
            "ovsVersion": "3.5.0",
            "conditions": [{"type": "Ready", "status": "True", "reason": "Healthy", "message": "",
                            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "bridges": [{"name": "br-int", "ports": 5, "flows": 210, "datapathType": "system", "status": "Active"}],
            "troubleshooting": told,
        }});
        nodes.patch_status(&self.node, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    /// A sign of life of the agent, so many seconds ago.
    async fn alive(&self, seconds: i64) {
        let leases: Api<Lease> = Api::namespaced(self.admin.clone(), NAMESPACE);
        let name = cobalt_core::agent::ovs::lease_name(&self.node);
        let renewed = Timestamp::now() - SignedDuration::from_secs(seconds);
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
                           "spec": {"leaseDurationSeconds": 40, "renewTime": MicroTime(renewed)}});
        leases.patch(&name, &PatchParams::apply("test"), &Patch::Apply(&lease)).await.unwrap();
    }

    /// Runs the program off the threads that serve it.
    async fn run(&self, token: &str, args: &[&str]) -> Said {
        self.run_with(&self.server.kubeconfig_with_token(self.address, token), args).await
    }

    /// The same with a kubeconfig of one's own.
    async fn run_with(&self, kubeconfig: &str, args: &[&str]) -> Said {
        let kubeconfig = self.scratch.file("kubeconfig", kubeconfig);
        let mut command: Command = command(PROGRAM);
        command.arg("ovs").args(args).args(["--kubeconfig", &kubeconfig]);
        tokio::task::spawn_blocking(move || {
            let mut running = Running::start(&mut command);
            let code = running.wait().code();
            Said { code, out: running.out(), err: running.err() }
        })
        .await
        .unwrap()
    }
}

async fn role(admin: &Client, name: &str, rules: &Value, subject: &Value) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    post(admin, &format!("{rbac}/clusterroles"), &json!({"metadata": {"name": name}, "rules": rules})).await;
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let binding = json!({"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]});
    post(admin, &format!("{rbac}/clusterrolebindings"), &binding).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_is_read_from_the_ovsnode() {
    let served = Served::new().await;
    let said = served.run("bobs-token", &["status", &served.node]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    for word in ["Open vSwitch 3.5.0", "br-int", "Ready", "https://127.0.0.1:"] {
        assert!(said.out.contains(word), "{word}: {}", said.out);
    }
    let said = served.run("bobs-token", &["status", &served.node, "-o", "json"]).await;
    let node: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(node["status"]["ovsVersion"], "3.5.0");
    served.run("bobs-token", &["status", "hv-999"]).await.refused(1, &["error: there is no OVSNode hv-999"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_word_of_an_agent_that_is_silent_is_not_taken_for_how_the_switch_is() {
    let served = Served::new().await;
    let status = ["status", served.node.as_str()];
    // Bob may read OVSNodes only.
    let said = served.run("bobs-token", &status).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("you may not get Lease cobalt-ovs-agent-"), "{said:?}");
    let said = served.run("alices-token", &status).await;
    assert!(said.out.contains("Ready"), "what was known is told all the same: {said:?}");
    said.refused(1, &["nobody can tell", "has given no sign of life; its status was last written", " ago"]);
    served.alive(0).await;
    let said = served.run("alices-token", &status).await;
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    served.alive(7200).await;
    served.run("alices-token", &status).await.refused(1, &["nobody can tell", "gave its last sign of life 2h"]);
    let said = served.run("alices-token", &["status", &served.node, "-o", "json"]).await;
    assert_eq!(said.code, Some(1), "{said:?}");
    serde_json::from_str::<Value>(&said.out).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_is_followed_and_a_dropped_one_is_bad_news() {
    let served = Served::new().await;
    let (a, b) = (served.taps[0].as_str(), served.taps[1].as_str());
    let said = served.run("alices-token", &["trace", &served.node, "--from", a, "--to", b]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains(&format!("the packet leaves by {b} (VM ")), "{}", said.out);
    let lost = ["trace", &served.node, "--from", a, "--to", "fa:16:3e:00:00:99", "-o", "json"];
    let said = served.run("alices-token", &lost).await;
    assert_eq!(said.code, Some(3), "{said:?}");
    let answer: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(answer["verdict"], "dropped");
    let said = served.run("alices-token", &["trace", &served.node, "--from", "nowhere", "--to", b]).await;
    said.refused(1, &["error: the agent of", "no port, VM or logical port \"nowhere\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_is_read_by_people_and_by_scripts() {
    let served = Served::new().await;
    let said = served.run("alices-token", &["doctor", &served.node]).await;
    assert_eq!((said.code, said.out.as_str()), (Some(0), "nothing is wrong with the switch\n"), "{said:?}");
    let host = served.region.hosts().remove(0);
    served.region.world().switch_fault(&host, SwitchFault::Lacp(false)).unwrap();
    let said = served.run("alices-token", &["doctor", &served.node]).await;
    assert_eq!(said.code, Some(3), "{said:?}");
    for word in ["CRITICAL  BondDown bond0", "→ no link: check cables", "eth1: the partner is silent"] {
        assert!(said.out.contains(word), "{word}: {}", said.out);
    }
    let said = served.run("alices-token", &["doctor", &served.node, "--port", &served.taps[0]]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("is a port of br-int (instance)"), "{}", said.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capture_becomes_a_file() {
    let served = Served::new().await;
    let file = served.scratch.path("tap.pcap");
    let path = file.display().to_string();
    let args = ["capture", &served.node, "--port", &served.taps[0], "--seconds", "3", "-w", &path];
    let said = served.run("alices-token", &args).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("3 packets, 252 bytes"), "{said:?}");
    let bytes = std::fs::read(file).unwrap();
    assert_eq!((&bytes[..4], bytes.len()), (&0xa1b2_c3d4_u32.to_le_bytes()[..], 252));
    let args = ["capture", &served.node, "--port", &served.taps[0], "--seconds", "9999", "-w", &path];
    served.run("alices-token", &args).await.refused(1, &["seconds: 9999 is not within 1 and 300"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_and_tokens_are_matters_of_their_own_exit_code() {
    let served = Served::new().await;
    let (a, b) = (served.taps[0].as_str(), served.taps[1].as_str());
    let trace = ["trace", &served.node, "--from", a, "--to", b];
    served.run("bobs-token", &trace).await.refused(4, &["bob", "cannot create", "ovsnodes/trace"]);
    // Bob may request a token of a service account that may.
    let mut with = trace.to_vec();
    with.extend(["--as-service-account", "ovn-system/tracer"]);
    let said = served.run("bobs-token", &with).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    // Alice may not.
    served.run("alices-token", &with).await.refused(4, &["request a token of service account ovn-system/tracer"]);
    // Whoever has no token is told what to do. The OVSNode can be read here without one.
    let anyone = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "system:anonymous"});
    let read = json!([{"apiGroups": ["ovs.c5c3.io"], "resources": ["ovsnodes"], "verbs": ["get", "list"]}]);
    role(&served.admin, "anyone", &read, &anyone).await;
    let kubeconfig = served.scratch.file("no-token", &served.server.kubeconfig(served.address));
    let mut command = command(PROGRAM);
    command.arg("ovs").args(trace).args(["--kubeconfig", &kubeconfig]);
    let said = tokio::task::spawn_blocking(move || {
        let mut running = Running::start(&mut command);
        let code = running.wait().code();
        Said { code, out: running.out(), err: running.err() }
    });
    said.await.unwrap().refused(4, &["no token", "--as-service-account"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_not_there_or_not_itself_is_not_trusted() {
    let served = Served::new().await;
    let nodes: Api<OVSNode> = Api::namespaced(served.admin.clone(), NAMESPACE);
    let told = nodes.get(&served.node).await.unwrap().status.unwrap().troubleshooting.unwrap();
    let doctor = ["doctor", served.node.as_str(), "--via", "direct"];
    served.publish(&Troubleshooting { server_name: Some("somebody-else".into()), ..told.clone() }).await;
    served.run("alices-token", &doctor).await.refused(1, &["error: talk to the agent of", "certificate"]);
    served.publish(&Troubleshooting { url: told.url.replace("https:", "http:"), ..told.clone() }).await;
    served.run("alices-token", &doctor).await.refused(1, &["https://"]);
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let free = taken.local_addr().unwrap();
    drop(taken);
    served.publish(&Troubleshooting { url: format!("https://{free}"), ..told }).await;
    served.run("alices-token", &doctor).await.refused(1, &["error: reach the agent of", &free.to_string()]);
    let auto = ["doctor", served.node.as_str()];
    served.run("alices-token", &auto).await.refused(4, &["look for the agent's pod"]);
}

#[test]
fn a_command_line_that_makes_no_sense_is_refused() {
    run(PROGRAM, &["ovs", "trace", "node-1"]).refused(2, &["--from"]);
    run(PROGRAM, &["ovs", "doctor"]).refused(2, &["NODE"]);
    run(PROGRAM, &["ovs", "doctor", "node-1", "--local"]).refused(2, &["--local"]);
    run(PROGRAM, &["ovs", "doctor", "node-1", "--as-service-account", "x"]).refused(2, &["NAMESPACE/NAME"]);
    run(PROGRAM, &["ovs", "capture", "node-1", "--port", "tap1"]).refused(2, &["--write"]);
    // What would have no effect is not taken in silence.
    let pki = ["--ssl-ca-cert", "ca.pem"];
    run(PROGRAM, &[&["ovs", "doctor", "node-1", "--stale-flows"][..], &pki].concat()).refused(2, &["--ssl-ca-cert"]);
    run(PROGRAM, &[&["ovs", "doctor", "--local"][..], &pki].concat()).refused(2, &["--stale-flows"]);
}

#[test]
fn without_a_switch_on_this_machine_that_is_what_is_said() {
    let scratch = Scratch::new();
    let nowhere = scratch.path("").display().to_string();
    let args = ["ovs", "doctor", "--local", "--ovs-run-dir", &nowhere, "--ovn-run-dir", &nowhere];
    let said = run(PROGRAM, &args);
    assert!(!said.err.contains("panicked"), "{said:?}");
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.out.contains("DaemonAbsent ovs-vswitchd"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_route_the_way_is_a_port_forward_to_the_agents_pod() {
    let served = Served::new().await;
    let forwarding = Forwarding::before(served.address).await;
    let kubeconfig = served.server.kubeconfig_with_token(forwarding.address, "alices-token");
    let said = served.run_with(&kubeconfig, &["doctor", &served.node, "--via", "port-forward"]).await;
    assert_eq!((said.code, said.out.as_str()), (Some(0), "nothing is wrong with the switch\n"), "{said:?}");
    let asked = forwarding.asked();
    let [pods, forward] = &asked[..] else { panic!("{asked:?}") };
    for word in ["/namespaces/ovn-system/pods?", "labelSelector=app%3Dovs-agent", "fieldSelector=spec.nodeName%3D"] {
        assert!(pods.contains(word), "{word} in {pods}");
    }
    assert!(forward.contains("/pods/agent-new/portforward?"), "the one that runs: {forward}");

    // The same by itself, where nobody listens at the host's address. The other end of the forward is the agent.
    let nodes: Api<OVSNode> = Api::namespaced(served.admin.clone(), NAMESPACE);
    let told = nodes.get(&served.node).await.unwrap().status.unwrap().troubleshooting.unwrap();
    let elsewhere = told.url.replace("127.0.0.1", "127.0.0.77");
    served.publish(&Troubleshooting { url: elsewhere, ..told }).await;
    let file = served.scratch.path("forwarded.pcap").display().to_string();
    let args = ["capture", &served.node, "--port", &served.taps[0], "--seconds", "3", "-w", &file];
    let said = served.run_with(&kubeconfig, &args).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("trying a port-forward") && said.err.contains("3 packets, 252 bytes"), "{said:?}");
    assert_eq!(std::fs::read(&file).unwrap().len(), 252);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ovsnode_in_another_namespace_is_not_taken_for_the_hosts() {
    let served = Served::new().await;
    post(&served.admin, "/api/v1/namespaces", &json!({"metadata": {"name": "mallory"}})).await;
    let body = json!({"apiVersion": "ovs.c5c3.io/v1alpha1", "kind": "OVSNode", "metadata": {"name": "hv-fake"},
                      "spec": {"nodeRef": {"name": "hv-fake"}}});
    post(&served.admin, "/apis/ovs.c5c3.io/v1alpha1/namespaces/mallory/ovsnodes", &body).await;
    let said = served.run("alices-token", &["doctor", "hv-fake"]).await;
    said.refused(1, &["there is no OVSNode hv-fake in namespace ovn-system", "only in mallory", "--namespace"]);
    // Whoever names the namespace means it.
    let said = served.run("alices-token", &["doctor", "hv-fake", "-n", "mallory"]).await;
    said.refused(1, &["the agent of hv-fake answers no questions"]);
    // One beside the real one changes nothing.
    let body = json!({"apiVersion": "ovs.c5c3.io/v1alpha1", "kind": "OVSNode", "metadata": {"name": served.node},
                      "spec": {"nodeRef": {"name": served.node}}});
    post(&served.admin, "/apis/ovs.c5c3.io/v1alpha1/namespaces/mallory/ovsnodes", &body).await;
    let said = served.run("alices-token", &["doctor", &served.node]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn for_somebody_with_a_client_certificate_a_token_is_requested_if_they_may() {
    let served = Served::new().await;
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["dave".into()]).unwrap().self_signed(&key).unwrap();
    let path = |name: &str, pem: String| served.scratch.file(name, &pem);
    // Over plain HTTP the server does not see the certificate, so for it this is nobody.
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": format!("http://{}", served.address)}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "dave"}}],
        "users": [{"name": "dave", "user": {"client-certificate": path("dave.crt", certificate.pem()),
                                            "client-key": path("dave.key", key.serialize_pem())}}],
    })
    .to_string();
    let anyone = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "system:anonymous"});
    let read = json!({"apiGroups": ["ovs.c5c3.io"], "resources": ["ovsnodes"], "verbs": ["get", "list"]});
    role(&served.admin, "anyone", &json!([read]), &anyone).await;
    let doctor = ["doctor", served.node.as_str()];
    let said = served.run_with(&kubeconfig, &doctor).await;
    said.refused(4, &["a client certificate and no token", "ovn-system/ovs-troubleshooter", "--as-service-account"]);
    // They may, and there is one.
    let token = json!({"apiGroups": [""], "resources": ["serviceaccounts/token"],
                       "resourceNames": ["ovs-troubleshooter"], "verbs": ["create"]});
    role(&served.admin, "requester", &json!([token]), &anyone).await;
    let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    post(&served.admin, &accounts, &json!({"metadata": {"name": "ovs-troubleshooter"}})).await;
    let account = json!({"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "ovs-troubleshooter"});
    let diagnose = json!([{"apiGroups": ["ovs.c5c3.io"], "resources": ["ovsnodes/diagnose"], "verbs": ["get"]}]);
    role(&served.admin, "troubleshooter", &diagnose, &account).await;
    let said = served.run_with(&kubeconfig, &doctor).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("asking as service account ovn-system/ovs-troubleshooter"), "{said:?}");
    // The same where the agent takes only tokens made for it: the one that is requested is. (This agent takes any, so
    // the server refuses it in the end; what counts is that it was asked for, and for whom.)
    let nodes: Api<OVSNode> = Api::namespaced(served.admin.clone(), NAMESPACE);
    let told = nodes.get(&served.node).await.unwrap().status.unwrap().troubleshooting.unwrap();
    served.publish(&Troubleshooting { audience: Some("ovs-agent".into()), ..told }).await;
    let said = served.run_with(&kubeconfig, &doctor).await;
    said.refused(4, &["asking as service account ovn-system/ovs-troubleshooter", "the token is not valid"]);
    // Somebody's own token is not sent.
    served.run("alices-token", &doctor).await.refused(4, &["only tokens made for it, so yours was not sent"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_says_cannot_move_the_cursor() {
    let served = Served::new().await;
    let nodes: Api<OVSNode> = Api::namespaced(served.admin.clone(), NAMESPACE);
    let told = nodes.get(&served.node).await.unwrap().status.unwrap().troubleshooting.unwrap();
    let evil = "https://\u{1b}[2Jhost";
    served.publish(&Troubleshooting { url: evil.into(), ..told.clone() }).await;
    let said = served.run("alices-token", &["doctor", &served.node]).await;
    said.refused(1, &["error: "]);
    assert!(!said.err.contains('\u{1b}'), "{said:?}");
    // An answer that is a refusal with such words in it.
    served.publish(&told).await;
    let said = served.run("alices-token", &["trace", &served.node, "--from", "\u{1b}[2J", "--to", "x"]).await;
    said.refused(1, &["the agent of"]);
    assert!(!said.err.contains('\u{1b}'), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_has_stale_flows_looked_for() {
    let served = Served::new().await;
    let said = served.run("alices-token", &["doctor", &served.node, "--stale-flows"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("looks for stale flows"), "{said:?}");
    assert!(!said.err.contains("nobody can tell"), "{said:?}");
    assert_eq!(said.out, "nothing is wrong with the switch\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_flows_are_told_by_cookie_also_to_whoever_asks_about_one_port() {
    let served = Served::new().await;
    let host = served.region.hosts().remove(0);
    served.region.world().switch_fault(&host, SwitchFault::StaleFlows(2)).unwrap();
    let port = served.taps[0].as_str();
    let args = ["doctor", &served.node, "--stale-flows", "--port", port, "-o", "json"];
    let said = served.run("alices-token", &args).await;
    assert_eq!(said.code, Some(0), "a warning: {said:?}");
    let answer: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&answer["port"]["name"], &answer["staleFlows"]["flows"]), (&json!(port), &json!(2)), "{answer}");
    assert!(answer["staleFlows"]["cookies"][0]["cookie"].as_str().unwrap().starts_with("0x"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_can_tell_which_flows_are_stale_that_is_no_good_news() {
    let served = Served::with(SimSwitch::without_southbound).await;
    let args = ["doctor", served.node.as_str(), "--stale-flows", "-o", "json"];
    let said = served.run("alices-token", &args).await;
    said.refused(1, &["nobody can tell which flows are stale"]);
    let answer: Value = serde_json::from_str(&said.out).unwrap();
    assert!(answer["staleFlows"]["unknown"].is_string() && answer["staleFlows"]["flows"].is_null(), "{answer}");
    assert_eq!(answer["summary"], "nothing is wrong with the switch", "what is known is told all the same: {answer}");
    // What is critical counts more.
    let host = served.region.hosts().remove(0);
    served.region.world().switch_fault(&host, SwitchFault::Lacp(false)).unwrap();
    served.run("alices-token", &args).await.refused(3, &["nobody can tell which flows are stale"]);
}
