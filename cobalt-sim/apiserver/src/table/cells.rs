//! Cells of the built-in kinds.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, pod};

const NONE: &str = "<none>";

/// The cells of an object in the order of [`super::builtin::definitions`].
pub(super) fn of(kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = json!(text(object, "/metadata/name"));
    let created = text(object, "/metadata/creationTimestamp");
    let age = json!(age::since(Some(created), now));
    let (spec, status) = (&object["spec"], &object["status"]);
    let template = &spec["template"]["spec"];
    match kind {
        "Namespace" => vec![name, json!(text(status, "/phase")), age],
        "Node" => node(name, age, object),
        "Pod" => pod::cells(name, age, object, now),
        "Event" => event(name, object, now),
        "ConfigMap" => vec![name, json!(size(&object["data"]) + size(&object["binaryData"])), age],
        "Secret" => vec![name, json!(text(object, "/type")), json!(size(&object["data"])), age],
        "ServiceAccount" => vec![name, json!(size(&object["secrets"])), age],
        "Lease" => vec![name, json!(text(spec, "/holderIdentity")), age],
        "Service" => service(name, age, spec, status),
        "Deployment" => {
            let counts = [
                json!(of_all(status, "readyReplicas", spec)),
                count(status, "updatedReplicas"),
                count(status, "availableReplicas"),
                age,
            ];
            join([vec![name], counts.into(), workload(template, Some(&spec["selector"]))])
        }
        "DaemonSet" => {
            let counts = [
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "numberReady",
                "updatedNumberScheduled",
                "numberAvailable",
            ];
            let counts = counts.map(|field| count(status, field));
            let place = [json!(labels(&template["nodeSelector"])), age];
            join([vec![name], counts.into(), place.into(), workload(template, Some(&spec["selector"]))])
        }
        "ReplicaSet" => {
            let counts = [count(spec, "replicas"), count(status, "replicas"), count(status, "readyReplicas"), age];
            join([vec![name], counts.into(), workload(template, Some(&spec["selector"]))])
        }
        "StatefulSet" => {
            join([vec![name], vec![json!(of_all(status, "readyReplicas", spec)), age], workload(template, None)])
        }
        "Job" => {
            join([vec![name], job(spec, status, now).into(), vec![age], workload(template, Some(&spec["selector"]))])
        }
        "PodDisruptionBudget" => {
            let bound = |field: &str| match &spec[field] {
                Value::Null => json!("N/A"),
                Value::String(text) => json!(text),
                other => json!(other.to_string()),
            };
            vec![name, bound("minAvailable"), bound("maxUnavailable"), count(status, "disruptionsAllowed"), age]
        }
        "RoleBinding" | "ClusterRoleBinding" => binding(name, age, object),
        "PriorityClass" => {
            let default = object["globalDefault"].as_bool().unwrap_or(false);
            vec![name, count(object, "value"), json!(default), age, json!(text(object, "/preemptionPolicy"))]
        }
        "ValidatingAdmissionPolicy" => {
            let parameter = match (text(spec, "/paramKind/apiVersion"), text(spec, "/paramKind/kind")) {
                ("", "") => "<unset>".to_owned(),
                (version, kind) => format!("{version}/{kind}"),
            };
            vec![name, json!(size(&spec["validations"])), json!(parameter), age]
        }
        "ValidatingAdmissionPolicyBinding" => {
            let parameter = match (text(spec, "/paramRef/namespace"), text(spec, "/paramRef/name")) {
                ("", "") => "<unset>".to_owned(),
                ("", name) => name.to_owned(),
                (namespace, name) => format!("{namespace}/{name}"),
            };
            vec![name, json!(text(spec, "/policyName")), json!(parameter), age]
        }
        _ => vec![name, json!(created)],
    }
}

fn join<const N: usize>(parts: [Vec<Value>; N]) -> Vec<Value> {
    parts.into_iter().flatten().collect()
}

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The text, or the word for nothing.
pub(super) fn or_none(text: &str) -> &str {
    if text.is_empty() { NONE } else { text }
}

pub(super) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn size(value: &Value) -> usize {
    value.as_object().map_or_else(|| value.as_array().map_or(0, Vec::len), serde_json::Map::len)
}

fn count(value: &Value, field: &str) -> Value {
    json!(value[field].as_i64().unwrap_or(0))
}

fn of_all(status: &Value, ready: &str, spec: &Value) -> String {
    format!("{}/{}", status[ready].as_i64().unwrap_or(0), spec["replicas"].as_i64().unwrap_or(1))
}

/// `a=b,c=d`
fn labels(map: &Value) -> String {
    let pairs = map.as_object().into_iter().flatten();
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    or_none(&pairs.join(",")).to_owned()
}

