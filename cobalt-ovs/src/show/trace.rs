//! The answer of `ofproto/trace`.
//!
//! A trace is a tree written with indentation: a bridge, the tables met there, under each what was done. A packet that
//! goes through connection tracking is told as far as that, and once more from there, as often as needed; what became
//! of it is the sum of the datapath's actions of all parts.

use cobalt_core::ovs::{Trace, TraceStep, Verdict};

use super::{Ports, indent, lines};

/// How deep brackets may lie in brackets of the datapath's actions.
const MAX_DEPTH: usize = 32;

/// What is said instead of a match where no flow of the table took the packet.
const NO_MATCH: &str = "no match";

/// How OVN asks its controller to log a packet.
const LOG: &str = "controller(userdata=00.00.00.07.";

/// Reads a trace. The ports in it are numbers; `ports` knows their names.
///
/// A port that `ports` does not know is called by its number, and so is one of several tunnels that no table names. Where the switch leaves the choice of the way to a hash
/// of the packet, the trace ends: the verdict then names the group, or `bond`, that chooses.
pub fn trace(text: &str, ports: &Ports) -> Trace {
    let mut reader = Reader::default();
    for line in lines(text) {
        reader.line(line);
    }
    let verdict = reader.verdict(ports);
    Trace { steps: reader.steps, verdict, text: text.to_owned() }
}

#[derive(Default)]
struct Reader {
    steps: Vec<TraceStep>,
    /// Bridges, and how far their titles are moved to the right.
    bridges: Vec<(usize, String)>,
    /// Steps that the next action may belong to, and how far they are moved.
    open: Vec<(usize, usize)>,
    /// Between a final flow and the next bridge nothing is a step.
    within: bool,
    outcome: Outcome,
}

/// What the datapath does, over all parts of a trace.
#[derive(Default)]
struct Outcome {
    ports: Vec<u32>,
    tunnels: Vec<u32>,
    controller: bool,
    /// Where the packet comes back to, and from which parts it did.
    recirculated: Vec<String>,
    resumed: Vec<String>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let (column, words) = (indent(line), line.trim_start());
        if let Some(name) = words.strip_prefix("bridge(\"").and_then(|rest| rest.strip_suffix("\")")) {
            while self.bridges.last().is_some_and(|(title, _)| *title >= column) {
                self.bridges.pop();
            }
            self.bridges.push((column, name.to_owned()));
            self.within = true;
        } else if words.starts_with("Final flow:") {
            self.within = false;
            self.bridges.clear();
            self.open.clear();
        } else if let Some(actions) = line.strip_prefix("Datapath actions: ") {
            self.outcome.read(actions, 0);
        } else if let Some(rest) = line.strip_prefix("recirc(") {
            self.outcome.resumed.extend(rest.split_once(')').map(|(id, _)| id.to_owned()));
        } else if self.within && !words.is_empty() && !words.starts_with("---") {
            match step(words) {
                Some((table, matched)) => self.step(column, table, matched),
                None => self.action(column, words),
            }
        }
    }

    fn step(&mut self, column: usize, table: u8, matched: &str) {
        // Numbers of one digit are moved by one.
        let column = column / 4 * 4;
        while self.bridges.len() > 1 && self.bridges.last().is_some_and(|(title, _)| *title > column) {
            self.bridges.pop();
        }
        while self.open.last().is_some_and(|(other, _)| *other >= column) {
            self.open.pop();
        }
        let bridge = self.bridges.last().map(|(_, name)| name.clone()).unwrap_or_default();
        self.open.push((column, self.steps.len()));
        self.steps.push(TraceStep { bridge, table, matched: matched.to_owned(), actions: Vec::new() });
    }

    fn action(&mut self, column: usize, words: &str) {
        while self.open.len() > 1 && self.open.last().is_some_and(|(step, _)| *step >= column) {
            self.open.pop();
        }
        let Some((_, index)) = self.open.last() else { return };
        if let Some(step) = self.steps.get_mut(*index) {
            step.actions.push(words.to_owned());
        }
    }

    fn verdict(&self, ports: &Ports) -> Verdict {
        let outcome = &self.outcome;
        let mut names: Vec<String> = Vec::new();
        let mut push = |name: String| {
            if !names.contains(&name) {
                names.push(name);
            }
        };
        for number in outcome.ports.iter().chain(&outcome.tunnels) {
            let known: Vec<_> = ports.datapath(*number).collect();
            match known.as_slice() {
                [] => push(format!("datapath port {number}")),
                [port] => push(port.name.clone()),
                // Tunnels share a number; the tables say which of them is meant.
                several => {
                    let meant = |name: &str| several.iter().any(|port| port.name == name);
                    let sent: Vec<String> = self.sent(ports).filter(|name| meant(name)).collect();
                    // Where they do not, as with a port that comes from a register, it has left all the same.
                    if sent.is_empty() {
                        push(format!("datapath port {number}"));
                    }
                    sent.into_iter().for_each(&mut push);
                }
            }
        }
        let undecided = outcome.recirculated.iter().any(|id| !outcome.resumed.contains(id));
        if undecided && outcome.tunnels.is_empty() && names.is_empty() {
            let group = self.steps.last().and_then(|step| step.actions.iter().find(|word| word.starts_with("group:")));
            names.push(group.map_or_else(|| "bond".to_owned(), Clone::clone));
        }
        if !names.is_empty() {
            Verdict::Forwarded(names)
        } else if outcome.controller && !self.only_logged() {
            Verdict::Controller
        } else {
            Verdict::Dropped
        }
    }

    /// Whether the controller gets the packet only to note it in a log: a rule that drops may want that.
    fn only_logged(&self) -> bool {
        let words = self.steps.iter().flat_map(|step| &step.actions);
        let mut sent = words.filter(|word| word.starts_with("controller(") || word.starts_with("CONTROLLER"));
        sent.clone().next().is_some() && sent.all(|word| word.starts_with(LOG))
    }

    /// The ports that tables send to.
    fn sent<'a>(&'a self, ports: &'a Ports) -> impl Iterator<Item = String> + 'a {
        let outputs = |step: &'a TraceStep| {
            let number = |action: &'a String| action.strip_prefix("output:");
            step.actions.iter().filter_map(number).map(|number| (step.bridge.as_str(), number))
        };
        let port = |(bridge, number): (&str, &str)| ports.openflow(bridge, number).map(|port| port.name.clone());
        self.steps.iter().flat_map(outputs).filter_map(port)
    }
}

