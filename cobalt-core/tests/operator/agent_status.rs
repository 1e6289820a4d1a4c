//! What the agent publishes from what it knows.

use cobalt_core::{
    agent::{
        Report, Section,
        status::{TRANSPORT_SECURE, decide, section_conditions},
    },
    api::{Condition, ConditionStatus, HypervisorSpec, condition_types as types, conditions, reasons},
    backend::{CellShare, Domain, DomainCapabilities, DomainState, HostCapabilities, HostCell, Versions},
    host::{ActiveState, OsFacts, Unit},
};
use std::collections::BTreeMap;

const GIB: u64 = 1 << 30;

fn domain(id: &str, state: DomainState, vcpus: u32, memory: u64, cells: &[(u32, u64, u64)]) -> Domain {
    Domain {
        id: id.into(),
        name: format!("instance-{id}"),
        state,
        vcpus,
        memory_bytes: memory,
        cells: cells
            .iter()
            .map(|&(cell, memory_bytes, cpu_millis)| CellShare { cell, memory_bytes, cpu_millis })
            .collect(),
        nova: None,
    }
}

fn report() -> Report {
    Report {
        driver: "qemu".into(),
        versions: Section::Known(Versions { library: Some("9.0.0".into()), hypervisor: None }),
        capabilities: Section::Known(HostCapabilities {
            cpu_arch: Some("x86_64".into()),
            cells: vec![
                HostCell { id: 1, memory_bytes: 32 * GIB, cpus: 16 },
                HostCell { id: 0, memory_bytes: 32 * GIB, cpus: 16 },
            ],
        }),
        domain_capabilities: Section::Known(DomainCapabilities {
            arch: Some("x86_64".into()),
            hypervisor_type: Some("kvm".into()),
            devices: vec!["disk".into()],
            ..DomainCapabilities::default()
        }),
        domains: Section::Known(vec![
            domain("a", DomainState::Running, 4, 8 * GIB, &[(1, 8 * GIB, 4000)]),
            domain("b", DomainState::ShutOff, 3, 4 * GIB, &[(0, 2 * GIB, 1500), (1, 2 * GIB, 1500)]),
            domain("c", DomainState::Paused, 2, GIB, &[]),
        ]),
        facts: Section::Known(OsFacts { kernel_release: Some("6.12.1".into()), ..OsFacts::default() }),
        libvirt_units: ["libvirtd.service", "virtqemud.service", "virtchd.service"].map(str::to_owned).into(),
        ..Report::default()
    }
}

/// The units of a host: name, active state, load state.
/// Name, active state and load state of a unit.
type Seen<'a> = (&'a str, &'a str, &'a str);

fn units(units: &[Seen<'_>]) -> Section<Vec<Unit>> {
    let unit = |&(name, active, load): &Seen<'_>| Unit {
        name: name.into(),
        active: ActiveState::parse(active),
        load_state: load.into(),
    };
    Section::Known(units.iter().map(unit).collect())
}

/// The conditions of units, by name and reason.
fn shown(report: &Report) -> Vec<(String, String)> {
    let wanted = decide(report, &HypervisorSpec::default(), &[]);
    let units = wanted.conditions.into_iter().filter(|condition| condition.type_.ends_with(".service"));
    units.map(|condition| (condition.type_, condition.reason)).collect()
}

fn connection(report: &Report) -> Condition {
    let wanted = decide(report, &HypervisorSpec::default(), &[]);
    conditions::find(&wanted.conditions, types::LIBVIRT_CONNECTION).unwrap().clone()
}

fn json(report: &Report, spec: &HypervisorSpec) -> serde_json::Value {
    serde_json::to_value(decide(report, spec, &[]).status).unwrap()
}

#[test]
fn a_full_report_becomes_a_full_status() {
    let status = json(&report(), &HypervisorSpec::default());
    assert_eq!(status["libVirtVersion"], "9.0.0");
    assert_eq!(status["hypervisorVersion"], "N/A", "asked, and not told");
    assert_eq!(status["numInstances"], 3);
    assert_eq!(status["instances"][0], serde_json::json!({"id": "a", "name": "instance-a", "active": true}));
    assert_eq!(status["instances"][1]["active"], false);
    assert_eq!(status["instances"][2]["active"], true, "a paused VM occupies the host");
    assert_eq!(status["capabilities"], serde_json::json!({"cpuArch": "x86_64", "memory": "64Gi", "cpus": "32"}));
    assert_eq!(status["domainCapabilities"]["hypervisorType"], "kvm");
    assert_eq!(status["operatingSystem"]["kernelRelease"], "6.12.1");
}

