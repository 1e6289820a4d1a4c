//! Custom resources: registration, defaulting, pruning, validation.

use http::Method;
use serde_json::{Value, json};

use crate::conformance::check::{
    Check,
    Need::{Cel, Minor},
    Verdict, check, ensure,
};
use crate::conformance::exchange::{Answer, JSON, with_query};
use crate::conformance::world::{CRDS, World, crd};

pub(super) const CHECKS: fn() -> Vec<Check> = || {
    vec![
        check!("crd-new", "new CRD: Established, and the resource answers soon after", crd_new),
        check!("crd-invalid", "CRD whose name is not plural.group: 422", crd_invalid),
        check!(
            "crd-not-structural",
            "CRD with a schema that is not structural: refused or marked NonStructuralSchema",
            crd_not_structural
        ),
        check!("crd-delete", "CRD deleted: its resource is gone", crd_delete),
        check!("crd-defaults", "defaults: absent fields are filled, nested ones too", crd_defaults),
        check!(
            "crd-default-null",
            "defaults: an explicit null where null is not allowed becomes the default",
            crd_default_null
        ),
        check!("crd-default-removed", "defaults: a removed field comes back as its default", crd_default_removed),
        check!("crd-prune", "pruning: unknown fields are dropped", crd_prune),
        check!("crd-warn", "unknown fields: a Warning header by default, 400 with fieldValidation=Strict", crd_warn, needs Minor(27)),
        check!("crd-enum", "validation: enum, FieldValueNotSupported naming the supported values", crd_enum),
        check!("crd-bounds", "validation: minimum and maxLength, a cause each", crd_bounds),
        check!("crd-patch-invalid", "validation: also a PATCH is held to the schema", crd_patch_invalid),
        check!("crd-duplicate-key", "validation: duplicate key in a map list, FieldValueDuplicate", crd_duplicate_key, needs Minor(25)),
        check!("crd-cel", "CEL rule broken: 422 with the rule's message", crd_cel, needs Cel),
        check!("crd-cel-transition", "CEL transition rule: an immutable field refuses a change, not the first value", crd_cel_transition, needs Cel),
    ]
};

fn group(world: &World, purpose: &str) -> String {
    format!("{purpose}.{}", world.group)
}

fn condition<'a>(answer: &'a Answer, kind: &str) -> Option<&'a Value> {
    let conditions = answer.at("/status/conditions").as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

async fn crd_new(world: &World) -> Verdict {
    let group = group(world, "new");
    let collection = format!("/apis/{group}/v1/namespaces/{}/things", world.namespace);
    world.get(&collection).await?.code(404)?;
    world.post(CRDS, &crd(&group, "things", "Thing", false)).await?.code(201)?;
    let path = format!("{CRDS}/things.{group}");
    let established = |answer: &Answer| condition(answer, "Established").is_some_and(|it| it["status"] == "True");
    let answer = world.until(&path, "Established", established).await?;
    answer.equals("/status/acceptedNames/kind", "Thing")?.equals("/status/storedVersions", json!(["v1"]))?;
    world.until_served(&collection).await?;
    let thing = json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "t"}});
    world.post(&collection, &thing).await?.code(201)?;
    world.delete(&path).await?.code(200)?;
    Ok(())
}

async fn crd_invalid(world: &World) -> Verdict {
    let mut body = crd(&group(world, "invalid"), "things", "Thing", false);
    body["metadata"]["name"] = json!("other.example.com");
    let answer = world.post(CRDS, &body).await?;
    answer.code(422)?.reason("Invalid")?.cause("FieldValueInvalid", "metadata.name")?;
    Ok(())
}

async fn crd_not_structural(world: &World) -> Verdict {
    let mut body = crd(&group(world, "unstructured"), "things", "Thing", false);
    // A property without a type.
    body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = json!({"properties": {"a": {}}});
    let answer = world.post(CRDS, &body).await?;
    answer.code(422)?.reason("Invalid")?.says("must not be empty for specified object fields")?;
    Ok(())
}

async fn crd_delete(world: &World) -> Verdict {
    let group = group(world, "short");
    let collection = format!("/apis/{group}/v1/namespaces/{}/things", world.namespace);
    world.post(CRDS, &crd(&group, "things", "Thing", false)).await?.code(201)?;
    world.until_served(&collection).await?;
    let thing = json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "t"}});
    world.post(&collection, &thing).await?.code(201)?;
    let path = format!("{CRDS}/things.{group}");
    world.delete(&path).await?.code(200)?;
    world.until_code(&path, 404).await?;
    world.until_code(&collection, 404).await?;
    Ok(())
}

async fn crd_defaults(world: &World) -> Verdict {
    let answer = world.create("defaults", json!({})).await?;
    answer.equals("/spec/mode", "slow")?.equals("/spec/nested", json!({"depth": 3}))?;
    let answer = world.create("defaults-kept", json!({"mode": "fast", "nested": {"note": "n"}})).await?;
    answer.equals("/spec/mode", "fast")?.equals("/spec/nested", json!({"depth": 3, "note": "n"}))?;
    let answer = world.create("defaults-none", Value::Null).await?;
    answer.lacks("/spec")?;
    Ok(())
}

