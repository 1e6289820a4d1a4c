//! A current kubectl.

use serde_json::json;

use crate::stage::{Stage, config_map, drain, hypervisor};
use crate::tool::kubectl;

const RELEASE: &str = "1.32";

fn stage(test: &str) -> Option<Stage> {
    Some(Stage::new(test, kubectl(test, RELEASE)?))
}

#[test]
fn current_kubectl_shows_objects_as_recorded() {
    let Some(stage) = stage("current_kubectl_shows_objects_as_recorded") else { return };
    for id in [
        "8.018-get-hv-cold",
        "8.020-get-hv",
        "8.021-get-hv-wide",
        "8.022-get-hv-yaml",
        "8.024-get-hv-name",
        "8.025-get-hv-missing",
        "8.026-get-hv-sel",
        "8.027-get-hv-sort",
        "8.028-get-hv-customcol",
        "8.029-get-unknown",
    ] {
        stage.session(id);
    }
    stage.watch("8.030-get-hv-watch", 3, || stage.change("hv1", &json!({"version": "x1794966697"})));
    stage.watch("8.031-get-hv-name-watch", 2, || stage.change("hv1", &json!({"version": "x1794966698"})));
    stage.session("8.032-describe-hv");
    stage.session("8.033-describe-node");
    stage.session("8.080-wait");
    stage.session("8.068-api-resources");
    stage.session("8.067-explain");
}

#[test]
fn current_kubectl_applies_as_recorded() {
    let Some(stage) = stage("current_kubectl_applies_as_recorded") else { return };
    stage.file("a.json", &hypervisor("ap0", &json!({"version": "1"})));
    stage.session("8.034-apply-create");
    stage.session("8.035-apply-noop");
    stage.file("a.json", &hypervisor("ap0", &json!({"version": "2", "customTraits": ["X"]})));
    stage.session("8.036-apply-change");
    stage.session("8.037-apply-dry-server");
    stage.file("b.json", &hypervisor("ss0", &json!({"version": "1"})));
    stage.session("8.038-apply-serverside");
    stage.session("8.039-apply-serverside-again");
    stage.change("ss0", &json!({"version": "other"}));
    stage.session("8.040-apply-serverside-conflict");
    stage.session("8.041-apply-serverside-force");
    stage.session("8.042-apply-serverside-over-client");
    stage.file("c.json", &config_map("k0", &json!({"a": "1"})));
    stage.session("8.043-apply-cm");
    stage.file("c.json", &config_map("k0", &json!({"b": "1"})));
    stage.session("8.044-apply-cm-change");
    stage.file("d.json", &hypervisor("bad", &json!({"maintenance": "bogus"})));
    stage.session("8.045-apply-invalid");
    stage.file("d.json", &hypervisor("unk0", &json!({"nosuch": 1})));
    stage.session("8.046-apply-unknown-field");
    stage.session("8.047-diff");
    stage.file("e.json", &hypervisor("cr0", &json!({})));
    stage.session("8.048-create");
    stage.session("8.049-create-exists");
    stage.file("e.json", &hypervisor("cr0", &json!({"version": "r"})));
    stage.session("8.050-replace");
    for id in ["8.074-delete", "8.076-delete-nowait", "8.077-delete-missing", "8.078-delete-ignore"] {
        stage.session(id);
    }
    // It waits for whoever holds the object.
    let path = "/apis/kvm.cloud.sap/v1/hypervisors/ss0";
    stage.send("PATCH", path, &json!({"metadata": {"finalizers": ["wire.test/hold"]}}));
    std::thread::scope(|scope| {
        scope.spawn(|| stage.session("8.075-delete-finalizer"));
        stage.deletion_of("/apis/kvm.cloud.sap/v1/hypervisors", "ss0");
        stage.send("PATCH", path, &json!({"metadata": {"finalizers": null}}));
    });
}

#[test]
fn current_kubectl_changes_objects_as_recorded() {
    let Some(stage) = stage("current_kubectl_changes_objects_as_recorded") else { return };
    for id in [
        "8.051-patch-merge",
        "8.052-patch-status",
        "8.053-patch-default",
        "8.054-edit",
        "8.055-label",
        "8.056-label-overwrite-refused",
        "8.057-annotate",
        "8.058-label-remove",
        "8.059-cordon",
        "8.060-uncordon",
        "8.061-taint",
        "8.062-taint-remove",
        "8.063-drain",
    ] {
        stage.session(id);
    }
    stage.gadget("g1");
    stage.session("8.081-scale-cr");
}

