//! Reading and creating.

use http::Method;
use kube::api::PostParams;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::conformance::check::{Check, Mismatch, Verdict, check, ensure, equal};
use crate::conformance::exchange::{JSON, with_query};
use crate::conformance::world::World;

pub(super) const CHECKS: fn() -> Vec<Check> = || {
    vec![
        check!("get-missing", "GET missing: 404 NotFound, the message names resource, group and name", get_missing),
        check!("create", "POST: 201, `status` in the body is dropped, generation 1", create),
        check!("create-user-agent", "POST: managedFields manager = User-Agent up to the slash", create_user_agent),
        check!("create-by-kube", "POST by kube: manager `unknown` unless PostParams name one", create_by_kube),
        check!("create-existing", "POST existing name: 409 AlreadyExists", create_existing),
        check!(
            "create-invalid",
            "POST schema violation: 422 Invalid, causes with reason and field path",
            create_invalid
        ),
        check!("create-no-namespace", "POST in missing namespace: 404 naming `namespaces \"x\"`", create_no_namespace),
        check!("create-generate-name", "POST with generateName: a name with that prefix", create_generate_name),
        check!("create-bad-name", "POST with a name that is no DNS name: 422 on metadata.name", create_bad_name),
        check!("dry-run-create", "POST ?dryRun=All with generateName: 201, nothing stored", dry_run_create),
        check!("dry-run-write", "PATCH and DELETE ?dryRun=All: 200, nothing changed", dry_run_write),
        check!("dry-run-unknown", "?dryRun with another value than All: 422", dry_run_unknown),
        check!("unknown-resource", "unknown CR resource or group: 404, not a Status but plain text", unknown_resource),
        check!(
            "one-revision-counter",
            "one revision counter for the whole store: kinds interleave",
            one_revision_counter
        ),
    ]
};

async fn get_missing(world: &World) -> Verdict {
    let answer = world.get(&world.widget("nope")).await?;
    let group = world.group.as_str();
    answer
        .code(404)?
        .reason("NotFound")?
        .message(&format!("widgets.{group} \"nope\" not found"))?
        .equals("/kind", "Status")?
        .equals("/status", "Failure")?
        .equals("/code", 404)?
        .equals("/details", json!({"name": "nope", "group": group, "kind": "widgets"}))?;
    Ok(())
}

async fn create(world: &World) -> Verdict {
    let mut body = world.body("create", json!({"num": 1}));
    body["status"] = json!({"phase": "invented"});
    let answer = world.post(&world.widgets(), &body).await?;
    answer
        .code(201)?
        .equals("/metadata/generation", 1)?
        .equals("/metadata/namespace", world.namespace.as_str())?
        .equals("/spec/num", 1)?
        .lacks("/status")?;
    answer.text_at("/metadata/uid")?;
    answer.text_at("/metadata/creationTimestamp")?;
    let stored = world.get(&world.widget("create")).await?;
    stored.code(200)?.lacks("/status")?;
    equal("the stored object", &stored.json, &answer.json)
}

async fn create_user_agent(world: &World) -> Verdict {
    let body = world.body("create-user-agent", json!({}));
    let exchange = world.request(Method::POST, &world.widgets()).header("user-agent", "curl/8.5.0");
    let answer = exchange.body(JSON, &body).send().await?;
    answer.code(201)?.equals("/metadata/managedFields/0/manager", "curl")?;
    answer.equals("/metadata/managedFields/0/operation", "Update")?;
    Ok(())
}

async fn create_by_kube(world: &World) -> Verdict {
    let api = world.api(&world.namespace);
    for (name, manager) in [("kube-default", None), ("kube-named", Some("conformance"))] {
        let mut object = DynamicObject::new(name, &world.resource());
        object.data = json!({"spec": {}});
        let parameters = PostParams { field_manager: manager.map(str::to_owned), ..PostParams::default() };
        let created = api.create(&parameters, &object).await;
        let created = created.map_err(|error| Mismatch::new("kube creates an object", error))?;
        let managers: Vec<String> =
            created.metadata.managed_fields.iter().flatten().filter_map(|entry| entry.manager.clone()).collect();
        equal("managers", &managers, &vec![manager.unwrap_or("unknown").to_owned()])?;
    }
    Ok(())
}

async fn create_existing(world: &World) -> Verdict {
    world.create("existing", json!({})).await?;
    let answer = world.post(&world.widgets(), &world.body("existing", json!({}))).await?;
    let message = format!("widgets.{} \"existing\" already exists", world.group);
    answer.code(409)?.reason("AlreadyExists")?.message(&message)?;
    Ok(())
}

