//! An OVSNode as tables for people.

use std::fmt::Write as _;

use cobalt_core::api::OVSNodeStatus;
use comfy_table::{ContentArrangement, Table, TableStyle};

/// The status of a switch, the worst first.
pub(crate) fn of(node: &str, status: &OVSNodeStatus) -> String {
    let mut out = String::new();
    let dash = |text: Option<&str>| text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned();
    let number = |number: Option<i32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let version = dash(status.ovs_version.as_deref());
    let _ = writeln!(out, "{node}: Open vSwitch {version}, DPDK {}", dash(status.dpdk_version.as_deref()));
    let issues = status.issues.iter().flatten();
    section(
        &mut out,
        ["SEVERITY", "TYPE", "OBJECT", "MESSAGE"],
        issues.map(|issue| {
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
    let bridges = status.bridges.iter().flatten();
    section(
        &mut out,
        ["BRIDGE", "STATUS", "PORTS", "FLOWS", "DATAPATH"],
        bridges.map(|bridge| {
            let state = dash(bridge.status.as_deref());
            let datapath = dash(bridge.datapath_type.as_deref());
            [bridge.name.clone(), state, number(bridge.ports), number(bridge.flows), datapath]
        }),
    );
    let interfaces = status.interfaces.as_ref();
    let bonds = interfaces.and_then(|all| all.bonds.as_deref()).unwrap_or_default().iter();
    section(
        &mut out,
        ["BOND", "STATUS", "ACTIVE", "MODE", "KIND"],
        bonds.map(|bond| {
            let active = format!("{}/{}", number(bond.active_members), number(bond.members));
            [
                bond.name.clone(),
                dash(bond.status.as_deref()),
                active,
                dash(bond.mode.as_deref()),
                dash(bond.kind.as_deref()),
            ]
        }),
    );
    let cards = interfaces.and_then(|all| all.physical.as_deref()).unwrap_or_default().iter();
    section(
        &mut out,
        ["CARD", "STATUS", "SPEED", "BOND"],
        cards.map(|card| {
            let speed = dash(card.speed.as_deref());
            [card.name.clone(), dash(card.status.as_deref()), speed, dash(card.bond.as_deref())]
        }),
    );
    out
}

/// A table, if it has a row.
fn section<const N: usize>(out: &mut String, header: [&str; N], rows: impl Iterator<Item = [String; N]>) {
    let mut table = Table::new();
    // Messages may be as long as they are: a terminal folds them, and a program that reads them is not misled.
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    if table.row_count() > 0 {
        let _ = writeln!(out, "\n{}", table.trim_fmt());
    }
}
