//! The inspector against servers that do as they are told.

use std::time::Duration;

use cobalt_core::ovs::{Binding, Daemon};
use futures::FutureExt;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::{
    ovsdb::{Datum, Row},
    testing::{OvsdbServer, UnixctlServer},
};

const LIMIT: Duration = Duration::from_secs(60);

const BONDS: &str = "---- bond0 ----\nbond_mode: balance-tcp\nlacp_status: negotiated\n\n\
                     member eth1: enabled\n  active member\n  may_enable: true\n\n\
                     member eth2: disabled\n  may_enable: false\n";
const LACP: &str = "---- bond0 ----\n  status: active negotiated\n\n\
                    member: eth1: current attached\n  partner sys_id: f2:2d:6f:52:b9:41\n\n\
                    member: eth2: expired attached\n  partner sys_id: f2:2d:6f:52:b9:41\n";
const BINDINGS: &str = "Local bindings:\n\
    name: [vm1], OVS interface name : [tap1], num binding lports : [1]\nprimary lport : [vm1]\n\
    ----------------------------------------\n\
    name: [vm2], OVS interface name : [tap2], num binding lports : [0]\n";

/// A host with a bond, two VMs and three daemons.
struct Host {
    dir: TempDir,
    database: OvsdbServer,
    /// The one row of the switch itself.
    root: Uuid,
    southbound: OvsdbServer,
    ovsdb: Option<UnixctlServer>,
    vswitchd: Option<UnixctlServer>,
    controller: Option<UnixctlServer>,
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let database = OvsdbServer::switch();
        database.listen_unix(dir.path().join("db.sock")).unwrap();
        let southbound = OvsdbServer::southbound();
        let remote = southbound.listen_unix(dir.path().join("sb.sock")).unwrap();
        let daemon = |name: &str, version: &str| {
            let server = UnixctlServer::listen(dir.path().join(format!("{name}.ctl"))).unwrap();
            server.answer("version", version);
            Some(server)
        };
        let mut host = Self {
            root: Uuid::nil(),
            ovsdb: daemon("ovsdb-server", "ovsdb-server (Open vSwitch) 3.1.0\n"),
            vswitchd: daemon("ovs-vswitchd", "ovs-vswitchd (Open vSwitch) 3.1.1\n"),
            controller: daemon("ovn-controller", "ovn-controller 23.03.1\nOpen vSwitch Library 3.1.0\n"),
            dir,
            database,
            southbound,
        };
        let vswitchd = host.vswitchd.as_ref().unwrap();
        vswitchd.answer("bond/show", BONDS);
        vswitchd.answer("lacp/show", LACP);
        vswitchd.answer("memory/show", "handlers:1 ofconns:3 ports:9 rules:540\n");
        let controller = host.controller.as_ref().unwrap();
        controller.answer("connection-status", "connected\n");
        controller.answer("debug/dump-local-bindings", BINDINGS);
        host.root = host.fill(&remote.to_string());
        host
    }

    fn fill(&self, southbound: &str) -> Uuid {
        let named = |name: &str| Row::new().with("name", name);
        let up = |name: &str| named(name).with("link_state", "up").with("ofport", 1).with("ifindex", 7);
        let port = |name: &str, interfaces: Vec<Uuid>| {
            self.database.insert("Port", named(name).with("interfaces", Datum::set(interfaces)))
        };
        let eth1 = self.database.insert("Interface", up("eth1"));
        let eth2 = self.database.insert("Interface", up("eth2"));
        let bond = port("bond0", vec![eth1, eth2]);
        let vms = [("tap1", "vm1"), ("tap2", "vm2")].map(|(tap, vm)| {
            let counters = Datum::map([("rx_packets", 13_i64), ("rx_dropped", -1)]);
            let ids = Datum::map([("iface-id", vm)]);
            let row = up(tap).with("external_ids", ids).with("statistics", counters).with("link_resets", 2);
            port(tap, vec![self.database.insert("Interface", row)])
        });
        self.database.insert("Bridge", named("br-ex").with("ports", Datum::set([bond])));
        self.database.insert("Bridge", named("br-int").with("ports", Datum::set(vms)));
        let ids = Datum::map([("ovn-remote", southbound), ("system-id", "hv1")]);
        let root = self.database.insert("Open_vSwitch", Row::new().with("external_ids", ids));
        let hv1 = self.southbound.insert("Chassis", named("hv1"));
        let hv2 = self.southbound.insert("Chassis", named("hv2"));
        self.southbound.insert("SB_Global", Row::new().with("nb_cfg", 5));
        self.southbound.insert("Chassis_Private", named("hv1").with("nb_cfg", 4));
        for (vm, chassis) in [("vm1", hv1), ("vm2", hv2), ("vm3", hv1), ("vm4", hv2)] {
            self.southbound.insert("Port_Binding", Row::new().with("logical_port", vm).with("chassis", chassis));
        }
        root
    }

    /// Tells OVN's controller where its database is, or that there is none.
    fn point_at(&self, southbound: Option<&str>) {
        let ids = [("system-id", "hv1")].into_iter().chain(southbound.map(|remote| ("ovn-remote", remote)));
        self.database.set("Open_vSwitch", self.root, "external_ids", Datum::map(ids.collect::<Vec<_>>()));
    }

    fn options(&self) -> OvsOptions {
        OvsOptions::new()
            .run_dir(self.dir.path())
            .ovn_run_dir(self.dir.path())
            .host_root(self.dir.path())
            .control_timeout(LIMIT)
            .connection(crate::ConnectOptions::new().connect_timeout(LIMIT).call_timeout(LIMIT))
    }

    async fn switch(&self) -> OvsSwitch {
        OvsSwitch::connect(self.options()).await.unwrap()
    }
}

