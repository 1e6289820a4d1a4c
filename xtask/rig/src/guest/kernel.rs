//! The kernel that guests boot.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result, create};
use crate::guest::initramfs;

/// A Linux kernel with an initramfs whose first program carries out an [`Act`](crate::Act).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    image: PathBuf,
    initramfs: PathBuf,
}

/// Drivers, in the order in which they depend on each other.
pub(crate) const MODULES: &[&str] = &[
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
    "watchdog",
    "i6300esb",
    "pvpanic",
    "pvpanic-mmio",
    "button",
];

const BUSYBOX: &str = "/bin/busybox";

impl Kernel {
    /// The names of the drivers that must lie beside the kernel: `modules/NAME.ko`.
    pub fn modules() -> &'static [&'static str] {
        MODULES
    }

    /// Takes `vmlinuz` and `modules` of `tools/guest-kernel` below the target directory, where `cargo xtask test`
    /// puts them, and makes the initramfs in `place`. `Err` says what is not there.
    pub fn prepare(target: &Path, place: &Path) -> Result<Kernel> {
        let tools = target.join("tools/guest-kernel");
        let read = |path: PathBuf| std::fs::read(&path).map_err(Error::io(format!("read {}", path.display())));
        let image = tools.join("vmlinuz");
        if !image.is_file() {
            let doing = format!("read {} (cargo xtask test puts it there)", image.display());
            return Err(Error::Io { doing, source: std::io::ErrorKind::NotFound.into() });
        }
        let mut modules = Vec::new();
        for &name in MODULES {
            modules.push((name, read(tools.join(format!("modules/{name}.ko")))?));
        }
        create(place)?;
        let initramfs = place.join("initramfs");
        crate::error::write(&initramfs, initramfs::archive(&read(BUSYBOX.into())?, &modules))?;
        Ok(Kernel { image, initramfs })
    }

    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    pub(crate) fn initramfs(&self) -> &Path {
        &self.initramfs
    }
}
