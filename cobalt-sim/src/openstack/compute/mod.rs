//! Nova.

mod actions;
mod aggregates;
mod flavors;
mod groups;
mod hypervisors;
mod migrations;
mod servers;
mod services;

use cobalt_core::nova::ServiceState;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    answer::{Answer, Refusal},
    call::Call,
};

pub(super) const ROUTES: &[&str] = &[
    "GET /compute/v2.1/os-services",
    "PUT /compute/v2.1/os-services/{}",
    "DELETE /compute/v2.1/os-services/{}",
    "GET /compute/v2.1/os-hypervisors",
    "GET /compute/v2.1/os-hypervisors/detail",
    "GET /compute/v2.1/os-hypervisors/{}",
    "GET /compute/v2.1/servers",
    "GET /compute/v2.1/servers/detail",
    "GET /compute/v2.1/servers/{}",
    "POST /compute/v2.1/servers",
    "DELETE /compute/v2.1/servers/{}",
    "POST /compute/v2.1/servers/{}/action",
    "GET /compute/v2.1/servers/{}/migrations",
    "GET /compute/v2.1/servers/{}/migrations/{}",
    "DELETE /compute/v2.1/servers/{}/migrations/{}",
    "POST /compute/v2.1/servers/{}/migrations/{}/action",
    "GET /compute/v2.1/os-migrations",
    "GET /compute/v2.1/os-aggregates",
    "GET /compute/v2.1/os-aggregates/{}",
    "POST /compute/v2.1/os-aggregates",
    "DELETE /compute/v2.1/os-aggregates/{}",
    "POST /compute/v2.1/os-aggregates/{}/action",
    "GET /compute/v2.1/os-server-groups",
    "GET /compute/v2.1/flavors",
    "GET /compute/v2.1/flavors/detail",
    "GET /compute/v2.1/flavors/{}",
];

pub(super) async fn answer(route: &'static str, call: &Call<'_>) -> Result<Answer, Refusal> {
    match route.replace("/compute/v2.1", "").as_str() {
        "GET /os-services" => services::list(call).await,
        "PUT /os-services/{}" => services::update(call).await,
        "DELETE /os-services/{}" => services::delete(call).await,
        "GET /os-hypervisors" => hypervisors::list(call, false).await,
        "GET /os-hypervisors/detail" => hypervisors::list(call, true).await,
        "GET /os-hypervisors/{}" => hypervisors::one(call).await,
        "GET /servers" => servers::list(call, false).await,
        "GET /servers/detail" => servers::list(call, true).await,
        "GET /servers/{}" => servers::one(call).await,
        "POST /servers" => servers::create(call).await,
        "DELETE /servers/{}" => servers::delete(call).await,
        "POST /servers/{}/action" => actions::act(call).await,
        "GET /servers/{}/migrations" => migrations::of_server(call).await,
        "GET /servers/{}/migrations/{}" => migrations::one(call).await,
        "DELETE /servers/{}/migrations/{}" => migrations::abort(call).await,
        "POST /servers/{}/migrations/{}/action" => migrations::act(call).await,
        "GET /os-migrations" => migrations::list(call).await,
        "GET /os-aggregates" => aggregates::list(call).await,
        "GET /os-aggregates/{}" => aggregates::one(call).await,
        "POST /os-aggregates" => aggregates::create(call).await,
        "DELETE /os-aggregates/{}" => aggregates::delete(call).await,
        "POST /os-aggregates/{}/action" => aggregates::act(call).await,
        "GET /os-server-groups" => groups::list(call).await,
        "GET /flavors" => flavors::list(call, false).await,
        "GET /flavors/detail" => flavors::list(call, true).await,
        "GET /flavors/{}" => flavors::one(call).await,
        other => Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, other)),
    }
}

/// Nova's way to write a moment: UTC without saying so.
fn time(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%S.%6f").to_string()
}

fn state(state: ServiceState) -> &'static str {
    if state == ServiceState::Up { "up" } else { "down" }
}

fn status(enabled: bool) -> &'static str {
    if enabled { "enabled" } else { "disabled" }
}

fn links(call: &Call<'_>, path: &str) -> Value {
    json!([{"rel": "self", "href": format!("{}/compute/v2.1{path}", call.base)},
           {"rel": "bookmark", "href": format!("{}/compute{path}", call.base)}])
}

/// The one action of a body, with what it says. `None` if there is none, or more than one.
fn action(body: &Value) -> Option<(&str, &Value)> {
    let object = body.as_object().filter(|object| object.len() == 1)?;
    object.iter().next().map(|(name, value)| (name.as_str(), value))
}
