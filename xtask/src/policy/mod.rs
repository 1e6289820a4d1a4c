//! The rules about dependencies: minimum Rust version, licences, duplicate versions, sources.
//!
//! `deny.toml` is the one place where the last three are written down; cargo-deny reads the same file. Each
//! check returns its complaints, none when all is well.

mod licence;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace;

/// What `deny.toml` says, as far as we check it ourselves.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    platforms: Vec<String>,
    licences: BTreeSet<String>,
    /// `name` or `name@version`.
    skips: BTreeSet<String>,
    registries: BTreeSet<String>,
}

impl Rules {
    pub(crate) fn load() -> Result<Rules> {
        let path = workspace::root().join("deny.toml");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Rules::parse(&text).with_context(|| format!("cannot understand {}", path.display()))
    }

    fn parse(text: &str) -> Result<Rules> {
        let table: toml::Table = text.parse()?;
        let list = |section: &str, key: &str| -> Result<Vec<toml::Value>> {
            let value = table.get(section).and_then(|section| section.get(key));
            let value = value.with_context(|| format!("[{section}] has no {key}"))?;
            Ok(value.as_array().with_context(|| format!("{section}.{key} is no list"))?.clone())
        };
        let texts = |section: &str, key: &str| -> Result<Vec<String>> {
            let text = |value: &toml::Value| value.as_str().map(str::to_owned);
            let texts: Option<Vec<String>> = list(section, key)?.iter().map(text).collect();
            texts.with_context(|| format!("{section}.{key} holds something else than texts"))
        };
        let skip = |value: &toml::Value| -> Result<String> {
            let name = value.get("crate").and_then(toml::Value::as_str);
            let name = name.context("an entry of bans.skip has no `crate`")?;
            let reason = value.get("reason").and_then(toml::Value::as_str);
            reason.with_context(|| format!("bans.skip of {name} gives no reason"))?;
            Ok(name.to_owned())
        };
        Ok(Rules {
            platforms: texts("graph", "targets")?,
            licences: texts("licenses", "allow")?.into_iter().collect(),
            skips: list("bans", "skip")?.iter().map(skip).collect::<Result<_>>()?,
            registries: texts("sources", "allow-registry")?.into_iter().collect(),
        })
    }
}

/// One package of the dependency tree.
#[derive(Clone, Debug)]
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    source: Option<String>,
    rust_version: Option<Version>,
    ours: bool,
    /// Compiled into programs of ours, not only into their tests.
    shipped: bool,
}

/// Everything cargo would compile for our platforms.
#[derive(Debug)]
pub(crate) struct Tree {
    packages: Vec<Package>,
}

/// Name and version.
type Key = (String, String);

impl Tree {
    /// `cargo metadata` knows licences and sources, but also lists optional crates that nobody switches on;
    /// `cargo tree` knows what is really compiled.
    pub(crate) fn load(rules: &Rules) -> Result<Tree> {
        let all = compiled(rules, "normal,build,dev")?;
        let shipped = compiled(rules, "normal,build")?;
        Tree::read(&workspace::metadata()?, &all, &shipped).context("cargo metadata has an unknown shape")
    }

    fn read(metadata: &Value, all: &BTreeSet<Key>, shipped: &BTreeSet<Key>) -> Option<Tree> {
        let members = metadata["workspace_members"].as_array()?;
        let package = |package: &Value| -> Option<Package> {
            let text = |key: &str| package[key].as_str().map(str::to_owned);
            let key = (text("name")?, text("version")?);
            Some(Package {
                shipped: shipped.contains(&key),
                name: key.0,
                version: key.1,
                licence: text("license"),
                source: text("source"),
                rust_version: package["rust_version"].as_str().and_then(Version::parse),
                ours: members.contains(&package["id"]),
            })
        };
        let packages: Vec<Package> = metadata["packages"].as_array()?.iter().map(package).collect::<Option<_>>()?;
        let used = |package: &Package| all.contains(&(package.name.clone(), package.version.clone()));
        Some(Tree { packages: packages.into_iter().filter(used).collect() })
    }
}

