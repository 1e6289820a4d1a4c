//! Where we are, and how to call cargo there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The top of the repository.
pub(crate) fn root() -> &'static Path {
    // xtask lies directly below it, and is always run from its own checkout.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Where cargo builds to, and where we keep logs and rigs.
pub(crate) fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The cargo that runs us, in the top directory.
pub(crate) fn cargo<I: IntoIterator<Item: AsRef<std::ffi::OsStr>>>(arguments: I) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root()).env("CARGO_TERM_COLOR", "never");
    command
}

/// `cargo metadata` with all features.
pub(crate) fn metadata() -> Result<Value> {
    let mut command = cargo(["metadata", "--format-version=1", "--all-features"]);
    let output = command.output().context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")
}
