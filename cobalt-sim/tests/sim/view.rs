//! The region view on a simulated region: what it costs, and what it sees.

use std::{sync::Arc, time::Duration};

use cobalt_core::{
    ids::HostName,
    nova::{
        NovaClient, TraitChange, change_traits,
        view::{Part, RegionView, ViewOptions},
    },
};
use cobalt_sim::{Region, SimNova, SimPlacement, faults::Failure};
use tokio::time::{Instant, sleep};

fn view(region: &Region) -> (Arc<RegionView>, SimNova, SimPlacement) {
    let (nova, placement) = (region.nova(), region.placement());
    let view = RegionView::new(Arc::new(nova.clone()), Arc::new(placement.clone()), ViewOptions::default());
    tokio::spawn(view.clone().run());
    (view, nova, placement)
}

fn calls(nova: &SimNova, placement: &SimPlacement) -> u64 {
    nova.faults().all_calls().values().chain(placement.faults().all_calls().values()).sum()
}

/// The calls of ten minutes at rest, by kind: regional ones, and those for traits.
async fn calls_at_rest(hosts: usize) -> (u64, u64) {
    let region = Region::builder().hosts(hosts).vms_per_host(1).build();
    let (view, nova, placement) = view(&region);
    // Everything was seen, traits too, and nothing is new any more.
    while view.snapshot().trait_age(Instant::now()).is_none() {
        sleep(Duration::from_secs(1)).await;
    }
    let before = (calls(&nova, &placement), placement.faults().calls("traits"));
    sleep(Duration::from_secs(600)).await;
    let traits = placement.faults().calls("traits") - before.1;
    (calls(&nova, &placement) - before.0 - traits, traits)
}

#[tokio::test(start_paused = true)]
async fn calls_at_rest_do_not_grow_with_the_number_of_hosts() {
    let (few, few_traits) = calls_at_rest(3).await;
    let (many, many_traits) = calls_at_rest(400).await;
    assert!(few.abs_diff(many) <= 3, "{few} calls for 3 hosts, {many} for 400");
    assert!(many <= 63, "{many} calls in ten minutes");
    assert!(few_traits <= 9, "{few_traits} reads of traits for 3 hosts");
    assert!(many_traits <= 601, "{many_traits} reads of traits for 400 hosts are more than one a second");
}

