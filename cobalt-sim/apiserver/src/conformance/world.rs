//! What the checks share: the namespace, the CRD `widgets`, and short ways to speak about them.

use std::time::Duration;

use http::Method;
use kube::Client;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use super::check::{Mismatch, Need};
use super::exchange::{APPLY, Answer, Exchange, JSON, MERGE, with_query};
use super::target::{Capabilities, Identity, Target};
use super::watching::RawWatch;

/// How long to wait for what a server does in the background: CRDs, garbage collection, informers.
const BACKGROUND_LIMIT: Duration = Duration::from_secs(60);

/// A pause between two looks at something that has no event to wait for.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(crate) struct World {
    pub(crate) admin: Client,
    pub(crate) unprivileged: Option<Identity>,
    pub(crate) unknown_token: Option<Client>,
    capabilities: Capabilities,
    pub(crate) prefix: String,
    /// The API group of `widgets`.
    pub(crate) group: String,
    /// The namespace of the checks that do not need one of their own.
    pub(crate) namespace: String,
}

impl World {
    /// Creates the namespace and registers the CRD, and waits until it is served.
    pub(crate) async fn prepare(target: &Target) -> Result<World, Mismatch> {
        let world = World {
            admin: target.admin.clone(),
            unprivileged: target.unprivileged.clone(),
            unknown_token: target.unknown_token.clone(),
            capabilities: target.capabilities,
            prefix: target.prefix.clone(),
            group: format!("{}.example.com", target.prefix),
            namespace: target.prefix.clone(),
        };
        world.create_namespace(&world.namespace).await?;
        let crd = crd(&world.group, "widgets", "Widget", world.capabilities.cel);
        world.post(CRDS, &crd).await?.code(201)?;
        world.until_served(&world.widgets()).await?;
        Ok(world)
    }

    /// Best effort: a server that fails here has failed a check before.
    pub(crate) async fn clean_up(&self) {
        let crd = format!("{CRDS}/widgets.{}", self.group);
        let namespaces = self.get("/api/v1/namespaces").await.map(|list| list.names()).unwrap_or_default();
        let ours = format!("{}-", self.prefix);
        let namespaces = namespaces.iter().filter(|name| **name == self.namespace || name.starts_with(&ours));
        for path in namespaces.map(|name| format!("/api/v1/namespaces/{name}")).chain([crd]) {
            if let Err(problem) = self.delete(&path).await {
                tracing::warn!(path, actual = problem.actual, "the conformance suite could not clean up");
            }
        }
    }

    /// The reason to skip, when the server has not what the check needs.
    pub(crate) fn lacks(&self, need: Need) -> Option<String> {
        let Capabilities { minor, garbage_collection, watch_list, cel } = self.capabilities;
        let (there, reason) = match need {
            Need::GarbageCollection => (garbage_collection, "no garbage collector is running".to_owned()),
            Need::WatchList => (watch_list, format!("version 1.{minor} does not serve streaming lists by default")),
            Need::Cel => (cel, format!("version 1.{minor} has no CEL rules in CRDs")),
            Need::Minor(wanted) => {
                (minor >= wanted, format!("servers before 1.{wanted} are known to differ, this is 1.{minor}"))
            }
            Need::Unprivileged => (self.unprivileged.is_some(), "no identity without rights was given".to_owned()),
            Need::UnknownToken => {
                (self.unknown_token.is_some(), "no client with an unknown token was given".to_owned())
            }
        };
        (!there).then_some(reason)
    }

    // Paths

    pub(crate) fn widgets(&self) -> String {
        self.widgets_in(&self.namespace)
    }

    pub(crate) fn widgets_in(&self, namespace: &str) -> String {
        format!("/apis/{}/v1/namespaces/{namespace}/widgets", self.group)
    }

    pub(crate) fn widget(&self, name: &str) -> String {
        format!("{}/{name}", self.widgets())
    }

    pub(crate) fn status(&self, name: &str) -> String {
        format!("{}/{name}/status", self.widgets())
    }

