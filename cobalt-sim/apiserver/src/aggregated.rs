//! Aggregated discovery: all groups, versions and resources in two documents instead of one per version.

use http::HeaderMap;
use serde_json::{Map, Value, json};

use crate::discovery;
use crate::http::{Page, Validator, accepted, tag};
use crate::server::Inner;
use crate::status::{ApiError, ApiResult};
use crate::store::encode;

const MEDIA: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The aggregated document of the core group or of all others, if that is what the client prefers.
pub(crate) fn page(server: &Inner, core: bool, headers: &HeaderMap) -> ApiResult<Option<Page>> {
    if !preferred(headers)? {
        return Ok(None);
    }
    let body = encode(&document(server, core));
    Ok(Some(Page { media: MEDIA, validator: Validator::Tag(tag(&body)), body, cache: "public" }))
}

/// Whether the aggregated form comes before the plain one among the forms we have.
fn preferred(headers: &HeaderMap) -> ApiResult<bool> {
    let mut any = false;
    for range in accepted(headers) {
        any = true;
        if !matches!(range.media, "application/json" | "application/*" | "*/*") {
            continue;
        }
        match (range.get("as"), range.get("g"), range.get("v")) {
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => return Ok(true),
            (None, ..) => return Ok(false),
            _ => {}
        }
    }
    if any { Err(ApiError::not_acceptable()) } else { Ok(false) }
}

fn document(server: &Inner, core: bool) -> Value {
    let all = server.registry.all();
    let version = |group: &str, version: &str| {
        let plain = discovery::resources(&all, group, version).unwrap_or_default();
        // Only custom resources repeat what their kinds belong to.
        let custom = all.iter().any(|r| r.is_custom() && r.group == group && r.version == version);
        let own = if custom { (group, version) } else { ("", "") };
        json!({"version": version, "resources": resources(&plain["resources"], own), "freshness": "Current"})
    };
    let items: Vec<Value> = if core {
        vec![json!({"metadata": {}, "versions": [version("", "v1")]})]
    } else {
        let groups = discovery::groups(&all);
        let groups = groups["groups"].as_array().into_iter().flatten();
        groups
            .map(|group| {
                let name = group["name"].as_str().unwrap_or_default();
                let versions = group["versions"].as_array().into_iter().flatten();
                let versions: Vec<Value> =
                    versions.map(|v| version(name, v["version"].as_str().unwrap_or_default())).collect();
                json!({"metadata": {"name": name}, "versions": versions})
            })
            .collect()
    };
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

/// The entries of an `APIResourceList`, subresources under their resource. `own` is the group and version of kinds
/// that name none.
fn resources(plain: &Value, own: (&str, &str)) -> Vec<Value> {
    let mut resources: Vec<Value> = Vec::new();
    for entry in plain.as_array().into_iter().flatten() {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        let (group, version) = if text("version").is_empty() { own } else { (text("group"), text("version")) };
        let kind = json!({"group": group, "version": version, "kind": text("kind")});
        if let Some((owner, name)) = text("name").split_once('/') {
            let subresource = json!({"subresource": name, "responseKind": kind, "verbs": entry["verbs"]});
            let owner = resources.iter_mut().find(|r| r["resource"] == owner);
            if let Some(map) = owner.and_then(Value::as_object_mut)
                && let Value::Array(list) = map.entry("subresources").or_insert_with(|| json!([]))
            {
                list.push(subresource);
            }
            continue;
        }
        let mut resource = Map::new();
        resource.insert("resource".to_owned(), text("name").into());
        resource.insert("responseKind".to_owned(), kind);
        let scope = if entry["namespaced"] == true { "Namespaced" } else { "Cluster" };
        resource.insert("scope".to_owned(), scope.into());
        resource.insert("singularResource".to_owned(), text("singularName").into());
        for field in ["verbs", "shortNames", "categories"] {
            if let Some(value) = entry.get(field) {
                resource.insert(field.to_owned(), value.clone());
            }
        }
        resources.push(resource.into());
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: &str = include_str!("../tests/wire/7-discovery.jsonl");

    fn body(id: &str) -> Value {
        let mut records = RECORDS.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records.find(|r| r["id"] == id).unwrap_or_else(|| panic!("{id} is not recorded"))["response"]["body"].take()
    }

    #[test]
    fn the_recorded_aggregated_form_follows_from_the_recorded_plain_one() {
        let plain = body("7.007-core-v1");
        let aggregated = body("7.016-agg-api");
        assert_eq!(
            Value::from(resources(&plain["resources"], ("", ""))),
            aggregated["items"][0]["versions"][0]["resources"]
        );
        let plain = body("7.006-gv-gadget");
        let aggregated = body("7.017-agg-apis");
        let groups = aggregated["items"].as_array().expect("groups");
        let own = groups.iter().find(|g| g["metadata"]["name"] == "wire.test").expect("the group");
        assert_eq!(Value::from(resources(&plain["resources"], ("wire.test", "v1"))), own["versions"][0]["resources"]);
    }

    #[test]
    fn the_form_the_client_prefers_is_chosen() {
        let preferred = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::ACCEPT, http::HeaderValue::from_static(accept));
            preferred(&headers)
        };
        assert!(preferred(MEDIA).is_ok_and(|aggregated| aggregated));
        assert!(preferred("application/json, */*").is_ok_and(|aggregated| !aggregated));
        assert!(preferred("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList").is_err());
        assert!(preferred(";;=,;q").is_err());
    }
}
