//! The contract of the seam on the replayed drivers, over every way to reach a daemon without certificates.

use cobalt_core::contract::{self, Report};
use cobalt_libvirt::{ConnectOptions, LibvirtBackend, testing::Server};

use super::fixture::{Fixture, LIMIT, options, recording, replayed_with};

async fn over_tcp(name: &str) -> Report {
    let (server, backend) = replayed_with(name, options().event_capacity(64)).await;
    contract::backend::run(&mut Fixture::new(server, backend)).await
}

/// Over a unix socket with this name in a run directory of its own, found by the driver's URI alone.
async fn over_unix(name: &str, uri: &str, socket: &str) -> Report {
    let run_dir = tempfile::tempdir().unwrap();
    let server = Server::replay(recording(name));
    server.listen_unix(run_dir.path().join(socket)).unwrap();
    let connection = ConnectOptions::new().call_timeout(LIMIT).run_dir(run_dir.path());
    let backend = LibvirtBackend::connect(uri, options().event_capacity(64).connection(connection)).await.unwrap();
    contract::backend::run(&mut Fixture::new(server, backend)).await
}

fn lacking(report: &Report) -> usize {
    report.checks.iter().filter(|checked| checked.id.ends_with("-lacking")).count()
}

#[tokio::test]
async fn the_replayed_cloud_hypervisor_driver_keeps_the_contract_over_tcp() {
    let report = over_tcp("ch-11.3").await;
    report.assert_complete();
    assert_eq!(lacking(&report), 4 + 9, "statistics, capabilities, jobs, migration, nine kinds of event\n{report}");
}

#[tokio::test]
async fn the_replayed_test_driver_keeps_the_contract_over_tcp() {
    let report = over_tcp("test-9.0").await;
    report.assert_complete();
    assert_eq!(lacking(&report), 3 + 9, "capabilities, jobs, migration, nine kinds of event\n{report}");
}

#[tokio::test]
async fn the_replayed_cloud_hypervisor_driver_keeps_the_contract_over_its_modular_unix_socket() {
    over_unix("ch-11.3", "ch:///system", "virtchd-sock").await.assert_complete();
}

#[tokio::test]
async fn the_replayed_test_driver_keeps_the_contract_over_the_monolithic_unix_socket() {
    over_unix("test-9.0", "test+unix:///default", "libvirt-sock").await.assert_complete();
}

#[tokio::test]
async fn the_replayed_qemu_driver_keeps_what_it_can_of_the_contract() {
    let report = over_tcp("qemu-9.0").await;
    report.assert_passed();
    let skipped: Vec<&str> = report
        .checks
        .iter()
        .filter(|checked| matches!(checked.outcome, contract::Outcome::Skipped(_)))
        .map(|checked| checked.id.as_str())
        .collect();
    assert_eq!(skipped, ["migrate", "migrate-abort"], "nothing migrates between recordings\n{report}");
}