#[test]
fn current_kubectl_shows_events_and_built_in_kinds() {
    let Some(stage) = stage("current_kubectl_shows_events_and_built_in_kinds") else { return };
    stage.session("8.064-get-events");
    stage.session("8.065-get-events-A");
    let shown = |arguments: &[&str]| {
        let outcome = stage.run(arguments);
        assert_eq!(outcome.code, Some(0), "{arguments:?}: {}", outcome.stderr);
        crate::recording::stable(&outcome.stdout)
    };
    assert_eq!(shown(&["get", "nodes"]), "NAME STATUS ROLES AGE VERSION\nnode1 Unknown <none> AGE");
    let namespaces = shown(&["get", "ns", "--no-headers"]);
    assert_eq!(namespaces.lines().next(), Some("default Active AGE"));
    let explained = shown(&["explain", "node.spec.taints"]);
    assert!(explained.contains("FIELD: taints <[]Object>") && explained.contains("effect <string>"), "{explained}");
}

#[test]
fn current_kubectl_drains_a_node_of_its_pods() {
    let Some(stage) = stage("current_kubectl_drains_a_node_of_its_pods") else { return };
    drain(&stage);
}

/// For these it speaks protobuf, whatever the server would like better.
#[test]
fn current_kubectl_creates_simple_objects() {
    let Some(stage) = stage("current_kubectl_creates_simple_objects") else { return };
    for (command, said) in [
        ("create namespace team", "namespace/team created"),
        ("create configmap cm --from-literal=a=b", "configmap/cm created"),
        ("get configmap cm -o jsonpath={.data.a}", "b"),
        ("create secret generic s --from-literal=a=b", "secret/s created"),
        ("get secret s -o jsonpath={.data.a}{.type}", "Yg==Opaque"),
        ("create serviceaccount sa -n team", "serviceaccount/sa created"),
        (
            "create clusterrole reader --verb=get,list --resource=pods",
            "clusterrole.rbac.authorization.k8s.io/reader created",
        ),
        ("get clusterrole reader -o jsonpath={.rules[0].verbs}", r#"["get","list"]"#),
        (
            "create rolebinding rb --clusterrole=reader --serviceaccount=team:sa",
            "rolebinding.rbac.authorization.k8s.io/rb created",
        ),
        ("get rolebinding rb -o wide --no-headers", "rb ClusterRole/reader AGE team/sa"),
        ("create service clusterip web --tcp=80:8080", "service/web created"),
        ("get service web -o jsonpath={.spec.ports[0].targetPort}{.spec.type}", "8080ClusterIP"),
        (
            "create poddisruptionbudget pdb --min-available=50% --selector=app=web",
            "poddisruptionbudget.policy/pdb created",
        ),
        ("get pdb pdb -o jsonpath={.spec.minAvailable}{.spec.selector.matchLabels.app}", "50%web"),
        ("create priorityclass high --value=1000", "priorityclass.scheduling.k8s.io/high created"),
        ("get priorityclass high -o jsonpath={.value}", "1000"),
        ("auth can-i list pods", "yes"),
    ] {
        let outcome = stage.run(&command.split(' ').collect::<Vec<_>>());
        assert_eq!(outcome.code, Some(0), "{command}: {}", outcome.stderr);
        assert_eq!(crate::recording::stable(&outcome.stdout), said, "{command}");
    }
}

#[test]
fn current_kubectl_lists_what_somebody_may_do() {
    let Some(stage) = stage("current_kubectl_lists_what_somebody_may_do") else { return };
    let outcome = stage.run(&["auth", "can-i", "--list"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let shown = crate::recording::stable(&outcome.stdout);
    assert!(shown.starts_with("Resources Non-Resource URLs Resource Names Verbs"), "{shown}");
    // Without roles everybody may do everything.
    assert!(shown.contains("*.* [] [] [*]") && shown.contains("[*] [] [*]"), "{shown}");
}
