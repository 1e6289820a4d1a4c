//! The region view on a real cloud.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use cobalt_core::{
    ids::HostName,
    nova::{
        NovaClient, TraitChange, change_traits,
        view::{Part, RegionView, ViewOptions},
    },
};
use cobalt_openstack::{CallRecord, OpenStack, Options};
use tokio::time::Instant;

use super::rig::{HOSTS, Turn, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_view_sees_a_real_region_with_one_call_per_part() {
    let Some(turn) = tokio::task::block_in_place(|| Turn::wait("a_view_sees_a_real_region_with_one_call_per_part"))
    else {
        return;
    };
    let calls: Arc<Mutex<BTreeMap<&'static str, u32>>> = Arc::default();
    let count = calls.clone();
    let observer = move |record: &CallRecord| *count.lock().unwrap().entry(record.call).or_default() += 1;
    let openstack = OpenStack::connect_with(&turn.cloud(), Options::default(), Some(Arc::new(observer))).await.unwrap();
    let (nova, placement) = (Arc::new(openstack.nova()), Arc::new(openstack.placement()));
    let view = RegionView::new(nova.clone(), placement.clone(), ViewOptions::default());
    let watch = tokio::spawn(view.clone().run());
    until("the whole region to be seen", || async { view.snapshot().trait_age(Instant::now()).is_some() }).await;
    let seen = view.snapshot();
    let calls = calls.lock().unwrap().clone();
    // A slow machine may need longer than the interval for the first round; each part is one call a round.
    assert!(calls["services"].abs_diff(calls["hypervisors"]) <= 1, "in the middle of a round, or after one: {calls:?}");
    assert!(calls["services"] <= 3 && u64::from(calls["traits"]) >= HOSTS.len() as u64, "{calls:?}");
    for name in HOSTS {
        let host = HostName::from(name);
        let hypervisor = seen.hypervisor_on(&host).unwrap();
        assert_eq!(seen.service_on(&host).unwrap().id, hypervisor.service);
        let traits = seen.traits_of(&hypervisor.id).unwrap();
        assert!(traits.names.contains("COMPUTE_NODE"), "{traits:?}");
    }

    let host = HostName::from("hv-2");
    let id = seen.service_on(&host).unwrap().id.clone();
    nova.disable_service(&id, "seen at once").await.unwrap();
    let seen = view.relisted(Part::Services).await;
    assert_eq!(seen.service_on(&host).unwrap().disabled_reason.as_deref(), Some("seen at once"));
    nova.enable_service(&id).await.unwrap();

    let provider = &seen.hypervisor_on(&host).unwrap().id;
    let add = TraitChange { add: ["CUSTOM_SEEN".to_owned()].into(), ..TraitChange::default() };
    change_traits(&*placement, provider, &add).await.unwrap();
    view.touch_traits(provider);
    until("the new trait to be seen", || async {
        let seen = view.snapshot();
        seen.traits_of(provider).is_some_and(|traits| traits.names.contains("CUSTOM_SEEN"))
    })
    .await;
    let remove = TraitChange { remove: add.add, ..TraitChange::default() };
    change_traits(&*placement, provider, &remove).await.unwrap();
    watch.abort();
}
