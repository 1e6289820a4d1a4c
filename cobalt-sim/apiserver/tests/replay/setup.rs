//! What happened between the records without being recorded: objects that were there already.

use serde_json::{Value, json};

/// One unrecorded act.
pub(crate) enum Step {
    /// The past is forgotten, as by a restart.
    Forget,
    /// A token of which the signature is spoiled.
    Garble { from: &'static str, to: &'static str },
    /// A call of the administrator.
    Call {
        method: &'static str,
        path: String,
        media: &'static str,
        body: Value,
        /// Placeholders the answer tells the value of, by JSON pointer.
        binds: Vec<(&'static str, &'static str)>,
    },
}

const REVISION: &str = "/metadata/resourceVersion";
const UID: &str = "/metadata/uid";
const HYPERVISORS: &str = "/apis/kvm.cloud.sap/v1/hypervisors";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const EVICTIONS: &str = "/apis/kvm.cloud.sap/v1/evictions";

fn post(path: &str, body: Value) -> Step {
    Step::Call { method: "POST", path: path.to_owned(), media: "application/json", body, binds: Vec::new() }
}

fn merge(path: String, body: Value) -> Step {
    Step::Call { method: "PATCH", path, media: "application/merge-patch+json", body, binds: Vec::new() }
}

fn get(path: &str) -> Step {
    let (media, body) = ("application/json", Value::Null);
    Step::Call { method: "GET", path: path.to_owned(), media, body, binds: Vec::new() }
}

/// Somebody else changes what kubectl applied.
fn other(name: &str) -> Step {
    merge(format!("{HYPERVISORS}/{name}?fieldManager=other"), json!({"spec": {"version": "o"}}))
}

fn delete(path: &str) -> Step {
    let (media, body) = ("application/json", Value::Null);
    Step::Call { method: "DELETE", path: path.to_owned(), media, body, binds: Vec::new() }
}

fn version(name: &str, version: &str) -> Step {
    merge(format!("{HYPERVISORS}/{name}"), json!({"spec": {"version": version}}))
}

impl Step {
    fn binding(mut self, placeholder: &'static str, pointer: &'static str) -> Self {
        if let Self::Call { binds, .. } = &mut self {
            binds.push((placeholder, pointer));
        }
        self
    }
}

fn hypervisor(name: &str, metadata: Value) -> Step {
    let mut metadata = metadata;
    metadata["name"] = name.into();
    let object = json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": metadata, "spec": {}});
    post(HYPERVISORS, object)
}

/// The definitions every group but the first begins with.
pub(crate) fn definitions() -> Vec<Step> {
    let definitions = [
        include_str!("../wire/crd-hypervisor.json"),
        include_str!("../wire/crd-eviction.json"),
        include_str!("../wire/crd-gadget.json"),
    ];
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    definitions.into_iter().map(|text| post(path, serde_json::from_str(text).unwrap())).collect()
}

/// Records whose successor came before any controller had done its work.
pub(crate) fn is_immediate(id: &str) -> bool {
    ["1.003", "4.091", "4.092"].iter().any(|prefix| id.starts_with(prefix))
}

/// Records after which the controllers took their time.
pub(crate) fn is_slow(id: &str) -> bool {
    id.starts_with("5.153")
}

