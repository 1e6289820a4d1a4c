//! Many at once, and nonsense.

use std::time::Duration;

use cobalt_apiserver::ApiServer;
use futures::future::join_all;
use http_body_util::BodyExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::custom::with_things;
use crate::support::{send, soon};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_patches_lose_nothing() {
    let server = ApiServer::start();
    let body = json!({"metadata": {"name": "a"}});
    assert_eq!(send(&server, "POST", MAPS, Some(("application/json", body))).await.0, 201);
    let patches = (0..200).map(|i| {
        let server = server.clone();
        tokio::spawn(async move {
            let patch = json!({"data": {format!("k{i}"): "v"}});
            send(&server, "PATCH", &format!("{MAPS}/a"), Some(("application/merge-patch+json", patch))).await.0
        })
    });
    assert!(join_all(patches).await.into_iter().all(|code| code.unwrap() == 200));
    let (_, read) = send(&server, "GET", &format!("{MAPS}/a"), None).await;
    assert_eq!(read["data"].as_object().unwrap().len(), 200);
}

#[tokio::test]
async fn fifty_watchers_read_the_same_bytes() {
    const OBJECTS: usize = 200;
    let server = ApiServer::start();
    let watch = || async {
        let path = format!("{MAPS}?watch=true&resourceVersion={}", server.revision());
        let request = http::Request::get(path).body(http_body_util::Empty::new()).unwrap();
        server.service("watcher").oneshot(request).await.unwrap().into_body()
    };
    let mut watches = join_all((0..50).map(|_| watch())).await;
    for i in 0..OBJECTS {
        let body = json!({"metadata": {"name": format!("c{i}")}});
        send(&server, "POST", MAPS, Some(("application/json", body))).await;
    }
    let mut seen: Vec<Vec<*const u8>> = Vec::new();
    for watch in &mut watches {
        let mut lines = Vec::new();
        while lines.len() < OBJECTS {
            let frame = soon("an event", watch.frame()).await.unwrap().unwrap();
            lines.push(frame.into_data().unwrap().as_ptr());
        }
        seen.push(lines);
    }
    // Not equal bytes: the same memory.
    assert!(seen.iter().all(|lines| *lines == seen[0]));
}

/// Any JSON, with the names the server knows strewn in.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z]{0,4}".prop_map(Value::from),
    ];
    let name = prop_oneof![
        Just("metadata"),
        Just("name"),
        Just("labels"),
        Just("finalizers"),
        Just("ownerReferences"),
        Just("managedFields"),
        Just("spec"),
        Just("status"),
        Just("taints"),
        Just("conditions"),
        Just("data"),
        Just("versions"),
        Just("names"),
        Just("uid"),
        Just("kind"),
        Just("deletionTimestamp"),
        Just("x"),
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn request() -> impl Strategy<Value = (String, String, String, Value)> {
    let path = prop_oneof![
        Just("/api/v1/namespaces"),
        Just("/api/v1/nodes"),
        Just("/api/v1/namespaces/default/pods"),
        Just("/api/v1/namespaces/default/secrets"),
        Just("/api/v1/namespaces/default/events"),
        Just("/apis/events.k8s.io/v1/namespaces/default/events"),
        Just("/apis/coordination.k8s.io/v1/namespaces/default/leases"),
        Just("/apis/policy/v1/namespaces/default/poddisruptionbudgets"),
        Just("/apis/apps/v1/namespaces/default/deployments"),
        Just("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
        Just("/apis/t.example.com/v1/things"),
        Just("/apis/authorization.k8s.io/v1/subjectaccessreviews"),
    ];
    let end = prop_oneof![
        Just(""),
        Just("/a"),
        Just("/a/status"),
        Just("/a/eviction"),
        Just("/a/binding"),
        Just("/a?fieldManager=m&force=true"),
        Just("?limit=1&continue=x"),
        Just("?fieldValidation=Strict"),
    ];
    let method = prop_oneof![Just("POST"), Just("PUT"), Just("PATCH"), Just("DELETE"), Just("GET")];
    let media = prop_oneof![
        Just("application/json"),
        Just("application/merge-patch+json"),
        Just("application/json-patch+json"),
        Just("application/strategic-merge-patch+json"),
        Just("application/apply-patch+yaml"),
    ];
    (method, path, end, media, anything()).prop_map(|(method, path, end, media, mut body)| {
        // Half-way right bodies get further.
        if let Some(map) = body.as_object_mut()
            && let Some(Value::Object(metadata)) = map.get_mut("metadata")
        {
            metadata.insert("name".to_owned(), "a".into());
        }
        (method.to_owned(), format!("{path}{end}"), media.to_owned(), body)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn nonsense_is_answered_and_the_server_lives_on(requests in prop::collection::vec(request(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let server = with_things().await;
            for (method, path, media, body) in requests {
                let (code, _) = send(&server, &method, &path, Some((&media, body))).await;
                assert!((200..=504).contains(&code));
            }
            tokio::time::timeout(Duration::from_secs(60), server.settle()).await.expect("the controllers come to rest");
            assert_eq!(send(&server, "GET", "/api/v1/namespaces/default", None).await.0, 200);
        });
    }
}
