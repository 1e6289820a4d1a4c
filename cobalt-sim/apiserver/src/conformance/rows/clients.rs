//! kube's own machinery: what programs are built from must work unchanged.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, reflector, watcher as start_watcher};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::conformance::check::{Check, Mismatch, Need::WatchList, Verdict, check, ensure, equal};
use crate::conformance::world::World;

/// For anything that must come through a watch.
const LIMIT: Duration = Duration::from_secs(45);

pub(super) const CHECKS: fn() -> Vec<Check> = || {
    vec![
        check!("kube-api", "kube Api: create, get, replace, patch, list, delete of a core kind", kube_api),
        check!(
            "kube-conflict",
            "kube Api: a stale replace is an error with code 409 and reason Conflict",
            kube_conflict
        ),
        check!("kube-lease", "kube Api: a Lease with MicroTime survives a round trip", kube_lease),
        check!("kube-watcher", "kube watcher: initial list, then live events", kube_watcher),
        check!("kube-watcher-pages", "kube watcher with small pages: the whole list", kube_watcher_pages),
        check!("kube-watcher-stream", "kube watcher with streaming lists: initial events, then live events", kube_watcher_stream, needs WatchList),
        check!("kube-reflector", "kube reflector: the store follows the server", kube_reflector),
        check!("kube-controller", "kube Controller: every object gets its status", kube_controller),
    ]
};

fn wrong(what: &str) -> impl Fn(kube::Error) -> Mismatch {
    move |error| Mismatch::new(what, format!("{error:?}"))
}

async fn kube_api(world: &World) -> Verdict {
    let api: Api<ConfigMap> = Api::namespaced(world.admin.clone(), &world.namespace);
    let data = |value: &str| Some([("k".to_owned(), value.to_owned())].into());
    let mut object = ConfigMap { data: data("1"), ..ConfigMap::default() };
    object.metadata.name = Some("kube-api".to_owned());
    let parameters = PostParams::default();
    let mut object = api.create(&parameters, &object).await.map_err(wrong("create"))?;
    object.data = data("2");
    api.replace("kube-api", &parameters, &object).await.map_err(wrong("replace"))?;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"kube": "api"}}}));
    api.patch("kube-api", &PatchParams::default(), &patch).await.map_err(wrong("patch"))?;
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"applied": "yes"}});
    let manager = PatchParams::apply("conformance");
    api.patch("kube-api", &manager, &Patch::Apply(&applied)).await.map_err(wrong("apply"))?;
    let list = api.list(&ListParams::default().labels("kube=api")).await.map_err(wrong("list"))?;
    let found: Vec<_> = list.items.into_iter().map(|item| item.data.unwrap_or_default()).collect();
    let expected = [("k".to_owned(), "2".to_owned()), ("applied".to_owned(), "yes".to_owned())].into();
    equal("the list", &found, &vec![expected])?;
    api.delete("kube-api", &DeleteParams::default()).await.map_err(wrong("delete"))?;
    let gone = api.get_opt("kube-api").await.map_err(wrong("get"))?;
    ensure(gone.is_none(), "nothing", format!("{gone:?}"))
}

async fn kube_conflict(world: &World) -> Verdict {
    let api = world.api(&world.namespace);
    world.create("kube-conflict", json!({"num": 1})).await?;
    let mut stale = api.get("kube-conflict").await.map_err(wrong("get"))?;
    world.merge(&world.widget("kube-conflict"), &json!({"spec": {"num": 2}})).await?.code(200)?;
    stale.data["spec"]["num"] = json!(3);
    match api.replace("kube-conflict", &PostParams::default(), &stale).await {
        Err(kube::Error::Api(status)) => {
            equal("the error", &(status.code, status.reason.clone()), &(409, "Conflict".to_owned()))
        }
        other => Err(Mismatch::new("an API error 409", format!("{other:?}"))),
    }
}

async fn kube_lease(world: &World) -> Verdict {
    let api: Api<Lease> = Api::namespaced(world.admin.clone(), &world.namespace);
    let time = json!("2026-01-02T03:04:05.678900Z");
    let time = serde_json::from_value(time).map_err(|error| Mismatch::new("a MicroTime", error))?;
    let spec = LeaseSpec {
        holder_identity: Some("me".to_owned()),
        lease_duration_seconds: Some(15),
        renew_time: Some(time),
        ..LeaseSpec::default()
    };
    let mut lease = Lease { spec: Some(spec.clone()), ..Lease::default() };
    lease.metadata.name = Some("kube-lease".to_owned());
    let created = api.create(&PostParams::default(), &lease).await.map_err(wrong("create"))?;
    equal("the created spec", &created.spec, &Some(spec))?;
    let mut renewed = created.clone();
    if let Some(spec) = &mut renewed.spec {
        spec.lease_transitions = Some(1);
    }
    api.replace("kube-lease", &PostParams::default(), &renewed).await.map_err(wrong("replace"))?;
    match api.replace("kube-lease", &PostParams::default(), &created).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => Err(Mismatch::new("a conflict for the second holder", format!("{other:?}"))),
    }
}

type Widget = DynamicObject;

