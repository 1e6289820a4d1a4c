//! OpenMetrics text, written straight into one string: for a [`Source`](super::Source) with many series.

use std::fmt::Write as _;

/// The longest value of a label; names and paths are foreign text.
const LONGEST: usize = 256;

/// Whether a metric only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
}

/// A figure, before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Count(u64),
    /// Written as seconds, exactly.
    Nanoseconds(u64),
}

/// Foreign text as the value of a label.
pub(crate) fn escaped(text: &str) -> String {
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
pub(crate) struct Text(String);

impl Text {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }

    /// Begins a family. One that gets no sample leaves no trace.
    pub(crate) fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> Family<'_> {
        Family { out: &mut self.0, name, kind, help, begun: false }
    }
}

/// A family under way.
pub(crate) struct Family<'a> {
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
    pub(crate) fn plain(&mut self, value: u64) {
        self.line();
        let _ = writeln!(self.out, " {value}");
    }

    /// A sample of something with these labels, or of one of its devices, if there is a value.
    pub(crate) fn sample(&mut self, labels: &str, device: Option<(&str, &str)>, value: Option<Value>) {
        let Some(value) = value else { return };
        self.line();
        self.out.push('{');
        self.out.push_str(labels);
        if let Some((label, device)) = device {
            let comma = if labels.is_empty() { "" } else { "," };
            for part in [comma, label, "=\"", device, "\""] {
                self.out.push_str(part);
            }
        }
        let _ = match value {
            Value::Count(count) => writeln!(self.out, "}} {count}"),
            Value::Nanoseconds(ns) => writeln!(self.out, "}} {}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000),
        };
    }

    /// A sample that exists for its labels.
    pub(crate) fn meta(&mut self, labels: &str, device: (&str, &str), more: (&str, &str)) {
        self.line();
        let _ = writeln!(self.out, "{{{labels},{}=\"{}\",{}=\"{}\"}} 1", device.0, device.1, more.0, escaped(more.1));
    }
}
