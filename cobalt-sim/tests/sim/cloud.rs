//! The cloud above the hosts: what Nova notices, and when.

use std::time::Duration;

use cobalt_core::{
    backend::{BackendEvent, DomainEvent, HypervisorBackend, JobOperation, JobOutcome},
    ids::{HostName, InstanceId, ServiceId},
    nova::{
        AfterEvacuation, BlockMigration, MigrationPhase, NovaClient, PlacementClient, ServerStatus, ServiceState,
        TaskState,
    },
};
use cobalt_sim::{Driver, Flavor, Region, SimNova, Timing, Violation};
use futures::{StreamExt, stream::BoxStream};

async fn service(nova: &SimNova, host: &HostName) -> (ServiceId, ServiceState) {
    let all = nova.services().await.unwrap();
    let mine = all.into_iter().find(|service| service.host == *host).unwrap();
    (mine.id, mine.state)
}

async fn wait(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

async fn first_server(nova: &SimNova, host: &HostName) -> InstanceId {
    nova.servers_on(host).await.unwrap().remove(0).id
}

#[tokio::test(start_paused = true)]
async fn a_dead_host_is_evacuated_and_returns_empty() {
    let region = Region::builder().hosts(3).vms_per_host(6).seed(5).build();
    let (world, nova, hosts) = (region.world(), region.nova(), region.hosts());
    let before: Vec<_> = nova.servers_on(&hosts[0]).await.unwrap().into_iter().map(|server| server.id).collect();

    world.power_cut(&hosts[0]).unwrap();
    let (id, state) = service(&nova, &hosts[0]).await;
    assert_eq!(state, ServiceState::Up, "Nova has not noticed yet");
    wait(61).await;
    assert_eq!(service(&nova, &hosts[0]).await.1, ServiceState::Down);
    let server = nova.server(&before[0]).await.unwrap();
    assert_eq!((server.status, server.powered), (ServerStatus::Active, true), "Nova knows no better");

    for server in &before {
        nova.evacuate(server, None, AfterEvacuation::Run).await.unwrap();
    }
    wait(5).await;
    assert_eq!(nova.servers_on(&hosts[0]).await.unwrap(), []);
    for server in &before {
        assert_eq!(world.whereabouts(server).len(), 1);
        assert_eq!(nova.server(server).await.unwrap().status, ServerStatus::Active);
    }
    assert_eq!(world.check(), []);

    world.power_on(&hosts[0]).unwrap();
    wait(70).await;
    assert_eq!(service(&nova, &hosts[0]).await.1, ServiceState::Up);
    assert_eq!(world.host(&hosts[0]).unwrap().active_vms, 0);
    nova.delete_service(&id).await.unwrap();
    assert_eq!(world.check(), []);
}

#[tokio::test(start_paused = true)]
async fn evacuating_a_host_that_only_hangs_makes_a_vm_run_twice_and_the_world_tells() {
    let region = Region::builder().hosts(2).vms_per_host(1).build();
    let (world, nova, hosts) = (region.world(), region.nova(), region.hosts());
    let server = first_server(&nova, &hosts[0]).await;
    world.hang(&hosts[0]).unwrap();
    wait(61).await;
    nova.evacuate(&server, None, AfterEvacuation::Run).await.unwrap();
    wait(5).await;
    let split = Violation::SplitBrain { vm: server.clone(), hosts: hosts.clone() };
    assert_eq!(world.check(), [split]);
    assert_eq!(world.whereabouts(&server), hosts);
}

#[tokio::test(start_paused = true)]
async fn live_migrations_of_a_host_queue_and_none_is_lost() {
    let region = Region::builder().hosts(3).vms_per_host(5).seed(2).build();
    let (world, nova, hosts) = (region.world(), region.nova(), region.hosts());
    let servers: Vec<_> = nova.servers_on(&hosts[0]).await.unwrap().into_iter().map(|server| server.id).collect();
    let (id, _) = service(&nova, &hosts[0]).await;
    nova.disable_service(&id, "drain").await.unwrap();
    for server in &servers {
        nova.live_migrate(server, None, BlockMigration::Auto).await.unwrap();
    }
    wait(2).await;
    let phases: Vec<_> =
        nova.migrations(&hosts[0]).await.unwrap().into_iter().map(|migration| migration.phase).collect();
    assert_eq!(phases.iter().filter(|phase| **phase == MigrationPhase::Queued).count(), 4);
    assert_eq!(world.check(), []);
    wait(120).await;
    assert_eq!(nova.servers_on(&hosts[0]).await.unwrap(), []);
    assert_eq!(world.check(), []);
    assert_eq!(world.planned(), 0, "nothing is left to happen");
}

#[tokio::test(start_paused = true)]
async fn both_hosts_tell_of_a_live_migration_in_the_order_libvirt_does() {
    let region = Region::builder().hosts(2).vms_per_host(1).build();
    let (nova, hosts) = (region.nova(), region.hosts());
    let server = first_server(&nova, &hosts[0]).await;
    let (source, target) = (region.backend(&hosts[0]).unwrap(), region.backend(&hosts[1]).unwrap());
    let (left, came) = (source.events(), target.events());
    nova.live_migrate(&server, None, BlockMigration::Auto).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1300)).await;
    let job = source.job(&server).await.unwrap().unwrap();
    assert_eq!((job.operation, job.outcome), (JobOperation::MigrationOut, JobOutcome::Running));
    assert!(job.memory.remaining > Some(0) && job.memory.processed > Some(0), "{job:?}");
    wait(60).await;

    let names = |events: BoxStream<'static, BackendEvent>| async {
        let told = events.filter_map(|event| async {
            match event {
                BackendEvent::Domain { event: DomainEvent::Lifecycle(step), .. } => Some(format!("{step:?}")),
                BackendEvent::Domain { event, .. } => Some(format!("{:?}", event.kind())),
                _ => None,
            }
        });
        // Nothing more comes: the region is at rest.
        told.take_until(tokio::time::sleep(Duration::from_secs(1))).collect::<Vec<String>>().await
    };
    let order =
        ["MigrationIteration", "MigrationIteration", "SuspendedByMigration", "Migrated", "JobCompleted", "Undefined"];
    assert_eq!(names(left).await, order);
    assert_eq!(names(came).await, ["StartedByMigration", "Defined", "ResumedByMigration"]);
}

