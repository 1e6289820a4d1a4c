//! Instructions of a decision, counted by valgrind: the same on every run and every machine of one kind.
//!
//! The program runs itself under `valgrind --tool=callgrind` with few decisions and with more; the difference has no
//! start-up in it.

#![allow(clippy::cast_precision_loss, reason = "figures are read by people")]

use std::{hint::black_box, process::Command};

use anyhow::{Context, ensure};
use clap::{Parser, ValueEnum};
use cobalt_benches::{
    Figure,
    decision::{Decision, Drain},
};
use cobalt_core::operator::{eviction, pass};

/// What is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// All stages over one Hypervisor at rest, in a region of a thousand.
    Stages,
    /// The same, and the bodies of its writes.
    Bodies,
    /// The first look at a host with 50 servers that is being drained.
    Drain,
    /// One in the middle: with migrations, records and rooms.
    DrainUnderWay,
}

#[derive(Parser)]
struct Args {
    /// Decide only this, without counting; for a profiler
    subject: Option<Subject>,
    /// How often
    #[arg(default_value_t = 1)]
    times: usize,
}

fn main() -> anyhow::Result<()> {
    const FEW: usize = 10;
    const MORE: usize = 110;
    let args = Args::parse();
    if let Some(subject) = args.subject {
        return decide(subject, args.times);
    }
    for subject in Subject::value_variants() {
        let name = subject.to_possible_value().context("a name")?.get_name().to_owned();
        let each = (counted(&name, MORE)? - counted(&name, FEW)?) / (MORE - FEW) as f64;
        Figure::new(format!("operator_decide.{name}"), each, "instructions").print()?;
    }
    Ok(())
}

fn counted(subject: &str, times: usize) -> anyhow::Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args([subject, &times.to_string()])
        .output()
        .context("run valgrind (Debian: apt-get install valgrind)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind failed: {said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let number = collected.and_then(|(_, number)| number.trim().parse().ok());
    number.with_context(|| format!("valgrind counted nothing: {said}"))
}

fn decide(subject: Subject, times: usize) -> anyhow::Result<()> {
    if let Subject::Drain | Subject::DrainUnderWay = subject {
        let begins = subject == Subject::Drain;
        let Drain { seen, settings, now } = if begins { Drain::new()? } else { Drain::under_way()? };
        let plan = eviction::decide(&seen, &settings, now);
        let moves = plan.status.instances().iter().filter(|one| one.state.is_in_flight()).count();
        let wanted = if begins { (settings.concurrency, 0) } else { (0, settings.concurrency) };
        ensure!((plan.steps.len(), moves) == wanted, "the drain is not where it should be");
        for _ in 0..times {
            black_box(eviction::decide(black_box(&seen), &settings, now));
        }
        return Ok(());
    }
    let Decision { stages, seen } = Decision::new()?;
    for _ in 0..times {
        let plan = black_box(pass::decide(&stages, black_box(&seen)));
        if subject == Subject::Bodies {
            black_box((pass::main_body(&seen, &plan), pass::status_body(&seen, &plan)));
        }
    }
    Ok(())
}
