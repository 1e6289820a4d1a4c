//! A token, and how long it is good.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::Catalog;
use crate::{decode, options::Options};

/// What Keystone gave us.
#[derive(Debug)]
pub(super) struct Login {
    /// Marked sensitive: it is not in any debug output.
    pub(super) token: HeaderValue,
    pub(super) catalog: Catalog,
    pub(super) project: Option<String>,
    /// Which login of this session it is, so that a rejected token is not taken for its successor.
    pub(super) number: u64,
    pub(super) request_id: Option<String>,
    renew_at: Instant,
    ends_at: Instant,
}

/// When Keystone does not say how long a token is good, or says nonsense.
const SHORT: Duration = Duration::from_secs(300);
/// Longer is not believed: a token that never ends is asked for anew once a day.
const LONG: Duration = Duration::from_secs(24 * 3600);

impl Login {
    pub(super) fn read(
        body: &[u8],
        headers: &HeaderMap,
        number: u64,
        asked: Instant,
        options: &Options,
    ) -> Result<Self, String> {
        let mut token: HeaderValue =
            headers.get("x-subject-token").cloned().ok_or("the answer to a login has no X-Subject-Token")?;
        token.set_sensitive(true);
        let read = decode::token(body)?;
        // Its length counts from our own moment of asking: clocks of different machines differ.
        let life = read.life().unwrap_or(SHORT).min(LONG);
        let early = options.renew_before.min(life / 10);
        let request_id = headers.get("x-openstack-request-id").and_then(|id| id.to_str().ok()).map(decode::shortened);
        Ok(Self {
            token,
            catalog: Catalog::new(&read),
            project: read.project_id().map(str::to_owned),
            number,
            request_id,
            renew_at: asked + life.saturating_sub(early),
            ends_at: asked + life,
        })
    }

    /// Whether it need not be renewed yet.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        now < self.renew_at
    }

    /// Whether it is still good.
    pub(super) fn is_valid(&self, now: Instant) -> bool {
        now < self.ends_at
    }
}