/// What happened before a record.
pub(crate) fn before(id: &str) -> Vec<Step> {
    let number = id.split('-').next().unwrap_or_default();
    match number {
        "1.033" => vec![merge(format!("{EVICTIONS}/e1"), json!({"metadata": {"finalizers": ["wire.test/hold"]}}))],
        "2.001" => vec![outlawed()],
        "2.087" => vec![allow("remove", 2)],
        "2.090" => vec![allow("add", 2)],
        "4.095" => vec![post(
            MAPS,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cc"}, "data": {"a": "1"}}),
        )],
        "5.087" => vec![agent().binding("<uid:17>", UID)],
        "5.095" => vec![Step::Garble { from: "<jwt:2>", to: "<jwt:3>" }],
        "5.115" => vec![hypervisor("node1", json!({})), hypervisor("node2", json!({}))],
        "5.134" => family("background", "<uid:29>", "<rv:59>"),
        "5.139" => family("foreground", "<uid:31>", "<rv:62>"),
        "5.144" => family("orphan", "<uid:33>", "<rv:66>"),
        "5.153" => vec![
            post("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "w2"}})),
            post(
                "/api/v1/namespaces/w2/configmaps",
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "finalizers": ["t.io/hold"]}}),
            ),
            post(
                "/api/v1/namespaces/w2/configmaps",
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plain"}}),
            )
            .binding("<rv:72>", REVISION),
        ],
        "6.001" => {
            let label = |i| if i % 2 == 0 { "a" } else { "b" };
            (0..5).map(|i| hypervisor(&format!("n{i}"), json!({"labels": {"z": label(i)}}))).collect()
        }
        "6.009" => vec![hypervisor("n9", json!({}))],
        "6.056" => vec![get(HYPERVISORS).binding("<rv:21>", REVISION)],
        "6.061" => vec![get(HYPERVISORS).binding("<rv:24>", REVISION)],
        "6.075" => {
            let page = get(&format!("{HYPERVISORS}?limit=1"));
            let page = page.binding("<rv:26>", REVISION).binding("<continue:4>", "/metadata/continue");
            let writes = (0..5).map(|i| version("n3", &format!("c{i}")));
            std::iter::once(page).chain(writes).collect()
        }
        "6.078" => vec![Step::Forget],
        "8.001" => showcase(),
        "8.018" => vec![delete(&format!("{HYPERVISORS}/tp"))],
        "8.026" => vec![registration()],
        "8.040" => vec![other("ss0")],
        "8.105" => vec![other("ss1")],
        "8.075" => vec![merge(format!("{HYPERVISORS}/ss0"), json!({"metadata": {"finalizers": ["t.io/h"]}}))],
        "8.140" => vec![merge(format!("{HYPERVISORS}/ss1"), json!({"metadata": {"finalizers": ["t.io/h"]}}))],
        "9.054" => vec![
            hypervisor("a", json!({"labels": {"l": "1"}})).binding("<uid:3>", UID).binding("<rv:3>", REVISION),
            version("a", "2").binding("<rv:4>", REVISION),
        ],
        "9.104" => vec![
            hypervisor("c0", json!({"labels": {"dc": "y"}, "finalizers": ["t.io/h"]})),
            hypervisor("c1", json!({"labels": {"dc": "y"}})),
            hypervisor("c2", json!({"labels": {"dc": "n"}})),
            hypervisor("c3", json!({"labels": {"dc": "n"}})).binding("<rv:14>", REVISION),
        ],
        _ => Vec::new(),
    }
}

/// What happened while a watch was open.
pub(crate) fn during(id: &str, stream: bool) -> Vec<Step> {
    let number = id.split('-').next().unwrap_or_default();
    match number {
        "6.056" if stream => (0..4).map(|i| version("n3", &format!("bm{i}"))).collect(),
        "8.030" if stream => vec![version("hv1", "x1794966697")],
        "8.031" if stream => vec![version("hv1", "x1794966698")],
        "8.094" if stream => vec![version("hv1", "x1794966722")],
        "8.095" if stream => vec![version("hv1", "x1794966723")],
        "8.075" if stream => vec![merge(format!("{HYPERVISORS}/ss0"), json!({"metadata": {"finalizers": null}}))],
        "8.140" if stream => vec![merge(format!("{HYPERVISORS}/ss1"), json!({"metadata": {"finalizers": null}}))],
        _ => Vec::new(),
    }
}

/// An object that says what its schema will forbid later.
fn outlawed() -> Step {
    let object = json!({
        "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": "r1"},
        "spec": {"maintenance": "auto"},
    });
    post(HYPERVISORS, object)
}

/// Changes the values a hypervisor's `maintenance` may have.
fn allow(operation: &str, index: usize) -> Step {
    let path = format!("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/maintenance/enum/{index}");
    Step::Call {
        method: "PATCH",
        path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hypervisors.kvm.cloud.sap".to_owned(),
        media: "application/json-patch+json",
        body: json!([{"op": operation, "path": path, "value": "auto"}]),
        binds: Vec::new(),
    }
}

/// The agent's pod on the first node.
fn agent() -> Step {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent-node1"},
        "spec": {
            "serviceAccountName": "agent", "nodeName": "node1", "containers": [{"name": "c", "image": "i:1"}],
        },
    });
    post("/api/v1/namespaces/w1/pods", pod)
}

