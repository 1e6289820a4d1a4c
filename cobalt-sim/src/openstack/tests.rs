//! The API from outside, without a socket and in virtual time.
#![allow(clippy::unwrap_used)]

use cobalt_core::nova::NovaClient;
use http::Method;
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};

use super::*;
use crate::{Region, faults::Failure};

/// A caller who is logged in.
struct Caller {
    region: Region,
    api: OpenStackApi,
    token: String,
}

/// Status, headers, body; what is no JSON is null.
type Told = (u16, HeaderMap, Value);

async fn told(api: &OpenStackApi, request: Request<Full<Bytes>>) -> Told {
    let (parts, body) = api.answer(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status.as_u16(), parts.headers, serde_json::from_slice(&body).unwrap_or_default())
}

fn login(body: &Value) -> Request<Full<Bytes>> {
    Request::post("/identity/v3/auth/tokens").body(Full::new(body.to_string().into())).unwrap()
}

fn password(scope: &Value) -> Value {
    let user = json!({"name": "me", "domain": {"id": "default"}, "password": "hush"});
    json!({"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}})
}

impl Caller {
    async fn new(region: Region) -> Self {
        Self::of(region, &json!({"project": {"name": "operator"}})).await
    }

    async fn of(region: Region, scope: &Value) -> Self {
        let api = region.openstack();
        let (status, headers, _) = told(&api, login(&password(scope))).await;
        assert_eq!(status, 201);
        let token = headers["x-subject-token"].to_str().unwrap().to_owned();
        Self { region, api, token }
    }

    fn request(&self, method: &str, path: &str, version: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
        let request = Request::builder().method(method).uri(path).header("x-auth-token", &self.token);
        request.header("openstack-api-version", version).body(Full::new(body.into())).unwrap()
    }

    async fn ask(&self, method: &str, path: &str, version: &str, body: &Value) -> Told {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        told(&self.api, self.request(method, path, version, body)).await
    }

    async fn nova(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let (status, _, body) = self.ask(method, &format!("/compute/v2.1{path}"), "compute 2.95", body).await;
        (status, body)
    }

    async fn placement(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let (status, _, body) = self.ask(method, &format!("/placement{path}"), "placement 1.39", body).await;
        (status, body)
    }
}

fn region() -> Region {
    Region::builder().hosts(3).vms_per_host(2).build()
}

#[tokio::test(start_paused = true)]
async fn every_route_is_answered_whatever_stands_in_it() {
    let caller = Caller::new(region()).await;
    let id = caller.region.world().servers().remove(0);
    for route in TABLES.into_iter().flatten() {
        for word in [id.as_str(), "1", "x", "..", "%00"] {
            let (method, path) = route.split_once(' ').unwrap();
            // A token that ends itself would end the test.
            if method == "DELETE" && path.ends_with("tokens") {
                continue;
            }
            for body in [json!({}), json!({"x": {}}), Value::Null] {
                let (status, ..) = caller.ask(method, &path.replace("{}", word), "", &body).await;
                assert!(status != 501 && status < 500, "{route} with {word}: {status}");
            }
        }
    }
    assert_eq!(caller.api.counters().of("other"), 0);
}

#[test]
fn nothing_that_is_sent_ends_the_server() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let caller = runtime.block_on(async { Caller::new(region()).await });
    let known: Vec<String> = caller.region.world().servers().iter().map(ToString::to_string).collect();
    let routes: Vec<&str> = TABLES.into_iter().flatten().copied().filter(|route| !route.ends_with("tokens")).collect();
    let word = prop_oneof![prop::sample::select(known), Just("1".to_owned()), "[a-zA-Z0-9_.~%-]{1,20}",];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        Just(json!("auto")),
        Just(json!("active")),
        Just(json!("disabled")),
    ];
    let field = prop::sample::select(vec![
        "server",
        "name",
        "flavorRef",
        "imageRef",
        "networks",
        "block_device_mapping_v2",
        "os-migrateLive",
        "migrate",
        "host",
        "block_migration",
        "evacuate",
        "os-resetState",
        "state",
        "os-getConsoleOutput",
        "length",
        "status",
        "disabled_reason",
        "forced_down",
        "aggregate",
        "add_host",
        "set_metadata",
        "metadata",
        "traits",
        "resource_provider_generation",
        "allocations",
        "resources",
        "project_id",
        "user_id",
        "consumer_generation",
        "consumer_type",
        "force_complete",
        "auth",
    ]);
    let object = leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(field.clone().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    let body = prop_oneof![
        4 => object.prop_map(|value| value.to_string().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..64),
    ];
    let version = prop_oneof![
        Just("compute 2.95".to_owned()),
        Just("placement 1.39".to_owned()),
        Just(String::new()),
        "[ -~]{0,20}",
    ];
    let query = "[a-z_]{0,8}=?[ -~&&[^ #\"<>`{}]]{0,20}";
    let mut runner = TestRunner::new(ProptestConfig { cases: 1500, ..ProptestConfig::default() });
    let cases = (prop::sample::select(routes), word, query, version, body);
    let outcome = runner.run(&cases, |(route, word, query, version, body)| {
        let (method, path) = route.split_once(' ').unwrap();
        let uri = format!("{}?{query}", path.replace("{}", &word));
        let Ok(uri) = uri.parse::<http::Uri>() else { return Ok(()) };
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method.parse::<Method>().unwrap();
        *request.uri_mut() = uri;
        request.headers_mut().insert("x-auth-token", caller.token.parse().unwrap());
        request.headers_mut().insert("openstack-api-version", version.parse().unwrap());
        let answer = runtime.block_on(caller.api.answer(request));
        let status = answer.map_err(|error| TestCaseError::fail(error.to_string()))?.status().as_u16();
        prop_assert!(status < 500, "{route}: {status}");
        Ok(())
    });
    outcome.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_body_without_end_is_not_read_to_its_end() {
    let caller = Caller::new(region()).await;
    let request = caller.request("POST", "/compute/v2.1/servers", "", vec![b' '; LARGEST + 1]);
    let (status, _, body) = told(&caller.api, request).await;
    assert_eq!((status, body["overLimit"]["code"].as_u64()), (413, Some(413)));
    let nested = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let request = caller.request("POST", "/compute/v2.1/servers", "", nested);
    assert_eq!(told(&caller.api, request).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn a_token_opens_until_its_end() {
    let region = region();
    region.openstack().set_token_life(Duration::from_secs(60));
    let caller = Caller::new(region).await;
    assert_eq!(caller.nova("GET", "/os-services", &Value::Null).await.0, 200);
    tokio::time::sleep(Duration::from_secs(61)).await;
    let (status, body) = caller.nova("GET", "/os-services", &Value::Null).await;
    assert_eq!((status, body["error"]["code"].as_u64()), (401, Some(401)), "in Keystone's words, whoever is asked");
}

#[tokio::test(start_paused = true)]
async fn a_token_tells_of_itself_and_can_be_given_back() {
    let caller = Caller::new(region()).await;
    let request = |method: &str, subject: &str| {
        let request = Request::builder().method(method).uri("/v3/auth/tokens").header("x-auth-token", &caller.token);
        request.header("x-subject-token", subject).body(Full::new(Bytes::new())).unwrap()
    };
    let (status, _, body) = told(&caller.api, request("GET", &caller.token)).await;
    assert_eq!((status, &body["token"]["project"]["id"]), (200, &json!("operator")));
    let types: Vec<&str> =
        body["token"]["catalog"].as_array().unwrap().iter().filter_map(|e| e["type"].as_str()).collect();
    assert_eq!(types, ["identity", "compute", "placement", "image", "network"]);
    assert_eq!(told(&caller.api, request("GET", "nobody's")).await.0, 404);
    assert_eq!(told(&caller.api, request("DELETE", &caller.token)).await.0, 204);
    assert_eq!(told(&caller.api, request("GET", &caller.token)).await.0, 401);
}

#[tokio::test(start_paused = true)]
async fn logins_that_make_no_sense_are_refused() {
    let api = region().openstack();
    for (body, wanted) in [
        (json!({}), 400),
        (json!({"auth": {"identity": {"methods": []}}}), 400),
        (json!({"auth": {"identity": {"methods": ["password"]}}}), 400),
        (json!({"auth": {"identity": {"methods": ["totp"]}}}), 401),
        (json!({"auth": {"identity": {"methods": ["token"], "token": {"id": "x"}}}}), 401),
        (password(&json!({"system": {"all": true}})), 201),
        (password(&json!({"domain": {"id": "default"}})), 201),
        (password(&Value::Null), 201),
    ] {
        assert_eq!(told(&api, login(&body)).await.0, wanted, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_project_sees_its_own_servers_and_an_administrator_all() {
    let caller = Caller::of(region(), &json!({"project": {"id": "project-1"}})).await;
    let count = |body: &Value| body["servers"].as_array().unwrap().len();
    let (_, mine) = caller.nova("GET", "/servers/detail", &Value::Null).await;
    assert_eq!(count(&mine), 1);
    assert_eq!(mine["servers"][0]["tenant_id"], "project-1");
    assert_eq!(count(&caller.nova("GET", "/servers?all_tenants=1", &Value::Null).await.1), 6);
    let (_, others) = caller.nova("GET", "/servers?all_tenants=1&project_id=project-2", &Value::Null).await;
    assert_eq!(count(&others), 1);
    let image = caller.region.world().add_image("smoke");
    let new = json!({"server": {"name": "mine", "flavorRef": "1", "imageRef": image, "networks": "none"}});
    assert_eq!(caller.nova("POST", "/servers", &new).await.0, 202);
    assert_eq!(count(&caller.nova("GET", "/servers?name=MIN", &Value::Null).await.1), 1, "a pattern, in any case");
}

#[tokio::test(start_paused = true)]
async fn nova_says_no_with_the_status_and_the_words_it_has_for_it() {
    let caller = Caller::new(region()).await;
    let (host, nova) = (caller.region.hosts().remove(0), caller.region.nova());
    let service = nova.service_on(&host).await.unwrap().id;
    let server = nova.servers_on(&host).await.unwrap().remove(0).id;
    let path = format!("/os-services/{service}");
    let action = format!("/servers/{server}/action");
    let live = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
    let (_, aggregates) = caller.nova("GET", "/os-aggregates", &Value::Null).await;
    let zone = format!("/os-aggregates/{}", aggregates["aggregates"][0]["id"]);
    let add = json!({"add_host": {"host": host.as_str()}});
    let none = Value::Null;
    for (method, path, body, status, fault) in [
        ("PUT", path.as_str(), &json!({"status": "enabled", "disabled_reason": "x"}), 400, "badRequest"),
        ("PUT", path.as_str(), &json!({}), 400, "badRequest"),
        ("DELETE", path.as_str(), &none, 409, "conflictingRequest"),
        ("PUT", "/os-services/x", &json!({"status": "enabled"}), 404, "itemNotFound"),
        ("GET", "/os-hypervisors?hypervisor_hostname_pattern=nobody", &none, 404, "itemNotFound"),
        ("GET", "/os-hypervisors?hypervisor_hostname_pattern=hv&limit=1", &none, 400, "badRequest"),
        ("GET", "/servers/x", &none, 404, "itemNotFound"),
        ("GET", "/servers?marker=x", &none, 400, "badRequest"),
        ("GET", "/servers?limit=-1", &none, 400, "badRequest"),
        ("GET", "/servers?name=(", &none, 400, "badRequest"),
        ("POST", "/servers", &json!({"server": {"name": "x"}}), 400, "badRequest"),
        ("POST", action.as_str(), &json!({"evacuate": {}}), 400, "badRequest"),
        ("POST", action.as_str(), &json!({"evacuate": {"force": true}}), 400, "badRequest"),
        ("POST", action.as_str(), &json!({"confirmResize": null}), 409, "conflictingRequest"),
        ("POST", action.as_str(), &json!({"os-resetState": {"state": "paused"}}), 400, "badRequest"),
        ("POST", action.as_str(), &json!({"dance": null}), 400, "badRequest"),
        ("POST", action.as_str(), &json!({"migrate": null, "lock": null}), 400, "badRequest"),
        ("POST", "/servers/x/action", &live, 404, "itemNotFound"),
        ("DELETE", &format!("/servers/{server}/migrations/7"), &none, 404, "itemNotFound"),
        ("POST", "/os-aggregates", &json!({"aggregate": {"name": "zone-a"}}), 409, "conflictingRequest"),
        ("POST", &format!("{zone}/action"), &add, 409, "conflictingRequest"),
        ("POST", &format!("{zone}/action"), &json!({"add_host": {"host": "x"}}), 404, "itemNotFound"),
        ("DELETE", zone.as_str(), &none, 400, "badRequest"),
        ("PATCH", "/servers", &none, 405, "badMethod"),
        ("GET", "/os-keypairs", &none, 404, "itemNotFound"),
    ] {
        let (told, answer) = caller.nova(method, path, body).await;
        assert_eq!(
            (told, answer[fault]["code"].as_u64()),
            (status, Some(status.into())),
            "{method} {path} {body}: {answer}"
        );
    }
    assert_eq!(caller.nova("POST", &action, &live).await.0, 202);
    assert_eq!(caller.nova("POST", &action, &live).await.0, 409, "it moves already");
    let (_, moves) = caller.nova("GET", &format!("/servers/{server}/migrations"), &none).await;
    assert_eq!(moves["migrations"][0]["instance_uuid"], server.as_str());
}

#[tokio::test(start_paused = true)]
async fn placement_says_no_with_codes() {
    let caller = Caller::new(region()).await;
    let (_, all) = caller.placement("GET", "/resource_providers", &Value::Null).await;
    let path = format!("/resource_providers/{}", all["resource_providers"][0]["uuid"].as_str().unwrap());
    let stale = json!({"traits": [], "resource_provider_generation": 0});
    let unknown = json!({"traits": ["CUSTOM_NOBODY"], "resource_provider_generation": 0});
    let none = Value::Null;
    for (method, path, body, status, code) in [
        ("PUT", format!("{path}/traits"), &stale, 409, "placement.concurrent_update"),
        ("PUT", format!("{path}/traits"), &unknown, 400, "placement.undefined_code"),
        ("DELETE", path, &none, 409, "placement.resource_provider.inuse"),
        ("GET", "/resource_providers/x/usages".into(), &none, 404, "placement.resource_provider.not_found"),
        ("GET", "/allocation_candidates".into(), &none, 400, "placement.query.missing_value"),
        ("GET", "/allocation_candidates?resources=GOLD:1".into(), &none, 400, "placement.query.bad_value"),
        ("GET", "/allocation_candidates?resources=VCPU:1&required=X".into(), &none, 400, "placement.query.bad_value"),
        ("PUT", "/traits/HW_X".into(), &none, 400, "placement.undefined_code"),
        ("GET", "/traits/CUSTOM_X".into(), &none, 404, "placement.undefined_code"),
    ] {
        let (told, answer) = caller.placement(method, &path, body).await;
        assert_eq!((told, answer["errors"][0]["code"].as_str()), (status, Some(code)), "{method} {path}: {answer}");
    }
    assert_eq!(caller.placement("PUT", "/traits/CUSTOM_X", &none).await.0, 201);
    assert_eq!(caller.placement("PUT", "/traits/CUSTOM_X", &none).await.0, 204);
}

#[tokio::test(start_paused = true)]
async fn allocations_are_written_at_the_generation_they_were_read_at() {
    let caller = Caller::new(region()).await;
    let server = caller.region.world().servers().remove(0);
    let path = format!("/allocations/{server}");
    let (_, mut held) = caller.placement("GET", &path, &Value::Null).await;
    held["consumer_type"] = "INSTANCE".into();
    let before = held.clone();
    let provider = held["allocations"].as_object().unwrap().keys().next().unwrap().clone();
    held["allocations"][&provider]["resources"]["VCPU"] = 1_000_000.into();
    assert_eq!(caller.placement("PUT", &path, &held).await.0, 409, "there is not that much");
    held["allocations"] = json!({"00000000-0000-4000-8000-000000000000": {"resources": {"VCPU": 1}}});
    assert_eq!(caller.placement("PUT", &path, &held).await.0, 400, "there is no such provider");
    held["allocations"] = json!({});
    assert_eq!(caller.placement("PUT", &path, &held).await.0, 204);
    assert_eq!(caller.placement("GET", &path, &Value::Null).await.1, json!({"allocations": {}}));
    let (status, body) = caller.placement("PUT", &path, &before).await;
    assert_eq!((status, &body["errors"][0]["code"]), (409, &json!("placement.concurrent_update")));
    let mut anew = before.clone();
    anew["consumer_generation"] = Value::Null;
    assert_eq!(caller.placement("PUT", &path, &anew).await.0, 204);
    let (_, after) = caller.placement("GET", &path, &Value::Null).await;
    assert_eq!(after["allocations"][&provider]["resources"], before["allocations"][&provider]["resources"]);
    assert_eq!(caller.region.world().check(), []);
}

#[tokio::test(start_paused = true)]
async fn versions_are_told_and_make_a_difference() {
    let caller = Caller::new(region()).await;
    let path = "/compute/v2.1/os-services";
    let (_, headers, old) = caller.ask("GET", path, "", &Value::Null).await;
    assert_eq!(headers["openstack-api-version"], "compute 2.1");
    assert_eq!(headers["x-openstack-nova-api-version"], "2.1");
    assert!(headers["x-openstack-request-id"].to_str().unwrap().starts_with("req-"));
    assert!(old["services"][0]["id"].is_u64(), "{old}");
    let (_, headers, new) = caller.ask("GET", path, "compute latest", &Value::Null).await;
    assert_eq!(headers["openstack-api-version"], "compute 2.95");
    assert!(new["services"][0]["id"].is_string(), "{new}");
    let (status, _, body) = caller.ask("GET", path, "compute 2.999", &Value::Null).await;
    assert_eq!((status, body["computeFault"]["code"].as_u64()), (406, Some(406)));
    assert_eq!(caller.ask("GET", "/placement/traits", "placement 9.9", &Value::Null).await.0, 406);
    let hypervisor = |version: &'static str| {
        let caller = &caller;
        async move {
            let (_, _, body) = caller.ask("GET", "/compute/v2.1/os-hypervisors/detail", version, &Value::Null).await;
            body["hypervisors"][0].clone()
        }
    };
    assert!(hypervisor("compute 2.53").await["vcpus"].is_u64());
    assert!(hypervisor("compute 2.88").await.get("vcpus").is_none());
}

#[tokio::test(start_paused = true)]
async fn whoever_looks_for_versions_finds_them_without_a_token() {
    let api = region().openstack();
    for (path, status, key) in [
        ("/", 300, "versions"),
        ("/identity", 300, "versions"),
        ("/identity/v3/", 200, "version"),
        ("/compute", 200, "versions"),
        ("/compute/v2.1/", 200, "version"),
        ("/placement", 200, "versions"),
        ("/image", 300, "versions"),
        ("/network", 200, "versions"),
    ] {
        let request = Request::get(path).header("host", "cloud.example:99").body(Full::new(Bytes::new())).unwrap();
        let (told, _, body) = told(&api, request).await;
        assert!(told == status && !body[key].is_null(), "{path}: {told} {body}");
        // Placement's link is empty.
        let here = body.to_string().contains("http://cloud.example:99/");
        assert!(here || path == "/placement", "{path}: {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_evacuated_server_ends_as_the_version_says() {
    let caller = Caller::new(region()).await;
    let (host, nova) = (caller.region.hosts().remove(0), caller.region.nova());
    let servers = nova.servers_on(&host).await.unwrap();
    caller.region.world().power_cut(&host).unwrap();
    nova.force_service_down(&nova.service_on(&host).await.unwrap().id, true).await.unwrap();
    for (server, version) in servers.iter().zip(["compute 2.94", "compute 2.95"]) {
        let path = format!("/compute/v2.1/servers/{}/action", server.id);
        assert_eq!(caller.ask("POST", &path, version, &json!({"evacuate": {}})).await.0, 200);
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let mut states = Vec::new();
    for server in &servers {
        let (_, body) = caller.nova("GET", &format!("/servers/{}", server.id), &Value::Null).await;
        states.push(body["server"]["status"].as_str().unwrap().to_owned());
    }
    assert_eq!(states, ["ACTIVE", "SHUTOFF"]);
}

#[tokio::test(start_paused = true)]
async fn a_fault_strikes_the_request_that_the_method_is_called_for() {
    let caller = Caller::new(region()).await;
    let faults = caller.api.nova().faults();
    faults.fail_next("hypervisors", Failure::Busy(Duration::from_secs(7)));
    assert_eq!(caller.nova("GET", "/os-services", &Value::Null).await.0, 200);
    let (status, headers, _) = caller.ask("GET", "/compute/v2.1/os-hypervisors/detail", "", &Value::Null).await;
    assert_eq!((status, headers["retry-after"].to_str().unwrap()), (429, "7"));
    faults.fail_any(1, Failure::Timeout);
    let request = caller.request("GET", "/compute/v2.1/os-services", "", "");
    assert_eq!(caller.api.answer(request).await.err(), Some(NoAnswer));
    assert_eq!(caller.api.counters().of("GET /compute/v2.1/os-services"), 2, "asked is asked");
}
