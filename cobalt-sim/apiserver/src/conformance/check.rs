//! What a check is, and how it says that it failed.

use std::fmt;

use futures::future::BoxFuture;

use super::report::Outcome;
use super::world::World;

/// One assertion about a server.
pub(crate) struct Check {
    pub(crate) id: &'static str,
    /// The behaviour in words, as a person would look it up.
    pub(crate) row: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) run: for<'a> fn(&'a World) -> BoxFuture<'a, Verdict>,
}

/// What a check asks of a server beyond the API that every version has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// Owner references are acted upon.
    GarbageCollection,
    /// `sendInitialEvents` on a watch.
    WatchList,
    /// CEL rules in CRD schemas.
    Cel,
    /// Kubernetes 1.x for at least this x: servers before it are known to answer otherwise.
    Minor(u32),
    /// An identity without any rights.
    Unprivileged,
    /// A client with a token nobody knows.
    UnknownToken,
}

pub(crate) type Verdict = Result<(), Mismatch>;

/// What was expected and what came instead.
#[derive(Debug)]
pub(crate) struct Mismatch {
    pub(crate) expected: String,
    pub(crate) actual: String,
}

impl Mismatch {
    pub(crate) fn new(expected: impl Into<String>, actual: impl fmt::Display) -> Mismatch {
        Mismatch { expected: expected.into(), actual: shortened(&actual.to_string()) }
    }
}

impl From<Mismatch> for Outcome {
    fn from(mismatch: Mismatch) -> Outcome {
        Outcome::Failed { expected: mismatch.expected, actual: mismatch.actual }
    }
}

/// Passes when `holds`, else tells what was expected and what was there.
pub(crate) fn ensure(holds: bool, expected: impl Into<String>, actual: impl fmt::Display) -> Verdict {
    if holds { Ok(()) } else { Err(Mismatch::new(expected, actual)) }
}

/// Passes when both are equal.
pub(crate) fn equal<T: PartialEq + fmt::Debug>(what: &str, actual: &T, expected: &T) -> Verdict {
    ensure(actual == expected, format!("{what}: {expected:?}"), format!("{actual:?}"))
}

/// A whole object in a failure line helps nobody; its first part does.
fn shortened(text: &str) -> String {
    const MOST: usize = 700;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}

/// A table row: `check!("id", "words", function)`, or with needs:
/// `check!("id", "words", function, needs Cel, Minor(25))`.
macro_rules! check {
    ($id:literal, $row:literal, $run:path $(, needs $($need:expr),+)?) => {
        $crate::conformance::check::Check {
            id: $id,
            row: $row,
            needs: &[$($($need),+)?],
            run: |world| Box::pin($run(world)),
        }
    };
}
pub(crate) use check;
