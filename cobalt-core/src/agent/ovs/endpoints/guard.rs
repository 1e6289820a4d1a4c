//! Who asks, and whether they may.
//!
//! ```text
//!   Authorization: Bearer … ──▶ TokenReview ──▶ caller ──▶ SubjectAccessReview on ovsnodes/{trace,capture,diagnose}
//!                                (remembered      │         (never remembered)
//!                                 for seconds)    ▼
//!                                                401                403            no answer from Kubernetes: 503
//! ```
//!
//! Nobody gets in by a failure: what cannot be decided is refused.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Mutex,
    time::Duration,
};

use axum::{
    extract::{ConnectInfo, FromRequestParts},
    http::{HeaderMap, StatusCode, header, request::Parts},
};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use ring::digest;
use tokio::{sync::Semaphore, time::Instant};

use super::{
    answer::Failure,
    peers::{self, Budget, Rate, Spent},
};
use crate::runtime::{lock, shutdown::Chain, watch::ObjectKey};

/// A right on an OVSNode, under the name it has in a Role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    /// `create` on `ovsnodes/trace`.
    Trace,
    /// `create` on `ovsnodes/capture`.
    Capture,
    /// `get` on `ovsnodes/diagnose`.
    Diagnose,
}

impl Right {
    fn subresource(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Capture => "capture",
            Self::Diagnose => "diagnose",
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Trace | Self::Capture => "create",
            Self::Diagnose => "get",
        }
    }
}

/// Whoever has a token Kubernetes believes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) name: String,
    uid: Option<String>,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// How tokens are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardLimits {
    /// How long a token that was believed is believed without asking again; a revoked one lives as long.
    pub remember: Duration,
    /// How long a token that was refused is refused without asking again.
    pub remember_refused: Duration,
    /// How many tokens are remembered.
    pub remembered: usize,
    /// The longest time for one question to Kubernetes.
    pub ask_timeout: Duration,
    /// How many questions may be open at a time.
    pub asking: usize,
    /// How many tokens may be asked about at once.
    pub burst: u32,
    /// After that, one more each time this has passed: strangers must not load the API server through us.
    pub refill: Duration,
    /// How many of them from one address, which must be fewer: one stranger must not keep the others out. An IPv6 network
    /// of 64 bits is one address.
    pub peer_burst: u32,
    /// After that, one more from there each time this has passed.
    pub peer_refill: Duration,
}

impl Default for GuardLimits {
    fn default() -> Self {
        Self {
            remember: Duration::from_secs(10),
            remember_refused: Duration::from_secs(5),
            remembered: 256,
            ask_timeout: Duration::from_secs(10),
            asking: 8,
            burst: 50,
            refill: Duration::from_millis(200),
            peer_burst: 10,
            peer_refill: Duration::from_secs(1),
        }
    }
}

/// What comes with a question: its headers, and the place it comes from, if that is known.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    headers: HeaderMap,
    place: Option<IpAddr>,
}

impl<S: Send + Sync> FromRequestParts<S> for Asker {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let place = peer.map(|ConnectInfo(address)| peers::place(address.ip()));
        Ok(Self { headers: parts.headers.clone(), place })
    }
}

impl GuardLimits {
    fn budget(&self, now: Instant) -> Budget {
        let each = Rate { burst: self.peer_burst, refill: self.peer_refill };
        Budget::new(Rate { burst: self.burst, refill: self.refill }, each, now)
    }
}

/// A token's digest; the token itself is never kept.
type Print = [u8; 32];

/// What Kubernetes said of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Believed(Caller),
    Refused,
}

impl Word {
    fn caller(self) -> Result<Caller, Failure> {
        match self {
            Self::Believed(caller) => Ok(caller),
            Self::Refused => {
                Err(Failure::unauthorized("the token is not valid (any more), or is not meant for this agent"))
            }
        }
    }
}

struct Memory {
    known: HashMap<Print, (Word, Instant)>,
    questions: Budget,
}

