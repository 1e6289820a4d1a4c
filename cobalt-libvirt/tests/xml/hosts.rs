//! Capabilities of hosts and of what runs on them. The expected values are read off the documents by hand.

use cobalt_core::backend::HostCell;
use cobalt_libvirt::xml::{DomainCapabilitiesXml, HostXml};

use crate::recorded;

fn cells(host: &HostXml) -> Vec<(u32, u64, u32, String)> {
    host.cells.iter().map(|cell| (cell.id, cell.memory_bytes, cell.cpus, cell.cpu_ids.to_string())).collect()
}

#[test]
fn the_qemu_driver_tells_one_cell_and_how_guests_travel() {
    let host = HostXml::parse(recorded!("capabilities-qemu-9.0-recorded")).unwrap();
    assert_eq!(host.uuid.as_deref(), Some("aaaaaaaa-0000-4000-8000-000000000001"));
    assert_eq!(host.cpu_arch.as_deref(), Some("x86_64"));
    assert_eq!(host.cpu_model.as_deref(), Some("kvm64"));
    assert_eq!(host.cpu_vendor.as_deref(), Some("AMD"));
    assert!(host.live_migration);
    assert_eq!(host.migration_transports, ["tcp", "rdma"]);
    assert_eq!(cells(&host), [(0, 23_716_917_248, 2, "0-1".to_owned())]);

    let seam = host.capabilities();
    assert_eq!(seam.cpu_arch.as_deref(), Some("x86_64"));
    assert_eq!(seam.cells, [HostCell { id: 0, memory_bytes: 23_716_917_248, cpus: 2 }]);
}

#[test]
fn the_ch_driver_tells_no_uuid_and_no_migration() {
    let host = HostXml::parse(recorded!("capabilities-ch-11.3-recorded")).unwrap();
    assert_eq!((host.uuid.as_deref(), host.cpu_arch.as_deref()), (None, Some("x86_64")));
    assert_eq!((host.cpu_model.as_deref(), host.cpu_vendor.as_deref()), (None, None));
    assert!(!host.live_migration);
    assert!(host.migration_transports.is_empty());
    assert_eq!(cells(&host), [(0, 23_716_917_248, 2, "0-1".to_owned())]);
}

#[test]
fn the_test_driver_tells_two_cells_of_different_size() {
    let host = HostXml::parse(recorded!("capabilities-test-9.0-recorded")).unwrap();
    assert_eq!((host.uuid.as_deref(), host.cpu_arch.as_deref()), (None, Some("i686")));
    assert_eq!(cells(&host), [(0, 2 << 30, 8, "0-7".to_owned()), (1, 4 << 30, 8, "8-15".to_owned())]);
}

#[test]
fn two_sockets_of_one_cell_share_the_threads_out() {
    let host = HostXml::parse(recorded!("capabilities-2socket-2cell-handmade")).unwrap();
    assert_eq!(host.uuid.as_deref(), Some("aaaaaaaa-0000-4000-8000-00000000dead"));
    let expected = [(0, 128 << 30, 16, "0-7,16-23".to_owned()), (1, 137_437_904_896, 16, "8-15,24-31".to_owned())];
    assert_eq!(cells(&host), expected);
    assert_eq!(host.capabilities().cpus(), 32);
    assert_eq!(host.capabilities().memory_bytes(), (256 << 30) - (1 << 20));
}

#[test]
fn two_sockets_of_two_cells_without_threads() {
    let host = HostXml::parse(recorded!("capabilities-2socket-4cell-nosmt-handmade")).unwrap();
    let expected = [
        (0, 67_108_864_000, 6, "0-5".to_owned()),
        (1, 67_107_815_424, 6, "6-11".to_owned()),
        (2, 67_106_766_848, 6, "12-17".to_owned()),
        (3, 67_105_718_272, 6, "18-23".to_owned()),
    ];
    assert_eq!(cells(&host), expected);
}

#[test]
fn two_sockets_of_two_cells_with_threads() {
    let host = HostXml::parse(crate::FOUR_CELLS).unwrap();
    let expected = [
        (0, 67_108_864_000, 16, "0-7,32-39".to_owned()),
        (1, 67_107_815_424, 16, "8-15,40-47".to_owned()),
        (2, 67_106_766_848, 16, "16-23,48-55".to_owned()),
        (3, 67_105_718_272, 16, "24-31,56-63".to_owned()),
    ];
    assert_eq!(cells(&host), expected);
    assert_eq!(host.capabilities().cpus(), 64);
}

