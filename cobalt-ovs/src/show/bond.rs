//! `bond/show` and `lacp/show`.

use super::{lines, pair};

/// What the switch says of one bond.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BondReport {
    /// Its name.
    pub name: String,
    /// How it distributes, such as `balance-tcp`.
    pub mode: Option<String>,
    /// The hardware address of the member that is active; `None` if none is.
    pub active_mac: Option<String>,
    /// Its members, as they come.
    pub members: Vec<MemberReport>,
}

/// What the switch says of one leg of a bond.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberReport {
    /// The interface.
    pub name: String,
    /// Whether the bond sends over it.
    pub enabled: bool,
    /// Whether it could be enabled.
    pub may_enable: bool,
    /// Whether it is the one that is active.
    pub active: bool,
}

/// What the switch says of LACP on one bond.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LacpReport {
    /// The bond.
    pub name: String,
    /// Such as `active negotiated`.
    pub status: Option<String>,
    /// Our own system.
    pub system: Option<String>,
    /// Its members, as they come.
    pub members: Vec<LacpMember>,
}

/// What the switch says of LACP on one leg.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LacpMember {
    /// The interface.
    pub name: String,
    /// `current`, `expired` or `defaulted`.
    pub state: Option<String>,
    /// Whether it is attached to the aggregate.
    pub attached: bool,
    /// Whether it could be enabled.
    pub may_enable: bool,
    /// The partner's system; `None` if there is no partner.
    pub partner: Option<String>,
    /// The partner's port.
    pub partner_port: Option<String>,
    /// What the partner says of itself: `activity`, `synchronized`, `collecting`, …
    pub partner_state: Vec<String>,
}

/// The title of a section, `---- bond0 ----`.
fn title(line: &str) -> Option<&str> {
    let name = line.strip_prefix("---- ")?.strip_suffix("----")?.trim();
    (!name.is_empty()).then_some(name)
}

/// `member eth1: rest`, which was called `slave` before.
fn member(line: &str) -> Option<(&str, &str)> {
    let rest = ["member", "slave"].iter().find_map(|word| line.strip_prefix(word))?;
    let rest = rest.strip_prefix(':').unwrap_or(rest).strip_prefix(' ')?;
    let (name, state) = rest.rsplit_once(": ")?;
    Some((name.trim(), state.trim()))
}

/// A hardware address that is somebody's.
fn somebody(mac: &str) -> Option<String> {
    (!mac.is_empty() && mac != "00:00:00:00:00:00").then(|| mac.to_owned())
}

/// Reads `bond/show`.
pub fn bonds(text: &str) -> Vec<BondReport> {
    let mut bonds: Vec<BondReport> = Vec::new();
    for line in lines(text) {
        if let Some(name) = title(line) {
            bonds.push(BondReport { name: name.to_owned(), ..BondReport::default() });
            continue;
        }
        let Some(bond) = bonds.last_mut() else { continue };
        if let Some((name, state)) = member(line) {
            let enabled = state == "enabled";
            bond.members.push(MemberReport { name: name.to_owned(), enabled, ..MemberReport::default() });
            continue;
        }
        match (bond.members.last_mut(), pair(line)) {
            (Some(member), Some(("may_enable", value))) => member.may_enable = value == "true",
            (Some(member), None) if matches!(line.trim(), "active member" | "active slave") => member.active = true,
            (None, Some(("bond_mode", mode))) => bond.mode = Some(mode.to_owned()),
            (None, Some(("active member mac" | "active slave mac", mac))) => {
                bond.active_mac = somebody(mac.split('(').next().unwrap_or_default());
            }
            _ => {}
        }
    }
    bonds
}

/// Reads `lacp/show`.
pub fn lacp(text: &str) -> Vec<LacpReport> {
    let mut bonds: Vec<LacpReport> = Vec::new();
    for line in lines(text) {
        if let Some(name) = title(line) {
            bonds.push(LacpReport { name: name.to_owned(), ..LacpReport::default() });
            continue;
        }
        let Some(bond) = bonds.last_mut() else { continue };
        if let Some((name, state)) = member(line) {
            let mut words = state.split_whitespace();
            bond.members.push(LacpMember {
                name: name.to_owned(),
                state: words.next().map(str::to_owned),
                attached: words.any(|word| word == "attached"),
                ..LacpMember::default()
            });
            continue;
        }
        match (bond.members.last_mut(), pair(line)) {
            (None, Some(("status", status))) => bond.status = Some(status.to_owned()),
            (None, Some(("sys_id", system))) => bond.system = somebody(system),
            (Some(member), Some(("may_enable", value))) => member.may_enable = value == "true",
            (Some(member), Some(("partner sys_id", system))) => member.partner = somebody(system),
            (Some(member), Some(("partner port_id", port))) => member.partner_port = Some(port.to_owned()),
            (Some(member), Some(("partner state", state))) => {
                member.partner_state = state.split_whitespace().map(str::to_owned).collect();
            }
            _ => {}
        }
    }
    bonds
}
