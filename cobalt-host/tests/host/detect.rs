//! Which implementation a host gets.

use cobalt_host::{Options, detect};

use crate::rig::{Auth, Rig};

#[tokio::test]
async fn a_host_without_a_bus_is_plain() {
    let root = tempfile::tempdir().unwrap();
    let host = detect(&Options::default().root(root.path())).await.unwrap();
    assert_eq!(host.features(), cobalt_core::host::HostFeatures::default());
}

#[tokio::test]
async fn a_host_whose_systemd_is_starting_is_waited_for() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("run/systemd/system")).unwrap();
    let host = detect(&Options::default().root(root.path())).await.unwrap();
    assert!(host.features().units);
    let error = host.units(&["a.service".to_owned()]).await.unwrap_err();
    assert_eq!(error.category(), "unavailable");
}

#[tokio::test]
async fn an_address_that_was_given_is_taken_at_its_word() {
    let host = detect(&Options::default().address("unix:path=/nonexistent/bus")).await.unwrap();
    assert!(host.features().units);
}

#[tokio::test]
async fn a_bus_at_the_standard_place_is_asked_for_systemd() {
    let test = "a_bus_at_the_standard_place_is_asked_for_systemd";
    let Some(mut rig) = Rig::bus(test, Auth::External).await else { return };
    let run = rig.root().join("run/dbus");
    std::fs::create_dir_all(&run).unwrap();
    std::os::unix::fs::symlink(rig.root().join("../bus"), run.join("system_bus_socket")).unwrap();
    let options = Options::default().root(rig.root());
    assert!(!detect(&options).await.unwrap().features().units, "a bus alone is no systemd");
    rig.start_systemd().await;
    assert!(detect(&options).await.unwrap().features().units);
}
