//! Steps with a name and a time, and the closing line.

use std::fmt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::process::{self, Finished};
use crate::workspace;

/// No step of ours takes this long, not even all tests on a loaded machine; one that does hangs.
const STEP_LIMIT: Duration = Duration::from_secs(70 * 60);

/// A failed step shows this much of the end of its output; the whole is in a file.
const SHOWN_ON_FAILURE: usize = 250;

/// How often something passed, failed, was skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Tally {
    const ONE_PASSED: Tally = Tally { passed: 1, failed: 0, skipped: 0 };
    const ONE_FAILED: Tally = Tally { passed: 0, failed: 1, skipped: 0 };
    const ONE_SKIPPED: Tally = Tally { passed: 0, failed: 0, skipped: 1 };

    fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// What test programs said, in libtest's words and ours.
///
/// A test that cannot run where it is writes a line `SKIPPED name: reason` to its standard error and returns;
/// libtest then counts it as passed, which is corrected here. A test that runs, but for some part of it, writes
/// `SKIPPED check name: reason` for that part.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestOutput {
    pub(crate) tally: Tally,
    pub(crate) skips: Vec<String>,
}

impl TestOutput {
    pub(crate) fn parse<'a>(lines: impl IntoIterator<Item = &'a str>) -> TestOutput {
        let mut output = TestOutput::default();
        for line in lines {
            // With --nocapture libtest prints `test name ... ` without a line end first.
            if let Some((_, skip)) = line.split_once("SKIPPED ") {
                output.skips.push(skip.to_owned());
            } else if let Some(counts) = line.strip_prefix("test result: ") {
                output.tally.add(counts_of(counts));
            }
        }
        let whole = output.skips.iter().filter(|skip| !skip.starts_with("check ")).count();
        output.tally.passed = output.tally.passed.saturating_sub(whole);
        output.tally.skipped += output.skips.len();
        output
    }
}

/// Reads `ok. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s`.
fn counts_of(text: &str) -> Tally {
    let count = |word: &str| {
        let parts = text.split([';', '.']).map(str::trim);
        parts.filter_map(|part| part.strip_suffix(word)).find_map(|count| count.trim().parse().ok()).unwrap_or(0)
    };
    Tally { passed: count("passed"), failed: count("failed"), skipped: count("ignored") }
}

/// Runs steps one after the other and remembers how they ended.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    skips: Vec<String>,
}

struct Row {
    name: String,
    tally: Tally,
    took: Duration,
}

impl Report {
    /// A command that passes when it exits with 0.
    pub(crate) fn command(&mut self, name: &str, command: Command) -> Result<()> {
        self.step(
            name,
            command,
            false,
            |finished| {
                if finished.success() { Tally::ONE_PASSED } else { Tally::ONE_FAILED }
            },
        )
    }

    /// A command that runs tests. `loud` shows all of its output.
    pub(crate) fn tests(&mut self, name: &str, command: Command, loud: bool) -> Result<()> {
        let mut skips = Vec::new();
        self.step(name, command, loud, |finished| {
            let output = TestOutput::parse(finished.lines.iter().map(String::as_str));
            skips.extend(output.skips);
            let mut tally = output.tally;
            // A test that does not compile, or a process that died, prints no result; and a filter that matches
            // no test must not look like success.
            let nothing_ran = tally == Tally::default();
            if tally.failed == 0 && (nothing_ran || !finished.success()) {
                tally.failed = 1;
            }
            tally
        })?;
        self.skips.extend(skips);
        Ok(())
    }

    /// Something that is checked here, without a child.
    pub(crate) fn check(&mut self, name: &str, check: impl FnOnce() -> Result<Vec<String>>) -> Result<()> {
        println!("== {name}");
        let started = Instant::now();
        let problems = check()?;
        for problem in &problems {
            println!("   {problem}");
        }
        let tally = if problems.is_empty() { Tally::ONE_PASSED } else { Tally::ONE_FAILED };
        self.finish(name, tally, started.elapsed());
        Ok(())
    }

    /// Something that does not run here, and why.
    pub(crate) fn skip(&mut self, name: &str, reason: &str) {
        println!("== {name}");
        println!("   SKIPPED: {reason}");
        self.skips.push(format!("{name}: {reason}"));
        self.rows.push(Row { name: name.to_owned(), tally: Tally::ONE_SKIPPED, took: Duration::ZERO });
    }

