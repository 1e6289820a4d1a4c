//! The devices of a domain that somebody asks about.

use super::super::{
    XmlError,
    reader::{Element, Reader},
};

/// A disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disk {
    /// Where its data is: `file`, `block`, `network`, `volume`.
    pub kind: Option<String>,
    /// What the guest sees: `disk`, `cdrom`, `floppy`, `lun`.
    pub device: Option<String>,
    /// Its name in statistics and events: `vda`.
    pub target: Option<String>,
    /// The bus it hangs on: `virtio`.
    pub bus: Option<String>,
    /// libvirt's name for the device while the domain runs.
    pub alias: Option<String>,
    /// Its data. `None` for an empty drive.
    pub source: Option<DiskSource>,
}

/// Where a disk's data is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskSource {
    /// The file, block device or directory; the image's or volume's name where there is no path.
    pub path: Option<String>,
    /// The storage pool of a `volume`.
    pub pool: Option<String>,
    /// The protocol of a `network` disk, such as `rbd`.
    pub protocol: Option<String>,
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// How it is attached: `bridge`, `ethernet`, `network`, `vhostuser`.
    pub kind: Option<String>,
    /// Its name on the host: `tap88888888-aa`. Often `None` unless the domain runs.
    pub target: Option<String>,
    /// Its hardware address.
    pub mac: Option<String>,
    /// What the guest sees: `virtio`.
    pub model: Option<String>,
    /// The bridge it is plugged into.
    pub bridge: Option<String>,
    /// The port's id for the switch, which is Neutron's port id under Nova.
    pub port_id: Option<String>,
    /// libvirt's name for the device while the domain runs.
    pub alias: Option<String>,
}

/// A watchdog.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watchdog {
    /// What the guest sees: `i6300esb`.
    pub model: Option<String>,
    /// What happens when the guest stops feeding it: `reset`, `none`.
    pub action: Option<String>,
    /// libvirt's name for the device while the domain runs.
    pub alias: Option<String>,
}

impl Disk {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, element: &Element<'a>) -> Result<Self, XmlError> {
        let mut disk = Self { kind: element.string("type"), device: element.string("device"), ..Self::default() };
        while let Some(part) = reader.child(element)? {
            match part.name() {
                "source" => disk.source = DiskSource::read(&part),
                "target" => {
                    disk.target = part.string("dev");
                    disk.bus = part.string("bus");
                }
                "alias" => disk.alias = part.string("name"),
                _ => {}
            }
        }
        Ok(disk)
    }
}

impl DiskSource {
    fn read(element: &Element<'_>) -> Option<Self> {
        let path = ["file", "dev", "dir", "volume", "name"].iter().find_map(|name| element.string(name));
        let source = Self { path, pool: element.string("pool"), protocol: element.string("protocol") };
        // A drive without a medium has a source without any of these.
        (source != Self::default()).then_some(source)
    }
}

impl Interface {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, element: &Element<'a>) -> Result<Self, XmlError> {
        let mut interface = Self { kind: element.string("type"), ..Self::default() };
        while let Some(part) = reader.child(element)? {
            match part.name() {
                "mac" => interface.mac = part.string("address"),
                "target" => interface.target = part.string("dev"),
                "model" => interface.model = part.string("type"),
                "source" => interface.bridge = part.string("bridge"),
                "alias" => interface.alias = part.string("name"),
                "virtualport" => {
                    while let Some(parameters) = reader.child(&part)? {
                        interface.port_id = interface.port_id.or_else(|| parameters.string("interfaceid"));
                    }
                }
                _ => {}
            }
        }
        Ok(interface)
    }
}

impl Watchdog {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, element: &Element<'a>) -> Result<Self, XmlError> {
        let mut watchdog = Self { model: element.string("model"), action: element.string("action"), alias: None };
        while let Some(part) = reader.child(element)? {
            if part.name() == "alias" {
                watchdog.alias = part.string("name");
            }
        }
        Ok(watchdog)
    }
}
