//! The status subresource: two halves of an object that do not touch each other.

use serde_json::json;

use crate::conformance::check::{Check, Need::Minor, Verdict, check};
use crate::conformance::exchange::{JSON, STRATEGIC};
use crate::conformance::world::World;

pub(super) const CHECKS: fn() -> Vec<Check> = || {
    vec![
        check!(
            "status-put",
            "PUT on /status: status changes, spec and labels do not; generation unchanged",
            status_put
        ),
        check!("status-main-put", "PUT on the main resource: spec changes, status does not", status_main_put),
        check!("status-merge", "merge PATCH on /status: generation unchanged, resourceVersion moves", status_merge),
        check!("status-invalid", "status against the schema: 422 on the field of the status", status_invalid, needs Minor(25)),
        check!("status-stale", "PUT on /status with stale resourceVersion: 409 Conflict", status_stale),
        check!("status-core", "a core kind has the same halves: Node status by PATCH on /status", status_core),
    ]
};

async fn status_put(world: &World) -> Verdict {
    let mut object = world.create("status-put", json!({"num": 1})).await?;
    object.json["spec"]["num"] = json!(2);
    object.json["metadata"]["labels"] = json!({"a": "b"});
    object.json["status"] = json!({"phase": "Running"});
    let answer = world.put(&world.status("status-put"), &object.json).await?;
    answer
        .code(200)?
        .equals("/status/phase", "Running")?
        .equals("/spec/num", 1)?
        .lacks("/metadata/labels")?
        .equals("/metadata/generation", 1)?;
    Ok(())
}

async fn status_main_put(world: &World) -> Verdict {
    world.create("status-main", json!({"num": 1})).await?;
    let mut object = world.merge(&world.status("status-main"), &json!({"status": {"phase": "one"}})).await?;
    object.code(200)?;
    object.json["spec"]["num"] = json!(2);
    object.json["status"]["phase"] = json!("two");
    let answer = world.put(&world.widget("status-main"), &object.json).await?;
    answer.code(200)?.equals("/spec/num", 2)?.equals("/status/phase", "one")?.equals("/metadata/generation", 2)?;
    Ok(())
}

async fn status_merge(world: &World) -> Verdict {
    let before = world.create("status-merge", json!({"num": 1})).await?.revision()?;
    let patch = json!({"status": {"count": 3}, "spec": {"num": 9}});
    let answer = world.merge(&world.status("status-merge"), &patch).await?;
    answer.code(200)?.equals("/status/count", 3)?.equals("/spec/num", 1)?.equals("/metadata/generation", 1)?;
    let after = answer.revision()?;
    answer.holds(after > before, || "a newer resourceVersion".to_owned())?;
    Ok(())
}

async fn status_invalid(world: &World) -> Verdict {
    world.create("status-invalid", json!({})).await?;
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "Perhaps"}]}});
    let answer = world.merge(&world.status("status-invalid"), &patch).await?;
    answer.code(422)?.reason("Invalid")?.cause("FieldValueNotSupported", "status.conditions[0].status")?;
    Ok(())
}

async fn status_stale(world: &World) -> Verdict {
    let mut object = world.create("status-stale", json!({})).await?;
    world.merge(&world.status("status-stale"), &json!({"status": {"count": 1}})).await?.code(200)?;
    object.json["status"] = json!({"count": 2});
    world.put(&world.status("status-stale"), &object.json).await?.code(409)?.reason("Conflict")?;
    Ok(())
}

async fn status_core(world: &World) -> Verdict {
    let name = format!("{}-status", world.prefix);
    let path = format!("/api/v1/nodes/{name}");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    world.request(http::Method::POST, "/api/v1/nodes").body(JSON, &node).send().await?.code(201)?;
    let capacity = json!({"status": {"capacity": {"cpu": "4"}}});
    let main = world.patch(&path, STRATEGIC, &capacity).await?;
    let status = world.patch(&format!("{path}/status"), STRATEGIC, &capacity).await?;
    world.delete(&path).await?.code(200)?;
    main.code(200)?.lacks("/status/capacity")?;
    status.code(200)?.equals("/status/capacity", json!({"cpu": "4"}))?;
    Ok(())
}
