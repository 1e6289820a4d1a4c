//! Any path, query and body sent to the simulated API server: it answers and does not panic.
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use bytes::Bytes;
use cobalt_apiserver::ApiServer;
use http::Request;
use http_body_util::{BodyExt, Full};
use libfuzzer_sys::fuzz_target;
use tower::ServiceExt;

const DEFINITION: &str = include_str!("../../cobalt-sim/apiserver/tests/wire/crd-gadget.json");

#[derive(Debug, Arbitrary)]
enum Media {
    Json,
    Merge,
    JsonPatch,
    Strategic,
    Apply,
}

#[derive(Debug, Arbitrary)]
enum Place {
    /// Below an object that exists.
    Gadget(String),
    Core(String),
    Anywhere(String),
}

#[derive(Debug, Arbitrary)]
struct Input {
    method: u8,
    place: Place,
    query: String,
    media: Media,
    body: Vec<u8>,
}

async fn send(server: &ApiServer, method: &str, uri: &str, media: &str, body: Vec<u8>) -> Option<u16> {
    let request = Request::builder().method(method).uri(uri).header("content-type", media);
    let request = request.body(Full::new(Bytes::from(body))).ok()?;
    let answer = server.service("fuzz").oneshot(request).await.ok()?;
    let status = answer.status().as_u16();
    let _ = tokio::time::timeout(Duration::from_secs(4000), answer.into_body().collect()).await;
    Some(status)
}

fuzz_target!(|input: Input| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let server = ApiServer::builder().seed(1).controller_manager().start();
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        send(&server, "POST", definitions, "application/json", DEFINITION.as_bytes().to_vec()).await;
        server.settle().await;
        let gadgets = "/apis/wire.test/v1/namespaces/default/gadgets";
        let gadget = br#"{"apiVersion":"wire.test/v1","kind":"Gadget","metadata":{"name":"a"},"spec":{}}"#;
        send(&server, "POST", gadgets, "application/json", gadget.to_vec()).await;
        let methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];
        let method = methods[usize::from(input.method) % methods.len()];
        let path = match &input.place {
            Place::Gadget(rest) => format!("{gadgets}/a{rest}"),
            Place::Core(rest) => format!("/api/v1/namespaces/default/{rest}"),
            Place::Anywhere(path) => format!("/{path}"),
        };
        let media = match input.media {
            Media::Json => "application/json",
            Media::Merge => "application/merge-patch+json",
            Media::JsonPatch => "application/json-patch+json",
            Media::Strategic => "application/strategic-merge-patch+json",
            Media::Apply => "application/apply-patch+yaml",
        };
        send(&server, method, &format!("{path}?{}", input.query), media, input.body).await;
        server.settle().await;
    });
});
