//! Against texts recorded from Open vSwitch 3.1 and OVN 23.03, at rest and with faults.

use std::time::Duration;

use cobalt_core::ovs::{PmdCounters, Trace, TraceRequest, Transport, Verdict};
use proptest::prelude::*;

use super::*;

macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!("../../tests/recorded/show/", $name, ".txt"))
    };
}

fn numbers() -> Ports {
    ports(recorded!("dpif"))
}

fn traced(text: &str) -> Trace {
    trace(text, &numbers())
}

fn forwarded(names: &[&str]) -> Verdict {
    Verdict::Forwarded(names.iter().map(ToString::to_string).collect())
}

#[test]
fn each_daemon_tells_its_version() {
    assert_eq!(version(recorded!("version-ovs-vswitchd")).as_deref(), Some("3.1.0"));
    assert_eq!(version(recorded!("version-ovsdb-server")).as_deref(), Some("3.1.0"));
    assert_eq!(version(recorded!("version-ovn-controller")).as_deref(), Some("23.03.1"));
    assert_eq!(version("something else"), None);
}

#[test]
fn a_negotiated_bond_sends_over_both_members() {
    let [bond] = &bonds(recorded!("bond-negotiated"))[..] else { panic!("one bond") };
    assert_eq!((bond.name.as_str(), bond.mode.as_deref()), ("bond0", Some("balance-tcp")));
    assert!(bond.active_mac.is_some());
    assert!(bond.members.iter().all(|member| member.enabled && member.may_enable));
    assert_eq!(bond.members.iter().filter(|member| member.active).count(), 1);
    let [lacp] = &lacp(recorded!("lacp-negotiated"))[..] else { panic!("one bond") };
    assert_eq!(lacp.status.as_deref(), Some("active negotiated"));
    assert_eq!(lacp.members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>(), ["eth1", "eth2"]);
    for member in &lacp.members {
        assert_eq!(member.state.as_deref(), Some("current"));
        assert!(member.attached && member.may_enable);
        assert!(member.partner.is_some() && member.partner != lacp.system);
        assert!(member.partner_state.iter().any(|word| word == "synchronized"));
    }
}

#[test]
fn a_silent_partner_disables_the_members_whatever_else_is_said() {
    let [bond] = &bonds(recorded!("bond-partner-silent"))[..] else { panic!("one bond") };
    assert!(bond.members.len() == 2 && bond.members.iter().all(|member| !member.enabled && !member.may_enable));
    assert_eq!(bond.active_mac, None);
    let [lacp] = &lacp(recorded!("lacp-partner-silent"))[..] else { panic!("one bond") };
    for member in &lacp.members {
        assert_eq!(member.state.as_deref(), Some("defaulted"));
        assert_eq!(member.partner, None);
        assert!(!member.attached && member.partner_state.is_empty());
    }
}

#[test]
fn a_member_without_a_link_is_told_from_the_other() {
    let [bond] = &bonds(recorded!("bond-member-down"))[..] else { panic!("one bond") };
    let enabled: Vec<_> = bond.members.iter().map(|member| (member.name.as_str(), member.enabled)).collect();
    assert_eq!(enabled, [("eth1", true), ("eth2", false)]);
    let [bond] = &bonds(recorded!("bond-all-down"))[..] else { panic!("one bond") };
    assert!(bond.members.iter().all(|member| !member.enabled));
    assert_eq!(lacp(recorded!("lacp-all-down")).len(), 1);
}

#[test]
fn the_words_of_older_switches_are_understood() {
    let text = "---- b ----\nbond_mode: active-backup\nactive slave mac: 0a:00:00:00:00:01(e1)\n\n\
                slave e1: enabled\n\tactive slave\n\tmay_enable: true\n";
    let [bond] = &bonds(text)[..] else { panic!("one bond") };
    assert_eq!(bond.active_mac.as_deref(), Some("0a:00:00:00:00:01"));
    assert!(bond.members[0].enabled && bond.members[0].active && bond.members[0].may_enable);
}

#[test]
fn ports_have_a_number_in_each_of_two_worlds() {
    let ports = numbers();
    let tunnel = ports.openflow("br-int", "3").unwrap();
    assert_eq!((tunnel.name.as_str(), tunnel.kind.as_str(), tunnel.datapath), ("ovn-hv2-0", "geneve", Some(9)));
    assert_eq!(ports.openflow("br-ex", "LOCAL").unwrap().name, "br-ex");
    let patch = ports.openflow("br-int", "4").unwrap();
    assert_eq!((patch.kind.as_str(), patch.datapath), ("patch", None));
    assert_eq!(ports.datapath(8).map(|port| port.name.as_str()).collect::<Vec<_>>(), ["tap-vm2"]);
    assert!(ports.openflow("br-int", "99").is_none() && ports.openflow("br-int", "x").is_none());
}