#[tokio::test(start_paused = true)]
async fn a_migration_made_to_fail_leaves_everything_as_it_was() {
    let region = Region::builder().hosts(2).vms_per_host(1).build();
    let (world, nova, hosts) = (region.world(), region.nova(), region.hosts());
    let server = first_server(&nova, &hosts[0]).await;
    world.fail_migrations(1, "the guest dirties its memory too fast");
    nova.live_migrate(&server, None, BlockMigration::Auto).await.unwrap();
    wait(60).await;
    let found = nova.server(&server).await.unwrap();
    assert_eq!((found.status, found.host), (ServerStatus::Active, Some(hosts[0].clone())));
    assert_eq!(nova.migrations(&hosts[0]).await.unwrap()[0].phase, MigrationPhase::Failed);
    assert_eq!(world.check(), []);
    nova.live_migrate(&server, None, BlockMigration::Auto).await.unwrap();
    wait(60).await;
    assert_eq!(nova.server(&server).await.unwrap().host, Some(hosts[1].clone()));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_dies_during_a_migration_leaves_a_server_that_must_be_reset() {
    let region = Region::builder().hosts(3).vms_per_host(1).build();
    let (world, nova, hosts) = (region.world(), region.nova(), region.hosts());
    let server = first_server(&nova, &hosts[0]).await;
    nova.live_migrate(&server, None, BlockMigration::Auto).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    world.power_cut(&hosts[0]).unwrap();
    wait(61).await;
    let stuck = nova.server(&server).await.unwrap();
    assert_eq!((stuck.status, stuck.task), (ServerStatus::Migrating, Some(TaskState::Migrating)));
    let refused = nova.evacuate(&server, None, AfterEvacuation::Run).await.unwrap_err();
    assert_eq!(refused.category(), "conflict");
    nova.reset_state(&server, ServerStatus::Error).await.unwrap();
    nova.evacuate(&server, None, AfterEvacuation::Run).await.unwrap();
    wait(5).await;
    assert_eq!(nova.server(&server).await.unwrap().status, ServerStatus::Active);
    assert_eq!(world.check(), []);
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_dies_sends_the_server_back() {
    let region = Region::builder().hosts(2).vms_per_host(1).build();
    let (world, nova, hosts) = (region.world(), region.nova(), region.hosts());
    let server = first_server(&nova, &hosts[0]).await;
    nova.live_migrate(&server, None, BlockMigration::Auto).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    world.power_cut(&hosts[1]).unwrap();
    let back = nova.server(&server).await.unwrap();
    assert_eq!((back.status, back.host), (ServerStatus::Active, Some(hosts[0].clone())));
    assert_eq!(world.whereabouts(&server), [hosts[0].clone()]);
    assert_eq!(world.check(), []);
}

#[tokio::test(start_paused = true)]
async fn the_scheduler_respects_traits_zones_drivers_and_room() {
    let region = Region::builder().hosts(4).zones(["zone-a", "zone-b"]).cells([(8, 32)]).build();
    let (world, nova, placement, hosts) = (region.world(), region.nova(), region.placement(), region.hosts());
    let flavor = Flavor { traits: ["CUSTOM_GPU".to_owned()].into(), ..Flavor::new("gpu", "g1", 2, 2048) };
    world.add_flavor(flavor);
    assert!(region.boot(&hosts[0], "gpu").is_err(), "no host has the trait");
    let providers = placement.providers().await.unwrap();
    for provider in &providers[..2] {
        let mut traits = placement.traits(&provider.id).await.unwrap();
        traits.names.insert("CUSTOM_GPU".into());
        placement.set_traits(&provider.id, &traits).await.unwrap();
    }
    let server = region.boot(&hosts[0], "gpu").unwrap();
    nova.live_migrate(&server, None, BlockMigration::Auto).await.unwrap();
    wait(30).await;
    assert_eq!(nova.server(&server).await.unwrap().host, Some(hosts[1].clone()), "the only other host with the trait");

    let other = region.add_host("ch-0", Driver::CloudHypervisor, &[(64, 512)]).unwrap();
    world.start_compute(&other).unwrap();
    wait(10).await;
    let plain = region.boot(&hosts[2], "2").unwrap();
    nova.live_migrate(&plain, None, BlockMigration::Auto).await.unwrap();
    wait(30).await;
    assert_ne!(nova.server(&plain).await.unwrap().host, Some(other), "roomy, but another hypervisor");

    let mut booted = 0;
    while region.boot(&hosts[3], "4").is_ok() {
        booted += 1;
    }
    assert_eq!(booted, 1, "16 of 28 GiB each");
    assert_eq!(world.check(), []);
}

#[tokio::test(start_paused = true)]
async fn a_service_deleted_under_a_running_agent_leaves_an_orphan_provider() {
    let region = Region::builder().hosts(2).build();
    let (nova, placement, hosts) = (region.nova(), region.placement(), region.hosts());
    let (id, _) = service(&nova, &hosts[0]).await;
    nova.delete_service(&id).await.unwrap();
    assert_eq!(placement.providers().await.unwrap().len(), 1);
    wait(61).await;
    assert_eq!(placement.providers().await.unwrap().len(), 2, "the agent made it anew");
    assert_eq!(nova.services().await.unwrap().len(), 1, "and no service");
    region.world().stop_compute(&hosts[0]).unwrap();
    region.world().start_compute(&hosts[0]).unwrap();
    wait(10).await;
    assert_eq!(nova.services().await.unwrap().len(), 1, "a duplicate record keeps the agent from starting");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_a_timeout_whose_work_was_done() {
    let region = Region::builder().hosts(2).vms_per_host(1).build();
    let (nova, hosts) = (region.nova(), region.hosts());
    let server = first_server(&nova, &hosts[0]).await;
    nova.faults().lose_answer("live_migrate");
    let lost = nova.live_migrate(&server, None, BlockMigration::Auto).await.unwrap_err();
    assert_eq!(lost.category(), "timeout");
    let again = nova.live_migrate(&server, None, BlockMigration::Auto).await.unwrap_err();
    assert_eq!(again.category(), "conflict", "it is under way");
    region.world().set_nova_available(false);
    assert_eq!(nova.services().await.unwrap_err().category(), "unavailable");
    region.world().set_nova_available(true);
    assert!(nova.services().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_tells_the_same_story() {
    let story = || async {
        let timing = Timing { boot: Duration::from_secs(20), ..Timing::default() };
        let region = Region::builder().hosts(3).vms_per_host(4).seed(42).timing(timing).build();
        let (world, nova, hosts) = (region.world(), region.nova(), region.hosts());
        world.power_cut(&hosts[1]).unwrap();
        for server in nova.servers_on(&hosts[0]).await.unwrap() {
            nova.live_migrate(&server.id, None, BlockMigration::Auto).await.unwrap();
        }
        wait(10).await;
        world.power_on(&hosts[1]).unwrap();
        wait(120).await;
        let log: Vec<String> = world.log().iter().map(ToString::to_string).collect();
        (log, world.servers())
    };
    let (first, second) = (story().await, story().await);
    assert_eq!(first, second);
    assert!(first.0.iter().any(|line| line == "00:00:00  hv-001 loses its power"), "{:#?}", first.0);
}
