//! What is planned for the simulated handles strikes those who come over HTTP, and the client does what it shall.

use std::time::Duration;

use cobalt_core::{ids::InstanceId, nova::BlockMigration};
use cobalt_openstack::{Nova, NovaClient, Options, PlacementClient};
use cobalt_sim::{Region, faults::Failure};

use super::{Served, quick, until};

const SERVICES: &str = "GET /compute/v2.1/os-services";
const ACTION: &str = "POST /compute/v2.1/servers/{}/action";

async fn started() -> (Served, Nova) {
    let served = Served::start(Region::builder().hosts(2).vms_per_host(1).build()).await;
    let nova = served.connect().await.nova();
    (served, nova)
}

async fn a_server(served: &Served, nova: &Nova) -> InstanceId {
    nova.servers_on(&served.region.hosts()[0]).await.unwrap().remove(0).id
}

#[tokio::test]
async fn what_cannot_serve_now_is_asked_again() {
    let (served, nova) = started().await;
    let faults = served.api.nova().faults();
    faults.fail_next("services", Failure::Unavailable);
    assert_eq!(nova.services().await.unwrap().len(), 2);
    assert_eq!(served.api.counters().of(SERVICES), 2, "503, and then 200");

    let id = a_server(&served, &nova).await;
    faults.fail_next("live_migrate", Failure::Busy(Duration::ZERO));
    nova.live_migrate(&id, None, BlockMigration::Auto).await.unwrap();
    assert_eq!(served.api.counters().of(ACTION), 2, "429 says that nothing was done");
}

#[tokio::test]
async fn the_wish_to_wait_reaches_the_caller() {
    let (served, nova) = started().await;
    served.api.nova().faults().fail_next("services", Failure::Busy(Duration::from_secs(3600)));
    let error = nova.services().await.unwrap_err();
    let asked =
        matches!(&error, cobalt_core::Error::Unavailable { retry_after: Some(after), .. } if after.as_secs() == 3600);
    assert!(asked, "{error:?}");
}

#[tokio::test]
async fn each_failure_is_understood_as_what_it_is() {
    let (served, nova) = started().await;
    for (failure, category) in [
        (Failure::Internal, "unavailable"),
        (Failure::Conflict, "conflict"),
        (Failure::Refused, "refused"),
        (Failure::Denied, "denied"),
        (Failure::NotFound, "not_found"),
        (Failure::Malformed, "malformed"),
    ] {
        served.api.counters().reset();
        served.api.nova().faults().fail_next("services", failure);
        assert_eq!(nova.services().await.unwrap_err().category(), category, "{failure:?}");
        assert_eq!(served.api.counters().of(SERVICES), 1, "{failure:?}");
    }
    assert!(nova.services().await.is_ok());
}

#[tokio::test]
async fn a_lost_answer_is_not_asked_for_twice_if_twice_is_more_than_once() {
    let (served, nova) = started().await;
    let id = a_server(&served, &nova).await;
    served.api.nova().faults().lose_answer("live_migrate");
    assert!(nova.live_migrate(&id, None, BlockMigration::Auto).await.unwrap_err().is_transient());
    assert_eq!(served.api.counters().of(ACTION), 1);
    let records = nova.migrations(&served.region.hosts()[0]).await.unwrap();
    assert_eq!(records.len(), 1, "it was done all the same");

    let service = nova.services().await.unwrap().remove(0);
    served.api.nova().faults().lose_answer("disable_service");
    nova.disable_service(&service.id, "why not").await.unwrap();
    assert_eq!(served.api.counters().of("PUT /compute/v2.1/os-services/{}"), 2, "a change may be repeated");
}

#[tokio::test]
async fn a_cloud_that_hangs_is_given_up_and_found_again() {
    let (served, _) = started().await;
    let options = Options { attempt_timeout: Duration::from_secs(2), attempts: 2, ..quick() };
    let openstack = served.connect_with(options).await;
    served.api.placement().faults().hang();
    assert_eq!(openstack.placement().providers().await.unwrap_err().category(), "timeout");
    served.api.placement().faults().clear();
    until("an answer", || async { openstack.placement().providers().await.is_ok_and(|all| all.len() == 2) }).await;
}

#[tokio::test]
async fn an_outage_of_the_region_is_one_of_its_api() {
    let (served, _) = started().await;
    let openstack = served.connect_with(Options { attempts: 1, ..quick() }).await;
    served.region.world().set_nova_available(false);
    assert_eq!(openstack.nova().services().await.unwrap_err().category(), "unavailable");
    assert_eq!(openstack.placement().providers().await.unwrap_err().category(), "unavailable");
    let own = cobalt_core::nova::ServerName::Exactly("smoke".into());
    assert_eq!(openstack.nova().servers_named(&own).await.unwrap_err().category(), "unavailable", "also without any");
    served.region.world().set_nova_available(true);
    assert!(openstack.nova().services().await.is_ok());
}
