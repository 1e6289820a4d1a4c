//! `cobaltctl plan`, on a cloud that answers as it was told.

use cobalt_openstack::testing::{Reply, ScriptedCloud};
use serde_json::{Value, json};

use crate::{
    PROGRAM,
    testing::{Running, Said, command, run},
};

const HOSTS: [&str; 2] = ["hv-1", "hv-10"];

/// Two hosts; on the first one two servers, the second of them as told.
async fn cloud(second: &str) -> ScriptedCloud {
    let cloud = ScriptedCloud::start().await.unwrap();
    let get = |path: &str, body: Value| cloud.on("GET", path, [Reply::json(body.to_string())]);
    let service = |host: &str| {
        json!({"id": format!("s-{host}"), "binary": "nova-compute", "host": host, "zone": "az", "status": "enabled",
            "state": "up"})
    };
    let hypervisor = |host: &str| {
        json!({"id": format!("p-{host}"), "hypervisor_hostname": host, "hypervisor_type": "QEMU", "state": "up",
            "service": {"id": format!("s-{host}"), "host": host}})
    };
    let server = |id: &str, status: &str| {
        json!({"id": id, "name": format!("name of {id}"), "tenant_id": "p1", "status": status,
            "OS-EXT-STS:power_state": 1, "OS-EXT-SRV-ATTR:host": "hv-1", "OS-EXT-AZ:availability_zone": "az",
            "image": "", "flavor": {"vcpus": 1, "ram": 2048, "disk": 10, "ephemeral": 0, "extra_specs": {}}})
    };
    get("/compute/v2.1/os-services", json!({"services": HOSTS.map(service)}));
    get("/compute/v2.1/os-hypervisors/detail", json!({"hypervisors": HOSTS.map(hypervisor)}));
    get("/compute/v2.1/os-aggregates", json!({"aggregates": []}));
    get("/compute/v2.1/servers/detail", json!({"servers": [server("vm-1", "ACTIVE"), server("vm-2", second)]}));
    get("/compute/v2.1/os-migrations", json!({"migrations": []}));
    get("/placement/resource_providers/p-hv-1/allocations", json!({"allocations": {}}));
    let room = |id: &str| {
        let free = json!({"VCPU": {"capacity": 64, "used": 0}, "MEMORY_MB": {"capacity": 65536, "used": 1024}});
        (id.to_owned(), json!({"root_provider_uuid": id, "resources": free}))
    };
    let rooms: serde_json::Map<String, Value> = HOSTS.map(|host| room(&format!("p-{host}"))).into_iter().collect();
    let requests = HOSTS.map(|host| json!({"allocations": {format!("p-{host}"): {"resources": {"VCPU": 1}}}}));
    get("/placement/allocation_candidates", json!({"allocation_requests": requests, "provider_summaries": rooms}));
    cloud
}

async fn plan(cloud: &ScriptedCloud, words: &[&str]) -> Said {
    let (vars, words) = (cloud.environment(), words.iter().map(ToString::to_string).collect::<Vec<_>>());
    let finished = tokio::task::spawn_blocking(move || {
        let mut running = Running::start(command(PROGRAM).envs(vars).args(["plan", "evict"]).args(words));
        let code = running.wait().code();
        Said { code, out: running.out(), err: running.err() }
    });
    finished.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_would_be_empty_is_success() {
    let cloud = cloud("ACTIVE").await;
    let said = plan(&cloud, &["hv-1"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.starts_with("hv-1: all 2 servers would leave, in about 30 s\n"), "{}", said.out);
    assert!(said.out.contains("the host is enabled: a drain disables it first"), "{}", said.out);
    assert!(said.out.lines().any(|line| line.starts_with("vm-1") && line.contains("live") && line.contains("hv-10")));
    let json = plan(&cloud, &["hv-1", "-o", "json", "--concurrency", "2"]).await;
    let read: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&read["wouldSucceed"], &read["seconds"]), (&json!(true), &json!(15)));
    assert_eq!(read["moves"][0]["target"], "hv-10");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_would_not_be_is_bad_news_and_says_why() {
    let cloud = cloud("SUSPENDED").await;
    let said = plan(&cloud, &["hv-1"]).await;
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.out.starts_with("hv-1: 1 of 2 servers would stay\n"), "{}", said.out);
    let stays = said.out.lines().find(|line| line.starts_with("vm-2")).unwrap();
    assert!(stays.contains("STAYS: it is suspended"), "{stays}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_answer_it_fails() {
    let cloud = cloud("ACTIVE").await;
    plan(&cloud, &["hv"]).await.refused(1, &["plan the eviction of hv", "not found"]);
    run(PROGRAM, &["plan", "evict", "hv-1"]).refused(1, &["OS_AUTH_URL"]);
    run(PROGRAM, &["plan", "evict"]).refused(2, &["HOST"]);
}
