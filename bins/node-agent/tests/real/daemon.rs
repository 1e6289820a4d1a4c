//! A daemon that dies under the agent.

use cobalt_core::api::{Condition, condition_types::LIBVIRT_CONNECTION};
use cobalt_rig::Guest;

use crate::rig::{Region, lists, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_daemon_that_is_killed_is_told_and_what_was_known_stays_until_it_is_back() {
    let test = "a_daemon_that_is_killed_is_told_and_what_was_known_stays_until_it_is_back";
    let Some(region) = Region::up(test, 1).await else { return };
    let host = region.host(0);
    let (stays, dies, comes) = (Guest::new("stays"), Guest::new("dies"), Guest::new("comes"));
    start(host, &stays);
    start(host, &dies);
    let mut agent = region.agent(0, &host.unix(), &["--heartbeat-interval", "1h"]);
    region.until(0, "lists both", |found| lists(found, &stays, true) && lists(found, &dies, true)).await;
    let health = |lease: &k8s_openapi::api::coordination::v1::Lease| {
        lease.metadata.annotations.clone().unwrap_or_default().into_values().next().unwrap_or_default()
    };
    region.lease(0, "says that libvirt is well", |lease| health(lease) == "connected").await;

    host.kill_daemon().unwrap();
    let lost = region
        .until(0, "says that libvirt is gone", |found| {
            let condition = found.condition(LIBVIRT_CONNECTION);
            // First the connection is lost, then it cannot be made again; what is shown follows each time.
            condition.is_some_and(|condition| condition.is_false() && condition.reason == "ConnectFailed")
                && found.condition("InstancesCurrent").is_some_and(Condition::is_false)
        })
        .await;
    assert!(lists(&lost, &stays, true) && lists(&lost, &dies, true), "what was known is kept: {lost:#?}");
    // The beat is an hour away: the loss is no matter for it to wait.
    region.lease(0, "says that libvirt is gone", |lease| health(lease).starts_with("disconnected: ")).await;

    // Nobody hears of this.
    host.kill_guest("dies").unwrap();
    host.start_daemon().unwrap();
    region
        .until(0, "has the truth again", |found| {
            let current = found.is_true(LIBVIRT_CONNECTION) && found.is_true("InstancesCurrent");
            current && lists(found, &stays, true) && lists(found, &dies, false)
        })
        .await;
    region.lease(0, "says that libvirt is back", |lease| health(lease) == "connected").await;
    // Events are heard on the new connection.
    start(host, &comes);
    region.until(0, "lists the new one", |found| lists(found, &comes, true)).await;

    // And a daemon that is restarted in good order is no different.
    host.restart_daemon().unwrap();
    host.virsh(["destroy", "comes"]).unwrap();
    region.until(0, "follows on", |found| found.is_true(LIBVIRT_CONNECTION) && lists(found, &comes, false)).await;
    agent.signal("TERM");
    assert_eq!(agent.wait().code(), Some(0), "one process all the while: {}", agent.err());
}
