//! Workers for a queue.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::Instant};
use tracing::{Instrument, field::Empty};

use super::{Key, Outcome, Queue};
use crate::runtime::{
    Categorized,
    shutdown::{Chain, Shutdown},
};

/// When to look at an object again that has been dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When something changes.
    Wait,
    /// After this time at the latest.
    After(Duration),
}

/// Works on the queue's keys, up to `concurrency` at a time, until `stop`; then finishes what is in flight and returns.
///
/// A pass that fails or panics is repeated after the queue's pause. Dropping the returned future aborts the passes in
/// flight; triggering `stop` lets them finish.
pub async fn run<K, F, R, E>(queue: &Queue<K>, concurrency: usize, stop: Shutdown, reconcile: F)
where
    K: Key,
    F: Fn(K) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Next, E>> + Send + 'static,
    E: Categorized + Send + 'static,
{
    let reconcile = Arc::new(reconcile);
    let mut workers = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.triggered() => break,
            Some(_) = workers.join_next(), if !workers.is_empty() => {}
            key = queue.next(), if workers.len() < concurrency.max(1) => {
                let (queue, reconcile) = (queue.clone(), reconcile.clone());
                workers.spawn(async move { pass(&queue, key, reconcile.as_ref()).await });
            }
        }
    }
    while workers.join_next().await.is_some() {}
}

async fn pass<K, F, R, E>(queue: &Queue<K>, key: K, reconcile: &F)
where
    K: Key,
    F: Fn(K) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Next, E>> + Send + 'static,
    E: Categorized + Send + 'static,
{
    let began = Instant::now();
    let words = format!("{key:?}");
    let span = tracing::info_span!("reconcile", queue = queue.name(), key = words.trim_matches('"'), outcome = Empty);
    // A task of its own, so that a panic is one key's failure and not the queue's.
    let work = AbortOnDrop(tokio::spawn(reconcile(key.clone()).instrument(span.clone())));
    let result = work.join().await;
    let (outcome, category) = match &result {
        Ok(Ok(Next::Wait)) => (Outcome::Done, None),
        Ok(Ok(Next::After(delay))) => (Outcome::Again(*delay), None),
        Ok(Err(error)) => (Outcome::Failed, Some(error.category())),
        Err(_) => (Outcome::Failed, Some("panic")),
    };
    span.record("outcome", category.unwrap_or("ok"));
    drop(span);
    let pause = queue.done(&key, outcome);
    queue.metrics.reconcile(queue.name(), began.elapsed(), category);
    let (queue, retry_in) = (queue.name(), pause.unwrap_or_default());
    match result {
        // Somebody wrote in between: that is how optimistic concurrency works, not a problem.
        Ok(Err(error)) if error.category() == "conflict" => {
            tracing::debug!(queue, ?key, ?retry_in, error = %Chain(&error), "changed meanwhile, reconciling anew");
        }
        Ok(Err(error)) => tracing::warn!(
            queue, ?key, category = error.category(), ?retry_in, error = %Chain(&error), "reconcile failed"
        ),
        Err(panic) => tracing::error!(queue, ?key, ?retry_in, error = %panic, "reconcile panicked"),
        Ok(Ok(_)) => {}
    }
}

/// When the runner is dropped in the middle (a lost lease), the passes end with it.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> AbortOnDrop<T> {
    async fn join(mut self) -> Result<T, tokio::task::JoinError> {
        (&mut self.0).await
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
