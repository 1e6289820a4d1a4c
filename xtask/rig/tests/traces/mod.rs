//! What is seen of a rig while it runs, and whether that is gone: the next rig may have its number, and with it its
//! directory and everything that is named after it, as soon as it is free.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(crate) struct Traces {
    path: PathBuf,
    // Held, so that no other directory gets its number.
    directory: File,
    /// By their ids and when they began.
    processes: Vec<(String, String)>,
}

impl Traces {
    /// A directory, and the processes that name it in this file of theirs below `/proc`.
    pub(crate) fn of(path: &Path, file: &str) -> Traces {
        let ours = format!("{}/", path.display());
        let ids =
            fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let names_it = |id: &String| {
            let text = fs::read(format!("/proc/{id}/{file}")).unwrap_or_default();
            String::from_utf8_lossy(&text).contains(&ours)
        };
        let processes = ids.filter(names_it).filter_map(|id| began(&id).map(|began| (id, began))).collect();
        Traces { path: path.to_owned(), directory: File::open(path).unwrap(), processes }
    }

    pub(crate) fn processes(&self) -> &[(String, String)] {
        &self.processes
    }

    /// Fails if one of the processes runs, or the directory is still where it was.
    pub(crate) fn are_gone(&self) {
        let running: Vec<_> = self.processes.iter().filter(|(id, at)| began(id).as_ref() == Some(at)).collect();
        assert!(running.is_empty(), "{running:?} run");
        let now = fs::metadata(&self.path).map(|found| (found.dev(), found.ino())).ok();
        let held = self.directory.metadata().unwrap();
        assert_ne!(now, Some((held.dev(), held.ino())), "{} is left", self.path.display());
    }
}

/// When a process began that is not a corpse.
fn began(id: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before the last `)` may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    (fields.first() != Some(&"Z")).then(|| fields.get(19).map(|&ticks| ticks.to_owned()))?
}