#[tokio::test(start_paused = true)]
async fn what_we_wrote_is_seen_without_waiting_for_the_interval() {
    let region = Region::builder().hosts(3).vms_per_host(1).build();
    let (view, nova, placement) = view(&region);
    let seen = view.relisted(Part::Services).await;
    let host = region.hosts()[1].clone();
    let service = seen.service_on(&host).unwrap();
    assert!(service.enabled);
    nova.disable_service(&service.id, "maintenance").await.unwrap();
    let written = Instant::now();
    let seen = view.relisted(Part::Services).await;
    assert!(!seen.service_on(&host).unwrap().enabled);
    assert!(written.elapsed() < Duration::from_secs(1), "{:?}", written.elapsed());

    let seen = view.relisted(Part::Hypervisors).await;
    let provider = seen.hypervisor_on(&host).unwrap().id.clone();
    sleep(Duration::from_secs(10)).await;
    let add = TraitChange { add: ["CUSTOM_NEW".to_owned()].into(), ..TraitChange::default() };
    change_traits(&placement, &provider, &add).await.unwrap();
    view.touch_traits(&provider);
    sleep(Duration::from_secs(2)).await;
    let seen = view.snapshot();
    let (traits, age) = seen.aged_traits_of(&provider, Instant::now()).unwrap();
    assert!(traits.names.contains("CUSTOM_NEW") && age < Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn drift_made_by_hand_is_seen_within_the_interval() {
    let region = Region::builder().hosts(2).build();
    let (view, nova, _) = view(&region);
    let host = region.hosts()[0].clone();
    let id = view.relisted(Part::Services).await.service_on(&host).unwrap().id.clone();
    nova.disable_service(&id, "by hand").await.unwrap();
    sleep(ViewOptions::default().interval + Duration::from_secs(1)).await;
    assert_eq!(view.snapshot().service_on(&host).unwrap().disabled_reason.as_deref(), Some("by hand"));
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_does_not_answer_leaves_the_last_view_and_its_age_grows() {
    let region = Region::builder().hosts(2).build();
    let (view, nova, _) = view(&region);
    view.relisted(Part::Aggregates).await;
    sleep(Duration::from_secs(5)).await;
    region.world().set_nova_available(false);
    let before = nova.faults().calls("services");
    sleep(Duration::from_secs(600)).await;
    let seen = view.snapshot();
    assert!(seen.is_complete() && seen.service_on(&region.hosts()[0]).is_some());
    assert!(seen.age(Part::Services, Instant::now()).unwrap() > Duration::from_secs(570));
    let tried = nova.faults().calls("services") - before;
    assert!((10..=30).contains(&tried), "{tried} attempts in ten minutes");
    region.world().set_nova_available(true);
    sleep(Duration::from_secs(45)).await;
    assert!(view.snapshot().age(Part::Services, Instant::now()).unwrap() < Duration::from_secs(45));
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_asks_for_patience_gets_it() {
    let region = Region::builder().hosts(2).build();
    let (view, nova, _) = view(&region);
    nova.faults().fail_next("services", Failure::Busy(Duration::from_secs(100)));
    sleep(Duration::from_secs(99)).await;
    assert_eq!(nova.faults().calls("services"), 1);
    assert!(view.snapshot().services.is_none() && view.snapshot().hypervisors.is_some());
    sleep(Duration::from_secs(3)).await;
    assert!(view.snapshot().is_complete());
}

#[tokio::test(start_paused = true)]
async fn a_host_without_a_provider_does_not_make_the_view_look_unfinished() {
    let region = Region::builder().hosts(2).build();
    let (view, _, placement) = view(&region);
    placement.faults().fail_any(1, Failure::NotFound);
    sleep(Duration::from_secs(5)).await;
    let seen = view.snapshot();
    assert!(seen.trait_age(Instant::now()).is_some());
    let known = seen.hypervisors.as_ref().unwrap().items().iter();
    let with_traits = known.filter(|one| seen.traits_of(&one.id).is_some()).count();
    assert_eq!(with_traits, 1);
}

#[tokio::test(start_paused = true)]
async fn hosts_are_found_by_their_whole_names() {
    let region = Region::builder().named(["hv-1", "hv-10", "hv-1.a.example"]).build();
    let (view, _, _) = view(&region);
    view.relisted(Part::Hypervisors).await;
    let seen = view.relisted(Part::Services).await;
    for host in region.hosts() {
        assert_eq!(seen.service_on(&host).unwrap().host, host);
        assert_eq!(seen.hypervisor_on(&host).unwrap().host, host);
    }
    assert!(seen.service_on(&HostName::from("hv")).is_none());
}

#[tokio::test(start_paused = true)]
async fn what_keeps_the_region_from_being_seen_can_be_told_until_it_is_over() {
    let region = Region::builder().hosts(1).vms_per_host(1).build();
    let nova = region.nova();
    nova.faults().fail_next("services", Failure::Denied);
    let view = RegionView::new(Arc::new(nova), Arc::new(region.placement()), ViewOptions::default());
    assert_eq!(view.trouble(), None, "nothing was tried yet");
    tokio::spawn(view.clone().run());
    while view.trouble().is_none() {
        sleep(Duration::from_millis(100)).await;
    }
    let trouble = view.trouble().unwrap();
    assert!(trouble.starts_with("list compute services: permission denied"), "{trouble}");
    view.relisted(Part::Services).await;
    assert_eq!(view.trouble(), None);
}
