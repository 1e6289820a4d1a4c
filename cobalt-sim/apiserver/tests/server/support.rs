//! What the tests share.

use std::time::Duration;

use cobalt_apiserver::ApiServer;
use kube::Client;
use serde_json::{Value, json};

/// An in-process client of a server.
pub(crate) fn client(server: &ApiServer, name: &str) -> Client {
    Client::new(server.service(name), "default")
}

/// Waits for something that must happen, however slow the machine is.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    let output = tokio::time::timeout(Duration::from_secs(60), future).await;
    output.unwrap_or_else(|_| panic!("{what} did not happen"))
}

/// One request as it goes over the wire; the answer's code and JSON.
pub(crate) async fn send(server: &ApiServer, method: &str, path: &str, body: Option<(&str, Value)>) -> (u16, Value) {
    use http_body_util::{BodyExt, Full};
    use tower::ServiceExt;
    let mut request = http::Request::builder().method(method).uri(path);
    let mut bytes = Vec::new();
    if let Some((media, body)) = body {
        request = request.header("content-type", media);
        bytes = serde_json::to_vec(&body).unwrap();
    }
    let request = request.body(Full::new(bytes::Bytes::from(bytes))).unwrap();
    let response = server.service("test").oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let value = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes).into_owned()));
    (code, value)
}
