//! Faults of one handle: what makes a call through a seam fail, wait, hang, or lose its answer.
//!
//! Every handle of a [`Region`](crate::Region) has its own [`Faults`]; clones of a handle share them. They come on
//! top of the world's own troubles (a host without power does not answer, whatever the faults say).

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cobalt_core::{Error, Result};
use tokio::sync::Notify;

/// How long a call may take before the handle gives up, as every real client does.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The error a failed call answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// Cannot be reached.
    Unavailable,
    /// Cannot serve now, and says when to come again.
    Busy(Duration),
    /// No answer in time (answered at once; use [`Faults::hang`] to wait for it).
    Timeout,
    /// The state forbids it.
    Conflict,
    /// Said no for good.
    Refused,
    /// Not allowed.
    Denied,
    /// Does not exist.
    NotFound,
    /// Answered nonsense.
    Malformed,
    /// Broke while it was at it: what an API answers with 500. For a caller of a seam it is unavailable.
    Internal,
}

/// The cause of an injected error, by which a transport knows what was meant.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("injected fault")]
pub(crate) struct Injected(pub(crate) Failure);

impl Failure {
    fn error(self, operation: &str) -> Error {
        let cause = || Injected(self);
        match self {
            Self::Unavailable | Self::Internal => Error::unavailable(operation, cause()),
            Self::Busy(after) => Error::Unavailable {
                operation: operation.to_owned(),
                retry_after: Some(after),
                cause: Some(Box::new(cause())),
            },
            Self::Timeout => Error::timeout(operation, CALL_TIMEOUT),
            Self::Conflict => Error::conflict(operation, "injected fault"),
            Self::Refused => Error::refused(operation, "injected fault"),
            Self::Denied => Error::Denied { operation: operation.to_owned(), cause: Some(Box::new(cause())) },
            Self::NotFound => Error::not_found(operation),
            Self::Malformed => Error::malformed(operation, "injected fault"),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Effect {
    Fail(Failure),
    LoseAnswer,
}

#[derive(Debug)]
struct Planned {
    method: Option<&'static str>,
    effect: Effect,
    times: u64,
}

#[derive(Debug, Default)]
struct Plan {
    planned: Vec<Planned>,
    delay: Duration,
    hanging: bool,
    calls: BTreeMap<&'static str, u64>,
}

/// The faults of one handle, and the count of its calls.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use cobalt_core::nova::NovaClient;
/// use cobalt_sim::{Region, faults::Failure};
///
/// let region = Region::builder().hosts(1).build();
/// let nova = region.nova();
/// nova.faults().fail_next("services", Failure::Unavailable);
/// assert!(nova.services().await.is_err());
/// assert!(nova.services().await.is_ok());
/// assert_eq!(nova.faults().calls("services"), 2);
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Faults {
    plan: Arc<Mutex<Plan>>,
    released: Arc<Notify>,
}

impl Faults {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, method: Option<&'static str>, effect: Effect, times: u64) {
        if times > 0 {
            self.plan().planned.push(Planned { method, effect, times });
        }
    }

    /// The next call of this trait method fails.
    pub fn fail_next(&self, method: &'static str, failure: Failure) {
        self.push(Some(method), Effect::Fail(failure), 1);
    }

    /// The next `times` calls, of any method, fail.
    pub fn fail_any(&self, times: u64, failure: Failure) {
        self.push(None, Effect::Fail(failure), times);
    }

    /// The next call of this trait method is carried out, but its answer is lost: the caller sees a timeout.
    pub fn lose_answer(&self, method: &'static str) {
        self.push(Some(method), Effect::LoseAnswer, 1);
    }

    /// Every call takes this much longer, until changed.
    pub fn delay(&self, delay: Duration) {
        self.plan().delay = delay;
    }

    /// Calls get no answer until [`Faults::clear`]; each gives up after [`CALL_TIMEOUT`].
    pub fn hang(&self) {
        self.plan().hanging = true;
    }

    /// Takes all faults back; calls that hang go on.
    pub fn clear(&self) {
        let mut plan = self.plan();
        plan.planned.clear();
        plan.delay = Duration::ZERO;
        plan.hanging = false;
        drop(plan);
        self.released.notify_waiters();
    }

    /// How often this trait method was called through this handle.
    pub fn calls(&self, method: &str) -> u64 {
        self.plan().calls.get(method).copied().unwrap_or(0)
    }

    /// All calls through this handle, by trait method.
    pub fn all_calls(&self) -> BTreeMap<&'static str, u64> {
        self.plan().calls.clone()
    }

    /// Runs one call of a seam under these faults.
    pub(crate) async fn run<T, F>(
        &self,
        method: &'static str,
        operation: impl FnOnce() -> String,
        call: impl FnOnce() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let (effect, delay) = {
            let mut plan = self.plan();
            *plan.calls.entry(method).or_default() += 1;
            (plan.take(method), plan.delay)
        };
        if delay >= CALL_TIMEOUT || self.hangs_for_good().await {
            if delay >= CALL_TIMEOUT {
                tokio::time::sleep(CALL_TIMEOUT).await;
            }
            return Err(Error::timeout(operation(), CALL_TIMEOUT));
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match effect {
            Some(Effect::Fail(failure)) => Err(failure.error(&operation())),
            Some(Effect::LoseAnswer) => {
                // Whatever came of it, nobody will know.
                let _lost = call().await;
                Err(Error::timeout(operation(), CALL_TIMEOUT))
            }
            None => call().await,
        }
    }

    /// Waits while the handle hangs; `true` if it still does when the call has to give up.
    async fn hangs_for_good(&self) -> bool {
        let wait = async {
            loop {
                let released = self.released.notified();
                tokio::pin!(released);
                released.as_mut().enable();
                if !self.plan().hanging {
                    return;
                }
                released.await;
            }
        };
        tokio::time::timeout(CALL_TIMEOUT, wait).await.is_err()
    }
}

impl Plan {
    fn take(&mut self, method: &str) -> Option<Effect> {
        let index = self.planned.iter().position(|planned| planned.method.is_none_or(|wanted| wanted == method))?;
        let planned = &mut self.planned[index];
        let effect = planned.effect;
        planned.times -= 1;
        if planned.times == 0 {
            self.planned.remove(index);
        }
        Some(effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn call(faults: &Faults) -> Result<u8> {
        faults.run("ping", || "ping".into(), || async { Ok(7) }).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_call_gives_up_in_bounded_time_and_goes_on_when_released() {
        let faults = Faults::default();
        faults.hang();
        assert_eq!(call(&faults).await.map_err(|error| error.category()), Err("timeout"));
        let other = faults.clone();
        let waiting = tokio::spawn(async move { call(&other).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        faults.clear();
        assert_eq!(waiting.await.ok().and_then(Result::ok), Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_strikes_as_often_as_it_was_planned() {
        let faults = Faults::default();
        faults.fail_any(2, Failure::Busy(Duration::from_secs(3)));
        assert!(call(&faults).await.is_err_and(|error| error.is_transient()));
        assert!(call(&faults).await.is_err());
        assert_eq!(call(&faults).await.ok(), Some(7));
        assert_eq!(faults.calls("ping"), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_still_does_the_work() {
        let faults = Faults::default();
        let done = Mutex::new(false);
        faults.lose_answer("act");
        let answer = faults
            .run(
                "act",
                || "act".into(),
                || async {
                    *done.lock().unwrap_or_else(PoisonError::into_inner) = true;
                    Ok(())
                },
            )
            .await;
        assert_eq!(answer.map_err(|error| error.category()), Err("timeout"));
        assert!(*done.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
