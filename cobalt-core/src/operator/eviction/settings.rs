//! How hosts are drained: limits, times, and the arguments that set them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clap::{Args as ClapArgs, ValueEnum};

use crate::{
    nova::BlockMigration,
    runtime::{args::duration, queue::Backoff},
};

const HEADING: &str = "Draining";

/// How hosts are drained.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrainSettings {
    /// Moves at a time from one host.
    pub concurrency: usize,
    /// The same for hosts with a trait. Of several that match, the lowest counts.
    pub trait_concurrency: BTreeMap<String, usize>,
    /// Moves at a time to one host; 0 for no limit. With a limit, targets are chosen here instead of by the scheduler,
    /// which still has to agree.
    pub target_concurrency: usize,
    /// Moves at a time in all drains of this operator; 0 for no limit.
    pub region_concurrency: usize,
    /// Whether live migrations copy local disks.
    pub block_migration: BlockMigration,
    /// How long a move may take after it has begun. The time in Nova's queue does not count.
    pub timeout: Duration,
    /// How often a move is tried before the instance counts as blocked.
    pub attempts: u32,
    /// The pauses between the tries.
    pub retry: Backoff,
    /// The pause between the tries of an instance that is blocked.
    pub blocked_retry: Duration,
    /// How often to look while something moves.
    pub poll: Duration,
    /// How often to look while nothing does.
    pub idle_poll: Duration,
    /// How long a deleted Eviction may wait for the moves it has begun.
    pub release: Duration,
}

/// A move that was asked to stop is asked again after a pause between these, which grows with the time since.
const STOP_AGAIN: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(300)];

impl Default for DrainSettings {
    fn default() -> Self {
        Self {
            concurrency: 1,
            trait_concurrency: BTreeMap::new(),
            target_concurrency: 0,
            region_concurrency: 0,
            block_migration: BlockMigration::Auto,
            timeout: Duration::from_secs(3600),
            attempts: 3,
            retry: Backoff { first: Duration::from_secs(30), limit: Duration::from_secs(300) },
            blocked_retry: Duration::from_secs(600),
            poll: Duration::from_secs(5),
            idle_poll: Duration::from_secs(30),
            release: Duration::from_secs(120),
        }
    }
}

impl DrainSettings {
    /// Moves at a time from a host with these traits.
    ///
    /// ```
    /// use cobalt_core::operator::eviction::DrainSettings;
    ///
    /// let mut settings = DrainSettings::default();
    /// settings.concurrency = 4;
    /// settings.trait_concurrency = [("CUSTOM_SLOW".into(), 1), ("CUSTOM_NVME".into(), 8)].into();
    /// assert_eq!(settings.concurrency_for(&["CUSTOM_NVME".into()].into()), 8);
    /// assert_eq!(settings.concurrency_for(&["CUSTOM_NVME".into(), "CUSTOM_SLOW".into()].into()), 1);
    /// assert_eq!(settings.concurrency_for(&["HW_CPU_X86_AVX2".into()].into()), 4);
    /// ```
    pub fn concurrency_for(&self, traits: &BTreeSet<String>) -> usize {
        let matching = self.trait_concurrency.iter().filter(|(name, _)| traits.contains(*name));
        matching.map(|(_, limit)| *limit).min().unwrap_or(self.concurrency)
    }
}

/// The pause before a move is asked to stop once more that was first asked so long ago.
pub(super) fn stop_again(since: Duration) -> Duration {
    since.clamp(STOP_AGAIN[0], STOP_AGAIN[1])
}

/// Whether live migrations copy local disks, as a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BlockMigrationWord {
    /// Nova looks and decides
    #[default]
    Auto,
    /// Copy them
    Yes,
    /// Do not; an instance that has any cannot move while it runs
    No,
}

impl From<BlockMigrationWord> for BlockMigration {
    fn from(word: BlockMigrationWord) -> Self {
        match word {
            BlockMigrationWord::Auto => Self::Auto,
            BlockMigrationWord::Yes => Self::Yes,
            BlockMigrationWord::No => Self::No,
        }
    }
}

/// How hosts are drained, on the command line.
#[derive(ClapArgs, Clone, Debug)]
#[group(skip)]
pub struct DrainArgs {
    /// How many instances leave one host at a time
    #[arg(long, default_value = "1", value_name = "N", value_parser = at_least_one, help_heading = HEADING)]
    pub eviction_concurrency: usize,

