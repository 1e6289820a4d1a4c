//! The contract of each seam, as a suite that any implementation can run.
//!
//! A trait's signature does not say that an inventory is ordered or that a cut connection comes back. These suites
//! do. An implementation, simulated or real, hands its *fixture* to the suite of its trait: the thing to be checked,
//! and a way to provoke what the suite needs to see (a domain that starts, a host that dies).
//!
//! | Suite | Trait |
//! |---|---|
//! | [`backend::run`] | [`HypervisorBackend`](crate::backend::HypervisorBackend) |
//! | [`nova::run`] | [`NovaClient`](crate::nova::NovaClient) |
//! | [`placement::run`] | [`PlacementClient`](crate::nova::PlacementClient) |
//! | [`test_bed::run`] | [`TestBed`](crate::nova::TestBed) |
//! | [`host::run`] | [`HostSystem`](crate::host::HostSystem) |
//! | [`ovs::run`] | [`OvsInspector`](crate::ovs::OvsInspector) |
//! | [`fence::run`] | [`Fencer`](crate::fence::Fencer) |
//!
//! What a driver says that it lacks is checked too: the call must answer
//! [`Error::Unsupported`]. What a fixture cannot provoke is *skipped*, with the reason, and the report says so: it is
//! never counted as passed.
//!
//! ```
//! use std::sync::Arc;
//!
//! use cobalt_core::{contract, fence::MockFencer};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! struct NoBmc(Arc<MockFencer>);
//!
//! impl contract::fence::FencerFixture for NoBmc {
//!     fn fencer(&self) -> Arc<dyn cobalt_core::fence::Fencer> {
//!         self.0.clone()
//!     }
//! }
//!
//! let mut mock = MockFencer::new();
//! mock.expect_power().returning(|host| Err(cobalt_core::Error::not_found(format!("read power of {host}"))));
//! mock.expect_power_off().returning(|host| Err(cobalt_core::Error::not_found(format!("power off {host}"))));
//! mock.expect_power_on().returning(|host| Err(cobalt_core::Error::not_found(format!("power on {host}"))));
//! let report = contract::fence::run(&mut NoBmc(Arc::new(mock))).await;
//! report.assert_passed();
//! assert!(report.passed() >= 1 && report.skipped() >= 1);
//! # }
//! ```

pub mod backend;
mod backend_events;
pub mod fence;
pub mod host;
pub mod nova;
mod nova_moves;
pub mod ovs;
pub mod placement;
pub mod test_bed;

use std::{error::Error as _, fmt, future::Future, time::Duration};

use crate::{Error, Result};

/// A check that has not ended by then has failed.
const CHECK_LIMIT: Duration = Duration::from_secs(300);
/// What must happen soon has not happened by then.
const SOON: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(50);

/// Why a check ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The implementation broke the law, and how.
    Failed(String),
    /// The fixture cannot provoke what the check needs, and why.
    Skipped(String),
}

/// What a fixture's provocations answer.
pub type Provoked<T> = std::result::Result<T, Stop>;

impl Stop {
    /// The fixture has no way to do this.
    pub fn cannot<T>(what: impl fmt::Display) -> Provoked<T> {
        Err(Self::Skipped(format!("this fixture cannot {what}")))
    }

    /// The law is broken.
    pub fn failed<T>(how: impl Into<String>) -> Provoked<T> {
        Err(Self::Failed(how.into()))
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        Self::Failed(text)
    }
}

/// How one check ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The law holds.
    Passed,
    /// The law is broken, and how.
    Failed(String),
    /// It could not be checked, and why.
    Skipped(String),
}

/// One law, and whether it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Its short name.
    pub id: String,
    /// The law in a sentence.
    pub law: String,
    /// How its check ended.
    pub outcome: Outcome,
}

/// What a suite found out about one implementation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The trait and the implementation.
    pub subject: String,
    /// All checks, in the order they ran.
    pub checks: Vec<Checked>,
}

impl Report {
    fn count(&self, wanted: fn(&Outcome) -> bool) -> usize {
        self.checks.iter().filter(|checked| wanted(&checked.outcome)).count()
    }

    /// How many laws hold.
    pub fn passed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Passed))
    }

    /// How many laws are broken.
    pub fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    /// How many laws could not be checked.
    pub fn skipped(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Skipped(_)))
    }

    /// Panics with the whole report if a law is broken.
    pub fn assert_passed(&self) {
        assert!(self.failed() == 0, "\n{self}");
    }

    /// Panics with the whole report if a law is broken or could not be checked.
    pub fn assert_complete(&self) {
        assert!(self.failed() + self.skipped() == 0, "\n{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, failed, skipped) = (self.passed(), self.failed(), self.skipped());
        writeln!(f, "contract of {}: {passed} passed, {failed} failed, {skipped} skipped", self.subject)?;
        let width = self.checks.iter().map(|checked| checked.id.len()).max().unwrap_or(0);
        for Checked { id, law, outcome } in &self.checks {
            match outcome {
                Outcome::Passed => writeln!(f, "  ok    {id:width$}  {law}")?,
                Outcome::Failed(how) => writeln!(f, "  FAIL  {id:width$}  {law}\n        {:width$}  {how}", "")?,
                Outcome::Skipped(why) => writeln!(f, "  skip  {id:width$}  {law}\n        {:width$}  {why}", "")?,
            }
        }
        Ok(())
    }
}

