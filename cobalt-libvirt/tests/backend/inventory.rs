//! How many calls it takes to know a host, and what is known.

use cobalt_core::{
    backend::{DomainState, HypervisorBackend},
    ids::InstanceId,
};
use cobalt_libvirt::testing::{Answer, Event, Server};

use super::fixture::{is_connected, next, replayed, until, uuid};

const XML: u32 = 14;
const LOOKUP: u32 = 24;
const GET_STATE: u32 = 212;
const LIST: u32 = 273;
const BULK: u32 = 344;

fn start_many(server: &Server, count: usize) {
    for number in 1..=count {
        server.start_domain(&format!("instance-{number}"), &uuid(number)).unwrap();
    }
}

#[tokio::test]
async fn three_hundred_domains_are_one_list_one_bulk_call_and_one_xml_each_and_only_once() {
    let (server, backend) = replayed("qemu-9.0").await;
    start_many(&server, 300);
    let mut events = backend.events();
    server.reset_counts();
    let domains = backend.inventory().await.unwrap();
    assert_eq!(domains.len(), 300);
    assert!(domains.is_sorted_by(|one, other| one.id < other.id));
    let calls = |procedure| server.count(procedure);
    assert_eq!([calls(LIST), calls(BULK), calls(XML), calls(GET_STATE)], [1, 1, 300, 0]);
    assert_eq!(calls(7), 1, "capabilities, for the accounting");

    // The events of the starts may still be on their way; they are all through once the last one is.
    until(&mut events, |event| format!("{event:?}").contains("instance-300\", event: Lifecycle(Started")).await;
    backend.inventory().await.unwrap();
    server.reset_counts();
    assert_eq!(backend.inventory().await.unwrap(), domains);
    assert_eq!(server.counts(), [(LIST, 1), (BULK, 1)].into(), "at rest two calls are the whole inventory");
}

#[tokio::test]
async fn xml_is_read_again_after_an_event_a_new_number_or_a_new_connection_and_only_then() {
    let (server, backend) = replayed("qemu-9.0").await;
    start_many(&server, 3);
    let mut events = backend.events();
    assert!(is_connected(&next(&mut events).await));
    backend.inventory().await.unwrap();
    let reads = async || {
        server.reset_counts();
        backend.inventory().await.unwrap();
        server.count(XML)
    };
    // Whatever events of the starts come late have come by the end of a round trip or two.
    while reads().await > 0 {}

    let domain = server.domains().remove(0);
    server.emit(&Event::device_removed(&domain, "net1"));
    until(&mut events, |event| format!("{event:?}").contains("DeviceRemoved")).await;
    assert_eq!(reads().await, 1, "an event of one domain");
    assert_eq!(reads().await, 0);

    let xml = "<domain type='kvm'><name>x</name><uuid>55555555-bbbb-4000-8000-000000000002</uuid></domain>";
    server.put_domain(xml, true).unwrap();
    assert_eq!(reads().await, 1, "a domain that runs under another number");

    server.stop().await;
    server.start().await.unwrap();
    until(&mut events, |event| matches!(event, cobalt_core::backend::BackendEvent::Disconnected(_))).await;
    until(&mut events, is_connected).await;
    assert_eq!(reads().await, 3, "a new connection");
}

#[tokio::test]
async fn a_domain_that_vanishes_between_the_list_and_its_xml_is_left_out() {
    let (server, backend) = replayed("test-9.0").await;
    start_many(&server, 3);
    server.next(XML, Answer::error(42, 12, "Domain not found"));
    assert_eq!(backend.inventory().await.unwrap().len(), 2);
}

#[tokio::test]
async fn xml_that_makes_no_sense_does_not_make_a_domain_disappear() {
    let (server, backend) = replayed("qemu-9.0").await;
    start_many(&server, 1);
    server.next(XML, Answer::ok(cobalt_libvirt::testing::Writer::new().string("<domain").finish()));
    let strange = backend.inventory().await.unwrap();
    assert_eq!((strange.len(), strange[0].state), (1, DomainState::Running));
    assert!(strange[0].memory_bytes > 0, "the daemon knew that much");
    let sensible = backend.inventory().await.unwrap();
    assert_eq!((sensible[0].vcpus, sensible[0].memory_bytes), (1, 256 << 20));
}

#[tokio::test]
async fn a_driver_without_bulk_statistics_is_asked_for_states_side_by_side() {
    let (server, backend) = replayed("ch-11.3").await;
    start_many(&server, 40);
    server.reset_counts();
    assert_eq!(backend.inventory().await.unwrap().len(), 40);
    let calls = |procedure| server.count(procedure);
    assert_eq!([calls(LIST), calls(BULK), calls(XML), calls(GET_STATE)], [1, 0, 40, 40]);
}

#[tokio::test]
async fn pinned_memory_and_cpus_are_accounted_to_the_cells_of_the_host() {
    let (server, backend) = replayed("test-9.0").await;
    let xml = format!(
        "<domain type='test'><name>pinned</name><uuid>{}</uuid><memory unit='MiB'>64</memory><vcpu>2</vcpu>\
         <cputune><vcpupin vcpu='0' cpuset='0-3'/><vcpupin vcpu='1' cpuset='8'/></cputune>\
         <numatune><memory mode='strict' nodeset='1'/></numatune></domain>",
        uuid(1)
    );
    server.put_domain(&xml, true).unwrap();
    let domain = backend.domain(&InstanceId::from(uuid(1))).await.unwrap();
    let shares: Vec<_> = domain.cells.iter().map(|share| (share.cell, share.memory_bytes, share.cpu_millis)).collect();
    assert_eq!(shares, [(0, 0, 1000), (1, 64 << 20, 1000)]);
    assert_eq!(backend.inventory().await.unwrap(), [domain]);
}

#[tokio::test]
async fn one_domain_is_a_lookup_a_state_and_its_xml_if_that_is_not_known() {
    let (server, backend) = replayed("ch-11.3").await;
    start_many(&server, 1);
    let id = InstanceId::from(uuid(1));
    let mut events = backend.events();
    let first = backend.domain(&id).await.unwrap();
    while {
        server.reset_counts();
        assert_eq!(backend.domain(&id).await.unwrap(), first);
        server.count(XML) > 0
    } {}
    assert_eq!((server.count(LOOKUP), server.count(GET_STATE), server.count(XML)), (1, 1, 0));
    assert!(is_connected(&next(&mut events).await));
    let domain = server.domains().remove(0);
    server.set_state(&domain, 3, 5);
    assert_eq!(backend.domain(&id).await.unwrap().state, DomainState::PausedOnIoError, "states are never remembered");
    for nobody in ["not a uuid", "00000000-0000-0000-0000-000000000000"] {
        assert!(backend.domain(&InstanceId::from(nobody)).await.unwrap_err().is_not_found(), "{nobody}");
    }
}
