use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

use crate::options::ConnectOptions;

/// How a replica connects and connects again.
#[derive(Debug, Clone)]
pub struct ReplicaOptions {
    pub(super) connection: ConnectOptions,
    reconnect_first: Duration,
    pub(super) reconnect_most: Duration,
    jitter: fn() -> f64,
    pub(super) event_capacity: usize,
}

impl Default for ReplicaOptions {
    fn default() -> Self {
        Self {
            connection: ConnectOptions::default(),
            reconnect_first: Duration::from_millis(250),
            reconnect_most: Duration::from_secs(10),
            jitter: any_fraction,
            event_capacity: 256,
        }
    }
}

/// A fraction from zero to one that differs between processes, which is all that jitter needs.
fn any_fraction() -> f64 {
    let bits = u32::try_from(RandomState::new().build_hasher().finish() >> 32).unwrap_or_default();
    f64::from(bits) / f64::from(u32::MAX)
}

impl ReplicaOptions {
    /// The defaults, each named at its method.
    pub fn new() -> Self {
        Self::default()
    }

    /// How each connection is made and what is expected of it.
    pub fn connection(mut self, options: ConnectOptions) -> Self {
        self.connection = options;
        self
    }

    /// How long to wait before the first attempt to get a lost connection back, and at most: 250 ms and 10 s. It doubles
    /// in between, and each wait is shortened by up to a half so that a thousand agents do not come at once.
    pub fn reconnect(mut self, first: Duration, most: Duration) -> Self {
        self.reconnect_first = first.max(Duration::from_millis(1));
        self.reconnect_most = most.max(self.reconnect_first);
        self
    }

    /// Where the jitter comes from: a function that returns a fraction from zero to one. A random one by default.
    pub fn jitter(mut self, jitter: fn() -> f64) -> Self {
        self.jitter = jitter;
        self
    }

    /// How many events a slow reader holds before it loses the oldest and is told so. 256.
    pub fn event_capacity(mut self, events: usize) -> Self {
        self.event_capacity = events.clamp(1, 1 << 16);
        self
    }

    /// The wait before this attempt, counted from zero.
    pub(super) fn wait(&self, attempt: u32) -> Duration {
        let doubled = self.reconnect_first.saturating_mul(1_u32.checked_shl(attempt).unwrap_or(u32::MAX));
        let fraction = (self.jitter)().clamp(0.0, 1.0);
        doubled.min(self.reconnect_most).mul_f64(1.0 - fraction / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_their_limit_and_jitter_only_shortens_them() {
        let seconds = |options: &ReplicaOptions, attempt| options.wait(attempt).as_secs_f64();
        let plain = ReplicaOptions::new().reconnect(Duration::from_secs(1), Duration::from_secs(10)).jitter(|| 0.0);
        let waits: Vec<f64> = [0, 1, 2, 3, 4, 60].iter().map(|attempt| seconds(&plain, *attempt)).collect();
        assert_eq!(waits, [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]);
        assert!((seconds(&plain.jitter(|| 1.0), 60) - 5.0).abs() < 1e-9);
        assert!((0.0..=1.0).contains(&any_fraction()));
    }
}
