//! More ports.

use crate::error::Result;
use crate::ovs::node::Node;

impl Node {
    /// A logical port on the chassis at the other end of the tunnel, with an address in the network of the VMs: whoever
    /// sends there, sends into the tunnel. Nobody answers. Returns the address.
    pub fn add_far_guest(&self) -> Result<String> {
        let (name, address) = ("far", "10.0.0.99");
        let addresses = format!("00:00:00:00:00:99 {address}");
        let option = format!("requested-chassis={}", Node::OTHER_CHASSIS);
        self.nbctl(["--wait=sb", "lsp-add", "ls0", name, "--", "lsp-set-addresses", name, &addresses])?;
        self.nbctl(["--wait=sb", "lsp-set-options", name, &option])?;
        self.sbctl(["lsp-bind", name, Node::OTHER_CHASSIS])?;
        self.until_synced()?;
        Ok(address.to_owned())
    }

    /// The port of the tunnel to the other chassis.
    pub fn tunnel(&self) -> Result<String> {
        let found = self.vsctl(["--bare", "--columns=name", "find", "Interface", "type=geneve"])?;
        Ok(found.trim().to_owned())
    }

    /// Adds a port with a device to br-int that claims to be a logical port, which need not exist. Nobody is at the
    /// other end of it.
    pub fn add_port(&self, name: &str, logical: Option<&str>) -> Result<()> {
        self.run(["ip", "link", "add", name, "type", "veth", "peer", "name", &other_end(name)])?;
        self.run(["ip", "link", "set", "dev", &other_end(name), "up"])?;
        self.run(["ip", "link", "set", "dev", name, "up"])?;
        let mut words = vec!["add-port".to_owned(), "br-int".to_owned(), name.to_owned()];
        if let Some(logical) = logical {
            words.extend(["--", "set", "Interface", name].map(str::to_owned));
            words.push(format!("external_ids:iface-id={logical}"));
        }
        self.vsctl(words).map(drop)
    }

    /// Removes a port of br-int, and its device if there is one.
    pub fn remove_port(&self, name: &str) -> Result<()> {
        self.vsctl(["--if-exists", "del-port", "br-int", name])?;
        // The device may have gone before.
        let _ = self.run(["ip", "link", "delete", "dev", name]);
        Ok(())
    }

    /// Adds a logical port for a new port with the same name.
    pub fn add_bound_port(&self, name: &str) -> Result<()> {
        self.nbctl(["lsp-add", "ls0", name])?;
        self.add_port(name, Some(name))?;
        self.until_synced()
    }
}

/// Interfaces have names of fifteen characters at most.
fn other_end(name: &str) -> String {
    let kept: String = name.chars().rev().take(13).collect::<Vec<_>>().into_iter().rev().collect();
    format!("x-{kept}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_has_a_name_that_the_kernel_takes() {
        assert_eq!(other_end("tap-1"), "x-tap-1");
        assert_eq!(other_end("tap-elsewhere-1").len(), 15);
    }
}