impl Memory {
    fn recall(&self, print: &Print, now: Instant) -> Option<Word> {
        self.known.get(print).filter(|(_, until)| now < *until).map(|(word, _)| word.clone())
    }

    fn remember(&mut self, print: Print, word: Word, limits: &GuardLimits, now: Instant) {
        if self.known.len() >= limits.remembered {
            self.known.retain(|_, (_, until)| now < *until);
        }
        if self.known.len() >= limits.remembered {
            // Refusals are forgotten first, or a stranger could push everybody else out.
            self.known.retain(|_, (word, _)| *word != Word::Refused);
        }
        if self.known.len() < limits.remembered {
            let last = if word == Word::Refused { limits.remember_refused } else { limits.remember };
            self.known.insert(print, (word, now + last));
        }
    }
}

/// Checks tokens and rights.
pub(super) struct Guard {
    client: Client,
    object: ObjectKey,
    audience: Option<String>,
    limits: GuardLimits,
    memory: Mutex<Memory>,
    asking: Semaphore,
}

impl Guard {
    pub(super) fn new(client: Client, object: ObjectKey, audience: Option<String>, limits: GuardLimits) -> Self {
        let memory = Memory { known: HashMap::new(), questions: limits.budget(Instant::now()) };
        let asking = Semaphore::new(limits.asking.max(1));
        Self { client, object, audience, limits, memory: Mutex::new(memory), asking }
    }

    /// Who sent a request.
    pub(super) async fn caller(&self, asker: &Asker) -> Result<Caller, Failure> {
        let token = bearer(&asker.headers)?;
        let mut print = Print::default();
        print.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
        if let Some(known) = lock(&self.memory).recall(&print, Instant::now()) {
            return known.caller();
        }
        lock(&self.memory).questions.take(asker.place, Instant::now()).map_err(|spent| {
            Failure::too_many(match spent {
                Spent::Here => "too many unknown tokens from your address; try again in a moment",
                Spent::Everywhere => "too many unknown tokens; try again in a moment",
            })
        })?;
        let word = self.review(token).await?;
        lock(&self.memory).remember(print, word.clone(), &self.limits, Instant::now());
        word.caller()
    }

