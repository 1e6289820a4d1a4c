//! The files under the PKI directory, where libvirt, QEMU and Cloud Hypervisor look for them.
//!
//! ```text
//!   CA/cacert.pem             libvirt/servercert.pem          qemu/, ch/: ca-cert.pem  server-cert.pem  server-key.pem
//!   CA/.last_resource_version libvirt/clientcert.pem ─▶ it                client-cert.pem ─▶ server-cert.pem
//!                             libvirt/private/serverkey.pem               client-key.pem  ─▶ server-key.pem
//!                             libvirt/private/clientkey.pem ─▶ it
//! ```
//!
//! All new files are written beside the old ones first; only when each of them is on the disk they take their places.
//! A crash in between leaves some old and some new: the next run sees which, and finishes.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
};

use super::bundle::Bundle;

/// Where the last Secret that libvirt was told of is noted; earlier agents noted its version there.
const STATE: &str = "CA/.last_resource_version";

/// Directories, and whether they hold keys only.
const DIRECTORIES: [(&str, bool); 5] =
    [("CA", false), ("libvirt", false), ("libvirt/private", true), ("qemu", false), ("ch", false)];

const LINKS: [(&str, &str); 6] = [
    ("libvirt/clientcert.pem", "servercert.pem"),
    ("libvirt/private/clientkey.pem", "serverkey.pem"),
    ("qemu/client-cert.pem", "server-cert.pem"),
    ("qemu/client-key.pem", "server-key.pem"),
    ("ch/client-cert.pem", "server-cert.pem"),
    ("ch/client-key.pem", "server-key.pem"),
];

/// What could not be done with which file.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}", path.display())]
pub(super) struct FileError {
    what: &'static str,
    path: PathBuf,
    #[source]
    cause: io::Error,
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |cause| FileError { what, path, cause }
}

/// The PKI directory of a host.
#[derive(Clone, Debug)]
pub(super) struct Pki {
    root: PathBuf,
    /// A group that may read the keys, because QEMU runs as somebody else.
    key_group: Option<u32>,
}

/// A file as it should be.
struct Wanted<'a> {
    path: PathBuf,
    bytes: &'a [u8],
    mode: u32,
    group: Option<u32>,
}

impl Wanted<'_> {
    fn is_there(&self) -> bool {
        let Ok(meta) = fs::symlink_metadata(&self.path) else { return false };
        meta.is_file()
            && meta.permissions().mode() & 0o7777 == self.mode
            && self.group.is_none_or(|wanted| meta.gid() == wanted)
            && fs::read(&self.path).is_ok_and(|bytes| bytes == self.bytes)
    }

    fn temporary(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!(".{name}.new"))
    }

    /// Writes it beside its place, readable by nobody else from its first byte on.
    fn stage(&self) -> Result<(), FileError> {
        let path = self.temporary();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove", &path)(error)),
            _ => {}
        }
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(self.bytes)?;
            if self.group.is_some() {
                chown(&path, None, self.group)?;
            }
            file.set_permissions(fs::Permissions::from_mode(self.mode))?;
            file.sync_all()
        };
        write().map_err(failed("write", &path))
    }

    fn place(&self) -> Result<(), FileError> {
        fs::rename(self.temporary(), &self.path).map_err(failed("replace", &self.path))
    }
}

impl Pki {
    pub(super) fn new(root: impl Into<PathBuf>, key_group: Option<u32>) -> Self {
        Self { root: root.into(), key_group }
    }

    fn wanted<'a>(&self, bundle: &'a Bundle) -> Vec<Wanted<'a>> {
        let key_mode = if self.key_group.is_some() { 0o640 } else { 0o600 };
        let set = |paths: [&str; 3], bytes: &'a [u8], mode, group: Option<u32>| {
            paths.map(|path| Wanted { path: self.root.join(path), bytes, mode, group })
        };
        let cas = set(["CA/cacert.pem", "qemu/ca-cert.pem", "ch/ca-cert.pem"], &bundle.ca, 0o644, None);
        let certificates = ["libvirt/servercert.pem", "qemu/server-cert.pem", "ch/server-cert.pem"];
        let keys = ["libvirt/private/serverkey.pem", "qemu/server-key.pem", "ch/server-key.pem"];
        // Keys last: a certificate without its key is noticed, and the order is the same each time.
        let mut all: Vec<Wanted<'a>> = cas.into();
        all.extend(set(certificates, &bundle.certificate, 0o644, None));
        all.extend(set(keys, &bundle.key, key_mode, self.key_group));
        all
    }

    /// Makes the files what they should be, and tells how many were not.
    pub(super) fn install(&self, bundle: &Bundle) -> Result<usize, FileError> {
        for (directory, private) in DIRECTORIES {
            let path = self.root.join(directory);
            if !path.is_dir() {
                let mode = if private { 0o700 } else { 0o755 };
                fs::DirBuilder::new().recursive(true).mode(mode).create(&path).map_err(failed("create", &path))?;
            }
        }
        let wrong: Vec<Wanted<'_>> = self.wanted(bundle).into_iter().filter(|file| !file.is_there()).collect();
        let staged = wrong.iter().try_for_each(Wanted::stage);
        if let Err(error) = staged {
            for file in &wrong {
                let _ = fs::remove_file(file.temporary()); // best effort: the next run removes it too
            }
            return Err(error);
        }
        wrong.iter().try_for_each(Wanted::place)?;
        let mut changed = wrong.len();
        for (name, target) in LINKS {
            changed += usize::from(link(&self.root.join(name), target)?);
        }
        if changed > 0 {
            for (directory, _) in DIRECTORIES {
                let path = self.root.join(directory);
                File::open(&path).and_then(|file| file.sync_all()).map_err(failed("sync", &path))?;
            }
        }
        Ok(changed)
    }

    /// Whether libvirt has been told of this bundle.
    pub(super) fn is_told(&self, bundle: &Bundle) -> bool {
        let noted = fs::read_to_string(self.root.join(STATE)).unwrap_or_default();
        noted.lines().nth(1) == Some(bundle.hash().as_str())
    }

    /// Notes that libvirt has been told of it.
    pub(super) fn told(&self, bundle: &Bundle) -> Result<(), FileError> {
        let text = format!("{}\n{}\n", bundle.version, bundle.hash());
        let note = Wanted { path: self.root.join(STATE), bytes: text.as_bytes(), mode: 0o600, group: None };
        note.stage()?;
        note.place()
    }
}

/// Whether the link had to be made.
fn link(link: &Path, target: &str) -> Result<bool, FileError> {
    if fs::read_link(link).is_ok_and(|found| found == Path::new(target)) {
        return Ok(false);
    }
    let name = link.file_name().unwrap_or_default().to_string_lossy();
    let temporary = link.with_file_name(format!(".{name}.new"));
    let make = || {
        if fs::symlink_metadata(&temporary).is_ok() {
            fs::remove_file(&temporary)?;
        }
        symlink(target, &temporary)?;
        fs::rename(&temporary, link)
    };
    make().map_err(failed("link", link))?;
    Ok(true)
}
