//! Answers for people, and for programs.

use std::fmt::Write as _;

use cobalt_core::{
    agent::ovs::endpoints::wire::{Diagnosis, Finding, PortAnswer, Severity, StaleFlows, TraceAnswer},
    api::{OVSNode, OVSNodeStatus},
};
use comfy_table::{ContentArrangement, Table, TableStyle};
use kube::ResourceExt;
use serde::Serialize;

use super::OvsError;

pub(super) fn json(answer: &impl Serialize) -> Result<String, OvsError> {
    let mut text = serde_json::to_string_pretty(answer).map_err(OvsError::Json)?;
    text.push('\n');
    Ok(text)
}

/// Names and messages come from a host: they must not move anybody's cursor.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// Says something beside the answer.
pub(super) fn tell(text: &str) {
    eprintln!("{}", plain(text));
}

pub(super) fn status(node: &OVSNode) -> String {
    let none = OVSNodeStatus::default();
    let status = node.status.as_ref().unwrap_or(&none);
    let dash = |text: Option<&str>| text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned();
    let number = |number: Option<i32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let mut out = String::new();
    let version = dash(status.ovs_version.as_deref());
    let _ = writeln!(out, "{}: Open vSwitch {version}, DPDK {}", node.name_any(), dash(status.dpdk_version.as_deref()));
    if let Some(at) = &status.troubleshooting {
        let _ = writeln!(out, "questions are answered at {}", plain(&at.url));
    }
    section(
        &mut out,
        ["SEVERITY", "TYPE", "OBJECT", "MESSAGE"],
        status.issues.iter().flatten().map(|issue| {
            [issue.severity.clone(), dash(issue.type_.as_deref()), dash(issue.object.as_deref()), issue.message.clone()]
        }),
    );
    section(
        &mut out,
        ["CONDITION", "STATUS", "REASON", "MESSAGE"],
        status.conditions.iter().map(|condition| {
            let message = dash(Some(&condition.message));
            [condition.type_.clone(), condition.status.to_string(), condition.reason.clone(), message]
        }),
    );
    section(
        &mut out,
        ["BRIDGE", "STATUS", "PORTS", "FLOWS", "DATAPATH"],
        status.bridges.iter().flatten().map(|bridge| {
            let (state, datapath) = (dash(bridge.status.as_deref()), dash(bridge.datapath_type.as_deref()));
            [bridge.name.clone(), state, number(bridge.ports), number(bridge.flows), datapath]
        }),
    );
    let interfaces = status.interfaces.as_ref();
    section(
        &mut out,
        ["BOND", "STATUS", "ACTIVE", "MODE"],
        interfaces.and_then(|all| all.bonds.as_deref()).unwrap_or_default().iter().map(|bond| {
            let active = format!("{}/{}", number(bond.active_members), number(bond.members));
            [bond.name.clone(), dash(bond.status.as_deref()), active, dash(bond.mode.as_deref())]
        }),
    );
    section(
        &mut out,
        ["CARD", "STATUS", "SPEED", "BOND"],
        interfaces.and_then(|all| all.physical.as_deref()).unwrap_or_default().iter().map(|card| {
            let state = dash(card.status.as_deref());
            [card.name.clone(), state, dash(card.speed.as_deref()), dash(card.bond.as_deref())]
        }),
    );
    out
}

