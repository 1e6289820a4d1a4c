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
    base: PathBuf,
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
        let _lock = lock(base)?;
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
                // What still changes has daemons in their last moments; another number does as well.
                if fs::remove_dir_all(&directory).is_err() {
                    continue;
                }
            }
            // Somebody else's network, or one that the kernel is still taking down.
            if addresses.contains(&format!(" {}", prefix(number))) {
                continue;
            }
            create(&directory)?;
            write(&directory.join(OWNER), own.to_text())?;
            return Ok(Place { number, base: base.to_owned(), directory });
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
        // Half of a directory looks like one without an owner: nobody may claim it, or sweep it, until all of it is gone.
        let _lock = lock(&self.base);
        if fs::remove_dir_all(&self.directory).is_err() {
            // A daemon in its last moments may have written once more.
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// Held until dropped.
fn lock(base: &Path) -> Result<File> {
    let path = base.join("lock");
    let lock = File::create(&path).map_err(Error::io(format!("open {}", path.display())))?;
    lock.lock().map_err(Error::io(format!("lock {}", base.display())))?;
    Ok(lock)
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
    fn a_place_is_nobodys_until_all_of_it_is_gone() {
        let base = tempfile::tempdir().expect("a directory");
        // Many and large, so that a removal takes its time and others come meanwhile.
        let claim = || {
            let place = Place::claim_beside(base.path(), "").expect("a place");
            for number in 0..30 {
                fs::create_dir(place.directory().join(number.to_string())).expect("our own directory");
            }
            let note = fs::read_to_string(place.directory().join(OWNER)).expect("our own note");
            assert_eq!(Process::parse(&note), Process::own());
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20).for_each(|_| claim()));
            }
        });
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
