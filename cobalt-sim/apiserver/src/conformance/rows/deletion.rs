//! Deleting: preconditions, finalizers, collections and dependents.

use serde_json::{Value, json};

use crate::conformance::check::{Check, Mismatch, Need::GarbageCollection, Verdict, check, ensure, equal};
use crate::conformance::exchange::{Answer, with_query};
use crate::conformance::world::World;

pub(super) const CHECKS: fn() -> Vec<Check> = || {
    vec![
        check!("delete", "DELETE without finalizers: 200 Status Success with name, group, kind, uid", delete),
        check!("delete-missing", "DELETE of an object that does not exist: 404", delete_missing),
        check!(
            "delete-finalizer",
            "DELETE with finalizers: 200 with the object: deletionTimestamp, deletionGracePeriodSeconds 0, generation +1",
            delete_finalizer
        ),
        check!("delete-again", "DELETE of an object that waits for its finalizer: 200, unchanged", delete_again),
        check!(
            "finalizer-add",
            "add finalizer while deleting: 422 Forbidden, no new finalizers can be added",
            finalizer_add
        ),
        check!(
            "finalizer-last",
            "PATCH removing the last finalizer: 200 with the last object, object gone, DELETED event at the next revision",
            finalizer_last
        ),
        check!(
            "finalizer-recreate",
            "POST of a name that waits for its finalizer: 409 AlreadyExists, object is being deleted",
            finalizer_recreate
        ),
        check!("delete-wrong-uid", "DELETE with wrong uid precondition: 409 Conflict", delete_wrong_uid),
        check!(
            "delete-wrong-version",
            "DELETE with wrong resourceVersion precondition: 409 Conflict",
            delete_wrong_version
        ),
        check!(
            "delete-collection",
            "DELETE on a collection with a selector: the selected go, the others stay",
            delete_collection
        ),
        check!("gc-background", "owner deleted: its dependents follow", gc_background, needs GarbageCollection),
        check!("gc-two-owners", "one of two owners deleted: the dependent stays", gc_two_owners, needs GarbageCollection),
        check!("gc-foreground", "owner deleted in the foreground: it goes after its dependents", gc_foreground, needs GarbageCollection),
        check!("gc-orphan", "owner deleted with Orphan: the dependent stays and forgets it", gc_orphan, needs GarbageCollection),
        check!("gc-absent-owner", "created with an owner that does not exist: collected", gc_absent_owner, needs GarbageCollection),
    ]
};

async fn delete(world: &World) -> Verdict {
    let uid = world.create("delete", json!({})).await?.text_at("/metadata/uid")?;
    let answer = world.delete(&world.widget("delete")).await?;
    let details = json!({"name": "delete", "group": world.group, "kind": "widgets", "uid": uid});
    answer.code(200)?.equals("/kind", "Status")?.equals("/status", "Success")?.equals("/details", details)?;
    world.get(&world.widget("delete")).await?.code(404)?;
    Ok(())
}

async fn delete_missing(world: &World) -> Verdict {
    world.delete(&world.widget("delete-missing")).await?.code(404)?.reason("NotFound")?;
    Ok(())
}

/// A widget with a finalizer, already deleted. Returns the answer to the DELETE.
async fn deleting(world: &World, name: &str) -> Result<Answer, Mismatch> {
    let mut body = world.body(name, json!({"num": 1}));
    body["metadata"]["finalizers"] = json!(["example.com/one"]);
    world.post(&world.widgets(), &body).await?.code(201)?;
    let answer = world.delete(&world.widget(name)).await?;
    answer.code(200)?;
    Ok(answer)
}

async fn release(world: &World, name: &str) -> Result<Answer, Mismatch> {
    world.merge(&world.widget(name), &json!({"metadata": {"finalizers": null}})).await
}

