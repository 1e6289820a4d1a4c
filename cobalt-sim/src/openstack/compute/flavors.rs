//! Flavors.

use std::sync::Arc;

use serde_json::{Value, json};

use super::links;
use crate::{
    nova::Flavor,
    openstack::{
        answer::{Answer, Refusal},
        call::Call,
        page::Page,
    },
};

async fn all(call: &Call<'_>) -> Result<Vec<Arc<Flavor>>, Refusal> {
    let faults = call.api.test_bed.faults();
    call.world(faults, "flavor_called", |state| Ok(state.nova.flavors.values().cloned().collect())).await
}

pub(super) async fn list(call: &Call<'_>, detail: bool) -> Result<Answer, Refusal> {
    let page = Page::asked(call)?;
    let (found, next) = page.cut(all(call).await?, |flavor| flavor.id.clone())?;
    let shown: Vec<Value> =
        found.iter().map(|flavor| if detail { show(call, flavor) } else { brief(call, flavor) }).collect();
    let path = if detail { "/compute/v2.1/flavors/detail" } else { "/compute/v2.1/flavors" };
    Ok(Answer::ok(&page.body(call, path, "flavors", &shown, next.as_deref())))
}

pub(super) async fn one(call: &Call<'_>) -> Result<Answer, Refusal> {
    let wanted = call.parameter(0);
    let found = all(call).await?.into_iter().find(|flavor| flavor.id == wanted);
    let found = found.ok_or_else(|| Refusal::missing(format!("Flavor {wanted} could not be found.")))?;
    Ok(Answer::ok(&json!({"flavor": show(call, &found)})))
}

fn brief(call: &Call<'_>, flavor: &Flavor) -> Value {
    json!({"id": flavor.id, "name": flavor.name, "links": links(call, &format!("/flavors/{}", flavor.id))})
}

fn show(call: &Call<'_>, flavor: &Flavor) -> Value {
    let mut shown = brief(call, flavor);
    let more = json!({
        "vcpus": flavor.vcpus, "ram": flavor.memory_mb, "disk": flavor.disk_gb, "swap": "", "rxtx_factor": 1.0,
        "OS-FLV-EXT-DATA:ephemeral": 0, "OS-FLV-DISABLED:disabled": false, "os-flavor-access:is_public": true,
    });
    if let (Value::Object(shown), Value::Object(more)) = (&mut shown, more) {
        shown.extend(more);
    }
    if call.at_least(61) {
        let specs = flavor.traits.iter().map(|name| (format!("trait:{name}"), "required".into()));
        shown["extra_specs"] = Value::Object(specs.collect());
    }
    shown
}
