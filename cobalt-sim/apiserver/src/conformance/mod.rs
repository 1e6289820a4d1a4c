//! A suite that holds an API server to the recorded behaviour of a real one.
//!
//! Every check speaks through [`kube::Client`]s, so the same bodies run against the server of this crate
//! (in process or on a socket) and against a real `kube-apiserver` (see [`envtest`]). A check asserts one
//! sentence of behaviour: the exact code, reason and body where clients depend on them, and kube's own
//! `Api`, `watcher` and `reflector` where *their* working is the point.
//!
//! ```no_run
//! use cobalt_apiserver::conformance::{self, Capabilities, Target};
//!
//! # async fn example(admin: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let capabilities = Capabilities::detect(&admin).await?;
//! let target = Target::new("the cluster at hand", "conf1", admin).with_capabilities(capabilities);
//! let report = conformance::run(&target).await;
//! eprintln!("{report}");
//! assert!(report.is_success());
//! # Ok(())
//! # }
//! ```
//!
//! The suite leaves nothing behind: it works in namespaces, an API group and cluster-scoped objects that all
//! carry the target's prefix, and deletes them at the end. It can therefore share a server with others, as
//! long as prefixes differ. What a server cannot do (no garbage collector, an old version) is a capability of
//! the target; the checks that need it are reported as skipped, with the reason.

mod check;
pub mod envtest;
mod exchange;
mod report;
mod rows;
mod target;
mod watching;
mod world;

use std::time::Duration;

use futures::StreamExt;

use check::Check;
pub use report::{CheckResult, Outcome, Report};
pub use target::{Capabilities, DetectError, Identity, Target};
use world::World;

/// No single check needs longer, even on a loaded machine with a real server.
const CHECK_LIMIT: Duration = Duration::from_secs(90);

/// Checks under way at once. They are independent; a few at a time hide the waits of the slow ones.
const IN_FLIGHT: usize = 8;

/// Puts the target to every check and reports each result in a fixed order.
///
/// A server on which not even the suite's own CRD can be registered yields a report with one failed check.
pub async fn run(target: &Target) -> Report {
    let world = match World::prepare(target).await {
        Ok(world) => world,
        Err(mismatch) => {
            let result = CheckResult {
                id: "preparation",
                row: "the suite registers its CRD and creates its namespace",
                outcome: mismatch.into(),
            };
            return Report { server: target.name.clone(), checks: vec![result] };
        }
    };
    let checks =
        futures::stream::iter(rows::all()).map(|check| examine(check, &world)).buffered(IN_FLIGHT).collect().await;
    world.clean_up().await;
    Report { server: target.name.clone(), checks }
}

async fn examine(check: Check, world: &World) -> CheckResult {
    let missing = check.needs.iter().find_map(|need| world.lacks(*need));
    let outcome = match missing {
        Some(reason) => Outcome::Skipped(reason),
        None => match tokio::time::timeout(CHECK_LIMIT, (check.run)(world)).await {
            Ok(Ok(())) => Outcome::Passed,
            Ok(Err(mismatch)) => mismatch.into(),
            Err(_) => Outcome::Failed {
                expected: format!("an end within {} s", CHECK_LIMIT.as_secs()),
                actual: "still waiting".to_owned(),
            },
        },
    };
    CheckResult { id: check.id, row: check.row, outcome }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::rows;

    #[test]
    fn every_check_has_an_id_of_its_own_and_words() {
        let mut seen = BTreeSet::new();
        for check in rows::all() {
            assert!(seen.insert(check.id), "the id {} is used twice", check.id);
            assert!(!check.row.is_empty(), "{} has no words", check.id);
        }
        assert!(seen.len() >= 60, "only {} checks", seen.len());
    }
}