fn compiled(rules: &Rules, edges: &str) -> Result<BTreeSet<Key>> {
    let mut command = workspace::cargo(["tree", "--workspace", "--all-features", "--prefix=none", "--edges", edges]);
    for platform in &rules.platforms {
        command.args(["--target", platform]);
    }
    let output = command.output().context("cannot run cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(keys(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads lines such as `syn v3.0.9 (proc-macro) (*)`.
fn keys(tree: &str) -> BTreeSet<Key> {
    let key = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        Some((name.to_owned(), version.to_owned()))
    };
    tree.lines().filter_map(key).collect()
}

/// A Rust version, `1.89` or `1.89.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32, u32);

impl Version {
    fn parse(text: &str) -> Option<Version> {
        let mut parts = text.split('.').map(str::parse);
        let mut next = || parts.next().transpose().ok().map(Option::unwrap_or_default);
        Some(Version(next()?, next()?, next()?))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)?;
        if self.2 > 0 { write!(f, ".{}", self.2) } else { Ok(()) }
    }
}

/// Ours is the highest `rust-version` among our dependencies: no less, or it would not compile; no more, or
/// somebody raised it for a feature we merely like.
pub(crate) fn rust_version(tree: &Tree) -> Vec<String> {
    let ours: BTreeSet<Option<Version>> =
        tree.packages.iter().filter(|package| package.ours).map(|package| package.rust_version).collect();
    let [Some(ours)] = ours.into_iter().collect::<Vec<_>>()[..] else {
        return vec!["the packages of the workspace do not share one rust-version".to_owned()];
    };
    let foreign = tree.packages.iter().filter(|package| !package.ours && package.shipped);
    let highest =
        foreign.filter_map(|package| Some((package.rust_version?, package))).max_by_key(|(version, _)| *version);
    match highest {
        Some((needed, package)) if needed != ours => {
            let Package { name, version, .. } = package;
            vec![format!("rust-version is {ours}, but the highest of the dependencies is {needed} ({name} {version})")]
        }
        _ => Vec::new(),
    }
}

pub(crate) fn licences(tree: &Tree, rules: &Rules) -> Vec<String> {
    let complaint = |package: &Package| {
        let Package { name, version, .. } = package;
        match &package.licence {
            None => Some(format!("{name} {version} names no licence")),
            Some(text) => match licence::allowed(text, &rules.licences) {
                Some(true) => None,
                Some(false) => Some(format!("{name} {version}: {text} is not allowed by deny.toml")),
                None => Some(format!("{name} {version}: {text} is no licence expression")),
            },
        }
    };
    tree.packages.iter().filter_map(complaint).collect()
}

/// Two versions of one crate cost compile time and size, and their types do not match.
pub(crate) fn duplicates(tree: &Tree, rules: &Rules) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in &tree.packages {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    let mut complaints = Vec::new();
    for (name, versions) in &versions {
        let skipped =
            |version: &&&str| rules.skips.contains(&format!("{name}@{version}")) || rules.skips.contains(*name);
        let left: Vec<&str> = versions.iter().filter(|version| !skipped(version)).copied().collect();
        if left.len() > 1 {
            complaints.push(format!("{name} is in the tree as {}; see `cargo tree -d`", left.join(" and ")));
        }
    }
    for skip in &rules.skips {
        let (name, version) = skip.split_once('@').unwrap_or((skip, ""));
        let needed =
            versions.get(name).is_some_and(|there| there.len() > 1 && (version.is_empty() || there.contains(version)));
        if !needed {
            complaints.push(format!("deny.toml skips {skip}, which is no duplicate any more"));
        }
    }
    complaints
}

