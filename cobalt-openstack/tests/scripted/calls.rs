//! What is sent: pages, versions, exact names.

use cobalt_core::{
    ids::{HostName, InstanceId, MigrationId, ProviderId},
    nova::AfterEvacuation,
};
use cobalt_openstack::{NovaClient, Options, PlacementClient, testing::Reply};
use serde_json::{Value, json};

use super::{connected, quick};

fn server(id: &str, host: &str) -> Value {
    json!({"id": id, "name": id, "status": "ACTIVE", "OS-EXT-SRV-ATTR:host": host, "image": {"id": "i"}, "flavor": {}})
}

#[tokio::test]
async fn a_list_is_read_with_all_its_pages_and_only_from_our_endpoint() {
    let (cloud, nova, _) = connected(Options { page_size: 2, ..quick() }).await;
    let path = "/compute/v2.1/servers/detail";
    let next = |marker: &str| json!([{"rel": "next", "href": format!("http://evil.example/servers?marker={marker}")}]);
    cloud.on(
        "GET",
        path,
        [
            Reply::json(
                json!({"servers": [server("b", "hv-1"), server("a", "hv-1")], "servers_links": next("a")}).to_string(),
            ),
            Reply::json(json!({"servers": [server("c", "hv-1"), server("x", "hv-10")]}).to_string()),
        ],
    );
    let all = nova.servers_on(&HostName::from("hv-1")).await.unwrap();
    let ids: Vec<&str> = all.iter().map(|server| server.id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "c"], "ordered, and without the host of a similar name");
    let queries: Vec<String> = cloud.requests(path).into_iter().map(|seen| seen.query).collect();
    assert_eq!(
        queries,
        [
            "all_tenants=true&soft_deleted=true&host=hv-1&limit=2",
            "all_tenants=true&soft_deleted=true&host=hv-1&limit=2&marker=a"
        ]
    );
}

#[tokio::test]
async fn the_history_of_years_is_not_read_to_know_what_moves() {
    let (cloud, nova, _) = connected(Options { page_size: 2, ..quick() }).await;
    let path = "/compute/v2.1/os-migrations";
    let now = jiff::Timestamp::now();
    let record = |id: u32, hours: i64, status: &str| {
        let created = (now - jiff::SignedDuration::from_hours(hours)).strftime("%Y-%m-%dT%H:%M:%S.000000").to_string();
        json!({"id": id, "instance_uuid": format!("s{id}"), "source_compute": "hv-1", "status": status, "created_at": created})
    };
    let page = |records: &[Value], next: &str| {
        let links = json!([{"rel": "next", "href": format!("http://x/?marker={next}")}]);
        Reply::json(json!({"migrations": records, "migrations_links": links}).to_string())
    };
    let last = |records: &[Value]| Reply::json(json!({"migrations": records}).to_string());
    cloud.on(
        "GET",
        path,
        [
            page(&[record(9, 0, "accepted"), record(8, 0, "running")], "8"),
            // Nothing behind an old one is new.
            page(&[record(7, 0, "completed"), record(6, 30, "completed")], "6"),
            last(&[record(8, 0, "completed"), record(3, 50, "running")]),
            last(&[record(1, 5000, "finished")]),
        ],
    );
    let all = nova.migrations(&HostName::from("hv-1")).await.unwrap();
    let seen: Vec<_> = all.iter().map(|one| (one.id.as_str(), one.phase.is_over())).collect();
    let wanted = [("9", false), ("8", true), ("7", true), ("6", true), ("3", false), ("1", false)];
    assert_eq!(seen, wanted, "each once, as it was told last");
    let queries: Vec<String> = cloud.requests(path).into_iter().map(|seen| seen.query).collect();
    assert_eq!(queries[..2], ["host=hv-1&limit=2", "host=hv-1&limit=2&marker=8"]);
    assert!(queries[2].starts_with("host=hv-1&changes-since=20") && queries[2].ends_with("Z&limit=2"), "{queries:?}");
    assert_eq!(queries[3..], ["host=hv-1&status=finished&limit=2"]);
}

