//! Server-side apply: who owns what, and what happens when two want the same.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use crate::conformance::check::{Check, Need::Minor, Verdict, check, ensure, equal};
use crate::conformance::exchange::{APPLY, Answer, with_query};
use crate::conformance::world::World;

pub(super) const CHECKS: fn() -> Vec<Check> = || {
    vec![
        check!("apply-create", "SSA on missing object: 201 if the body has metadata.name", apply_create),
        check!(
            "apply-no-name",
            "SSA on missing object without metadata.name: 400 name must be provided",
            apply_no_name
        ),
        check!("apply-no-name-existing", "SSA on an existing object: the name may be left out", apply_no_name_existing),
        check!("apply-wrong-name", "SSA with another name than the path: 400", apply_wrong_name),
        check!("apply-yaml", "SSA with a YAML body", apply_yaml),
        check!("apply-no-manager", "SSA without fieldManager: 422 on PatchOptions", apply_no_manager),
        check!(
            "apply-conflict",
            "SSA field owned by another manager: 409 Conflict, causes FieldManagerConflict with the field",
            apply_conflict
        ),
        check!(
            "apply-same-value",
            "SSA of another manager's field with the same value: shared, no conflict",
            apply_same_value
        ),
        check!("apply-force", "SSA with force: the field changes hands, the old owner then conflicts", apply_force),
        check!(
            "apply-repeat",
            "SSA identical repeat: 200, same resourceVersion, nothing written, no event",
            apply_repeat
        ),
        check!(
            "apply-omission",
            "SSA without a field applied before: removed when nobody else owns it",
            apply_omission
        ),
        check!(
            "apply-omission-shared",
            "SSA without a shared field: stays with the other owner",
            apply_omission_shared
        ),
        check!(
            "apply-omission-default",
            "SSA without a defaulted field applied before: the default returns",
            apply_omission_default
        ),
        check!("apply-status", "SSA on /status: separate managedFields entry with `subresource: status`; generation unchanged", apply_status, needs Minor(22)),
        check!(
            "apply-status-missing",
            "SSA on /status of a missing object: 404, nothing created",
            apply_status_missing
        ),
        check!("apply-conditions", "SSA on a map list: two managers own their own conditions", apply_conditions),
        check!(
            "apply-conditions-conflict",
            "SSA conflict in a map list: a cause per field, named by key",
            apply_conditions_conflict
        ),
        check!(
            "apply-conditions-omission",
            "SSA without an own condition: it goes, the other manager's stays",
            apply_conditions_omission
        ),
        check!(
            "apply-duplicate-key",
            "SSA with a duplicate key in a map list: 500 failed to create typed patch object",
            apply_duplicate_key
        ),
        check!(
            "apply-unknown-field",
            "SSA with a field the schema does not know: 500, not pruned",
            apply_unknown_field
        ),
        check!(
            "apply-over-update",
            "SSA on a field written by a merge PATCH: 409 naming that manager",
            apply_over_update
        ),
        check!("apply-version", "SSA with a stale metadata.resourceVersion: 409 Conflict", apply_version),
    ]
};

async fn apply_create(world: &World) -> Verdict {
    let answer = world.apply(&world.widget("apply"), "a", &world.body("apply", json!({"num": 1}))).await?;
    answer
        .code(201)?
        .equals("/metadata/generation", 1)?
        .equals("/metadata/managedFields/0/manager", "a")?
        .equals("/metadata/managedFields/0/operation", "Apply")?
        .equals("/metadata/managedFields/0/fieldsV1", json!({"f:spec": {"f:num": {}}}))?;
    Ok(())
}

fn nameless(world: &World, spec: Value) -> Value {
    let mut body = world.body("", spec);
    body["metadata"] = json!({});
    body
}

async fn apply_no_name(world: &World) -> Verdict {
    let answer = world.apply(&world.widget("nameless"), "a", &nameless(world, json!({"num": 1}))).await?;
    answer.code(400)?.reason("BadRequest")?.says("name must be provided")?;
    Ok(())
}

