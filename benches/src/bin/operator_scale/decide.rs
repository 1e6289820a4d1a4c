//! Instructions of a decision, counted by valgrind: the same on every run and every machine of one kind.
//!
//! The program runs itself under `valgrind --tool=callgrind` with few decisions and with more; the difference has no
//! start-up in it.

use std::{hint::black_box, process::Command};

use anyhow::{Context, ensure};
use cobalt_benches::{Figure, decision::Decision};
use cobalt_core::operator::pass;

/// Counts and prints.
pub(crate) fn count() -> anyhow::Result<()> {
    const FEW: usize = 10;
    const MORE: usize = 110;
    for subject in ["decide", "bodies"] {
        let each = (counted(subject, MORE)? - counted(subject, FEW)?) / (MORE - FEW) as f64;
        Figure::new(format!("operator_scale.{subject}"), each, "instructions").print()?;
    }
    Ok(())
}

fn counted(subject: &str, times: usize) -> anyhow::Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["decisions", &format!("{subject}={times}")])
        .output()
        .context("run valgrind (Debian: apt-get install valgrind)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind failed: {said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let number = collected.and_then(|(_, number)| number.trim().parse().ok());
    number.with_context(|| format!("valgrind counted nothing: {said}"))
}

/// Decides so often, as `decide=10` or, with the bodies of the writes, `bodies=10`.
pub(crate) fn some(what: Option<String>) -> anyhow::Result<()> {
    let what = what.context("what is to be decided, and how often?")?;
    let (subject, times) = what.split_once('=').context("how often?")?;
    let decision = Decision::new()?;
    for _ in 0..times.parse::<usize>()? {
        let plan = black_box(pass::decide(&decision.stages, black_box(&decision.seen)));
        if subject == "bodies" {
            black_box((pass::main_body(&decision.seen, &plan), pass::status_body(&decision.seen, &plan)));
        }
    }
    Ok(())
}
