//! How the calls to the cloud go, counted.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
};

use crate::runtime::metrics::Metrics;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    service: &'static str,
    call: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    service: &'static str,
    call: &'static str,
    outcome: &'static str,
}

/// Counts and times calls to the cloud. Cloned freely; all clones are the same.
///
/// It is made before the clients are, since they bring it every call, and [registered](CloudCalls::register) where the
/// metrics are. All labels come from our own code.
///
/// ```
/// use cobalt_core::{operator::CloudCalls, runtime::metrics::Metrics};
/// use std::time::Duration;
///
/// let calls = CloudCalls::default();
/// let metrics = Metrics::new();
/// calls.register(&metrics);
/// calls.observe("compute", "services", "ok", Duration::from_millis(20));
/// assert!(metrics.encode().contains(
///     r#"cobalt_openstack_calls_total{service="compute",call="services",outcome="ok"} 1"#));
/// ```
#[derive(Clone, Debug)]
pub struct CloudCalls {
    calls: Family<Ended, Counter>,
    seconds: Family<Call, Histogram>,
}

impl Default for CloudCalls {
    fn default() -> Self {
        let histogram: fn() -> Histogram =
            || Histogram::new([0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 90.0]);
        Self { calls: Family::default(), seconds: Family::new_with_constructor(histogram) }
    }
}

impl CloudCalls {
    /// Shows them among these metrics.
    pub fn register(&self, metrics: &Metrics) {
        metrics.register(|registry| {
            registry.register(
                "openstack_calls",
                "Calls to OpenStack, by what became of them: ok, or the category of the error",
                self.calls.clone(),
            );
            registry.register(
                "openstack_call_seconds",
                "Duration of a call to OpenStack, with its attempts and waits",
                self.seconds.clone(),
            );
        });
    }

    /// One call that is over: the service, the method of the seam, and `ok` or the category of the error.
    pub fn observe(&self, service: &'static str, call: &'static str, outcome: &'static str, elapsed: Duration) {
        self.calls.get_or_create(&Ended { service, call, outcome }).inc();
        self.seconds.get_or_create(&Call { service, call }).observe(elapsed.as_secs_f64());
    }
}
