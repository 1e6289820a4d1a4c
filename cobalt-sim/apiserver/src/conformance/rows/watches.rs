//! Watches on the wire.

use serde_json::{Value, json};

use crate::conformance::check::{Check, Mismatch, Need::WatchList, Verdict, check, ensure, equal};
use crate::conformance::exchange::revision;
use crate::conformance::world::World;

pub(super) const CHECKS: fn() -> Vec<Check> = || {
    vec![
        check!(
            "watch",
            "watch: 200 application/json, one JSON object per line, ADDED MODIFIED DELETED; DELETED carries the deletion revision",
            watch
        ),
        check!(
            "watch-from-version",
            "watch from a resourceVersion: everything after it, nothing before",
            watch_from_version
        ),
        check!("watch-from-zero", "watch with resourceVersion=0: the present state as ADDED first", watch_from_zero),
        check!(
            "watch-finalizer",
            "watch: a delete held by a finalizer is MODIFIED, its end is DELETED",
            watch_finalizer
        ),
        check!(
            "watch-selector",
            "watch with a label selector: entering is ADDED, leaving is DELETED with the old content and the new resourceVersion",
            watch_selector
        ),
        check!("watch-timeout", "watch timeoutSeconds: the server ends the stream", watch_timeout),
        check!(
            "watch-bookmark",
            "watch allowWatchBookmarks=true: BOOKMARK with only kind, apiVersion, resourceVersion before timeoutSeconds ended the stream",
            watch_bookmark
        ),
        check!("watch-no-bookmark", "watch without allowWatchBookmarks: no BOOKMARK", watch_no_bookmark),
        check!("watch-too-old", "watch too old: HTTP 200, then one ERROR event with Status 410 Expired", watch_too_old),
        check!("watch-future", "watch from a future revision: stays silent until timeout", watch_future),
        check!("watch-list", "watch sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true: ADDED for every object, then BOOKMARK annotated k8s.io/initial-events-end", watch_list, needs WatchList),
        check!("watch-list-match", "watch sendInitialEvents without resourceVersionMatch: 422", watch_list_match, needs WatchList),
        check!("watch-core", "watch of a core kind: the same stream", watch_core),
    ]
};

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

async fn version_now(world: &World, path: &str) -> Result<String, Mismatch> {
    world.get(path).await?.code(200)?.version()
}

async fn watch(world: &World) -> Verdict {
    let mut watch = world.watch_one("watch").await?;
    let media_type = watch.content_type().split(';').next().unwrap_or_default().to_owned();
    equal("the content type", &media_type, &"application/json".to_owned())?;
    let created = world.create("watch", json!({"num": 1})).await?;
    equal("the ADDED object", &watch.expect("ADDED").await?, &created.json)?;
    let changed = world.merge(&world.widget("watch"), &json!({"spec": {"num": 2}})).await?;
    equal("the MODIFIED object", &watch.expect("MODIFIED").await?, &changed.json)?;
    let status = world.merge(&world.status("watch"), &json!({"status": {"count": 1}})).await?;
    equal("the object with its status", &watch.expect("MODIFIED").await?, &status.json)?;
    world.delete(&world.widget("watch")).await?.code(200)?;
    let deleted = watch.expect("DELETED").await?;
    let (before, at) = (status.revision()?, revision(&deleted)?);
    ensure(at > before, format!("a deletion revision after {before}"), at)
}

async fn watch_from_version(world: &World) -> Verdict {
    let namespace = world.own_namespace("since").await?;
    let path = world.widgets_in(&namespace);
    let first = world.post(&path, &world.body("first", json!({}))).await?.code(201)?.version()?;
    world.post(&path, &world.body("second", json!({}))).await?.code(201)?;
    world.post(&path, &world.body("third", json!({}))).await?.code(201)?;
    let mut watch = world.watch(&path, &[("resourceVersion", &first)]).await?;
    for expected in ["second", "third"] {
        let object = watch.expect("ADDED").await?;
        ensure(name(&object) == expected, expected, &object)?;
    }
    Ok(())
}