/// A table, if it has a row.
fn section<const N: usize>(out: &mut String, header: [&str; N], rows: impl Iterator<Item = [String; N]>) {
    let mut table = Table::new();
    // Messages are as long as they are: a terminal folds them, and a program that reads them is not misled.
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    table.set_header(header);
    for row in rows {
        table.add_row(row.map(|cell| plain(&cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    if table.row_count() > 0 {
        let _ = writeln!(out, "\n{}", table.trim_fmt());
    }
}

pub(super) fn trace(answer: &TraceAnswer) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{} → {}, in by {} of {}", answer.source, answer.destination, answer.in_port, answer.bridge);
    section(
        &mut out,
        ["BRIDGE", "TABLE", "MATCHED", "ACTIONS"],
        answer
            .steps
            .iter()
            .map(|step| [step.bridge.clone(), step.table.to_string(), step.matched.clone(), step.actions.join(", ")]),
    );
    let _ = writeln!(out, "\n{}", answer.summary);
    plain(&out)
}

pub(super) fn diagnosis(answer: &Diagnosis) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", answer.summary);
    for finding in &answer.findings {
        write_finding(&mut out, finding);
    }
    if answer.omitted > 0 {
        let _ = writeln!(out, "\n… and {} more", answer.omitted);
    }
    plain(&out)
}

/// The cookies of stale flows, by which `ovs-ofctl dump-flows` shows them; nothing where there are none.
pub(super) fn stale_flows(looked: &StaleFlows) -> String {
    /// As many as one looks through.
    const LISTED: usize = 20;
    let mut out = String::new();
    let listed = looked.cookies.iter().take(LISTED);
    section(&mut out, ["STALE COOKIE", "FLOWS"], listed.map(|one| [one.cookie.clone(), one.flows.to_string()]));
    let told: u64 = looked.cookies.iter().take(LISTED).fold(0, |sum, one| sum.saturating_add(one.flows));
    let more = looked.flows.unwrap_or_default().saturating_sub(told);
    if more > 0 {
        let _ = writeln!(out, "… and other cookies with {more} flows (-o json names up to a hundred)");
    }
    out
}

fn write_finding(out: &mut String, finding: &Finding) {
    let word = match finding.severity {
        Severity::Critical => "CRITICAL",
        Severity::Warning => "WARNING",
        Severity::Info => "INFO",
    };
    let _ =
        writeln!(out, "\n{word}  {} {}\n  {}\n  → {}", finding.kind, finding.object, finding.message, finding.advice);
}

pub(super) fn port(answer: &PortAnswer) -> String {
    let port = &answer.port;
    let mut out = String::new();
    let _ = write!(out, "{} is a port of {} ({})", port.name, port.bridge, port.role);
    let facts = [
        ("VM", port.instance.clone()),
        ("logical port", port.logical_port.clone()),
        ("hardware address", port.mac.clone()),
        ("tunnel to", port.chassis.clone()),
        ("bond", port.bond.clone()),
        ("link", port.link_up.map(|up| if up { "up" } else { "down" }.to_owned())),
    ];
    for (name, fact) in facts {
        if let Some(fact) = fact {
            let _ = write!(out, ", {name} {fact}");
        }
    }
    let _ = writeln!(out);
    plain(&out) + &diagnosis(&answer.diagnosis)
}

#[cfg(test)]
mod tests {
    use cobalt_core::agent::ovs::endpoints::wire::StaleCookie;

    use super::*;

    fn stale(cookies: u64) -> StaleFlows {
        let named = |number| StaleCookie { cookie: format!("{number:#x}"), flows: 2 };
        let (flows, cookies) = (Some(cookies * 2), (1..=cookies.min(100)).map(named).collect());
        StaleFlows { looking: false, looks: 1, at: None, flows, cookies, unknown: None }
    }

    #[test]
    fn stale_flows_are_told_by_cookie_and_very_many_are_not_all_listed() {
        assert_eq!(stale_flows(&stale(0)), "");
        let few = stale_flows(&stale(2));
        assert!(few.contains("STALE COOKIE FLOWS\n0x1          2\n0x2          2\n") && !few.contains('…'), "{few}");
        let many = stale_flows(&stale(5000));
        assert_eq!(many.lines().filter(|line| line.starts_with("0x")).count(), 20);
        assert!(many.ends_with("… and other cookies with 9960 flows (-o json names up to a hundred)\n"), "{many}");
    }

    #[test]
    fn a_name_from_a_host_cannot_move_the_cursor() {
        let answer = Diagnosis {
            at: cobalt_core::jiff::Timestamp::UNIX_EPOCH,
            summary: "port \u{1b}[2J has 1 warning".into(),
            findings: Vec::new(),
            omitted: 2,
        };
        let text = diagnosis(&answer);
        assert!(!text.contains('\u{1b}') && text.ends_with("… and 2 more\n"), "{text:?}");
    }
}
