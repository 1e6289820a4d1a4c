//! Domains to define, and what their guests do.

use std::fmt::Write;
use std::path::PathBuf;

mod initramfs;
mod kernel;

pub use kernel::Kernel;

/// What a guest does after it has booted. It writes `guest: up` to its console first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Act {
    /// Write a line to the console every second.
    Idle,
    /// Reboot, again and again.
    Reboot,
    /// Switch itself off.
    PowerOff,
    /// Crash the kernel.
    Panic,
    /// Open the watchdog and never feed it.
    Watchdog,
    /// Write four mebibytes to the first disk.
    FillDisk,
    /// Change memory as fast as it can, so that a migration has something to do.
    DirtyMemory,
}

impl Act {
    pub(crate) const ALL: [Act; 7] =
        [Act::Idle, Act::Reboot, Act::PowerOff, Act::Panic, Act::Watchdog, Act::FillDisk, Act::DirtyMemory];

    /// The value of the kernel argument `act`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Act::Idle => "idle",
            Act::Reboot => "reboot",
            Act::PowerOff => "poweroff",
            Act::Panic => "panic",
            Act::Watchdog => "watchdog",
            Act::FillDisk => "filldisk",
            Act::DirtyMemory => "dirty",
        }
    }
}

/// What runs the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DomainType {
    /// QEMU itself: works everywhere, slowly.
    Qemu,
    /// The kernel. Needs `/dev/kvm`.
    Kvm,
}

/// A disk of a guest: a raw image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The file.
    pub path: PathBuf,
    /// Whether a write error stops the guest, so that it can go on later, instead of reaching it.
    pub stop_on_error: bool,
}

/// A domain to define. Without a kernel it stops in the firmware, which is all that control needs.
#[derive(Debug, Clone)]
pub struct Guest {
    name: String,
    kind: DomainType,
    memory_mib: u32,
    vcpus: u32,
    boot: Option<(Kernel, Act)>,
    disks: Vec<Disk>,
    macs: Vec<String>,
    watchdog: bool,
    panic: bool,
    extra: String,
    devices: String,
}

impl Guest {
    /// A small domain with one CPU, no disk and no network.
    pub fn new(name: impl Into<String>) -> Guest {
        Guest {
            name: name.into(),
            kind: DomainType::Qemu,
            memory_mib: 32,
            vcpus: 1,
            boot: None,
            disks: Vec::new(),
            macs: Vec::new(),
            watchdog: false,
            panic: false,
            extra: String::new(),
            devices: String::new(),
        }
    }

    /// What runs it; [`DomainType::Qemu`] unless said otherwise.
    pub fn kind(mut self, kind: DomainType) -> Guest {
        self.kind = kind;
        self
    }

    /// Its memory.
    pub fn memory_mib(mut self, memory: u32) -> Guest {
        self.memory_mib = memory;
        self
    }

    /// Its CPUs.
    pub fn vcpus(mut self, vcpus: u32) -> Guest {
        self.vcpus = vcpus;
        self
    }

    /// Boots this kernel, which then does as told. Takes 128 MiB of memory, or more if said before.
    pub fn act(mut self, kernel: &Kernel, act: Act) -> Guest {
        self.memory_mib = self.memory_mib.max(128);
        self.boot = Some((kernel.clone(), act));
        self
    }

    /// Adds a disk.
    pub fn disk(mut self, path: impl Into<PathBuf>) -> Guest {
        self.disks.push(Disk { path: path.into(), stop_on_error: false });
        self
    }

    /// Adds a disk on which an error stops the guest.
    pub fn stopping_disk(mut self, path: impl Into<PathBuf>) -> Guest {
        self.disks.push(Disk { path: path.into(), stop_on_error: true });
        self
    }

    /// Adds a network card that is connected to nothing outside of QEMU.
    pub fn nic(mut self, mac: impl Into<String>) -> Guest {
        self.macs.push(mac.into());
        self
    }

    /// Adds a watchdog that resets the guest.
    pub fn watchdog(mut self) -> Guest {
        self.watchdog = true;
        self
    }

