#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    agent::{exporter::tests::check_format, ovs::tests::sound},
    api::OVSNodeStatus,
    ovs::{Daemon, DatapathCounters, Device, MockOvsInspector, OvsFeatures, PmdCounters, ReceiveQueue},
};

fn switch(snapshot: OvsSnapshot, counters: OvsCounters) -> Arc<MockOvsInspector> {
    let mut mock = MockOvsInspector::new();
    mock.expect_features().returning(|| OvsFeatures { counters: true, ..OvsFeatures::default() });
    mock.expect_snapshot().returning(move || Ok(snapshot.clone()));
    mock.expect_counters().returning(move || Ok(counters.clone()));
    Arc::new(mock)
}

fn counters() -> OvsCounters {
    let named = |name: &str| BTreeMap::from([(name.to_owned(), 7)]);
    let datapath = DatapathCounters {
        hit: 5,
        missed: 4,
        lost: 3,
        flows: 2,
        flow_limit: Some(200_000),
        dump: Some(Duration::from_millis(3)),
        masks: Some(6),
        mask_hits: Some(9),
        mask_cache_hits: Some(8),
    };
    let queue = |queue: u32| ReceiveQueue {
        interface: "dpdk0".into(),
        queue,
        enabled: queue == 0,
        usage_percent: (queue == 0).then_some(40),
    };
    let pmd = PmdCounters {
        thread: "3".into(),
        numa: Some(0),
        received: Some(100),
        emc_hits: Some(60),
        failed_upcalls: Some(2),
        busy_cycles: Some(10),
        idle_iterations: Some(30),
        sleep_iterations: Some(20),
        slept: Some(Duration::from_micros(1500)),
        isolated: Some(true),
        overhead_percent: Some(1),
        queues: (0..2).map(queue).collect(),
        ..PmdCounters::default()
    };
    OvsCounters {
        datapaths: BTreeMap::from([("ovs-netdev".into(), datapath)]),
        pmds: vec![pmd],
        coverage: BTreeMap::from([("ovs-vswitchd".into(), named("bridge_reconfigure"))]),
        memory: BTreeMap::from([("ovsdb-server".into(), named("cells"))]),
    }
}

async fn scrape(snapshot: OvsSnapshot, counters: OvsCounters) -> String {
    let verdict = Verdict::default();
    verdict.set(OVSNodeStatus::default(), Some(BTreeMap::new()), None);
    let text = Exporter::new(switch(snapshot, counters), &Metrics::new()).verdict(verdict).scrape().await;
    check_format(&text);
    text
}

