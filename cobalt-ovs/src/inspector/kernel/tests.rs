use super::*;

/// As Linux 6.1 writes it to a privileged reader; the second member's partner is silent.
const LACP: &str = "Ethernet Channel Bonding Driver: v6.1.0\n
Bonding Mode: IEEE 802.3ad Dynamic link aggregation
Transmit Hash Policy: layer3+4 (1)
MII Status: up
MII Polling Interval (ms): 100

802.3ad info
LACP active: on
LACP rate: fast
Aggregator selection policy (ad_select): stable
System priority: 65535
System MAC address: 0c:42:a1:00:00:01
Active Aggregator Info:
\tAggregator ID: 1
\tNumber of ports: 1
\tPartner Mac Address: 44:38:39:ff:00:01

Slave Interface: eno2
MII Status: up
Speed: 25000 Mbps
Permanent HW addr: 0c:42:a1:00:00:02
Aggregator ID: 2
Partner Churn State: churned
details actor lacp pdu:
    system mac address: 0c:42:a1:00:00:01
    port state: 77
details partner lacp pdu:
    system mac address: 00:00:00:00:00:00
    port state: 1

Slave Interface: eno1
MII Status: up
Speed: 25000 Mbps
Aggregator ID: 1
details actor lacp pdu:
    system mac address: 0c:42:a1:00:00:01
    port state: 63
details partner lacp pdu:
    system mac address: 44:38:39:ff:00:01
    port state: 61
";

const BACKUP: &str = "Bonding Mode: fault-tolerance (active-backup)
Currently Active Slave: eno1
MII Status: up

Slave Interface: eno1
MII Status: up

Slave Interface: eno2
MII Status: up
";

fn parse(name: &str, text: &str) -> Option<Bond> {
    Report::read(text).map(|report| report.bond(name))
}

/// What is left of a file for a reader without `CAP_NET_ADMIN`.
fn unprivileged(text: &str) -> String {
    let told = |line: &&str| {
        ["ggregator", "state", "State", "details", "system mac", "Partner Mac", "System "]
            .iter()
            .all(|word| !line.contains(word))
    };
    text.lines().filter(told).collect::<Vec<_>>().join("\n")
}

fn members(bond: &Bond) -> Vec<(&str, bool, Option<&str>, Option<&str>)> {
    let all = bond.members.iter();
    all.map(|it| (it.name.as_str(), it.enabled == Some(true), it.lacp.as_deref(), it.partner.as_deref())).collect()
}

#[test]
fn a_member_with_a_silent_partner_carries_nothing_though_its_link_is_up() {
    let bond = parse("bond0", LACP).unwrap();
    assert_eq!((bond.mode.as_str(), bond.lacp, bond.kind), ("802.3ad", true, BondKind::Kernel));
    assert_eq!(
        members(&bond),
        [("eno1", true, Some("current"), Some("44:38:39:ff:00:01")), ("eno2", false, Some("defaulted"), None)]
    );
    assert!(bond.members.iter().all(|member| member.link_up == Some(true)));
}

#[test]
fn of_an_active_backup_bond_one_member_carries_traffic() {
    let bond = parse("bond1", BACKUP).unwrap();
    assert_eq!(members(&bond), [("eno1", true, None, None), ("eno2", false, None, None)]);
    assert!(!bond.lacp);
}

#[test]
fn of_an_lacp_bond_an_unprivileged_reader_knows_only_the_members_without_a_link() {
    let bond = parse("bond0", &unprivileged(LACP)).unwrap();
    assert!(bond.members.iter().all(|member| member.lacp.is_none() && member.enabled.is_none()), "{bond:?}");
    let pulled = unprivileged(LACP).replacen("MII Status: up", "MII Status: down", 2);
    let bond = parse("bond0", &pulled).unwrap();
    let known: Vec<_> = bond.members.iter().map(|member| member.enabled).collect();
    assert_eq!(known, [None, Some(false)], "eno2 has no link, and that is enough to know");
    let bond = parse("bond0", LACP).unwrap();
    assert!(bond.is_told());
    let bond = parse("bond1", BACKUP).unwrap();
    assert!(bond.is_told(), "without LACP the link tells");
}

