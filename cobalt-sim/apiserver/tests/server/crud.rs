//! Create, read, update, patch, delete.

use cobalt_apiserver::ApiServer;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::support::client;

fn config(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": "v"}})).unwrap()
}

#[tokio::test]
async fn an_object_lives_through_its_verbs() {
    let server = ApiServer::start();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server, "c"));
    let created = api.create(&PostParams::default(), &config("a")).await.unwrap();
    assert!(created.metadata.uid.is_some());
    let mut read = api.get("a").await.unwrap();
    assert_eq!(read.metadata.resource_version, created.metadata.resource_version);
    read.data.get_or_insert_default().insert("k".into(), "w".into());
    let replaced = api.replace("a", &PostParams::default(), &read).await.unwrap();
    assert_ne!(replaced.metadata.resource_version, created.metadata.resource_version);
    let stale = api.replace("a", &PostParams::default(), &read).await.unwrap_err();
    assert!(matches!(stale, kube::Error::Api(s) if s.code == 409 && s.reason == "Conflict"));
    let patch = json!({"data": {"x": "y"}});
    let patched = api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(patched.data.unwrap().len(), 2);
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);
    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn the_usual_namespaces_are_there() {
    let server = ApiServer::start();
    let api: Api<Namespace> = Api::all(client(&server, "c"));
    let names: Vec<_> = api.list(&ListParams::default()).await.unwrap().items;
    let names: Vec<_> = names.into_iter().map(|n| n.metadata.name.unwrap()).collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
}