async fn crd_default_null(world: &World) -> Verdict {
    let answer = world.create("default-null", json!({"mode": null})).await?;
    answer.equals("/spec/mode", "slow")?;
    Ok(())
}

async fn crd_default_removed(world: &World) -> Verdict {
    world.create("default-removed", json!({"mode": "fast"})).await?;
    let answer = world.merge(&world.widget("default-removed"), &json!({"spec": {"mode": null}})).await?;
    answer.code(200)?.equals("/spec/mode", "slow")?.equals("/metadata/generation", 2)?;
    Ok(())
}

async fn crd_prune(world: &World) -> Verdict {
    let mut body = world.body("prune", json!({"num": 1, "nosuch": 2, "nested": {"nosuch": {"deep": 1}}}));
    body["bogus"] = json!({"a": 1});
    let answer = world.post(&world.widgets(), &body).await?;
    answer
        .code(201)?
        .lacks("/bogus")?
        .lacks("/spec/nosuch")?
        .equals("/spec/nested", json!({"depth": 3}))?
        .equals("/spec/num", 1)?;
    Ok(())
}

async fn crd_warn(world: &World) -> Verdict {
    let answer = world.post(&world.widgets(), &world.body("warn", json!({"nosuch": 2}))).await?;
    answer.code(201)?;
    let warning = answer.headers.get("warning").and_then(|value| value.to_str().ok()).unwrap_or_default();
    ensure(warning == "299 - \"unknown field \\\"spec.nosuch\\\"\"", "a Warning on spec.nosuch", warning)?;
    let strict = with_query(&world.widgets(), &[("fieldValidation", "Strict")]);
    let body = world.body("strict", json!({"nosuch": 2}));
    let answer = world.request(Method::POST, &strict).body(JSON, &body).send().await?;
    answer.code(400)?.reason("BadRequest")?.says("strict decoding error: unknown field \"spec.nosuch\"")?;
    Ok(())
}

async fn crd_enum(world: &World) -> Verdict {
    let answer = world.post(&world.widgets(), &world.body("enum", json!({"mode": "warp"}))).await?;
    answer
        .code(422)?
        .reason("Invalid")?
        .cause("FieldValueNotSupported", "spec.mode")?
        .says("Unsupported value: \"warp\": supported values: \"fast\", \"slow\"")?;
    Ok(())
}

async fn crd_bounds(world: &World) -> Verdict {
    let spec = json!({"num": -1, "text": "a text of more than twenty characters"});
    let answer = world.post(&world.widgets(), &world.body("bounds", spec)).await?;
    answer.code(422)?.says("spec.num")?.says("spec.text")?;
    answer.cause("FieldValueInvalid", "spec.num")?;
    Ok(())
}

async fn crd_patch_invalid(world: &World) -> Verdict {
    world.create("patch-invalid", json!({"num": 1})).await?;
    let answer = world.merge(&world.widget("patch-invalid"), &json!({"spec": {"num": -1}})).await?;
    answer.code(422)?.reason("Invalid")?.cause("FieldValueInvalid", "spec.num")?;
    Ok(())
}

async fn crd_duplicate_key(world: &World) -> Verdict {
    world.create("duplicate-key", json!({})).await?;
    let mut body = world.conditions("duplicate-key", &[("Ready", "True"), ("Ready", "False")]);
    let patch = json!({"status": body["status"].take()});
    let answer = world.merge(&world.status("duplicate-key"), &patch).await?;
    answer.code(422)?.reason("Invalid")?.cause("FieldValueDuplicate", "status.conditions[1]")?;
    Ok(())
}

async fn crd_cel(world: &World) -> Verdict {
    world.create("cel-fine", json!({"range": {"low": 1, "high": 2}})).await?;
    world.create("cel-half", json!({"range": {"low": 5}})).await?;
    let answer = world.post(&world.widgets(), &world.body("cel", json!({"range": {"low": 3, "high": 2}}))).await?;
    answer.code(422)?.reason("Invalid")?.cause("FieldValueInvalid", "spec.range")?.says("low must not exceed high")?;
    Ok(())
}

async fn crd_cel_transition(world: &World) -> Verdict {
    world.create("cel-fixed", json!({"num": 1})).await?;
    let path = world.widget("cel-fixed");
    world.merge(&path, &json!({"spec": {"fixed": "first"}})).await?.code(200)?;
    world.merge(&path, &json!({"spec": {"fixed": "first", "num": 2}})).await?.code(200)?;
    let answer = world.merge(&path, &json!({"spec": {"fixed": "second"}})).await?;
    answer
        .code(422)?
        .reason("Invalid")?
        .cause("FieldValueInvalid", "spec.fixed")?
        .says("spec.fixed: Invalid value: \"second\": Value is immutable")?;
    Ok(())
}