/// A label selector in the notation of the query parameter.
fn selector(selector: &Value) -> String {
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let mut terms: Vec<String> =
        equal.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    for expression in items(&selector["matchExpressions"]) {
        let key = text(expression, "/key");
        let values: Vec<&str> = items(&expression["values"]).filter_map(Value::as_str).collect();
        let values = values.join(",");
        terms.push(match text(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    or_none(&terms.join(",")).to_owned()
}

/// Containers, images and, where the kind shows it, the selector.
fn workload(template: &Value, own: Option<&Value>) -> Vec<Value> {
    let list = |field: &str| {
        let found: Vec<&str> = items(&template["containers"]).filter_map(|c| c[field].as_str()).collect();
        json!(found.join(","))
    };
    let mut cells = vec![list("name"), list("image")];
    cells.extend(own.map(|own| json!(selector(own))));
    cells
}

fn node(name: Value, age: Value, object: &Value) -> Vec<Value> {
    const ROLE: &str = "node-role.kubernetes.io/";
    let status = &object["status"];
    let ready = items(&status["conditions"]).find(|condition| condition["type"] == "Ready");
    let mut state = match ready {
        Some(condition) if condition["status"] == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object["spec"]["unschedulable"] == true {
        state.push_str(",SchedulingDisabled");
    }
    let labels = object["metadata"]["labels"].as_object();
    let mut roles: Vec<&str> = Vec::new();
    for (label, value) in labels.into_iter().flatten() {
        let role = if label == "kubernetes.io/role" { value.as_str() } else { label.strip_prefix(ROLE) };
        roles.extend(role.filter(|role| !role.is_empty()));
    }
    roles.sort_unstable();
    roles.dedup();
    let address = |kind: &str| {
        let found = items(&status["addresses"]).find(|address| address["type"] == kind);
        json!(or_none(found.map_or("", |found| text(found, "/address"))))
    };
    let info = |field: &str| match text(&status["nodeInfo"], field) {
        "" => json!(age::UNKNOWN),
        known => json!(known),
    };
    vec![
        name,
        json!(state),
        json!(or_none(&roles.join(","))),
        age,
        json!(text(status, "/nodeInfo/kubeletVersion")),
        address("InternalIP"),
        address("ExternalIP"),
        info("/osImage"),
        info("/kernelVersion"),
        info("/containerRuntimeVersion"),
    ]
}

/// Events are shown in their stored form, whichever API they are asked by.
fn event(name: Value, object: &Value, now: Timestamp) -> Vec<Value> {
    let set = |pointer: &str| Some(text(object, pointer)).filter(|text| !text.is_empty());
    let first = set("/firstTimestamp").or(set("/eventTime"));
    let (last, count) = if object["series"].is_object() {
        (set("/series/lastObservedTime"), object["series"]["count"].as_i64().unwrap_or(0))
    } else {
        (set("/lastTimestamp").or(first), object["count"].as_i64().filter(|n| *n > 0).unwrap_or(1))
    };
    let kind = text(object, "/involvedObject/kind").to_lowercase();
    let about = match text(object, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = set("/source/component").or(set("/reportingComponent")).unwrap_or_default();
    let source = match set("/source/host").or(set("/reportingInstance")) {
        Some(host) => format!("{component}, {host}"),
        None => component.to_owned(),
    };
    vec![
        json!(age::since(last, now)),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(about),
        json!(text(object, "/involvedObject/fieldPath")),
        json!(source),
        json!(text(object, "/message").trim()),
        json!(age::since(first, now)),
        json!(count),
        name,
    ]
}

fn service(name: Value, age: Value, spec: &Value, status: &Value) -> Vec<Value> {
    let kind = text(spec, "/type");
    let mut external: Vec<&str> = items(&spec["externalIPs"]).filter_map(Value::as_str).collect();
    let balanced = items(&status["loadBalancer"]["ingress"]);
    external.extend(balanced.filter_map(|i| i["ip"].as_str().or(i["hostname"].as_str())));
    let external = match (kind, external.is_empty()) {
        ("ExternalName", _) => text(spec, "/externalName").to_owned(),
        ("LoadBalancer", true) => "<pending>".to_owned(),
        _ => or_none(&external.join(",")).to_owned(),
    };
    let ports: Vec<String> = items(&spec["ports"])
        .map(|port| {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            match port["nodePort"].as_i64().filter(|p| *p > 0) {
                Some(node) => format!("{}:{node}/{protocol}", port["port"]),
                None => format!("{}/{protocol}", port["port"]),
            }
        })
        .collect();
    let address = json!(or_none(text(spec, "/clusterIP")));
    let ports = json!(or_none(&ports.join(",")));
    vec![name, json!(kind), address, json!(external), ports, age, json!(labels(&spec["selector"]))]
}

fn job(spec: &Value, status: &Value, now: Timestamp) -> [Value; 3] {
    let holds = |kind: &str| items(&status["conditions"]).any(|c| c["type"] == kind && c["status"] == "True");
    let known = [
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ];
    let state = known.iter().find(|(kind, _)| holds(kind)).map_or("Running", |(_, shown)| shown);
    let succeeded = status["succeeded"].as_i64().unwrap_or(0);
    let completions = match (spec["completions"].as_i64(), spec["parallelism"].as_i64().unwrap_or(0)) {
        (Some(all), _) => format!("{succeeded}/{all}"),
        (None, workers) if workers > 1 => format!("{succeeded}/1 of {workers}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let time = |field: &str| status[field].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let duration = time("startTime").map(|start| {
        let end = time("completionTime").unwrap_or(now);
        age::human(end.duration_since(start).as_secs())
    });
    [json!(state), json!(completions), json!(duration.unwrap_or_default())]
}

fn binding(name: Value, age: Value, object: &Value) -> Vec<Value> {
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    let subjects = |kind: &str| {
        let found = items(&object["subjects"]).filter(|subject| subject["kind"] == kind);
        let found: Vec<String> = found
            .map(|subject| match (kind, text(subject, "/namespace")) {
                ("ServiceAccount", namespace) => format!("{namespace}/{}", text(subject, "/name")),
                _ => text(subject, "/name").to_owned(),
            })
            .collect();
        json!(found.join(", "))
    };
    vec![name, json!(role), age, subjects("User"), subjects("Group"), subjects("ServiceAccount")]
}