#[test]
fn what_an_unprivileged_reader_is_not_told_of_lacp_comes_from_where_all_may_read() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("proc/net/bonding/bond0", &unprivileged(LACP));
    write("sys/class/net/bond0/bonding/ad_aggregator", "1\n");
    for (member, aggregator, state) in [("eno1", "1", "63"), ("eno2", "2", "77")] {
        write(&format!("sys/class/net/{member}/bonding_slave/ad_aggregator_id"), &format!("{aggregator}\n"));
        write(&format!("sys/class/net/{member}/bonding_slave/ad_actor_oper_port_state"), &format!("{state}\n"));
    }
    let devices = BTreeMap::from([("bond0".to_owned(), "br-ex".to_owned())]);
    let found = bonds(root.path(), &devices);
    let bond = &found[0].bond;
    assert_eq!(members(bond), [("eno1", true, Some("current"), None), ("eno2", false, Some("defaulted"), None)]);
    assert!(bond.is_told());
    // A kernel that has the files and nothing to say.
    write("sys/class/net/eno2/bonding_slave/ad_actor_oper_port_state", "N/A\n");
    let found = bonds(root.path(), &devices);
    let bond = &found[0].bond;
    assert_eq!(bond.members.iter().map(|member| member.enabled).collect::<Vec<_>>(), [Some(true), None]);
}

#[test]
fn what_is_no_bond_is_none() {
    assert_eq!(parse("x", ""), None);
    assert_eq!(parse("x", "Slave Interface: eno1\nMII Status: up\n"), None);
}

#[test]
fn bonds_in_below_and_beside_a_bridge_are_found_and_others_are_not() {
    let root = tempfile::tempdir().unwrap();
    let (bonding, net) = (root.path().join("proc/net/bonding"), root.path().join("sys/class/net"));
    fs::create_dir_all(&bonding).unwrap();
    for bond in ["bond0", "bond1", "bond2"] {
        fs::write(bonding.join(bond), LACP).unwrap();
    }
    // A VLAN on bond1.
    fs::create_dir_all(net.join("vlan7/lower_bond1")).unwrap();
    fs::create_dir_all(net.join("eno1/statistics")).unwrap();
    fs::write(net.join("eno1/speed"), "25000\n").unwrap();
    fs::write(net.join("eno1/address"), "0c:42:a1:00:00:01\n").unwrap();
    fs::write(net.join("eno1/ifindex"), "3\n").unwrap();
    fs::write(net.join("eno1/mtu"), "9000\n").unwrap();
    fs::write(net.join("eno1/duplex"), "full\n").unwrap();
    fs::write(net.join("eno1/statistics/rx_packets"), "17\n").unwrap();
    let devices = BTreeMap::from([
        ("bond0".to_owned(), "br-ex".to_owned()),
        ("vlan7".to_owned(), "br-int".to_owned()),
        ("../bond2".to_owned(), "br-int".to_owned()),
    ]);
    let found = bonds(root.path(), &devices);
    let names: Vec<_> = found.iter().map(|it| (it.bond.name.as_str(), it.interfaces[0].bridge.as_str())).collect();
    assert_eq!(names, [("bond0", "br-ex"), ("bond1", "br-int")]);
    let member = &found[0].interfaces[0];
    assert_eq!((member.name.as_str(), member.bond.as_deref()), ("eno1", Some("bond0")));
    assert_eq!((member.speed_bps, member.ifindex), (Some(25_000_000_000), Some(3)));
    assert_eq!((member.device.mtu, member.device.full_duplex), (Some(9000), Some(true)));
    assert_eq!(member.statistics.get("rx_packets"), Some(&17));
    fs::write(net.join("eno1/speed"), format!("{}\n", u64::MAX)).unwrap();
    assert_eq!(bonds(root.path(), &devices)[0].interfaces[0].speed_bps, None, "no speed, and no panic");
    assert_eq!(bonds(Path::new("/nonexistent"), &devices), []);
}