#[test]
fn a_datapath_counts() {
    // The kernel's tells of its masks; such a text as its switch writes it.
    let text = "system@ovs-system:\n  lookups: hit:1000 missed:20 lost:0\n  flows: 3\n  masks: hit:1500 total:4 hit/pkt:1.47\n\
        \x20 cache: hit:800 hit-rate:78.43%\n  caches:\n    masks-cache: size:256\n";
    let kernel = datapaths(text)["ovs-system"];
    assert_eq!((kernel.hit, kernel.masks), (1000, Some(4)));
    assert_eq!((kernel.mask_hits, kernel.mask_cache_hits), (Some(1500), Some(800)));
    let datapaths = datapaths(recorded!("dpctl"));
    let counters = &datapaths["ovs-netdev"];
    assert!(counters.hit > 0 && counters.missed > 0);
    assert_eq!(counters.lost, 0);
    let upcalls = upcalls(recorded!("upcall"));
    assert_eq!(upcalls["ovs-netdev"].limit, 35_000);
    assert_eq!(upcalls["ovs-netdev"].dump, Duration::from_millis(1));
}

#[test]
fn the_threads_of_a_switch_are_told_as_it_tells_them() {
    // Recorded from threads on invented devices (`dummy-pmd`), one queue of which was given to the second thread.
    let text = [recorded!("pmd-stats"), recorded!("pmd-rxq"), recorded!("pmd-perf")].join("\n");
    let found = pmds(&text);
    let [one, two, main] = &found[..] else { panic!("{found:#?}") };
    let queues = |pmd: &PmdCounters| {
        pmd.queues.iter().map(|queue| (queue.interface.clone(), queue.queue, queue.usage_percent)).collect::<Vec<_>>()
    };
    let queue = |interface: &str, queue| (interface.to_owned(), queue, Some(0));
    assert_eq!((one.isolated, queues(one)), (Some(false), vec![queue("p0", 0), queue("p1", 1), queue("p1", 2)]));
    assert_eq!((two.isolated, queues(two)), (Some(true), vec![queue("p1", 0)]));
    assert_eq!((two.thread.as_str(), two.numa, two.received), ("1", Some(0), Some(300)));
    assert_eq!((two.idle_iterations, two.busy_iterations), (Some(1_627_767), Some(300)));
    assert_eq!((two.sleep_iterations, two.slept, two.overhead_percent), (Some(0), Some(Duration::ZERO), Some(0)));
    assert_eq!((main.isolated, main.idle_iterations, queues(main)), (None, None, vec![]));

    let [main] = &pmds(recorded!("pmd"))[..] else { panic!("not one thread") };
    assert_eq!((main.thread.as_str(), main.received, main.megaflow_hits), ("main", Some(12), Some(3)));
    assert_eq!((main.upcalls, main.failed_upcalls, main.idle_cycles), (Some(12), Some(0), None));
}

#[test]
fn a_learned_address_is_told_with_the_ports_name() {
    let entries = fdb(recorded!("fdb"), "br-ex", &numbers());
    assert!(!entries.is_empty());
    assert!(entries.iter().all(|entry| entry.port == "eth2" && entry.mac.len() == 17));
    let text = " port  VLAN  MAC                Age\nLOCAL     5  66:64:80:b4:d8:46    4\n   77     0  66:64:80:b4:d8:47  static\n";
    let entries = fdb(text, "br-ex", &numbers());
    assert_eq!((entries[0].port.as_str(), entries[0].vlan, entries[0].age), ("br-ex", 5, Duration::from_secs(4)));
    assert_eq!((entries[1].port.as_str(), entries[1].age), ("77", Duration::ZERO));
}

#[test]
fn counters_are_open_maps() {
    let events = coverage(recorded!("coverage"));
    assert!(events["bridge_reconfigure"] > 0 && events["util_xalloc"] > 1000);
    assert!(!events.contains_key("Event") && !events.keys().any(|name| name.contains(':')));
    assert!(coverage(recorded!("coverage-ovn-controller")).len() > 10);
    let memory = |text| super::memory(text);
    let switch = memory(recorded!("memory-ovs-vswitchd"));
    assert_eq!(switch["ofconns"], 3);
    assert!(switch["udpif keys"] > 0 && switch["ports"] > 0);
    assert!(memory(recorded!("memory-ovn-controller"))["idl-cells-OVN_Southbound"] > 0);
    assert!(!memory(recorded!("memory-ovsdb-server")).is_empty());
}

