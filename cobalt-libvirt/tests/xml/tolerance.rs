//! What is missing, unknown or nonsense, and what is refused.

use cobalt_libvirt::xml::{DomainCapabilitiesXml, DomainXml, HostXml, Limits, Vcpus, XmlError};

use crate::recorded;

/// The document without its element `name`.
fn without(text: &str, name: &str) -> String {
    let close = format!("</{name}>");
    let start = [format!("<{name}>"), format!("<{name} ")].iter().find_map(|open| text.find(open)).unwrap();
    let end = start + text[start..].find(&close).unwrap() + close.len();
    format!("{}{}", &text[..start], &text[end..])
}

#[test]
fn no_part_of_a_domain_is_needed() {
    let whole = recorded!("domain-pinned-numatune-inactive-9.0-recorded");
    let host = HostXml::parse(recorded!("capabilities-qemu-9.0-recorded")).unwrap();
    let take = |name: &str| {
        let domain = DomainXml::parse(&without(whole, name)).unwrap();
        let shares = domain.shares(&host.cells);
        assert!(shares.unplaced.is_empty(), "{name}");
        let cell = shares.cells.first().map(|share| (share.memory_bytes, share.cpu_millis));
        (domain.vcpus_total(), domain.memory_total_bytes(), cell)
    };
    let memory = 128 << 20;
    // The common set binds what the pins do not; the guest's cell says its memory too.
    assert_eq!(take("cputune"), (2, memory, Some((memory, 2000))));
    assert_eq!(take("numatune"), (2, memory, Some((0, 2000))));
    assert_eq!(take("cpu"), (2, memory, Some((memory, 2000))));
    assert_eq!(take("memory"), (2, memory, Some((memory, 2000))));
    assert_eq!(take("vcpu"), (2, memory, Some((memory, 2000))));
    for other in ["name", "uuid", "currentMemory", "os", "features", "devices"] {
        assert_eq!(take(other), (2, memory, Some((memory, 2000))), "{other}");
    }
}

#[test]
fn an_empty_domain_has_libvirts_defaults() {
    for text in ["<domain/>", "<domain></domain>", "<?xml version='1.0'?><!-- x --><domain>\n</domain>\n"] {
        let domain = DomainXml::parse(text).unwrap();
        assert_eq!(domain, DomainXml::default());
        assert_eq!((domain.vcpus_total(), domain.memory_total_bytes()), (1, 0));
    }
}

#[test]
fn nonsense_counts_as_missing() {
    let domain = DomainXml::parse(
        "<domain id='-1' type='kvm'>
           <memory unit='acres'>5</memory><currentMemory>much</currentMemory><vcpu>some</vcpu>
           <cputune><vcpupin vcpu='0' cpuset='x'/><vcpupin cpuset='1'/><vcpupin vcpu='1'/></cputune>
           <numatune><memory nodeset='a'/><memnode cellid='0'/><memnode nodeset='1'/></numatune>
           <cpu><numa><cell cpus='!' memory='-1'/><other/></numa></cpu>
         </domain>",
    )
    .unwrap();
    assert_eq!((domain.id, domain.memory_bytes, domain.current_memory_bytes), (None, None, None));
    assert_eq!(domain.vcpus, None);
    assert!(domain.pins.is_empty());
    assert_eq!((domain.numatune.memory, domain.numatune.cells.len()), (None, 0));
    assert_eq!(domain.guest_cells.len(), 1);
}

#[test]
fn parts_from_the_future_are_passed_by() {
    let domain = DomainXml::parse(
        "<domain><quantum><name>no</name><memory>1</memory></quantum><name x='1'>a<b>c</b>d</name>
         <devices><teleporter><disk/></teleporter><disk><hologram><target dev='no'/></hologram></disk></devices>
         <vcpu current='9' future='yes'>4</vcpu><numatune><memory mode='psychic' nodeset='1'/></numatune></domain>",
    )
    .unwrap();
    assert_eq!(domain.name.as_deref(), Some("ad"));
    assert_eq!(domain.memory_bytes, None);
    assert_eq!(domain.disks.len(), 1);
    assert_eq!(domain.disks[0].target, None);
    assert_eq!(domain.vcpus, Some(Vcpus { maximum: 4, current: 4, cpuset: None }));
    assert_eq!(domain.numatune.memory.unwrap().nodeset.to_string(), "1");
}

#[test]
fn plugged_in_vcpus_may_be_fewer_than_promised() {
    let domain = DomainXml::parse("<domain><vcpu current='2'>4</vcpu></domain>").unwrap();
    assert_eq!(domain.vcpus, Some(Vcpus { maximum: 4, current: 2, cpuset: None }));
    assert_eq!(domain.vcpus_total(), 4);
}

#[test]
fn only_novas_namespace_is_nova() {
    let nova = |text: &str| DomainXml::parse(text).unwrap().nova.and_then(|nova| nova.metadata.name);
    let uri = "http://openstack.org/xmlns/libvirt/nova/1.0";
    let inside = "<name>a</name></instance></metadata></domain>";
    let with_default = format!("<domain><metadata><instance xmlns='{uri}'>{inside}");
    assert_eq!(nova(&with_default).as_deref(), Some("a"));
    let renamed =
        format!("<domain><metadata xmlns:n='{uri}'><n:instance><n:name>b</n:name></n:instance></metadata></domain>");
    assert_eq!(nova(&renamed).as_deref(), Some("b"));
    assert_eq!(nova(&format!("<domain><metadata><instance xmlns='http://example.com/'>{inside}")), None);
    assert_eq!(nova(&format!("<domain><metadata><instance>{inside}")), None);
    let undeclared = "<domain><metadata><nova:instance><nova:name>c</nova:name></nova:instance></metadata></domain>";
    assert_eq!(nova(undeclared), None);
}

