//! One compute host, seen by its virt driver.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::error::{Error, Result, write};

/// The switches of a compute, and its guests.
#[derive(Debug, Clone)]
pub struct Compute {
    directory: PathBuf,
}

impl Compute {
    pub(crate) fn new(directory: PathBuf) -> Compute {
        Compute { directory }
    }

    /// How long a live migration from here runs.
    pub fn migrations_take(&self, time: Duration) -> Result<()> {
        write(&self.directory.join("lm_seconds"), time.as_secs_f64().to_string())
    }

    /// Lets live migrations of these servers fail; an empty list is all of them.
    pub fn refuse_migrations(&self, servers: &[&str]) -> Result<()> {
        write(&self.directory.join("lm_refuse"), servers.join("\n"))
    }

    /// Lets them succeed again.
    pub fn allow_migrations(&self) -> Result<()> {
        let path = self.directory.join("lm_refuse");
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(format!("remove {}", path.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// The guests that its hypervisor has: their ids, names and whether they run.
    pub fn guests(&self) -> Vec<(String, String, bool)> {
        let text = std::fs::read_to_string(self.directory.join("guests.json")).unwrap_or_default();
        let guests: Value = serde_json::from_str(&text).unwrap_or_default();
        let guest = |(id, guest): (&String, &Value)| {
            (id.clone(), guest[0].as_str().unwrap_or_default().to_owned(), guest[1] == 1)
        };
        guests.as_object().into_iter().flatten().map(guest).collect()
    }
}
