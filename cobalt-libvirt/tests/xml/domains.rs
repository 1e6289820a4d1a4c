//! Recorded domains. The expected values are read off the documents by hand.

use cobalt_core::backend::{DomainState, NovaMetadata};
use cobalt_libvirt::xml::{Disk, DiskSource, DomainXml, Interface, MemoryMode, NovaPort, Vcpus, Watchdog};

use crate::recorded;

#[allow(clippy::unnecessary_wraps)] // Every expected field is an option.
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn watchdog(alias: Option<&str>) -> Vec<Watchdog> {
    vec![Watchdog { model: text("i6300esb"), action: text("none"), alias: alias.map(str::to_owned) }]
}

#[test]
fn a_running_domain_without_pins() {
    let domain = DomainXml::parse(recorded!("domain-unpinned-running-9.0-recorded")).unwrap();
    let disk = Disk {
        kind: text("file"),
        device: text("disk"),
        target: text("vda"),
        bus: text("virtio"),
        alias: text("virtio-disk0"),
        source: Some(DiskSource { path: text("/srv/wire/vm1.qcow2"), ..DiskSource::default() }),
    };
    let interface = Interface {
        kind: text("ethernet"),
        target: text("vnet0"),
        mac: text("52:54:00:00:00:01"),
        model: text("virtio"),
        alias: text("net0"),
        ..Interface::default()
    };
    let expected = DomainXml {
        kind: text("qemu"),
        id: Some(1),
        name: text("vm1"),
        uuid: text("11111111-aaaa-4000-8000-000000000001"),
        arch: text("x86_64"),
        machine: text("pc-q35-7.2"),
        memory_bytes: Some(256 << 20),
        current_memory_bytes: Some(256 << 20),
        vcpus: Some(Vcpus { maximum: 1, current: 1, cpuset: None }),
        disks: vec![disk],
        interfaces: vec![interface],
        watchdogs: watchdog(Some("watchdog0")),
        ..DomainXml::default()
    };
    assert_eq!(domain, expected);
}

#[test]
fn the_definition_of_a_running_domain_has_no_id_and_no_aliases() {
    let domain = DomainXml::parse(recorded!("domain-unpinned-inactive-9.0-recorded")).unwrap();
    assert_eq!((domain.id, domain.kind.as_deref()), (None, Some("qemu")));
    assert_eq!(domain.uuid.as_deref(), Some("11111111-aaaa-4000-8000-000000000001"));
    assert_eq!(domain.disks.len(), 1);
    assert_eq!(domain.disks[0].alias, None);
    assert_eq!(domain.disks[0].target.as_deref(), Some("vda"));
    assert_eq!(domain.interfaces.len(), 1);
    assert_eq!((domain.interfaces[0].target.as_deref(), domain.interfaces[0].alias.as_deref()), (None, None));
    assert_eq!(domain.interfaces[0].mac.as_deref(), Some("52:54:00:00:00:01"));
    assert_eq!(domain.watchdogs, watchdog(None));
}

#[test]
fn the_ch_driver_writes_little() {
    let running = DomainXml::parse(recorded!("domain-ch-running-11.3-recorded")).unwrap();
    let expected = DomainXml {
        kind: text("kvm"),
        id: Some(15101),
        name: text("vm1"),
        uuid: text("44444444-aaaa-4000-8000-000000000001"),
        arch: text("x86_64"),
        memory_bytes: Some(256 << 20),
        current_memory_bytes: Some(256 << 20),
        vcpus: Some(Vcpus { maximum: 1, current: 1, cpuset: None }),
        ..DomainXml::default()
    };
    assert_eq!(running, expected);
    let idle = DomainXml::parse(recorded!("domain-ch-inactive-11.3-recorded")).unwrap();
    let (name, uuid) = (text("idle"), text("44444444-aaaa-4000-8000-000000000002"));
    assert_eq!(idle, DomainXml { id: None, name, uuid, ..expected });
}

#[test]
fn the_test_driver_writes_no_devices() {
    let domain = DomainXml::parse(recorded!("domain-test-running-9.0-recorded")).unwrap();
    let expected = DomainXml {
        kind: text("test"),
        id: Some(2),
        name: text("vm1"),
        uuid: text("44444444-aaaa-4000-8000-000000000001"),
        arch: text("i686"),
        memory_bytes: Some(256 << 20),
        current_memory_bytes: Some(256 << 20),
        vcpus: Some(Vcpus { maximum: 1, current: 1, cpuset: None }),
        ..DomainXml::default()
    };
    assert_eq!(domain, expected);
}

