//! The life of hosts: into the cloud, through a reboot, and out of it again.

use std::collections::BTreeSet;

use cobalt_core::{
    agent::{EVACUATE_ON_REBOOT, REBOOT_REASON},
    api::labels,
    ids::HostName,
    kube::ResourceExt,
};
use cobalt_rig::{ControlPlane, SeenService};
use serde_json::json;

use crate::{
    HOSTS,
    world::{World, ZONE, is_onboarded, reason},
};

#[tokio::test(flavor = "multi_thread")]
async fn nodes_become_hosts_of_the_cloud_and_one_leaves_without_a_trace() {
    let test = "nodes_become_hosts_of_the_cloud_and_one_leaves_without_a_trace";
    let Some(world) = World::new(test, &["--eviction-concurrency", "4"]).await else { return };
    hosts_are_tried_before_they_are_used(&world).await;
    traits_and_aggregates_follow_the_node_and_leave_alone_what_is_by_hand(&world).await;
    a_reboot_waits_until_the_servers_have_left(&world, "hv-2.rack-a.example").await;
    a_terminated_host_leaves_without_a_trace(&world, "hv-1").await;
}

async fn hosts_are_tried_before_they_are_used(world: &World) {
    // What a host is tried with must say its name, so it stays for as long as it does not.
    world.cloud(|plane| HOSTS.iter().try_for_each(|host| plane.compute(host).mute_guests()));
    world.join("true").await;
    let traits = ["CUSTOM_COBALT_NVME,CUSTOM_COBALT_GOLD", "CUSTOM_COBALT_NVME", ""];
    for ((host, aggregates), traits) in HOSTS.into_iter().zip(["gold", "silver", ""]).zip(traits) {
        let host = HostName::from(host);
        world.cluster.annotate(&host, labels::AGGREGATES_ANNOTATION, Some(aggregates)).await.unwrap();
        world.cluster.annotate(&host, labels::CUSTOM_TRAITS_ANNOTATION, Some(traits)).await.unwrap();
    }
    for host in HOSTS {
        let tried = world.until_hypervisor(host, "tried", |it| reason(it, "Onboarding") == "Testing").await;
        let server = format!("ohooc--{host}-{}", tried.uid().unwrap());
        let runs = || world.plane.compute(host).guests().iter().any(|guest| guest.server == server);
        let inside = world
            .until(&format!("the aggregates of {host} while it runs {server}"), async || {
                let inside = runs().then(|| world.aggregates_of(host))?;
                // Asking takes time; meanwhile it may have been given up and made anew.
                runs().then_some(inside)
            })
            .await;
        let kept_apart: BTreeSet<&str> = [ZONE, labels::TEST_AGGREGATE].into();
        assert_eq!(
            inside.iter().map(String::as_str).collect::<BTreeSet<_>>(),
            kept_apart,
            "nobody else is let on {host}"
        );
    }
    world.cloud(|plane| HOSTS.iter().try_for_each(|host| plane.compute(host).unmute_guests()));
    for host in HOSTS {
        let hypervisor = world.until_hypervisor(host, "onboarded", is_onboarded).await;
        let status = hypervisor.status.clone().unwrap();
        assert_eq!(status.hypervisor_id, Some(world.provider(host)), "exactly {host}");
        let service = world.service(host);
        assert_eq!(status.service_id.as_ref(), Some(&service.id), "exactly {host}");
        assert!(service.enabled && !service.forced_down, "{service:?}");
        assert_eq!(world.servers_on(host), [], "what it was tried with is gone");
    }
    let aggregates = HOSTS.map(|host| world.aggregates_of(host).join(" "));
    assert_eq!(aggregates, ["gold zone-a", "silver zone-a", "zone-a"]);
    let traits = HOSTS.map(|host| world.custom_traits_of(host).join(" "));
    assert_eq!(traits, ["CUSTOM_COBALT_GOLD CUSTOM_COBALT_NVME", "CUSTOM_COBALT_NVME", ""]);
}