async fn apply_no_name_existing(world: &World) -> Verdict {
    world.create("named", json!({})).await?;
    let answer = world.apply(&world.widget("named"), "a", &nameless(world, json!({"num": 4}))).await?;
    answer.code(200)?.equals("/spec/num", 4)?;
    Ok(())
}

async fn apply_wrong_name(world: &World) -> Verdict {
    world.create("right-name", json!({})).await?;
    let answer = world.apply(&world.widget("right-name"), "a", &world.body("wrong-name", json!({}))).await?;
    answer.code(400)?.reason("BadRequest")?;
    Ok(())
}

async fn apply_yaml(world: &World) -> Verdict {
    let yaml = format!(
        "apiVersion: {}/v1\nkind: Widget\nmetadata:\n  name: yaml\nspec:\n  num: 7\n  tags: [a, b]\n",
        world.group
    );
    let path = with_query(&world.widget("yaml"), &[("fieldManager", "a")]);
    let answer = world.request(Method::PATCH, &path).text(APPLY, yaml).send().await?;
    answer.code(201)?.equals("/spec/num", 7)?.equals("/spec/tags", json!(["a", "b"]))?;
    Ok(())
}

async fn apply_no_manager(world: &World) -> Verdict {
    let path = world.widget("no-manager");
    let answer = world.patch(&path, APPLY, &world.body("no-manager", json!({}))).await?;
    answer
        .code(422)?
        .reason("Invalid")?
        .equals("/details/kind", "PatchOptions")?
        .cause("FieldValueRequired", "fieldManager")?;
    Ok(())
}

async fn apply_conflict(world: &World) -> Verdict {
    let path = world.widget("conflict");
    world.apply(&path, "a", &world.body("conflict", json!({"num": 1}))).await?.code(201)?;
    let answer = world.apply(&path, "b", &world.body("conflict", json!({"num": 2}))).await?;
    answer
        .code(409)?
        .reason("Conflict")?
        .says("Apply failed with 1 conflict: conflict with \"a\"")?
        .cause("FieldManagerConflict", ".spec.num")?;
    world.get(&path).await?.equals("/spec/num", 1)?;
    Ok(())
}

