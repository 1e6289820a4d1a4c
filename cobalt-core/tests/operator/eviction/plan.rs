//! The plan of a drain, where the simulated cloud has no such moment.

use cobalt_core::{
    api::MoveKind,
    ids::HostName,
    nova::{
        Candidate, Migration, MigrationKind, MigrationPhase, MockNovaClient, MockPlacementClient, NovaHypervisor,
        Resources, Server, ServerStatus, ServiceState, TaskState,
    },
    operator::eviction::{EvictionPlan, PlanOptions, Risk, plan},
};

use super::{migration, server, service};

/// A plan for one of two hosts, with these migrations, and servers of which those on the host are so marked.
async fn planned(servers: Vec<Server>, migrations: Vec<Migration>) -> EvictionPlan {
    let (mut nova, mut placement) = (MockNovaClient::new(), MockPlacementClient::new());
    let hypervisor = |number: usize| NovaHypervisor {
        id: format!("p-{number}").as_str().into(),
        hostname: format!("hv-{number}"),
        host: format!("hv-{number}").as_str().into(),
        service: format!("s-{number}").as_str().into(),
        kind: "QEMU".into(),
        state: ServiceState::Up,
        servers: None,
    };
    let mut other = service(true);
    (other.id, other.host) = ("s-2".into(), "hv-2".into());
    nova.expect_services().returning(move || Ok(vec![service(false), other.clone()]));
    nova.expect_hypervisors().returning(move || Ok(vec![hypervisor(1), hypervisor(2)]));
    nova.expect_aggregates().returning(|| Ok(Vec::new()));
    nova.expect_server_groups().returning(|| Ok(Vec::new()));
    nova.expect_migrations().returning(move |_| Ok(migrations.clone()));
    let all = servers.clone();
    nova.expect_servers_on()
        .returning(move |host| Ok(all.iter().filter(|server| server.host.as_ref() == Some(host)).cloned().collect()));
    nova.expect_server().returning(move |id| {
        let found = servers.iter().find(|server| server.id == *id).cloned();
        found.ok_or_else(|| cobalt_core::Error::not_found(format!("get server {id}")))
    });
    placement.expect_allocations().returning(|_| Ok(Vec::new()));
    placement.expect_candidates().returning(|_, _| {
        let free: Resources = [("MEMORY_MB".to_owned(), 9000), ("VCPU".to_owned(), 9)].into();
        Ok(vec![Candidate { provider: "p-2".into(), free }])
    });
    plan(&nova, &placement, &HostName::from("hv-1"), &PlanOptions::default()).await.unwrap()
}

fn elsewhere(id: &str, status: ServerStatus) -> Server {
    Server { host: Some("hv-9".into()), ..server(id, status) }
}

fn coming(number: usize, id: &str, phase: MigrationPhase) -> Migration {
    let away = migration(number, id, MigrationKind::Resize, phase);
    Migration { source: "hv-9".into(), destination: Some("hv-1".into()), ..away }
}

#[tokio::test]
async fn one_that_has_just_come_is_planned_to_leave_again() {
    let mut comes = server("a", ServerStatus::Resize);
    comes.task = Some(TaskState::Other("resize_finish".into()));
    let leaves = server("b", ServerStatus::Resize);
    let migrations = vec![
        coming(2, "a", MigrationPhase::Finishing),
        migration(1, "b", MigrationKind::Cold, MigrationPhase::Running),
    ];
    let found = planned(vec![comes, leaves], migrations).await;
    for one in &found.moves {
        assert_eq!((one.target.as_ref().map(HostName::as_str), &one.how), (Some("hv-2"), &MoveKind::Cold), "{one:?}");
        assert_eq!(one.risks, [Risk::BusyNow]);
    }
}

#[tokio::test]
async fn only_what_moves_counts_as_on_its_way_and_resizes_that_would_be_confirmed_are_named() {
    let servers = vec![
        elsewhere("moves", ServerStatus::Resize),
        elsewhere("rests", ServerStatus::Active),
        elsewhere("waits", ServerStatus::VerifyResize),
        elsewhere("was-confirmed", ServerStatus::Active),
    ];
    let moved = |number, id| migration(number, id, MigrationKind::Resize, MigrationPhase::Unconfirmed);
    let migrations = vec![
        coming(5, "moves", MigrationPhase::Running),
        coming(4, "rests", MigrationPhase::Preparing),
        coming(3, "is-gone", MigrationPhase::Preparing),
        moved(2, "waits"),
        moved(1, "was-confirmed"),
    ];
    let notes = planned(servers, migrations).await.notes;
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert_eq!(notes[0], "1 migrations to the host are under way: a drain stops or awaits them");
    assert!(notes[1].starts_with("resizes away from the host that nobody has confirmed"), "{notes:?}");
    assert!(notes[1].ends_with(": name-waits"), "{notes:?}");
}
