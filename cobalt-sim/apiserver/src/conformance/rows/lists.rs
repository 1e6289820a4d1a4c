//! Lists: pages, versions and selectors.

use serde_json::json;

use crate::conformance::check::{Check, Mismatch, Need::Minor, Verdict, check, ensure, equal};
use crate::conformance::exchange::{Answer, JSON};
use crate::conformance::world::World;

pub(super) const CHECKS: fn() -> Vec<Check> = || {
    vec![
        check!("list", "list: kind WidgetList, items in the order of their names, a resourceVersion", list),
        check!(
            "list-limit",
            "list limit=1: metadata.continue, remainingItemCount, list resourceVersion = current revision",
            list_limit
        ),
        check!(
            "list-pages",
            "list paging to the end: every item once, one snapshot, the last page without continue",
            list_pages
        ),
        check!("list-limit-selector", "list limit with a selector: no remainingItemCount", list_limit_selector),
        check!("list-bad-continue", "list with a rubbish continue token: 400", list_bad_continue),
        check!(
            "list-future",
            "list with future resourceVersion: 504 Timeout, cause ResourceVersionTooLarge, retryAfterSeconds 1",
            list_future
        ),
        check!("list-bad-version", "list with a garbage resourceVersion: 400", list_bad_version, needs Minor(25)),
        check!("list-all-namespaces", "list over all namespaces: items of each", list_all_namespaces),
        check!("list-no-namespace", "list in a missing namespace: 200, empty", list_no_namespace),
        check!("label-selectors", "label selectors: =, ==, !=, in, notin, exists, !exists, several", label_selectors),
        check!("label-selector-bad", "label selector that does not parse: 400", label_selector_bad),
        check!("field-selectors", "fieldSelector on metadata.name / metadata.namespace: works", field_selectors),
        check!(
            "field-selector-other",
            "fieldSelector on any other field of a CR: 400 field label not supported",
            field_selector_other
        ),
        check!(
            "field-selector-core",
            "fieldSelector on the known fields of a core kind: Pod spec.nodeName",
            field_selector_core
        ),
    ]
};

/// A namespace with widgets of these names and labels.
async fn filled(world: &World, purpose: &str, widgets: &[(&str, Option<&str>)]) -> Result<String, Mismatch> {
    let namespace = world.own_namespace(purpose).await?;
    let path = world.widgets_in(&namespace);
    for (name, zone) in widgets {
        let mut body = world.body(name, json!({}));
        if let Some(zone) = zone {
            body["metadata"]["labels"] = json!({"zone": zone});
        }
        world.post(&path, &body).await?.code(201)?;
    }
    Ok(path)
}

const FIVE: [(&str, Option<&str>); 5] =
    [("n4", Some("a")), ("n0", Some("a")), ("n1", Some("b")), ("n2", Some("a")), ("n3", Some("b"))];

async fn list(world: &World) -> Verdict {
    let path = filled(world, "list", &FIVE).await?;
    let answer = world.get(&path).await?;
    answer
        .code(200)?
        .equals("/kind", "WidgetList")?
        .equals("/apiVersion", format!("{}/v1", world.group))?
        .equals("/items/0/kind", "Widget")?;
    answer.version()?;
    answer.has_names(&["n0", "n1", "n2", "n3", "n4"])
}

async fn list_limit(world: &World) -> Verdict {
    let path = filled(world, "limit", &FIVE).await?;
    let newest = world.merge(&format!("{path}/n3"), &json!({"spec": {"num": 1}})).await?.code(200)?.revision()?;
    let answer = world.list(&path, &[("limit", "1")]).await?;
    answer.code(200)?.equals("/metadata/remainingItemCount", 4)?;
    answer.has_names(&["n0"])?;
    let token = answer.text_at("/metadata/continue")?;
    ensure(!token.is_empty(), "a continue token", &answer)?;
    // Others may write in between; older than our own last write it must not be.
    let revision = answer.revision()?;
    ensure(revision >= newest, format!("a resourceVersion of at least {newest}"), revision)
}

