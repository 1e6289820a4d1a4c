//! Captures on a port without a device, by a mirror that is always removed.

use std::process::{Command, Stdio};

use cobalt_core::ovs::{CaptureRequest, OvsInspector};
use cobalt_ovs::{OvsOptions, OvsSwitch};
use cobalt_rig::ovs::Node;
use futures::StreamExt;

use crate::rig::{LIMIT, own, switch_options, until};

/// Mirrors, and ports that were made for them, as the database has them.
fn left(node: &Node) -> String {
    let mirrors = node.vsctl(["--bare", "--columns=name", "list", "Mirror"]).unwrap();
    let ports = node.vsctl(["--bare", "--columns=name", "find", "Port", "external_ids:cobalt-capture!=\"\""]).unwrap();
    let made: Vec<&str> = ports.lines().filter(|name| name.starts_with("cobalt")).collect();
    format!("{}{}", mirrors.trim(), made.join(" "))
}

fn request(port: &str) -> CaptureRequest {
    CaptureRequest { port: port.to_owned(), duration: LIMIT, max_bytes: 1 << 20, snap_len: 128 }
}

/// Runs in the node's network, as an agent does.
fn on<T: Send>(node: &Node, work: impl AsyncFnOnce() -> T + Send) -> T {
    node.inside(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(work())
    })
    .unwrap()
}

async fn connect(options: OvsOptions) -> OvsSwitch {
    let switch = OvsSwitch::connect(options).await.unwrap();
    until("the database is read", async || switch.database_state().synced).await;
    switch
}

#[test]
fn what_leaves_by_a_tunnel_is_captured_and_the_mirror_goes_with_the_stream() {
    let Some(node) = own("what_leaves_by_a_tunnel_is_captured_and_the_mirror_goes_with_the_stream") else { return };
    let (tunnel, far) = (node.tunnel().unwrap(), node.add_far_guest().unwrap());
    let mut pinging = Command::new("nsenter")
        .args(node.vm(0).enter().split(' '))
        .args(["ping", "-n", "-i", "0.2", &far])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let node = &node;
    let captured = on(node, async move || {
        let switch = connect(switch_options(node)).await;
        // To its end: so many bytes.
        let mut stream = switch.capture(&CaptureRequest { max_bytes: 600, ..request(&tunnel) }).await.unwrap();
        assert!(left(node).contains("cobalt"), "there is a mirror while packets are copied");
        let mut file = Vec::new();
        let reading = async {
            while let Some(piece) = stream.next().await {
                file.extend(piece.unwrap());
            }
        };
        tokio::time::timeout(LIMIT, reading).await.expect("the end of the capture");
        let second = switch.capture(&request(&tunnel)).await;
        assert!(second.is_err(), "one at a time, and the first is still held");
        drop(stream);
        tokio::time::timeout(LIMIT, switch.settled()).await.expect("it settles");
        assert_eq!(left(node), "", "settled means that nothing is left");

        // A reader that goes away in the middle.
        let mut stream = switch.capture(&request(&tunnel)).await.unwrap();
        tokio::time::timeout(LIMIT, stream.next()).await.expect("a first piece");
        assert_ne!(left(node), "");
        drop(stream);
        tokio::time::timeout(LIMIT, switch.settled()).await.expect("it settles");
        assert_eq!(left(node), "");
        file
    });
    pinging.kill().unwrap();
    pinging.wait().unwrap();
    // An echo request to the far guest, as it was before the tunnel wrapped it up: IP 10.0.0.11 to 10.0.0.99.
    let addresses = [10, 0, 0, 11, 10, 0, 0, 99];
    assert!(captured.windows(addresses.len()).any(|bytes| bytes == addresses), "{} bytes without it", captured.len());
    on(node, async || {
        until("the guests reach each other", async || node.vm(0).ping(&node.vm(1).address(), 3).is_ok()).await;
    });
}

#[test]
fn what_a_crash_left_behind_is_swept_by_the_next_run_and_before_its_time_by_nobody_else() {
    const NAME: &str = "what_a_crash_left_behind_is_swept_by_the_next_run_and_before_its_time_by_nobody_else";
    let Some(node) = own(NAME) else { return };
    let tunnel = node.tunnel().unwrap();
    let node = &node;
    // A mirror of somebody else's is never touched.
    let foreign = ["--", "--id=@m", "create", "Mirror", "name=foreign", "--", "set", "Bridge", "br-ex", "mirrors=@m"];
    node.vsctl(foreign).unwrap();
    crash(node, &request(&tunnel));
    on(node, async move || {
        // Another program, and a look that changes nothing, leave it alone.
        let others = connect(switch_options(node).owner("cobaltctl").sweep(true)).await;
        let look = connect(switch_options(node).owner("agent")).await;
        tokio::time::timeout(LIMIT, others.settled()).await.unwrap();
        tokio::time::timeout(LIMIT, look.settled()).await.unwrap();
        assert_eq!(others.remove_overdue().await.unwrap(), 0);
        assert!(left(node).contains("cobalt"), "{}", left(node));
        let next = connect(switch_options(node).owner("agent").sweep(true)).await;
        until("the sweep", async || left(node) == "foreign").await;
        drop(next);
    });
}

#[test]
fn what_is_left_of_a_capture_after_its_time_is_swept_by_any_program_that_runs_all_the_time() {
    const NAME: &str = "what_is_left_of_a_capture_after_its_time_is_swept_by_any_program_that_runs_all_the_time";
    let Some(node) = own(NAME) else { return };
    let tunnel = node.tunnel().unwrap();
    let node = &node;
    node.vsctl(["--", "--id=@m", "create", "Mirror", "name=foreign", "--", "set", "Bridge", "br-ex", "mirrors=@m"])
        .unwrap();
    on(node, async move || {
        // It is there already when the other crashes, and has swept what it found at its start.
        let others = connect(switch_options(node).owner("cobaltctl").sweep(true)).await;
        tokio::time::timeout(LIMIT, others.settled()).await.unwrap();
        let short = CaptureRequest { duration: std::time::Duration::from_secs(2), ..request(&tunnel) };
        let crashed = connect(switch_options(node).owner("agent")).await;
        let stream = crashed.capture(&short).await.unwrap();
        assert!(left(node).contains("cobalt"), "{}", left(node));
        std::mem::forget((stream, crashed));
        until("the sweep", async || left(node) == "foreign").await;
    });
}

/// Begins a capture and lets nobody clean up after it.
fn crash(node: &Node, request: &CaptureRequest) {
    on(node, async move || {
        let switch = connect(switch_options(node).owner("agent")).await;
        let stream = switch.capture(request).await.unwrap();
        // As a crash does.
        std::mem::forget((stream, switch));
    });
    assert!(left(node).contains("cobalt"), "{}", left(node));
}
