//! What the tests need besides Rust, and how to get it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::tools;

/// A program that must be there.
struct Need {
    program: &'static str,
    /// The Debian package that brings it.
    package: &'static str,
    why: &'static str,
}

/// Everything the tests call. A rig that needs more adds its programs here.
const NEEDS: &[Need] = &[Need { program: "cc", package: "gcc", why: "links every program and compiles ring's C" }];

/// Makes sure that all of it is there: installs it when we may, and names exactly what is missing when we may not.
pub(crate) fn ensure() -> Result<()> {
    tools::prepare();
    let missing = missing(NEEDS, on_path);
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    if is_root() && on_path("apt-get") {
        println!("== preparing: apt-get install {}", packages.join(" "));
        install(&packages)?;
        return Ok(());
    }
    bail!(describe(&missing));
}

fn missing(needs: &'static [Need], there: impl Fn(&str) -> bool) -> Vec<&'static Need> {
    needs.iter().filter(|need| !there(need.program)).collect()
}

fn describe(missing: &[&Need]) -> String {
    let lines = missing.iter().map(|need| format!("\n  {} (it {})", need.program, need.why));
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let install = packages.join(" ");
    format!("missing on this machine:{}\nas root: apt-get install {install}", lines.collect::<String>())
}

fn install(packages: &[&str]) -> Result<()> {
    for arguments in [vec!["update"], [&["install", "--yes", "--no-install-recommends"], packages].concat()] {
        let mut command = Command::new("apt-get");
        command.args(&arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(std::process::Stdio::null());
        let status = command.status().context("cannot run apt-get")?;
        if !status.success() {
            bail!("apt-get {} failed", arguments.join(" "));
        }
    }
    Ok(())
}

pub(crate) fn on_path(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    // Our own entry in /proc belongs to the user we run as.
    Path::new("/proc/self").metadata().is_ok_and(|own| own.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        assert!(missing(NEEDS, |_| true).is_empty());
        let text = describe(&missing(NEEDS, |_| false));
        assert!(text.contains("cc (it links") && text.ends_with("apt-get install gcc"), "{text}");
    }
}
