//! `dpif/show`, `dpctl/show -s`, `upcall/show` and `fdb/show`.

use std::{collections::BTreeMap, time::Duration};

use cobalt_core::ovs::{DatapathCounters, FdbEntry};

use super::{indent, lines, pair};

/// The ports of all bridges, by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ports {
    /// As they come.
    pub ports: Vec<Port>,
}

/// One port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its bridge.
    pub bridge: String,
    /// Its number in OpenFlow; 65534 is the bridge itself.
    pub number: u32,
    /// Its number in the datapath, which all tunnels of a kind share and patches have not.
    pub datapath: Option<u32>,
    /// What it is: `system`, `tap`, `geneve`, `patch`, …
    pub kind: String,
}

impl Ports {
    /// The port with that number, or `LOCAL`, on that bridge.
    pub fn openflow(&self, bridge: &str, number: &str) -> Option<&Port> {
        let number = if number == "LOCAL" { 65534 } else { number.parse().ok()? };
        self.ports.iter().find(|port| port.bridge == bridge && port.number == number)
    }

    /// The ports with that number in the datapath: several, if they are tunnels.
    pub fn datapath(&self, number: u32) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(move |port| port.datapath == Some(number))
    }
}

/// Reads `dpif/show`.
pub fn ports(text: &str) -> Ports {
    let mut bridge = None;
    let mut ports = Vec::new();
    for line in lines(text) {
        match indent(line) {
            // Datapath types do not matter to a port's number.
            0 => bridge = None,
            1..=3 => bridge = line.trim().strip_suffix(':'),
            _ => ports.extend(bridge.and_then(|bridge| port(bridge, line))),
        }
    }
    Ports { ports }
}

/// `    ovn-hv2-0 3/9: (geneve: csum=true, key=flow)`.
fn port(bridge: &str, line: &str) -> Option<Port> {
    let (head, rest) = line.trim().split_once(": (")?;
    let (name, numbers) = head.rsplit_once(' ')?;
    let (number, datapath) = numbers.split_once('/')?;
    let kind = rest.split([':', ')']).next().unwrap_or_default();
    Some(Port {
        name: name.to_owned(),
        bridge: bridge.to_owned(),
        number: number.parse().ok()?,
        datapath: datapath.parse().ok(),
        kind: kind.to_owned(),
    })
}

/// The name of a datapath in the first line of its section: `netdev@ovs-netdev:` is `ovs-netdev`.
fn section(line: &str) -> Option<&str> {
    let name = (indent(line) == 0).then(|| line.split(':').next()).flatten()?;
    let name = name.split_once('@').map_or(name, |(_, name)| name);
    (!name.is_empty()).then_some(name)
}

/// Reads `dpctl/show -s`: what each datapath counts, by its name.
pub fn datapaths(text: &str) -> BTreeMap<String, DatapathCounters> {
    let mut datapaths: BTreeMap<String, DatapathCounters> = BTreeMap::new();
    let mut current = None;
    for line in lines(text) {
        if let Some(name) = section(line) {
            datapaths.entry(name.to_owned()).or_default();
            current = Some(name);
        }
        let Some(counters) = current.and_then(|name| datapaths.get_mut(name)) else { continue };
        match pair(line) {
            Some(("lookups", values)) => {
                for value in values.split_whitespace() {
                    match value.split_once(':').map(|(name, count)| (name, count.parse().unwrap_or(0))) {
                        Some(("hit", count)) => counters.hit = count,
                        Some(("missed", count)) => counters.missed = count,
                        Some(("lost", count)) => counters.lost = count,
                        _ => {}
                    }
                }
            }
            Some(("flows", count)) => counters.flows = count.parse().unwrap_or(0),
            Some(("masks", values)) => {
                for value in values.split_whitespace() {
                    match value.split_once(':') {
                        Some(("hit", count)) => counters.mask_hits = count.parse().ok(),
                        Some(("total", count)) => counters.masks = count.parse().ok(),
                        _ => {}
                    }
                }
            }
            Some(("cache", values)) => {
                let hit = values.split_whitespace().find_map(|value| value.strip_prefix("hit:"));
                counters.mask_cache_hits = hit.and_then(|count| count.parse().ok());
            }
            _ => {}
        }
    }
    datapaths
}

/// How the cache of a datapath is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Upcalls {
    /// Cached flows now.
    pub flows: u64,
    /// How many may be cached; the switch lowers it when it cannot keep up.
    pub limit: u64,
    /// How long the last look through all of them took.
    pub dump: Duration,
}

/// Reads `upcall/show`, by datapath.
pub fn upcalls(text: &str) -> BTreeMap<String, Upcalls> {
    let mut all: BTreeMap<String, Upcalls> = BTreeMap::new();
    let mut current = None;
    for line in lines(text) {
        if let Some(name) = section(line) {
            all.entry(name.to_owned()).or_default();
            current = Some(name);
        }
        let Some(upcalls) = current.and_then(|name| all.get_mut(name)) else { continue };
        match pair(line) {
            Some(("flows", values)) => {
                for value in values.split(['(', ')']) {
                    match value.split_once(' ').map(|(name, count)| (name, count.parse().unwrap_or(0))) {
                        Some(("current", count)) => upcalls.flows = count,
                        Some(("limit", count)) => upcalls.limit = count,
                        _ => {}
                    }
                }
            }
            Some(("dump duration", value)) => {
                let millis = value.strip_suffix("ms").and_then(|millis| millis.parse().ok());
                upcalls.dump = Duration::from_millis(millis.unwrap_or(0));
            }
            _ => {}
        }
    }
    all
}

/// Reads `fdb/show` of a bridge. The ports are numbers there; `ports` knows their names.
pub fn fdb(text: &str, bridge: &str, ports: &Ports) -> Vec<FdbEntry> {
    let entry = |line: &str| {
        let mut words = line.split_whitespace();
        let (port, vlan, mac, age) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let name = ports.openflow(bridge, port).map_or_else(|| port.to_owned(), |port| port.name.clone());
        Some(FdbEntry {
            port: name,
            vlan: vlan.parse().ok()?,
            mac: mac.to_owned(),
            // What was entered by hand does not age.
            age: Duration::from_secs(age.parse().unwrap_or(0)),
        })
    };
    lines(text).skip(1).filter_map(entry).collect()
}