async fn next(
    stream: &mut (impl Stream<Item = watcher::Result<Event<Widget>>> + Unpin),
) -> Result<Event<Widget>, Mismatch> {
    match tokio::time::timeout(LIMIT, stream.next()).await {
        Ok(Some(Ok(event))) => Ok(event),
        other => Err(Mismatch::new("a watcher event", format!("{other:?}"))),
    }
}

/// Runs a watcher over a namespace of three widgets through init, a change and a deletion.
async fn exercise(world: &World, purpose: &str, config: watcher::Config) -> Verdict {
    let namespace = world.own_namespace(purpose).await?;
    let path = world.widgets_in(&namespace);
    for name in ["one", "two", "three"] {
        world.post(&path, &world.body(name, json!({}))).await?.code(201)?;
    }
    let mut stream = pin!(start_watcher(world.api(&namespace), config));
    let event = next(&mut stream).await?;
    ensure(matches!(event, Event::Init), "Init", format!("{event:?}"))?;
    let mut names = BTreeSet::new();
    loop {
        match next(&mut stream).await? {
            Event::InitApply(object) => names.insert(object.name_any()),
            Event::InitDone => break,
            other => return Err(Mismatch::new("InitApply or InitDone", format!("{other:?}"))),
        };
    }
    equal("the initial objects", &names, &["one", "two", "three"].map(str::to_owned).into())?;
    world.merge(&format!("{path}/one"), &json!({"spec": {"num": 5}})).await?.code(200)?;
    match next(&mut stream).await? {
        Event::Apply(object) => equal("the changed object", &object.data["spec"]["num"], &json!(5))?,
        other => return Err(Mismatch::new("Apply", format!("{other:?}"))),
    }
    world.delete(&format!("{path}/two")).await?.code(200)?;
    match next(&mut stream).await? {
        Event::Delete(object) => equal("the deleted object", &object.name_any(), &"two".to_owned()),
        other => Err(Mismatch::new("Delete", format!("{other:?}"))),
    }
}

async fn kube_watcher(world: &World) -> Verdict {
    exercise(world, "watcher", watcher::Config::default()).await
}

async fn kube_watcher_pages(world: &World) -> Verdict {
    exercise(world, "watcherpages", watcher::Config::default().page_size(2)).await
}

async fn kube_watcher_stream(world: &World) -> Verdict {
    exercise(world, "watcherstream", watcher::Config::default().streaming_lists()).await
}

async fn kube_reflector(world: &World) -> Verdict {
    let namespace = world.own_namespace("reflector").await?;
    let path = world.widgets_in(&namespace);
    world.post(&path, &world.body("early", json!({}))).await?.code(201)?;
    let writer = reflector::store::Writer::new(world.resource());
    let store = writer.as_reader();
    let watch = start_watcher(world.api(&namespace), watcher::Config::default());
    let mut events = pin!(watch.reflect(writer));
    let names = || store.state().iter().map(|object| object.name_any()).collect::<BTreeSet<_>>();
    let mut until = async |expected: &[&str]| -> Verdict {
        let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
        while names() != expected {
            match tokio::time::timeout(LIMIT, events.try_next()).await {
                Ok(Ok(Some(_))) => {}
                other => return Err(Mismatch::new(format!("a store of {expected:?}"), format!("{other:?}"))),
            }
        }
        Ok(())
    };
    until(&["early"]).await?;
    world.post(&path, &world.body("late", json!({}))).await?.code(201)?;
    until(&["early", "late"]).await?;
    world.delete(&format!("{path}/early")).await?.code(200)?;
    until(&["late"]).await
}

async fn kube_controller(world: &World) -> Verdict {
    const OBJECTS: usize = 20;
    let namespace = world.own_namespace("controller").await?;
    let path = world.widgets_in(&namespace);
    for number in 0..OBJECTS {
        world.post(&path, &world.body(&format!("w{number}"), json!({}))).await?.code(201)?;
    }
    let api = world.api(&namespace);
    let (group, seen) = (world.group.clone(), Arc::new(api.clone()));
    let reconcile = move |object: Arc<Widget>, api: Arc<Api<Widget>>| {
        let mut body = json!({"apiVersion": format!("{group}/v1"), "kind": "Widget"});
        body["metadata"] = json!({"name": object.name_any()});
        body["status"] = json!({"phase": "Seen"});
        async move {
            let parameters = PatchParams::apply("controller").force();
            api.patch_status(&object.name_any(), &parameters, &Patch::Apply(&body)).await?;
            Ok::<_, kube::Error>(Action::await_change())
        }
    };
    let retry = |_: Arc<Widget>, _: &kube::Error, _: Arc<Api<Widget>>| Action::requeue(Duration::from_millis(100));
    let controller = Controller::new_with(api, watcher::Config::default(), world.resource());
    let mut results = pin!(controller.run(reconcile, retry, seen));
    let mut done = BTreeSet::new();
    while done.len() < OBJECTS {
        match tokio::time::timeout(LIMIT, results.next()).await {
            Ok(Some(Ok((object, _)))) => drop(done.insert(object.name)),
            other => return Err(Mismatch::new("a reconciled object", format!("{other:?}"))),
        }
    }
    let list = world.get(&path).await?;
    let items = list.at("/items").as_array().cloned().unwrap_or_default();
    let seen = items.iter().filter(|item| item["status"]["phase"] == "Seen").count();
    equal("objects with a status", &seen, &OBJECTS)
}