/// `15. ct_state=+trk,metadata=0x1, priority 7, cookie 0x3cbd4c6e`.
fn step(words: &str) -> Option<(u8, &str)> {
    let (table, rest) = words.split_once(". ")?;
    let table = table.parse().ok()?;
    let matched = if rest.starts_with("priority ") {
        ""
    } else if rest.starts_with("No match") {
        NO_MATCH
    } else {
        rest.split_once(", priority ").map_or(rest, |(matched, _)| matched)
    };
    Some((table, matched))
}

impl Outcome {
    /// Reads actions of the datapath: numbers are ports, and some of the words hold actions themselves.
    fn read(&mut self, actions: &str, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        for action in split(actions) {
            if let Ok(port) = action.parse() {
                self.ports.push(port);
                continue;
            }
            let Some((name, inner)) = action.strip_suffix(')').and_then(|action| action.split_once('(')) else {
                continue;
            };
            match name {
                "recirc" => self.recirculated.push(inner.to_owned()),
                "userspace" => self.controller |= inner.contains("controller("),
                "tnl_push" => {
                    let number = inner.strip_prefix("tnl_port(").and_then(|rest| rest.split_once(')'));
                    self.tunnels.extend(number.and_then(|(number, _)| number.parse::<u32>().ok()));
                }
                // The parameters of some have names, so that they are not taken for actions.
                "clone" | "gt" | "le" | "actions" | "check_pkt_len" | "sample" => self.read(inner, depth + 1),
                _ => {}
            }
        }
    }
}

/// Cuts at the commas that are in no brackets.
fn split(actions: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    actions
        .split(move |letter| {
            match letter {
                '(' | '{' => depth += 1,
                ')' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            letter == ',' && depth == 0
        })
        .map(str::trim)
}
