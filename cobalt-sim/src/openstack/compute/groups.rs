//! Server groups.

use cobalt_core::nova::{GroupPolicy, NovaClient, ServerGroup};
use serde_json::{Value, json};

use crate::openstack::{
    answer::{Answer, Refusal},
    call::Call,
};

/// All groups, in parts that are counted off: this list knows no markers and links to no next page.
pub(super) async fn list(call: &Call<'_>) -> Result<Answer, Refusal> {
    let number = |name: &str, otherwise: usize| match call.query.get(name) {
        None => Ok(otherwise),
        Some(text) => {
            text.parse().map_err(|_| Refusal::bad(format!("Invalid input for query parameters {name}: {text}")))
        }
    };
    let most = call.api.settings().page_size;
    let (limit, offset): (usize, usize) = (number("limit", most)?.min(most), number("offset", 0)?);
    let all = call.nova("server_groups", |nova| async move { nova.server_groups().await }).await?;
    let shown: Vec<Value> = all.iter().skip(offset).take(limit).map(|one| show(call, one)).collect();
    Ok(Answer::ok(&json!({"server_groups": shown})))
}

fn show(call: &Call<'_>, one: &ServerGroup) -> Value {
    let mut shown = json!({"id": one.id, "name": one.name, "members": one.members, "project_id": "", "user_id": ""});
    if !call.at_least(64) {
        shown["policies"] = json!([one.policy.as_str()]);
        shown["metadata"] = json!({});
        return shown;
    }
    shown["policy"] = one.policy.as_str().into();
    shown["rules"] = match one.policy {
        GroupPolicy::AntiAffinity { per_host } if per_host > 1 => json!({"max_server_per_host": per_host}),
        _ => json!({}),
    };
    shown
}
