//! Neutron: networks.

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    answer::{Answer, Refusal},
    call::Call,
};

pub(super) const ROUTES: &[&str] = &["GET /network/v2.0/networks", "GET /network/v2.0/networks/{}"];

pub(super) async fn answer(route: &'static str, call: &Call<'_>) -> Result<Answer, Refusal> {
    let networks: Vec<(String, String, bool)> = call
        .world(call.api.test_bed.faults(), "network", |state| {
            let show = |network: &crate::nova::Network| (network.id.to_string(), network.name.clone(), network.shared);
            Ok(state.nova.networks.iter().map(show).collect())
        })
        .await?;
    let show = |(id, name, shared): (String, String, bool)| {
        json!({
            "id": id, "name": name, "shared": shared, "router:external": false, "status": "ACTIVE", "admin_state_up": true,
            "project_id": call.project, "tenant_id": call.project, "mtu": 1500, "subnets": [],
            "port_security_enabled": true,
        })
    };
    let mut networks = networks.into_iter().map(show);
    match route {
        "GET /network/v2.0/networks" => {
            let query = &call.query;
            let meant = |network: &Value| {
                let texts = ["id", "name", "status", "project_id", "tenant_id"];
                let flags = ["shared", "router:external", "admin_state_up"];
                texts.iter().all(|key| query.admits(key, network[key].as_str().unwrap_or_default()))
                    && flags.iter().all(|key| query.admits_flag(key, network[key] == true))
            };
            Ok(Answer::ok(&json!({"networks": networks.filter(meant).collect::<Vec<_>>()})))
        }
        "GET /network/v2.0/networks/{}" => {
            let wanted = call.parameter(0);
            let found = networks.find(|network| network["id"] == wanted);
            let missing = || Refusal::missing(format!("Network {wanted} could not be found."));
            Ok(Answer::ok(&json!({"network": found.ok_or_else(missing)?})))
        }
        other => Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, other)),
    }
}