#[test]
fn the_controller_tells_what_it_is_connected_to_and_has_bound() {
    assert!(connected(recorded!("connection-connected")));
    assert!(!connected("not connected\n"));
    let all = bindings(recorded!("bindings-orphan"));
    let names: Vec<_> = all.iter().map(|binding| (binding.logical_port.as_str(), binding.bound)).collect();
    assert_eq!(names, [("nobody2", 0), ("vm1", 1), ("vm2", 1)]);
    assert_eq!(all[0].interface.as_deref(), Some("tap-x"));
    assert_eq!((all[0].primary.as_deref(), all[1].primary.as_deref()), (None, Some("vm1")));
    assert_eq!(bindings(recorded!("bindings")).len(), 2);
}

#[test]
fn a_packet_to_the_neighbour_goes_through_the_tracker_and_out_of_its_port() {
    let trace = traced(recorded!("trace-to-neighbour"));
    assert_eq!(trace.verdict, forwarded(&["tap-vm2"]));
    assert!(trace.steps.iter().all(|step| step.bridge == "br-int"));
    let tables: Vec<u8> = trace.steps.iter().map(|step| step.table).collect();
    assert_eq!(tables[..6], [0, 8, 73, 9, 10, 11]);
    assert_eq!(tables.last(), Some(&65));
    assert!(tables.windows(2).any(|pair| pair == [14, 15]), "connection tracking goes on at table 15");
    let admission = &trace.steps[1];
    assert_eq!(admission.matched, "metadata=0x1");
    // What stands behind the inner table belongs to the outer one again.
    assert_eq!(admission.actions.last().map(String::as_str), Some("resubmit(,9)"));
    assert_eq!(trace.steps[2].actions, ["set_field:0/0x1000->reg10"]);
    let missed = trace.steps.iter().find(|step| step.table == 68).unwrap();
    assert_eq!((missed.matched.as_str(), missed.actions.as_slice()), ("no match", &["drop".to_owned()][..]));
    assert_eq!(trace.steps.last().unwrap().actions, ["output:2"]);
}

#[test]
fn verdicts_follow_what_the_datapath_does() {
    assert_eq!(traced(recorded!("trace-port-security")).verdict, Verdict::Dropped);
    assert_eq!(traced(recorded!("trace-no-port")).verdict, Verdict::Dropped);
    assert_eq!(traced(recorded!("trace-to-unknown-neighbour")).verdict, Verdict::Controller);
    assert_eq!(traced(recorded!("trace-broadcast")).verdict, forwarded(&["tap-vm2"]));
    assert_eq!(traced("").verdict, Verdict::Dropped);
}

#[test]
fn a_packet_that_is_logged_and_dropped_is_dropped() {
    let trace = traced(recorded!("trace-dropped-by-acl"));
    assert_eq!(trace.verdict, Verdict::Dropped);
    assert!(trace.steps.last().unwrap().matched.starts_with("conj_id="));
    // What the controller is to answer is another matter.
    assert_eq!(traced("Datapath actions: userspace(pid=0,controller(reason=1))").verdict, Verdict::Controller);
}

#[test]
fn a_packet_for_another_host_leaves_by_its_tunnel() {
    let trace = traced(recorded!("trace-tunnel"));
    assert_eq!(trace.verdict, forwarded(&["ovn-hv2-0"]));
    let outer: Vec<_> = trace.steps.iter().filter(|step| step.bridge == "br-ex").collect();
    assert_eq!(outer.len(), 1, "the wrapped packet crosses the bridge with the addresses");
    assert_eq!(outer[0].actions[0], "NORMAL");
    let sending = trace.steps.iter().find(|step| step.table == 39).unwrap();
    assert_eq!(sending.bridge, "br-int");
    assert_eq!(sending.actions.last().map(String::as_str), Some("resubmit(,40)"));
    assert_eq!(trace.steps.last().map(|step| (step.bridge.as_str(), step.table)), Some(("br-int", 40)));
}

#[test]
fn a_packet_that_left_by_one_of_several_tunnels_is_not_dropped_where_no_table_names_it() {
    let another = "    ovn-hv3-0 4/9: (geneve: csum=true, key=flow, remote_ip=172.31.0.13)\n";
    let known = recorded!("dpif");
    let place = known.find("    ovn-hv2-0").unwrap();
    let ports = ports(&format!("{}{another}{}", &known[..place], &known[place..]));
    assert_eq!(ports.datapath(9).count(), 2);
    assert_eq!(trace(recorded!("trace-tunnel"), &ports).verdict, forwarded(&["ovn-hv2-0"]));
    let unnamed = recorded!("trace-tunnel").replace("output:3", "output:NXM_NX_REG15[]");
    assert_eq!(trace(&unnamed, &ports).verdict, forwarded(&["datapath port 9"]));
}

