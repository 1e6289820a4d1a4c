//! The file system that a guest boots into: busybox, some drivers, and a first program.

use std::fmt::Write;

use crate::guest::Act;
use crate::guest::kernel::MODULES;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;

/// An archive in cpio's `newc` form, as the kernel unpacks it.
pub(crate) fn archive(busybox: &[u8], modules: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut archive = Vec::new();
    for directory in ["bin", "dev", "proc", "sys", "tmp", "modules"] {
        entry(&mut archive, directory, DIRECTORY, &[]);
    }
    entry(&mut archive, "bin/busybox", PROGRAM, busybox);
    entry(&mut archive, "init", PROGRAM, init().as_bytes());
    for (name, content) in modules {
        entry(&mut archive, &format!("modules/{name}.ko"), FILE, content);
    }
    entry(&mut archive, "TRAILER!!!", 0, &[]);
    archive
}

fn entry(archive: &mut Vec<u8>, name: &str, mode: u32, content: &[u8]) {
    let links = 1;
    let [number, owner, group, time, device] = [0; 5];
    let (size, name_size) = (content.len(), name.len() + 1);
    let mut header = String::from("070701");
    // Writing to a String does not fail.
    let _ = write!(header, "{number:08x}{mode:08x}{owner:08x}{group:08x}{links:08x}{time:08x}{size:08x}");
    let _ = write!(header, "{device:08x}{device:08x}{device:08x}{device:08x}{name_size:08x}{:08x}", 0);
    archive.extend(header.bytes().chain(name.bytes()).chain([0]));
    pad(archive);
    archive.extend(content);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// The first program of the guest.
fn init() -> String {
    let mut init = String::from(
        "#!/bin/busybox sh\n\
         export PATH=/bin\n\
         /bin/busybox --install -s /bin\n\
         mount -t proc proc /proc\n\
         mount -t sysfs sysfs /sys\n\
         mount -t devtmpfs devtmpfs /dev\n\
         exec < /dev/console > /dev/console 2>&1\n",
    );
    for module in MODULES {
        // A watchdog that waits for half a minute, as it does by itself, makes a slow test.
        let options = if *module == "i6300esb" { " heartbeat=2" } else { "" };
        let _ = writeln!(init, "insmod /modules/{module}.ko{options}");
    }
    init.push_str("echo guest: up\nread -r arguments < /proc/cmdline\ncase \"$arguments\" in\n");
    for act in Act::ALL {
        let _ = writeln!(init, "*act={}*) {} ;;", act.as_str(), commands(act));
    }
    init.push_str("esac\nwhile true; do echo guest: tick; sleep 1; done\n");
    init
}

fn commands(act: Act) -> &'static str {
    match act {
        Act::Idle => "true",
        Act::Reboot => "reboot -f",
        Act::PowerOff => "poweroff -f",
        Act::Panic => "echo c > /proc/sysrq-trigger",
        Act::Watchdog => "exec 3> /dev/watchdog",
        Act::FillDisk => {
            "dd if=/dev/zero of=/dev/vda bs=1M count=4 conv=fsync && echo guest: disk written || echo guest: disk failed"
        }
        Act::DirtyMemory => {
            "mount -t tmpfs tmpfs /tmp; while true; do dd if=/dev/urandom of=/tmp/a bs=1M count=48 conv=notrunc 2> /dev/null; done"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_begins_at_a_multiple_of_four() {
        let archive = archive(b"12345", &[("virtio", b"1".to_vec())]);
        let text = String::from_utf8_lossy(&archive);
        let starts: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert_eq!(starts.len(), 6 + 2 + 1 + 1);
        assert!(starts.iter().all(|at| at % 4 == 0), "{starts:?}");
        assert!(text.contains("modules/virtio.ko") && archive.len().is_multiple_of(4));
    }

    #[test]
    fn the_first_program_knows_every_act() {
        let init = init();
        for act in Act::ALL {
            assert!(init.contains(&format!("*act={}*)", act.as_str())), "{act:?}");
        }
    }
}
