//! Captures on the node the program is on, and what is left of them.

use std::path::Path;

use cobalt_ovs::{OvsOptions, OvsSwitch};

use crate::{rig::Rig, testing::Running};

/// An echo request or its answer: IP from one guest to another, as it stands in a packet.
fn has_echo(file: &Path, from: u8, to: u8) -> bool {
    let bytes = std::fs::read(file).unwrap();
    bytes.windows(8).any(|bytes| bytes == [10, 0, 0, from, 10, 0, 0, to])
}

/// Starts a capture of the tunnel, which has no device, and waits until it has packets.
fn tunnel(rig: &Rig, seconds: &str, file: &Path) -> Running {
    let (port, path) = (rig.node.tunnel().unwrap(), file.display().to_string());
    let mut running = rig.start(&["capture", "--port", &port, "--seconds", seconds, "-w", &path]);
    running.until("packets", |_, err| err.contains(" packets, ").then_some(()));
    assert!(rig.left().contains("cobalt"), "there is a mirror while packets are copied: {}", running.err());
    running
}

#[test]
fn a_ping_is_captured_by_the_name_of_its_vm() {
    let Some(rig) = Rig::up("a_ping_is_captured_by_the_name_of_its_vm") else { return };
    let _pinging = rig.pinging(&rig.node.vm(1).address());
    let file = rig.scratch.path("ping.pcap");
    let path = file.display().to_string();
    let port = rig.node.vm(1).uuid();
    let args = ["capture", "--port", &port, "--seconds", "200", "--max-bytes", "2000", "-w", &path];
    let said = rig.run(&args);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(has_echo(&file, 11, 12) && has_echo(&file, 12, 11), "{said:?}");
    assert_eq!(rig.left(), "", "a port with a device needs no mirror");
}

#[test]
fn a_mirror_goes_with_the_program_however_it_is_asked_to_end() {
    let Some(rig) = Rig::up("a_mirror_goes_with_the_program_however_it_is_asked_to_end") else { return };
    let far = rig.node.add_far_guest().unwrap();
    let _pinging = rig.pinging(&far);
    for signal in ["INT", "TERM", "HUP"] {
        let file = rig.scratch.path(&format!("{signal}.pcap"));
        let mut running = tunnel(&rig, "200", &file);
        running.signal(signal);
        assert_eq!(running.wait().code(), Some(0), "{signal}: {}", running.err());
        assert!(running.err().contains("ended by you"), "{signal}: {}", running.err());
        assert_eq!(rig.left(), "", "{signal}: nothing is left when it has ended");
        assert!(has_echo(&file, 11, 99), "{signal}: {} is a file with the ping", file.display());
    }
}

#[test]
fn the_mirror_of_a_program_that_was_killed_is_removed_after_its_time_by_an_agent_or_the_next_program() {
    const NAME: &str =
        "the_mirror_of_a_program_that_was_killed_is_removed_after_its_time_by_an_agent_or_the_next_program";
    let Some(rig) = Rig::up(NAME) else { return };
    let far = rig.node.add_far_guest().unwrap();
    let _pinging = rig.pinging(&far);
    let file = rig.scratch.path("killed.pcap");
    // By whoever sweeps this switch all the time, as its agent does.
    let mut running = tunnel(&rig, "20", &file);
    running.signal("KILL");
    running.wait();
    assert!(rig.left().contains("cobalt"), "nobody was there to remove it");
    let options = OvsOptions::new().run_dir(rig.node.directory()).ovn_run_dir(rig.node.directory());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let agent = runtime.block_on(OvsSwitch::connect(options.owner("cobalt-ovs-agent").sweep(true))).unwrap();
    rig.until("removed by the agent", |rig| rig.left().is_empty());
    drop(agent);
    drop(runtime);
    // By the next program that looks at the switch, and not before the time is over.
    let mut running = tunnel(&rig, "20", &file);
    running.signal("KILL");
    running.wait();
    let said = rig.run(&["status"]);
    assert!(!said.err.contains("removed") && rig.left().contains("cobalt"), "too early: {said:?}");
    rig.until("removed by the next program", |rig| {
        let said = rig.run(&["status"]);
        assert_eq!(said.err.contains("removed what captures that were killed left"), rig.left().is_empty(), "{said:?}");
        rig.left().is_empty()
    });
}
