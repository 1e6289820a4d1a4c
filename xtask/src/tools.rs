//! Programs of other Debian releases, and a kernel for guests, unpacked below the target directory: nothing of the
//! system is changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::{process, workspace};

/// A package that is unpacked instead of installed.
struct Tool {
    /// Directory below `tools`.
    name: &'static str,
    suite: &'static str,
    package: &'static str,
    brings: Brings,
}

/// What is wanted of a package.
#[derive(Clone, Copy)]
enum Brings {
    /// All of it, for the sake of one program at this path within.
    Program(&'static str),
    /// Of the package that this one stands for, the kernel and some drivers.
    Kernel(&'static [&'static str]),
}

const TOOLS: &[Tool] = &[
    // The clients the simulated API server is tested with.
    kubectl("kubectl-1.20", "bookworm", "kubernetes-client"),
    kubectl("kubectl-1.32", "trixie", "kubectl"),
    // What guests boot on hosts with a real libvirtd.
    Tool {
        name: "guest-kernel",
        suite: "bookworm",
        package: "linux-image-amd64",
        brings: Brings::Kernel(&[
            "virtio_ring",
            "virtio",
            "virtio_pci_legacy_dev",
            "virtio_pci_modern_dev",
            "virtio_pci",
            "virtio_blk",
            "watchdog",
            "i6300esb",
            "pvpanic",
            "pvpanic-mmio",
            "button",
        ]),
    },
];

const fn kubectl(name: &'static str, suite: &'static str, package: &'static str) -> Tool {
    Tool { name, suite, package, brings: Brings::Program("usr/bin/kubectl") }
}

impl Tool {
    /// The file by which one sees that the tool is there.
    fn proof(&self) -> &'static str {
        match self.brings {
            Brings::Program(path) => path,
            Brings::Kernel(_) => KERNEL,
        }
    }
}

/// The kernel, in its place.
const KERNEL: &str = "vmlinuz";

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// A line may fail; a mirror that is not there stays away.
const ATTEMPTS: usize = 3;
/// A package list of ten megabytes and a package of as many, over a slow line.
const LIMIT: Duration = Duration::from_secs(300);

/// Brings what is not there yet. Without it the tests that need it are skipped and say so; that is no reason not
/// to run the others.
pub(crate) fn prepare() {
    for tool in TOOLS {
        let place = workspace::target().join("tools").join(tool.name);
        if place.join(tool.proof()).is_file() {
            continue;
        }
        println!("== preparing: {} of {} into {}", tool.package, tool.suite, place.display());
        for attempt in 1..=ATTEMPTS {
            match fetch(tool, &place) {
                Ok(()) => break,
                Err(error) => println!("   not available (attempt {attempt} of {ATTEMPTS}): {error:#}"),
            }
        }
    }
}

fn fetch(tool: &Tool, place: &Path) -> Result<()> {
    // Beside the others and moved at the end, so that half a package is never taken for one.
    let work = place.with_extension(format!("{}.part", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let outcome = download(tool, &work).and_then(|unpacked| {
        let _ = fs::remove_dir_all(place);
        fs::rename(&unpacked, place).with_context(|| format!("cannot move {} to its place", tool.name))
    });
    let _ = fs::remove_dir_all(&work);
    outcome
}

fn download(tool: &Tool, work: &Path) -> Result<PathBuf> {
    for directory in ["lists/partial", "cache/archives/partial", "empty", "download"] {
        fs::create_dir_all(work.join(directory)).with_context(|| format!("cannot make {directory}"))?;
    }
    let configuration = work.join("apt.conf");
    let source = format!("deb [signed-by={KEYRING}] {} {} main\n", mirror()?, tool.suite);
    fs::write(work.join("sources.list"), source).context("cannot write the source list")?;
    fs::write(work.join("status"), "").context("cannot write an empty status")?;
    fs::write(&configuration, apt(work)).context("cannot write the configuration of apt")?;
    let downloads = work.join("download");
    let apt = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).env("APT_CONFIG", &configuration).current_dir(&downloads);
        run(command)
    };
    apt("apt-get", &["update"])?;
    let package = match tool.brings {
        Brings::Program(_) => tool.package.to_owned(),
        Brings::Kernel(_) => stands_for(&apt("apt-cache", &["depends", tool.package])?)
            .with_context(|| format!("{} stands for no package", tool.package))?,
    };
    apt("apt-get", &["download", &package])?;
    let mut found = fs::read_dir(&downloads).context("cannot read the downloads")?.filter_map(Result::ok);
    let file = found.next().with_context(|| format!("apt-get downloaded no {package}"))?.path();
    let mut unpacked = work.join("unpacked");
    let mut command = Command::new("dpkg-deb");
    command.arg("-x").arg(&file).arg(&unpacked);
    run(command)?;
    if let Brings::Kernel(modules) = tool.brings {
        let kept = work.join("kept");
        keep_kernel(&unpacked, modules, &kept)?;
        unpacked = kept;
    }
    ensure!(unpacked.join(tool.proof()).is_file(), "{package} has no {}", tool.proof());
    Ok(unpacked)
}

