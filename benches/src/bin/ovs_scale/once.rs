//! What a program costs from its start to its end.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use cobalt_benches::{Usage, steps::cpu_ns};

/// How one knows that a client has done its work.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ending {
    /// It says `done` with how much it found, and waits to be let go.
    Says,
    /// It ends. How much it found is how often this is in what it wrote, less so many.
    Ends(&'static str, usize),
    /// It ends, and wrote how much it found behind this word.
    Tells(&'static str),
}

/// What it cost.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) wall_ms: f64,
    pub(crate) cpu_ms: f64,
    pub(crate) peak_mb: f64,
}

impl Cost {
    /// The middle one of several, by each measure on its own: one disturbed turn does not move it.
    pub(crate) fn median(costs: &[Cost]) -> Cost {
        let middle = |of: fn(&Cost) -> f64| {
            let mut sorted: Vec<f64> = costs.iter().map(of).collect();
            sorted.sort_by(f64::total_cmp);
            sorted.get(sorted.len() / 2).copied().unwrap_or_default()
        };
        Cost {
            wall_ms: middle(|cost| cost.wall_ms),
            cpu_ms: middle(|cost| cost.cpu_ms),
            peak_mb: middle(|cost| cost.peak_mb),
        }
    }
}

/// Runs a client once, and tells how much it found.
pub(crate) fn run(mut command: Command, ending: Ending) -> anyhow::Result<(Cost, usize)> {
    let started = Instant::now();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start it")?;
    let measured = follow(&mut child, ending, started);
    // It waits to be let go, or has ended.
    let _ = child.kill();
    child.wait()?;
    measured
}

fn follow(child: &mut Child, ending: Ending, started: Instant) -> anyhow::Result<(Cost, usize)> {
    let pid = child.id();
    let mut output = BufReader::with_capacity(1 << 16, child.stdout.take().context("no way out")?);
    let elapsed = || started.elapsed().as_secs_f64() * 1e3;
    if let Ending::Says = ending {
        loop {
            let mut line = String::new();
            ensure!(output.read_line(&mut line)? > 0, "it has ended");
            let Some(found) = line.strip_prefix("done ") else { continue };
            let wall_ms = elapsed();
            let cpu_ms = cpu_ns(pid)? as f64 / 1e6;
            return Ok((Cost { wall_ms, cpu_ms, peak_mb: Usage::of(pid)?.peak_mb }, found.trim_end().parse()?));
        }
    }
    // Its memory is highest when it writes the first of its output, and the pipe holds it there for a moment if the
    // output is long.
    ensure!(!output.fill_buf()?.is_empty(), "it said nothing");
    let peak_mb = Usage::of(pid)?.peak_mb;
    let mut text = Vec::new();
    output.read_to_end(&mut text)?;
    let wall_ms = elapsed();
    // Nobody has collected it yet, so its account is still open.
    let limit = Duration::from_secs(60);
    while !fs::read_to_string(format!("/proc/{pid}/stat"))?.contains(") Z ") {
        ensure!(started.elapsed() < limit, "it does not end");
        std::thread::yield_now();
    }
    let cpu_ms = cpu_ns(pid)? as f64 / 1e6;
    let text = String::from_utf8_lossy(&text);
    let found = match ending {
        Ending::Ends(each, less) => text.matches(each).count().saturating_sub(less),
        Ending::Tells(word) => {
            let behind = text.split(word).nth(1).context("it did not tell")?;
            behind.chars().take_while(char::is_ascii_digit).collect::<String>().parse()?
        }
        Ending::Says => bail!("it waits"),
    };
    Ok((Cost { wall_ms, cpu_ms, peak_mb }, found))
}
