//! Clouds in trouble.

use std::time::{Duration, Instant};

use cobalt_core::{Error, ids::InstanceId, nova::BlockMigration};
use cobalt_openstack::{
    HttpError, NovaClient, OpenStack, Options,
    testing::{Reply, ScriptedCloud},
};

use super::{chain, connected, counter, quick};

const AGGREGATES: &str = "/compute/v2.1/os-aggregates";
const ACTION: &str = "/compute/v2.1/servers/s1/action";

fn nothing() -> Reply {
    Reply::json(r#"{"aggregates": []}"#)
}

#[tokio::test]
async fn a_wish_to_wait_is_respected_by_everybody() {
    let (cloud, nova, _) = connected(quick()).await;
    cloud.on("GET", AGGREGATES, [Reply::status(429).header("retry-after", "1"), nothing()]);
    cloud.on("GET", "/compute/v2.1/os-services", [Reply::json(r#"{"services": []}"#)]);
    let started = Instant::now();
    let first = tokio::spawn({
        let nova = nova.clone();
        async move { nova.aggregates().await }
    });
    while cloud.requests(AGGREGATES).is_empty() {
        tokio::task::yield_now().await;
    }
    // Our own answer to it has to arrive first.
    tokio::time::sleep(Duration::from_millis(300)).await;
    nova.services().await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1), "another call did not wait: {:?}", started.elapsed());
    first.await.unwrap().unwrap();
    assert_eq!(cloud.requests(AGGREGATES).len(), 2);
}

#[tokio::test]
async fn a_wish_for_a_long_wait_is_handed_on() {
    let (cloud, nova, _) = connected(quick()).await;
    cloud.on("GET", AGGREGATES, [Reply::status(503).header("retry-after", "3600")]);
    let error = nova.aggregates().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { retry_after: Some(wish), .. } if wish.as_secs() == 3600), "{error:?}");
    assert_eq!(cloud.requests(AGGREGATES).len(), 1);
}

#[tokio::test]
async fn a_read_is_tried_again_and_not_for_ever() {
    let (cloud, nova, _) = connected(quick()).await;
    cloud.on("GET", AGGREGATES, [Reply::status(503), Reply::status(502), Reply::cut(), nothing()]);
    nova.aggregates().await.unwrap();
    cloud.on("GET", AGGREGATES, [Reply::status(503)]);
    let before = cloud.requests(AGGREGATES).len();
    assert_eq!(nova.aggregates().await.unwrap_err().category(), "unavailable");
    assert_eq!(cloud.requests(AGGREGATES).len() - before, 4);
}

#[tokio::test]
async fn a_write_that_may_have_been_done_is_not_done_twice() {
    let (cloud, nova, _) = connected(quick()).await;
    let server = InstanceId::from("s1");
    for reply in [Reply::status(503), Reply::status(504), Reply::cut(), Reply::error(500, "oops")] {
        let before = cloud.requests(ACTION).len();
        cloud.on("POST", ACTION, [reply]);
        let error = nova.live_migrate(&server, None, BlockMigration::Auto).await.unwrap_err();
        assert_eq!(error.category(), "unavailable", "{error:?}");
        assert_eq!(cloud.requests(ACTION).len() - before, 1);
    }
    cloud.on("POST", ACTION, [Reply::status(429).header("retry-after", "0"), Reply::status(202)]);
    nova.live_migrate(&server, None, BlockMigration::Auto).await.unwrap();
}

#[tokio::test]
async fn silence_is_a_timeout_that_names_the_call() {
    let options = Options {
        attempt_timeout: Duration::from_millis(200),
        call_timeout: Duration::from_millis(500),
        attempts: 2,
        ..quick()
    };
    let cloud = ScriptedCloud::start().await.unwrap();
    let openstack = OpenStack::connect(&cloud.cloud()).await.unwrap();
    drop(openstack);
    cloud.on("GET", AGGREGATES, [nothing().after(Duration::from_secs(3600))]);
    let openstack = OpenStack::lazy(&cloud.cloud(), options, None).unwrap();
    let error = openstack.nova().aggregates().await.unwrap_err();
    assert_eq!(error.category(), "timeout");
    assert!(error.to_string().contains("aggregates") || error.to_string().contains("Keystone"), "{error}");
}

#[tokio::test]
async fn a_body_without_end_is_given_up_at_the_limit() {
    let (cloud, nova, _) = connected(Options { max_body: 100_000, ..quick() }).await;
    cloud.on("GET", AGGREGATES, [Reply::endless()]);
    let error = nova.aggregates().await.unwrap_err();
    assert_eq!(error.to_string(), "list aggregates: malformed answer: the body is larger than 100000 bytes");
    cloud.on("GET", AGGREGATES, [Reply::json(" ".repeat(100_001))]);
    assert_eq!(nova.aggregates().await.unwrap_err().category(), "malformed", "announced, and not read at all");
}

