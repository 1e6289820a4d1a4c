//! Room elsewhere, and limits of what moves there.

use super::*;

#[tokio::test(start_paused = true)]
async fn one_shape_that_placement_refuses_holds_no_other_server_up() {
    let rig = Rig::new(Region::builder().hosts(3).vms_per_host(0).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.region.world().add_flavor(Flavor::new("odd", "o1", 1, 1024));
    let (odd, other) = (rig.region.boot(&host, "odd").unwrap(), rig.region.boot(&host, "2").unwrap());
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    // The first to be asked about is the first by its id.
    let (refused, moves) = if odd < other { (odd, other) } else { (other, odd) };
    rig.placement.faults().fail_next("candidates", Failure::Refused);
    rig.drains(settings(|drain| (drain.concurrency, drain.target_concurrency) = (1, 1)));
    rig.evict(host.as_str(), &host).await;
    let told = rig
        .until_eviction(host.as_str(), "at the other one", |found| {
            instances(found).get(moves.as_str()).is_some_and(|one| one.state == InstanceState::Moved)
        })
        .await;
    assert_eq!(instances(&told)[refused.as_str()].state, InstanceState::Pending);
    let said = message(&told, EVICTING).unwrap();
    assert!(said.contains("no target can be chosen for 1 instance") && said.contains("injected fault"), "{said}");
    rig.drained(host.as_str()).await;
}
