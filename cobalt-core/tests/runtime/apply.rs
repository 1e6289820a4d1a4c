//! Apply-on-change against an API server: what is written, by whom, and what costs no request.

use cobalt_core::runtime::{
    Categorized,
    apply::{Applied, Applier},
    takeover::{TakeOver, compact_managed_fields},
};
use kube::{
    ResourceExt,
    api::{Api, Patch, PatchParams},
};
use serde_json::json;

use crate::cluster::{Cluster, Widget};

const OURS: &str = "cobalt-operator";

fn written(applied: Applied<Widget>) -> Widget {
    match applied {
        Applied::Written(widget) => *widget,
        Applied::Unchanged => panic!("nothing was written"),
    }
}

fn managers(widget: &Widget) -> Vec<(String, String, String)> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    widget
        .managed_fields()
        .iter()
        .map(|entry| (text(&entry.manager), text(&entry.operation), text(&entry.subresource)))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_object_costs_no_request() {
    let cluster = Cluster::start().await;
    let (api, applier) = (cluster.widgets("operator"), Applier::new(OURS, cluster.metrics.clone()));
    let spec = json!({"metadata": {"labels": {"zone": "a"}}, "spec": {"size": 3, "traits": ["A"]}});
    let status = json!({"status": {"count": 2, "conditions": [{"type": "Ready", "status": "True"}]}});

    let widget = written(applier.main(&api, "w", None, &spec).await.unwrap());
    let widget = written(applier.status(&api, &widget, &status).await.unwrap());
    assert_eq!(cluster.requests("operator"), 2);
    for _ in 0..10 {
        assert_eq!(applier.main(&api, "w", Some(&widget), &spec).await.unwrap(), Applied::Unchanged);
        assert_eq!(applier.status(&api, &widget, &status).await.unwrap(), Applied::Unchanged);
    }
    assert_eq!(cluster.requests("operator"), 2, "not one more");
    let text = cluster.metrics.encode();
    assert!(text.contains(r#"cobalt_writes_total{kind="Widget",target="status",outcome="unchanged"} 10"#), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_pruned_cache_entry_decides_the_same() {
    let cluster = Cluster::start().await;
    let (api, applier) = (cluster.widgets("operator"), Applier::new(OURS, cluster.metrics.clone()));
    let spec = json!({"spec": {"size": 3}});
    applier.main(&api, "w", None, &spec).await.unwrap();
    cluster.merge("w", "somebody", json!({"metadata": {"annotations": {"note": "x"}}})).await;
    let mut cached = cluster.get("w").await;
    compact_managed_fields(&mut cached, OURS, None);
    assert_eq!(cached.managed_fields().len(), 1);
    assert_eq!(applier.main(&api, "w", Some(&cached), &spec).await.unwrap(), Applied::Unchanged);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_longer_wanted_goes_and_what_others_own_stays() {
    let cluster = Cluster::start().await;
    let (api, applier) = (cluster.widgets("operator"), Applier::new(OURS, cluster.metrics.clone()));
    let both = json!({"spec": {"size": 3, "traits": ["A"]}});
    let widget = written(applier.main(&api, "w", None, &both).await.unwrap());
    cluster.merge("w", "cortex", json!({"spec": {"overcommit": {"cpu": 2.0}}})).await;
    let less = json!({"spec": {"size": 3}});
    let widget = written(applier.main(&api, "w", Some(&widget), &less).await.unwrap());
    assert_eq!((widget.spec.size, widget.spec.traits.clone()), (Some(3), None));
    assert_eq!(widget.spec.overcommit.as_ref().unwrap()["cpu"].to_string(), "2");
    assert_eq!(applier.main(&api, "w", Some(&widget), &less).await.unwrap(), Applied::Unchanged);
}

#[tokio::test(start_paused = true)]
async fn a_field_that_somebody_took_is_taken_back_even_at_the_wanted_value() {
    let cluster = Cluster::start().await;
    let (api, applier) = (cluster.widgets("operator"), Applier::new(OURS, cluster.metrics.clone()));
    let desired = json!({"spec": {"size": 3}});
    applier.main(&api, "w", None, &desired).await.unwrap();
    cluster.merge("w", "human", json!({"spec": {"size": 4}})).await;
    cluster.merge("w", "human", json!({"spec": {"size": 3}})).await;
    let widget = cluster.get("w").await;
    assert!(
        applier.main(&api, "w", Some(&widget), &desired).await.unwrap().is_written(),
        "the value is right, the owner is not"
    );
}

#[tokio::test(start_paused = true)]
async fn two_managers_share_the_conditions() {
    let cluster = Cluster::start().await;
    let api = cluster.widgets("operator");
    let operator = Applier::new(OURS, cluster.metrics.clone());
    let agent = Applier::new("cobalt-node-agent", cluster.metrics.clone());
    cluster.create("w", json!({})).await;
    let condition = |type_: &str, status: &str| json!({"status": {"conditions": [{"type": type_, "status": status}]}});
    operator.status(&api, &cluster.get("w").await, &condition("Ready", "True")).await.unwrap();
    agent.status(&api, &cluster.get("w").await, &condition("Libvirt", "True")).await.unwrap();
    let widget = cluster.get("w").await;
    assert_eq!(operator.status(&api, &widget, &condition("Ready", "True")).await.unwrap(), Applied::Unchanged);
    assert_eq!(operator.owned_conditions(&widget).into_iter().collect::<Vec<_>>(), ["Ready"]);
    assert_eq!(agent.owned_conditions(&widget).into_iter().collect::<Vec<_>>(), ["Libvirt"]);
    let widget = written(operator.status(&api, &widget, &condition("Ready", "False")).await.unwrap());
    assert_eq!(widget.status.unwrap().conditions.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_status_decided_on_an_old_version_is_a_conflict() {
    let cluster = Cluster::start().await;
    let (api, applier) = (cluster.widgets("operator"), Applier::new(OURS, cluster.metrics.clone()));
    cluster.create("w", json!({})).await;
    let stale = cluster.get("w").await;
    cluster.merge("w", "somebody", json!({"spec": {"size": 1}})).await;
    let status = json!({"status": {"count": 1}});
    let error = applier.status(&api, &stale, &status).await.unwrap_err();
    assert_eq!((error.category(), error.is_transient()), ("conflict", true));
    assert_eq!(error.to_string(), "apply status of Widget w: changed since it was observed");
    assert_eq!(cluster.get("w").await.status.and_then(|status| status.count), None);
    // Facts, unlike decisions, are written whatever happened in between.
    assert!(applier.status_unconditionally(&api, &stale, &status).await.unwrap().is_written());
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_missing_object_is_not_found() {
    let cluster = Cluster::start().await;
    let (api, applier) = (cluster.widgets("operator"), Applier::new(OURS, cluster.metrics.clone()));
    cluster.create("w", json!({})).await;
    let gone = cluster.get("w").await;
    Api::<Widget>::all(cluster.admin.clone()).delete("w", &kube::api::DeleteParams::default()).await.unwrap();
    let error = applier.status_unconditionally(&api, &gone, &json!({"status": {"count": 1}})).await.unwrap_err();
    assert_eq!(error.category(), "not_found");
}

#[tokio::test(start_paused = true)]
async fn fields_written_by_merge_patch_are_taken_over_once() {
    let cluster = Cluster::start().await;
    let take_over = TakeOver::from(["hypervisor", "ready", "unknown"]).except(["spec.overcommit"]);
    let applier = Applier::new(OURS, cluster.metrics.clone()).taking_over(take_over.clone());
    let api = cluster.widgets("operator");
    cluster.create("w", json!({})).await;
    cluster.merge("w", "hypervisor", json!({"spec": {"size": 3, "traits": ["OLD"]}})).await;
    cluster.merge("w", "unknown", json!({"spec": {"overcommit": {"cpu": 2.0}}})).await;
    cluster
        .merge(
            "w",
            "ready",
            json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Old", "status": "True"}]}}),
        )
        .await;
    let mut cached = cluster.get("w").await;
    compact_managed_fields(&mut cached, OURS, Some(&take_over));
    assert_eq!(applier.owned_conditions(&cached).into_iter().collect::<Vec<_>>(), ["Old", "Ready"], "about to be ours");

    // Taken over with the first write, which also removes what we do not want.
    let spec = json!({"spec": {"size": 3}});
    let widget = written(applier.main(&api, "w", Some(&cached), &spec).await.unwrap());
    assert_eq!((widget.spec.size, widget.spec.traits.clone()), (Some(3), None));
    assert_eq!(widget.spec.overcommit.as_ref().unwrap()["cpu"].to_string(), "2", "never ours");
    let mut owners = managers(&widget);
    owners.sort();
    let owner =
        |manager: &str, operation: &str, subresource: &str| (manager.into(), operation.into(), subresource.into());
    let expected = [owner(OURS, "Apply", ""), owner(OURS, "Apply", "status"), owner("unknown", "Update", "")];
    let owners: Vec<_> = owners.into_iter().filter(|(manager, ..)| manager != "creator").collect();
    assert_eq!(owners, expected);

    // The status of the earlier manager is ours too: a condition can be dropped.
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let widget = written(applier.status(&api, &widget, &status).await.unwrap());
    assert_eq!(widget.status.as_ref().unwrap().conditions.len(), 1);
    cluster.server.counters().reset();
    assert_eq!(applier.main(&api, "w", Some(&widget), &spec).await.unwrap(), Applied::Unchanged);
    assert_eq!(applier.status(&api, &widget, &status).await.unwrap(), Applied::Unchanged);
    assert_eq!(cluster.requests("operator"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_take_over_decided_on_an_old_version_is_a_conflict_and_changes_nothing() {
    let cluster = Cluster::start().await;
    let applier = Applier::new(OURS, cluster.metrics.clone()).taking_over(TakeOver::from(["ready"]));
    let api = cluster.widgets("operator");
    cluster.create("w", json!({})).await;
    cluster.merge("w", "ready", json!({"status": {"count": 1}})).await;
    let stale = cluster.get("w").await;
    cluster.merge("w", "ready", json!({"status": {"count": 2}})).await;
    let error = applier.status(&api, &stale, &json!({"status": {"count": 1}})).await.unwrap_err();
    assert!(error.is_conflict(), "{error}");
    let widget = cluster.get("w").await;
    assert_eq!(widget.status.clone().unwrap().count, Some(2));
    assert!(managers(&widget).iter().all(|(manager, ..)| manager != OURS));
}

#[tokio::test(start_paused = true)]
async fn an_apply_by_somebody_without_force_still_conflicts_with_ours() {
    let cluster = Cluster::start().await;
    let (api, applier) = (cluster.widgets("operator"), Applier::new(OURS, cluster.metrics.clone()));
    applier.main(&api, "w", None, &json!({"spec": {"size": 3}})).await.unwrap();
    let body =
        json!({"apiVersion": "test.cobalt/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 9}});
    let error = api.patch("w", &PatchParams::apply("other"), &Patch::Apply(&body)).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 409));
}

#[tokio::test(start_paused = true)]
async fn desired_fields_that_are_no_object_are_refused_without_a_request() {
    let cluster = Cluster::start().await;
    let (api, applier) = (cluster.widgets("operator"), Applier::new(OURS, cluster.metrics.clone()));
    let error = applier.main(&api, "w", None, &json!("size: 3")).await.unwrap_err();
    assert_eq!((error.category(), error.is_transient()), ("malformed", false));
    assert_eq!(cluster.requests("operator"), 0);
}