#[test]
fn pins_and_memory_rules_are_read() {
    let running = DomainXml::parse(recorded!("domain-pinned-numatune-running-9.0-recorded")).unwrap();
    let stopped = DomainXml::parse(recorded!("domain-pinned-numatune-inactive-9.0-recorded")).unwrap();
    assert_eq!((running.id, stopped.id), (Some(6), None));
    assert_eq!(running.watchdogs, watchdog(Some("watchdog0")));
    assert_eq!(stopped.watchdogs, watchdog(None));
    for domain in [running, stopped] {
        assert_eq!(domain.name.as_deref(), Some("pinned1"));
        assert_eq!(domain.uuid.as_deref(), Some("55555555-aaaa-4000-8000-000000000001"));
        assert_eq!(domain.memory_bytes, Some(128 << 20));
        let vcpus = Vcpus { maximum: 2, current: 2, cpuset: Some("0-1".parse().unwrap()) };
        assert_eq!(domain.vcpus, Some(vcpus));
        let pins: Vec<_> = domain.pins.iter().map(|(vcpu, cpus)| (*vcpu, cpus.to_string())).collect();
        assert_eq!(pins, [(0, "0".to_owned()), (1, "1".to_owned())]);
        let memory = domain.numatune.memory.unwrap();
        assert_eq!((memory.mode, memory.nodeset.to_string()), (MemoryMode::Strict, "0".to_owned()));
        assert_eq!(domain.numatune.cells.len(), 1);
        assert_eq!(domain.numatune.cells[&0].mode, MemoryMode::Strict);
        assert_eq!(domain.numatune.cells[&0].nodeset.to_string(), "0");
        assert_eq!(domain.guest_cells.len(), 1);
        assert_eq!(domain.guest_cells[0].id, 0);
        assert_eq!(domain.guest_cells[0].vcpus.to_string(), "0-1");
        assert_eq!(domain.guest_cells[0].memory_bytes, 128 << 20);
    }
}

#[test]
fn pins_to_cpus_that_are_not_there_are_read() {
    let domain = DomainXml::parse(recorded!("domain-pinned-kvm-nodeset-inactive-9.0-recorded")).unwrap();
    assert_eq!((domain.kind.as_deref(), domain.name.as_deref()), (Some("kvm"), Some("pinned2")));
    assert_eq!(domain.uuid.as_deref(), Some("55555555-aaaa-4000-8000-000000000002"));
    assert_eq!(domain.vcpus, Some(Vcpus { maximum: 4, current: 4, cpuset: None }));
    let pins: Vec<_> = domain.pins.values().map(ToString::to_string).collect();
    assert_eq!(pins, ["8", "24", "9", "25"]);
    assert_eq!(domain.numatune.memory.unwrap().nodeset.to_string(), "2");
    assert_eq!(domain.numatune.cells[&0].nodeset.to_string(), "2");
    assert_eq!(domain.guest_cells[0].vcpus.to_string(), "0-3");
}

#[test]
fn huge_pages_do_not_hide_the_memory_rules() {
    let domain = DomainXml::parse(recorded!("domain-hugepages-inactive-9.0-recorded")).unwrap();
    assert_eq!(domain.name.as_deref(), Some("huge1"));
    assert_eq!(domain.uuid.as_deref(), Some("55555555-aaaa-4000-8000-000000000003"));
    assert_eq!(domain.memory_bytes, Some(128 << 20));
    let memory = domain.numatune.memory.unwrap();
    assert_eq!((memory.mode, memory.nodeset.to_string()), (MemoryMode::Preferred, "0".to_owned()));
    assert!(domain.numatune.cells.is_empty());
    assert!(domain.pins.is_empty());
}

#[test]
fn two_guest_cells_have_a_rule_each() {
    let domain = DomainXml::parse(recorded!("domain-hugepages-2cells-inactive-9.0-recorded")).unwrap();
    assert_eq!(domain.name.as_deref(), Some("huge2"));
    assert_eq!(domain.memory_bytes, Some(8 << 30));
    assert_eq!(domain.numatune.memory.as_ref().unwrap().nodeset.to_string(), "0-1");
    let rules: Vec<_> =
        domain.numatune.cells.iter().map(|(cell, rule)| (*cell, rule.mode, rule.nodeset.to_string())).collect();
    let expected = [(0, MemoryMode::Strict, "0".to_owned()), (1, MemoryMode::Preferred, "1".to_owned())];
    assert_eq!(rules, expected);
    let cells: Vec<_> =
        domain.guest_cells.iter().map(|cell| (cell.id, cell.vcpus.to_string(), cell.memory_bytes)).collect();
    assert_eq!(cells, [(0, "0-1".to_owned(), 4 << 30), (1, "2-3".to_owned(), 4 << 30)]);
}

