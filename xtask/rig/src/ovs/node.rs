//! The node: three bridges, a bond, a tunnel, two VMs.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::network::Network;
use crate::ovs::central::{Central, Way, tls};
use crate::ovs::daemon::Daemon;
use crate::ovs::switch::Switch;
use crate::pki::Authority;
use crate::place::Place;
use crate::process;

/// What takes longest is a daemon that returns to another which has given up asking every second.
const LIMIT: Duration = Duration::from_secs(300);

const TCP_PORT: u16 = 6640;
const SSL_PORT: u16 = 16640;

/// Addresses of the tunnels' network; no other node is on it.
const TUNNEL: &str = "172.31.0.11";
const TUNNEL_OTHER: &str = "172.31.0.12";

/// How a node differs from the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeOptions {
    /// How the controller reaches the southbound database.
    pub southbound: Way,
}

/// A node with Open vSwitch and OVN, until dropped.
#[derive(Debug)]
pub struct Node {
    // In the order of their end: guests, switches, the databases, then the wire, then the directory.
    vms: Vec<Vm>,
    pub(super) controller: Daemon,
    pub(super) switch: Switch,
    pub(super) tor: Switch,
    pub(super) central: Central,
    _network: Network,
    authority: Authority,
    address: String,
    southbound: Way,
    _place: Place,
}

/// A guest as the switch sees it: a network card with an address.
#[derive(Debug)]
pub struct Vm {
    namespace: Namespace,
    name: String,
    number: u8,
}

impl Vm {
    /// Its name, which is also that of its logical port.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node's end of its cable.
    pub fn tap(&self) -> String {
        format!("tap-{}", self.name)
    }

    /// The hardware address of its card.
    pub fn mac(&self) -> String {
        format!("00:00:00:00:00:{:02x}", self.number)
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("10.0.0.{}", 10 + self.number)
    }

    /// The id of its VM, as Nova would write it.
    pub fn uuid(&self) -> String {
        format!("c0ba1700-0000-4000-9000-{:012}", self.number)
    }

    /// Runs a program in the guest and returns what it printed.
    pub fn run<I: IntoIterator<Item: AsRef<OsStr>>>(&self, command: I) -> Result<String> {
        self.namespace.run(command)
    }

    /// The arguments of `nsenter` by which a person gets into the guest's network.
    pub fn enter(&self) -> String {
        format!("--target={} --net", self.namespace.pid())
    }

    /// Sends so many echo requests and succeeds if one is answered.
    pub fn ping(&self, to: &str, count: u32) -> Result<()> {
        self.run(["ping", "-n", "-c", &count.to_string(), "-i", "0.2", "-W", "2", to]).map(drop)
    }
}

impl Node {
    /// The usual node. Returns when the bond is negotiated and OVN has told the switch everything.
    pub fn up() -> Result<Node> {
        Node::up_with(&NodeOptions::default())
    }

    /// A node that differs from the usual one.
    pub fn up_with(options: &NodeOptions) -> Result<Node> {
        let place = Place::claim(&std::env::temp_dir().join("cobalt-rig"))?;
        let authority = Authority::new(&place.directory().join("pki"))?;
        let network = Network::new(&place)?;
        let (here, there) = (Namespace::new()?, Namespace::new()?);
        let address = network.connect(&place, 1, &here)?;
        cables(&here, &there)?;
        let tor = Switch::start(&place.directory().join("tor"), "tor", there, &[], &[])?;
        partner(&tor)?;
        let directory = place.directory().join("node");
        authority.server(&directory.join("pki"), &[&address])?;
        let mut remotes = tls(&directory.join("pki"));
        remotes.push(format!("--remote=ptcp:{TCP_PORT}:{address}"));
        remotes.push(format!("--remote=pssl:{SSL_PORT}:{address}"));
        let switch = Switch::start(&directory, Node::CHASSIS, here, &remotes, &[])?;
        let central = Central::start(&place, &network, &authority, 2)?;
        let controller = controller(&directory, authority.client());
        let mut node = Node {
            vms: Vec::new(),
            controller,
            switch,
            tor,
            central,
            _network: network,
            authority,
            address,
            southbound: options.southbound,
            _place: place,
        };
        node.bridges()?;
        node.controller.start(&node.switch.namespace)?;
        node.logical_network()?;
        for number in 1..=2 {
            let vm = node.boot(number)?;
            node.vms.push(vm);
        }
        // A chassis that the controller must know before it can be told of another.
        let registered = || node.sbctl(["--bare", "--columns=name", "list", "Chassis"]);
        process::wait_until("the chassis in the southbound database", LIMIT, || {
            registered().is_ok_and(|names| names.contains(Node::CHASSIS))
        })?;
        node.sbctl(["chassis-add", Node::OTHER_CHASSIS, "geneve", TUNNEL_OTHER])?;
        node.until_negotiated()?;
        node.until_synced()?;
        Ok(node)
    }

    /// Its name in OVN.
    pub const CHASSIS: &'static str = "hv1";