async fn watch_from_zero(world: &World) -> Verdict {
    let namespace = world.own_namespace("zero").await?;
    let path = world.widgets_in(&namespace);
    for each in ["one", "two"] {
        world.post(&path, &world.body(each, json!({}))).await?.code(201)?;
    }
    // A cache may lag behind the store: wait until it has answered with both.
    let mut watch = world.watch(&path, &[("resourceVersion", "0")]).await?;
    let mut names = [watch.expect("ADDED").await?, watch.expect("ADDED").await?].map(|it| name(&it).to_owned());
    names.sort();
    equal("the present state", &names, &["one".to_owned(), "two".to_owned()])?;
    world.post(&path, &world.body("three", json!({}))).await?.code(201)?;
    let later = watch.expect("ADDED").await?;
    ensure(name(&later) == "three", "three", &later)
}

async fn watch_finalizer(world: &World) -> Verdict {
    let mut watch = world.watch_one("watch-finalizer").await?;
    let mut body = world.body("watch-finalizer", json!({}));
    body["metadata"]["finalizers"] = json!(["example.com/one"]);
    world.post(&world.widgets(), &body).await?.code(201)?;
    watch.expect("ADDED").await?;
    let deleted = world.delete(&world.widget("watch-finalizer")).await?;
    equal("the MODIFIED object", &watch.expect("MODIFIED").await?, &deleted.json)?;
    let path = world.widget("watch-finalizer");
    world.merge(&path, &json!({"metadata": {"finalizers": null}})).await?.code(200)?;
    watch.expect("DELETED").await?;
    Ok(())
}

async fn watch_selector(world: &World) -> Verdict {
    let version = version_now(world, &world.widgets()).await?;
    let selector = [("labelSelector", "team=blue"), ("resourceVersion", version.as_str())];
    let mut watch = world.watch(&world.widgets(), &selector).await?;
    let path = world.widget("watch-selector");
    let label = |team: &str| json!({"metadata": {"labels": {"team": team}}});
    world.create("watch-selector", json!({})).await?;
    world.merge(&path, &label("blue")).await?.code(200)?;
    let entered = watch.expect("ADDED").await?;
    ensure(entered["metadata"]["labels"]["team"] == "blue", "the object that entered", &entered)?;
    let left_by = world.merge(&path, &label("red")).await?;
    let left = watch.expect("DELETED").await?;
    ensure(left["metadata"]["labels"]["team"] == "blue", "the old labels", &left)?;
    equal("the revision of leaving", &revision(&left)?, &left_by.revision()?)?;
    world.merge(&path, &json!({"spec": {"num": 1}})).await?.code(200)?;
    let back = world.merge(&path, &label("blue")).await?;
    equal("the object that came back, after silence", &watch.expect("ADDED").await?, &back.json)
}

async fn watch_timeout(world: &World) -> Verdict {
    let version = version_now(world, &world.widgets()).await?;
    let parameters =
        [("labelSelector", "nosuch=label"), ("timeoutSeconds", "1"), ("resourceVersion", version.as_str())];
    let events = world.watch(&world.widgets(), &parameters).await?.rest().await?;
    ensure(events.is_empty(), "no event", format!("{events:?}"))
}

/// The events of a watch that selects nothing and lasts a few seconds.
async fn quiet_watch(world: &World, more: &[(&str, &str)]) -> Result<(u64, Vec<Value>), Mismatch> {
    let now = world.get(&world.widgets()).await?.code(200)?.revision()?;
    let version = now.to_string();
    let mut parameters =
        vec![("labelSelector", "nosuch=label"), ("timeoutSeconds", "8"), ("resourceVersion", version.as_str())];
    parameters.extend_from_slice(more);
    Ok((now, world.watch(&world.widgets(), &parameters).await?.rest().await?))
}

