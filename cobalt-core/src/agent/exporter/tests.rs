#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use super::*;
use crate::backend::{
    BlockStats, DomainState, Features, MockHypervisorBackend, NetDirection, NetStats, VcpuState, VcpuStats,
};

fn busy(name: &str) -> DomainStats {
    let all = Some(1_500_000_000);
    let mut stats = DomainStats::new("6f2c".into(), name, DomainState::Running);
    stats.cpu.time_ns = all;
    stats.vcpus_maximum = Some(2);
    let memory = &mut stats.memory;
    for figure in [
        &mut memory.maximum_bytes,
        &mut memory.current_bytes,
        &mut memory.resident_bytes,
        &mut memory.available_bytes,
        &mut memory.unused_bytes,
        &mut memory.usable_bytes,
        &mut memory.swapped_in_bytes,
        &mut memory.swapped_out_bytes,
        &mut memory.major_faults,
        &mut memory.minor_faults,
    ] {
        *figure = Some(1 << 30);
    }
    let vcpu = VcpuStats { state: Some(VcpuState::Running), time_ns: all, wait_ns: all, delay_ns: all, halted: None };
    stats.vcpus = (0..2).map(|number| (number, vcpu)).collect();
    let block = BlockStats {
        source: Some("/var/lib/nova/\"disk\"".into()),
        reads: Some(1),
        read_bytes: Some(2),
        read_ns: all,
        writes: Some(3),
        written_bytes: Some(4),
        write_ns: all,
        flushes: Some(5),
        flush_ns: all,
        errors: Some(6),
        allocation_bytes: Some(7),
        capacity_bytes: Some(8),
        physical_bytes: Some(9),
    };
    stats.blocks = BTreeMap::from([("vda".to_owned(), block)]);
    let way = NetDirection { bytes: Some(1), packets: Some(2), errors: Some(3), drops: Some(4) };
    stats.nets = BTreeMap::from([("tap6f2c".to_owned(), NetStats { rx: way, tx: way })]);
    stats
}

fn backend(stats: Vec<DomainStats>) -> Arc<MockHypervisorBackend> {
    let mut backend = MockHypervisorBackend::new();
    backend.expect_features().returning(|| Features { stats: true, ..Features::default() });
    backend.expect_stats().times(1).returning(move || Ok(stats.clone()));
    Arc::new(backend)
}

/// Every rule of the format that our own writing could break.
pub(in crate::agent) fn check_format(text: &str) {
    let mut families = HashSet::new();
    let mut series = HashSet::new();
    let mut current: Option<(&str, &str)> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(families.insert(name), "{name} appears twice");
            assert!(!name.ends_with("_total"), "{name}");
            current = Some((name, kind));
        } else if !line.starts_with('#') {
            let (name, kind) = current.unwrap();
            let (key, value) = line.rsplit_once(' ').unwrap();
            assert!(series.insert(key), "{key} appears twice");
            let suffix = if kind == "counter" { "_total" } else { "" };
            assert_eq!(key.split('{').next().unwrap(), format!("{name}{suffix}"));
            value.parse::<f64>().unwrap();
        }
    }
    assert!(text.ends_with('\n'));
}

/// The names and labels are a contract with dashboards and alerts: a change here is a change for their owners.
#[tokio::test]
async fn the_metrics_of_a_domain_are_the_documented_ones() {
    let exporter = Exporter::new(backend(vec![busy("instance-1")]), &Metrics::new());
    let text = exporter.scrape().await;
    check_format(&text);
    insta::assert_snapshot!(text);
}

#[tokio::test]
async fn one_spelling_alone_leaves_the_other_out() {
    for (names, there, absent) in [
        (Names { documented: true, distributions: false }, "libvirt_domain_net_receive_bytes", "target_device=\"tap"),
        (Names { documented: false, distributions: true }, "libvirt_domain_info_virtual_cpus", "interface=\""),
    ] {
        let exporter = Exporter::new(backend(vec![busy("instance-1")]), &Metrics::new()).names(names);
        let text = exporter.scrape().await;
        check_format(&text);
        assert!(text.contains(there) && !text.contains(absent), "{text}");
    }
}

#[tokio::test]
async fn foreign_names_are_escaped_and_bounded() {
    let name = format!("a\"b\\c\n{}", "x".repeat(1000));
    let text = Exporter::new(backend(vec![busy(&name)]), &Metrics::new()).scrape().await;
    check_format(&text);
    assert!(text.contains("domain=\"a\\\"b\\\\c\\nxxx"));
    assert!(text.lines().all(|line| line.len() < 1000));
}

#[tokio::test]
async fn what_is_over_the_bounds_is_left_out_and_counted() {
    let metrics = Metrics::new();
    let stats = (0..5).map(|n| DomainStats { id: format!("{n}").into(), ..busy("instance") }).collect();
    let limits = Limits { domains: 3, vcpus: 1, devices: 0 };
    let text = Exporter::new(backend(stats), &metrics).limits(limits).scrape().await;
    check_format(&text);
    assert_eq!(text.matches("libvirt_domain_vcpu_time_seconds_total{").count(), 3);
    assert!(!text.contains("libvirt_domain_block") && !text.contains("libvirt_domain_net"));
    let counted = metrics.encode();
    for (what, count) in [("domain", 2), ("vcpu", 3), ("block", 3), ("interface", 3)] {
        let line = format!("cobalt_agent_exporter_dropped_total{{what=\"{what}\"}} {count}");
        assert!(counted.contains(&line), "{line} in {counted}");
    }
}

#[tokio::test]
async fn a_driver_without_statistics_tells_what_its_list_does() {
    let mut backend = MockHypervisorBackend::new();
    backend.expect_features().returning(Features::default);
    backend.expect_inventory().returning(|| {
        let domain = |id: &str, state| crate::backend::Domain {
            id: id.into(),
            name: format!("instance-{id}"),
            state,
            vcpus: 4,
            memory_bytes: 1 << 30,
            cells: Vec::new(),
            nova: None,
        };
        Ok(vec![domain("1", DomainState::Running), domain("2", DomainState::ShutOff)])
    });
    let text = Exporter::new(Arc::new(backend), &Metrics::new()).scrape().await;
    check_format(&text);
    assert!(text.contains("libvirt_up 1\n"));
    assert!(text.contains("libvirt_domain_info_vcpus{domain=\"instance-1\",uuid=\"1\"} 4\n"), "{text}");
    assert!(!text.contains("instance-2") && !text.contains("cpu_time"));
}

#[tokio::test]
async fn a_hypervisor_that_does_not_answer_is_down_and_says_nothing_else() {
    let mut backend = MockHypervisorBackend::new();
    backend.expect_features().returning(|| Features { stats: true, ..Features::default() });
    backend
        .expect_stats()
        .returning(|| Err(Error::unavailable("get domain statistics", std::io::Error::other("connection refused"))));
    let text = Exporter::new(Arc::new(backend), &Metrics::new()).scrape().await;
    assert_eq!(text, "# HELP libvirt_up Whether the hypervisor answered.\n# TYPE libvirt_up gauge\nlibvirt_up 0\n");
}
