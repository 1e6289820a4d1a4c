//! Where the two kubectl are.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kubectl of a release, or `None` after telling why the test cannot run.
pub(crate) fn kubectl(test: &str, release: &str) -> Option<PathBuf> {
    let found = find(release);
    if let Err(reason) = &found {
        let ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(!ci, "on CI nothing may be skipped: {reason}");
        // Past the capture of the test harness: a skip must be seen.
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    }
    found.ok()
}

fn find(release: &str) -> Result<PathBuf, String> {
    // Cargo's directory for integration tests lies directly below the target directory.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap_or(Path::new("target"));
    let own = target.join("tools").join(format!("kubectl-{release}/usr/bin/kubectl"));
    let candidates = [own.clone(), PathBuf::from("/usr/bin/kubectl")];
    let found = candidates.into_iter().find(|candidate| {
        let output = Command::new(candidate).args(["version", "--client", "--output=json"]).output();
        output.is_ok_and(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.contains(&format!("\"gitVersion\": \"v{release}."))
        })
    });
    found.ok_or_else(|| format!("there is no kubectl {release} at {} (cargo xtask test puts it there)", own.display()))
}
