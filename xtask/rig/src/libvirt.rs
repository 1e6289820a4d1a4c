//! Hosts with a real libvirtd and QEMU each.

use std::path::Path;

use crate::error::{Result, create};
use crate::network::Network;
use crate::pki::Authority;
use crate::place::Place;

mod config;
mod daemon;
mod host;

pub use host::Host;

/// A login over SASL, asked for on TLS connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sasl {
    /// The name of the only user.
    pub user: String,
    /// Their password.
    pub password: String,
    /// What the server offers, in the words of Cyrus SASL: `scram-sha-256`, `plain`.
    pub mechanisms: String,
}

/// How a host differs from the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostOptions {
    /// Whether TLS connections have to log in. They need a client certificate in any case.
    pub sasl: Option<Sasl>,
}

/// Some hosts on one network, until dropped.
#[derive(Debug)]
pub struct Hosts {
    // In the order of their end: daemons and guests, then the wire, then the directory.
    all: Vec<Host>,
    _network: Network,
    authority: Authority,
    place: Place,
}

impl Hosts {
    /// So many equal hosts.
    pub fn up(number: usize) -> Result<Hosts> {
        Hosts::up_with(&vec![HostOptions::default(); number])
    }

    /// One host per entry. Returns when every libvirtd answers.
    pub fn up_with(options: &[HostOptions]) -> Result<Hosts> {
        // One directory for all rigs of the machine: their numbers, and so their networks, are claimed in it.
        let base = std::env::temp_dir().join("cobalt-rig");
        let place = Place::claim(&base)?;
        // What libvirt found out about QEMU holds for every host and every rig of this machine.
        let cache = base.join("cache");
        create(&cache)?;
        create(&place.directory().join("shared"))?;
        let authority = Authority::new(&place.directory().join("pki"))?;
        let network = Network::new(&place)?;
        let mut all = Vec::new();
        for (number, options) in (1..=u8::MAX).zip(options) {
            all.push(Host::start(&place, &network, &authority, &cache, number, options)?);
        }
        for host in &all {
            host.wait_until_ready()?;
        }
        Ok(Hosts { all, _network: network, authority, place })
    }

    /// One of them, counted from 0.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn host(&self, index: usize) -> &Host {
        &self.all[index]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Host> {
        self.all.iter()
    }

    /// A directory that every host sees under the same path: shared storage.
    pub fn shared(&self) -> std::path::PathBuf {
        self.place.directory().join("shared")
    }

    /// The directory with a client's `cacert.pem`, `clientcert.pem` and `clientkey.pem`.
    pub fn pki(&self) -> &Path {
        self.authority.client()
    }
}
