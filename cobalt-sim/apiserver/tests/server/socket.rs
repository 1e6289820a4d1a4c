//! The same server on a TCP socket.

use cobalt_apiserver::faults::{Effect, Fault, Matcher};
use cobalt_apiserver::{ApiServer, Identity, Verb};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::support::soon;

#[tokio::test]
async fn a_kubeconfig_leads_to_the_server() {
    let server = ApiServer::builder().token("secret", Identity::admin("someone")).require_auth().start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn({
        let server = server.clone();
        async move {
            server
                .serve(listener, async {
                    let _ = stopped.await;
                })
                .await
        }
    });
    let text = server.kubeconfig_with_token(address, "secret");
    let kubeconfig: Kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    assert_eq!(client.apiserver_version().await.unwrap().major, "1");
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let mut events = Box::pin(api.watch(&WatchParams::default(), "0").await.unwrap());
    let object = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    let event = soon("event", events.try_next()).await.unwrap();
    assert!(matches!(event, Some(WatchEvent::Added(_))));
    // The token says who the client is.
    assert_eq!(server.counters().of_client("someone").writes, 1);
    stop.send(()).unwrap();
    soon("shutdown", serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn who_brings_no_token_is_nobody_where_roles_decide() {
    for (server, expected) in [(ApiServer::builder().rbac().start(), 403), (ApiServer::start(), 200)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
        let client = Client::try_from(Config::new(format!("http://{address}").parse().unwrap())).unwrap();
        let code = async |path: &str| {
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            let answer = client.request::<serde_json::Value>(request);
            match soon("the answer", answer).await {
                Ok(_) => 200,
                Err(kube::Error::Api(status)) => status.code,
                Err(other) => panic!("{other}"),
            }
        };
        // Discovery is for those the server knows; the version is for everybody.
        for (path, expected) in [("/api/v1/nodes", expected), ("/apis", expected), ("/version", 200)] {
            assert_eq!(code(path).await, expected, "{path}");
        }
    }
}

#[tokio::test]
async fn a_dropped_response_breaks_the_connection() {
    let server = ApiServer::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    server.faults().add(Fault::new(Matcher::default().verb(Verb::Create).times(1), Effect::DropResponse));
    tokio::spawn({
        let server = server.clone();
        async move { server.serve(listener, std::future::pending()).await }
    });
    let config = Config::new(format!("http://{address}").parse().unwrap());
    let api: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).unwrap());
    let object = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    let error = soon("the answer", api.create(&PostParams::default(), &object)).await.unwrap_err();
    assert!(!matches!(error, kube::Error::Api(_)), "{error}");
    assert!(api.get_opt("a").await.unwrap().is_some());
}
