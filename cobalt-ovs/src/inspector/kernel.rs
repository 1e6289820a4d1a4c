//! The kernel's bonds under the switch.
//!
//! A bond of the kernel is one interface to the switch, which cannot say how its members fare. The kernel can: in
//! `/proc/net/bonding`. Only bonds that carry traffic of a bridge are looked at: in it, below something in it, or where
//! its tunnels leave.
//!
//! How LACP fares that file tells only to who has `CAP_NET_ADMIN`. The states and aggregators are in `/sys/class/net` for
//! everybody, on kernels that have them; where neither tells, a member with a link has no state, and nobody may take it
//! for one that carries traffic.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use cobalt_core::ovs::{Bond, BondKind, BondMember, Device, Interface, InterfaceRole};

/// No file of the kernel that is read here is longer.
const MAX_FILE: u64 = 1 << 20;
/// A VLAN on a VLAN on a bond is as deep as it gets.
const MAX_DEPTH: usize = 4;

/// A bond and its members as interfaces of the bridge they serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KernelBond {
    pub(super) bond: Bond,
    pub(super) interfaces: Vec<Interface>,
}

/// The bonds below these devices, each with the bridge it serves. Reads files: not for the runtime's own threads.
pub(super) fn bonds(root: &Path, devices: &BTreeMap<String, String>) -> Vec<KernelBond> {
    let bonding = root.join("proc/net/bonding");
    if !bonding.is_dir() {
        return Vec::new();
    }
    let net = root.join("sys/class/net");
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for (device, bridge) in devices {
        let mut level = vec![device.clone()];
        for _ in 0..MAX_DEPTH {
            level.retain(|device| seen.insert(device.clone()));
            for device in &level {
                let text = plain(device).and_then(|name| read(&bonding.join(name)));
                if let Some(mut report) = text.and_then(|text| Report::read(&text)) {
                    report.complete(device, &net);
                    found.push(with_interfaces(report.bond(device), bridge, &net));
                }
            }
            level = level.iter().flat_map(|device| lower(&net, device)).collect();
        }
    }
    found.sort_by(|one, other| one.bond.name.cmp(&other.bond.name));
    found
}