fn bindings(snapshot: &OvsSnapshot) -> Vec<Option<Binding>> {
    snapshot.interfaces.iter().filter(|port| port.logical_port.is_some()).map(|port| port.binding.clone()).collect()
}

#[tokio::test]
async fn a_healthy_host_is_told_from_all_sources() {
    let host = Host::new();
    let switch = host.switch().await;
    let snapshot = switch.snapshot().await.unwrap();
    assert!(snapshot.database_connected);
    assert_eq!(snapshot.database.version(), Some("3.1.0"));
    assert_eq!(snapshot.switch.version(), Some("3.1.1"));
    let names: Vec<_> = snapshot.interfaces.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["eth1", "eth2", "tap1", "tap2"]);
    assert_eq!(snapshot.interfaces[2].statistics, BTreeMap::from([("rx_packets".to_owned(), 13)]));
    assert_eq!(snapshot.interfaces[2].device.link_resets, Some(2));
    let controller = snapshot.controller.unwrap();
    assert_eq!(controller.daemon.version(), Some("23.03.1"));
    assert!(controller.southbound_connected);
    assert_eq!(controller.chassis_id.as_deref(), Some("hv1"));
    assert_eq!(controller.openflow_connected, Some(true));
    assert_eq!((controller.lag, controller.unplugged), (None, None), "nobody asked the southbound database");
    let features = switch.features();
    assert!(features.trace && features.flows && features.counters && !features.southbound);
}

#[tokio::test]
async fn a_member_is_enabled_by_what_the_bond_says_and_not_by_its_link() {
    let host = Host::new();
    let snapshot = host.switch().await.snapshot().await.unwrap();
    let members = &snapshot.bonds[0].members;
    assert_eq!(members[0].lacp.as_deref(), Some("current"));
    assert_eq!(members[0].enabled, Some(true));
    assert_eq!((members[1].enabled, members[1].link_up), (Some(false), Some(true)));
    assert_eq!(members[1].lacp.as_deref(), Some("expired"));
}

#[tokio::test]
async fn a_member_of_which_the_switch_says_nothing_is_unknown_whatever_its_link() {
    let host = Host::new();
    let vswitchd = host.vswitchd.as_ref().unwrap();
    vswitchd.refuse("bond/show", "not now");
    let switch = host.switch().await;
    let enabled = async || {
        let snapshot = switch.snapshot().await.unwrap();
        assert!(snapshot.switch.is_responsive());
        snapshot.bonds[0].members.iter().map(|member| (member.enabled, member.link_up)).collect::<Vec<_>>()
    };
    assert_eq!(enabled().await, [(None, Some(true)), (None, Some(true))]);
    vswitchd.answer("bond/show", BONDS);
    assert_eq!(enabled().await, [(Some(true), Some(true)), (Some(false), Some(true))]);
    vswitchd.refuse("bond/show", "not now");
    assert_eq!(enabled().await, [(None, Some(true)), (None, Some(true))], "nor is it what it was");
}