/// An owner and what it owns.
fn family(mode: &str, uid: &'static str, revision: &'static str) -> Vec<Step> {
    let owner = format!("gc-{mode}");
    let child = json!({
        "apiVersion": "kvm.cloud.sap/v1", "kind": "Eviction",
        "metadata": {
            "name": format!("{owner}-child"),
            "ownerReferences": [{
                "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "name": owner, "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"hypervisor": owner, "reason": "r"},
    });
    vec![hypervisor(&owner, json!({})).binding(uid, UID), post(EVICTIONS, child).binding(revision, REVISION)]
}

/// What the sessions of kubectl look at.
fn showcase() -> Vec<Step> {
    let labels = json!({"labels": {
        "topology.kubernetes.io/zone": "qa-de-1a",
        "kubernetes.metal.cloud.sap/bb": "bb1",
        "worker.garden.sapcloud.io/group": "g1",
    }});
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let status = json!({"status": {
        "conditions": [
            condition("Ready", "True", "ReadyReady", "ok"),
            condition("Tainted", "False", "NoKubectl", "🟢"),
            condition("Onboarding", "False", "Succeeded", "done"),
        ],
        "hypervisorId": "h-1", "serviceId": "s-1", "internalIp": "10.0.0.1", "numInstances": 3,
        "operatingSystem": {"hardwareModel": "R750", "kernelRelease": "6.6.1", "prettyVersion": "Garden Linux 1592"},
    }});
    let gadgets = "/apis/wire.test/v1/namespaces/default/gadgets";
    let gadget = |name: &str, spec: Value| {
        post(gadgets, json!({"apiVersion": "wire.test/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": spec}))
    };
    let second = json!({
        "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": "hv2"},
        "spec": {"lifecycleEnabled": false},
    });
    let eviction = json!({
        "apiVersion": "kvm.cloud.sap/v1", "kind": "Eviction", "metadata": {"name": "ev1"},
        "spec": {"hypervisor": "hv1", "reason": "test"},
    });
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e1", "namespace": "default"},
        "involvedObject": {"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "name": "hv1", "uid": "<uid:1>"},
        "reason": "Onboarded", "message": "hello", "type": "Normal", "count": 3,
        "source": {"component": "operator"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
    });
    let when = "2026-01-01T00:00:00Z";
    vec![
        hypervisor("hv1", labels).binding("<uid:1>", UID),
        merge(format!("{HYPERVISORS}/hv1/status"), status),
        post(HYPERVISORS, second),
        post(EVICTIONS, eviction),
        gadget("g1", json!({"num": 5, "setList": ["a", "b"], "text": "abc", "when": when})),
        gadget("g2", json!({"when": "2026-11-18T00:00:00Z"})),
        post("/api/v1/nodes", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"}})),
        post("/api/v1/namespaces/default/events", event),
    ]
}

/// What the node controller, which ran beside the server, said of the node after its first round.
fn registration() -> Step {
    let when = "2026-11-18T01:51:00Z";
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "node1.18e900b2cf02af1d", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": "<uid:6>"},
        "reason": "RegisteredNode", "message": "Node node1 event: Registered Node node1 in Controller",
        "source": {"component": "node-controller"}, "reportingComponent": "node-controller",
        "firstTimestamp": when, "lastTimestamp": when, "count": 1, "type": "Normal",
    });
    post("/api/v1/namespaces/default/events?fieldManager=kube-controller-manager", event)
}

/// A body that was recorded as a description of itself.
pub(crate) fn described(text: &str) -> Option<String> {
    let map = |size: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"k": "x".repeat(size)}});
    let body = match text {
        "<ConfigMap with 3200000 bytes in data.k>" => map(3_200_000),
        "<ConfigMap with 1100000 bytes in data.k>" => map(1_100_000),
        "<Gadget with 1600000 bytes in spec.open.k>" => json!({
            "apiVersion": "wire.test/v1", "kind": "Gadget", "metadata": {"name": "big"},
            "spec": {"open": {"k": "x".repeat(1_600_000)}},
        }),
        "<Hypervisor with 270000 bytes of annotations>" => json!({
            "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
            "metadata": {"name": "big", "annotations": {"k": "x".repeat(270_000)}}, "spec": {},
        }),
        "<as event-v1 with note of 1025 x>" => json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "ew2"},
            "eventTime": "2026-01-01T00:00:00.000000Z", "action": "Drain", "reason": "R", "type": "Warning",
            "reportingController": "kvm.cloud.sap/op", "reportingInstance": "op-0", "note": "x".repeat(1025),
            "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p1", "namespace": "w1"},
        }),
        _ => return None,
    };
    Some(body.to_string())
}
