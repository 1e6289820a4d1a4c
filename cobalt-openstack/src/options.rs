//! How a session behaves.

use std::time::Duration;

/// Limits of a session. The defaults suit one operator on a cloud of a thousand hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long one attempt may take, from the request to the last byte of the answer.
    pub attempt_timeout: Duration,
    /// How long a call may take with all its attempts, waits and pages.
    pub call_timeout: Duration,
    /// How often a call is tried. A write is tried again only when it certainly was not done, or may be repeated.
    pub attempts: u32,
    /// The first wait before another attempt; it doubles.
    pub backoff: Duration,
    /// No wait is longer, whatever the cloud asks for: the call fails and says when to come again.
    pub longest_wait: Duration,
    /// Requests on their way at a time.
    pub concurrency: usize,
    /// Requests per second in the long run.
    pub rate: f64,
    /// Requests that may come at once after a rest.
    pub burst: u32,
    /// No answer may be larger.
    pub max_body: usize,
    /// How many things to ask for in one page.
    pub page_size: u32,
    /// No listing may have more pages.
    pub max_pages: u32,
    /// How long before a token's end it is renewed; never more than a tenth of its life.
    pub renew_before: Duration,
    /// What we call ourselves.
    pub user_agent: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            attempt_timeout: Duration::from_secs(30),
            call_timeout: Duration::from_secs(90),
            attempts: 4,
            backoff: Duration::from_millis(500),
            longest_wait: Duration::from_secs(30),
            concurrency: 8,
            rate: 20.0,
            burst: 40,
            max_body: 64 << 20,
            page_size: 1000,
            max_pages: 1000,
            renew_before: Duration::from_secs(300),
            user_agent: concat!("cobalt-openstack/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}