/// A suite while it runs.
struct Suite(Report);

impl Suite {
    fn new(subject: impl Into<String>) -> Self {
        Self(Report { subject: subject.into(), checks: Vec::new() })
    }

    async fn check(
        &mut self,
        id: impl Into<String>,
        law: impl Into<String>,
        check: impl Future<Output = Provoked<()>>,
    ) {
        let outcome = match tokio::time::timeout(CHECK_LIMIT, check).await {
            Ok(Ok(())) => Outcome::Passed,
            Ok(Err(Stop::Failed(how))) => Outcome::Failed(how),
            Ok(Err(Stop::Skipped(why))) => Outcome::Skipped(why),
            Err(_) => Outcome::Failed(format!("no end within {} s", CHECK_LIMIT.as_secs())),
        };
        self.0.checks.push(Checked { id: id.into(), law: law.into(), outcome });
    }
}

/// Fails unless the condition holds.
fn ensure(condition: bool, otherwise: impl FnOnce() -> String) -> Provoked<()> {
    if condition { Ok(()) } else { Err(Stop::Failed(otherwise())) }
}

/// Fails unless the two are the same.
#[expect(clippy::needless_pass_by_value, reason = "most callers have just made both")]
fn same<T: PartialEq + fmt::Debug>(what: &str, found: T, wanted: T) -> Provoked<()> {
    ensure(found == wanted, || format!("{what}: found {found:?}, wanted {wanted:?}"))
}

/// Fails unless the call failed in this way.
fn rejects<T: fmt::Debug>(what: &str, category: &str, answer: Result<T>) -> Provoked<()> {
    match answer {
        Err(error) if error.category() == category => Ok(()),
        Err(error) => Stop::failed(format!("{what}: wanted {category}, got {}: {error}", error.category())),
        Ok(answer) => Stop::failed(format!("{what}: wanted {category}, got {answer:?}")),
    }
}

/// Fails unless the list is in strictly ascending order.
fn ascending<T: Ord + fmt::Debug>(what: &str, list: &[T]) -> Provoked<()> {
    match list.windows(2).find(|pair| pair[0] >= pair[1]) {
        None => Ok(()),
        Some(pair) => Stop::failed(format!("{what}: {:?} comes before {:?}", pair[0], pair[1])),
    }
}

/// Asks again and again until the answer is yes, and fails if that takes too long.
async fn eventually<F>(what: &str, mut ask: impl FnMut() -> F) -> Provoked<()>
where
    F: Future<Output = Provoked<bool>>,
{
    let asking = async {
        loop {
            if ask().await? {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    match tokio::time::timeout(SOON, asking).await {
        Ok(answer) => answer,
        Err(_) => Stop::failed(format!("{what}: not within {} s", SOON.as_secs())),
    }
}

/// Waits for something that should come soon.
async fn soon<T>(what: &str, coming: impl Future<Output = T>) -> Provoked<T> {
    match tokio::time::timeout(SOON, coming).await {
        Ok(it) => Ok(it),
        Err(_) => Stop::failed(format!("{what}: not within {} s", SOON.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_report_tells_passed_failed_and_skipped_apart_and_ends_what_hangs() {
        let mut suite = Suite::new("Nothing");
        suite.check("good", "this holds", async { Ok(()) }).await;
        suite.check("bad", "this does not", async { same("answer", 41, 42) }).await;
        suite.check("unknown", "nobody can say", async { Stop::cannot("provoke it") }).await;
        suite.check("hangs", "this ends", std::future::pending()).await;
        let report = suite.0;
        assert_eq!((report.passed(), report.failed(), report.skipped()), (1, 2, 1));
        let text = report.to_string();
        assert!(text.contains("answer: found 41, wanted 42"), "{text}");
        assert!(text.contains("this fixture cannot provoke it"), "{text}");
        assert!(std::panic::catch_unwind(|| report.assert_passed()).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_comes_is_a_failure_and_not_a_hang() {
        let never = eventually("the end of time", || async { Ok(false) }).await;
        assert_eq!(never, Stop::failed("the end of time: not within 120 s"));
        let refused = rejects("ping", "conflict", Ok(1));
        assert_eq!(refused, Stop::failed("ping: wanted conflict, got 1"));
    }
}