/// The first package that a package without content depends on.
fn stands_for(depends: &str) -> Option<String> {
    depends.lines().find_map(|line| line.trim().strip_prefix("Depends: ")).map(str::to_owned)
}

/// Copies the kernel and the named drivers out of half a gigabyte.
fn keep_kernel(unpacked: &Path, modules: &[&str], kept: &Path) -> Result<()> {
    fs::create_dir_all(kept.join("modules")).context("cannot make the directory of the kernel")?;
    let wanted = |name: &str| {
        let module = name.strip_suffix(".ko").filter(|module| modules.contains(module));
        let kernel = name.starts_with("vmlinuz-").then(|| KERNEL.to_owned());
        kernel.or_else(|| module.map(|module| format!("modules/{module}.ko")))
    };
    let mut found = 0;
    let mut directories = vec![unpacked.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            } else if let Some(name) = entry.file_name().to_str().and_then(wanted) {
                fs::copy(entry.path(), kept.join(&name)).with_context(|| format!("cannot copy {name}"))?;
                found += 1;
            }
        }
    }
    ensure!(found == modules.len() + 1, "the kernel comes with {found} of {} files", modules.len() + 1);
    Ok(())
}

/// The mirror this machine gets its own packages from: it has the other suites too.
fn mirror() -> Result<String> {
    let mut texts = vec![fs::read_to_string("/etc/apt/sources.list").unwrap_or_default()];
    for entry in fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten() {
        texts.push(fs::read_to_string(entry.path()).unwrap_or_default());
    }
    texts.iter().find_map(|text| mirror_in(text)).context("no source of Debian packages is configured for apt")
}

/// The first address of Debian's own archive in a source list of either form.
fn mirror_in(text: &str) -> Option<String> {
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with("deb ") || line.starts_with("URIs:"));
    let addresses = lines.flat_map(str::split_whitespace).filter(|word| word.contains("://"));
    addresses
        .map(|address| address.trim_end_matches('/'))
        .find(|address| address.ends_with("/debian"))
        .map(str::to_owned)
}

/// A configuration that keeps apt away from the system's lists, cache and packages.
fn apt(work: &Path) -> String {
    let at = |name: &str| work.join(name).display().to_string();
    format!(
        "Dir::Etc::sourcelist \"{}\";\nDir::Etc::sourceparts \"{}\";\nDir::Etc::preferencesparts \"{}\";\n\
         Dir::State::lists \"{}\";\nDir::State::status \"{}\";\nDir::Cache \"{}\";\n\
         APT::Sandbox::User \"\";\nAcquire::Languages \"none\";\nAcquire::http::Timeout \"30\";\nAcquire::Retries \"2\";\n",
        at("sources.list"),
        at("empty"),
        at("empty"),
        at("lists"),
        at("status"),
        at("cache"),
    )
}

fn run(command: Command) -> Result<String> {
    let shown = format!("{command:?}");
    let finished = process::run(command, LIMIT, |_| {}, |_| {})?;
    if !finished.success() {
        let last = finished.lines.last().map_or("it said nothing", String::as_str);
        bail!("{shown} failed: {last}");
    }
    Ok(finished.lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_one_the_machine_uses() {
        let old = "# a comment\ndeb http://other.example/ubuntu noble main\ndeb [arch=amd64] http://mirror.example/debian/ bookworm main\n";
        assert_eq!(mirror_in(old).as_deref(), Some("http://mirror.example/debian"));
        let new = "Types: deb\nURIs: http://mirror.example/debian-security\n\nTypes: deb\nURIs: http://mirror.example/debian\n";
        assert_eq!(mirror_in(new).as_deref(), Some("http://mirror.example/debian"));
        assert_eq!(mirror_in("deb http://other.example/ubuntu noble main"), None);
    }

    #[test]
    fn a_package_without_content_leads_to_the_one_with_it() {
        let said = "linux-image-amd64\n  Depends: linux-image-6.1.0-55-amd64\n  Recommends: apparmor\n";
        assert_eq!(stands_for(said).as_deref(), Some("linux-image-6.1.0-55-amd64"));
        assert_eq!(stands_for("linux-image-amd64\n"), None);
    }

    #[cfg(feature = "rigs")]
    #[test]
    fn the_drivers_that_guests_load_are_kept() {
        let kernels = TOOLS.iter().filter_map(|tool| match tool.brings {
            Brings::Kernel(modules) => Some(modules),
            Brings::Program(_) => None,
        });
        assert_eq!(kernels.collect::<Vec<_>>(), [cobalt_rig::Kernel::modules()]);
    }

    #[test]
    fn apt_is_kept_away_from_the_system() {
        let text = apt(Path::new("/somewhere"));
        for line in text.lines().filter(|line| line.starts_with("Dir::")) {
            assert!(line.contains("\"/somewhere/"), "{line}");
        }
    }
}