async fn create_invalid(world: &World) -> Verdict {
    let answer = world.post(&world.widgets(), &world.body("invalid", json!({"num": "three"}))).await?;
    answer
        .code(422)?
        .reason("Invalid")?
        .equals("/details/kind", "Widget")?
        .equals("/details/name", "invalid")?
        .says("spec.num")?;
    // Servers before 1.25 report a wrong type as FieldValueInvalid.
    let causes = answer.at("/details/causes").as_array().cloned().unwrap_or_default();
    let typed = ["FieldValueTypeInvalid", "FieldValueInvalid"];
    let named = causes
        .iter()
        .any(|cause| cause["field"] == "spec.num" && typed.iter().any(|reason| cause["reason"] == *reason));
    ensure(named, "a cause FieldValueTypeInvalid on spec.num", &answer)?;
    world.get(&world.widget("invalid")).await?.code(404)?;
    Ok(())
}

async fn create_no_namespace(world: &World) -> Verdict {
    let namespace = format!("{}-missing", world.prefix);
    let answer = world.post(&world.widgets_in(&namespace), &world.body("x", json!({}))).await?;
    answer.code(404)?.reason("NotFound")?.message(&format!("namespaces \"{namespace}\" not found"))?;
    Ok(())
}

fn generated(world: &World, prefix: &str) -> Value {
    let mut body = world.body("", json!({}));
    body["metadata"] = json!({"generateName": prefix});
    body
}

async fn create_generate_name(world: &World) -> Verdict {
    let answer = world.post(&world.widgets(), &generated(world, "gen-")).await?;
    let name = answer.code(201)?.equals("/metadata/generateName", "gen-")?.text_at("/metadata/name")?;
    let suffix = name.strip_prefix("gen-").unwrap_or_default();
    ensure(suffix.len() == 5, "`gen-` and five characters", &name)?;
    world.get(&world.widget(&name)).await?.code(200)?;
    Ok(())
}

async fn create_bad_name(world: &World) -> Verdict {
    let answer = world.post(&world.widgets(), &world.body("Not_A_Name", json!({}))).await?;
    answer.code(422)?.reason("Invalid")?.cause("FieldValueInvalid", "metadata.name")?;
    Ok(())
}

async fn dry_run_create(world: &World) -> Verdict {
    let path = with_query(&world.widgets(), &[("dryRun", "All")]);
    let answer = world.post(&path, &generated(world, "dry-")).await?;
    let name = answer.code(201)?.text_at("/metadata/name")?;
    ensure(name.starts_with("dry-"), "a name with the prefix dry-", &name)?;
    let names = world.get(&world.widgets()).await?.names();
    ensure(!names.iter().any(|name| name.starts_with("dry-")), "nothing stored", format!("{names:?}"))
}

async fn dry_run_write(world: &World) -> Verdict {
    let before = world.create("dryrun", json!({"num": 1})).await?;
    let path = with_query(&world.widget("dryrun"), &[("dryRun", "All")]);
    let patched = world.merge(&path, &json!({"spec": {"num": 2}})).await?;
    patched.code(200)?.equals("/spec/num", 2)?.equals("/metadata/generation", 2)?;
    world.delete(&path).await?.code(200)?;
    let after = world.get(&world.widget("dryrun")).await?;
    after.code(200)?;
    equal("the object after dry runs", &after.json, &before.json)
}

async fn dry_run_unknown(world: &World) -> Verdict {
    let path = with_query(&world.widgets(), &[("dryRun", "Maybe")]);
    let answer = world.post(&path, &world.body("dry-bad", json!({}))).await?;
    answer.code(422)?.reason("Invalid")?.says("dryRun")?;
    Ok(())
}

async fn unknown_resource(world: &World) -> Verdict {
    for path in [format!("/apis/{}/v1/nosuch", world.group), format!("/apis/no.{}/v1/widgets", world.group)] {
        let answer = world.get(&path).await?;
        answer.code(404)?;
        ensure(answer.text == "404 page not found\n", format!("{path}: 404 page not found"), &answer.text)?;
    }
    let answer = world.get("/api/v1/nosuch").await?;
    answer.code(404)?.reason("NotFound")?.message("the server could not find the requested resource")?;
    Ok(())
}

async fn one_revision_counter(world: &World) -> Verdict {
    let config_map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let path = world.core("configmaps");
    let first = world.create("counter-1", json!({})).await?.revision()?;
    let second = world.post(&path, &config_map("counter-2")).await?.code(201)?.revision()?;
    let third = world.create("counter-3", json!({})).await?.revision()?;
    let fourth = world.post(&path, &config_map("counter-4")).await?.code(201)?.revision()?;
    let order = [first, second, third, fourth];
    ensure(order.is_sorted_by(|one, other| one < other), "ever growing resourceVersions", format!("{order:?}"))
}
