//! OpenStack from PyPI in an environment below the target directory: nothing of the system is changed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{process, workspace};

/// Everything, with exact versions.
const REQUIREMENTS: &str = include_str!("../rig/src/openstack/python/requirements.txt");
/// The installer: one that needs half a minute where pip needs five.
const INSTALLER: &str = "uv==0.13.8";
/// A line may fail.
const ATTEMPTS: usize = 3;
/// A hundred megabytes over a slow line.
const LIMIT: Duration = Duration::from_secs(600);

/// Brings what is not there yet. Without it the tests that need it are skipped and say so.
pub(crate) fn prepare() {
    let place = workspace::target().join("tools/openstack");
    if is_complete(&place) {
        return;
    }
    println!("== preparing: OpenStack from PyPI into {}", place.display());
    for attempt in 1..=ATTEMPTS {
        match make(&place) {
            Ok(()) => return,
            Err(error) => println!("   not available (attempt {attempt} of {ATTEMPTS}): {error:#}"),
        }
    }
}

/// The list lies there once all of it is installed.
fn is_complete(place: &Path) -> bool {
    fs::read_to_string(place.join("requirements.txt")).is_ok_and(|text| text == REQUIREMENTS)
}

fn make(place: &Path) -> Result<()> {
    let parent = place.parent().context("the target directory has no parent")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    // An environment knows its own path, so it is made in its place; a lock keeps a second one away meanwhile.
    let lock = fs::File::create(place.with_extension("lock")).context("cannot make a lock")?;
    lock.lock().context("cannot lock")?;
    if is_complete(place) {
        return Ok(());
    }
    if place.exists() {
        fs::remove_dir_all(place).context("cannot remove the old environment")?;
    }
    let mut command = Command::new(interpreter());
    command.args(["-m", "venv"]).arg(place);
    run(command)?;
    let python = place.join("bin/python");
    let mut command = Command::new(&python);
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", INSTALLER]);
    run(command)?;
    let list = place.with_extension("txt");
    fs::write(&list, REQUIREMENTS).context("cannot write the list of packages")?;
    let mut command = Command::new(&python);
    command.args(["-m", "uv", "pip", "install", "--quiet", "--python"]).arg(&python).arg("--requirement").arg(&list);
    run(command)?;
    fs::rename(&list, place.join("requirements.txt")).context("cannot finish the environment")
}

/// The system's Python, for which there are packages; another one where the system has none.
fn interpreter() -> &'static str {
    if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" }
}

fn run(command: Command) -> Result<()> {
    let shown = format!("{command:?}");
    let finished = process::run(command, LIMIT, |_| {}, |_| {})?;
    if !finished.success() {
        bail!("{shown} failed: {}", finished.lines.last().map_or("it said nothing", String::as_str));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_has_one_exact_version() {
        let lines: Vec<&str> = REQUIREMENTS.lines().collect();
        assert!(lines.len() > 100);
        for line in lines {
            assert!(
                line.split_once("==").is_some_and(|(name, version)| !name.is_empty() && !version.is_empty()),
                "{line}"
            );
        }
    }

    #[test]
    fn an_environment_without_its_list_is_not_complete() {
        assert!(!is_complete(Path::new("/nowhere/at/all")));
    }
}