#[test]
fn shares_are_booked_on_the_hosts_cells_in_order_and_unpinned_vms_in_the_totals() {
    let status = json(&report(), &HypervisorSpec::default());
    assert_eq!(status["allocation"], serde_json::json!({"cpu": "9", "memory": "13Gi"}));
    let cells = status["cells"].as_array().unwrap();
    assert_eq!(cells[0]["cellID"], 0);
    assert_eq!(cells[0]["allocation"], serde_json::json!({"cpu": "1500m", "memory": "2Gi"}));
    assert_eq!(cells[1]["cellID"], 1);
    assert_eq!(cells[1]["allocation"], serde_json::json!({"cpu": "5500m", "memory": "10Gi"}));
}

#[test]
fn effective_capacity_is_capacity_times_overcommit_cut_to_whole_units() {
    let spec = HypervisorSpec {
        overcommit: Some(BTreeMap::from([("cpu".into(), 2.3), ("memory".into(), 1.0)])),
        ..HypervisorSpec::default()
    };
    let status = json(&report(), &spec);
    assert_eq!(status["effectiveCapacity"], serde_json::json!({"cpu": "73", "memory": "64Gi"}));
    assert_eq!(status["cells"][0]["effectiveCapacity"]["cpu"], "36");
    assert_eq!(status["capacity"]["cpu"], "32");
}

#[test]
fn a_driver_without_domain_capabilities_is_known_by_its_name() {
    let report = Report { driver: "ch".into(), domain_capabilities: Section::NotOffered, ..report() };
    let wanted = decide(&report, &HypervisorSpec::default(), &[]);
    assert_eq!(wanted.status.domain_capabilities.unwrap().hypervisor_type.as_deref(), Some("ch"));
    assert!(conditions::find(&wanted.conditions, section_conditions::DOMAIN_CAPABILITIES).is_none(), "not a fault");
}

#[test]
fn a_section_that_failed_is_left_out_and_named_and_the_others_are_published() {
    let report = Report { domains: Section::Failed("list domains: no answer within 30 s".into()), ..report() };
    let wanted = decide(&report, &HypervisorSpec::default(), &[]);
    assert_eq!((wanted.status.instances, wanted.status.num_instances, wanted.status.cells), (None, None, None));
    assert_eq!(wanted.status.lib_virt_version.as_deref(), Some("9.0.0"));
    let stale = conditions::find(&wanted.conditions, section_conditions::INSTANCES).unwrap();
    assert!(stale.is_false() && stale.message.contains("no answer"));
}

#[test]
fn connected_without_an_inventory_is_a_connection_that_does_not_do() {
    let report = Report { domains: Section::Failed("list domains: no answer within 30 s".into()), ..report() };
    let condition = connection(&report);
    assert_eq!((condition.is_false(), condition.reason.as_str()), (true, reasons::PROCESS_FAILED));
    assert!(condition.message.contains("no answer"));
}

#[test]
fn a_section_that_recovers_turns_its_condition_and_one_that_never_failed_has_none() {
    let stale = Condition::new(section_conditions::INSTANCES, ConditionStatus::False, "Stale", "x");
    let wanted = decide(&report(), &HypervisorSpec::default(), &[stale]);
    assert!(conditions::is_true(&wanted.conditions, section_conditions::INSTANCES));
    assert!(conditions::find(&wanted.conditions, section_conditions::OPERATING_SYSTEM).is_none());
}

#[test]
fn every_unit_state_has_a_status_and_a_reason_the_api_accepts() {
    for (word, status, reason) in [
        ("active", ConditionStatus::True, reasons::RUNNING),
        ("reloading", ConditionStatus::True, reasons::RUNNING),
        ("inactive", ConditionStatus::False, reasons::STOPPED),
        ("failed", ConditionStatus::False, reasons::FAILED),
        ("activating", ConditionStatus::False, "Activating"),
        ("deactivating", ConditionStatus::False, "Deactivating"),
        ("refreshing", ConditionStatus::Unknown, "UnknownState"),
    ] {
        let unit =
            Unit { name: "libvirtd.service".into(), active: ActiveState::parse(word), load_state: "loaded".into() };
        let report = Report { units: Section::Known(vec![unit]), ..report() };
        let wanted = decide(&report, &HypervisorSpec::default(), &[]);
        let condition = conditions::find(&wanted.conditions, types::LIBVIRTD_SERVICE).unwrap();
        assert_eq!((condition.status, condition.reason.as_str()), (status, reason), "{word}");
        assert_eq!(condition.message, format!("libvirtd.service: {word}, loaded"));
    }
}

