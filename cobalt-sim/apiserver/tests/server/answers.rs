//! The media types of answers.

use bytes::Bytes;
use cobalt_apiserver::ApiServer;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::send;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Code, media type and body of an answer in a form the client chose.
async fn ask(server: &ApiServer, accept: &str, method: &str, path: &str, body: &str) -> (u16, String, String) {
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("accept", accept).header("content-type", "application/yaml");
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
    let response = server.service("test").oneshot(request).await.unwrap();
    let (code, media) = (response.status().as_u16(), response.headers()["content-type"].to_str().unwrap().to_owned());
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, media, String::from_utf8(bytes.to_vec()).unwrap())
}

fn parsed(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[tokio::test]
async fn who_asks_for_yaml_gets_yaml() {
    let server = ApiServer::start();
    let yaml = "application/yaml";
    let map =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  lines: |\n    a\n    b\n  number: \"1\"\n";
    let (code, media, created) = ask(&server, yaml, "POST", MAPS, map).await;
    assert_eq!((code, media.as_str()), (201, yaml));
    assert!(
        created.starts_with("apiVersion: v1\ndata:\n  lines: |\n    a\n    b\n  number: \"1\"\nkind: ConfigMap\n"),
        "{created}"
    );
    let plain = send(&server, "GET", &format!("{MAPS}/m"), None).await.1;
    assert_eq!(parsed(&created), plain);
    let (code, media, list) = ask(&server, yaml, "GET", MAPS, "").await;
    assert_eq!((code, media.as_str()), (200, yaml));
    assert_eq!(parsed(&list), send(&server, "GET", MAPS, None).await.1);
    let (code, media, missing) = ask(&server, yaml, "GET", &format!("{MAPS}/nosuch"), "").await;
    assert_eq!((code, media.as_str()), (404, yaml));
    assert_eq!(parsed(&missing)["reason"], "NotFound");
    let table = "application/yaml;as=Table;g=meta.k8s.io;v=v1";
    assert_eq!(parsed(&ask(&server, table, "GET", MAPS, "").await.2)["kind"], "Table");
}

#[tokio::test]
async fn the_first_media_type_that_can_be_had_is_sent() {
    let server = ApiServer::start();
    for (accept, code, expected) in [
        ("application/vnd.kubernetes.protobuf,application/yaml,application/json", 200, "application/yaml"),
        ("application/json,application/yaml", 200, "application/json"),
        ("text/html", 406, "application/json"),
    ] {
        let (got, media, _) = ask(&server, accept, "GET", MAPS, "").await;
        assert_eq!((got, media.as_str()), (code, expected), "{accept}");
    }
    // A stream of documents has no form in YAML.
    let watch = format!("{MAPS}?watch=true&timeoutSeconds=1");
    assert_eq!(ask(&server, "application/yaml", "GET", &watch, "").await.0, 406);
    assert_eq!(json!(ask(&server, "application/yaml", "GET", "/version", "").await.1), "application/json");
}
