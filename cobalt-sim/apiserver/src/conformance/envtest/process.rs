//! A child process with a log file, ended with its owner.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::EnvtestError;

pub(super) struct Process {
    program: PathBuf,
    log: PathBuf,
    child: Child,
}

impl Process {
    pub(super) fn start(program: &Path, arguments: &[String], directory: &Path) -> Result<Process, EnvtestError> {
        let name = program.file_name().map_or_else(|| "program".into(), |name| name.to_string_lossy().into_owned());
        let log = directory.join(format!("{name}.log"));
        let open = || File::options().create(true).append(true).open(&log);
        let files = open().and_then(|out| Ok((out, open()?)));
        let (out, err) = files.map_err(|source| EnvtestError::File { path: log.clone(), source })?;
        let child = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let child = child.map_err(|source| EnvtestError::Spawn { program: program.to_owned(), source })?;
        tracing::debug!(program = %program.display(), pid = child.id(), log = %log.display(), "started");
        Ok(Process { program: program.to_owned(), log, child })
    }

    /// An error with the end of the log, when the process has ended.
    pub(super) fn check_alive(&mut self) -> Result<(), EnvtestError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(_)) | Err(_) => Err(EnvtestError::Ended { program: self.program.clone(), log: self.last_words() }),
        }
    }

    fn last_words(&self) -> String {
        const LINES: usize = 12;
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The data is thrown away with the directory: there is nothing to end gracefully.
        let ended = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = ended {
            tracing::warn!(program = %self.program.display(), error = %error, "cannot end the process");
        }
    }
}

/// Whether `program --help` knows a word.
pub(super) fn help_mentions(program: &Path, word: &str) -> bool {
    let output = Command::new(program).arg("--help").stdin(Stdio::null()).output();
    output.is_ok_and(|output| {
        [output.stdout, output.stderr].iter().any(|text| String::from_utf8_lossy(text).contains(word))
    })
}