async fn delete_finalizer(world: &World) -> Verdict {
    let answer = deleting(world, "finalizer").await?;
    answer
        .equals("/kind", "Widget")?
        .equals("/metadata/deletionGracePeriodSeconds", 0)?
        .equals("/metadata/generation", 2)?;
    answer.text_at("/metadata/deletionTimestamp")?;
    world.get(&world.widget("finalizer")).await?.code(200)?;
    release(world, "finalizer").await?.code(200)?;
    Ok(())
}

async fn delete_again(world: &World) -> Verdict {
    let first = deleting(world, "delete-again").await?;
    let second = world.delete(&world.widget("delete-again")).await?;
    second.code(200)?;
    equal("the object", &second.json, &first.json)?;
    release(world, "delete-again").await?.code(200)?;
    Ok(())
}

async fn finalizer_add(world: &World) -> Verdict {
    deleting(world, "finalizer-add").await?;
    let patch = json!({"metadata": {"finalizers": ["example.com/one", "example.com/two"]}});
    let answer = world.merge(&world.widget("finalizer-add"), &patch).await?;
    answer
        .code(422)?
        .reason("Invalid")?
        .says("metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted")?
        .cause("FieldValueForbidden", "metadata.finalizers")?;
    release(world, "finalizer-add").await?.code(200)?;
    Ok(())
}

async fn finalizer_last(world: &World) -> Verdict {
    let deleted = deleting(world, "finalizer-last").await?;
    let mut watch = world.watch_one("finalizer-last").await?;
    let answer = release(world, "finalizer-last").await?;
    answer.code(200)?.lacks("/metadata/finalizers")?;
    equal("the resourceVersion of the answer", &answer.version()?, &deleted.version()?)?;
    world.get(&world.widget("finalizer-last")).await?.code(404)?;
    let event = watch.expect("DELETED").await?;
    let (before, at) = (deleted.revision()?, crate::conformance::exchange::revision(&event)?);
    ensure(at > before, format!("a deletion revision after {before}"), at)
}

async fn finalizer_recreate(world: &World) -> Verdict {
    deleting(world, "recreate").await?;
    let answer = world.post(&world.widgets(), &world.body("recreate", json!({}))).await?;
    answer.code(409)?.reason("AlreadyExists")?.says("object is being deleted")?;
    release(world, "recreate").await?.code(200)?;
    Ok(())
}

fn precondition(field: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {field: value}})
}

async fn delete_wrong_uid(world: &World) -> Verdict {
    world.create("delete-uid", json!({})).await?;
    let options = precondition("uid", "00000000-0000-0000-0000-000000000001");
    let answer = world.delete_with(&world.widget("delete-uid"), &options).await?;
    answer.code(409)?.reason("Conflict")?.says("the UID in the precondition")?;
    world.get(&world.widget("delete-uid")).await?.code(200)?;
    Ok(())
}

async fn delete_wrong_version(world: &World) -> Verdict {
    let object = world.create("delete-version", json!({})).await?;
    let path = world.widget("delete-version");
    let answer = world.delete_with(&path, &precondition("resourceVersion", "1")).await?;
    answer.code(409)?.reason("Conflict")?.says("the ResourceVersion in the precondition (1)")?;
    world.delete_with(&path, &precondition("resourceVersion", &object.version()?)).await?.code(200)?;
    world.get(&path).await?.code(404)?;
    Ok(())
}

async fn delete_collection(world: &World) -> Verdict {
    let namespace = world.own_namespace("collection").await?;
    let path = world.widgets_in(&namespace);
    for (name, label) in [("one", "go"), ("two", "go"), ("three", "stay")] {
        let mut body = world.body(name, json!({}));
        body["metadata"]["labels"] = json!({"fate": label});
        world.post(&path, &body).await?.code(201)?;
    }
    world.delete(&with_query(&path, &[("labelSelector", "fate=go")])).await?.code(200)?;
    world.get(&path).await?.has_names(&["three"])
}