#[tokio::test]
async fn pages_that_go_round_in_a_circle_are_an_error() {
    let (cloud, nova, _) = connected(Options { max_pages: 5, ..quick() }).await;
    let path = "/compute/v2.1/os-migrations";
    let page = |marker: &str| {
        let links = json!([{"rel": "next", "href": format!("http://x/?marker={marker}")}]);
        let migration = json!({"id": 1, "instance_uuid": "s", "source_compute": "hv-1", "status": "running"});
        Reply::json(json!({"migrations": [migration], "migrations_links": links}).to_string())
    };
    cloud.on("GET", path, [page("1")]);
    let host = HostName::from("hv-1");
    assert_eq!(nova.migrations(&host).await.unwrap_err().category(), "malformed");
    assert_eq!(cloud.requests(path).len(), 2);
    cloud.on("GET", path, (0..100).map(|number| page(&number.to_string())));
    let error = nova.migrations(&host).await.unwrap_err();
    assert!(error.to_string().contains("more than 5 pages"), "{error}");
}

#[tokio::test]
async fn how_an_evacuated_server_ends_is_the_callers_choice() {
    let (cloud, nova, _) = connected(quick()).await;
    let path = "/compute/v2.1/servers/s1/action";
    cloud.on("POST", path, [Reply::json("{}")]);
    cloud.on("GET", "/compute/v2.1/servers/s1", [Reply::json(json!({"server": server("s1", "hv-1")}).to_string())]);
    let (id, host) = (InstanceId::from("s1"), HostName::from("hv-2"));
    nova.evacuate(&id, None, AfterEvacuation::Run).await.unwrap();
    nova.evacuate(&id, Some(&host), AfterEvacuation::StayOff).await.unwrap();
    let seen = cloud.requests(path);
    let versions: Vec<&str> = seen.iter().map(|seen| seen.header("openstack-api-version")).collect();
    assert_eq!(versions, ["compute 2.68", "compute 2.95"]);
    let bodies: Vec<Value> = seen.iter().map(|seen| serde_json::from_slice(&seen.body).unwrap()).collect();
    assert_eq!(bodies, [json!({"evacuate": {}}), json!({"evacuate": {"host": "hv-2"}})]);
}

#[tokio::test]
async fn a_server_that_is_being_rebuilt_is_not_evacuated_once_more() {
    let (cloud, nova, _) = connected(quick()).await;
    let mut busy = server("s1", "hv-1");
    busy["OS-EXT-STS:task_state"] = "rebuild_spawning".into();
    cloud.on("GET", "/compute/v2.1/servers/s1", [Reply::json(json!({"server": busy}).to_string())]);
    let error = nova.evacuate(&InstanceId::from("s1"), None, AfterEvacuation::Run).await.unwrap_err();
    assert_eq!(error.category(), "conflict");
    assert!(cloud.requests("/compute/v2.1/servers/s1/action").is_empty());
}

#[tokio::test]
async fn a_hypervisor_is_found_by_its_whole_name() {
    let (cloud, nova, _) = connected(quick()).await;
    let path = "/compute/v2.1/os-hypervisors/detail";
    let entry = |id: &str, name: &str| {
        json!({"id": id, "hypervisor_hostname": name, "hypervisor_type": "QEMU", "state": "up",
               "service": {"id": "s", "host": name}, "servers": [{"uuid": "u", "name": "instance-1"}]})
    };
    let list = |entries: &[Value]| Reply::json(json!({"hypervisors": entries}).to_string());
    cloud.on("GET", path, [list(&[entry("10", "hv-10"), entry("1", "hv-1")])]);
    assert_eq!(nova.hypervisor_named("hv-1").await.unwrap().id.as_str(), "1");
    assert_eq!(nova.hypervisor_named("hv").await.unwrap_err().category(), "not_found");
    assert_eq!(cloud.requests(path)[0].query, "hypervisor_hostname_pattern=hv-1&with_servers=true");
    // Without any match Nova answers 404.
    cloud.on("GET", path, [Reply::error(404, "No hypervisor matching 'x' could be found.")]);
    assert_eq!(nova.hypervisor_named("x").await.unwrap_err().category(), "not_found");
    cloud.on("GET", path, [list(&[entry("1", "hv-1"), entry("2", "hv-1")])]);
    assert_eq!(nova.hypervisor_named("hv-1").await.unwrap_err().category(), "conflict");
}