async fn traits_and_aggregates_follow_the_node_and_leave_alone_what_is_by_hand(world: &World) {
    let (provider, name) = (world.provider("hv-1"), HostName::from("hv-1"));
    world.cloud(|plane| {
        plane.api("PUT", "placement", "/traits/CUSTOM_BY_HAND", None)?;
        let path = format!("/resource_providers/{provider}/traits");
        let (_, mut body) = plane.api("GET", "placement", &path, None)?;
        body["traits"].as_array_mut().unwrap().push("CUSTOM_BY_HAND".into());
        assert_eq!(plane.api("PUT", "placement", &path, Some(&body))?.0, 200);
        let by_hand = plane.add_aggregate("by-hand", None)?;
        let body = json!({"add_host": {"host": "hv-1"}});
        assert_eq!(plane.api("POST", "compute", &format!("/os-aggregates/{by_hand}/action"), Some(&body))?.0, 200);
        Ok(())
    });
    let traits = Some("CUSTOM_COBALT_NVME,CUSTOM_COBALT_SSD");
    world.cluster.annotate(&name, labels::CUSTOM_TRAITS_ANNOTATION, traits).await.unwrap();
    world.cluster.annotate(&name, labels::AGGREGATES_ANNOTATION, Some("silver")).await.unwrap();
    world
        .until("the changes of the Node of hv-1 in the cloud", async || {
            let traits = world.custom_traits_of("hv-1").join(" ");
            let aggregates = world.aggregates_of("hv-1").join(" ");
            (traits == "CUSTOM_BY_HAND CUSTOM_COBALT_NVME CUSTOM_COBALT_SSD" && aggregates == "by-hand silver zone-a")
                .then_some(())
        })
        .await;
    world
        .until_hypervisor("hv-1", "all of it said", |hypervisor| {
            let status = hypervisor.status.as_ref().unwrap();
            let applied: BTreeSet<&str> = status.aggregates().iter().map(|aggregate| aggregate.name.as_str()).collect();
            hypervisor.is_true("TraitsUpdated")
                && hypervisor.is_true("AggregatesUpdated")
                && applied == ["silver", ZONE].into()
        })
        .await;
}

async fn a_reboot_waits_until_the_servers_have_left(world: &World, host: &str) {
    let name = HostName::from(host);
    let servers = world.boot(host, 3);
    world.patch(host, json!({"evacuateOnReboot": true})).await;
    let held = |hypervisor: &_| reason(hypervisor, EVACUATE_ON_REBOOT) == "Ready";
    world.until_hypervisor(host, "reboots are watched", held).await;
    world
        .until_hypervisor(host, "its guests are seen", |hypervisor| {
            hypervisor.status.as_ref().is_some_and(|status| status.num_instances == Some(3))
        })
        .await;

    world.region.world().reboot(&name).unwrap();
    let drained =
        world.until_hypervisor(host, "out of service", |hypervisor| !hypervisor.spec.maintenance().is_off()).await;
    assert_eq!(drained.spec.maintenance_reason.as_deref(), Some(REBOOT_REASON));
    world
        .until(&format!("{host} goes down"), async || {
            (!world.region.world().host(&name).unwrap().running).then_some(())
        })
        .await;
    assert_eq!(world.plane.compute(host).guests(), [], "it has waited for its guests");
    world.assert_moved_once(host, &servers);
    world
        .until_hypervisor(host, "back in service", |hypervisor| {
            hypervisor.spec.maintenance().is_off() && hypervisor.is_true("Ready") && held(hypervisor)
        })
        .await;
    assert!(world.service(host).enabled);
}

async fn a_terminated_host_leaves_without_a_trace(world: &World, host: &str) {
    let name = HostName::from(host);
    let servers = world.boot(host, 2);
    let (provider, similar) = (world.provider(host), state_of(world, "hv-10"));
    assert!(world.cloud(|plane| plane.allocations(&provider)).len() >= 2);

    world.cluster.terminate(&name).await.unwrap();
    world.until_hypervisor(host, "offboarded", |hypervisor| hypervisor.is_true("Offboarded")).await;
    assert!(!world.plane.compute_runs(host), "its nova-compute was stopped before");
    world.assert_moved_once(host, &servers);
    let services: Vec<SeenService> = world.cloud(ControlPlane::services);
    assert!(!services.iter().any(|service| service.host == host), "{services:?}");
    let providers = world.cloud(ControlPlane::providers);
    assert!(!providers.iter().any(|one| one.name == host || one.id == provider), "{providers:?}");
    assert_eq!(world.aggregates_of(host), [""; 0]);
    for server in &servers {
        let (_, body) = world.cloud(|plane| plane.api("GET", "placement", &format!("/allocations/{server}"), None));
        let used: Vec<&String> = body["allocations"].as_object().unwrap().keys().collect();
        assert!(used.len() == 1 && *used[0] != provider, "{server} uses {used:?}");
    }
    assert_eq!(state_of(world, "hv-10"), similar, "a host with a similar name is not touched");
    let hypervisor = world.hypervisor(host).await;
    assert_eq!((hypervisor.is_true("Ready"), reason(&hypervisor, "Ready")), (false, "Offboarded"));

    world.cluster.remove(&name).await.unwrap();
    world
        .until(&format!("{host} is gone with its Node"), async || {
            world.hypervisors().get_opt(host).await.unwrap().is_none().then_some(())
        })
        .await;
}

/// All that the cloud has of a host.
fn state_of(world: &World, host: &str) -> (SeenService, String, Vec<String>, Vec<String>) {
    (world.service(host), world.provider(host), world.aggregates_of(host), world.custom_traits_of(host))
}
