//! One compute host, seen by its virt driver.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::error::{Error, Result, write};

/// The switches of a compute, and its guests.
#[derive(Debug, Clone)]
pub struct Compute {
    directory: PathBuf,
}

/// A guest that a compute's hypervisor has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComputeGuest {
    /// The server's id.
    pub id: String,
    /// Its name on the host, such as `instance-0000002a`.
    pub name: String,
    /// The name that its owner gave the server.
    pub server: String,
    /// Whether it runs, and how it does not.
    pub state: GuestState,
    /// Its virtual CPUs.
    pub vcpus: u32,
    /// Its memory.
    pub memory_mb: u64,
}

/// What a guest does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuestState {
    /// It runs.
    Running,
    /// Its CPUs are stopped.
    Paused,
    /// It sleeps.
    Suspended,
    /// It is off.
    Off,
}

impl Compute {
    pub(super) fn new(directory: PathBuf) -> Compute {
        Compute { directory }
    }

    /// How long a live migration from here runs, also one that has begun. Those that are forced to complete or aborted
    /// end at once all the same.
    pub fn migrations_take(&self, time: Duration) -> Result<()> {
        self.switch("lm_seconds", &time.as_secs_f64().to_string())
    }

    /// Lets live migrations of these servers fail when their time is up; an empty list is all of them.
    pub fn refuse_migrations(&self, servers: &[&str]) -> Result<()> {
        self.switch("lm_refuse", &servers.join("\n"))
    }

    /// Lets them succeed again.
    pub fn allow_migrations(&self) -> Result<()> {
        self.unswitch("lm_refuse")
    }

    /// Lets every guest that is to be made here fail: new servers, and evacuated ones that arrive.
    pub fn refuse_guests(&self) -> Result<()> {
        self.switch("spawn_fail", "")
    }

    /// Lets them be made again.
    pub fn allow_guests(&self) -> Result<()> {
        self.unswitch("spawn_fail")
    }

    /// Lets no guest say anything on its console: whoever waits for a word of one goes on waiting.
    pub fn mute_guests(&self) -> Result<()> {
        self.switch("mute", "")
    }

    /// Lets them speak, those that were made meanwhile too.
    pub fn unmute_guests(&self) -> Result<()> {
        self.unswitch("mute")
    }

    /// The guests that its hypervisor has, ordered by id; also those of a compute that does not run.
    pub fn guests(&self) -> Vec<ComputeGuest> {
        let text = std::fs::read_to_string(self.list()).unwrap_or_default();
        let guests: Value = serde_json::from_str(&text).unwrap_or_default();
        guests.as_array().into_iter().flatten().map(guest).collect()
    }

    /// Follows the list of guests.
    pub fn watch(&self) -> GuestWatch {
        GuestWatch { compute: self.clone(), seen: None }
    }

    fn list(&self) -> PathBuf {
        self.directory.join("guests.json")
    }

    /// In one step: the driver may be reading.
    fn switch(&self, name: &str, text: &str) -> Result<()> {
        let (path, part) = (self.directory.join(name), self.directory.join(format!("{name}.part")));
        write(&part, text)?;
        std::fs::rename(&part, &path).map_err(Error::io(format!("write {}", path.display())))
    }

    fn unswitch(&self, name: &str) -> Result<()> {
        let path = self.directory.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(format!("remove {}", path.display()))(error))
            }
            _ => Ok(()),
        }
    }
}

fn guest(value: &Value) -> ComputeGuest {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let number = |key: &str| value[key].as_u64().unwrap_or_default();
    ComputeGuest {
        id: text("uuid"),
        name: text("name"),
        server: text("server"),
        state: match value["state"].as_str() {
            Some("running") => GuestState::Running,
            Some("paused") => GuestState::Paused,
            Some("suspended") => GuestState::Suspended,
            _ => GuestState::Off,
        },
        vcpus: u32::try_from(number("vcpus")).unwrap_or_default(),
        memory_mb: number("memory_mb"),
    }
}

/// Tells when the guests of a compute have changed. To be asked often: it looks at the file's name only, until there is
/// a new one.
#[derive(Debug)]
pub struct GuestWatch {
    compute: Compute,
    seen: Option<(u64, i64, i64)>,
}

impl GuestWatch {
    /// The guests if they may have changed since the last time; all of them the first time.
    pub fn changed(&mut self) -> Option<Vec<ComputeGuest>> {
        // Before the list: what changes meanwhile is told the next time.
        let stamp = stamp(&self.compute.list());
        if self.seen == Some(stamp) {
            return None;
        }
        self.seen = Some(stamp);
        Some(self.compute.guests())
    }
}

/// Each list is a new file, so this differs with every change.
fn stamp(path: &Path) -> (u64, i64, i64) {
    path.metadata().map(|file| (file.ino(), file.mtime(), file.mtime_nsec())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_replaced_is_told_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let compute = Compute::new(directory.path().to_owned());
        let mut watch = compute.watch();
        assert_eq!(watch.changed(), Some(Vec::new()), "nobody has been here");
        assert_eq!(watch.changed(), None);
        let list =
            r#"[{"uuid": "u", "name": "instance-1", "state": "paused", "server": "web", "vcpus": 2, "memory_mb": 64}]"#;
        compute.switch("guests.json", list).expect("a list");
        let guests = watch.changed().expect("a change");
        assert_eq!((guests[0].server.as_str(), guests[0].state, guests[0].vcpus), ("web", GuestState::Paused, 2));
        assert_eq!(watch.changed(), None);
        compute.switch("guests.json", "[]").expect("a list");
        assert_eq!(watch.changed(), Some(Vec::new()));
    }
}
