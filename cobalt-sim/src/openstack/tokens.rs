//! The tokens that were given out.

use std::{collections::BTreeMap, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::Instant;

/// More than anybody needs at a time; the oldest give way.
const MOST: usize = 10_000;

/// Whom a token is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: String,
    /// `None` for a scope without a project.
    pub(super) project: Option<(String, String)>,
    pub(super) system: bool,
}

#[derive(Debug)]
struct Entry {
    login: Login,
    issued: Instant,
    ends: Instant,
}

/// All tokens that are good, and some that were.
#[derive(Debug)]
pub(super) struct Tokens {
    random: StdRng,
    given: BTreeMap<String, Entry>,
}

/// A token as its owner may read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) login: Login,
    pub(super) issued: Instant,
    pub(super) ends: Instant,
}

impl Tokens {
    /// Their randomness is their own: how often somebody logs in must not change what happens in the world.
    pub(super) fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed ^ 0x006b_6579_7374_6f6e), given: BTreeMap::new() }
    }

    pub(super) fn issue(&mut self, login: Login, life: Duration, now: Instant) -> String {
        self.given.retain(|_, entry| entry.ends > now);
        if self.given.len() >= MOST {
            let oldest = self.given.iter().min_by_key(|(_, entry)| entry.issued).map(|(token, _)| token.clone());
            if let Some(oldest) = oldest {
                self.given.remove(&oldest);
            }
        }
        let token = format!("{:032x}", self.random.random::<u128>());
        self.given.insert(token.clone(), Entry { login, issued: now, ends: now + life });
        token
    }

    pub(super) fn find(&self, token: &str, now: Instant) -> Option<Shown> {
        let entry = self.given.get(token).filter(|entry| entry.ends > now)?;
        Some(Shown { login: entry.login.clone(), issued: entry.issued, ends: entry.ends })
    }

    pub(super) fn revoke(&mut self, token: &str) -> bool {
        self.given.remove(token).is_some()
    }

    pub(super) fn revoke_all(&mut self) {
        self.given.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_token_is_good_until_its_end_or_its_revocation() {
        let mut tokens = Tokens::new(7);
        let login = Login { user: "me".into(), project: None, system: false };
        let issue = |tokens: &mut Tokens| tokens.issue(login.clone(), Duration::from_secs(60), Instant::now());
        let (one, other) = (issue(&mut tokens), issue(&mut tokens));
        assert_ne!(one, other);
        assert!(tokens.revoke(&one) && tokens.find(&one, Instant::now()).is_none());
        assert!(tokens.find(&other, Instant::now()).is_some());
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(tokens.find(&other, Instant::now()).is_none());
        let last = issue(&mut tokens);
        tokens.revoke_all();
        assert!(tokens.find(&last, Instant::now()).is_none());
    }
}
