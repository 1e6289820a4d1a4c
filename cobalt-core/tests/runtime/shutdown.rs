//! The order in which a program ends.

use std::{
    convert::Infallible,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use cobalt_core::runtime::shutdown::{Lifecycle, Phase, Shutdown, StopError};
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn the_phases_end_one_after_the_other() {
    let shutdown = Shutdown::new();
    let life = Lifecycle::new(shutdown.clone());
    let log = Arc::new(Mutex::new(Vec::new()));
    // Started in another order, and the earlier ones take longer to end.
    for (phase, takes) in [(Phase::Admin, 0), (Phase::Events, 2), (Phase::Lease, 1), (Phase::Work, 5)] {
        let (stop, log) = (life.phase(phase).stopping(), log.clone());
        life.phase(phase).spawn("part", async move {
            stop.triggered().await;
            sleep(Duration::from_secs(takes)).await;
            log.lock().unwrap().push(phase);
            Ok::<(), Infallible>(())
        });
    }
    sleep(Duration::from_secs(1)).await;
    assert!(log.lock().unwrap().is_empty());
    shutdown.trigger();
    life.run_until_stopped(Duration::from_secs(30)).await.unwrap();
    assert_eq!(*log.lock().unwrap(), [Phase::Work, Phase::Events, Phase::Lease, Phase::Admin]);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_fails_or_panics_ends_the_program() {
    for panics in [false, true] {
        let life = Lifecycle::new(Shutdown::new());
        life.phase(Phase::Work).spawn("watch nodes", async move {
            assert!(!panics, "a bug");
            Err(std::io::Error::other("broken"))
        });
        let error = life.run_until_stopped(Duration::from_secs(5)).await.unwrap_err();
        assert!(matches!(error, StopError::Failed { task: "watch nodes", .. }), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn stuck_work_is_named_and_does_not_keep_the_lease_from_being_released() {
    let shutdown = Shutdown::new();
    let life = Lifecycle::new(shutdown.clone());
    life.phase(Phase::Work).spawn("stuck", std::future::pending::<Result<(), Infallible>>());
    let released = Arc::new(Mutex::new(false));
    let (stop, flag) = (life.phase(Phase::Lease).stopping(), released.clone());
    life.phase(Phase::Lease).spawn("lease", async move {
        stop.triggered().await;
        sleep(Duration::from_millis(500)).await;
        *flag.lock().unwrap() = true;
        Ok::<(), Infallible>(())
    });
    shutdown.trigger();
    let began = Instant::now();
    let error = life.run_until_stopped(Duration::from_secs(10)).await.unwrap_err();
    assert_eq!(error.to_string(), "shut down phase work: still running after the grace period: stuck");
    assert!(*released.lock().unwrap());
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn tracked_work_is_waited_for() {
    let shutdown = Shutdown::new();
    let life = Lifecycle::new(shutdown.clone());
    let began = Instant::now();
    tokio::spawn(life.phase(Phase::Work).track(sleep(Duration::from_secs(3))));
    shutdown.trigger();
    life.run_until_stopped(Duration::from_secs(10)).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn either_of_two_shutdowns_ends_what_listens_to_both() {
    for first in [true, false] {
        let (a, b) = (Shutdown::new(), Shutdown::new());
        let both = a.or(&b);
        if first {
            a.trigger();
        } else {
            b.trigger();
        }
        both.triggered().await;
        assert_ne!(a.is_triggered(), b.is_triggered(), "the other one is left alone");
    }
}

/// Runs itself as a child process, because signals concern a whole process.
#[tokio::test]
async fn the_first_signal_asks_and_the_second_exits_at_once() {
    const CHILD: &str = "COBALT_TEST_SIGNAL_CHILD";
    let say = |line: &str| std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
    if std::env::var_os(CHILD).is_some() {
        let shutdown = Shutdown::on_signals().unwrap();
        say("waiting");
        shutdown.triggered().await;
        say("stopping");
        std::future::pending::<()>().await;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "shutdown::the_first_signal_asks_and_the_second_exits_at_once", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "waiting"));
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(lines.any(|line| line == "stopping"), "the first one asks");
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