    /// Adds the device by which a guest tells that its kernel crashed.
    pub fn panic_device(mut self) -> Guest {
        self.panic = true;
        self
    }

    /// Adds elements below `<domain>`, such as `<metadata>` or `<cputune>`.
    pub fn with(mut self, xml: &str) -> Guest {
        self.extra.push_str(xml);
        self
    }

    /// Adds elements below `<devices>`, such as a `<channel>`.
    pub fn device(mut self, xml: &str) -> Guest {
        self.devices.push_str(xml);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its id, which follows from its name.
    pub fn uuid(&self) -> String {
        let high = fnv(self.name.bytes());
        let low = fnv(self.name.bytes().rev());
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xfff,
            low >> 48 & 0xfff,
            low & 0xffff_ffff_ffff
        )
    }

    /// The domain as libvirt takes it.
    pub fn xml(&self) -> String {
        let kind = match self.kind {
            DomainType::Qemu => "qemu",
            DomainType::Kvm => "kvm",
        };
        let boot = self.boot.as_ref().map_or(String::new(), |(kernel, act)| {
            let (image, initramfs) = (kernel.image().display(), kernel.initramfs().display());
            // Where QEMU gets little of a CPU, the kernel would take the late ticks of its timer for a broken one.
            let options = "console=ttyS0 quiet panic=-1 nokaslr mitigations=off no_timer_check";
            let arguments = format!("{options} act={}", act.as_str());
            format!("<kernel>{image}</kernel><initrd>{initramfs}</initrd><cmdline>{arguments}</cmdline>")
        });
        let name = &self.name;
        format!(
            "<domain type='{kind}'><name>{name}</name><uuid>{}</uuid><memory unit='MiB'>{}</memory><vcpu>{}</vcpu>\
             <os><type arch='x86_64' machine='pc'>hvm</type>{boot}</os><features><acpi/></features>\
             <on_reboot>restart</on_reboot><on_crash>destroy</on_crash>{}<devices>\
             <serial type='file'><source path='/var/lib/libvirt/consoles/{name}' append='on'/></serial>{}\
             <memballoon model='virtio'/></devices></domain>\n",
            self.uuid(),
            self.memory_mib,
            self.vcpus,
            self.extra,
            self.devices(),
        )
    }

    fn devices(&self) -> String {
        let mut xml = self.devices.clone();
        for (disk, letter) in self.disks.iter().zip('a'..='z') {
            let policy = if disk.stop_on_error { " error_policy='stop'" } else { "" };
            // Writing to a String does not fail.
            let _ = write!(
                xml,
                "<disk type='file' device='disk'><driver name='qemu' type='raw' cache='none' io='threads'{policy}/>\
                 <source file='{}'/><target dev='vd{letter}' bus='virtio'/></disk>",
                disk.path.display()
            );
        }
        for mac in &self.macs {
            let _ = write!(xml, "<interface type='user'><mac address='{mac}'/><model type='virtio'/></interface>");
        }
        if self.watchdog {
            xml.push_str("<watchdog model='i6300esb' action='reset'/>");
        }
        if self.panic {
            xml.push_str("<panic model='isa'/>");
        }
        xml
    }
}

/// FNV-1a.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_from_names_and_differ() {
        let (one, two) = (Guest::new("vm1").uuid(), Guest::new("vm2").uuid());
        assert_eq!(one, Guest::new("vm1").uuid());
        assert_ne!(one, two);
        let groups: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12]);
    }

    #[test]
    fn a_guest_is_described_with_all_its_devices() {
        let guest = Guest::new("vm1").disk("/a").stopping_disk("/b").nic("52:54:00:00:00:01").watchdog().panic_device();
        let xml = guest.xml();
        for part in ["dev='vda'", "dev='vdb'", "error_policy='stop'", "52:54:00:00:00:01", "i6300esb", "<panic"] {
            assert!(xml.contains(part), "no {part} in {xml}");
        }
    }
}
