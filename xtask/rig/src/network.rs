//! The wire between the hosts and us.
//!
//! ```text
//!   us: rig{n} ═══ uplink ┐
//!                        hub ── p1 ═══ eth0 of host 1
//!                         └──── p2 ═══ eth0 of host 2
//! ```
//!
//! The bridge has a namespace of its own. An interface goes when its other end goes, so nothing has to be taken down.

use crate::error::Result;
use crate::namespace::Namespace;
use crate::place::Place;
use crate::process;

/// The last byte of our own address.
const OURS: u8 = 1;

/// The last byte of the first host's address is one above.
const HOSTS: u8 = 10;

#[derive(Debug)]
pub(crate) struct Network {
    hub: Namespace,
}

impl Network {
    pub(crate) fn new(place: &Place) -> Result<Network> {
        let hub = Namespace::new()?;
        let name = format!("rig{}", place.number());
        let address = format!("{}/24", place.address(OURS));
        let pid = hub.pid();
        process::run("ip", ["link", "add", &name, "type", "veth", "peer", "name", "uplink", "netns", &pid])?;
        process::run("ip", ["address", "add", &address, "dev", &name])?;
        process::run("ip", ["link", "set", "dev", &name, "up"])?;
        hub.run_in_network(["ip", "link", "add", "hub", "type", "bridge"])?;
        hub.run_in_network(["ip", "link", "set", "dev", "hub", "up"])?;
        hub.run_in_network(["ip", "link", "set", "dev", "uplink", "master", "hub", "up"])?;
        Ok(Network { hub })
    }

    /// Connects host number `host` (from 1) and returns its address.
    pub(crate) fn connect(&self, place: &Place, host: u8, namespace: &Namespace) -> Result<String> {
        let (port, pid) = (format!("p{host}"), namespace.pid());
        self.hub.run_in_network(["ip", "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &pid])?;
        self.hub.run_in_network(["ip", "link", "set", "dev", &port, "master", "hub", "up"])?;
        let address = Network::address(place, host);
        namespace.run_in_network(["ip", "address", "add", &format!("{address}/24"), "dev", "eth0"])?;
        namespace.run_in_network(["ip", "link", "set", "dev", "eth0", "up"])?;
        namespace.run_in_network(["ip", "link", "set", "dev", "lo", "up"])?;
        Ok(address)
    }

    pub(crate) fn address(place: &Place, host: u8) -> String {
        place.address(HOSTS + host)
    }
}
