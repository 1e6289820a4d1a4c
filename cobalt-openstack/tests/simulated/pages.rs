//! Lists that do not fit into one page.

use std::collections::BTreeSet;

use cobalt_core::nova::{BlockMigration, GroupPolicy};
use cobalt_openstack::{NovaClient, Options, TestBed};
use cobalt_sim::{Region, World};

use super::{Served, quick};

async fn served(hosts: usize, vms: usize) -> Served {
    Served::start(Region::builder().hosts(hosts).vms_per_host(vms).build()).await
}

#[tokio::test]
async fn all_pages_together_are_the_whole_list() {
    const ROUTE: &str = "GET /compute/v2.1/servers/detail";
    let served = served(2, 21).await;
    let host = served.region.hosts().remove(0);
    for (page_size, requests) in [(1000, 1), (21, 2), (20, 2), (7, 4), (1, 22)] {
        served.api.counters().reset();
        let nova = served.connect_with(Options { page_size, ..quick() }).await.nova();
        let all = nova.servers_on(&host).await.unwrap();
        let ids: BTreeSet<_> = all.iter().map(|server| &server.id).collect();
        assert_eq!((all.len(), ids.len()), (21, 21), "pages of {page_size}");
        // A page that is full says that there may be more.
        assert_eq!(served.api.counters().of(ROUTE), requests, "pages of {page_size}");
    }
}

#[tokio::test]
async fn a_cloud_may_have_smaller_pages_than_were_asked_for() {
    let served = served(10, 1).await;
    served.api.set_page_size(4);
    let openstack = served.connect().await;
    let hypervisors = openstack.nova().hypervisors().await.unwrap();
    assert_eq!(hypervisors.len(), 10);
    assert!(hypervisors.iter().all(|hypervisor| hypervisor.servers.is_none()), "which nobody asked for");
    assert_eq!(served.api.counters().of("GET /compute/v2.1/os-hypervisors/detail"), 3);
    assert_eq!(openstack.test_bed().flavor_called("m1.wide").await.unwrap(), "6", "on the second page");
}

#[tokio::test]
async fn migrations_come_in_pages_and_the_newest_first() {
    let served = served(2, 5).await;
    let nova = served.connect_with(Options { page_size: 2, ..quick() }).await.nova();
    let host = served.region.hosts().remove(0);
    let servers = nova.servers_on(&host).await.unwrap();
    for server in &servers {
        nova.live_migrate(&server.id, None, BlockMigration::Auto).await.unwrap();
    }
    let all = nova.migrations(&host).await.unwrap();
    let asked: Vec<_> = servers.iter().rev().map(|server| &server.id).collect();
    assert_eq!(all.iter().map(|migration| &migration.server).collect::<Vec<_>>(), asked);
    assert_eq!(served.api.counters().of("GET /compute/v2.1/os-migrations"), 3);
}

#[tokio::test]
async fn server_groups_are_counted_off_because_their_list_links_to_no_next_page() {
    let served = served(1, 5).await;
    let world = served.region.world();
    let mut made: Vec<String> = (0..5).map(|n| group(world, &format!("group-{n}"))).collect();
    made.sort();
    for (page_size, limit, requests) in [(1000, 1000, 2), (2, 1000, 4), (1000, 2, 4)] {
        served.api.set_page_size(limit);
        served.api.counters().reset();
        let nova = served.connect_with(Options { page_size, ..quick() }).await.nova();
        let ids: Vec<String> = nova.server_groups().await.unwrap().into_iter().map(|group| group.id).collect();
        assert_eq!(ids, made, "pages of {page_size}, of {limit} at most");
        assert_eq!(served.api.counters().of("GET /compute/v2.1/os-server-groups"), requests);
    }
}

fn group(world: &World, name: &str) -> String {
    world.add_server_group(name, GroupPolicy::Affinity, &world.servers()[..1]).unwrap()
}
