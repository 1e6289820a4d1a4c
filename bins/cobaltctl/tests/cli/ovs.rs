//! `cobaltctl ovs`, against an agent's endpoints on a simulated switch and an API server that knows roles.

use std::{process::Command, sync::Arc};

use cobalt_apiserver::{ApiServer, Identity};
use cobalt_core::{
    agent::ovs::endpoints::{Endpoints, TlsSource},
    api::{OVSNode, Troubleshooting, crd},
    ovs::OvsInspector,
    runtime::{shutdown::Shutdown, watch::ObjectKey},
};
use cobalt_sim::{Region, SwitchFault};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    PROGRAM,
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
        for (group, rules) in [("network", json!([read, all])), ("readers", json!([read, token]))] {
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

        let switch = region.switch(&host).unwrap();
        let snapshot = switch.snapshot().await.unwrap();
        let taps = snapshot.interfaces.iter().filter(|port| port.instance.is_some()).map(|port| port.name.clone());
        let taps = taps.collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let object = ObjectKey::namespaced(NAMESPACE, &node);
        let endpoints = Endpoints::new(Client::new(server.service("agent"), "default"), object, Arc::new(switch))
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

    fn command(&self, token: &str, args: &[&str]) -> Command {
        let text = self.server.kubeconfig_with_token(self.address, token);
        let kubeconfig = self.scratch.file(&format!("kubeconfig-{token}"), &text);
        let mut command = command(PROGRAM);
        command.arg("ovs").args(args).args(["--kubeconfig", &kubeconfig]);
        command
    }

    /// Runs the program off the threads that serve it.
    async fn run(&self, token: &str, args: &[&str]) -> Said {
        let mut command = self.command(token, args);
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
    for word in ["CRITICAL  BondDown bond0", "→ look at the members", "WARNING  LacpPartnerSilent eth1"] {
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