/// A name that is one file and not a way somewhere else.
pub(super) fn plain(name: &str) -> Option<&str> {
    (!name.is_empty() && !name.contains('/') && name != "." && name != "..").then_some(name)
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MAX_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The devices right below one.
fn lower(net: &Path, device: &str) -> Vec<String> {
    let Some(directory) = plain(device).map(|name| net.join(name)) else { return Vec::new() };
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter_map(|name| name.strip_prefix("lower_").map(ToOwned::to_owned)).collect();
    names.sort();
    names
}

fn with_interfaces(bond: Bond, bridge: &str, net: &Path) -> KernelBond {
    let interfaces = bond
        .members
        .iter()
        .map(|member| {
            let directory: Option<PathBuf> = plain(&member.name).map(|name| net.join(name));
            let attribute = |name: &str| {
                read(&directory.as_ref()?.join(name)).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
            };
            Interface {
                name: member.name.clone(),
                bridge: bridge.to_owned(),
                role: InterfaceRole::Physical,
                // The first of the device's flags says whether it is up.
                admin_up: attribute("flags")
                    .and_then(|flags| u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok())
                    .map(|flags| flags & 1 == 1),
                link_up: member.link_up,
                // In megabits; -1 without a link.
                speed_bps: attribute("speed")
                    .and_then(|megabits| megabits.parse::<u64>().ok())
                    .and_then(|megabits| megabits.checked_mul(1_000_000)),
                bond: Some(bond.name.clone()),
                error: None,
                ifindex: attribute("ifindex").and_then(|index| index.parse().ok()),
                ofport: None,
                mac: attribute("address"),
                instance: None,
                logical_port: None,
                binding: None,
                remote_chassis: None,
                remote_known: None,
                device: Device {
                    kind: Some("system".to_owned()),
                    mtu: attribute("mtu").and_then(|mtu| mtu.parse().ok()),
                    full_duplex: match attribute("duplex").as_deref() {
                        Some("full") => Some(true),
                        Some("half") => Some(false),
                        _ => None,
                    },
                    ..Device::default()
                },
                statistics: statistics(directory.as_deref()),
            }
        })
        .collect();
    KernelBond { bond, interfaces }
}

fn statistics(directory: Option<&Path>) -> BTreeMap<String, u64> {
    let number = |name: &str| read(&directory?.join("statistics").join(name))?.trim().parse().ok();
    ["rx_packets", "rx_bytes", "rx_errors", "rx_dropped", "tx_packets", "tx_bytes", "tx_errors", "tx_dropped"]
        .into_iter()
        .filter_map(|name| number(name).map(|value| (name.to_owned(), value)))
        .collect()
}

/// What the kernel says of one member.
#[derive(Debug, Default)]
struct Section {
    name: String,
    link_up: Option<bool>,
    speed_bps: Option<u64>,
    aggregator: Option<String>,
    actor_state: Option<u8>,
    partner: Option<String>,
}

/// What the kernel says of one bond.
#[derive(Debug)]
struct Report {
    mode: &'static str,
    /// The member in use, where one at a time is.
    active: Option<String>,
    /// The aggregator in use.
    aggregator: Option<String>,
    sections: Vec<Section>,
}

impl Report {
    /// Reads a file of `/proc/net/bonding`. The LACP details are there for privileged readers only.
    fn read(text: &str) -> Option<Self> {
        let (mut mode, mut active, mut aggregator) = (None, None, None);
        let mut sections: Vec<Section> = Vec::new();
        let mut of_partner = false;
        for line in text.lines() {
            let line = line.trim();
            let Some((key, value)) = line.split_once(':').map(|(key, value)| (key.trim(), value.trim())) else {
                continue;
            };
            if key == "Slave Interface" {
                sections.push(Section { name: value.to_owned(), ..Section::default() });
                continue;
            }
            let Some(member) = sections.last_mut() else {
                match key {
                    "Bonding Mode" => mode = Some(mode_name(value)),
                    "Currently Active Slave" => active = Some(value.to_owned()),
                    "Aggregator ID" => aggregator = Some(value.to_owned()),
                    _ => {}
                }
                continue;
            };
            match key {
                "MII Status" => member.link_up = Some(value == "up"),
                // `Unknown` without a link.
                "Speed" => {
                    let megabits = value.strip_suffix(" Mbps").and_then(|number| number.parse::<u64>().ok());
                    member.speed_bps = megabits.and_then(|megabits| megabits.checked_mul(1_000_000));
                }
                "Aggregator ID" => member.aggregator = Some(value.to_owned()),
                "details actor lacp pdu" => of_partner = false,
                "details partner lacp pdu" => of_partner = true,
                "system mac address" if of_partner => {
                    member.partner = Some(value.to_owned()).filter(|mac| mac != "00:00:00:00:00:00");
                }
                "port state" if !of_partner => member.actor_state = value.parse().ok(),
                _ => {}
            }
        }
        Some(Self { mode: mode?, active, aggregator, sections })
    }

    fn is_lacp(&self) -> bool {
        self.mode == "802.3ad"
    }

    /// Fills in from `/sys/class/net` what an unprivileged reader was not told of LACP.
    fn complete(&mut self, device: &str, net: &Path) {
        if !self.is_lacp() {
            return;
        }
        let number = |device: &str, path: &str| {
            let text = read(&net.join(plain(device)?).join(path))?;
            // `N/A` is what stands where there is none.
            text.trim().parse::<u64>().ok()
        };
        if self.aggregator.is_none() {
            self.aggregator = number(device, "bonding/ad_aggregator").map(|id| id.to_string());
        }
        for member in &mut self.sections {
            if member.actor_state.is_none() {
                let state = number(&member.name, "bonding_slave/ad_actor_oper_port_state");
                member.actor_state = state.and_then(|state| u8::try_from(state).ok());
            }
            if member.aggregator.is_none() {
                member.aggregator = number(&member.name, "bonding_slave/ad_aggregator_id").map(|id| id.to_string());
            }
        }
    }

    fn bond(self, name: &str) -> Bond {
        let lacp = self.is_lacp();
        let Self { mode, active, aggregator, sections } = self;
        let mut members: Vec<BondMember> = sections
            .into_iter()
            .map(|section| {
                let up = section.link_up == Some(true);
                let enabled = match mode {
                    _ if !up => Some(false),
                    "active-backup" => Some(active.as_deref() == Some(&section.name)),
                    // A link alone says nothing of a partner, and the kernel keeps how LACP fares from the unprivileged.
                    "802.3ad" => section.actor_state.map(|_| carries(&section, aggregator.as_deref())),
                    _ => Some(true),
                };
                BondMember {
                    enabled,
                    link_up: section.link_up,
                    speed_bps: section.speed_bps,
                    lacp: lacp.then_some(section.actor_state).flatten().map(|state| lacp_state(state).to_owned()),
                    partner: section.partner,
                    name: section.name,
                }
            })
            .collect();
        members.sort_by(|one, other| one.name.cmp(&other.name));
        Bond { name: name.to_owned(), kind: BondKind::Kernel, mode: mode.to_owned(), lacp, members }
    }
}

/// Whether a member of an LACP bond is in the aggregate that is in use, and lets traffic through. Where its state is not
/// told, nobody asks.
fn carries(member: &Section, active: Option<&str>) -> bool {
    const DISTRIBUTING: u8 = 0x20;
    let chosen = match (member.aggregator.as_deref(), active) {
        (Some(member), Some(active)) => member == active,
        _ => true,
    };
    chosen && member.actor_state.is_none_or(|state| state & DISTRIBUTING != 0)
}

fn lacp_state(state: u8) -> &'static str {
    const DEFAULTED: u8 = 0x40;
    const EXPIRED: u8 = 0x80;
    if state & EXPIRED != 0 {
        "expired"
    } else if state & DEFAULTED != 0 {
        "defaulted"
    } else {
        "current"
    }
}

/// The name that `ip link` and the bonding options use for what the kernel writes out.
fn mode_name(text: &str) -> &'static str {
    const NAMES: [(&str, &str); 7] = [
        ("load balancing (round-robin)", "balance-rr"),
        ("fault-tolerance (active-backup)", "active-backup"),
        ("load balancing (xor)", "balance-xor"),
        ("fault-tolerance (broadcast)", "broadcast"),
        ("IEEE 802.3ad", "802.3ad"),
        ("transmit load balancing", "balance-tlb"),
        ("adaptive load balancing", "balance-alb"),
    ];
    NAMES.iter().find(|(prefix, _)| text.starts_with(prefix)).map_or("unknown", |(_, name)| name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