    /// The chassis at the other end of the tunnel.
    pub const OTHER_CHASSIS: &'static str = "hv2";

    /// The directory with the sockets, notes and logs of the node's three daemons: what `/var/run/openvswitch` and
    /// `/var/run/ovn` are on a host.
    pub fn directory(&self) -> &Path {
        self.switch.directory()
    }

    /// The switch's database.
    pub fn database(&self, way: Way) -> String {
        match way {
            Way::Unix => format!("unix:{}", self.directory().join("db.sock").display()),
            Way::Tcp => format!("tcp:{}:{TCP_PORT}", self.address),
            Way::Ssl => format!("ssl:{}:{SSL_PORT}", self.address),
        }
    }

    /// OVN's southbound database.
    pub fn southbound(&self, way: Way) -> String {
        self.central.remote(way)
    }

    /// How the controller reaches the southbound database: what `ovn-remote` says.
    pub fn ovn_remote(&self) -> String {
        self.southbound(self.southbound)
    }

    /// The directory with a client's `cacert.pem`, `clientcert.pem` and `clientkey.pem`.
    pub fn pki(&self) -> &Path {
        self.authority.client()
    }

    /// The socket by which a bridge speaks OpenFlow.
    pub fn openflow(&self, bridge: &str) -> PathBuf {
        self.directory().join(format!("{bridge}.mgmt"))
    }

    /// A VM, counted from 0; there are two.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn vm(&self, index: usize) -> &Vm {
        &self.vms[index]
    }

    /// Runs `ovs-vsctl` on the node's database.
    pub fn vsctl<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Result<String> {
        self.switch.vsctl(arguments)
    }

    /// Runs `ovs-appctl` on the node's switch.
    pub fn appctl<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Result<String> {
        self.switch.appctl(arguments)
    }

    /// Runs `ovs-ofctl VERB` on a bridge with more arguments behind it.
    pub fn ofctl(&self, verb: &str, bridge: &str, more: &[&str]) -> Result<String> {
        let socket = format!("unix:{}", self.openflow(bridge).display());
        process::run("ovs-ofctl", ["--protocols=OpenFlow15", verb, &socket].iter().chain(more))
    }

    /// Runs `ovn-nbctl`.
    pub fn nbctl<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Result<String> {
        self.central.nbctl(arguments)
    }

    /// Runs `ovn-sbctl`.
    pub fn sbctl<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Result<String> {
        self.central.sbctl(arguments)
    }

    /// Runs a program on the node and returns what it printed.
    pub fn run<I: IntoIterator<Item: AsRef<OsStr>>>(&self, command: I) -> Result<String> {
        self.switch.namespace.run(command)
    }

    /// The arguments of `nsenter` by which a person gets into the node's network.
    pub fn enter(&self) -> String {
        format!("--target={} --net", self.switch.namespace.pid())
    }

    /// Runs a closure on a thread of its own that is in the node's network, as an agent on the node would be: it sees
    /// the node's interfaces, and so do the threads and sockets it makes.
    ///
    /// # Panics
    ///
    /// If the closure does.
    pub fn inside<T: Send>(&self, closure: impl FnOnce() -> T + Send) -> Result<T> {
        let path = format!("/proc/{}/ns/net", self.switch.namespace.pid());
        let file = File::open(&path).map_err(Error::io(format!("open {path}")))?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
                use std::os::fd::AsFd;
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(|errno| Error::io("enter the network of the node")(errno.into()))?;
                Ok(closure())
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Waits until both members of the bond carry traffic.
    pub fn until_negotiated(&self) -> Result<()> {
        process::wait_until("the negotiation of bond0", LIMIT, || {
            let said = self.appctl(["bond/show", "bond0"]).unwrap_or_default();
            said.matches(": enabled").count() == 2
        })
    }

    /// Waits until everything that the northbound database says is in the node's flow tables.
    pub fn until_synced(&self) -> Result<()> {
        self.nbctl(["--wait=hv", "sync"]).map(drop)
    }

    /// The addresses that the switch's own interfaces lose with it.
    pub(super) fn addresses(&self) -> Result<()> {
        let address = format!("{TUNNEL}/24");
        self.run(["ip", "address", "replace", &address, "dev", "br-ex"])?;
        self.run(["ip", "link", "set", "dev", "br-ex", "up"]).map(drop)
    }

    fn bridges(&self) -> Result<()> {
        let bridge = |name: &str, mode: &str| {
            let (kind, mode) = ("datapath_type=netdev", format!("fail_mode={mode}"));
            self.vsctl(["add-br", name, "--", "set", "Bridge", name, kind, &mode])
        };
        bridge("br-ex", "standalone")?;
        bridge("br-provider", "standalone")?;
        bridge("br-int", "secure")?;
        self.vsctl(["set", "Bridge", "br-int", "other_config:disable-in-band=true"])?;
        bond(&self.switch, "br-ex", "bond0", ["eth1", "eth2"])?;
        self.vsctl(["add-port", "br-provider", "eth3"])?;
        self.addresses()?;
        self.vsctl([
            "set",
            "Open_vSwitch",
            ".",
            &format!("external_ids:ovn-remote=\"{}\"", self.ovn_remote()),
            "external_ids:ovn-encap-type=geneve",
            &format!("external_ids:ovn-encap-ip={TUNNEL}"),
            "external_ids:ovn-bridge=br-int",
            "external_ids:ovn-bridge-datapath-type=netdev",
            "external_ids:ovn-bridge-mappings=physnet1:br-provider,physnet-ex:br-ex",
            &format!("external_ids:hostname={}", Node::CHASSIS),
        ])
        .map(drop)
    }

    /// A network with a router, and one that leads out.
    fn logical_network(&self) -> Result<()> {
        let commands = "ls-add ls0 -- ls-add ls-prov -- lsp-add ls-prov ln0 -- lsp-set-type ln0 localnet \
                        -- lsp-set-options ln0 network_name=physnet1 -- lsp-set-addresses ln0 unknown \
                        -- lr-add lr0 -- lrp-add lr0 lrp0 00:00:00:00:ff:01 10.0.0.1/24 \
                        -- lsp-add ls0 ls0-lr0 -- lsp-set-type ls0-lr0 router \
                        -- lsp-set-options ls0-lr0 router-port=lrp0 -- lsp-set-addresses ls0-lr0 router";
        self.nbctl(commands.split_whitespace()).map(drop)
    }

    /// Plugs a guest in as libvirt does: one end of the cable is in br-int, the other is its card.
    fn boot(&self, number: u8) -> Result<Vm> {
        let vm = Vm { namespace: Namespace::new()?, name: format!("vm{number}"), number };
        let (name, tap, mac) = (vm.name(), vm.tap(), vm.mac());
        let peer = vm.namespace.pid();
        self.switch
            .namespace
            .run_in_network(["ip", "link", "add", &tap, "type", "veth", "peer", "name", "eth0", "netns", &peer])?;
        self.run(["ip", "link", "set", "dev", &tap, "up"])?;
        vm.namespace.run_in_network(["ip", "link", "set", "dev", "eth0", "address", &mac, "up"])?;
        vm.namespace.run_in_network(["ip", "address", "add", &format!("{}/24", vm.address()), "dev", "eth0"])?;
        // The datapath in userspace passes checksums on as they are, and a virtual cable leaves them to the card.
        vm.namespace.run_in_network(["ethtool", "-K", "eth0", "tx", "off"])?;
        self.nbctl(["lsp-add", "ls0", name, "--", "lsp-set-addresses", name, &format!("{mac} {}", vm.address())])?;
        self.vsctl([
            "add-port",
            "br-int",
            &tap,
            "--",
            "set",
            "Interface",
            &tap,
            &format!("external_ids:iface-id={name}"),
            &format!("external_ids:attached-mac=\"{mac}\""),
            "external_ids:iface-status=active",
            &format!("external_ids:vm-uuid={}", vm.uuid()),
        ])?;
        Ok(vm)
    }
}