pub(crate) fn sources(tree: &Tree, rules: &Rules) -> Vec<String> {
    let complaint = |package: &Package| {
        let Package { name, version, source, ours, .. } = package;
        let fine = match source {
            // Only our own packages lie in the tree.
            None => *ours,
            Some(source) => {
                source.strip_prefix("registry+").is_some_and(|registry| rules.registries.contains(registry))
            }
        };
        let from = source.as_deref().unwrap_or("a path");
        (!fine).then(|| format!("{name} {version} comes from {from}"))
    };
    tree.packages.iter().filter_map(complaint).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RULES: &str = r#"
        [graph]
        targets = ["x86_64-unknown-linux-gnu"]
        [licenses]
        allow = ["MIT", "Apache-2.0"]
        [bans]
        skip = [{ crate = "old@1.0.0", reason = "because" }]
        [sources]
        allow-registry = ["https://example.com/index"]
    "#;

    fn rules() -> Rules {
        Rules::parse(RULES).expect("rules")
    }

    fn package(name: &str, version: &str) -> Package {
        Package {
            name: name.into(),
            version: version.into(),
            licence: Some("MIT".into()),
            source: Some("registry+https://example.com/index".into()),
            rust_version: None,
            ours: false,
            shipped: true,
        }
    }

    fn ours(rust: &str) -> Package {
        Package { ours: true, source: None, rust_version: Version::parse(rust), ..package("ours", "0.1.0") }
    }

    fn needing(rust: &str) -> Package {
        Package { rust_version: Version::parse(rust), ..package("theirs", "1.0.0") }
    }

    #[test]
    fn the_rust_version_is_exactly_what_dependencies_need() {
        let check = |packages| rust_version(&Tree { packages });
        assert!(check(vec![ours("1.89"), needing("1.89.0"), needing("1.60")]).is_empty());
        assert_eq!(check(vec![ours("1.89"), needing("1.90")]).len(), 1);
        assert_eq!(check(vec![ours("1.89"), needing("1.88")]).len(), 1, "raised without need");
        assert_eq!(check(vec![ours("1.89"), ours("1.88"), needing("1.89")]).len(), 1, "two of ours differ");
        let in_tests = Package { shipped: false, ..needing("1.95") };
        assert!(check(vec![ours("1.89"), needing("1.89"), in_tests]).is_empty());
    }

    #[test]
    fn a_duplicate_is_named_unless_skipped_with_a_reason() {
        let check = |packages| duplicates(&Tree { packages }, &rules());
        let old = [package("old", "1.0.0"), package("old", "2.0.0")];
        assert!(check(old.to_vec()).is_empty());
        let complaints = check([&old[..], &[package("x", "1.0.0"), package("x", "2.0.0")]].concat());
        assert_eq!(complaints, ["x is in the tree as 1.0.0 and 2.0.0; see `cargo tree -d`"]);
        assert_eq!(check(vec![package("old", "2.0.0")]).len(), 1, "a skip that nothing needs");
        assert!(Rules::parse(&RULES.replace(", reason = \"because\"", "")).is_err());
    }

    #[test]
    fn licences_and_sources_outside_the_lists_are_named() {
        let odd = Package { licence: Some("GPL-3.0".into()), ..package("odd", "1.0.0") };
        let none = Package { licence: None, ..package("none", "1.0.0") };
        let git = Package { source: Some("git+https://example.com/x".into()), ..package("git", "1.0.0") };
        let path = Package { source: None, ..package("path", "1.0.0") };
        let tree = Tree { packages: vec![odd, none, git, path, ours("1.89")] };
        assert_eq!(licences(&tree, &rules()).len(), 2);
        assert_eq!(sources(&tree, &rules()).len(), 2);
    }

    #[test]
    fn only_what_is_compiled_counts_and_dev_dependencies_are_told_apart() {
        let metadata = json!({
            "workspace_members": ["path+a"],
            "packages": [
                {"id": "path+a", "name": "a", "version": "1.0.0"},
                {"id": "b1", "name": "b", "version": "1.0.0"},
                {"id": "b2", "name": "b", "version": "2.0.0"},
                {"id": "c", "name": "c", "version": "1.0.0"},
            ],
        });
        let all = keys("a v1.0.0 (/src/a)\nb v1.0.0 (*)\n\nc v1.0.0 (proc-macro)\n[dev-dependencies]\n");
        let shipped = keys("a v1.0.0 (/src/a)\nb v1.0.0\n");
        let tree = Tree::read(&metadata, &all, &shipped).expect("a tree");
        let seen: Vec<(&str, &str, bool, bool)> =
            tree.packages.iter().map(|it| (&*it.name, &*it.version, it.ours, it.shipped)).collect();
        assert_eq!(seen, [("a", "1.0.0", true, true), ("b", "1.0.0", false, true), ("c", "1.0.0", false, false)]);
    }
}