/// The managers whose entry covers this path of `fieldsV1`.
fn owners(answer: &Answer, pointer: &str) -> BTreeSet<String> {
    let entries = answer.at("/metadata/managedFields").as_array().cloned().unwrap_or_default();
    let owning = entries.iter().filter(|entry| entry["fieldsV1"].pointer(pointer).is_some());
    owning.filter_map(|entry| entry["manager"].as_str()).map(str::to_owned).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn apply_same_value(world: &World) -> Verdict {
    let path = world.widget("shared");
    world.apply(&path, "a", &world.body("shared", json!({"num": 1}))).await?.code(201)?;
    let answer = world.apply(&path, "b", &world.body("shared", json!({"num": 1}))).await?;
    answer.code(200)?;
    equal("owners of spec.num", &owners(&answer, "/f:spec/f:num"), &set(&["a", "b"]))
}

async fn apply_force(world: &World) -> Verdict {
    let path = world.widget("force");
    world.apply(&path, "a", &world.body("force", json!({"num": 1}))).await?.code(201)?;
    let forced = world.force(&path, "b", &world.body("force", json!({"num": 2}))).await?;
    forced.code(200)?.equals("/spec/num", 2)?;
    equal("owners of spec.num", &owners(&forced, "/f:spec/f:num"), &set(&["b"]))?;
    let answer = world.apply(&path, "a", &world.body("force", json!({"num": 1}))).await?;
    answer.code(409)?.cause("FieldManagerConflict", ".spec.num")?;
    Ok(())
}

async fn apply_repeat(world: &World) -> Verdict {
    let path = world.widget("repeat");
    let body = world.body("repeat", json!({"num": 1}));
    let first = world.apply(&path, "a", &body).await?;
    first.code(201)?;
    let mut watch = world.watch_one("repeat").await?;
    let second = world.apply(&path, "a", &body).await?;
    second.code(200)?;
    equal("the object", &second.json, &first.json)?;
    let marker = world.apply(&path, "a", &world.body("repeat", json!({"num": 2}))).await?;
    let event = watch.expect("MODIFIED").await?;
    equal("the first event, which is of the real change", &event, &marker.json)
}

async fn apply_omission(world: &World) -> Verdict {
    let path = world.widget("omission");
    world.apply(&path, "a", &world.body("omission", json!({"num": 1, "text": "t"}))).await?.code(201)?;
    let answer = world.apply(&path, "a", &world.body("omission", json!({"num": 1}))).await?;
    answer.code(200)?.lacks("/spec/text")?.equals("/spec/num", 1)?.equals("/metadata/generation", 2)?;
    Ok(())
}

async fn apply_omission_shared(world: &World) -> Verdict {
    let path = world.widget("omission-shared");
    let both = world.body("omission-shared", json!({"text": "t"}));
    world.apply(&path, "a", &both).await?.code(201)?;
    world.apply(&path, "b", &both).await?.code(200)?;
    let answer = world.apply(&path, "a", &world.body("omission-shared", json!({"num": 1}))).await?;
    answer.code(200)?.equals("/spec/text", "t")?;
    equal("owners of spec.text", &owners(&answer, "/f:spec/f:text"), &set(&["b"]))
}

async fn apply_omission_default(world: &World) -> Verdict {
    let path = world.widget("omission-default");
    world.apply(&path, "a", &world.body("omission-default", json!({"mode": "fast"}))).await?.code(201)?;
    let answer = world.apply(&path, "a", &world.body("omission-default", json!({"num": 1}))).await?;
    answer.code(200)?.equals("/spec/mode", "slow")?;
    Ok(())
}

async fn apply_status(world: &World) -> Verdict {
    world.apply(&world.widget("ssa-status"), "a", &world.body("ssa-status", json!({"num": 1}))).await?.code(201)?;
    let mut body = world.body("ssa-status", Value::Null);
    body["status"] = json!({"phase": "Running"});
    let answer = world.apply(&world.status("ssa-status"), "a", &body).await?;
    answer.code(200)?.equals("/status/phase", "Running")?.equals("/metadata/generation", 1)?;
    let entries = answer.at("/metadata/managedFields").as_array().cloned().unwrap_or_default();
    let find = |subresource: Value| entries.iter().find(|entry| entry["subresource"] == subresource);
    let fields = |entry: Option<&Value>| entry.map(|entry| entry["fieldsV1"].clone());
    let main = json!({"f:spec": {"f:num": {}}});
    equal("the entry of the main resource", &fields(find(Value::Null)), &Some(main))?;
    let status = json!({"f:status": {"f:phase": {}}});
    equal("the entry of the status", &fields(find(json!("status"))), &Some(status))
}

async fn apply_status_missing(world: &World) -> Verdict {
    let body = world.conditions("ssa-absent", &[("Ready", "True")]);
    world.apply(&world.status("ssa-absent"), "a", &body).await?.code(404)?.reason("NotFound")?;
    world.get(&world.widget("ssa-absent")).await?.code(404)?;
    Ok(())
}

/// The conditions as `type=status`.
fn conditions(answer: &Answer) -> BTreeSet<String> {
    let items = answer.at("/status/conditions").as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    items.iter().map(|item| format!("{}={}", text(&item["type"]), text(&item["status"]))).collect()
}

/// A widget on which the managers a and b have applied one condition each.
async fn two_managers(world: &World, name: &str) -> Result<Answer, crate::conformance::check::Mismatch> {
    world.create(name, json!({})).await?;
    let status = world.status(name);
    world.apply(&status, "a", &world.conditions(name, &[("Ready", "True")])).await?.code(200)?;
    let answer = world.apply(&status, "b", &world.conditions(name, &[("Happy", "False")])).await?;
    answer.code(200)?;
    Ok(answer)
}

async fn apply_conditions(world: &World) -> Verdict {
    let answer = two_managers(world, "two").await?;
    equal("conditions", &conditions(&answer), &set(&["Ready=True", "Happy=False"]))?;
    equal("owners of Ready", &owners(&answer, "/f:status/f:conditions/k:{\"type\":\"Ready\"}"), &set(&["a"]))?;
    let update = world.conditions("two", &[("Ready", "False")]);
    let answer = world.apply(&world.status("two"), "a", &update).await?;
    answer.code(200)?;
    equal("conditions", &conditions(&answer), &set(&["Ready=False", "Happy=False"]))
}

async fn apply_conditions_conflict(world: &World) -> Verdict {
    two_managers(world, "two-conflict").await?;
    let body = world.conditions("two-conflict", &[("Ready", "False")]);
    let answer = world.apply(&world.status("two-conflict"), "b", &body).await?;
    answer.code(409)?.reason("Conflict")?.cause("FieldManagerConflict", ".status.conditions[type=\"Ready\"].status")?;
    // The reason is the same text for both managers: no conflict on it.
    let causes = answer.at("/details/causes").as_array().map_or(0, Vec::len);
    ensure(causes == 1, "one cause", &answer)
}

async fn apply_conditions_omission(world: &World) -> Verdict {
    two_managers(world, "two-omission").await?;
    let mut body = world.body("two-omission", Value::Null);
    body["status"] = json!({"phase": "x"});
    let answer = world.apply(&world.status("two-omission"), "a", &body).await?;
    answer.code(200)?;
    equal("conditions", &conditions(&answer), &set(&["Happy=False"]))
}

async fn apply_duplicate_key(world: &World) -> Verdict {
    world.create("ssa-duplicate", json!({})).await?;
    let body = world.conditions("ssa-duplicate", &[("Ready", "True"), ("Ready", "False")]);
    let answer = world.apply(&world.status("ssa-duplicate"), "a", &body).await?;
    answer.code(500)?.says("failed to create typed patch object")?.says("duplicate entries for key")?;
    Ok(())
}

async fn apply_unknown_field(world: &World) -> Verdict {
    let body = world.body("ssa-unknown", json!({"nosuch": 1}));
    let answer = world.apply(&world.widget("ssa-unknown"), "a", &body).await?;
    answer.code(500)?.says(".spec.nosuch: field not declared in schema")?;
    Ok(())
}

async fn apply_over_update(world: &World) -> Verdict {
    let path = world.widget("ssa-over");
    world.apply(&path, "a", &world.body("ssa-over", json!({"num": 1}))).await?.code(201)?;
    let human = with_query(&path, &[("fieldManager", "human")]);
    let merged = world.merge(&human, &json!({"spec": {"num": 2}})).await?;
    merged.code(200)?;
    equal("owners of spec.num", &owners(&merged, "/f:spec/f:num"), &set(&["human"]))?;
    let answer = world.apply(&path, "a", &world.body("ssa-over", json!({"num": 1}))).await?;
    answer.code(409)?.says("conflict with \"human\"")?.cause("FieldManagerConflict", ".spec.num")?;
    Ok(())
}

async fn apply_version(world: &World) -> Verdict {
    let path = world.widget("ssa-version");
    let first = world.apply(&path, "a", &world.body("ssa-version", json!({"num": 1}))).await?;
    world.apply(&path, "a", &world.body("ssa-version", json!({"num": 2}))).await?.code(200)?;
    let mut body = world.body("ssa-version", json!({"num": 3}));
    body["metadata"]["resourceVersion"] = json!(first.version()?);
    let answer = world.apply(&path, "a", &body).await?;
    answer.code(409)?.reason("Conflict")?.says("the object has been modified")?;
    Ok(())
}
