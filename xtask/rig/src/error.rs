//! What can go wrong.

use std::path::Path;

/// The result of a step of the rig.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a rig does not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program could not be started, or a file not be touched.
    #[error("cannot {doing}")]
    Io {
        /// What was to be done.
        doing: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A program ran and failed.
    #[error("`{command}` failed: {said}")]
    Failed {
        /// The command line.
        command: String,
        /// The last thing it said.
        said: String,
    },
    /// Something did not happen in time.
    #[error("{what} within {seconds} s")]
    Late {
        /// What did not happen.
        what: String,
        /// The limit.
        seconds: u64,
    },
    /// All networks that rigs use are taken.
    #[error("no free network for a rig: {claimed} are claimed below {base}")]
    Full {
        /// How many are in use.
        claimed: usize,
        /// Where they are recorded.
        base: String,
    },
    /// A certificate could not be made.
    #[error("cannot make the certificate of {subject}")]
    Certificate {
        /// Whose.
        subject: String,
        /// What rcgen said.
        #[source]
        source: rcgen::Error,
    },
}

impl Error {
    /// A stable word for the kind of failure.
    pub fn category(&self) -> &'static str {
        match self {
            Error::Io { .. } => "io",
            Error::Failed { .. } => "failed",
            Error::Late { .. } => "late",
            Error::Full { .. } => "full",
            Error::Certificate { .. } => "certificate",
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::Late { .. } | Error::Full { .. })
    }

    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let doing = doing.into();
        move |source| Error::Io { doing, source }
    }
}

/// `std::fs::write` with an error that names the file.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    std::fs::write(path, content).map_err(Error::io(format!("write {}", path.display())))
}

/// `std::fs::create_dir_all` with an error that names the directory.
pub(crate) fn create(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(Error::io(format!("make {}", path.display())))
}
