//! The scripted cloud and the simulated one are one cloud to the client: what it asks of the first is served by the
//! second, and what the first was told to answer is there in the second's answers, in the same places.

use std::time::Duration;

use bytes::Bytes;
use cobalt_core::{
    ids::MigrationId,
    nova::{AfterEvacuation, BlockMigration, ServerName, Traits},
};
use cobalt_openstack::{
    NovaClient, OpenStack, PlacementClient, TestBed,
    testing::{Reply, ScriptedCloud, Seen},
};
use cobalt_sim::{OpenStackApi, Region, Timing};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::quick;

/// Both clouds, with a login to each.
struct Both {
    scripted: ScriptedCloud,
    client: OpenStack,
    api: OpenStackApi,
    token: String,
}

impl Both {
    async fn start(region: &Region) -> Self {
        let scripted = ScriptedCloud::start().await.unwrap();
        let client = OpenStack::connect_with(&scripted.cloud(), quick(), None).await.unwrap();
        let api = region.openstack();
        // The login that the scripted cloud has seen is one for the other too.
        let login = scripted.requests("/identity/v3/auth/tokens").remove(0);
        let answer = api.answer(request(&login, "")).await.unwrap();
        assert_eq!(answer.status(), 201);
        let token = answer.headers()["x-subject-token"].to_str().unwrap().to_owned();
        Self { scripted, client, api, token }
    }

    /// What the scripted cloud answers from now on.
    fn told(&self, method: &str, path: &str, reply: &Value) {
        self.scripted.on(method, path, [Reply::json(reply.to_string())]);
    }

    /// The last request for this path, asked of the simulated cloud.
    async fn again(&self, path: &str) -> (u16, Value) {
        self.ask(&self.scripted.requests(path).pop().unwrap()).await
    }

