//! Defaults and rules of the built-in kinds, as far as programs notice them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{immutable, services};
use crate::crd;
use crate::names;
use crate::registry::Resource;
use crate::selectors::LabelSelector;
use crate::server::Inner;
use crate::status::StatusCause;
use crate::store::{Key, NAMESPACES, Object, PODS};

/// Namespaces that cannot be deleted.
pub(crate) fn is_protected_namespace(name: &str) -> bool {
    matches!(name, "default" | "kube-system" | "kube-public")
}

/// Fills in what the server itself sets on a new object.
pub(super) fn prepare_create(resource: &Resource, object: &mut Value) {
    match resource.kind.as_str() {
        "Namespace" => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            object["status"] = json!({"phase": "Active"});
        }
        "Node" => default_allocatable(object),
        "Pod" => {
            object["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
            pod_defaults(&mut object["spec"]);
            if let Some(spec) = object["spec"].as_object_mut() {
                default(spec, "enableServiceLinks", true);
            }
        }
        "Deployment"
        | "DaemonSet"
        | "ReplicaSet"
        | "StatefulSet"
        | "Job"
        | "PodDisruptionBudget"
        | "ValidatingAdmissionPolicy" => {
            if let Some(map) = object.as_object_mut() {
                map.remove("status");
            }
            workload_defaults(resource, object);
        }
        "Service" => {
            object["status"] = json!({});
            services::default(object);
        }
        "Secret" => secret_defaults(object),
        _ => {}
    }
}

/// What the server adds to a new object without anybody owning it.
pub(crate) fn finish_create(server: &Inner, resource: &Resource, object: &mut Value) {
    match resource.bucket.as_str() {
        NAMESPACES => object["spec"]["finalizers"] = json!(["kubernetes"]),
        "nodes" => {
            let taints = object["spec"]["taints"].as_array().cloned();
            let mut taints = taints.unwrap_or_default();
            // Nothing is scheduled before the node reports that it is ready.
            let key = "node.kubernetes.io/not-ready";
            if !taints.iter().any(|t| t["key"] == key) {
                taints.push(json!({"key": key, "effect": "NoSchedule"}));
            }
            object["spec"]["taints"] = taints.into();
        }
        PODS => copy_topology(server, object),
        "services" => services::allocate(server, object),
        _ => {}
    }
}

/// A pod on a node carries the node's zone and region.
pub(crate) fn copy_topology(server: &Inner, pod: &mut Value) {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let Some(node) = server.store.get("nodes", &Key::new("", node)) else {
        return;
    };
    for label in ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"] {
        if let Some(value) = node.value["metadata"]["labels"].get(label) {
            pod["metadata"]["labels"][label] = value.clone();
        }
    }
}

/// Fills in what a status may leave out.
pub(super) fn default_status(resource: &Resource, object: &mut Value) {
    match resource.bucket.as_str() {
        "nodes" => default_allocatable(object),
        PODS => {
            let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
            for condition in conditions.into_iter().flatten() {
                if let Some(condition) = condition.as_object_mut() {
                    default(condition, "lastProbeTime", Value::Null);
                    default(condition, "lastTransitionTime", Value::Null);
                }
            }
            let containers = object.pointer_mut("/status/containerStatuses").and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
                default(container, "lastState", json!({}));
            }
        }
        _ => {}
    }
}

/// What a node can give is what it has unless it says otherwise.
fn default_allocatable(node: &mut Value) {
    let status = &mut node["status"];
    if status["allocatable"].is_null() && status["capacity"].is_object() {
        status["allocatable"] = status["capacity"].clone();
    }
}

/// The same for a changed object.
pub(super) fn prepare_update(resource: &Resource, old: &Value, object: &mut Value) {
    match resource.kind.as_str() {
        "Namespace" => {
            object["spec"]["finalizers"] = old["spec"]["finalizers"].clone();
        }
        "Node" => {
            if let Some(spec) = object["spec"].as_object_mut()
                && spec.get("unschedulable") == Some(&Value::Bool(false))
            {
                spec.remove("unschedulable");
            }
        }
        "Pod" => pod_defaults(&mut object["spec"]),
        "Deployment" | "DaemonSet" | "ReplicaSet" | "StatefulSet" => {
            workload_defaults(resource, object);
        }
        "Secret" => secret_defaults(object),
        "Service" => {
            services::default(object);
            services::keep(old, object);
        }
        _ => {}
    }
}