#[tokio::test]
async fn everything_is_told_once_and_in_the_format() {
    let mut seen = sound();
    let card = seen.interfaces.iter_mut().find(|port| port.name == "eth1").unwrap();
    card.device = Device {
        kind: Some("dpdk".into()),
        mtu: Some(9000),
        full_duplex: Some(true),
        link_resets: Some(3),
        policing_bps: Some(1_000_000),
        policing_burst_bits: Some(80_000),
    };
    let configuration = &mut seen.controller.as_mut().unwrap().configuration;
    (configuration.encap_ip, configuration.monitor_all) = (Some("10.0.0.1".into()), Some("x".repeat(1000)));
    let text = scrape(seen, counters()).await;
    let (card, pmd) = ("bridge=\"br-ex\",interface=\"eth1\"", "thread=\"3\",numa=\"0\"");
    let queue = |number: u32| format!("{{{pmd},interface=\"dpdk0\",queue=\"{number}\"}}");
    for line in [
        format!("ovs_interface_info{{{card},type=\"dpdk\",port=\"bond0\",role=\"physical\",instance=\"\"}} 1"),
        format!("ovs_interface_mtu_bytes{{{card}}} 9000"),
        format!("ovs_interface_full_duplex{{{card}}} 1"),
        format!("ovs_interface_link_resets_total{{{card}}} 3"),
        format!("ovs_interface_ingress_policing_bits_per_second{{{card}}} 1000000"),
        format!("ovs_interface_ingress_policing_burst_bits{{{card}}} 80000"),
        format!("ovs_pmd_iterations_total{{{pmd},state=\"idle\"}} 30"),
        format!("ovs_pmd_sleep_iterations_total{{{pmd}}} 20"),
        format!("ovs_pmd_sleep_seconds_total{{{pmd}}} 0.001500000"),
        format!("ovs_pmd_isolated{{{pmd}}} 1"),
        format!("ovs_pmd_overhead_percent{{{pmd}}} 1"),
        format!("ovs_pmd_queue_enabled{} 0", queue(1)),
        format!("ovs_pmd_queue_usage_percent{} 40", queue(0)),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains(&format!("ovs_pmd_queue_usage_percent{}", queue(1))), "unknown is not zero");
    let bounded = format!("monitor_all=\"{}\"", "x".repeat(256));
    let info = text.lines().find(|line| line.starts_with("ovn_controller_info{encap_ip=\"10.0.0.1\",encap_type=\"\""));
    assert!(info.is_some_and(|info| info.contains(&bounded)), "{text}");
    for line in [
        "ovs_datapath_masks{datapath=\"ovs-netdev\"} 6",
        "ovs_datapath_mask_hits_total{datapath=\"ovs-netdev\"} 9",
        "ovs_datapath_mask_cache_hits_total{datapath=\"ovs-netdev\"} 8",
        "ovs_up 1",
        "ovs_daemon_responsive{daemon=\"ovs-vswitchd\"} 1",
        "ovs_bridge_table_flows{bridge=\"br-int\",table=\"8\"} 20",
        "ovs_interface_rx_packets_total{bridge=\"br-int\",interface=\"tap1\"} 11",
        "ovs_bond_member_lacp_current{bond=\"bond0\",kind=\"ovs\",member=\"eth1\"} 1",
        "ovs_interface_admin_up{bridge=\"br-int\",interface=\"tap1\"} 1",
        "ovs_datapath_lost_total{datapath=\"ovs-netdev\"} 3",
        "ovs_datapath_flow_limit{datapath=\"ovs-netdev\"} 200000",
        "ovs_datapath_dump_seconds{datapath=\"ovs-netdev\"} 0.003000000",
        "ovs_pmd_packets_total{thread=\"3\",numa=\"0\"} 100",
        "ovs_pmd_hits_total{thread=\"3\",numa=\"0\",cache=\"emc\"} 60",
        "ovs_pmd_upcalls_total{thread=\"3\",numa=\"0\",result=\"lost\"} 2",
        "ovs_pmd_cycles_total{thread=\"3\",numa=\"0\",state=\"busy\"} 10",
        "ovs_coverage_total{daemon=\"ovs-vswitchd\",event=\"bridge_reconfigure\"} 7",
        "ovs_memory{daemon=\"ovsdb-server\",what=\"cells\"} 7",
        "ovn_controller_southbound_connected 1",
        "ovs_issues{type=\"OrphanPort\",severity=\"Warning\"} 0",
        "ovs_orphan_ports 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("ovs_stale_flows"), "unknown is not zero");
}

#[tokio::test]
async fn issues_are_unknown_and_not_none_while_nobody_could_look() {
    let exporter = Exporter::new(switch(sound(), counters()), &Metrics::new()).verdict(Verdict::default());
    let text = exporter.scrape().await;
    assert!(!text.contains("ovs_issues") && !text.contains("ovs_orphan_ports"), "{text}");
}

#[tokio::test]
async fn a_counter_nobody_has_heard_of_is_a_label_and_an_odd_name_is_escaped() {
    let mut seen = sound();
    let port = seen.interfaces.iter_mut().find(|port| port.name == "tap1").unwrap();
    port.statistics.insert("ovs_tx_\"new\"\n".into(), 5);
    let text = scrape(seen, OvsCounters::default()).await;
    let wanted =
        "ovs_interface_statistics_total{bridge=\"br-int\",interface=\"tap1\",statistic=\"ovs_tx_\\\"new\\\"\\n\"} 5";
    assert!(text.contains(wanted), "{text}");
}

#[tokio::test]
async fn the_bonds_of_a_switch_that_hangs_are_not_told() {
    let mut seen = sound();
    seen.switch = Daemon::Unresponsive;
    let text = scrape(seen, OvsCounters::default()).await;
    assert!(text.contains("ovs_daemon_responsive{daemon=\"ovs-vswitchd\"} 0"));
    assert!(text.contains("ovs_bond_members{bond=\"bond0\"") && !text.contains("ovs_bond_active_members"));
}

/// The database keeps what the switch wrote last, and our copy what the database said last.
#[tokio::test]
async fn what_a_dead_switch_or_a_lost_database_said_last_is_not_told_as_if_it_were_so() {
    type Change = fn(&mut OvsSnapshot);
    let kernel = |seen: &mut OvsSnapshot| {
        let mut bond = seen.bonds[0].clone();
        (bond.name, bond.kind) = ("bond1".into(), crate::ovs::BondKind::Kernel);
        bond.members.iter_mut().for_each(|member| member.name = format!("k-{}", member.name));
        seen.bonds.push(bond);
    };
    let kernels = "ovs_bond_member_link_up{bond=\"bond1\",kind=\"kernel\",member=\"k-eth1\"} 1";
    let links = ["ovs_interface_link_up{", "ovs_interface_speed_bits_per_second{", "ovs_interface_rx_packets_total{"];
    let links = links.into_iter().chain(["ovs_bond_member_link_up{bond=\"bond0\""]);
    let database = ["ovs_bridge_ports{", "ovs_configuration_pending"];
    let all: Vec<&str> = links.clone().chain(database).collect();
    let table: [(Change, Vec<&str>); 3] = [
        (|seen| seen.switch = Daemon::Unresponsive, links.clone().collect()),
        (|seen| seen.switch = Daemon::Absent, links.collect()),
        (|seen| seen.database_connected = false, all.clone()),
    ];
    let well = scrape(sound(), OvsCounters::default()).await;
    assert!(all.iter().all(|name| well.contains(&format!("\n{name}"))), "{well}");
    for (fault, unknown) in table {
        let mut seen = sound();
        kernel(&mut seen);
        fault(&mut seen);
        let text = scrape(seen, OvsCounters::default()).await;
        for name in unknown {
            assert!(!text.contains(&format!("\n{name}")), "{name} in\n{text}");
        }
        assert!(text.contains(kernels), "the kernel can tell: {text}");
        assert!(text.contains("ovs_interface_info{bridge=\"br-int\",interface=\"tap1\""), "{text}");
    }
}

#[tokio::test]
async fn whether_a_controller_that_hangs_is_connected_is_not_told_and_one_that_died_is_not() {
    let mut seen = sound();
    seen.controller.as_mut().unwrap().daemon = Daemon::Unresponsive;
    let text = scrape(seen.clone(), OvsCounters::default()).await;
    assert!(!text.contains("ovn_controller_southbound_connected"), "unknown is not zero: {text}");
    seen.controller.as_mut().unwrap().daemon = Daemon::Absent;
    let text = scrape(seen, OvsCounters::default()).await;
    assert!(text.contains("\novn_controller_southbound_connected 0\n"), "{text}");
}

#[tokio::test]
async fn members_of_which_the_kernel_tells_only_the_link_are_not_told_as_active() {
    let mut seen = sound();
    seen.bonds[0].kind = crate::ovs::BondKind::Kernel;
    for member in &mut seen.bonds[0].members {
        (member.enabled, member.lacp) = (None, None);
    }
    let text = scrape(seen, OvsCounters::default()).await;
    assert!(
        text.contains("ovs_bond_members{bond=\"bond0\"") && text.contains("ovs_bond_member_link_up{bond=\"bond0\"")
    );
    for unknown in ["ovs_bond_active_members", "ovs_bond_member_enabled", "ovs_bond_member_lacp_current"] {
        assert!(!text.lines().any(|line| line.starts_with(&format!("{unknown}{{"))), "{unknown}: {text}");
    }
}

#[tokio::test]
async fn what_a_host_can_make_us_say_is_bounded_and_what_is_left_out_is_counted() {
    let mut seen = sound();
    let port = seen.interfaces[0].clone();
    for number in 0..50 {
        let mut port = crate::ovs::Interface { name: format!("tapx{number}"), ..port.clone() };
        port.statistics = (0..100).map(|name| (format!("odd{name}"), 1)).collect();
        seen.interfaces.push(port);
    }
    let metrics = Metrics::new();
    let limits = Limits { interfaces: 10, parts: 1, statistics: 4, counters: 0 };
    let mut counters = counters();
    let queue = counters.pmds[0].queues[0].clone();
    counters.pmds[0].queues = (0..40).map(|number| ReceiveQueue { queue: number, ..queue.clone() }).collect();
    let exporter = Exporter::new(switch(seen, counters), &metrics).limits(limits);
    let text = exporter.scrape().await;
    check_format(&text);
    let series = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!((series("ovs_interface_info{"), series("ovs_pmd_queue_enabled{")), (10, 10));
    assert!(series("ovs_interface_statistics_total{") <= 40);
    assert_eq!((series("ovs_bridge_ports{"), series("ovs_coverage_total{")), (1, 0));
    assert!(metrics.encode().contains("cobalt_ovs_agent_exporter_dropped_total{what=\"interface\"}"));
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_does_not_answer_is_down_and_not_missing() {
    struct Silent;
    #[async_trait]
    impl OvsInspector for Silent {
        fn features(&self) -> OvsFeatures {
            OvsFeatures::default()
        }
        async fn snapshot(&self) -> crate::Result<OvsSnapshot> {
            std::future::pending().await
        }
        fn changes(&self) -> futures::stream::BoxStream<'static, crate::ovs::OvsChange> {
            Box::pin(futures::stream::pending())
        }
    }
    let text = Exporter::new(Arc::new(Silent), &Metrics::new()).scrape().await;
    assert!(text.ends_with("ovs_up 0\n"), "{text}");
}
