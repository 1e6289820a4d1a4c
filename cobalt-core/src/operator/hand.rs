//! Whether the operator may do something: a leader asks each time, and one that only observes writes down instead.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use serde::Serialize;
use serde_json::{Value, json};

use super::Action;
use crate::runtime::{lock, metrics::Source};

/// How many withheld actions are kept. A region of a thousand hosts with a few wishes each fits.
const KEPT: usize = 10_000;

/// How many of them the state page shows; the log has had all.
const SHOWN: usize = 1000;

/// What a program that only observes would do, if it were allowed to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wish {
    /// The object it is about.
    pub about: String,
    /// What kind of action it is; one out of a small fixed set.
    pub kind: &'static str,
    /// What would be done, in words.
    pub action: String,
}

/// Something that is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Withheld {
    /// What makes it the same as another one about the same object.
    pub(super) key: String,
    pub(super) kind: &'static str,
    pub(super) words: String,
}

/// By object and key: the kind, and the words.
type Wishes = BTreeMap<(String, String), (&'static str, String)>;

/// The operator's permission to act. Cloned freely; all clones are the same.
#[derive(Clone)]
pub struct Hand {
    may_act: Arc<dyn Fn() -> bool + Send + Sync>,
    observe_only: bool,
    wishes: Arc<Mutex<Wishes>>,
}

impl fmt::Debug for Hand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hand").field("observe_only", &self.observe_only).finish_non_exhaustive()
    }
}

impl Default for Hand {
    fn default() -> Self {
        Self { may_act: Arc::new(|| true), observe_only: false, wishes: Arc::default() }
    }
}

impl Hand {
    /// One that asks this before each pass and each action.
    #[must_use]
    pub fn while_allowed(mut self, may_act: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.may_act = Arc::new(may_act);
        self
    }

    /// One that only says what it would do.
    #[must_use]
    pub fn observe_only(mut self, observe_only: bool) -> Self {
        self.observe_only = observe_only;
        self
    }

    /// Whether anything may be written or done now: not by a leader that was replaced.
    pub fn may_act(&self) -> bool {
        (self.may_act)()
    }

    /// Whether everything is only said, never done.
    pub fn is_observing(&self) -> bool {
        self.observe_only
    }

    /// Notes all that would be done about an object now, and forgets what is not wanted any more. What is new is logged.
    pub fn withhold<'a>(&self, about: &str, actions: impl IntoIterator<Item = &'a dyn Action>) {
        let withheld =
            |action: &dyn Action| Withheld { key: action.key(), kind: action.kind(), words: action.describe() };
        self.withhold_all(about, actions.into_iter().map(withheld));
    }

    pub(super) fn withhold_all(&self, about: &str, wanted: impl IntoIterator<Item = Withheld>) {
        let mut wishes = lock(&self.wishes);
        let mut before = BTreeMap::new();
        wishes.retain(|(object, key), wish| {
            let other = object != about;
            if !other {
                before.insert(key.clone(), std::mem::take(&mut wish.1));
            }
            other
        });
        for Withheld { key, kind, words } in wanted {
            if before.get(&key) != Some(&words) {
                tracing::info!(about, kind, action = words, "would do this, but only observes");
            }
            if wishes.len() < KEPT {
                wishes.insert((about.to_owned(), key), (kind, words));
            }
        }
    }

    /// Everything that would be done now, by object.
    pub fn wishes(&self) -> Vec<Wish> {
        let wishes = lock(&self.wishes);
        let wish = |((about, _), (kind, action)): (&(String, String), &(&'static str, String))| Wish {
            about: about.clone(),
            kind,
            action: action.clone(),
        };
        wishes.iter().map(wish).collect()
    }

    /// How much would be done now, by kind.
    pub fn wishes_by_kind(&self) -> BTreeMap<&'static str, usize> {
        let mut kinds = BTreeMap::new();
        for (kind, _) in lock(&self.wishes).values() {
            *kinds.entry(*kind).or_default() += 1;
        }
        kinds
    }

    /// What `/debug/state` shows: whether it only observes, and what it would do.
    pub(super) fn report(&self) -> Value {
        let mut listed = self.wishes();
        let all = listed.len();
        listed.truncate(SHOWN);
        json!({"observeOnly": self.observe_only, "wanted": all, "byKind": self.wishes_by_kind(), "first": listed})
    }
}

#[async_trait]
impl Source for Hand {
    async fn scrape(&self) -> String {
        const NAME: &str = "cobalt_operator_withheld_actions";
        let mut text = format!("# HELP {NAME} What would be done if it were not only observed.\n# TYPE {NAME} gauge\n");
        for (kind, count) in self.wishes_by_kind() {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{NAME}{{kind=\"{kind}\"}} {count}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::{Result, operator::Progress};

    #[derive(Debug)]
    struct Say(&'static str);

    #[async_trait]
    impl Action for Say {
        fn key(&self) -> String {
            self.0.into()
        }

        async fn run(&self) -> Result<Progress> {
            Ok(Progress::Done)
        }
    }

    #[test]
    fn a_wish_is_listed_while_it_is_wanted_and_no_longer() {
        let hand = Hand::default().observe_only(true);
        hand.withhold("hv-1", [&Say("disable") as &dyn Action, &Say("taint")]);
        hand.withhold("hv-2", [&Say("enable") as &dyn Action]);
        let words = |hand: &Hand| hand.wishes().into_iter().map(|wish| format!("{}: {}", wish.about, wish.action));
        assert_eq!(words(&hand).collect::<Vec<_>>(), ["hv-1: disable", "hv-1: taint", "hv-2: enable"]);
        assert_eq!(hand.wishes_by_kind(), BTreeMap::from([("Say", 3)]));
        let report = hand.report();
        assert_eq!((&report["wanted"], &report["first"][0]["action"]), (&json!(3), &json!("disable")));
        hand.withhold("hv-1", [&Say("taint") as &dyn Action]);
        assert_eq!(words(&hand).collect::<Vec<_>>(), ["hv-1: taint", "hv-2: enable"]);
        hand.withhold("hv-2", []);
        assert_eq!(words(&hand).collect::<Vec<_>>(), ["hv-1: taint"]);
    }
}