/// Creates a ConfigMap, owned by the given ones.
async fn config_map(world: &World, name: &str, owners: &[&Answer]) -> Result<Answer, Mismatch> {
    let reference = |owner: &&Answer| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner.at("/metadata/name"),
            "uid": owner.at("/metadata/uid"),
            "blockOwnerDeletion": true,
        })
    };
    let references: Vec<Value> = owners.iter().map(reference).collect();
    let metadata = json!({"name": name, "ownerReferences": references});
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    let answer = world.post(&world.core("configmaps"), &body).await?;
    answer.code(201)?;
    Ok(answer)
}

async fn gc_background(world: &World) -> Verdict {
    let owner = config_map(world, "gc-owner", &[]).await?;
    let middle = config_map(world, "gc-middle", &[&owner]).await?;
    config_map(world, "gc-leaf", &[&middle]).await?;
    world.delete(&world.core("configmaps/gc-owner")).await?.code(200)?;
    world.until_code(&world.core("configmaps/gc-middle"), 404).await?;
    world.until_code(&world.core("configmaps/gc-leaf"), 404).await?;
    Ok(())
}

async fn gc_two_owners(world: &World) -> Verdict {
    let one = config_map(world, "gc-two-one", &[]).await?;
    let two = config_map(world, "gc-two-two", &[]).await?;
    config_map(world, "gc-two-shared", &[&one, &two]).await?;
    // The witness shows that the collector has seen the deletion.
    config_map(world, "gc-two-witness", &[&one]).await?;
    world.delete(&world.core("configmaps/gc-two-one")).await?.code(200)?;
    world.until_code(&world.core("configmaps/gc-two-witness"), 404).await?;
    world.get(&world.core("configmaps/gc-two-shared")).await?.code(200)?;
    world.delete(&world.core("configmaps/gc-two-two")).await?.code(200)?;
    world.until_code(&world.core("configmaps/gc-two-shared"), 404).await?;
    Ok(())
}

async fn delete_by(world: &World, name: &str, policy: &str) -> Result<Answer, Mismatch> {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
    let answer = world.delete_with(&world.core(&format!("configmaps/{name}")), &options).await?;
    answer.code(200)?;
    Ok(answer)
}

async fn gc_foreground(world: &World) -> Verdict {
    let owner = config_map(world, "gc-front-owner", &[]).await?;
    let child = config_map(world, "gc-front-child", &[&owner]).await?;
    let path = world.core("configmaps/gc-front-child");
    // While the child is held by a finalizer, the owner has to wait for it.
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"], "uid": child.at("/metadata/uid")}});
    world.merge(&path, &hold).await?.code(200)?;
    let answer = delete_by(world, "gc-front-owner", "Foreground").await?;
    answer.equals("/metadata/finalizers", json!(["foregroundDeletion"]))?;
    world.until(&path, "a deletionTimestamp", |child| !child.at("/metadata/deletionTimestamp").is_null()).await?;
    world.get(&world.core("configmaps/gc-front-owner")).await?.code(200)?;
    world.merge(&path, &json!({"metadata": {"finalizers": null}})).await?.code(200)?;
    world.until_code(&path, 404).await?;
    world.until_code(&world.core("configmaps/gc-front-owner"), 404).await?;
    Ok(())
}

async fn gc_orphan(world: &World) -> Verdict {
    let owner = config_map(world, "gc-orphan-owner", &[]).await?;
    config_map(world, "gc-orphan-child", &[&owner]).await?;
    delete_by(world, "gc-orphan-owner", "Orphan").await?;
    world.until_code(&world.core("configmaps/gc-orphan-owner"), 404).await?;
    let child = world.get(&world.core("configmaps/gc-orphan-child")).await?;
    child.code(200)?.lacks("/metadata/ownerReferences")?;
    Ok(())
}

async fn gc_absent_owner(world: &World) -> Verdict {
    let ghost = config_map(world, "gc-ghost", &[]).await?;
    world.delete(&world.core("configmaps/gc-ghost")).await?.code(200)?;
    config_map(world, "gc-ghost-child", &[&ghost]).await?;
    world.until_code(&world.core("configmaps/gc-ghost-child"), 404).await?;
    Ok(())
}
