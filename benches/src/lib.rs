//! What the programs that measure have in common.
//!
//! Each figure is one JSON object on a line of standard output; everything else goes to standard error. `ratio` is the
//! peer's (or the promise's) figure divided by ours where less is better, so above 1 is good.

pub mod decision;
pub mod steps;

use std::{fs, io};

use serde::Serialize;

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// What was measured, as `subject.what`.
    pub name: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// What it is compared with, if with anything.
    pub against: Option<String>,
    /// The other's value divided by ours.
    pub ratio: Option<f64>,
}

impl Figure {
    /// A figure that stands alone.
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit, against: None, ratio: None }
    }

    /// Compared with another value in the same unit, of which less is better.
    #[must_use]
    pub fn against(mut self, what: impl Into<String>, other: f64) -> Self {
        self.against = Some(what.into());
        self.ratio = (self.value > 0.0).then(|| other / self.value);
        self
    }

    /// Writes the figure as its line.
    #[expect(clippy::print_stdout, reason = "standard output is the interface of these programs")]
    pub fn print(&self) -> anyhow::Result<()> {
        println!("{}", serde_json::to_string(self)?);
        Ok(())
    }
}

/// Memory and CPU time of a process, from `/proc`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// Resident memory, in MB (10⁶ bytes).
    pub resident_mb: f64,
    /// The most it ever was.
    pub peak_mb: f64,
    /// CPU time, in seconds.
    pub cpu_seconds: f64,
}

impl Usage {
    /// Of this process id.
    pub fn of(pid: u32) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // After the parenthesised name, user and system time are the 12th and 13th fields, in ticks of 10 ms.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |n: usize| fields.get(n).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        Ok(Self {
            resident_mb: kilobytes(&status, "VmRSS:") * 1024.0 / 1e6,
            peak_mb: kilobytes(&status, "VmHWM:") * 1024.0 / 1e6,
            cpu_seconds: (ticks(11) + ticks(12)) / 100.0,
        })
    }
}

fn kilobytes(status: &str, key: &str) -> f64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_one_line_and_half_of_the_limit_has_ratio_two() {
        let figure = Figure::new("operator.rss", 20.0, "MB").against("promise", 40.0);
        assert_eq!(
            serde_json::to_string(&figure).unwrap_or_default(),
            r#"{"name":"operator.rss","value":20.0,"unit":"MB","against":"promise","ratio":2.0}"#
        );
    }

    #[test]
    fn this_process_uses_memory() {
        let usage = Usage::of(std::process::id()).map_err(|error| error.to_string());
        assert!(usage.is_ok_and(|usage| usage.resident_mb > 0.5 && usage.peak_mb >= usage.resident_mb));
    }
}