#[test]
fn a_lost_connection_is_blamed_on_a_unit_only_if_one_is_installed_and_all_are_down() {
    let (not_running, failed) = (reasons::LIBVIRT_SERVICE_NOT_RUNNING, reasons::CONNECT_FAILED);
    let table: [(&[Seen<'_>], &str); 9] = [
        (&[("libvirtd.service", "inactive", "loaded")], not_running),
        (&[("libvirtd.service", "failed", "loaded")], not_running),
        (&[("libvirtd.service", "active", "loaded")], failed),
        (&[("libvirtd.service", "activating", "loaded")], failed),
        (&[("libvirtd.service", "inactive", "not-found")], failed),
        (&[("libvirtd.service", "inactive", "masked")], failed),
        (&[("libvirtd.service", "inactive", "not-found"), ("virtqemud.service", "failed", "loaded")], not_running),
        (&[("libvirtd.service", "inactive", "loaded"), ("virtqemud.service", "active", "loaded")], failed),
        (&[("openvswitch-switch.service", "failed", "loaded")], failed),
    ];
    for (seen, reason) in table {
        let report = Report { units: units(seen), disconnected: Some("connection refused".into()), ..report() };
        let condition = connection(&report);
        assert_eq!((condition.is_false(), condition.reason.as_str()), (true, reason), "{seen:?}");
        assert!(condition.message.contains("connection refused"));
    }
}

#[test]
fn the_unit_that_is_blamed_is_named() {
    let seen = [("libvirtd.service", "inactive", "not-found"), ("virtchd.service", "inactive", "loaded")];
    let report = Report { units: units(&seen), disconnected: Some("no such file".into()), ..report() };
    assert_eq!(connection(&report).message, "virtchd service is not running: no such file");
}

#[test]
fn of_the_units_of_libvirt_those_the_host_does_not_use_are_not_reported() {
    type Row<'a> = (&'a [Seen<'a>], &'a [(&'a str, &'a str)]);
    let ovs = ("openvswitch-switch.service", "inactive", "not-found");
    let table: [Row<'_>; 7] = [
        // One daemon for everything.
        (
            &[("libvirtd.service", "active", "loaded"), ("virtqemud.service", "inactive", "not-found")],
            &[("libvirtd.service", "Running")],
        ),
        // One per driver, the old one masked or at rest; the other driver waits for its socket.
        (
            &[("libvirtd.service", "inactive", "masked"), ("virtqemud.service", "active", "loaded")],
            &[("virtqemud.service", "Running")],
        ),
        (
            &[
                ("libvirtd.service", "inactive", "loaded"),
                ("virtqemud.service", "active", "loaded"),
                ("virtchd.service", "inactive", "loaded"),
            ],
            &[("virtqemud.service", "Running")],
        ),
        // One that ended badly is worth a word whatever the others do.
        (
            &[("virtqemud.service", "active", "loaded"), ("virtchd.service", "failed", "loaded")],
            &[("virtqemud.service", "Running"), ("virtchd.service", "Failed")],
        ),
        // None of them runs.
        (
            &[("libvirtd.service", "inactive", "not-found"), ("virtqemud.service", "inactive", "loaded")],
            &[("virtqemud.service", "Stopped")],
        ),
        // Libvirt in a container.
        (&[("libvirtd.service", "inactive", "not-found"), ("virtqemud.service", "inactive", "not-found")], &[]),
        // Any other unit is reported as it is.
        (&[ovs], &[("openvswitch-switch.service", "Stopped")]),
    ];
    for (seen, expected) in table {
        let report = Report { units: units(seen), ..report() };
        let expected: Vec<_> = expected.iter().map(|(name, reason)| ((*name).into(), (*reason).into())).collect();
        assert_eq!(shown(&report), expected, "{seen:?}");
        assert_eq!(connection(&report).reason, reasons::CONNECTED, "the connection works: {seen:?}");
    }
}

#[test]
fn a_host_without_systemd_has_no_units_and_is_healthy() {
    let report = Report { units: Section::NotOffered, ..report() };
    let wanted = decide(&report, &HypervisorSpec::default(), &[]);
    let types: Vec<_> = wanted.conditions.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(types, [types::LIBVIRT_CONNECTION]);
    assert!(wanted.conditions[0].is_true());
}

#[test]
fn a_connection_others_can_listen_to_is_said_and_taken_back() {
    let open = Report { insecure: Some("qemu+tcp to 10.0.0.9".into()), ..report() };
    let wanted = decide(&open, &HypervisorSpec::default(), &[]);
    let said = conditions::find(&wanted.conditions, TRANSPORT_SECURE).unwrap().clone();
    assert_eq!(
        (said.is_false(), said.reason.as_str(), said.message.as_str()),
        (true, "PlainTcp", "qemu+tcp to 10.0.0.9")
    );
    let wanted = decide(&report(), &HypervisorSpec::default(), &[said]);
    assert!(conditions::is_true(&wanted.conditions, TRANSPORT_SECURE));
    let wanted = decide(&report(), &HypervisorSpec::default(), &[]);
    assert!(conditions::find(&wanted.conditions, TRANSPORT_SECURE).is_none(), "nothing to say, nothing said");
}