const MODES: [&str; 8] = [
    "mode/custom",
    "mode/host-model",
    "mode/host-passthrough",
    "mode/host-passthrough/off",
    "mode/host-passthrough/on",
    "mode/maximum",
    "mode/maximum/off",
    "mode/maximum/on",
];

const DEVICES: [&str; 58] = [
    "channel",
    "channel/pty",
    "channel/spicevmc",
    "channel/unix",
    "disk",
    "disk/cdrom",
    "disk/disk",
    "disk/fdc",
    "disk/floppy",
    "disk/ide",
    "disk/lun",
    "disk/sata",
    "disk/scsi",
    "disk/usb",
    "disk/virtio",
    "disk/virtio-non-transitional",
    "disk/virtio-transitional",
    "filesystem",
    "filesystem/handle",
    "filesystem/path",
    "filesystem/virtiofs",
    "graphics",
    "graphics/dbus",
    "graphics/egl-headless",
    "graphics/sdl",
    "graphics/spice",
    "graphics/vnc",
    "hostdev",
    "hostdev/default",
    "hostdev/mandatory",
    "hostdev/optional",
    "hostdev/pci",
    "hostdev/requisite",
    "hostdev/scsi",
    "hostdev/subsystem",
    "hostdev/usb",
    "redirdev",
    "redirdev/usb",
    "rng",
    "rng/builtin",
    "rng/egd",
    "rng/random",
    "rng/virtio",
    "rng/virtio-non-transitional",
    "rng/virtio-transitional",
    "tpm",
    "tpm/passthrough",
    "tpm/tpm-crb",
    "tpm/tpm-tis",
    "video",
    "video/bochs",
    "video/cirrus",
    "video/none",
    "video/qxl",
    "video/ramfb",
    "video/vga",
    "video/virtio",
    "video/vmvga",
];

const FEATURES: [&str; 5] = ["backingStoreInput", "backup", "genid", "hyperv", "vmcoreinfo"];

fn devices(without: &[&str]) -> Vec<&'static str> {
    DEVICES.into_iter().filter(|device| !without.contains(device)).collect()
}

#[test]
fn supported_modes_devices_and_features_are_listed_with_their_values() {
    let found = DomainCapabilitiesXml::parse(recorded!("domcapabilities-qemu-defaults-9.0-recorded")).unwrap();
    assert_eq!(found.emulator.as_deref(), Some("/usr/bin/qemu-system-x86_64"));
    assert_eq!((found.machine.as_deref(), found.max_vcpus), (Some("pc-i440fx-7.2"), Some(255)));
    let seam = found.capabilities;
    assert_eq!((seam.arch.as_deref(), seam.hypervisor_type.as_deref()), (Some("x86_64"), Some("kvm")));
    assert_eq!(seam.cpu_modes, MODES);
    assert_eq!(seam.devices, devices(&[]));
    assert_eq!(seam.features, FEATURES);
}

#[test]
fn another_machine_type_has_other_buses() {
    let found = DomainCapabilitiesXml::parse(recorded!("domcapabilities-qemu-kvm-q35-9.0-recorded")).unwrap();
    assert_eq!((found.machine.as_deref(), found.max_vcpus), (Some("pc-q35-7.2"), Some(288)));
    assert_eq!(found.capabilities.hypervisor_type.as_deref(), Some("kvm"));
    assert_eq!(found.capabilities.cpu_modes, MODES);
    assert_eq!(found.capabilities.devices, devices(&["disk/ide"]));
    assert_eq!(found.capabilities.features, FEATURES);
}

#[test]
fn what_is_not_supported_is_not_listed() {
    let found = DomainCapabilitiesXml::parse(recorded!("domcapabilities-qemu-tcg-q35-9.0-recorded")).unwrap();
    let seam = found.capabilities;
    assert_eq!((seam.arch.as_deref(), seam.hypervisor_type.as_deref()), (Some("x86_64"), Some("qemu")));
    let modes = ["mode/custom", "mode/host-model", "mode/maximum", "mode/maximum/off", "mode/maximum/on"];
    assert_eq!(seam.cpu_modes, modes);
    assert_eq!(seam.devices, devices(&["disk/ide"]));
    assert_eq!(seam.features, FEATURES);
}