fn secret_defaults(object: &mut Value) {
    let plain = object.as_object_mut().and_then(|o| o.remove("stringData"));
    if let Some(Value::Object(plain)) = plain {
        if !object["data"].is_object() {
            object["data"] = Value::Object(Map::new());
        }
        for (key, value) in plain {
            object["data"][key] = STANDARD.encode(value.as_str().unwrap_or_default()).into();
        }
    }
    if object["type"].as_str().unwrap_or_default().is_empty() {
        object["type"] = "Opaque".into();
    }
}

pub(super) fn default(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), value.into());
    }
}

fn pod_defaults(spec: &mut Value) {
    let Some(spec) = spec.as_object_mut() else {
        return;
    };
    default(spec, "restartPolicy", "Always");
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "securityContext", json!({}));
    default(spec, "schedulerName", "default-scheduler");
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten() {
        for (source, field, value) in [
            ("hostPath", "type", json!("")),
            ("configMap", "defaultMode", json!(0o644)),
            ("secret", "defaultMode", json!(0o644)),
            ("projected", "defaultMode", json!(0o644)),
        ] {
            if let Some(source) = volume.get_mut(source).and_then(Value::as_object_mut) {
                default(source, field, value);
            }
        }
    }
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                container_defaults(container);
            }
        }
    }
}

fn container_defaults(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    let latest = !name.contains([':', '@']) || name.ends_with(":latest");
    let policy = if latest { "Always" } else { "IfNotPresent" };
    default(container, "imagePullPolicy", policy);
    default(container, "resources", json!({}));
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    let ports = container.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            default(port, "protocol", "TCP");
        }
    }
}

fn workload_defaults(resource: &Resource, object: &mut Value) {
    if let Some(spec) = object["spec"].pointer_mut("/template/spec") {
        pod_defaults(spec);
    }
    let Some(spec) = object["spec"].as_object_mut() else {
        return;
    };
    match resource.kind.as_str() {
        "Deployment" => {
            default(spec, "replicas", 1);
            default(spec, "revisionHistoryLimit", 10);
            default(spec, "progressDeadlineSeconds", 600);
            let rolling =
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}});
            default(spec, "strategy", rolling);
        }
        "DaemonSet" => {
            default(spec, "revisionHistoryLimit", 10);
            let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
            default(spec, "updateStrategy", rolling);
        }
        "ReplicaSet" | "StatefulSet" => default(spec, "replicas", 1),
        _ => {}
    }
}

/// Seconds an object has left after a deletion. Only pods on a node get any.
pub(crate) fn grace_period(resource: &Resource, live: &Object, asked: Option<i64>) -> i64 {
    if resource.kind != "Pod" {
        return 0;
    }
    let assigned = !live.value["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let finished = matches!(live.value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !assigned || finished {
        return 0;
    }
    let period = live.value["spec"]["terminationGracePeriodSeconds"].as_i64();
    asked.or(period).unwrap_or(30).max(0)
}

/// Namespaces and definitions have a deletion of their own that leaves the grace period out.
pub(crate) fn has_grace_field(resource: &Resource) -> bool {
    !matches!(resource.kind.as_str(), "Namespace" | "CustomResourceDefinition") || resource.is_custom()
}

/// What else changes when a deletion begins.
pub(crate) fn mark_terminating(resource: &Resource, object: &mut Value, now: &str) {
    match resource.bucket.as_str() {
        crate::store::NAMESPACES => object["status"]["phase"] = "Terminating".into(),
        crate::store::DEFINITIONS => crd::hold(object, now),
        _ => {}
    }
}

/// What is wrong with a built-in object.
pub(crate) fn validate(resource: &Resource, object: &Value, old: Option<&Value>, status: bool) -> Vec<StatusCause> {
    if status {
        return Vec::new();
    }
    match resource.kind.as_str() {
        // An update checks them twice.
        "Node" if old.is_some() => [taint_causes(object), taint_causes(object)].concat(),
        "Node" => taint_causes(object),
        "Pod" => pod_causes(object, old),
        "Lease" => lease_causes(object),
        "ConfigMap" => data_causes(object, old),
        "Secret" => secret_causes(object, old),
        "Event" => event_causes(resource, object, old),
        "PodDisruptionBudget" => budget_causes(object),
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" => selector_causes(object, old),
        "Service" => services::causes(object, old),
        "CustomResourceDefinition" => crd::causes(object, old),
        _ => Vec::new(),
    }
}

