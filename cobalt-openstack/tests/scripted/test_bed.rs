//! Images, networks, flavors and left-over servers by their names.

use cobalt_core::nova::ServerName;
use cobalt_openstack::{NovaClient, OpenStack, Options, TestBed, testing::Reply, testing::ScriptedCloud};
use serde_json::json;

use super::{connected, quick};

async fn bed() -> (ScriptedCloud, cobalt_openstack::Bed) {
    let cloud = ScriptedCloud::start().await.unwrap();
    let openstack = OpenStack::connect_with(&cloud.cloud(), quick(), None).await.unwrap();
    (cloud, openstack.test_bed())
}

#[tokio::test]
async fn an_image_is_the_newest_of_exactly_its_name() {
    let (cloud, bed) = bed().await;
    let images = json!({"images": [
        {"id": "i0", "name": null}, {"id": "i1", "name": "cirros-kvm"}, {"id": "i2", "name": "cirros"}, {"id": "i3", "name": "cirros"},
    ]});
    cloud.on("GET", "/image/v2/images", [Reply::json(images.to_string())]);
    assert_eq!(bed.image_named("cirros").await.unwrap(), "i2");
    assert_eq!(bed.image_named("cirro").await.unwrap_err().category(), "not_found");
    let seen = &cloud.requests("/image/v2/images")[0];
    assert_eq!(seen.query, "name=cirros&status=active&sort=created_at%3Adesc");
    assert_eq!(seen.header("openstack-api-version"), "", "Glance has no microversions");
}

#[tokio::test]
async fn a_network_without_a_name_is_one_of_our_project() {
    let (cloud, bed) = bed().await;
    let path = "/network/v2.0/networks";
    let networks = json!({"networks": [
        {"id": "n1", "name": "a", "shared": true}, {"id": "n2", "name": "b", "router:external": true},
        {"id": "n4", "name": "d", "shared": false}, {"id": "n3", "name": "c", "shared": false},
    ]});
    cloud.on("GET", path, [Reply::json(networks.to_string())]);
    assert_eq!(bed.network(None).await.unwrap().as_deref(), Some("n3"));
    assert_eq!(cloud.requests(path)[0].query, "project_id=p1&shared=false&router%3Aexternal=false");
    assert_eq!(bed.network(Some("a")).await.unwrap().as_deref(), Some("n1"), "by name it may be shared");
    assert_eq!(bed.network(Some("x")).await.unwrap_err().category(), "not_found");
    cloud.on("GET", path, [Reply::json(r#"{"networks": []}"#)]);
    assert_eq!(bed.network(None).await.unwrap(), None);
}

#[tokio::test]
async fn a_cloud_without_glance_says_so_when_it_is_asked() {
    let (cloud, _, _) = connected(quick()).await;
    let endpoints =
        json!([{"interface": "public", "region": "RegionOne", "url": format!("http://{}/x", cloud.address())}]);
    cloud.set_catalog(
        json!([{"type": "compute", "endpoints": endpoints}, {"type": "placement", "endpoints": endpoints}]),
    );
    let bed = OpenStack::connect_with(&cloud.cloud(), quick(), None).await.unwrap().test_bed();
    let error = bed.image_named("cirros").await.unwrap_err();
    assert_eq!(error.category(), "configuration");
    let wanted =
        "get image named cirros: configured wrongly: the catalog has no public endpoint of image in region RegionOne";
    assert!(error.to_string().starts_with(wanted), "{error}");
}

#[tokio::test]
async fn a_name_is_no_pattern_however_nova_takes_it() {
    let (cloud, nova, _) = connected(Options { page_size: 10, ..quick() }).await;
    let path = "/compute/v2.1/servers/detail";
    let server = |id: &str, name: &str| json!({"id": id, "name": name, "status": "ACTIVE", "image": "", "flavor": {}});
    let servers = [server("2", "smoke-hv-1"), server("1", "smoke-hv-10"), server("0", "a-smoke-hv-1")];
    cloud.on("GET", path, [Reply::json(json!({"servers": servers}).to_string())]);
    let ids = |found: Vec<cobalt_core::nova::Server>| {
        found.into_iter().map(|server| server.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids(nova.servers_named(&ServerName::Exactly("smoke-hv-1".into())).await.unwrap()), ["2"]);
    assert_eq!(ids(nova.servers_named(&ServerName::StartingWith("smoke-hv-1".into())).await.unwrap()), ["1", "2"]);
    nova.servers_named(&ServerName::Exactly("a|(smoke.*".into())).await.unwrap();
    let queries: Vec<String> = cloud.requests(path).into_iter().map(|seen| seen.query).collect();
    assert_eq!(queries, ["name=smoke-hv-1&limit=10", "name=smoke-hv-1&limit=10", "name=smoke&limit=10"]);
}
