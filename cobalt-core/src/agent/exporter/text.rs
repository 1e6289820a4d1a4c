//! OpenMetrics text, written straight into one string.

use std::fmt::Write as _;

use super::families::{Kind, Value};
use crate::backend::DomainStats;

/// The longest value of a label; names and paths are foreign text.
const LONGEST: usize = 256;

/// The labels of one domain, escaped once for all its series.
pub(super) struct Labels {
    /// `domain="…",uuid="…"`.
    pub(super) domain: String,
    /// The values for its vCPUs, disks and interfaces, in the order of their maps.
    pub(super) vcpus: Vec<String>,
    pub(super) blocks: Vec<String>,
    pub(super) nets: Vec<String>,
}

impl Labels {
    pub(super) fn of(stats: &DomainStats) -> Self {
        Self {
            domain: format!("domain=\"{}\",uuid=\"{}\"", escaped(&stats.name), escaped(stats.id.as_str())),
            vcpus: stats.vcpus.keys().map(u32::to_string).collect(),
            blocks: stats.blocks.keys().map(|name| escaped(name)).collect(),
            nets: stats.nets.keys().map(|name| escaped(name)).collect(),
        }
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().take(LONGEST) {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}

/// A text under way.
pub(super) struct Text(String);

impl Text {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    pub(super) fn finish(self) -> String {
        self.0
    }

    /// Begins a family. One that gets no sample leaves no trace.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> Family<'_> {
        Family { out: &mut self.0, name, kind, help, begun: false }
    }
}

/// A family under way.
pub(super) struct Family<'a> {
    out: &'a mut String,
    name: &'static str,
    kind: Kind,
    help: &'static str,
    begun: bool,
}

impl Family<'_> {
    fn line(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            let kind = if self.kind == Kind::Counter { "counter" } else { "gauge" };
            let _ = write!(self.out, "# HELP {0} {1}.\n# TYPE {0} {kind}\n", self.name, self.help);
        }
        self.out.push_str(self.name);
        if self.kind == Kind::Counter {
            self.out.push_str("_total");
        }
    }

    /// A sample without labels.
    pub(super) fn plain(&mut self, value: u64) {
        self.line();
        let _ = writeln!(self.out, " {value}");
    }

    /// A sample of a domain or of one of its devices, if there is a value.
    pub(super) fn sample(&mut self, domain: &str, device: Option<(&str, &str)>, value: Option<Value>) {
        let Some(value) = value else { return };
        self.line();
        self.out.push('{');
        self.out.push_str(domain);
        if let Some((label, device)) = device {
            for part in [",", label, "=\"", device, "\""] {
                self.out.push_str(part);
            }
        }
        let _ = match value {
            Value::Count(count) => writeln!(self.out, "}} {count}"),
            Value::Nanoseconds(ns) => writeln!(self.out, "}} {}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000),
        };
    }

    /// A sample that exists for its labels.
    pub(super) fn meta(&mut self, domain: &str, device: (&str, &str), more: (&str, &str)) {
        self.line();
        let _ = writeln!(self.out, "{{{domain},{}=\"{}\",{}=\"{}\"}} 1", device.0, device.1, more.0, escaped(more.1));
    }
}
