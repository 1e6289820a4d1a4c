//! What versions there are, for clients that ask before they begin.

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    answer::Answer,
    version::{COMPUTE, PLACEMENT},
};

/// Nobody needs a token for these.
pub(super) const ROUTES: &[&str] = &[
    "GET /",
    "GET /v3",
    "GET /identity",
    "GET /identity/v3",
    "GET /compute",
    "GET /compute/v2.1",
    "GET /placement",
    "GET /image",
    "GET /image/versions",
    "GET /network",
    "GET /network/v2.0",
];

pub(super) fn answer(route: &'static str, base: &str) -> Answer {
    let itself = |path: &str| json!([{"rel": "self", "href": format!("{base}{path}")}]);
    let keystone = |path: &str| {
        json!({"id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z", "links": itself(path),
               "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}]})
    };
    let nova = json!({"id": "v2.1", "status": "CURRENT", "updated": "2013-07-23T11:33:21Z", "links": itself("/compute/v2.1/"),
                      "min_version": COMPUTE.lowest.to_string(), "version": COMPUTE.highest.to_string()});
    let many = StatusCode::MULTIPLE_CHOICES;
    let ok = |value: Value| Answer::ok(&value);
    match route {
        "GET /v3" => ok(json!({"version": keystone("/v3/")})),
        "GET /identity/v3" => ok(json!({"version": keystone("/identity/v3/")})),
        "GET /compute" => ok(json!({"versions": [nova]})),
        "GET /compute/v2.1" => ok(json!({"version": nova})),
        // The link is empty in reality, too.
        "GET /placement" => ok(json!({"versions": [{"id": "v1.0", "status": "CURRENT",
            "min_version": PLACEMENT.lowest.to_string(), "max_version": PLACEMENT.highest.to_string(),
            "links": [{"rel": "self", "href": ""}]}]})),
        "GET /image" | "GET /image/versions" => {
            let versions = json!({"versions": [{"id": "v2.9", "status": "CURRENT", "links": itself("/image/v2/")}]});
            Answer::json(if route == "GET /image" { many } else { StatusCode::OK }, &versions)
        }
        "GET /network" => {
            ok(json!({"versions": [{"id": "v2.0", "status": "CURRENT", "links": itself("/network/v2.0/")}]}))
        }
        "GET /network/v2.0" => ok(
            json!({"resources": [{"name": "network", "collection": "networks", "links": itself("/network/v2.0/networks")}]}),
        ),
        // The front door is Keystone's.
        other => {
            let path = if other == "GET /" { "/v3/" } else { "/identity/v3/" };
            Answer::json(many, &json!({"versions": {"values": [keystone(path)]}}))
        }
    }
}