#[tokio::test]
async fn a_bridge_whose_name_leads_out_of_the_run_directory_is_not_called_on() {
    let host = Host::new();
    let run = host.dir.path().join("run");
    std::fs::create_dir(&run).unwrap();
    let elsewhere = std::os::unix::net::UnixListener::bind(host.dir.path().join("br-far.mgmt")).unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    host.database.insert("Bridge", Row::new().with("name", "../br-far"));
    let vswitchd = UnixctlServer::listen(run.join("ovs-vswitchd.ctl")).unwrap();
    vswitchd.answer("version", "ovs-vswitchd (Open vSwitch) 3.1.1\n");
    let database = host.options().database_remote();
    let switch = OvsSwitch::connect(host.options().run_dir(&run).database(database)).await.unwrap();
    let snapshot = switch.snapshot().await.unwrap();
    let bridge = snapshot.bridges.iter().find(|bridge| bridge.name == "../br-far").unwrap();
    assert!(snapshot.switch.is_responsive() && bridge.flows.is_none());
    assert_eq!(switch.flows("../br-far", None).await.err().unwrap().category(), "not_found");
    assert_eq!(elsewhere.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nobody called");
}

#[tokio::test]
async fn what_is_counted_is_asked_for_and_not_followed() {
    let host = Host::new();
    let switch = host.switch().await;
    switch.snapshot().await.unwrap();
    let monitor = &host.database.requests("monitor_cond_since")[0]["params"][2];
    let followed = monitor["Interface"].to_string();
    assert!(followed.contains("mtu") && !followed.contains("statistics"), "{monitor}");
    assert!(!followed.contains("link_resets"), "{monitor}");
    let asked = host.database.requests("transact");
    let columns = serde_json::json!(["name", "statistics", "link_resets"]);
    assert!(asked.iter().any(|request| request["params"][1]["columns"] == columns), "{asked:?}");
}

#[tokio::test]
async fn a_switch_that_hangs_is_a_finding_and_is_asked_once() {
    let host = Host::new();
    let switch = OvsSwitch::connect(host.options().control_timeout(Duration::from_secs(5))).await.unwrap();
    assert_eq!(switch.snapshot().await.unwrap().bonds[0].members[1].enabled, Some(false));
    let vswitchd = host.vswitchd.as_ref().unwrap();
    let before = vswitchd.calls().len();
    vswitchd.hang(true);
    let snapshot = switch.snapshot().await.unwrap();
    assert_eq!(snapshot.switch, Daemon::Unresponsive);
    assert_eq!(vswitchd.calls()[before..], ["version"], "each further question would cost a timeout");
    assert!(snapshot.bridges.iter().all(|bridge| bridge.flows.is_none()));
    assert_eq!(snapshot.bonds[0].members[1].enabled, Some(false), "what the switch said last holds");
    assert_eq!(snapshot.controller.unwrap().openflow_connected, None);
    vswitchd.hang(false);
    assert!(switch.snapshot().await.unwrap().switch.is_responsive());
}

#[tokio::test]
async fn dead_daemons_are_absent_and_a_lost_database_leaves_what_was_known() {
    let mut host = Host::new();
    let switch = host.switch().await;
    let mut changes = switch.changes();
    (host.vswitchd, host.controller, host.ovsdb) = (None, None, None);
    host.database.stop();
    let told = tokio::time::timeout(LIMIT, changes.next()).await.unwrap();
    assert_eq!(told, Some(OvsChange::Connected(false)));
    let snapshot = switch.snapshot().await.unwrap();
    assert!(!snapshot.database_connected);
    assert_eq!((&snapshot.database, &snapshot.switch), (&Daemon::Absent, &Daemon::Absent));
    assert_eq!(snapshot.interfaces.len(), 4);
    let controller = snapshot.controller.unwrap();
    assert_eq!((controller.daemon, controller.southbound_connected), (Daemon::Absent, false));
    host.database.listen_unix(host.dir.path().join("db.sock")).unwrap();
    let told = tokio::time::timeout(LIMIT, changes.next()).await.unwrap();
    assert_eq!(told, Some(OvsChange::Connected(true)));
}

#[tokio::test]
async fn a_controller_without_openflow_connections_is_told() {
    let host = Host::new();
    host.vswitchd.as_ref().unwrap().answer("memory/show", "handlers:1 ports:9 rules:540\n");
    host.controller.as_ref().unwrap().answer("connection-status", "not connected\n");
    let controller = host.switch().await.snapshot().await.unwrap().controller.unwrap();
    assert_eq!(controller.openflow_connected, Some(false));
    assert!(!controller.southbound_connected);
}

#[tokio::test]
async fn without_the_southbound_database_bindings_are_what_the_controller_says() {
    let host = Host::new();
    let snapshot = host.switch().await.snapshot().await.unwrap();
    assert_eq!(bindings(&snapshot), [Some(Binding::Here), Some(Binding::Unknown)]);
    host.controller
        .as_ref()
        .unwrap()
        .answer("debug/dump-local-bindings", "name: [vm1], OVS interface name : [tap9], num binding lports : [1]\n");
    let snapshot = host.switch().await.snapshot().await.unwrap();
    assert_eq!(bindings(&snapshot), [Some(Binding::Elsewhere("tap9".into())), None]);
    drop(host.controller);
}

#[tokio::test]
async fn with_the_southbound_database_bindings_lag_and_unplugged_ports_are_known() {
    let host = Host::new();
    let options = host.options().southbound(Southbound::AsController);
    let switch = OvsSwitch::connect(options).await.unwrap();
    assert!(switch.features().southbound);
    let snapshot = switch.snapshot().await.unwrap();
    assert_eq!(bindings(&snapshot), [Some(Binding::Here), Some(Binding::Elsewhere("hv2".into()))]);
    let controller = snapshot.controller.unwrap();
    assert_eq!((controller.lag, controller.wanted), (Some(1), Some(5)));
    assert_eq!(controller.unplugged, Some(vec!["vm3".to_owned()]));
    let asked = host.southbound.requests("monitor_cond_change");
    assert!(
        !asked.iter().any(|request| request.to_string().contains("vm4")),
        "other hosts' ports are not ours to read"
    );
    host.southbound.stop();
    let mut changes = switch.changes();
    while switch.southbound_state().unwrap().connected {
        tokio::time::timeout(LIMIT, changes.next()).await.unwrap();
    }
    assert!(switch.features().southbound, "it is told to read it, whether it can or not");
    let controller = switch.snapshot().await.unwrap().controller.unwrap();
    assert_eq!((controller.lag, controller.unplugged), (None, None));
    let error = switch.stale_flows("br-int").await.unwrap_err();
    assert_eq!(error.category(), "unavailable");
}

/// Until word comes that the southbound database has a new host.
async fn until_followed(switch: &OvsSwitch, southbound: &OvsdbServer, changes: &mut BoxStream<'static, OvsChange>) {
    // The agent looks after every change, and so finds out where the database is.
    let known = async |switch: &OvsSwitch| {
        switch.snapshot().await.unwrap().controller.is_some_and(|controller| controller.lag.is_some())
    };
    while !(known(switch).await && southbound.clients() > 0) {
        tokio::time::timeout(LIMIT, changes.next()).await.expect("word of the database").unwrap();
    }
    // What was told until here is not what is waited for.
    while let Some(change) = changes.next().now_or_never() {
        change.unwrap();
    }
    southbound.insert("Chassis", Row::new().with("name", "hv-new"));
    assert_eq!(tokio::time::timeout(LIMIT, changes.next()).await.expect("word of the host"), Some(OvsChange::Changed));
}

#[tokio::test]
async fn a_southbound_database_that_becomes_known_later_or_moves_is_followed() {
    let host = Host::new();
    let remote = format!("unix:{}", host.dir.path().join("sb.sock").display());
    host.point_at(None);
    let switch = OvsSwitch::connect(host.options().southbound(Southbound::AsController)).await.unwrap();
    let mut changes = switch.changes();
    assert!(switch.southbound_state().is_none());
    host.point_at(Some(&remote));
    until_followed(&switch, &host.southbound, &mut changes).await;

    let other = OvsdbServer::southbound();
    let remote = other.listen_unix(host.dir.path().join("sb-other.sock")).unwrap();
    other.insert("Chassis", Row::new().with("name", "hv1"));
    other.insert("SB_Global", Row::new().with("nb_cfg", 5));
    other.insert("Chassis_Private", Row::new().with("name", "hv1").with("nb_cfg", 4));
    host.point_at(Some(&remote.to_string()));
    until_followed(&switch, &other, &mut changes).await;
    host.southbound.until(|server| server.clients() == 0).await;
}

#[tokio::test]
async fn a_southbound_database_too_large_to_be_read_costs_the_look_and_not_the_copy() {
    let host = Host::new();
    let connection = crate::ConnectOptions::new().connect_timeout(LIMIT).call_timeout(LIMIT).max_message(32 << 10);
    let options = host.options().connection(connection).southbound(Southbound::AsController);
    let switch = OvsSwitch::connect(options).await.unwrap();
    for _ in 0..1000 {
        host.southbound.insert("Logical_Flow", Row::new().with("table_id", 9));
    }
    assert!(switch.snapshot().await.unwrap().controller.unwrap().lag.is_some());
    let error = switch.stale_flows("br-int").await.unwrap_err();
    assert_eq!(error.category(), "unavailable", "{error}");
    let state = switch.southbound_state().unwrap();
    assert_eq!((state.connected, state.reconnects), (true, 0), "{state:?}");
    assert!(switch.snapshot().await.unwrap().controller.unwrap().lag.is_some());
}

#[tokio::test]
async fn a_new_port_is_told() {
    let host = Host::new();
    let switch = host.switch().await;
    let mut changes = switch.changes();
    host.database.insert("Bridge", Row::new().with("name", "br-new"));
    let told = tokio::time::timeout(LIMIT, changes.next()).await.unwrap();
    assert_eq!(told, Some(OvsChange::Changed));
    assert!(switch.snapshot().await.unwrap().bridges.iter().any(|bridge| bridge.name == "br-new"));
}

#[tokio::test]
async fn what_nobody_has_is_not_found_and_reaches_no_daemon() {
    let host = Host::new();
    let switch = host.switch().await;
    let request = TraceRequest {
        bridge: "../br-int".into(),
        in_port: "tap1".into(),
        ethernet: ("00:00:00:00:00:01".into(), "00:00:00:00:00:02".into()),
        vlan: None,
        ip: None,
        transport: None,
    };
    assert_eq!(switch.trace(&request).await.unwrap_err().category(), "not_found");
    let capture = CaptureRequest { port: "../eth1".into(), duration: LIMIT, max_bytes: 400, snap_len: 64 };
    assert_eq!(switch.capture(&capture).await.err().unwrap().category(), "not_found");
    assert_eq!(switch.fdb("br-nowhere").await.unwrap_err().category(), "not_found");
    assert_eq!(switch.flows("../x", None).await.err().unwrap().category(), "not_found");
    assert_eq!(switch.stale_flows("br-int").await.unwrap_err().category(), "unsupported");
    let odd = TraceRequest { bridge: "br-int".into(), in_port: "tap1,actions=drop".into(), ..request };
    assert_eq!(switch.trace(&odd).await.unwrap_err().category(), "refused");
    assert_eq!(host.vswitchd.as_ref().unwrap().calls(), Vec::<String>::new());
}

#[tokio::test]
async fn counters_of_a_daemon_that_is_gone_are_left_out() {
    let mut host = Host::new();
    host.controller = None;
    let vswitchd = host.vswitchd.as_ref().unwrap();
    vswitchd.answer("dpctl/show -s", "netdev@ovs-netdev:\n  lookups: hit:18 missed:4 lost:1\n  flows: 2\n");
    let counters = host.switch().await.counters().await.unwrap();
    assert_eq!(counters.memory["ovs-vswitchd"]["ofconns"], 3);
    assert!(!counters.memory.contains_key("ovn-controller"));
    let datapath = counters.datapaths.values().next().unwrap();
    assert_eq!((datapath.hit, datapath.missed, datapath.lost, datapath.flows), (18, 4, 1, 2));
}

#[tokio::test]
async fn upcalls_and_threads_are_told_with_the_datapath() {
    let host = Host::new();
    let vswitchd = host.vswitchd.as_ref().unwrap();
    vswitchd.answer("dpctl/show -s", "netdev@ovs-netdev:\n  lookups: hit:18 missed:4 lost:1\n  flows: 2\n");
    vswitchd.answer(
        "upcall/show",
        "netdev@ovs-netdev:\n  flows         : (current 3) (avg 2) (max 9) (limit 35000)\n  dump duration : 4ms\n",
    );
    vswitchd.answer("dpif-netdev/pmd-stats-show", "pmd thread numa_id 0 core_id 3:\n  packets received: 22\n");
    vswitchd.answer("dpif-netdev/pmd-rxq-show", "pmd thread numa_id 0 core_id 3:\n  isolated : true\n");
    vswitchd.refuse("dpif-netdev/pmd-perf-show", "an older switch has no such command");
    let counters = host.switch().await.counters().await.unwrap();
    let datapath = counters.datapaths["ovs-netdev"];
    assert_eq!((datapath.flow_limit, datapath.dump), (Some(35_000), Some(Duration::from_millis(4))));
    let [pmd] = &counters.pmds[..] else { panic!("{:?}", counters.pmds) };
    assert_eq!((pmd.thread.as_str(), pmd.received, pmd.isolated), ("3", Some(22), Some(true)));
}

#[tokio::test]
async fn a_connection_of_ours_that_the_switch_has_not_let_go_of_yet_is_not_taken_for_the_controllers() {
    let host = Host::new();
    let vswitchd = host.vswitchd.as_ref().unwrap();
    let switch = host.switch().await;
    let connected = async |counts: [&str; 3]| {
        vswitchd.answer_in_turn("memory/show", counts);
        switch.snapshot().await.unwrap().controller.unwrap().openflow_connected
    };
    assert_eq!(connected(["ofconns:1 ports:9", "ofconns:1 ports:9", "ports:9"]).await, Some(false), "that was ours");
    // Nor does one of ours that is not there yet hide the controller's.
    let reading = switch.inner.connections.one();
    assert_eq!(connected(["ofconns:1", "ofconns:2", "ofconns:2"]).await, Some(true));
    drop(reading);
    assert_eq!(connected(["ofconns:4", "ofconns:3", "ofconns:3"]).await, Some(true));
}

#[tokio::test]
async fn a_southbound_database_that_hangs_behind_a_unix_socket_is_told() {
    let host = Host::new();
    let switch = OvsSwitch::connect(host.options().control_timeout(Duration::from_secs(5))).await.unwrap();
    let responsive = async || switch.snapshot().await.unwrap().controller.unwrap().southbound_responsive;
    assert_eq!(responsive().await, Some(true));
    host.southbound.hang(true);
    assert_eq!(responsive().await, Some(false), "although the controller says that it is connected");
    host.southbound.hang(false);
    assert_eq!(responsive().await, Some(true));
    host.southbound.stop();
    assert_eq!(responsive().await, None, "one that is gone the controller notices itself");
}

#[tokio::test]
async fn a_hung_southbound_database_does_not_hold_up_the_look() {
    let host = Host::new();
    let options = host.options().southbound(Southbound::AsController).control_timeout(Duration::from_secs(5));
    let switch = OvsSwitch::connect(options).await.unwrap();
    assert!(switch.snapshot().await.unwrap().controller.unwrap().lag.is_some());
    host.southbound.hang(true);
    // Another logical port: the database has to be asked for its row.
    let row = Row::new().with("name", "tap9").with("external_ids", Datum::map([("iface-id", "vm9")]));
    let interface = host.database.insert("Interface", row);
    let port =
        host.database.insert("Port", Row::new().with("name", "tap9").with("interfaces", Datum::set([interface])));
    host.database.insert("Bridge", Row::new().with("name", "br-new").with("ports", Datum::set([port])));
    let there = |snapshot: &OvsSnapshot| snapshot.interfaces.iter().any(|port| port.name == "tap9");
    let looking = async {
        loop {
            let snapshot = switch.snapshot().await.unwrap();
            if there(&snapshot) {
                return snapshot;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    // Less than the time that a call to the database is given here.
    let snapshot = tokio::time::timeout(LIMIT / 2, looking).await.unwrap();
    assert_eq!(snapshot.controller.unwrap().lag, None, "what it does not say is not known");
}

#[tokio::test]
async fn a_kernel_that_does_not_tell_of_its_bonds_leaves_what_it_said_last() {
    let host = Host::new();
    let bonding = host.dir.path().join("proc/net/bonding");
    std::fs::create_dir_all(&bonding).unwrap();
    let text = "Bonding Mode: IEEE 802.3ad Dynamic link aggregation\nMII Status: up\n\n\
                Slave Interface: eno1\nMII Status: up\n\nSlave Interface: eno2\nMII Status: down\n";
    std::fs::write(bonding.join("eth1"), text).unwrap();
    let switch = host.switch().await;
    let first = switch.snapshot().await.unwrap();
    let bond = |snapshot: &OvsSnapshot| snapshot.bonds.iter().find(|bond| bond.name == "eth1").cloned();
    let known = bond(&first).expect("a bond of the kernel's");
    assert_eq!(known.members.len(), 2);
    // Somebody waits for the kernel already, and it does not answer.
    let waiting = Arc::clone(&switch.inner.asking_kernel).acquire_owned().await.unwrap();
    std::fs::remove_file(bonding.join("eth1")).unwrap();
    let silent = switch.snapshot().await.unwrap();
    assert_eq!(bond(&silent), Some(known), "a bond must not look mended, or gone, because nobody could look");
    drop(waiting);
    assert_eq!(bond(&switch.snapshot().await.unwrap()), None);
}