/// Daemon sets count the changes of their template, in an annotation nobody else can set.
pub(super) fn count_templates(resource: &Resource, old: Option<&Value>, object: &mut Value) {
    const COUNT: &str = "deprecated.daemonset.template.generation";
    if resource.kind != "DaemonSet" {
        return;
    }
    let before = old.and_then(|old| old["metadata"]["annotations"][COUNT].as_str()?.parse::<i64>().ok()).unwrap_or(0);
    let changed = old.is_none_or(|old| old["spec"]["template"] != object["spec"]["template"]);
    let count = if changed { before + 1 } else { before };
    let annotations = crate::meta::of(object).entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(COUNT.to_owned(), count.to_string().into());
    }
}

/// A budget has one limit.
fn budget_causes(budget: &Value) -> Vec<StatusCause> {
    let spec = &budget["spec"];
    if spec["minAvailable"].is_null() || spec["maxUnavailable"].is_null() {
        return Vec::new();
    }
    // The fields in the order of the Go structure.
    let shown = format!(
        r#"{{"MinAvailable":{},"Selector":{},"MaxUnavailable":{},"UnhealthyPodEvictionPolicy":{}}}"#,
        spec["minAvailable"], spec["selector"], spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]
    );
    let message = format!("Invalid value: {shown}: minAvailable and maxUnavailable cannot be both set");
    vec![StatusCause::new("FieldValueInvalid", "spec", message)]
}

/// A workload selects the pods it makes, and keeps those it has.
fn selector_causes(workload: &Value, old: Option<&Value>) -> Vec<StatusCause> {
    let (selector, template) = (&workload["spec"]["selector"], &workload["spec"]["template"]);
    let mut causes = Vec::new();
    if selector.is_object() && !LabelSelector::from_json(selector).matches(template) {
        let why = "`selector` does not match template `labels`";
        causes.push(StatusCause::invalid("spec.template.metadata.labels", &template["metadata"]["labels"], why));
    }
    if old.is_some_and(|old| old["spec"]["selector"] != *selector) {
        causes.push(super::immutable("spec.selector", selector));
    }
    causes
}

fn taint_causes(node: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let taints = node["spec"]["taints"].as_array();
    for (index, taint) in taints.into_iter().flatten().enumerate() {
        let key = taint["key"].as_str().unwrap_or_default();
        for error in names::qualified_errors(key) {
            let field = format!("metadata.taints[{index}].key");
            causes.push(StatusCause::invalid(field, &json!(key), &error));
        }
        let field = format!("metadata.taints[{index}].effect");
        match taint["effect"].as_str().unwrap_or_default() {
            "NoSchedule" | "PreferNoSchedule" | "NoExecute" => {}
            "" => causes.push(StatusCause::required(field, "")),
            other => causes.push(StatusCause::unsupported(
                field,
                &json!(other),
                &["NoSchedule", "PreferNoSchedule", "NoExecute"],
            )),
        }
    }
    causes
}

fn pod_causes(pod: &Value, old: Option<&Value>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    if pod["spec"]["containers"].as_array().is_none_or(Vec::is_empty) {
        causes.push(StatusCause::required("spec.containers", ""));
    }
    if let Some(old) = old {
        let (before, after) = (fixed_pod_spec(&old["spec"]), fixed_pod_spec(&pod["spec"]));
        if before != after {
            causes.push(StatusCause::forbidden(
                "spec",
                "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
            ));
        }
    }
    causes
}

/// A pod spec without the parts that may change.
fn fixed_pod_spec(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(map) = spec.as_object_mut() {
        for field in ["activeDeadlineSeconds", "tolerations"] {
            map.remove(field);
        }
        for list in ["containers", "initContainers"] {
            let containers = map.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                if let Some(container) = container.as_object_mut() {
                    container.remove("image");
                }
            }
        }
    }
    spec
}

