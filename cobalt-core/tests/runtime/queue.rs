//! The runner: concurrency, retries, shutdown.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cobalt_core::{
    Error,
    runtime::{
        metrics::Metrics,
        queue::{self, Backoff, Next, Queue},
        shutdown::Shutdown,
    },
};
use tokio::time::{Instant, sleep};

fn new_queue() -> (Queue<String>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new());
    let backoff = Backoff { first: Duration::from_secs(1), limit: Duration::from_secs(60) };
    (Queue::with_backoff("test", backoff, metrics.clone()), metrics)
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_limit_are_worked_on_at_once_and_all_are() {
    let (queue, _) = new_queue();
    let (now, most, done) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for n in 0..50 {
        queue.add(format!("node-{n}"));
    }
    let stop = Shutdown::new();
    let (end, counted) = (stop.clone(), done.clone());
    let limit = most.clone();
    queue::run(&queue, 7, stop, move |_| {
        let (now, most, done, end) = (now.clone(), most.clone(), done.clone(), end.clone());
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_millis(100)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            if done.fetch_add(1, Ordering::SeqCst) + 1 == 50 {
                end.trigger();
            }
            Ok::<_, Error>(Next::Wait)
        }
    })
    .await;
    assert_eq!((limit.load(Ordering::SeqCst), counted.load(Ordering::SeqCst)), (7, 50));
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_work_in_flight_finish_and_begins_nothing_new() {
    let (queue, _) = new_queue();
    let finished = Arc::new(Mutex::new(Vec::new()));
    for key in ["a", "b", "c"] {
        queue.add(key.to_owned());
    }
    let stop = Shutdown::new();
    let seen = finished.clone();
    let runner = queue.clone();
    let ending = stop.clone();
    let run = tokio::spawn(async move {
        queue::run(&runner, 2, ending, move |key: String| {
            let finished = seen.clone();
            async move {
                sleep(Duration::from_secs(10)).await;
                finished.lock().unwrap().push(key);
                Ok::<_, Error>(Next::Wait)
            }
        })
        .await;
    });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(queue.report().in_flight, 2);
    stop.trigger();
    run.await.unwrap();
    assert_eq!(*finished.lock().unwrap(), ["a", "b"]);
    assert_eq!((queue.report().depth, queue.report().in_flight), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_failing_and_a_panicking_key_are_retried_while_others_go_on() {
    let (queue, metrics) = new_queue();
    for key in ["fails", "panics", "works"] {
        queue.add(key.to_owned());
    }
    let log = Arc::new(Mutex::new(Vec::new()));
    let (stop, began) = (Shutdown::new(), Instant::now());
    let (end, seen) = (stop.clone(), log.clone());
    queue::run(&queue, 4, stop, move |key: String| {
        let (end, log) = (end.clone(), seen.clone());
        async move {
            let times = {
                let mut log = log.lock().unwrap();
                log.push((key.clone(), began.elapsed().as_secs()));
                log.iter().filter(|(other, _)| *other == key).count()
            };
            match key.as_str() {
                "fails" if times < 4 => Err(Error::not_found("get server 6f2c")),
                "fails" => {
                    end.trigger();
                    Ok(Next::Wait)
                }
                "panics" if times < 2 => panic!("a bug"),
                _ => Ok(Next::Wait),
            }
        }
    })
    .await;
    let at = |key: &str| {
        let log = log.lock().unwrap();
        log.iter().filter(|(other, _)| other == key).map(|(_, at)| *at).collect::<Vec<_>>()
    };
    assert_eq!(at("works"), [0]);
    assert_eq!(at("panics"), [0, 1]);
    assert_eq!(at("fails"), [0, 1, 3, 7], "one, two, four seconds");
    let text = metrics.encode();
    assert!(text.contains(r#"cobalt_reconcile_errors_total{controller="test",category="not_found"} 3"#), "{text}");
    assert!(text.contains(r#"cobalt_reconcile_errors_total{controller="test",category="panic"} 1"#), "{text}");
    assert!(text.contains(r#"cobalt_queue_retries_total{queue="test"} 4"#), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_key_may_ask_to_be_looked_at_again() {
    let (queue, _) = new_queue();
    queue.add("node-1".to_owned());
    let (stop, began) = (Shutdown::new(), Instant::now());
    let end = stop.clone();
    queue::run(&queue, 1, stop, move |_| {
        let end = end.clone();
        async move {
            if began.elapsed() >= Duration::from_secs(90) {
                end.trigger();
            }
            Ok::<_, Error>(Next::After(Duration::from_secs(30)))
        }
    })
    .await;
    assert_eq!(began.elapsed().as_secs(), 90);
}