    async fn review(&self, token: &str) -> Result<Word, Failure> {
        let audiences = self.audience.as_ref().map(|audience| vec![audience.clone()]);
        let question = TokenReview {
            spec: TokenReviewSpec { token: Some(token.to_owned()), audiences },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let params = PostParams::default();
        let status = self.ask("tokenreviews", reviews.create(&params, &question)).await?.status.unwrap_or_default();
        let meant = match &self.audience {
            // A reviewer that knows nothing of audiences names none, and must not be believed.
            Some(wanted) => status.audiences.is_some_and(|audiences| audiences.contains(wanted)),
            None => true,
        };
        let user = status.user.filter(|_| status.authenticated == Some(true) && meant);
        let Some(user) = user else { return Ok(Word::Refused) };
        let Some(name) = user.username.filter(|name| !name.is_empty()) else { return Ok(Word::Refused) };
        let (groups, extra) = (user.groups.unwrap_or_default(), user.extra.unwrap_or_default());
        Ok(Word::Believed(Caller { name, uid: user.uid, groups, extra }))
    }

    /// Whether a caller has a right, asked anew each time.
    pub(super) async fn check(&self, caller: &Caller, right: Right) -> Result<(), Failure> {
        let question = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(caller.name.clone()),
                uid: caller.uid.clone(),
                groups: Some(caller.groups.clone()),
                extra: Some(caller.extra.clone()),
                resource_attributes: Some(ResourceAttributes {
                    group: Some("ovs.c5c3.io".into()),
                    version: Some("v1alpha1".into()),
                    resource: Some("ovsnodes".into()),
                    subresource: Some(right.subresource().into()),
                    verb: Some(right.verb().into()),
                    namespace: self.object.namespace.clone(),
                    name: Some(self.object.name.clone()),
                    ..ResourceAttributes::default()
                }),
                non_resource_attributes: None,
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let params = PostParams::default();
        let answer = self.ask("subjectaccessreviews", reviews.create(&params, &question)).await?;
        let status = answer.status.unwrap_or_default();
        if status.allowed && status.denied != Some(true) {
            return Ok(());
        }
        let message = format!(
            "ovsnodes.ovs.c5c3.io {:?} is forbidden: user {:?} cannot {} resource \"ovsnodes/{}\" in API group \
             \"ovs.c5c3.io\" in the namespace {:?}",
            self.object.name,
            caller.name,
            right.verb(),
            right.subresource(),
            self.object.namespace.as_deref().unwrap_or_default(),
        );
        Err(Failure::new(StatusCode::FORBIDDEN, "Forbidden", message))
    }

    async fn ask<T>(
        &self,
        what: &'static str,
        question: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Failure> {
        let asked = async {
            let _turn = self.asking.acquire().await;
            question.await
        };
        match tokio::time::timeout(self.limits.ask_timeout, asked).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                tracing::error!(resource = what, error = status.message, "the agent may not check its callers");
                let message = format!("the agent may not create {what}: its ClusterRole lacks system:auth-delegator");
                Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message))
            }
            Ok(Err(error)) => {
                tracing::warn!(resource = what, error = %Chain(&error), "callers cannot be checked");
                Err(Failure::unavailable("the Kubernetes API does not answer, so nobody can be let in"))
            }
            Err(_) => {
                tracing::warn!(resource = what, limit = ?self.limits.ask_timeout, "callers cannot be checked in time");
                Err(Failure::unavailable("the Kubernetes API does not answer in time, so nobody can be let in"))
            }
        }
    }
}

fn bearer(headers: &HeaderMap) -> Result<&str, Failure> {
    let given = headers
        .get(header::AUTHORIZATION)
        .ok_or_else(|| Failure::unauthorized("a bearer token of the cluster is needed: Authorization: Bearer TOKEN"))?;
    let text = given.to_str().ok().and_then(|text| text.split_once(' '));
    let token = text.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
    token
        .filter(|token| !token.is_empty())
        .ok_or_else(|| Failure::unauthorized("only bearer tokens are taken: Authorization: Bearer TOKEN"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn believed(name: &str) -> Word {
        let (groups, extra) = (Vec::new(), BTreeMap::new());
        Word::Believed(Caller { name: name.into(), uid: None, groups, extra })
    }

    fn print(number: u8) -> Print {
        [number; 32]
    }

    fn memory(now: Instant) -> Memory {
        Memory { known: HashMap::new(), questions: GuardLimits::default().budget(now) }
    }

    #[test]
    fn a_word_is_remembered_for_its_time_only() {
        let (limits, now) = (GuardLimits::default(), Instant::now());
        let mut memory = memory(now);
        memory.remember(print(1), believed("alice"), &limits, now);
        memory.remember(print(2), Word::Refused, &limits, now);
        let later = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(memory.recall(&print(1), later(9)), Some(believed("alice")));
        assert_eq!(memory.recall(&print(1), later(10)), None);
        assert_eq!(memory.recall(&print(2), later(4)), Some(Word::Refused));
        assert_eq!(memory.recall(&print(2), later(5)), None);
        assert_eq!(memory.recall(&print(3), now), None);
    }

    #[test]
    fn strangers_push_nobody_out_and_the_memory_does_not_grow() {
        let limits = GuardLimits { remembered: 4, ..GuardLimits::default() };
        let now = Instant::now();
        let mut memory = memory(now);
        memory.remember(print(0), believed("alice"), &limits, now);
        for number in 1..100 {
            memory.remember(print(number), Word::Refused, &limits, now);
            assert!(memory.known.len() <= 4);
        }
        assert_eq!(memory.recall(&print(0), now), Some(believed("alice")));
    }
}
