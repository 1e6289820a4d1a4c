//! The Python environment, made by `cargo xtask test` and kept below the target directory.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result, write};

/// Everything, with exact versions.
pub(super) const REQUIREMENTS: &str = include_str!("python/requirements.txt");
const DRIVER: &str = include_str!("python/driver.py");

/// A Python environment with OpenStack in it.
#[derive(Debug, Clone)]
pub struct Venv {
    directory: PathBuf,
}

impl Venv {
    /// The one below this target directory; an error says what to do when there is none, or one of other versions.
    pub fn find(target: &Path) -> Result<Venv> {
        let directory = target.join("tools/openstack");
        let installed = std::fs::read_to_string(directory.join("requirements.txt")).unwrap_or_default();
        if installed != REQUIREMENTS {
            return Err(Error::Failed {
                command: format!("find OpenStack in {}", directory.display()),
                said: "it is not installed in these versions; cargo xtask test does it".to_owned(),
            });
        }
        let venv = Venv { directory };
        venv.install_driver()?;
        Ok(venv)
    }

    /// The driver is ours and changes with the tree, so it is written anew when it differs.
    fn install_driver(&self) -> Result<()> {
        let path = self.site_packages()?.join("nova/virt/cobalt.py");
        if std::fs::read_to_string(&path).is_ok_and(|text| text == DRIVER) {
            return Ok(());
        }
        // Another rig may be reading it.
        let part = path.with_extension(format!("{}.part", std::process::id()));
        write(&part, DRIVER)?;
        std::fs::rename(&part, &path).map_err(Error::io(format!("write {}", path.display())))
    }

    fn site_packages(&self) -> Result<PathBuf> {
        let lib = self.directory.join("lib");
        let entries = std::fs::read_dir(&lib).map_err(Error::io(format!("read {}", lib.display())))?;
        let found = entries.flatten().map(|entry| entry.path().join("site-packages")).find(|path| path.is_dir());
        found.ok_or_else(|| Error::Failed {
            command: format!("find the packages in {}", lib.display()),
            said: "there are none".to_owned(),
        })
    }

    /// Copies a file of the packages' own configuration into a directory.
    pub(super) fn copy_etc(&self, name: &str, directory: &Path) -> Result<()> {
        let from = self.directory.join("etc").join(name);
        let to = directory.join(from.file_name().unwrap_or_default());
        std::fs::copy(&from, &to).map(drop).map_err(Error::io(format!("copy {}", from.display())))
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.directory.join("bin").join(name)
    }

    /// Where filled databases are kept, beside the environment; by what they depend on.
    pub(super) fn cache(&self) -> PathBuf {
        let hash = [REQUIREMENTS, super::state::RECIPE].iter().flat_map(|text| text.bytes());
        let hash =
            hash.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        self.directory.with_file_name(format!("openstack-state-{hash:016x}"))
    }
}