async fn watch_bookmark(world: &World) -> Verdict {
    let (start, events) = quiet_watch(world, &[("allowWatchBookmarks", "true")]).await?;
    let bookmark = events.first().ok_or_else(|| Mismatch::new("a BOOKMARK", "an end without any event"))?;
    ensure(bookmark["type"] == "BOOKMARK", "a BOOKMARK", bookmark)?;
    let object = &bookmark["object"];
    equal("kind", &object["kind"], &json!("Widget"))?;
    equal("apiVersion", &object["apiVersion"], &json!(format!("{}/v1", world.group)))?;
    let at = revision(object)?;
    ensure(at >= start, format!("a resourceVersion of at least {start}"), at)?;
    // Old servers add `creationTimestamp: null`.
    let told: Vec<&String> =
        object["metadata"].as_object().into_iter().flatten().filter(|it| !it.1.is_null()).map(|it| it.0).collect();
    ensure(told == ["resourceVersion"], "nothing else in metadata", object)?;
    ensure(object.get("spec").is_none() && object.get("status").is_none(), "no spec, no status", object)
}

async fn watch_no_bookmark(world: &World) -> Verdict {
    let (_, events) = quiet_watch(world, &[]).await?;
    ensure(events.is_empty(), "no event", format!("{events:?}"))
}

async fn watch_too_old(world: &World) -> Verdict {
    let mut watch = world.watch(&world.widgets(), &[("resourceVersion", "1")]).await?;
    let status = watch.expect("ERROR").await?;
    equal("kind", &status["kind"], &json!("Status"))?;
    equal("code", &status["code"], &json!(410))?;
    equal("reason", &status["reason"], &json!("Expired"))?;
    let message = status["message"].as_str().unwrap_or_default();
    ensure(message.starts_with("too old resource version: 1 ("), "too old resource version: 1 (…)", message)?;
    let more = watch.rest().await?;
    ensure(more.is_empty(), "the end of the stream", format!("{more:?}"))
}

async fn watch_future(world: &World) -> Verdict {
    let now = world.get(&world.widgets()).await?.code(200)?.revision()?;
    let version = (now + 10_000_000).to_string();
    let parameters = [("resourceVersion", version.as_str()), ("timeoutSeconds", "2")];
    let mut watch = world.watch(&world.widgets(), &parameters).await?;
    world.create("watch-future", json!({})).await?;
    let events = watch.rest().await?;
    ensure(events.is_empty(), "no event", format!("{events:?}"))
}

async fn watch_list(world: &World) -> Verdict {
    let namespace = world.own_namespace("stream").await?;
    let path = world.widgets_in(&namespace);
    let mut newest = 0;
    for each in ["one", "two", "three"] {
        newest = world.post(&path, &world.body(each, json!({}))).await?.code(201)?.revision()?;
    }
    let parameters =
        [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan"), ("allowWatchBookmarks", "true")];
    let mut watch = world.watch(&path, &parameters).await?;
    let mut names = Vec::new();
    for _ in 0..3 {
        names.push(name(&watch.expect("ADDED").await?).to_owned());
    }
    names.sort();
    equal("the initial events", &names, &["one", "three", "two"].map(str::to_owned).to_vec())?;
    let bookmark = watch.expect("BOOKMARK").await?;
    let end = &bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"];
    ensure(*end == "true", "the annotation k8s.io/initial-events-end: \"true\"", &bookmark)?;
    let at = revision(&bookmark)?;
    ensure(at >= newest, format!("a resourceVersion of at least {newest}"), at)?;
    world.post(&path, &world.body("later", json!({}))).await?.code(201)?;
    let later = watch.expect("ADDED").await?;
    ensure(name(&later) == "later", "the live events afterwards", &later)
}

async fn watch_list_match(world: &World) -> Verdict {
    let parameters = [("watch", "true"), ("sendInitialEvents", "true"), ("allowWatchBookmarks", "true")];
    let answer = world.list(&world.widgets(), &parameters).await?;
    answer.code(422)?.reason("Invalid")?.cause("FieldValueForbidden", "resourceVersionMatch")?;
    Ok(())
}

async fn watch_core(world: &World) -> Verdict {
    let path = world.core("secrets");
    let version = version_now(world, &path).await?;
    let parameters = [("fieldSelector", "metadata.name=watched"), ("resourceVersion", version.as_str())];
    let mut watch = world.watch(&path, &parameters).await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "watched"}});
    let created = world.post(&path, &secret).await?;
    equal("the ADDED object", &watch.expect("ADDED").await?, &created.json)?;
    world.delete(&world.core("secrets/watched")).await?.code(200)?;
    watch.expect("DELETED").await?;
    Ok(())
}
