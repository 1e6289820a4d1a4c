//! The result of a run, for people and for programs.

use std::fmt;

/// How one check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server behaves as recorded.
    Passed,
    /// It does not.
    Failed {
        /// What the recorded server does.
        expected: String,
        /// What this one did.
        actual: String,
    },
    /// The check did not run; the text says why.
    Skipped(String),
}

/// One line of the report.
#[derive(Clone, Debug)]
pub struct CheckResult {
    /// A stable short name.
    pub id: &'static str,
    /// The behaviour in words.
    pub row: &'static str,
    /// How it ended.
    pub outcome: Outcome,
}

/// All results of one run, in the order of the suite.
///
/// `Display` prints a table with a closing line `N passed, N failed, N skipped`.
#[derive(Clone, Debug)]
pub struct Report {
    /// The name the target gave itself.
    pub server: String,
    /// One entry per check.
    pub checks: Vec<CheckResult>,
}

impl Report {
    /// How many checks passed.
    pub fn passed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Passed))
    }

    /// How many checks failed.
    pub fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Failed { .. }))
    }

    /// How many checks did not run.
    pub fn skipped(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Skipped(_)))
    }

    /// Nothing failed, and something passed: an empty run is no success.
    pub fn is_success(&self) -> bool {
        self.failed() == 0 && self.passed() > 0
    }

    /// The closing line.
    pub fn summary(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed(), self.failed(), self.skipped())
    }

    /// The checks that did not run, with their reasons.
    pub fn skips(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.checks.iter().filter_map(|check| match &check.outcome {
            Outcome::Skipped(reason) => Some((check.id, reason.as_str())),
            _ => None,
        })
    }

    fn count(&self, wanted: impl Fn(&Outcome) -> bool) -> usize {
        self.checks.iter().filter(|check| wanted(&check.outcome)).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
        writeln!(f, "conformance of {}", self.server)?;
        for check in &self.checks {
            let word = match &check.outcome {
                Outcome::Passed => "passed",
                Outcome::Failed { .. } => "FAILED",
                Outcome::Skipped(_) => "skipped",
            };
            writeln!(f, "  {word:<7}  {:<width$}  {}", check.id, check.row)?;
            match &check.outcome {
                Outcome::Passed => {}
                Outcome::Failed { expected, actual } => {
                    writeln!(f, "           {:<width$}  expected {expected}", "")?;
                    writeln!(f, "           {:<width$}  actual   {actual}", "")?;
                }
                Outcome::Skipped(reason) => {
                    writeln!(f, "           {:<width$}  because {reason}", "")?;
                }
            }
        }
        write!(f, "{}", self.summary())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: Vec<Outcome>) -> Report {
        let check = |outcome| CheckResult { id: "get-missing", row: "404", outcome };
        Report { server: "a server".into(), checks: outcomes.into_iter().map(check).collect() }
    }

    #[test]
    fn the_table_closes_with_the_three_counts() {
        let failed = Outcome::Failed { expected: "404".into(), actual: "200".into() };
        let text = report(vec![Outcome::Passed, failed, Outcome::Skipped("no CEL".into())]).to_string();
        assert!(text.ends_with("\n1 passed, 1 failed, 1 skipped"), "{text}");
        assert!(text.contains("expected 404") && text.contains("actual   200"), "{text}");
        assert!(text.contains("because no CEL"), "{text}");
    }

    #[test]
    fn a_run_without_a_passed_check_is_no_success() {
        assert!(!report(vec![]).is_success());
        assert!(!report(vec![Outcome::Skipped("all of it".into())]).is_success());
        assert!(report(vec![Outcome::Passed, Outcome::Skipped("one".into())]).is_success());
    }
}
