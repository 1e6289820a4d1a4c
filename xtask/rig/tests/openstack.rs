//! The control plane itself: it comes up, does what a cloud does, and leaves nothing behind.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Instant;

use cobalt_rig::{ControlPlane, ControlService, Venv};

fn venv(test: &str) -> Option<Venv> {
    // Cargo's directory for integration tests lies directly below the target directory.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    cobalt_rig::openstack_available(test, target)
}

#[test]
fn a_control_plane_comes_up_runs_servers_and_leaves_nothing_behind() {
    let Some(venv) = venv("a_control_plane_comes_up_runs_servers_and_leaves_nothing_behind") else { return };
    let started = Instant::now();
    let plane = ControlPlane::up(&venv, &["hv-1"]).unwrap();
    eprintln!("up after {:.1} s", started.elapsed().as_secs_f64());
    let id = plane.boot("hv-1", "first").unwrap();
    let guests = plane.compute("hv-1").guests();
    assert_eq!(guests.len(), 1);
    assert!(guests[0].0 == id && guests[0].2, "{guests:?}");

    plane.kill(ControlService::NovaApi).unwrap();
    assert!(plane.api("GET", "compute", "/servers", None).is_err(), "a killed API does not answer");
    plane.start(ControlService::NovaApi).unwrap();

    // A compute that comes back is the same one and still has its guests.
    plane.kill_compute("hv-1").unwrap();
    plane.start_compute("hv-1").unwrap();
    plane.wait_for_compute("hv-1").unwrap();
    let (status, server) = plane.api("GET", "compute", &format!("/servers/{id}"), None).unwrap();
    assert_eq!((status, server["server"]["status"].as_str()), (200, Some("ACTIVE")), "{server}");

    let (address, logs) = (plane.address().to_owned(), plane.logs());
    drop(plane);
    assert!(!logs.exists(), "its files are left");
    let left = std::net::TcpStream::connect_timeout(
        &format!("{address}:5000").parse().unwrap(),
        std::time::Duration::from_secs(5),
    );
    assert!(left.is_err(), "its Keystone still answers");
}