    pub(crate) fn core(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.namespace)
    }

    // Objects

    /// A widget with this spec; `spec` may be `null` for none.
    pub(crate) fn body(&self, name: &str, spec: Value) -> Value {
        let mut body = json!({
            "apiVersion": format!("{}/v1", self.group),
            "kind": "Widget",
            "metadata": {"name": name},
        });
        if !spec.is_null() {
            body["spec"] = spec;
        }
        body
    }

    /// A status apply body with these conditions, given as `(type, status)`.
    pub(crate) fn conditions(&self, name: &str, conditions: &[(&str, &str)]) -> Value {
        let mut body = self.body(name, Value::Null);
        let item = |(kind, status): &(&str, &str)| json!({"type": kind, "status": status, "reason": "R"});
        body["status"] = json!({"conditions": conditions.iter().map(item).collect::<Vec<_>>()});
        body
    }

    pub(crate) fn resource(&self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&self.group, "v1", "Widget"), "widgets")
    }

    /// kube's typed API over the widgets of a namespace.
    pub(crate) fn api(&self, namespace: &str) -> kube::Api<DynamicObject> {
        kube::Api::namespaced_with(self.admin.clone(), namespace, &self.resource())
    }

    pub(crate) async fn create_namespace(&self, name: &str) -> Result<(), Mismatch> {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.post("/api/v1/namespaces", &body).await?.code(201)?;
        Ok(())
    }

    /// A namespace for one check alone.
    pub(crate) async fn own_namespace(&self, purpose: &str) -> Result<String, Mismatch> {
        let name = format!("{}-{purpose}", self.prefix);
        self.create_namespace(&name).await?;
        Ok(name)
    }

    /// Creates a widget in the common namespace.
    pub(crate) async fn create(&self, name: &str, spec: Value) -> Result<Answer, Mismatch> {
        let answer = self.post(&self.widgets(), &self.body(name, spec)).await?;
        answer.code(201)?;
        Ok(answer)
    }

    // Requests as the admin

    pub(crate) fn request(&self, method: Method, path: &str) -> Exchange<'_> {
        Exchange::new(&self.admin, method, path)
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Answer, Mismatch> {
        self.request(Method::GET, path).send().await
    }

    pub(crate) async fn list(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Answer, Mismatch> {
        self.get(&with_query(path, parameters)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Answer, Mismatch> {
        self.request(Method::POST, path).body(JSON, body).send().await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Answer, Mismatch> {
        self.request(Method::PUT, path).body(JSON, body).send().await
    }

    pub(crate) async fn patch(&self, path: &str, media_type: &'static str, body: &Value) -> Result<Answer, Mismatch> {
        self.request(Method::PATCH, path).body(media_type, body).send().await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Result<Answer, Mismatch> {
        self.patch(path, MERGE, body).await
    }

    pub(crate) async fn apply(&self, path: &str, manager: &str, body: &Value) -> Result<Answer, Mismatch> {
        self.patch(&with_query(path, &[("fieldManager", manager)]), APPLY, body).await
    }

    pub(crate) async fn force(&self, path: &str, manager: &str, body: &Value) -> Result<Answer, Mismatch> {
        self.patch(&with_query(path, &[("fieldManager", manager), ("force", "true")]), APPLY, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<Answer, Mismatch> {
        self.request(Method::DELETE, path).send().await
    }

    pub(crate) async fn delete_with(&self, path: &str, options: &Value) -> Result<Answer, Mismatch> {
        self.request(Method::DELETE, path).body(JSON, options).send().await
    }

    pub(crate) async fn watch(&self, path: &str, parameters: &[(&str, &str)]) -> Result<RawWatch, Mismatch> {
        let mut all = vec![("watch", "true")];
        all.extend_from_slice(parameters);
        RawWatch::open(self.request(Method::GET, &with_query(path, &all))).await
    }

    /// Watches one widget from now on.
    pub(crate) async fn watch_one(&self, name: &str) -> Result<RawWatch, Mismatch> {
        let version = self.get(&self.widgets()).await?.code(200)?.version()?;
        let field = format!("metadata.name={name}");
        self.watch(&self.widgets(), &[("resourceVersion", &version), ("fieldSelector", &field)]).await
    }

    // Waits

    /// Asks until the answer has this code; for what the server does in the background.
    pub(crate) async fn until_code(&self, path: &str, code: u16) -> Result<Answer, Mismatch> {
        self.until(path, &format!("{code}"), |answer| answer.code == code).await
    }

    /// Asks until the answer is as wanted.
    pub(crate) async fn until(
        &self,
        path: &str,
        wanted: &str,
        satisfied: impl Fn(&Answer) -> bool,
    ) -> Result<Answer, Mismatch> {
        let deadline = tokio::time::Instant::now() + BACKGROUND_LIMIT;
        loop {
            let answer = self.get(path).await?;
            if satisfied(&answer) {
                return Ok(answer);
            }
            if tokio::time::Instant::now() > deadline {
                let seconds = BACKGROUND_LIMIT.as_secs();
                return Err(Mismatch::new(format!("GET {path}: {wanted} within {seconds} s"), answer));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// `Established` comes before the resource is served: the first list is retried.
    pub(crate) async fn until_served(&self, collection: &str) -> Result<(), Mismatch> {
        self.until_code(collection, 200).await.map(drop)
    }
}

/// The CRD of the suite: defaults, an enum, a map list of conditions, a status subresource and, where the
/// server knows them, CEL rules.
pub(crate) fn crd(group: &str, plural: &str, kind: &str, cel: bool) -> Value {
    let mut spec = json!({
        "type": "object",
        "properties": {
            "num": {"type": "integer", "minimum": 0},
            "text": {"type": "string", "maxLength": 20},
            "mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow"},
            "nested": {
                "type": "object",
                "default": {},
                "properties": {"depth": {"type": "integer", "default": 3}, "note": {"type": "string"}},
            },
            "tags": {"type": "array", "items": {"type": "string"}},
            "fixed": {"type": "string"},
            "range": {
                "type": "object",
                "properties": {"low": {"type": "integer"}, "high": {"type": "integer"}},
            },
        },
    });
    if cel {
        spec["properties"]["fixed"]["x-kubernetes-validations"] =
            json!([{"rule": "self == oldSelf", "message": "Value is immutable"}]);
        spec["properties"]["range"]["x-kubernetes-validations"] = json!([{
            "rule": "!has(self.low) || !has(self.high) || self.low <= self.high",
            "message": "low must not exceed high",
        }]);
    }
    let condition = json!({
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            "type": {"type": "string"},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string"},
            "message": {"type": "string"},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
        },
    });
    let status = json!({
        "type": "object",
        "properties": {
            "phase": {"type": "string"},
            "count": {"type": "integer"},
            "conditions": {
                "type": "array",
                "items": condition,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "plural": plural,
                "singular": kind.to_lowercase(),
                "kind": kind,
                "listKind": format!("{kind}List"),
            },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": spec, "status": status},
                }},
            }],
        },
    })
}