    /// The same for hosts with a trait, as TRAIT=N; of several that match, the lowest counts
    #[arg(long, value_name = "TRAIT=N", value_parser = trait_limit, value_delimiter = ',', help_heading = HEADING)]
    pub eviction_trait_concurrency: Vec<(String, usize)>,

    /// How many instances go to one host at a time; 0 for no limit
    #[arg(long, default_value = "0", value_name = "N", help_heading = HEADING)]
    pub eviction_target_concurrency: usize,

    /// How many instances move at a time in the whole region; 0 for no limit
    #[arg(long, default_value = "0", value_name = "N", help_heading = HEADING)]
    pub eviction_region_concurrency: usize,

    /// Whether live migrations copy local disks
    #[arg(long, value_enum, default_value_t, value_name = "WORD", help_heading = HEADING)]
    pub eviction_block_migration: BlockMigrationWord,

    /// How long one instance may move before it is stopped and tried again. Nova's queue does not count
    #[arg(long, default_value = "1h", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub eviction_timeout: Duration,

    /// How often to try before an instance counts as blocked
    #[arg(long, default_value = "3", value_name = "N", help_heading = HEADING)]
    pub eviction_attempts: u32,

    /// Pause between the tries of an instance that is blocked
    #[arg(long, default_value = "10m", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub eviction_blocked_retry: Duration,

    /// How often to look at a host while something moves
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub eviction_poll_interval: Duration,

    /// How often to look at a host while nothing does
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub eviction_idle_poll_interval: Duration,

    /// How long an Eviction that is deleted may wait for the moves it has begun
    #[arg(long, default_value = "2m", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub eviction_release_timeout: Duration,
}

impl DrainArgs {
    /// The settings they describe.
    pub fn settings(&self) -> DrainSettings {
        DrainSettings {
            concurrency: self.eviction_concurrency,
            trait_concurrency: self.eviction_trait_concurrency.iter().cloned().collect(),
            target_concurrency: self.eviction_target_concurrency,
            region_concurrency: self.eviction_region_concurrency,
            block_migration: self.eviction_block_migration.into(),
            timeout: self.eviction_timeout,
            attempts: self.eviction_attempts.max(1),
            blocked_retry: self.eviction_blocked_retry,
            poll: self.eviction_poll_interval.max(Duration::from_secs(1)),
            idle_poll: self.eviction_idle_poll_interval.max(Duration::from_secs(1)),
            release: self.eviction_release_timeout,
            ..DrainSettings::default()
        }
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|limit| *limit > 0).ok_or_else(|| "wants a number of at least 1".to_owned())
}

fn trait_limit(text: &str) -> Result<(String, usize), String> {
    let (name, limit) = text.split_once('=').ok_or("wants TRAIT=N")?;
    if name.is_empty() {
        return Err("the trait has no name".to_owned());
    }
    Ok((name.to_owned(), at_least_one(limit)?))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        drain: DrainArgs,
    }

    fn parse(line: &[&str]) -> Option<DrainSettings> {
        let words = std::iter::once("operator").chain(line.iter().copied());
        Line::try_parse_from(words).ok().map(|line| line.drain.settings())
    }

    #[test]
    fn without_arguments_hosts_are_drained_one_by_one() {
        assert_eq!(parse(&[]), Some(DrainSettings::default()));
    }

    #[test]
    fn limits_by_trait_are_given_one_by_one_or_as_a_list() {
        let wanted: BTreeMap<String, usize> = [("CUSTOM_A".into(), 2), ("CUSTOM_B".into(), 3)].into();
        let list = parse(&["--eviction-trait-concurrency=CUSTOM_A=2,CUSTOM_B=3"]);
        assert_eq!(list.map(|settings| settings.trait_concurrency), Some(wanted.clone()));
        let each = ["--eviction-trait-concurrency", "CUSTOM_A=2", "--eviction-trait-concurrency", "CUSTOM_B=3"];
        assert_eq!(parse(&each).map(|settings| settings.trait_concurrency), Some(wanted));
        for bad in ["CUSTOM_A", "CUSTOM_A=0", "=2", "CUSTOM_A=many"] {
            assert!(parse(&["--eviction-trait-concurrency", bad]).is_none(), "{bad}");
        }
        assert!(parse(&["--eviction-concurrency=0"]).is_none());
    }
}