    fn step(&mut self, name: &str, command: Command, loud: bool, judge: impl FnOnce(&Finished) -> Tally) -> Result<()> {
        println!("== {name}: {}", shown(&command));
        let started = Instant::now();
        let worth_showing = |line: &str| {
            let told = line.contains("SKIPPED ") || line.starts_with("conformance of ");
            told || (loud && !is_progress(line))
        };
        let finished = process::run(
            command,
            STEP_LIMIT,
            |line| {
                if worth_showing(line) {
                    println!("   {line}");
                }
            },
            |so_far| println!("   … {} s", so_far.as_secs()),
        )?;
        let tally = judge(&finished);
        let log = keep_log(name, &finished.lines)?;
        if tally.failed > 0 {
            if !loud {
                let worth: Vec<&String> = finished.lines.iter().filter(|line| !is_progress(line)).collect();
                for line in &worth[worth.len().saturating_sub(SHOWN_ON_FAILURE)..] {
                    println!("   | {line}");
                }
            }
            if finished.timed_out {
                println!("   ended after {} s without a result", STEP_LIMIT.as_secs());
            }
            println!("   all output: {log}");
        }
        self.finish(name, tally, started.elapsed());
        Ok(())
    }

    fn finish(&mut self, name: &str, tally: Tally, took: Duration) {
        let word = if tally.failed > 0 { "FAILED" } else { "ok" };
        println!("   {word} in {:.1} s ({tally})", took.as_secs_f64());
        self.rows.push(Row { name: name.to_owned(), tally, took });
    }

    fn total(&self) -> Tally {
        let mut total = Tally::default();
        for row in &self.rows {
            total.add(row.tally);
        }
        total
    }

    /// The summary, with the plain closing line.
    pub(crate) fn close(self) -> ExitCode {
        let total = self.total();
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        println!("\nSummary");
        for Row { name, tally, took } in &self.rows {
            let word = match tally {
                Tally { failed: 1.., .. } => "FAILED",
                Tally { passed: 0, skipped: 1.., .. } => "skipped",
                _ => "ok",
            };
            println!("  {word:<7}  {name:<width$}  {:>7.1} s  {tally}", took.as_secs_f64());
        }
        if !self.skips.is_empty() {
            println!("\nSKIPPED here:");
            for skip in &self.skips {
                println!("  {skip}");
            }
        }
        println!("\n{total}");
        if total.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// What cargo says while it compiles.
fn is_progress(line: &str) -> bool {
    let word = line.trim_start().split(' ').next().unwrap_or_default();
    ["Blocking", "Checking", "Compiling", "Documenting", "Downloaded", "Downloading", "Locking", "Updating"]
        .contains(&word)
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn keep_log(name: &str, lines: &[String]) -> Result<String> {
    let directory = workspace::target().join("xtask");
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let path = directory.join(format!("{}.log", name.replace(' ', "-")));
    std::fs::write(&path, lines.join("\n")).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_of_several_test_programs_add_up() {
        let output = TestOutput::parse([
            "     Running unittests src/lib.rs (target/debug/deps/x)",
            "test a ... ok",
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.02s",
            "test b ... FAILED",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.50s",
        ]);
        assert_eq!(output, TestOutput { tally: Tally { passed: 14, failed: 1, skipped: 1 }, skips: vec![] });
    }

    #[test]
    fn a_test_that_says_skipped_is_not_counted_as_passed() {
        let output = TestOutput::parse([
            "test on_a_real_server ... SKIPPED real server: KUBEBUILDER_ASSETS is not set",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s",
        ]);
        assert_eq!(output.tally, Tally { passed: 1, failed: 0, skipped: 1 });
        assert_eq!(output.skips, ["real server: KUBEBUILDER_ASSETS is not set"]);
    }

    #[test]
    fn a_skipped_part_is_counted_beside_its_test() {
        let output = TestOutput::parse([
            "SKIPPED check crd-cel of a real server: version 1.20 has no CEL rules",
            "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s",
        ]);
        assert_eq!(output.tally, Tally { passed: 1, failed: 0, skipped: 1 });
    }

    #[test]
    fn the_closing_line_is_plain() {
        assert_eq!(Tally { passed: 3, failed: 0, skipped: 1 }.to_string(), "3 passed, 0 failed, 1 skipped");
    }
}
