//! Facts that the kernel and the distribution leave in files.

use std::{fs::File, io::Read, path::Path};

use cobalt_core::host::OsFacts;
use jiff::{civil::Date, tz::TimeZone};

use super::{boot_id, os_release as release, text};

/// More of a file is not read: none of them is near that long.
const MAX_FILE: u64 = 64 * 1024;

/// `os-release` below `root`. Blocks, if only for files of a few bytes.
pub(crate) fn os_release(root: &Path) -> OsFacts {
    let file = read(root, "etc/os-release").or_else(|| read(root, "usr/lib/os-release"));
    file.map(|file| release::read(file.lines())).unwrap_or_default()
}

/// What the running kernel knows of itself and of the machine. A container shares it with its host.
pub(crate) fn kernel_and_machine(root: &Path) -> OsFacts {
    let fact = |path: &str| text(&read(root, path)?);
    OsFacts {
        kernel_name: fact("proc/sys/kernel/ostype"),
        kernel_release: fact("proc/sys/kernel/osrelease"),
        kernel_version: fact("proc/sys/kernel/version"),
        kernel_command_line: fact("proc/cmdline"),
        hardware_vendor: fact("sys/class/dmi/id/sys_vendor"),
        hardware_model: fact("sys/class/dmi/id/product_name"),
        hardware_serial: fact("sys/class/dmi/id/product_serial"),
        firmware_version: fact("sys/class/dmi/id/bios_version"),
        firmware_vendor: fact("sys/class/dmi/id/bios_vendor"),
        firmware_date: fact("sys/class/dmi/id/bios_date").and_then(|date| dmi_date(&date)),
        boot_id: fact("proc/sys/kernel/random/boot_id").and_then(|id| boot_id(&id)),
        ..OsFacts::default()
    }
}

/// A file that is absent, or that we may not read, is a fact we do not know.
fn read(root: &Path, path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(root.join(path)).ok()?.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The firmware's date as DMI writes it, month first.
fn dmi_date(date: &str) -> Option<jiff::Timestamp> {
    let mut parts = date.split('/');
    let month = parts.next()?.parse().ok()?;
    let day = parts.next()?.parse().ok()?;
    let year = parts.next()?.parse().ok()?;
    if parts.next().is_some() {
        return None;
    }
    let date = Date::new(year, month, day).ok()?;
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (path, content) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            std::fs::write(path, content).expect("a file");
        }
        root
    }

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = root(&[
            ("proc/sys/kernel/ostype", b"Linux\n"),
            ("proc/sys/kernel/osrelease", b"6.12.44-cloud-amd64\n"),
            ("proc/sys/kernel/version", b"#1 SMP\n"),
            ("proc/cmdline", b"root=/dev/sda1 quiet \n"),
            ("proc/sys/kernel/random/boot_id", b"3f2c8a52-0d1b-4c3e-9a77-1b2c3d4e5f60\n"),
            ("sys/class/dmi/id/sys_vendor", b"Dell Inc.\n"),
            ("sys/class/dmi/id/product_name", b"PowerEdge R760\n"),
            ("sys/class/dmi/id/product_serial", b" \n"),
            ("sys/class/dmi/id/bios_date", b"03/01/2025\n"),
            ("usr/lib/os-release", b"VERSION_ID=12\n"),
        ]);
        let facts = kernel_and_machine(root.path());
        assert_eq!(facts.kernel_release.as_deref(), Some("6.12.44-cloud-amd64"));
        assert_eq!(facts.kernel_command_line.as_deref(), Some("root=/dev/sda1 quiet"));
        assert_eq!(facts.hardware_model.as_deref(), Some("PowerEdge R760"));
        assert_eq!(facts.hardware_serial, None, "blanks are no serial number");
        assert_eq!(facts.firmware_date, "2025-03-01T00:00:00Z".parse().ok());
        assert_eq!(facts.boot_id.as_deref(), Some("3f2c8a52-0d1b-4c3e-9a77-1b2c3d4e5f60"));
        assert_eq!(os_release(root.path()).version.as_deref(), Some("12"));
    }

    #[test]
    fn no_files_are_no_facts_and_strange_ones_do_no_harm() {
        let empty = root(&[]);
        assert_eq!(complete_facts(&empty), OsFacts::default());
        let long = vec![0xff; 200_000];
        let strange = root(&[
            ("proc/cmdline", &[0xff, 0xfe, 0]),
            ("sys/class/dmi/id/bios_date", b"31/31/2025"),
            ("proc/sys/kernel/random/boot_id", b"none"),
            ("etc/os-release", &long),
        ]);
        let facts = complete_facts(&strange);
        assert_eq!((facts.firmware_date, facts.boot_id, facts.version), (None, None, None));
    }

    fn complete_facts(root: &tempfile::TempDir) -> OsFacts {
        super::super::complete(kernel_and_machine(root.path()), os_release(root.path()))
    }

    #[test]
    fn only_a_whole_date_is_a_date() {
        for no_date in ["", "2025", "01/02", "01/02/2025/1", "13/01/2025", "aa/bb/cccc", "2025-01-02"] {
            assert_eq!(dmi_date(no_date), None, "{no_date}");
        }
    }
}
