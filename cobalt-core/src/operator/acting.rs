//! What the stages that act have in common.

use std::{sync::Arc, time::Duration};

use tracing::{Instrument, field::Empty};

use super::{Action, Outcome, Plan, Progress, Snapshot};
use crate::{Error, Result};

/// The most that is repeated of somebody else's words in a condition.
const WORDS: usize = 1024;

/// When to look again after something was done and is not seen yet.
pub(super) const SETTLE: Duration = Duration::from_secs(10);

/// When to try again what only people can cure.
pub(super) const SLOWLY: Duration = Duration::from_secs(60);

/// Runs an action in a span of its own.
pub(super) async fn perform(action: &dyn Action) -> Result<Progress> {
    let span = tracing::info_span!("action", kind = action.kind(), what = action.describe(), outcome = Empty);
    let answer = action.run().instrument(span.clone()).await;
    span.record(
        "outcome",
        match &answer {
            Ok(Progress::Done) => "ok",
            Ok(Progress::Underway(_)) => "underway",
            Err(error) => Error::category(error),
        },
    );
    answer
}

/// Asks for an action and answers what became of it in this pass. One that was done and is still wanted is not done twice
/// in a pass: the world is given a moment to show it.
pub(super) fn want(seen: &Snapshot, plan: &mut Plan, action: Arc<dyn Action>) -> Option<Outcome> {
    let outcome = seen.outcomes.get(&action.key()).cloned();
    plan.act(action);
    if outcome == Some(Outcome::Done) {
        plan.again_after(SETTLE);
    }
    outcome
}

/// Somebody else's words as they may stand in a condition: bounded, and the same for the same trouble. The id of a request
/// is another one at each attempt (it is in the logs): a condition that changed each time would wake us each time, and be the
/// reason for the next attempt.
pub(super) fn words(text: &str) -> String {
    let mut kept = String::with_capacity(text.len().min(WORDS));
    let mut rest = text;
    while let Some(start) = rest.find(" (req-") {
        let Some(end) = rest[start..].find(')') else { break };
        kept.push_str(&rest[..start]);
        rest = &rest[start + end + 1..];
    }
    kept.push_str(rest);
    if let Some((end, _)) = kept.char_indices().nth(WORDS) {
        kept.truncate(end);
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_trouble_is_said_in_the_same_words_at_each_attempt() {
        let first = words("disable service 7: conflict: busy: 409 busy (req-1f0c-44) at last");
        assert_eq!(first, words("disable service 7: conflict: busy: 409 busy (req-9999-12) at last"));
        assert_eq!(first, "disable service 7: conflict: busy: 409 busy at last");
        assert_eq!(words("(req-"), "(req-");
        assert_eq!(words(" (req-1"), " (req-1");
    }

    #[test]
    fn no_words_are_longer_than_people_read() {
        assert_eq!(words(&"ü".repeat(5000)).chars().count(), WORDS + 1);
    }
}
