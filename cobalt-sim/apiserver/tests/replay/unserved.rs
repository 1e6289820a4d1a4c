//! What the real server serves and this one does not, taken out of recorded discovery.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::Value;

/// Kind of entry and name.
static UNSERVED: LazyLock<BTreeSet<(&str, &str)>> = LazyLock::new(|| {
    let lines = include_str!("unserved.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').unwrap_or_else(|| panic!("no kind in {line:?}"))).collect()
});

fn is_unserved(kind: &'static str, name: &str) -> bool {
    let whole = UNSERVED.iter().any(|(known, value)| *known == kind && *value == name);
    // Without the resource there are no subresources of it.
    whole || (kind == "resource" && name.split_once('/').is_some_and(|(resource, _)| is_unserved(kind, resource)))
}

/// Whether a path leads to something that is not served: who reads discovery here does not ask for it.
pub(crate) fn is_path(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts[..] {
        ["apis", group, ..] if is_unserved("group", group) => true,
        ["api", _, "namespaces", _, resource, ..] | ["apis", _, _, "namespaces", _, resource, ..] => {
            is_unserved("resource", resource)
        }
        ["api", _, resource, ..] | ["apis", _, _, resource, ..] => is_unserved("resource", resource),
        _ => false,
    }
}

/// A discovery document without what is not served; any other body as it is.
pub(crate) fn strip(body: &Value) -> Value {
    let mut body = body.clone();
    let kind = body["kind"].as_str().unwrap_or_default();
    if matches!(kind, "APIGroupList" | "APIResourceList" | "APIGroupDiscoveryList") {
        strip_lists(&mut body);
    } else if let Some(paths) = body.get_mut("paths") {
        match paths {
            Value::Object(map) => map.retain(|path, _| !is_link(path)),
            Value::Array(list) => list.retain(|path| !path.as_str().is_some_and(is_link)),
            _ => {}
        }
    }
    body
}

/// A link of an index: `apis/autoscaling/v2`.
fn is_link(path: &str) -> bool {
    is_unserved("path", path) || is_path(&format!("/{}", path.trim_start_matches('/')))
}

fn strip_lists(value: &mut Value) {
    match value {
        Value::Array(items) => {
            items.retain(|item| {
                let group = item["metadata"]["name"].as_str().or(item["name"].as_str()).unwrap_or_default();
                let resource = item["resource"].as_str().or(item["name"].as_str()).unwrap_or_default();
                !is_unserved("group", group) && !is_unserved("resource", resource)
            });
            items.iter_mut().for_each(strip_lists);
        }
        Value::Object(fields) => {
            let subresource = fields.get("subresources").is_some();
            let owner = fields.get("resource").and_then(Value::as_str).unwrap_or_default().to_owned();
            if let (true, Some(list)) = (subresource, fields.get_mut("subresources").and_then(Value::as_array_mut)) {
                list.retain(|item| {
                    let name = item["subresource"].as_str().unwrap_or_default();
                    !is_unserved("resource", &format!("{owner}/{name}"))
                });
            }
            fields.values_mut().for_each(strip_lists);
        }
        _ => {}
    }
}
