//! An in-memory Kubernetes API server for tests and demonstrations.
//!
//! Clients, watchers, reflectors and controllers built on [`kube`](https://docs.rs/kube) drive it as they drive a
//! real cluster: optimistic concurrency, server-side apply with field ownership, status subresources, finalizers,
//! garbage collection, selectors, watches with bookmarks and streaming lists, custom resource definitions with
//! schemas, defaults and CEL rules, RBAC. It answers as kube-apiserver 1.35 does, down to the texts of its errors.
//!
//! # The bare minimum
//!
//! ```
//! use cobalt_apiserver::ApiServer;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::{Api, Client, api::PostParams};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::start();
//! let client = Client::new(server.service("my-controller"), "default");
//!
//! let maps: Api<ConfigMap> = Api::default_namespaced(client);
//! let map = serde_json::from_value(serde_json::json!({"metadata": {"name": "greeting"}, "data": {"hello": "world"}}))?;
//! maps.create(&PostParams::default(), &map).await?;
//! assert_eq!(maps.get("greeting").await?.metadata.generation, None);
//! assert_eq!(server.counters().of_client("my-controller").writes, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Two ways in
//!
//! [`ApiServer::service`] is a [`tower::Service`] for one named client, in the same process: no sockets, no threads,
//! no serialisation beyond the HTTP bodies. [`ApiServer::serve`] listens on a socket, for programs that bring their
//! own client; [`ApiServer::kubeconfig`] tells them where. Both lead to the same store.
//!
//! # Virtual time
//!
//! The server's [`Clock`] is a start time plus the time Tokio says has passed. Under `tokio::time::pause()`
//! timestamps, watch timeouts, bookmarks and injected delays follow the test's time; with
//! [`ServerBuilder::start_time`] and [`ServerBuilder::seed`] a run is the same every time.
//!
//! # Faults
//!
//! What a real server cannot do on request, this one can: refuse with any status code, answer late or never, cut or
//! delay watches, forget the past (410), die between a write and its answer. See [`faults`].
//!
//! ```
//! use cobalt_apiserver::faults::{Effect, Fault, Matcher};
//! use cobalt_apiserver::{ApiServer, Verb};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let server = ApiServer::start();
//! // The first two status patches of the agent run into a full server.
//! let matcher = Matcher::client("agent").verb(Verb::Patch).subresource("status").times(2);
//! server.faults().add(Fault::new(matcher, Effect::Status { code: 429, retry_after: Some(1) }));
//! # }
//! ```
//!
//! # What runs in the background
//!
//! The controllers no cluster is without: definitions are established, dependents collected, namespaces emptied.
//! They are driven by writes alone, never by polling; [`ApiServer::settle`] waits until they have nothing to do.
//! Disruption budgets are counted, so that evictions mean something. There is no scheduler, no kubelet and no workload
//! controller: pods and deployments are only stored. Webhooks and most protobuf bodies are not served.
//!
//! # Rights
//!
//! With [`ServerBuilder::rbac`] stored roles and bindings decide, and nobody grants what they do not hold. Of the roles
//! a cluster starts with there is only `cluster-admin`, which is known without being stored; `aggregationRule` does
//! nothing. Validating admission policies are asked about writes and deletions, and about bindings, evictions and
//! requests for tokens.
//!
//! # kubectl
//!
//! Discovery (plain and aggregated), tables with the printer columns of definitions, and the `OpenAPI` documents of both
//! generations are there, so that kubectl works on the socket: old ones and current ones.
//!
//! # Modules for other uses
//!
//! [`schema`], [`apply`], [`patch`] and [`types`] are pure functions on JSON values and useful without a server.

mod admission;
mod aggregated;
pub mod apply;
mod auth;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod controllers;
mod convert;
mod counters;
mod crd;
mod discovery;
pub mod faults;
mod http;
mod kinds;
mod meta;
mod names;
mod openapi;
pub mod patch;
mod registry;
pub mod schema;
mod selectors;
mod server;
mod status;
mod store;
mod strategy;
mod table;
pub mod types;
mod verbs;
mod watch;

pub use auth::{Identity, MASTERS};
pub use clock::Clock;
pub use counters::{CounterKey, Counters, Counts};
pub use http::{ApiService, Cut, ResponseBody, ServiceError};
pub use server::{ApiServer, ServerBuilder};
pub use status::{ApiError, StatusCause};
pub use verbs::Verb;
