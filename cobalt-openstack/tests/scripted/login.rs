//! Logging in, and staying in.

use std::time::Duration;

use cobalt_openstack::{
    Cloud, NovaClient, OpenStack, Options, PlacementClient,
    testing::{Reply, ScriptedCloud},
};
use serde_json::{Value, json};

use super::{chain, connected, quick};

const AGGREGATES: &str = "/compute/v2.1/os-aggregates";

/// So much later, as far as our own clock goes.
async fn forward(by: Duration) {
    tokio::time::pause();
    tokio::time::advance(by).await;
    tokio::time::resume();
}

fn nothing() -> Reply {
    Reply::json(r#"{"aggregates": []}"#)
}

#[tokio::test]
async fn a_token_that_is_revoked_in_mid_life_is_replaced_and_the_call_repeated() {
    let (cloud, nova, _) = connected(quick()).await;
    cloud.on("GET", AGGREGATES, [nothing()]);
    nova.aggregates().await.unwrap();
    cloud.revoke_tokens();
    nova.aggregates().await.unwrap();
    assert_eq!(cloud.logins(), 2);
    let tokens: Vec<String> =
        cloud.requests(AGGREGATES).iter().map(|seen| seen.header("x-auth-token").to_owned()).collect();
    assert_eq!(tokens, ["token-1", "token-1", "token-2"]);
}

#[tokio::test]
async fn many_calls_with_a_revoked_token_log_in_once() {
    let (cloud, nova, placement) = connected(quick()).await;
    cloud.on("GET", AGGREGATES, [nothing()]);
    cloud.on("GET", "/placement/resource_providers", [Reply::json(r#"{"resource_providers": []}"#)]);
    cloud.revoke_tokens();
    let calls = (0..20).map(|_| {
        let (nova, placement) = (nova.clone(), placement.clone());
        tokio::spawn(async move {
            nova.aggregates().await.unwrap();
            placement.providers().await.unwrap();
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    assert_eq!(cloud.logins(), 2);
}

#[tokio::test]
async fn a_cloud_that_rejects_every_token_is_a_denial_and_not_a_loop() {
    let (cloud, nova, _) = connected(quick()).await;
    cloud.on("GET", AGGREGATES, [Reply::error(401, "no")]);
    let error = nova.aggregates().await.unwrap_err();
    assert_eq!(error.category(), "denied");
    assert_eq!(cloud.logins(), 3);
    assert_eq!(cloud.requests(AGGREGATES).len(), 3);
}

#[tokio::test]
async fn a_token_made_in_the_second_of_a_revocation_is_replaced_too() {
    let (cloud, nova, _) = connected(quick()).await;
    cloud.on("GET", AGGREGATES, [Reply::error(401, "revoked"), Reply::error(401, "so is this"), nothing()]);
    nova.aggregates().await.unwrap();
    assert_eq!(cloud.logins(), 3);
}

#[tokio::test]
async fn a_token_is_renewed_before_it_ends() {
    let cloud = ScriptedCloud::start().await.unwrap();
    // Its last tenth begins at once.
    cloud.set_token_life(Duration::ZERO);
    cloud.on("GET", AGGREGATES, [nothing()]);
    let openstack = OpenStack::connect_with(&cloud.cloud(), quick(), None).await.unwrap();
    openstack.nova().aggregates().await.unwrap();
    assert_eq!(cloud.logins(), 2);
    cloud.set_token_life(Duration::from_secs(3600));
    openstack.nova().aggregates().await.unwrap();
    openstack.nova().aggregates().await.unwrap();
    assert_eq!(cloud.logins(), 3);
}

#[tokio::test]
async fn wrong_credentials_are_told_once_with_keystones_words() {
    let cloud = ScriptedCloud::start().await.unwrap();
    cloud.fail_logins([Reply::error(401, "The request you have made requires authentication.")]);
    let error = OpenStack::connect_with(&cloud.cloud(), quick(), None).await.unwrap_err();
    assert_eq!(error.category(), "denied");
    assert!(!error.is_transient());
    let text = chain(&error);
    assert!(text.starts_with("cannot log in: log in to Keystone: permission denied: 401 The request"), "{text}");
    assert!(text.contains("(req-1)") && !text.contains("secret"), "{text}");
}

#[tokio::test]
async fn a_refused_login_is_not_repeated_by_the_next_calls() {
    let cloud = ScriptedCloud::start().await.unwrap();
    cloud.fail_logins((0..10).map(|_| Reply::error(401, "Account is locked soon.")));
    let openstack = OpenStack::lazy(&cloud.cloud(), quick(), None).unwrap();
    openstack.nova().aggregates().await.unwrap_err();
    for _ in 0..5 {
        let error = openstack.nova().aggregates().await.unwrap_err();
        assert_eq!(error.category(), "denied");
        assert!(chain(&error).ends_with("s: 401 Account is locked soon. (req-1)"), "{}", chain(&error));
    }
    assert_eq!(cloud.requests("/identity/v3/auth/tokens").len(), 1);
    // Some time later it is tried again.
    forward(Duration::from_secs(31)).await;
    openstack.nova().aggregates().await.unwrap_err();
    assert_eq!(cloud.requests("/identity/v3/auth/tokens").len(), 2);
}

#[tokio::test]
async fn a_keystone_that_hangs_costs_nothing_while_the_token_is_good() {
    let cloud = ScriptedCloud::start().await.unwrap();
    cloud.on("GET", AGGREGATES, [nothing()]);
    let limit = Duration::from_millis(600);
    let openstack =
        OpenStack::connect_with(&cloud.cloud(), Options { call_timeout: limit, ..quick() }, None).await.unwrap();
    // Its last tenth begins.
    forward(Duration::from_secs(3500)).await;
    cloud.fail_logins((0..10).map(|_| Reply::status(503).after(Duration::from_secs(3600))));
    for _ in 0..5 {
        openstack.nova().aggregates().await.unwrap();
    }
    let logins = || cloud.requests("/identity/v3/auth/tokens").len();
    assert_eq!(logins(), 2, "one try, and no other for a while");
    forward(Duration::from_secs(16)).await;
    openstack.nova().aggregates().await.unwrap();
    assert_eq!(logins(), 3);
    // When it has ended there is no way around Keystone.
    forward(Duration::from_secs(3600)).await;
    assert_eq!(openstack.nova().aggregates().await.unwrap_err().category(), "timeout");
}

#[tokio::test]
async fn a_token_that_is_good_is_used_while_its_renewal_is_refused() {
    let (cloud, nova, _) = connected(quick()).await;
    cloud.on("GET", AGGREGATES, [nothing()]);
    forward(Duration::from_secs(3500)).await;
    cloud.fail_logins([Reply::error(401, "no")]);
    nova.aggregates().await.unwrap();
    nova.aggregates().await.unwrap();
    assert_eq!((cloud.requests("/identity/v3/auth/tokens").len(), cloud.logins()), (2, 1));
}

#[tokio::test]
async fn a_keystone_that_is_busy_is_asked_again() {
    let cloud = ScriptedCloud::start().await.unwrap();
    cloud.fail_logins([Reply::status(503), Reply::status(429).header("retry-after", "0")]);
    OpenStack::connect_with(&cloud.cloud(), quick(), None).await.unwrap();
    assert_eq!(cloud.logins(), 1);
    cloud.fail_logins((0..10).map(|_| Reply::status(503)));
    let error = OpenStack::connect_with(&cloud.cloud(), quick(), None).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
}

#[tokio::test]
async fn nonsense_instead_of_a_token_is_malformed() {
    for reply in [
        Reply::json("{}").header("x-subject-token", "t"),
        Reply::json("<html>").header("x-subject-token", "t"),
        Reply::json(r#"{"token": {"expires_at": "2030-01-01T00:00:00Z"}}"#),
    ] {
        let cloud = ScriptedCloud::start().await.unwrap();
        cloud.fail_logins([reply]);
        let error = OpenStack::connect_with(&cloud.cloud(), quick(), None).await.unwrap_err();
        assert_eq!(error.category(), "malformed", "{error:?}");
    }
}

#[tokio::test]
async fn a_login_says_who_we_are_and_where_we_want_to_work() {
    let (cloud, ..) = connected(quick()).await;
    let seen = cloud.requests("/identity/v3/auth/tokens").remove(0);
    let body: Value = serde_json::from_slice(&seen.body).unwrap();
    let user = json!({"name": "operator", "domain": {"name": "Default"}, "password": "secret"});
    let wanted = json!({"auth": {
        "identity": {"methods": ["password"], "password": {"user": user}},
        "scope": {"project": {"name": "admin", "domain": {"name": "Default"}}},
    }});
    assert_eq!(body, wanted);
    assert!(seen.header("user-agent").starts_with("cobalt-openstack/"));
}

#[tokio::test]
async fn a_password_from_a_command_is_asked_for_at_every_login() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("password");
    std::fs::write(&path, "first\n").unwrap();
    let cloud = ScriptedCloud::start().await.unwrap();
    cloud.on("GET", AGGREGATES, [nothing()]);
    let mut vars = cloud.environment();
    vars.push(("OS_PW_CMD".into(), format!("cat {}", path.display())));
    let openstack = OpenStack::connect_with(&Cloud::from_vars(vars).unwrap(), quick(), None).await.unwrap();
    std::fs::write(&path, "second\n").unwrap();
    cloud.revoke_tokens();
    openstack.nova().aggregates().await.unwrap();
    let passwords = cloud.requests("/identity/v3/auth/tokens").into_iter().map(|seen| {
        let body: Value = serde_json::from_slice(&seen.body).unwrap();
        body["auth"]["identity"]["password"]["user"]["password"].as_str().unwrap().to_owned()
    });
    assert_eq!(passwords.collect::<Vec<_>>(), ["first", "second"]);
}

#[tokio::test]
async fn a_catalog_without_what_we_need_is_told_at_the_start() {
    let cloud = ScriptedCloud::start().await.unwrap();
    let endpoint = |url: &str| json!([{"interface": "public", "region": "RegionOne", "url": url}]);
    cloud.set_catalog(json!([{"type": "compute", "endpoints": endpoint("http://nova")}]));
    let error = OpenStack::connect_with(&cloud.cloud(), quick(), None).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "OpenStack configuration: the catalog has no public endpoint of placement in region RegionOne (regions: RegionOne)"
    );
}

#[tokio::test]
async fn odd_catalogs_work() {
    let cloud = ScriptedCloud::start().await.unwrap();
    let base = format!("http://{}", cloud.address());
    let endpoint = |url: String| json!([{"interface": "public", "region_id": "RegionOne", "url": url}]);
    // Nova without its version, Placement with a slash too many, and somebody else's rubbish.
    cloud.set_catalog(json!([
        {"type": "object-store", "endpoints": [{"interface": "public", "url": "swift at $(tenant_id)s"}, null]},
        {"type": "compute", "endpoints": endpoint(format!("{base}/compute"))},
        {"type": "placement", "endpoints": endpoint(format!("{base}/placement/"))},
    ]));
    // The root document of a real Placement names itself with an empty link; nobody needs to read it.
    let root = r#"{"versions": [{"id": "v1.0", "links": [{"rel": "self", "href": ""}]}]}"#;
    cloud.on("GET", "/placement/", [Reply::json(root)]);
    cloud.on("GET", AGGREGATES, [nothing()]);
    cloud.on("GET", "/placement/resource_providers", [Reply::json(r#"{"resource_providers": []}"#)]);
    let openstack = OpenStack::connect_with(&cloud.cloud(), quick(), None).await.unwrap();
    openstack.nova().aggregates().await.unwrap();
    openstack.placement().providers().await.unwrap();
    assert!(cloud.requests("/placement/").is_empty());
}

#[tokio::test]
async fn a_program_may_start_before_its_cloud() {
    let cloud =
        Cloud::from_vars([("OS_AUTH_URL", "http://127.0.0.1:1"), ("OS_USER_ID", "u"), ("OS_PASSWORD", "secret")]);
    let options = Options { attempts: 2, ..quick() };
    let openstack = OpenStack::lazy(&cloud.unwrap(), options, None).unwrap();
    let error = openstack.nova().services().await.unwrap_err();
    assert_eq!(error.category(), "unavailable");
    assert!(chain(&error).starts_with("log in to Keystone: unavailable: "), "{}", chain(&error));
}
