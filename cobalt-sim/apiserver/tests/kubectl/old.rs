//! The kubectl of Debian 12, which knows nothing of streaming lists, aggregated discovery and the newer `OpenAPI`.

use serde_json::json;

use crate::stage::{Stage, config_map, drain, hypervisor};
use crate::tool::kubectl;

const RELEASE: &str = "1.20";

/// The stage as the recording of the old client found it: the current one had been there before.
fn stage(test: &str) -> Option<Stage> {
    let stage = Stage::new(test, kubectl(test, RELEASE)?);
    let path = "/apis/kvm.cloud.sap/v1/hypervisors/hv1";
    stage.send("PATCH", path, &json!({"metadata": {"annotations": {"y0": "1"}}}));
    stage.send("PATCH", &format!("{path}/status"), &json!({"status": {"numInstances": 4}}));
    stage.change("hv2", &json!({"skipTests": true}));
    Some(stage)
}

#[test]
fn old_kubectl_shows_objects_as_recorded() {
    let Some(stage) = stage("old_kubectl_shows_objects_as_recorded") else { return };
    for id in [
        "8.082-old-get-hv-cold",
        "8.084-old-get-hv",
        "8.085-old-get-hv-wide",
        "8.088-old-get-hv-name",
        "8.089-old-get-hv-missing",
        "8.090-old-get-hv-sel",
        "8.091-old-get-hv-sort",
        "8.092-old-get-hv-customcol",
        "8.093-old-get-unknown",
    ] {
        stage.session(id);
    }
    stage.watch("8.094-old-get-hv-watch", 3, || stage.change("hv1", &json!({"version": "a"})));
    stage.watch("8.095-old-get-hv-name-watch", 2, || stage.change("hv1", &json!({"version": "b"})));
    stage.session("8.145-old-wait");
    stage.session("8.133-old-api-resources");
    stage.session("8.132-old-explain");
    let described = stage.run(&["describe", "hv", "hv1"]);
    assert_eq!(described.code, Some(0), "{}", described.stderr);
    let shown = crate::recording::stable(&described.stdout);
    for line in ["Annotations: y0: 1", "Num Instances: 4", "Pretty Version: Garden Linux 1592"] {
        assert!(shown.contains(line), "{line} is missing in\n{shown}");
    }
    assert!(shown.contains("Onboarded AGE (x3 over AGE) operator hello"), "{shown}");
}

#[test]
fn old_kubectl_changes_objects_as_recorded() {
    let Some(stage) = stage("old_kubectl_changes_objects_as_recorded") else { return };
    for id in [
        "8.116-old-patch-merge",
        "8.118-old-patch-default",
        "8.120-old-label",
        "8.121-old-label-overwrite-refused",
        "8.122-old-annotate",
        "8.123-old-label-remove",
        "8.142-old-delete-missing",
        "8.143-old-delete-ignore",
        "8.125-old-uncordon",
        "8.126-old-taint",
        "8.127-old-taint-remove",
        "8.128-old-drain",
    ] {
        if id == "8.125-old-uncordon" {
            stage.send("PATCH", "/api/v1/nodes/node1", &json!({"spec": {"unschedulable": true}}));
        }
        stage.session(id);
    }
    stage.gadget("g1");
    stage.session("8.146-old-scale-cr");
}

#[test]
fn old_kubectl_applies_and_deletes_as_recorded() {
    let Some(stage) = stage("old_kubectl_applies_and_deletes_as_recorded") else { return };
    stage.file("a.json", &hypervisor("ap1", &json!({"version": "1"})));
    // It checks by itself, and does not know that defaults come later.
    stage.session("8.098-old-apply-create-validated");
    stage.session("8.099-old-apply-create");
    stage.session("8.100-old-apply-noop");
    stage.file("a.json", &hypervisor("ap1", &json!({"version": "2", "customTraits": ["X"]})));
    stage.session("8.101-old-apply-change");
    stage.session("8.102-old-apply-dry-server");
    stage.file("b.json", &hypervisor("ss1", &json!({"version": "1"})));
    stage.session("8.103-old-apply-serverside");
    stage.file("c.json", &config_map("k1", &json!({"a": "1"})));
    stage.session("8.108-old-apply-cm");
    stage.file("c.json", &config_map("k1", &json!({"b": "1"})));
    stage.session("8.109-old-apply-cm-change");
    stage.file("d.json", &hypervisor("unk1", &json!({"nosuch": 1})));
    stage.session("8.111-old-apply-unknown-field");
    stage.session("8.139-old-delete");
    stage.session("8.129-old-get-events");
    stage.session("8.130-old-get-events-A");
}

#[test]
fn old_kubectl_drains_a_node_of_its_pods() {
    let Some(stage) = stage("old_kubectl_drains_a_node_of_its_pods") else { return };
    drain(&stage);
}
