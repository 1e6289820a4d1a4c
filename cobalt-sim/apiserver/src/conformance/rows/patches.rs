//! Merge patch, JSON patch and strategic merge patch.

use serde_json::json;

use crate::conformance::check::{Check, Need::Minor, Verdict, check, ensure, equal};
use crate::conformance::exchange::{JSON, JSON_PATCH, STRATEGIC};
use crate::conformance::world::World;

pub(super) const CHECKS: fn() -> Vec<Check> = || {
    vec![
        check!("merge", "merge PATCH: 200, generation +1 when spec changed; no resourceVersion needed", merge),
        check!("merge-stale", "merge PATCH with stale metadata.resourceVersion in the body: 409 Conflict", merge_stale),
        check!("merge-status", "merge PATCH of `status` on the main resource: 200, ignored, resourceVersion unchanged", merge_status, needs Minor(22)),
        check!("merge-null", "merge PATCH: null deletes a field, a list is replaced as a whole", merge_null),
        check!("merge-no-op", "merge PATCH that changes nothing: 200, same resourceVersion", merge_no_op),
        check!("merge-missing", "PATCH of an object that does not exist: 404", merge_missing),
        check!("json", "JSON PATCH: add, replace, remove, move, `~1` in a path", json_patch),
        check!("json-test", "JSON PATCH with failing `test`: 422 Invalid, generic message", json_test),
        check!(
            "json-test-version",
            "JSON PATCH with `test` on resourceVersion: the guard of a list that cannot merge",
            json_test_version
        ),
        check!(
            "strategic-on-cr",
            "strategic merge PATCH on a CR: 415 listing the three accepted media types",
            strategic_on_cr
        ),
        check!("patch-media-type", "PATCH with application/json: 415", patch_media_type),
        check!("strategic-conditions", "strategic merge PATCH: Node conditions merge by type", strategic_conditions),
        check!(
            "strategic-taints",
            "strategic merge PATCH: Node taints have no merge key, the list is replaced",
            strategic_taints
        ),
        check!(
            "strategic-delete",
            "strategic merge PATCH: `$patch: delete` removes an item of a merging list",
            strategic_delete
        ),
    ]
};

async fn merge(world: &World) -> Verdict {
    world.create("merge", json!({"num": 1})).await?;
    let answer = world.merge(&world.widget("merge"), &json!({"spec": {"num": 2}})).await?;
    answer.code(200)?.equals("/spec/num", 2)?.equals("/metadata/generation", 2)?;
    Ok(())
}

async fn merge_stale(world: &World) -> Verdict {
    let version = world.create("merge-stale", json!({"num": 1})).await?.version()?;
    let path = world.widget("merge-stale");
    world.merge(&path, &json!({"spec": {"num": 2}})).await?.code(200)?;
    let stale = json!({"metadata": {"resourceVersion": version}, "spec": {"num": 3}});
    world.merge(&path, &stale).await?.code(409)?.reason("Conflict")?.says("the object has been modified")?;
    Ok(())
}

async fn merge_status(world: &World) -> Verdict {
    let before = world.create("merge-status", json!({"num": 1})).await?;
    let answer = world.merge(&world.widget("merge-status"), &json!({"status": {"phase": "x"}})).await?;
    answer.code(200)?.lacks("/status")?;
    equal("the resourceVersion", &answer.version()?, &before.version()?)
}

async fn merge_null(world: &World) -> Verdict {
    world.create("merge-null", json!({"num": 1, "text": "a", "tags": ["a", "b"]})).await?;
    let patch = json!({"spec": {"text": null, "tags": ["c"]}});
    let answer = world.merge(&world.widget("merge-null"), &patch).await?;
    answer.code(200)?.lacks("/spec/text")?.equals("/spec/tags", json!(["c"]))?.equals("/spec/num", 1)?;
    Ok(())
}

async fn merge_no_op(world: &World) -> Verdict {
    let before = world.create("merge-no-op", json!({"num": 1})).await?;
    let answer = world.merge(&world.widget("merge-no-op"), &json!({"spec": {"num": 1}})).await?;
    answer.code(200)?;
    equal("the object", &answer.json, &before.json)
}

async fn merge_missing(world: &World) -> Verdict {
    world.merge(&world.widget("merge-missing"), &json!({})).await?.code(404)?.reason("NotFound")?;
    Ok(())
}