#[test]
fn a_patch_leads_to_the_next_bridge() {
    let trace = traced(recorded!("trace-from-provider"));
    let mut bridges: Vec<_> = trace.steps.iter().map(|step| step.bridge.as_str()).collect();
    bridges.dedup();
    assert_eq!(bridges, ["br-provider", "br-int"]);
    assert_eq!(trace.verdict, forwarded(&["br-provider"]), "the copy for the router is dropped");
}

#[test]
fn where_a_hash_chooses_the_chooser_is_named() {
    assert_eq!(traced(recorded!("trace-flood")).verdict, forwarded(&["bond"]));
    assert_eq!(traced(recorded!("trace-load-balancer")).verdict, forwarded(&["group:1"]));
}

#[test]
fn an_unknown_port_is_called_by_its_number() {
    let trace = trace(recorded!("trace-to-neighbour"), &Ports::default());
    assert_eq!(trace.verdict, forwarded(&["datapath port 8"]));
}

fn request() -> TraceRequest {
    TraceRequest {
        bridge: "br-int".into(),
        in_port: "tap-vm1".into(),
        ethernet: ("00:00:00:00:00:01".into(), "00:00:00:00:00:0A".into()),
        vlan: None,
        ip: None,
        transport: None,
    }
}

#[test]
fn a_packet_is_described_in_the_switchs_words() {
    assert_eq!(packet(&request()).unwrap(), "in_port=tap-vm1,dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:0a");
    let four = Some(("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()));
    let echo = TraceRequest { ip: four, transport: Some(Transport::IcmpEcho), vlan: Some(5), ..request() };
    let expected = "in_port=tap-vm1,icmp,dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:0a,dl_vlan=5,\
                    nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,icmp_type=8,icmp_code=0";
    assert_eq!(packet(&echo).unwrap(), expected);
    let six = Some(("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()));
    let udp = TraceRequest { ip: six, transport: Some(Transport::Udp(5, 53)), ..request() };
    assert!(packet(&udp).unwrap().ends_with("ipv6_src=fd00::1,ipv6_dst=fd00::2,nw_ttl=64,udp_src=5,udp_dst=53"));
}

#[test]
fn what_is_no_packet_is_refused_with_the_reason() {
    let wrong = [
        TraceRequest { bridge: String::new(), ..request() },
        TraceRequest { bridge: "br int".into(), ..request() },
        TraceRequest { in_port: "tap,actions=drop".into(), ..request() },
        TraceRequest { in_port: "-O".into(), ..request() },
        TraceRequest { in_port: "x".repeat(65), ..request() },
        TraceRequest { ethernet: ("00:00:00:00:00:1".into(), "00:00:00:00:00:01".into()), ..request() },
        TraceRequest { ethernet: ("00:00:00:00:00:01/ff".into(), "00:00:00:00:00:01".into()), ..request() },
        TraceRequest { vlan: Some(4096), ..request() },
        TraceRequest { transport: Some(Transport::Tcp(1, 2)), ..request() },
        TraceRequest { ip: Some(("10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap())), ..request() },
    ];
    for request in wrong {
        assert!(packet(&request).is_err(), "{request:?}");
    }
}

/// Everything, on anything.
fn read_all(text: &str) {
    let ports = ports(text);
    let _ = (version(text), connected(text), bindings(text), bonds(text), lacp(text));
    let _ = (datapaths(text), upcalls(text), fdb(text, "br-int", &ports), coverage(text), super::memory(text));
    let _ = (trace(text, &ports), pmds(text));
}

proptest! {
    #[test]
    fn no_text_is_too_odd(text in "\\PC{0,200}(\n\\PC{0,80}){0,10}") {
        read_all(&text);
    }

    #[test]
    fn no_cut_of_a_recorded_text_is_too_odd(start in 0..4000_usize, length in 0..4000_usize) {
        for text in [recorded!("trace-tunnel"), recorded!("lacp-negotiated"), recorded!("dpctl"), recorded!("dpif")] {
            let end = (start + length).min(text.len());
            read_all(text.get(start.min(end)..end).unwrap_or_default());
        }
    }

    #[test]
    fn nothing_in_a_name_becomes_another_part_of_the_packet(name in "\\PC{0,20}") {
        if let Ok(flow) = packet(&TraceRequest { in_port: name.clone(), ..request() }) {
            let expected = format!("in_port={name}");
            prop_assert_eq!(flow.split([',', ' ']).next(), Some(expected.as_str()));
            prop_assert_eq!(flow.matches(',').count(), 2);
        }
    }
}
