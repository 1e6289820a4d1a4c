//! Where a rig lives: a directory and a network that no other rig has.
//!
//! Rigs are numbered. Number `n` owns the directory `n` below the common one, the network 10.231.`n`.0/24 and the
//! interface `rig{n}`. A number is claimed under a lock by making the directory with a note of the owner in it; a
//! directory whose owner is gone is free again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, create, write};
use crate::process::{self, Process};

const OWNER: &str = "owner";

/// A claimed number; given back on drop.
#[derive(Debug)]
pub(crate) struct Place {
    number: u8,
    directory: PathBuf,
}

impl Place {
    /// Claims the first free number after sweeping what dead owners left.
    pub(crate) fn claim(base: &Path) -> Result<Place> {
        let taken = process::run("ip", ["-o", "-4", "addr", "show"])?;
        Place::claim_beside(base, &taken)
    }

    fn claim_beside(base: &Path, addresses: &str) -> Result<Place> {
        create(base)?;
        let lock = base.join("lock");
        let lock = File::create(&lock).map_err(Error::io(format!("open {}", lock.display())))?;
        lock.lock().map_err(Error::io(format!("lock {}", base.display())))?;
        let own = Process::own().ok_or_else(|| Error::Failed {
            command: "read /proc/self/stat".to_owned(),
            said: "it does not show our start time".to_owned(),
        })?;
        // 0 and 255 stay free: some programs think that they are no hosts' networks.
        for number in 1..=254 {
            let directory = base.join(number.to_string());
            if directory.exists() {
                let note = fs::read_to_string(directory.join(OWNER)).unwrap_or_default();
                if Process::parse(&note).is_some_and(|owner| owner.is_running()) {
                    continue;
                }
                fs::remove_dir_all(&directory).map_err(Error::io(format!("sweep {}", directory.display())))?;
            }
            // Somebody else's network, or one that the kernel is still taking down.
            if addresses.contains(&format!(" {}", prefix(number))) {
                continue;
            }
            create(&directory)?;
            write(&directory.join(OWNER), own.to_text())?;
            return Ok(Place { number, directory });
        }
        Err(Error::Full { claimed: 254, base: base.display().to_string() })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    /// The address with this last byte.
    pub(crate) fn address(&self, last: u8) -> String {
        format!("{}{last}", prefix(self.number))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The owner's note goes last, with the directory: until then nobody else may have the number.
        if fs::remove_dir_all(&self.directory).is_err() {
            // A daemon in its last moments may have written once more.
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

fn prefix(number: u8) -> String {
    format!("10.231.{number}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rigs_have_different_places_and_give_them_back() {
        let base = tempfile::tempdir().expect("a directory");
        let first = Place::claim_beside(base.path(), "").expect("a place");
        let second = Place::claim_beside(base.path(), "").expect("a second place");
        assert_ne!(first.address(1), second.address(1));
        let (number, directory) = (first.number(), first.directory().to_owned());
        drop(first);
        assert!(!directory.exists());
        assert_eq!(Place::claim_beside(base.path(), "").expect("a third").number(), number);
    }

    #[test]
    fn the_place_of_a_dead_owner_is_swept_and_that_of_a_living_one_is_not() {
        let base = tempfile::tempdir().expect("a directory");
        let dead = base.path().join("1");
        fs::create_dir_all(dead.join("h1/run")).expect("a left directory");
        fs::write(dead.join(OWNER), "4194304 1\n").expect("a note");
        let living = base.path().join("2");
        fs::create_dir_all(&living).expect("a directory");
        fs::write(living.join(OWNER), Process::own().expect("us").to_text()).expect("a note");
        assert_eq!(Place::claim_beside(base.path(), "").expect("a place").number(), 1);
        assert!(living.exists());
    }

    #[test]
    fn a_network_that_somebody_uses_is_left_alone() {
        let base = tempfile::tempdir().expect("a directory");
        let addresses = "7: br0    inet 10.231.1.9/24 brd 10.231.1.255 scope global br0\n";
        assert_eq!(Place::claim_beside(base.path(), addresses).expect("a place").number(), 2);
    }
}
