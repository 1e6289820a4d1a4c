//! Any requests sent to the simulated API server, one after another: it answers each and does not panic.
//!
//! The input is text, so that recorded requests are inputs: a line with method, path and media type, the body, and a
//! line of dashes before the next request. `corpus_of_requests` makes inputs of the recordings.
#![no_main]

use std::time::Duration;

use bytes::Bytes;
use cobalt_apiserver::ApiServer;
use http::Request;
use http_body_util::{BodyExt, Full};
use libfuzzer_sys::fuzz_target;
use tower::ServiceExt;

const DEFINITION: &str = include_str!("../../cobalt-sim/apiserver/tests/wire/crd-gadget.json");
/// Making the server takes longer than a request, so an input has several.
const REQUESTS: usize = 24;
const SEPARATOR: &[u8] = b"\n----\n";

async fn send(server: &ApiServer, method: &str, uri: &str, media: &str, body: &[u8]) -> Option<u16> {
    let request = Request::builder().method(method).uri(uri).header("content-type", media).header("accept", media);
    let request = request.body(Full::new(Bytes::copy_from_slice(body))).ok()?;
    let answer = server.service("fuzz").oneshot(request).await.ok()?;
    let status = answer.status().as_u16();
    let _ = tokio::time::timeout(Duration::from_secs(4000), answer.into_body().collect()).await;
    Some(status)
}

/// Splits at the first occurrence of `at`.
fn split<'a>(bytes: &'a [u8], at: &[u8]) -> (&'a [u8], &'a [u8]) {
    match bytes.windows(at.len()).position(|window| window == at) {
        Some(position) => (&bytes[..position], &bytes[position + at.len()..]),
        None => (bytes, &[]),
    }
}

fuzz_target!(|input: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let server = ApiServer::builder().seed(1).controller_manager().start();
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        send(&server, "POST", definitions, "application/json", DEFINITION.as_bytes()).await;
        server.settle().await;
        let mut rest = input;
        for _ in 0..REQUESTS {
            let (request, others) = split(rest, SEPARATOR);
            let (head, body) = split(request, b"\n");
            let head = String::from_utf8_lossy(head);
            let mut words = head.split(' ');
            let (method, uri) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            send(&server, method, uri, words.next().unwrap_or("application/json"), body).await;
            server.settle().await;
            if others.is_empty() {
                break;
            }
            rest = others;
        }
    });
});