async fn list_pages(world: &World) -> Verdict {
    let path = filled(world, "pages", &FIVE).await?;
    let mut pages: Vec<Answer> = Vec::new();
    let mut token = String::new();
    for _ in 0..FIVE.len() {
        let page = world.list(&path, &[("limit", "2"), ("continue", &token)]).await?;
        page.code(200)?;
        token = page.at("/metadata/continue").as_str().unwrap_or_default().to_owned();
        if pages.is_empty() {
            // Neither a new nor a deleted object may show: the pages are one snapshot.
            world.post(&path, &world.body("n31", json!({}))).await?.code(201)?;
            world.delete(&format!("{path}/n4")).await?.code(200)?;
        }
        pages.push(page);
        if token.is_empty() {
            break;
        }
    }
    let names: Vec<Vec<String>> = pages.iter().map(Answer::names).collect();
    equal("the pages", &names, &vec![owned(&["n0", "n1"]), owned(&["n2", "n3"]), owned(&["n4"])])?;
    let remaining: Vec<Option<u64>> =
        pages.iter().map(|page| page.at("/metadata/remainingItemCount").as_u64()).collect();
    equal("remainingItemCount", &remaining, &vec![Some(3), Some(1), None])?;
    for page in &pages[1..] {
        equal("the resourceVersion of every page", &page.version()?, &pages[0].version()?)?;
    }
    world.get(&path).await?.has_names(&["n0", "n1", "n2", "n3", "n31"])
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn list_limit_selector(world: &World) -> Verdict {
    let path = filled(world, "limitsel", &FIVE).await?;
    let answer = world.list(&path, &[("limit", "1"), ("labelSelector", "zone=a")]).await?;
    answer.code(200)?.lacks("/metadata/remainingItemCount")?;
    answer.has_names(&["n0"])?;
    let token = answer.text_at("/metadata/continue")?;
    let rest = [("limit", "5"), ("labelSelector", "zone=a"), ("continue", token.as_str())];
    world.list(&path, &rest).await?.has_names(&["n2", "n4"])
}

async fn list_bad_continue(world: &World) -> Verdict {
    let answer = world.list(&world.widgets(), &[("limit", "1"), ("continue", "rubbish")]).await?;
    answer.code(400)?.reason("BadRequest")?.says("continue")?;
    Ok(())
}

/// A resourceVersion far beyond what the server will reach during the suite.
async fn future(world: &World) -> Result<String, Mismatch> {
    let now = world.get(&world.widgets()).await?.code(200)?.revision()?;
    Ok((now + 10_000_000).to_string())
}

async fn list_future(world: &World) -> Verdict {
    let version = future(world).await?;
    let answer = world.list(&world.widgets(), &[("resourceVersion", &version)]).await?;
    answer
        .code(504)?
        .reason("Timeout")?
        .says("Too large resource version")?
        .equals("/details/retryAfterSeconds", 1)?
        .equals("/details/causes/0/reason", "ResourceVersionTooLarge")?;
    Ok(())
}

async fn list_bad_version(world: &World) -> Verdict {
    let answer = world.list(&world.widgets(), &[("resourceVersion", "abc")]).await?;
    answer.code(400)?.reason("BadRequest")?.says("abc")?;
    Ok(())
}

async fn list_all_namespaces(world: &World) -> Verdict {
    filled(world, "all-1", &[("everywhere-1", Some("everywhere"))]).await?;
    filled(world, "all-2", &[("everywhere-2", Some("everywhere"))]).await?;
    let path = format!("/apis/{}/v1/widgets", world.group);
    world.list(&path, &[("labelSelector", "zone=everywhere")]).await?.has_names(&["everywhere-1", "everywhere-2"])
}

async fn list_no_namespace(world: &World) -> Verdict {
    let answer = world.get(&world.widgets_in(&format!("{}-nowhere", world.prefix))).await?;
    answer.code(200)?;
    answer.has_names(&[])
}

async fn label_selectors(world: &World) -> Verdict {
    let mut widgets = FIVE.to_vec();
    widgets.push(("n9", None));
    let path = filled(world, "labels", &widgets).await?;
    let table: [(&str, &[&str]); 9] = [
        ("zone=a", &["n0", "n2", "n4"]),
        ("zone==a", &["n0", "n2", "n4"]),
        ("zone!=a", &["n1", "n3", "n9"]),
        ("zone in (a,b)", &["n0", "n1", "n2", "n3", "n4"]),
        ("zone notin (a)", &["n1", "n3", "n9"]),
        ("zone", &["n0", "n1", "n2", "n3", "n4"]),
        ("!zone", &["n9"]),
        ("zone in (a,b),zone!=b", &["n0", "n2", "n4"]),
        ("nosuch=x", &[]),
    ];
    for (selector, names) in table {
        let answer = world.list(&path, &[("labelSelector", selector)]).await?;
        answer.code(200)?;
        answer.has_names(names)?;
    }
    Ok(())
}

async fn label_selector_bad(world: &World) -> Verdict {
    let answer = world.list(&world.widgets(), &[("labelSelector", "zone in a")]).await?;
    answer.code(400)?.reason("BadRequest")?;
    Ok(())
}

async fn field_selectors(world: &World) -> Verdict {
    let path = filled(world, "fields", &FIVE).await?;
    let namespace = format!("{}-fields", world.prefix);
    let here = format!("metadata.namespace={namespace}");
    let elsewhere = format!("metadata.namespace!={namespace}");
    let table: [(&str, &[&str]); 5] = [
        ("metadata.name=n1", &["n1"]),
        ("metadata.name!=n1", &["n0", "n2", "n3", "n4"]),
        ("metadata.name=n1,metadata.name!=n1", &[]),
        (&here, &["n0", "n1", "n2", "n3", "n4"]),
        (&elsewhere, &[]),
    ];
    for (selector, names) in table {
        let answer = world.list(&path, &[("fieldSelector", selector)]).await?;
        answer.code(200)?;
        answer.has_names(names)?;
    }
    Ok(())
}

async fn field_selector_other(world: &World) -> Verdict {
    let answer = world.list(&world.widgets(), &[("fieldSelector", "spec.num=1")]).await?;
    answer.code(400)?.reason("BadRequest")?.says("field label not supported: spec.num")?;
    Ok(())
}

async fn field_selector_core(world: &World) -> Verdict {
    let node = format!("{}-nowhere", world.prefix);
    for (name, bound) in [("pod-bound", true), ("pod-free", false)] {
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false},
        });
        if bound {
            pod["spec"]["nodeName"] = json!(node);
        }
        let exchange = world.request(http::Method::POST, &world.core("pods"));
        exchange.body(JSON, &pod).send().await?.code(201)?;
    }
    let bound = [("fieldSelector", format!("spec.nodeName={node}"))];
    let answer = world.list(&world.core("pods"), &[(bound[0].0, &bound[0].1)]).await?;
    answer.has_names(&["pod-bound"])?;
    let answer = world.list(&world.core("pods"), &[("fieldSelector", "spec.nosuch=x")]).await?;
    answer.code(400)?.reason("BadRequest")?;
    Ok(())
}
