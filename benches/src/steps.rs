//! Clients in processes of their own that do one thing at a time, so that several of them can be measured in turns.
//!
//! A client says `ready`, waits for a line, does its work, says `done` with how much it found, and begins again. Whatever
//! it has to prepare (a new connection, say) it prepares before it is ready; that is not measured.

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

use anyhow::{Context, bail};

/// What one step cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// From the go to the end, in milliseconds.
    pub wall_ms: f64,
    /// CPU time of the client's process, user and system, in milliseconds.
    pub cpu_ms: f64,
}

impl Cost {
    /// The middle one of several, by each measure on its own: one disturbed step does not move it.
    #[must_use]
    pub fn median(costs: &[Cost]) -> Cost {
        let middle = |of: fn(&Cost) -> f64| {
            let mut sorted: Vec<f64> = costs.iter().map(of).collect();
            sorted.sort_by(f64::total_cmp);
            sorted.get(sorted.len() / 2).copied().unwrap_or_default()
        };
        Cost { wall_ms: middle(|cost| cost.wall_ms), cpu_ms: middle(|cost| cost.cpu_ms) }
    }
}

/// CPU time of all threads that a process has now, in nanoseconds. Finer than the ticks of [`Usage`](crate::Usage), but
/// without the threads that have ended.
pub fn cpu_ns(pid: u32) -> io::Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        sum += text.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or_default();
    }
    Ok(sum)
}

/// Measures what a process spends while something is done.
#[allow(clippy::cast_precision_loss, reason = "figures are read by people")]
pub fn measured<T>(pid: u32, act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(Cost, T)> {
    let (cpu, started) = (cpu_ns(pid)?, Instant::now());
    let done = act()?;
    let wall_ms = started.elapsed().as_secs_f64() * 1e3;
    Ok((Cost { wall_ms, cpu_ms: cpu_ns(pid)?.saturating_sub(cpu) as f64 / 1e6 }, done))
}

/// A client, seen from the one who measures.
#[derive(Debug)]
pub struct Steps {
    name: String,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Steps {
    /// Starts a program that speaks as this module says.
    pub fn start(name: impl Into<String>, command: &mut Command) -> anyhow::Result<Self> {
        let name = name.into();
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("start {name}"))?;
        let input = child.stdin.take().context("no way in")?;
        let output = BufReader::new(child.stdout.take().context("no way out")?);
        let mut steps = Self { name, child, input, output };
        steps.until(|line| line == "ready")?;
        Ok(steps)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// One step, and how much it found.
    pub fn step(&mut self) -> anyhow::Result<(Cost, usize)> {
        let pid = self.pid();
        let (cost, line) = measured(pid, || {
            writeln!(self.input, "go")?;
            self.until(|line| line.starts_with("done"))
        })?;
        self.until(|line| line == "ready")?;
        let found = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        Ok((cost, found.with_context(|| format!("{} said {line:?}", self.name))?))
    }

    fn until(&mut self, wanted: impl Fn(&str) -> bool) -> anyhow::Result<String> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                bail!("{} has ended", self.name);
            }
            if wanted(line.trim_end()) {
                return Ok(line.trim_end().to_owned());
            }
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The client's side: prepares and works until nobody wants more.
#[expect(clippy::print_stdout, reason = "standard output is the interface of these programs")]
pub async fn serve<P>(
    mut prepare: impl AsyncFnMut() -> anyhow::Result<P>,
    mut work: impl AsyncFnMut(P) -> anyhow::Result<usize>,
) -> anyhow::Result<()> {
    // A thread of its own, so that a client who waits still answers what its server asks.
    let (sender, mut lines) = tokio::sync::mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    loop {
        let prepared = prepare().await?;
        println!("ready");
        if lines.recv().await.is_none() {
            return Ok(());
        }
        println!("done {}", work(prepared).await?);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_asked_step_by_step_and_its_cpu_time_is_its_own() {
        let script = "echo ready; while read go; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done 7; echo ready; done";
        let mut steps = Steps::start("a shell", Command::new("sh").args(["-c", script])).unwrap();
        let (cost, found) = steps.step().unwrap();
        assert_eq!(found, 7);
        assert!(cost.cpu_ms > 0.0 && cost.wall_ms > 0.0, "{cost:?}");
        assert!(steps.step().is_ok());
    }

    #[test]
    fn a_client_that_ends_is_an_error_that_names_it() {
        let error = Steps::start("a shell", Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert!(error.to_string().contains("a shell has ended"), "{error}");
    }

    #[test]
    fn the_median_ignores_a_disturbed_step() {
        let cost = |ms| Cost { wall_ms: ms, cpu_ms: ms / 2.0 };
        assert_eq!(Cost::median(&[cost(2.0), cost(900.0), cost(1.0)]), cost(2.0));
    }
}