async fn json_patch(world: &World) -> Verdict {
    world.create("json", json!({"num": 1, "tags": ["a", "b"]})).await?;
    let patch = json!([
        {"op": "add", "path": "/spec/text", "value": "t"},
        {"op": "add", "path": "/spec/tags/-", "value": "c"},
        {"op": "remove", "path": "/spec/tags/0"},
        {"op": "replace", "path": "/spec/num", "value": 5},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "1"}},
        {"op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/example.com~1b"},
    ]);
    let answer = world.patch(&world.widget("json"), JSON_PATCH, &patch).await?;
    answer
        .code(200)?
        .equals("/spec/text", "t")?
        .equals("/spec/tags", json!(["b", "c"]))?
        .equals("/spec/num", 5)?
        .equals("/metadata/labels", json!({"example.com/b": "1"}))?
        .equals("/metadata/generation", 2)?;
    Ok(())
}

async fn json_test(world: &World) -> Verdict {
    world.create("json-test", json!({"num": 1})).await?;
    let patch = json!([
        {"op": "test", "path": "/spec/num", "value": 2},
        {"op": "replace", "path": "/spec/num", "value": 3},
    ]);
    let answer = world.patch(&world.widget("json-test"), JSON_PATCH, &patch).await?;
    answer.code(422)?.reason("Invalid")?.message("the server rejected our request due to an error in our request")?;
    world.get(&world.widget("json-test")).await?.equals("/spec/num", 1)?;
    Ok(())
}

async fn json_test_version(world: &World) -> Verdict {
    let version = world.create("json-version", json!({"num": 1})).await?.version()?;
    let patch = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "replace", "path": "/spec/num", "value": 2},
    ]);
    let path = world.widget("json-version");
    world.patch(&path, JSON_PATCH, &patch).await?.code(200)?.equals("/spec/num", 2)?;
    world.patch(&path, JSON_PATCH, &patch).await?.code(422)?.reason("Invalid")?;
    Ok(())
}

async fn strategic_on_cr(world: &World) -> Verdict {
    world.create("strategic", json!({})).await?;
    let answer = world.patch(&world.widget("strategic"), STRATEGIC, &json!({"spec": {}})).await?;
    answer.code(415)?.reason("UnsupportedMediaType")?;
    for accepted in ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"] {
        answer.says(accepted)?;
    }
    Ok(())
}

async fn patch_media_type(world: &World) -> Verdict {
    world.create("media-type", json!({})).await?;
    let answer = world.patch(&world.widget("media-type"), JSON, &json!({"spec": {}})).await?;
    answer.code(415)?.reason("UnsupportedMediaType")?;
    Ok(())
}

/// A Node of this check alone; returns its path. The caller deletes it.
async fn node(world: &World, purpose: &str) -> Result<String, crate::conformance::check::Mismatch> {
    let name = format!("{}-{purpose}", world.prefix);
    let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    world.post("/api/v1/nodes", &body).await?.code(201)?;
    Ok(format!("/api/v1/nodes/{name}"))
}

async fn strategic_conditions(world: &World) -> Verdict {
    let node = node(world, "conditions").await?;
    let status = format!("{node}/status");
    for (kind, value) in [("Pressure", "False"), ("Happy", "True"), ("Pressure", "True")] {
        let patch = json!({"status": {"conditions": [{"type": kind, "status": value}]}});
        world.patch(&status, STRATEGIC, &patch).await?.code(200)?;
    }
    let answer = world.get(&node).await?;
    world.delete(&node).await?.code(200)?;
    let conditions = answer.at("/status/conditions").as_array().cloned().unwrap_or_default();
    for (kind, value) in [("Pressure", "True"), ("Happy", "True")] {
        let matching = conditions.iter().filter(|condition| condition["type"] == kind).collect::<Vec<_>>();
        ensure(matching.len() == 1, format!("one condition {kind}"), &answer)?;
        ensure(matching[0]["status"] == value, format!("{kind} = {value}"), &answer)?;
    }
    Ok(())
}

async fn strategic_taints(world: &World) -> Verdict {
    let node = node(world, "taints").await?;
    let patch = |key: &str| json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}});
    world.patch(&node, STRATEGIC, &patch("one")).await?.code(200)?;
    let answer = world.patch(&node, STRATEGIC, &patch("two")).await?;
    world.delete(&node).await?.code(200)?;
    answer.code(200)?.equals("/spec/taints", json!([{"key": "two", "effect": "NoSchedule"}]))?;
    Ok(())
}

async fn strategic_delete(world: &World) -> Verdict {
    let node = node(world, "delete").await?;
    let status = format!("{node}/status");
    let addresses = json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "h"}]);
    world.patch(&status, STRATEGIC, &json!({"status": {"addresses": addresses}})).await?.code(200)?;
    let patch = json!({"status": {"addresses": [{"type": "InternalIP", "$patch": "delete"}]}});
    let answer = world.patch(&status, STRATEGIC, &patch).await?;
    world.delete(&node).await?.code(200)?;
    answer.code(200)?.equals("/status/addresses", json!([{"type": "Hostname", "address": "h"}]))?;
    Ok(())
}
