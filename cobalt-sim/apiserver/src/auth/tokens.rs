//! Tokens of service accounts: issued on request, known until they expire.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Identity;
use crate::server::Inner;

/// Who tokens are for unless they say otherwise, and who issued them.
pub(crate) const AUDIENCE: &str = "https://kubernetes.default.svc";

/// How long an expired token is told from one that never was.
const MEMORY: Duration = Duration::from_secs(24 * 3600);

/// What a token stands for.
#[derive(Debug, Clone)]
pub(crate) struct Issued {
    pub(crate) identity: Identity,
    pub(crate) audiences: Vec<String>,
    pub(crate) expires: Timestamp,
}

/// The tokens that were issued. Looking one up takes the place of checking its signature.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<BTreeMap<String, Issued>>);

impl Tokens {
    /// Makes a token that says what `claims` says; `secret` is the part nobody can guess.
    pub(crate) fn issue(&self, claims: &Value, secret: &str, issued: Issued, now: Timestamp) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({"alg": "RS256", "kid": "simulated"});
        let token = format!("{}.{}.{}", encode(&header), encode(claims), URL_SAFE_NO_PAD.encode(secret));
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.retain(|_, known| known.expires + MEMORY > now);
        tokens.insert(token.clone(), issued);
        token
    }

    /// What a token stands for, while it is valid.
    pub(crate) fn find(&self, token: &str, now: Timestamp) -> Option<Issued> {
        let tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.get(token).filter(|issued| issued.expires > now).cloned()
    }

    /// Whether a token was good once.
    pub(crate) fn has_expired(&self, token: &str, now: Timestamp) -> bool {
        let tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.get(token).is_some_and(|issued| issued.expires <= now)
    }
}

/// What a token stands for, while it is valid and its account and the object it is bound to are still there.
pub(crate) fn find(server: &Inner, token: &str) -> Option<Issued> {
    let issued = server.tokens.find(token, server.clock.now())?;
    let Identity { uid, extra, .. } = &issued.identity;
    // The token of a pod also names a node, but lives as long as the pod.
    let mut kinds = ["pod", "secret", "node"].iter();
    let bound = kinds.find_map(|kind| extra.get(&format!("authentication.kubernetes.io/{kind}-uid")));
    let alive = bound.into_iter().flatten().chain([uid]).all(|uid| server.store.by_uid(uid).is_some());
    alive.then_some(issued)
}

/// Who a token makes its bearer at this server, which is not the audience of every token.
pub(crate) fn identify(server: &Inner, token: &str) -> Option<Identity> {
    let issued = find(server, token)?;
    issued.audiences.iter().any(|audience| audience == AUDIENCE).then_some(issued.identity)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_until_it_expires() {
        let tokens = Tokens::default();
        let start = Timestamp::UNIX_EPOCH;
        let expires = start + std::time::Duration::from_secs(600);
        let identity = Identity::service_account("ns", "agent");
        let issued = Issued { identity, audiences: vec![AUDIENCE.to_owned()], expires };
        let token = tokens.issue(&json!({"sub": "x"}), "secret", issued, start);
        assert_eq!(token.split('.').count(), 3);
        assert_eq!(tokens.find(&token, start).unwrap().identity.user, "system:serviceaccount:ns:agent");
        assert!(tokens.find(&token, expires).is_none());
        assert!(tokens.has_expired(&token, expires) && !tokens.has_expired(&token, start));
        assert!(tokens.find(&format!("{token}x"), start).is_none());
    }
}