    async fn ask(&self, seen: &Seen) -> (u16, Value) {
        let answer = self.api.answer(request(seen, &self.token)).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn answers(&self, path: &str, told: &Value) {
        let (status, body) = self.again(path).await;
        assert_eq!(status, 200, "{path}: {body}");
        covers(told, &body, path);
    }

    async fn accepts(&self, path: &str, wanted: u16) {
        let (status, body) = self.again(path).await;
        assert_eq!(status, wanted, "{path}: {body}");
    }
}

fn request(seen: &Seen, token: &str) -> http::Request<Full<Bytes>> {
    let mut request = http::Request::new(Full::new(seen.body.clone()));
    *request.method_mut() = seen.method.parse().unwrap();
    *request.uri_mut() = format!("{}?{}", seen.path, seen.query).parse().unwrap();
    *request.headers_mut() = seen.headers.clone();
    request.headers_mut().insert("x-auth-token", token.parse().unwrap());
    request
}

/// Whether everything that was told is there, by name and kind; what is null may be anything, and more may be there.
fn covers(told: &Value, answer: &Value, place: &str) {
    match (told, answer) {
        (Value::Null, _) => {}
        (Value::Object(told), Value::Object(answer)) => {
            for (key, value) in told {
                let place = format!("{place} {key}");
                covers(value, answer.get(key).unwrap_or_else(|| panic!("{place}: is not there")), &place);
            }
        }
        (Value::Array(told), Value::Array(answer)) => {
            for value in told {
                covers(value, answer.first().unwrap_or_else(|| panic!("{place}: is empty")), place);
            }
        }
        (told, answer) => {
            assert_eq!(std::mem::discriminant(told), std::mem::discriminant(answer), "{place}: {told} and {answer}");
        }
    }
}

#[tokio::test]
async fn what_is_read_of_servers_and_hypervisors_has_the_same_shape() {
    let region = Region::builder().hosts(2).build();
    let host = region.hosts().remove(0);
    let id = region.boot(&host, "5").unwrap();
    let both = Both::start(&region).await;
    let nova = both.client.nova();

    let server = json!({"id": id.as_str(), "name": "x", "status": "ACTIVE", "OS-EXT-SRV-ATTR:host": "hv-1", "image": {"id": "i"},
        "flavor": {"vcpus": 1, "ram": 1, "disk": 1, "ephemeral": 0, "extra_specs": {}}, "tenant_id": "p", "locked": false,
        "OS-EXT-STS:power_state": 1, "OS-EXT-STS:task_state": null, "OS-EXT-AZ:availability_zone": "z",
        "os-extended-volumes:volumes_attached": [], "created": "2026-11-18T09:59:30Z",
        "OS-SRV-USG:launched_at": "2026-11-18T10:00:00.000000"});
    let (list, one) = ("/compute/v2.1/servers/detail", format!("/compute/v2.1/servers/{id}"));
    let told = json!({"servers": [server]});
    both.told("GET", list, &told);
    nova.servers_on(&host).await.unwrap();
    both.answers(list, &told).await;
    nova.servers_named(&ServerName::Exactly("smoke-hv-1".into())).await.unwrap();
    both.answers(list, &json!({"servers": []})).await;
    let told = json!({"server": server});
    both.told("GET", &one, &told);
    nova.server(&id).await.unwrap();
    both.answers(&one, &told).await;

    let path = "/compute/v2.1/os-hypervisors/detail";
    let told = json!({"hypervisors": [{"id": "1", "hypervisor_hostname": host.as_str(), "hypervisor_type": "QEMU", "state": "up",
        "service": {"id": "s", "host": "h"}, "servers": [{"uuid": "u", "name": "instance-1"}]}]});
    both.told("GET", path, &told);
    nova.hypervisor_named(host.as_str()).await.unwrap();
    both.answers(path, &told).await;
    let told = json!({"hypervisors": [{"id": "1", "hypervisor_hostname": host.as_str(), "hypervisor_type": "QEMU", "state": "up",
        "service": {"id": "s", "host": "h"}}]});
    both.told("GET", path, &told);
    nova.hypervisors().await.unwrap();
    both.answers(path, &told).await;

    let path = "/compute/v2.1/os-services";
    let told = json!({"services": [{"id": "2", "binary": "nova-compute", "host": host.as_str(), "status": "enabled", "state": "up",
        "disabled_reason": null, "zone": "nova", "forced_down": false}]});
    both.told("GET", path, &told);
    nova.service_on(&host).await.unwrap();
    both.answers(path, &told).await;

    let path = "/compute/v2.1/os-aggregates";
    let told = json!({"aggregates": [{"id": 1, "uuid": "u", "name": "a", "availability_zone": "z", "hosts": ["h"], "metadata": {}}]});
    both.told("GET", path, &told);
    nova.aggregates().await.unwrap();
    both.answers(path, &told).await;
}

#[tokio::test]
async fn what_is_done_to_servers_is_taken_as_it_is_sent() {
    // Nothing that is begun here is over before it was looked at.
    let timing = Timing { prepare: Duration::from_secs(3600), ..Timing::default() };
    let region = Region::builder().hosts(3).vms_per_host(2).timing(timing).build();
    let hosts = region.hosts();
    let both = Both::start(&region).await;
    let (nova, own) = (both.client.nova(), region.nova());

    let moving = own.servers_on(&hosts[0]).await.unwrap().remove(0).id;
    let action = format!("/compute/v2.1/servers/{moving}/action");
    both.told("POST", &action, &json!({}));
    nova.live_migrate(&moving, Some(&hosts[1]), BlockMigration::No).await.unwrap();
    both.accepts(&action, 202).await;
    let path = "/compute/v2.1/os-migrations";
    let told = json!({"migrations": [{"id": 1, "instance_uuid": "s", "source_compute": "hv-1", "dest_compute": "hv-2",
        "status": "running", "migration_type": "live-migration", "created_at": "2026-11-18T10:00:00.000000"}]});
    both.told("GET", path, &told);
    nova.migrations(&hosts[0]).await.unwrap();
    // It is new; it has not changed since, and does not wait for a yes.
    for (seen, found) in both.scripted.requests(path).iter().zip([true, false, false]) {
        let (status, body) = both.ask(seen).await;
        assert_eq!(status, 200, "{body}");
        covers(if found { &told } else { &Value::Null }, &body, path);
    }
    let migration = MigrationId::from("1");
    let path = format!("/compute/v2.1/servers/{moving}/migrations/1");
    both.told("DELETE", &path, &json!({}));
    nova.abort_migration(&moving, &migration).await.unwrap();
    both.accepts(&path, 202).await;
    // It is over now, which the scripted cloud tells with the same status.
    both.accepts(&path, 400).await;

    let dead = own.servers_on(&hosts[2]).await.unwrap();
    region.world().power_cut(&hosts[2]).unwrap();
    own.force_service_down(&own.service_on(&hosts[2]).await.unwrap().id, true).await.unwrap();
    for (server, after) in dead.iter().zip([AfterEvacuation::Run, AfterEvacuation::StayOff]) {
        let id = &server.id;
        let told = json!({"server": {"id": id.as_str(), "status": "ACTIVE", "image": "", "flavor": {}}});
        both.told("GET", &format!("/compute/v2.1/servers/{id}"), &told);
        let path = format!("/compute/v2.1/servers/{id}/action");
        both.told("POST", &path, &json!({}));
        nova.evacuate(id, None, after).await.unwrap();
        both.accepts(&path, 200).await;
    }
}

#[tokio::test]
async fn allocations_and_traits_are_read_and_written_alike() {
    let region = Region::builder().hosts(1).vms_per_host(1).build();
    let both = Both::start(&region).await;
    let placement = both.client.placement();
    let host = region.hosts().remove(0);
    let id = region.nova().hypervisor_named(host.as_str()).await.unwrap().id;
    let server = region.nova().servers_on(&host).await.unwrap().remove(0).id;

    let path = format!("/placement/allocations/{server}");
    let held = json!({"allocations": {id.as_str(): {"generation": 4, "resources": {"VCPU": 1, "MEMORY_MB": 64}}},
        "project_id": "p", "user_id": "u", "consumer_generation": 1, "consumer_type": "unknown"});
    both.told("GET", &path, &held);
    both.scripted.on("PUT", &path, [Reply::status(204)]);
    placement.release(&server, &id).await.unwrap();
    let (status, body) = both.again(&path).await;
    assert_eq!((status, body["errors"][0]["code"].as_str()), (409, Some("placement.concurrent_update")), "{body}");
    assert!(placement.release(&server, &"other".into()).await.is_err());
    both.answers(&path, &held).await;

    let path = format!("/placement/resource_providers/{id}/traits");
    let told = json!({"traits": ["CUSTOM_A"], "resource_provider_generation": 1});
    both.told("GET", &path, &told);
    placement.traits(&id).await.unwrap();
    both.answers(&path, &told).await;
    both.told("PUT", &path, &told);
    let stale = Traits { generation: 4711, ..Traits::default() };
    placement.set_traits(&id, &stale).await.unwrap();
    let (status, body) = both.again(&path).await;
    assert_eq!((status, body["errors"][0]["code"].as_str()), (409, Some("placement.concurrent_update")), "{body}");

    let path = "/placement/allocation_candidates";
    let told = json!({"allocation_requests": [{"allocations": {id.as_str(): {"resources": {"VCPU": 1}}}}],
        "provider_summaries": {id.as_str(): {"root_provider_uuid": "r", "resources": {"VCPU": {"capacity": 4, "used": 4}}}}});
    both.told("GET", path, &told);
    placement.candidates(&[("VCPU".to_owned(), 1)].into(), &["COMPUTE_NODE".to_owned()].into()).await.unwrap();
    both.answers(path, &told).await;
}

#[tokio::test]
async fn images_networks_and_flavors_are_found_alike() {
    let region = Region::builder().hosts(1).build();
    let both = Both::start(&region).await;
    let bed = both.client.test_bed();
    let path = "/image/v2/images";
    let told = json!({"images": [{"id": "i1", "name": "cirros"}]});
    both.told("GET", path, &told);
    bed.image_named("cirros").await.unwrap();
    both.answers(path, &told).await;

    let path = "/network/v2.0/networks";
    let told = json!({"networks": [{"id": "n4", "name": "private", "shared": false, "router:external": false}]});
    both.told("GET", path, &told);
    bed.network(Some("private")).await.unwrap();
    both.answers(path, &told).await;

    let path = "/compute/v2.1/flavors";
    let told = json!({"flavors": [{"id": "1", "name": "m1.tiny"}]});
    both.told("GET", path, &told);
    bed.flavor_called("m1.tiny").await.unwrap();
    both.answers(path, &told).await;
}
