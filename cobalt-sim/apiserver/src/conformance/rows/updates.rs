//! PUT, and what a write does to generation and resourceVersion.

use serde_json::{Value, json};

use crate::conformance::check::{Check, Verdict, check, ensure, equal};
use crate::conformance::world::World;

pub(super) const CHECKS: fn() -> Vec<Check> = || {
    vec![
        check!("put", "PUT with the current resourceVersion: 200, generation +1 when spec changed", put),
        check!(
            "put-stale",
            "PUT stale resourceVersion: 409 Conflict, please apply your changes to the latest version",
            put_stale
        ),
        check!(
            "put-no-version",
            "PUT without resourceVersion (CR): 422, must be specified for an update",
            put_no_version
        ),
        check!("put-missing", "PUT of an object that does not exist: 404", put_missing),
        check!("put-name-mismatch", "PUT with another name than the path: 400", put_name_mismatch),
        check!("put-wrong-uid", "PUT with another uid: 409, the object was deleted and recreated", put_wrong_uid),
        check!("put-unchanged", "PUT of the object as it is: 200, same resourceVersion, no event", put_unchanged),
        check!("generation-metadata", "a change of labels alone does not move generation", generation_metadata),
        check!("core-unconditional-put", "PUT without resourceVersion on a ConfigMap: allowed", core_unconditional_put),
    ]
};

async fn put(world: &World) -> Verdict {
    let mut object = world.create("put", json!({"num": 1})).await?;
    let before = object.revision()?;
    object.json["spec"]["num"] = json!(2);
    let answer = world.put(&world.widget("put"), &object.json).await?;
    answer.code(200)?.equals("/spec/num", 2)?.equals("/metadata/generation", 2)?;
    ensure(answer.revision()? > before, "a newer resourceVersion", &answer)
}

async fn put_stale(world: &World) -> Verdict {
    let mut object = world.create("put-stale", json!({"num": 1})).await?;
    world.merge(&world.widget("put-stale"), &json!({"spec": {"num": 2}})).await?.code(200)?;
    object.json["spec"]["num"] = json!(3);
    let answer = world.put(&world.widget("put-stale"), &object.json).await?;
    let message = format!(
        "Operation cannot be fulfilled on widgets.{} \"put-stale\": the object has been modified; \
         please apply your changes to the latest version and try again",
        world.group
    );
    answer.code(409)?.reason("Conflict")?.message(&message)?.equals("/details/kind", "widgets")?;
    world.get(&world.widget("put-stale")).await?.equals("/spec/num", 2)?;
    Ok(())
}

async fn put_no_version(world: &World) -> Verdict {
    world.create("put-no-version", json!({})).await?;
    let answer = world.put(&world.widget("put-no-version"), &world.body("put-no-version", json!({}))).await?;
    answer
        .code(422)?
        .reason("Invalid")?
        .says("must be specified for an update")?
        .cause("FieldValueInvalid", "metadata.resourceVersion")?;
    Ok(())
}

async fn put_missing(world: &World) -> Verdict {
    let mut body = world.body("put-missing", json!({}));
    body["metadata"]["resourceVersion"] = json!("1");
    world.put(&world.widget("put-missing"), &body).await?.code(404)?.reason("NotFound")?;
    Ok(())
}

async fn put_name_mismatch(world: &World) -> Verdict {
    let mut object = world.create("put-name", json!({})).await?;
    object.json["metadata"]["name"] = json!("other");
    let answer = world.put(&world.widget("put-name"), &object.json).await?;
    answer.code(400)?.reason("BadRequest")?;
    answer.message("the name of the object (other) does not match the name on the URL (put-name)")?;
    Ok(())
}

async fn put_wrong_uid(world: &World) -> Verdict {
    let mut object = world.create("put-uid", json!({})).await?;
    object.json["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000001");
    let answer = world.put(&world.widget("put-uid"), &object.json).await?;
    answer.code(409)?.reason("Conflict")?.says("UID")?;
    Ok(())
}

async fn put_unchanged(world: &World) -> Verdict {
    let object = world.create("put-unchanged", json!({"num": 1})).await?;
    let mut watch = world.watch_one("put-unchanged").await?;
    let answer = world.put(&world.widget("put-unchanged"), &object.json).await?;
    answer.code(200)?;
    equal("the resourceVersion", &answer.version()?, &object.version()?)?;
    let marker = world.merge(&world.widget("put-unchanged"), &json!({"spec": {"num": 2}})).await?;
    let event: Value = watch.expect("MODIFIED").await?;
    equal("the first event, which is of the real change", &event, &marker.json)
}

async fn generation_metadata(world: &World) -> Verdict {
    world.create("generation", json!({"num": 1})).await?;
    let labelled = world.merge(&world.widget("generation"), &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    labelled.code(200)?.equals("/metadata/generation", 1)?;
    let invented = world.merge(&world.widget("generation"), &json!({"metadata": {"generation": 99}})).await?;
    invented.code(200)?.equals("/metadata/generation", 1)?;
    Ok(())
}

async fn core_unconditional_put(world: &World) -> Verdict {
    let body = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "put-core"}, "data": {"k": value}});
    world.post(&world.core("configmaps"), &body("1")).await?.code(201)?;
    let answer = world.put(&world.core("configmaps/put-core"), &body("2")).await?;
    answer.code(200)?.equals("/data/k", "2")?;
    Ok(())
}
