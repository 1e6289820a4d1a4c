//! Metrics that are asked for at the moment of a scrape.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared, join_all},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use tokio::time::timeout;

use crate::runtime::lock;

/// Metrics that are read from somebody else whenever somebody scrapes.
///
/// ```
/// use async_trait::async_trait;
/// use cobalt_core::runtime::metrics::{Metrics, Source};
/// use std::time::Duration;
///
/// struct Thermometer;
///
/// #[async_trait]
/// impl Source for Thermometer {
///     async fn scrape(&self) -> String {
///         "# HELP room_celsius Warmth of the room.\n# TYPE room_celsius gauge\nroom_celsius 21\n".into()
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let metrics = Metrics::new();
/// metrics.source("thermometer", Duration::from_secs(5), Thermometer);
/// assert!(metrics.scrape().await.ends_with("room_celsius 21\n# EOF\n"));
/// # });
/// ```
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// Whole metric families in OpenMetrics text, each line ended, without the closing `# EOF`. Their names are
    /// nobody else's, and their labels are bounded.
    async fn scrape(&self) -> String;
}

/// Which source a figure is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Name {
    source: &'static str,
}

#[derive(Clone)]
struct Entry {
    name: &'static str,
    limit: Duration,
    source: Arc<dyn Source>,
}

type Answer = BoxFuture<'static, Arc<[Bytes]>>;

/// All sources of one [`Metrics`](super::Metrics).
pub(super) struct Sources {
    all: Mutex<Vec<Entry>>,
    /// The scrape that is under way. Held weakly: when all who wait for it have left, it is over.
    current: Mutex<Option<WeakShared<Answer>>>,
    failures: Family<Name, Counter>,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(lock(&self.all).iter().map(|entry| entry.name)).finish()
    }
}

impl Sources {
    pub(super) fn new(failures: Family<Name, Counter>) -> Self {
        Self { all: Mutex::default(), current: Mutex::default(), failures }
    }

    pub(super) fn add(&self, name: &'static str, limit: Duration, source: impl Source) {
        lock(&self.all).push(Entry { name, limit, source: Arc::new(source) });
    }

    /// What each of them answers. Whoever comes while others wait gets the same answer.
    pub(super) async fn ask(&self) -> Arc<[Bytes]> {
        let shared = {
            let mut current = lock(&self.current);
            let under_way = current.as_ref().and_then(WeakShared::upgrade);
            if let Some(shared) = under_way.filter(|shared| shared.peek().is_none()) {
                shared
            } else {
                let shared: Shared<Answer> = self.begin().shared();
                *current = shared.downgrade();
                shared
            }
        };
        shared.await
    }

    fn begin(&self) -> Answer {
        let (all, failures) = (lock(&self.all).clone(), self.failures.clone());
        async move {
            let answers = join_all(all.into_iter().map(|entry| {
                let failures = failures.clone();
                async move {
                    let Entry { name, limit, source } = entry;
                    let answer = timeout(limit, source.scrape()).await.unwrap_or_else(|_| {
                        failures.get_or_create(&Name { source: name }).inc();
                        tracing::debug!(source = name, ?limit, "no metrics in time");
                        String::new()
                    });
                    // The text of a large host is megabytes, so it is handed on and never copied.
                    Bytes::from(answer)
                }
            }));
            Arc::from(answers.await)
        }
        .boxed()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::{sync::Semaphore, time::advance};

    use super::*;
    use crate::runtime::metrics::Metrics;

    /// Answers when it is let, and counts how often it was asked.
    #[derive(Clone)]
    struct Gate {
        asked: Arc<AtomicUsize>,
        open: Arc<Semaphore>,
    }

    impl Gate {
        fn closed() -> Self {
            Self { asked: Arc::default(), open: Arc::new(Semaphore::new(0)) }
        }
    }

    #[async_trait]
    impl Source for Gate {
        async fn scrape(&self) -> String {
            let nth = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
            self.open.acquire().await.unwrap().forget();
            format!("# TYPE gate gauge\ngate {nth}\n")
        }
    }

    fn metrics(gate: &Gate) -> Arc<Metrics> {
        let metrics = Arc::new(Metrics::new());
        metrics.source("gate", Duration::from_secs(5), gate.clone());
        metrics
    }

    #[tokio::test(start_paused = true)]
    async fn many_scrapes_at_once_ask_once_and_the_next_one_asks_anew() {
        let gate = Gate::closed();
        let metrics = metrics(&gate);
        let scrapes: Vec<_> = (0..5)
            .map(|_| {
                let metrics = metrics.clone();
                tokio::spawn(async move { metrics.scrape().await })
            })
            .collect();
        tokio::task::yield_now().await;
        gate.open.add_permits(1);
        for text in join_all(scrapes).await {
            assert!(text.unwrap().ends_with("gate 1\n# EOF\n"));
        }
        gate.open.add_permits(1);
        assert!(metrics.scrape().await.contains("gate 2\n"));
        assert_eq!(gate.asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_does_not_answer_is_left_out_and_counted() {
        let gate = Gate::closed();
        let metrics = metrics(&gate);
        let text = metrics.scrape().await;
        assert!(!text.contains("\ngate ") && text.ends_with("# EOF\n"), "{text}");
        assert_eq!(text.matches("# EOF").count(), 1);
        assert!(metrics.encode().contains("cobalt_scrape_source_failures_total{source=\"gate\"} 1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_scraper_that_hangs_up_leaves_nothing_behind_for_the_next() {
        let gate = Gate::closed();
        let metrics = metrics(&gate);
        let gone = timeout(Duration::from_secs(1), metrics.scrape()).await;
        assert!(gone.is_err());
        advance(Duration::from_secs(60)).await;
        gate.open.add_permits(1);
        assert!(metrics.scrape().await.contains("gate 2\n"), "asked anew, not the answer of the one who left");
    }
}
