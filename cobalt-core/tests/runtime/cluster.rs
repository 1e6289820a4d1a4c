//! An API server in this process, and a kind to play with.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cobalt_apiserver::ApiServer;
use cobalt_core::runtime::{client, metrics::Metrics};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, CustomResource,
    api::{Patch, PatchParams, PostParams},
    client::ClientBuilder,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Strict where its CRD is not: an object can be stored that cannot be read.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "test.cobalt", version = "v1", kind = "Widget", status = "WidgetStatus", derive = "PartialEq")]
#[serde(rename_all = "camelCase")]
pub(crate) struct WidgetSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overcommit: Option<BTreeMap<String, f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traits: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WidgetStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<WidgetCondition>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WidgetCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
}

fn crd() -> CustomResourceDefinition {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let condition = json!({"type": "object", "required": ["type", "status"],
        "properties": {"type": {"type": "string"}, "status": {"type": "string"}}});
    serde_json::from_value(json!({
        "metadata": {"name": "widgets.test.cobalt"},
        "spec": {
            "group": "test.cobalt", "scope": "Cluster",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": open,
                    "status": {"type": "object", "properties": {
                        "count": {"type": "integer"},
                        "conditions": {"type": "array", "items": condition,
                                       "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
                    }},
                }}}}],
        },
    }))
    .unwrap()
}

pub(crate) struct Cluster {
    pub server: ApiServer,
    pub admin: Client,
    pub metrics: Arc<Metrics>,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let server = ApiServer::builder().seed(1).start();
        let admin = Client::new(server.service("admin"), "default");
        let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
        crds.create(&PostParams::default(), &crd()).await.unwrap();
        server.settle().await;
        Self { server, admin, metrics: Arc::new(Metrics::new()) }
    }

    /// A client as our programs have it, under a name the server counts by.
    pub(crate) fn client(&self, name: &str) -> Client {
        ClientBuilder::new(self.server.service(name), "default")
            .with_layer(&client::limits(Duration::from_secs(20), self.metrics.clone()))
            .build()
    }

    pub(crate) fn widgets(&self, client: &str) -> Api<Widget> {
        Api::all(self.client(client))
    }

    pub(crate) async fn create(&self, name: &str, spec: Value) {
        let body: Widget = serde_json::from_value(json!({
            "apiVersion": "test.cobalt/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}))
        .unwrap();
        let params = PostParams { field_manager: Some("creator".into()), ..Default::default() };
        Api::<Widget>::all(self.admin.clone()).create(&params, &body).await.unwrap();
    }

    /// A merge patch, as the Go programs write.
    pub(crate) async fn merge(&self, name: &str, manager: &str, patch: Value) {
        let params = PatchParams { field_manager: Some(manager.into()), ..Default::default() };
        let api: Api<kube::core::DynamicObject> =
            Api::all_with(self.admin.clone(), &kube::core::ApiResource::erase::<Widget>(&()));
        if patch.get("status").is_some() {
            api.patch_status(name, &params, &Patch::Merge(&patch)).await.unwrap();
        } else {
            api.patch(name, &params, &Patch::Merge(&patch)).await.unwrap();
        }
    }

    pub(crate) async fn get(&self, name: &str) -> Widget {
        Api::all(self.admin.clone()).get(name).await.unwrap()
    }

    /// Requests this client has made.
    pub(crate) fn requests(&self, client: &str) -> u64 {
        self.server.counters().of_client(client).requests
    }
}

/// Waits until something is so; generous, because it is real time that passes for the rest of the machine.
pub(crate) async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let limit = tokio::time::Instant::now() + Duration::from_secs(600);
    while !so() {
        assert!(tokio::time::Instant::now() < limit, "not so after ten minutes: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
