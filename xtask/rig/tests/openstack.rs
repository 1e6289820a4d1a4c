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

    let logs = plane.logs();
    assert!(!processes_with(&logs).is_empty(), "nothing of it is seen, so its end would not be either");
    drop(plane);
    assert!(!logs.exists(), "its files are left");
    assert_eq!(processes_with(&logs), [] as [String; 0]);
}

/// The command lines on this machine that name a directory of the rig.
fn processes_with(logs: &Path) -> Vec<String> {
    let own = logs.parent().unwrap().to_str().unwrap();
    let commands = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let text = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&text).replace('\0', " "))
    });
    commands.filter(|command| command.contains(own)).collect()
}