#[tokio::test]
async fn a_migration_that_is_over_cannot_be_aborted_which_is_a_conflict() {
    let (cloud, nova, _) = connected(quick()).await;
    cloud.on("DELETE", "/compute/v2.1/servers/s1/migrations/7", [Reply::error(400, "not running")]);
    let (server, migration) = (InstanceId::from("s1"), MigrationId::from("7"));
    assert_eq!(nova.abort_migration(&server, &migration).await.unwrap_err().category(), "conflict");
}

#[tokio::test]
async fn names_cannot_escape_into_other_calls() {
    let (cloud, nova, placement) = connected(quick()).await;
    assert!(nova.server(&InstanceId::from("../os-services?x=")).await.is_err());
    assert_eq!(cloud.requests("/compute/v2.1/servers/..%2Fos-services%3Fx%3D").len(), 1);
    assert!(placement.provider(&ProviderId::from("a/traits")).await.is_err());
    assert_eq!(cloud.requests("/placement/resource_providers/a%2Ftraits").len(), 1);
}

#[tokio::test]
async fn a_consumer_without_a_type_is_written_without_one() {
    let (cloud, _, placement) = connected(quick()).await;
    let path = "/placement/allocations/s1";
    let held = json!({"allocations": {"dead": {"resources": {"VCPU": 1}}}, "project_id": "p", "user_id": "u",
                      "consumer_generation": 1, "consumer_type": "unknown"});
    cloud.on("GET", path, [Reply::json(held.to_string())]);
    cloud.on("PUT", path, [Reply::status(204)]);
    placement.release(&InstanceId::from("s1"), &ProviderId::from("dead")).await.unwrap();
    let last = cloud.requests(path).pop().unwrap();
    let body: Value = serde_json::from_slice(&last.body).unwrap();
    assert_eq!((last.header("openstack-api-version"), body.get("consumer_type")), ("placement 1.29", None));
}

#[tokio::test]
async fn a_release_keeps_the_other_providers_and_tries_again_after_a_conflict() {
    let (cloud, _, placement) = connected(quick()).await;
    let path = "/placement/allocations/s1";
    let held = |generation: u64| {
        Reply::json(
            json!({"allocations": {
                "dead": {"generation": 4, "resources": {"VCPU": 1}},
                "alive": {"generation": 5, "resources": {"VCPU": 1, "MEMORY_MB": 64}},
            }, "project_id": "p", "user_id": "u", "consumer_generation": generation, "consumer_type": "INSTANCE"})
            .to_string(),
        )
    };
    cloud.on("GET", path, [held(1), held(2)]);
    cloud.on("PUT", path, [Reply::error(409, "placement.concurrent_update"), Reply::status(204)]);
    placement.release(&InstanceId::from("s1"), &ProviderId::from("dead")).await.unwrap();
    let last = cloud.requests(path).pop().unwrap();
    let body: Value = serde_json::from_slice(&last.body).unwrap();
    let wanted = json!({
        "allocations": {"alive": {"resources": {"VCPU": 1, "MEMORY_MB": 64}}},
        "project_id": "p", "user_id": "u", "consumer_generation": 2, "consumer_type": "INSTANCE",
    });
    assert_eq!((last.method.as_str(), body), ("PUT", wanted));
    assert_eq!(last.header("openstack-api-version"), "placement 1.38");
    let nobody = placement.release(&InstanceId::from("s1"), &ProviderId::from("other")).await.unwrap_err();
    assert_eq!(nobody.category(), "not_found");
}
