//! `version`, `coverage/show` and `memory/show`, which all daemons have.

use std::collections::BTreeMap;

use super::lines;

/// Names kept, at most: the sets are open, the daemons' own have some hundred.
const MAX_NAMES: usize = 4096;

/// Reads `version`: `ovs-vswitchd (Open vSwitch) 3.1.0` is `3.1.0`.
pub fn version(text: &str) -> Option<String> {
    let words = text.lines().next()?.split_whitespace();
    words.rev().find(|word| word.starts_with(|first: char| first.is_ascii_digit())).map(str::to_owned)
}

/// Reads `coverage/show`: events since the start, by name. What never happened is not there.
pub fn coverage(text: &str) -> BTreeMap<String, u64> {
    let total = |line: &str| {
        let (name, _) = line.split_once(char::is_whitespace)?;
        let (_, total) = line.rsplit_once("total:")?;
        Some((name.to_owned(), total.trim().parse().ok()?))
    };
    lines(text).filter_map(total).take(MAX_NAMES).collect()
}

/// Reads `memory/show`: `handlers:1 udpif keys:19`. Names may have spaces.
pub fn memory(text: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in lines(text) {
        let mut rest = line.trim_start();
        while let Some((name, after)) = rest.split_once(':') {
            let digits = after.len() - after.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
            if let Ok(count) = after[..digits].parse() {
                counts.insert(name.trim().to_owned(), count);
            }
            rest = after[digits..].trim_start();
            if counts.len() >= MAX_NAMES {
                return counts;
            }
        }
    }
    counts
}