#[test]
fn novas_notes_are_read() {
    let domain = DomainXml::parse(recorded!("domain-nova-metadata-9.0-handmade")).unwrap();
    // The sysinfo has entries called name and uuid, and Nova has a name and a memory of its own.
    assert_eq!(domain.name.as_deref(), Some("instance-00000001"));
    assert_eq!(domain.uuid.as_deref(), Some("55555555-aaaa-4000-8000-000000000005"));
    assert_eq!(domain.memory_bytes, Some(128 << 20));
    assert_eq!(domain.interfaces[0].target.as_deref(), Some("tap88888888-aa"));
    assert_eq!(domain.interfaces[0].mac.as_deref(), Some("fa:16:3e:00:00:01"));

    let metadata = NovaMetadata {
        name: text("web-1"),
        flavor: text("m1.small"),
        project_id: text("fedcba9876543210fedcba9876543210"),
        user_id: text("0123456789abcdef0123456789abcdef"),
    };
    let nova = domain.nova.clone().unwrap();
    assert_eq!(nova.metadata, metadata);
    assert_eq!((nova.version.as_deref(), nova.created.as_deref()), (Some("29.2.0"), Some("2026-01-15 10:20:30")));
    assert_eq!((nova.flavor_vcpus, nova.flavor_memory_bytes), (Some(2), Some(128 << 20)));
    assert_eq!((nova.user_name.as_deref(), nova.project_name.as_deref()), (Some("alice"), Some("demo")));
    let port = NovaPort { id: text("88888888-aaaa-4000-8000-000000000001"), addresses: vec!["192.0.2.10".to_owned()] };
    assert_eq!(nova.ports, [port]);

    let seam = domain.to_domain("55555555-aaaa-4000-8000-000000000005".into(), "x", DomainState::ShutOff, &[]);
    assert_eq!((seam.vcpus, seam.memory_bytes, seam.name.as_str()), (2, 128 << 20, "x"));
    assert_eq!(seam.nova, Some(metadata));
    assert!(seam.cells.is_empty());
}

#[test]
fn sources_of_every_kind_are_read() {
    let domain = DomainXml::parse(
        "<domain><devices>
           <disk type='block' device='disk'><source dev='/dev/sdb'/><target dev='vda'/></disk>
           <disk type='network' device='disk'>
             <source protocol='rbd' name='vms/1_disk'><host name='198.51.100.1' port='6789'/></source>
             <target dev='vdb' bus='virtio'/>
           </disk>
           <disk type='volume' device='disk'><source pool='default' volume='one.img'/><target dev='vdc'/></disk>
           <disk type='file' device='disk'>
             <source file='/a&amp;b'/>
             <backingStore type='file'><source file='/base'/><target dev='no'/></backingStore>
             <mirror type='file'><source file='/mirror'/></mirror>
             <target dev='vdd'/>
           </disk>
           <disk type='file' device='cdrom'><source startupPolicy='optional'/><target dev='sda'/></disk>
           <disk type='file' device='cdrom'><target dev='sdb'/></disk>
           <interface type='bridge'>
             <source bridge='br-int'/>
             <virtualport type='openvswitch'><parameters interfaceid='88888888-aaaa-4000-8000-000000000001'/></virtualport>
             <target dev='tap1'/>
           </interface>
           <watchdog model='itco' action='reset'/><watchdog model='i6300esb' action='poweroff'/>
         </devices></domain>",
    )
    .unwrap();
    let sources: Vec<_> = domain
        .disks
        .iter()
        .map(|disk| {
            let source = disk.source.as_ref();
            let field = |pick: fn(&DiskSource) -> Option<&String>| source.and_then(pick).map(String::as_str);
            let target = disk.target.as_deref().unwrap();
            let (path, pool) = (field(|source| source.path.as_ref()), field(|source| source.pool.as_ref()));
            (target, path, pool, field(|source| source.protocol.as_ref()))
        })
        .collect();
    let expected = [
        ("vda", Some("/dev/sdb"), None, None),
        ("vdb", Some("vms/1_disk"), None, Some("rbd")),
        ("vdc", Some("one.img"), Some("default"), None),
        ("vdd", Some("/a&b"), None, None),
        ("sda", None, None, None),
        ("sdb", None, None, None),
    ];
    assert_eq!(sources, expected);
    assert_eq!(domain.disks[4].source, None);
    assert_eq!(domain.interfaces[0].bridge.as_deref(), Some("br-int"));
    assert_eq!(domain.interfaces[0].port_id.as_deref(), Some("88888888-aaaa-4000-8000-000000000001"));
    let actions: Vec<_> = domain.watchdogs.iter().map(|watchdog| watchdog.action.as_deref().unwrap()).collect();
    assert_eq!(actions, ["reset", "poweroff"]);
}