fn controller(directory: &Path, client: &Path) -> Daemon {
    let at = |file: &str| client.join(file).display().to_string();
    // Its control socket cannot be named; it is where OVN_RUNDIR says, with its process id in the name.
    let arguments = [
        format!("unix:{}", directory.join("db.sock").display()),
        format!("--private-key={}", at("clientkey.pem")),
        format!("--certificate={}", at("clientcert.pem")),
        format!("--ca-cert={}", at("cacert.pem")),
    ];
    Daemon::new("ovn-controller", directory, "ovn-controller", &arguments)
}

/// Three cables to the other switch.
fn cables(here: &Namespace, there: &Namespace) -> Result<()> {
    let peer = there.pid();
    for number in 1..=3 {
        let (ours, theirs) = (format!("eth{number}"), format!("swp{number}"));
        here.run_in_network(["ip", "link", "add", &ours, "type", "veth", "peer", "name", &theirs, "netns", &peer])?;
        here.run_in_network(["ip", "link", "set", "dev", &ours, "up"])?;
        there.run_in_network(["ip", "link", "set", "dev", &theirs, "up"])?;
    }
    Ok(())
}

/// The switch at the other end.
fn partner(tor: &Switch) -> Result<()> {
    let standalone = ["datapath_type=netdev", "fail_mode=standalone"];
    tor.vsctl(["add-br", "br-tor", "--", "set", "Bridge", "br-tor"].iter().chain(&standalone))?;
    bond(tor, "br-tor", "torbond", ["swp1", "swp2"])?;
    tor.vsctl(["add-port", "br-tor", "swp3"]).map(drop)
}

fn bond(switch: &Switch, bridge: &str, name: &str, members: [&str; 2]) -> Result<()> {
    // Fast: a partner is asked for every second, and missed after three.
    let options = ["lacp=active", "bond_mode=balance-tcp", "other_config:lacp-time=fast"];
    switch.vsctl(["add-bond", bridge, name].iter().chain(&members).chain(&options)).map(drop)
}