#[test]
fn a_host_without_topology_is_one_cell_of_what_is_known() {
    let host = HostXml::parse("<capabilities><host><cpu><arch>riscv64</arch></cpu></host></capabilities>").unwrap();
    assert!(host.cells.is_empty());
    let host = host.or_one_cell(8 << 30, 4);
    assert_eq!(host.cells.len(), 1);
    assert_eq!((host.cells[0].id, host.cells[0].memory_bytes, host.cells[0].cpus), (0, 8 << 30, 4));
    assert_eq!(host.cells[0].cpu_ids.to_string(), "0-3");

    let nothing = HostXml::parse("<capabilities/>").unwrap().or_one_cell(0, 0);
    assert!(nothing.cells[0].cpu_ids.is_empty());
}

#[test]
fn a_topology_that_is_told_is_kept() {
    let told = HostXml::parse(recorded!("capabilities-test-9.0-recorded")).unwrap();
    assert_eq!(told.clone().or_one_cell(1, 1), told);
}

#[test]
fn cells_are_ordered_counted_and_unique() {
    let host = HostXml::parse(
        "<capabilities><host><topology><cells num='5'>
           <cell id='2'><memory unit='GiB'>3</memory><cpus><cpu id='5'/><cpu id='4'/></cpus></cell>
           <cell id='0'><memory>1024</memory><cpus num='2'/></cell>
           <cell id='2'><memory unit='TiB'>1</memory></cell>
           <cell id='1'><cpus num='0'></cpus></cell>
           <cell><memory>7</memory></cell>
         </cells></topology></host></capabilities>",
    )
    .unwrap();
    let cells: Vec<_> = host.cells.iter().map(|cell| (cell.id, cell.memory_bytes, cell.cpus)).collect();
    assert_eq!(cells, [(0, 1 << 20, 2), (1, 0, 0), (2, 3 << 30, 2)]);
    assert_eq!(host.cells[2].cpu_ids.to_string(), "4-5");
}

#[test]
fn domain_capabilities_may_be_empty() {
    let found = DomainCapabilitiesXml::parse("<domainCapabilities/>").unwrap();
    assert_eq!(found, DomainCapabilitiesXml::default());
    let found = DomainCapabilitiesXml::parse(
        "<domainCapabilities><domain>ch</domain><cpu><mode supported='yes'/><mode name='b' supported='yes'/></cpu>
         <devices><disk supported='yes'><enum><value/><value>x</value><value>x</value></enum></disk><net/></devices>
         </domainCapabilities>",
    )
    .unwrap();
    assert_eq!(found.capabilities.hypervisor_type.as_deref(), Some("ch"));
    assert_eq!(found.capabilities.cpu_modes, ["mode/b"]);
    assert_eq!(found.capabilities.devices, ["disk", "disk/x"]);
}

#[test]
fn references_of_xml_itself_are_resolved() {
    let domain = DomainXml::parse(
        "<domain type='a&#x26;b'><name>&lt;R&amp;D&#33;&gt; <![CDATA[<&>]]></name><os><type arch='&nope;'/></os></domain>",
    )
    .unwrap();
    assert_eq!(domain.kind.as_deref(), Some("a&b"));
    assert_eq!(domain.name.as_deref(), Some("<R&D!> <&>"));
    assert_eq!(domain.arch, None);
}

#[test]
fn what_is_not_the_document_is_refused() {
    let category = |text: &str| DomainXml::parse(text).unwrap_err().category();
    assert_eq!(category(""), "wrong_document");
    assert_eq!(category("no XML"), "wrong_document");
    assert_eq!(category("<domainsnapshot/>"), "wrong_document");
    assert_eq!(category("<domain>"), "malformed");
    assert_eq!(category("<domain><name>x</domain>"), "malformed");
    assert_eq!(category("<domain><name>x</na"), "malformed");
    assert_eq!(category("<domain><name>&boom;</name></domain>"), "forbidden");
    let bomb = "<!DOCTYPE d [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><domain><name>&b;</name></domain>";
    assert_eq!(category(bomb), "forbidden");
}

#[test]
fn limits_hold_and_name_themselves() {
    let limits = Limits { bytes: 64, depth: 3 };
    assert!(DomainXml::parse_within("<domain><a><b/></a></domain>", limits).is_ok());
    let deep = DomainXml::parse_within("<domain><a><b><c></c></b></a></domain>", limits).unwrap_err();
    assert!(matches!(deep, XmlError::TooDeep { limit: 3, .. }), "{deep}");
    let large = DomainXml::parse_within(&format!("<domain>{}</domain>", " ".repeat(64)), limits).unwrap_err();
    assert_eq!(large.to_string(), "read <domain>: 81 bytes, at most 64 are read");
    assert_eq!(large.category(), "limit");
    assert!(!large.is_transient());
    // Also where nobody looks: in the text of an element, and in one that is passed by.
    let hidden = format!("<domain><name>{}</name></domain>", "<a>".repeat(9));
    assert_eq!(DomainXml::parse_within(&hidden, limits).unwrap_err().category(), "limit");
    let nested = format!("<domain>{}", "<a>".repeat(1_000_000));
    assert_eq!(DomainXml::parse(&nested).unwrap_err().category(), "limit");
}