#[tokio::test]
async fn nonsense_is_malformed_with_a_place() {
    let (cloud, nova, _) = connected(quick()).await;
    for body in ["", "<html>", "[]", r#"{"aggregates": [{"id": {}}]}"#, "\u{0}"] {
        cloud.on("GET", AGGREGATES, [Reply::json(body)]);
        let error = nova.aggregates().await.unwrap_err();
        assert_eq!(error.category(), "malformed");
        assert!(error.to_string().contains("line 1"), "{error}");
        assert!(chain(&error).contains(": 200 (req-"), "which answer that was: {}", chain(&error));
    }
}

#[tokio::test]
async fn a_redirect_does_not_carry_the_token_away() {
    let (cloud, nova, _) = connected(quick()).await;
    let elsewhere = ScriptedCloud::start().await.unwrap();
    let target = format!("http://{}/compute/v2.1/os-aggregates", elsewhere.address());
    cloud.on("GET", AGGREGATES, [Reply::status(302).header("location", &target)]);
    assert_eq!(nova.aggregates().await.unwrap_err().category(), "refused");
    assert!(elsewhere.requests(AGGREGATES).is_empty());
}

#[tokio::test]
async fn an_error_carries_the_services_words_and_its_request_id() {
    let (cloud, nova, _) = connected(quick()).await;
    cloud.on("POST", ACTION, [Reply::error(409, "it moves").header("x-openstack-request-id", "req-4711")]);
    let error = nova.cold_migrate(&InstanceId::from("s1"), None).await.unwrap_err();
    assert_eq!(error.to_string(), "cold-migrate server s1: conflict: it moves");
    assert!(chain(&error).ends_with("409 it moves (req-4711)"));
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<HttpError>()).unwrap();
    assert_eq!((source.status.as_u16(), source.request_id.as_deref()), (409, Some("req-4711")));
}

#[tokio::test]
async fn a_microversion_that_the_cloud_lacks_is_unsupported() {
    let (cloud, nova, _) = connected(quick()).await;
    cloud.on("POST", ACTION, [Reply::error(406, "Version 2.95 is not supported by the API.")]);
    let error = nova.cold_migrate(&InstanceId::from("s1"), None).await.unwrap_err();
    assert_eq!(error.to_string(), "cold-migrate server s1: not supported by this Nova");
    assert!(chain(&error).ends_with("406 Version 2.95 is not supported by the API. (req-2)"), "{}", chain(&error));
}

#[tokio::test]
async fn no_more_requests_are_on_their_way_than_allowed_and_the_rate_holds() {
    let (cloud, nova, _) = connected(Options { rate: 20.0, burst: 2, concurrency: 1, ..quick() }).await;
    cloud.on("GET", AGGREGATES, [nothing()]);
    let started = Instant::now();
    let calls = (0..6).map(|_| {
        let nova = nova.clone();
        tokio::spawn(async move { nova.aggregates().await.unwrap() })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    // Two at once, and the other four at fifty milliseconds each.
    assert!(started.elapsed() >= Duration::from_millis(195), "{:?}", started.elapsed());
}

#[tokio::test]
async fn two_logins_side_by_side_share_the_wish_to_wait() {
    let cloud = ScriptedCloud::start().await.unwrap();
    let longest_wait = Duration::from_secs(120);
    let options = Options { longest_wait, call_timeout: Duration::from_secs(30), ..quick() };
    let first = OpenStack::connect_with(&cloud.cloud(), options, None).await.unwrap();
    let second = first.beside(&cloud.cloud(), None).unwrap();
    cloud.on("GET", AGGREGATES, [Reply::status(429).header("retry-after", "60"), nothing()]);
    // Its wish is longer than our call may take, and counts all the same.
    first.nova().aggregates().await.unwrap_err();
    let error = second.nova().aggregates().await.unwrap_err();
    assert!(chain(&error).contains("the cloud asked for a pause"), "{}", chain(&error));
    assert_eq!(cloud.requests(AGGREGATES).len(), 1);
}

#[tokio::test]
async fn every_call_is_reported_with_its_outcome() {
    let cloud = ScriptedCloud::start().await.unwrap();
    let (records, observer) = counter();
    let openstack = OpenStack::connect_with(&cloud.cloud(), quick(), Some(observer)).await.unwrap();
    cloud.on("GET", AGGREGATES, [Reply::status(503), nothing()]);
    openstack.nova().aggregates().await.unwrap();
    openstack.nova().server(&InstanceId::from("nobody")).await.unwrap_err();
    let records: Vec<_> = records
        .lock()
        .unwrap()
        .iter()
        .map(|record| (record.service, record.call, record.outcome, record.attempts))
        .collect();
    assert_eq!(records, [("compute", "aggregates", "ok", 2), ("compute", "server", "not_found", 1)]);
}