fn lease_causes(lease: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let spec = &lease["spec"];
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64()
        && seconds <= 0
    {
        causes.push(StatusCause::invalid("spec.leaseDurationSeconds", &json!(seconds), "must be greater than 0"));
    }
    if let Some(transitions) = spec["leaseTransitions"].as_i64()
        && transitions < 0
    {
        causes.push(StatusCause::invalid(
            "spec.leaseTransitions",
            &json!(transitions),
            "must be greater than or equal to 0",
        ));
    }
    causes
}

const CONFIG_LIMIT: usize = 1024 * 1024;

fn data_causes(config: &Value, old: Option<&Value>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let mut size = 0;
    for field in ["data", "binaryData"] {
        let map = config[field].as_object();
        for (key, value) in map.into_iter().flatten() {
            size += value.as_str().map_or(0, str::len);
            if !key.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) {
                causes.push(StatusCause::invalid(
                    format!("{field}[{key}]"),
                    &json!(key),
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
                ));
            }
        }
    }
    if size > CONFIG_LIMIT {
        causes.push(StatusCause::new(
            "FieldValueTooLong",
            "[]",
            format!("Too long: may not be more than {CONFIG_LIMIT} bytes"),
        ));
    }
    if let Some(old) = old
        && old["immutable"] == true
    {
        if config["immutable"] != true {
            causes.push(StatusCause::forbidden("immutable", "field is immutable when `immutable` is set"));
        }
        for field in ["data", "binaryData"] {
            if config.get(field) != old.get(field) {
                causes.push(StatusCause::forbidden(field, "field is immutable when `immutable` is set"));
            }
        }
    }
    causes
}

fn secret_causes(secret: &Value, old: Option<&Value>) -> Vec<StatusCause> {
    let mut causes = data_causes(secret, old);
    if secret["type"] == "kubernetes.io/tls" {
        for key in ["tls.crt", "tls.key"] {
            if secret["data"].get(key).is_none() {
                causes.push(StatusCause::required(format!("data[{key}]"), ""));
            }
        }
    }
    if let Some(old) = old
        && old["type"] != secret["type"]
    {
        causes.push(immutable("type", &secret["type"]));
    }
    causes
}

fn event_causes(resource: &Resource, event: &Value, old: Option<&Value>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let namespace = &event["metadata"]["namespace"];
    if resource.group.is_empty() {
        let involved = event["involvedObject"].get("namespace");
        match involved {
            Some(involved) if involved != namespace => causes.push(StatusCause::invalid(
                "involvedObject.namespace",
                involved,
                "does not match event.namespace",
            )),
            None if namespace != "default" && namespace != "kube-system" => {
                causes.push(StatusCause::invalid(
                    "involvedObject.namespace",
                    &json!(""),
                    "does not match event.namespace",
                ));
            }
            _ => {}
        }
        return causes;
    }
    if let Some(old) = old {
        for (field, name) in [("note", "message"), ("reason", "reason"), ("action", "action")] {
            if old.get(field) != event.get(field) {
                causes.push(immutable(name, &event[field]));
            }
        }
        if event["series"].is_object() {
            if event["series"]["count"].as_i64().unwrap_or(0) < 2 {
                causes.push(StatusCause::invalid("series.count", &json!(""), "should be at least 2"));
            }
            if event["series"]["lastObservedTime"].is_null() {
                causes.push(StatusCause::required("series.lastObservedTime", ""));
            }
        }
        return causes;
    }
    let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let controller = text("reportingController");
    if controller.is_empty() {
        causes.push(StatusCause::required("reportingController", ""));
    }
    for error in names::qualified_errors(&controller) {
        causes.push(StatusCause::invalid("reportingController", &json!(controller), &error));
    }
    for field in ["reportingInstance", "action", "reason"] {
        if text(field).is_empty() {
            causes.push(StatusCause::required(field, ""));
        }
    }
    let kind = text("type");
    if !matches!(kind.as_str(), "Normal" | "Warning") {
        causes.push(StatusCause::invalid("type", &json!(""), &format!("has invalid value: {kind}")));
    }
    if text("note").len() > 1024 {
        causes.push(StatusCause::invalid("message", &json!(""), "can have at most 1024 characters"));
    }
    causes
}
