//! How a drain goes: bars in the live table, lines anywhere else, and its end.

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc};

use cobalt_core::{
    api::{Condition, Eviction, EvictionStatus, Hypervisor, condition_types, reasons},
    ids::HostName,
};

use super::{DemoError, Story, count};

impl Story<'_> {
    /// Waits until the host is empty, or cannot be.
    pub(super) async fn drained(&self, host: &HostName) -> Result<Arc<Hypervisor>, DemoError> {
        let mut steps = Steps::default();
        self.seen
            .until(format!("Hypervisor {host} to be drained, or to say why not"), |seen| {
                let eviction = seen.eviction(host.as_str());
                // A live table has bars instead.
                if !self.narrator.look().live
                    && let Some(line) = eviction.as_deref().and_then(|eviction| steps.line(eviction))
                    && let Err(error) = self.narrator.line(&line)
                {
                    return Some(Err(error.into()));
                }
                // The two are watched apart: the story goes on when both have come to the end.
                let told = eviction.is_none_or(|eviction| is_over(eviction.condition(condition_types::EVICTING)));
                let over = |found: &Arc<Hypervisor>| is_over(found.condition(condition_types::EVICTING));
                seen.get(host.as_str()).filter(|found| told && over(found)).map(Ok)
            })
            .await?
    }
}

fn is_over(evicting: Option<&Condition>) -> bool {
    evicting.is_some_and(|condition| {
        condition.is_false() || [reasons::BLOCKED, reasons::FAILED].contains(&condition.reason.as_str())
    })
}

/// How many servers have left, and of how many; `None` where there is nothing to move, or nobody has said so.
fn moved(eviction: &Eviction) -> Option<(usize, usize)> {
    let status = eviction.status.as_ref()?;
    let left = status.outstanding_instances.as_ref()?.len();
    let all = status.instances().len().max(left);
    (all > 0).then_some((all - left, all))
}

/// `hv-000 ██████░░░░░░ 3 of 6 servers moved`, for every drain that is under way.
pub(in super::super) fn progress(evictions: &[Arc<Eviction>]) -> String {
    const WIDTH: usize = 24;
    let mut text = String::new();
    for eviction in evictions {
        let Some((done, all)) = moved(eviction).filter(|(done, all)| done < all) else { continue };
        let filled = done * WIDTH / all;
        let bar = format!("{}{}", "█".repeat(filled), "░".repeat(WIDTH - filled));
        // Writing to a String does not fail.
        let _ = writeln!(text, "  {} {bar} {done} of {} moved", eviction.spec.hypervisor, count(all, "server"));
    }
    text
}

/// The steps of one drain that have been told: its beginning, and each quarter of its servers.
#[derive(Debug, Default)]
struct Steps {
    told: Option<usize>,
}

impl Steps {
    /// The line for a step that was not told yet.
    fn line(&mut self, eviction: &Eviction) -> Option<String> {
        let (done, all) = moved(eviction)?;
        let quarter = done * 4 / all;
        if self.told.is_some_and(|told| quarter <= told) {
            return None;
        }
        self.told = Some(quarter);
        Some(format!("{}: {done} of {} moved", eviction.spec.hypervisor, count(all, "server")))
    }
}

/// Where the servers of a drained host went.
pub(super) fn targets(status: &EvictionStatus) -> String {
    let moved = status.instances().iter().filter_map(|instance| instance.target.as_deref());
    let (servers, hosts) = (moved.clone().count(), moved.collect::<BTreeSet<_>>());
    if servers == 0 {
        return "There was nothing to move.".to_owned();
    }
    format!("{} went to {}.", count(servers, "server"), hosts.into_iter().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use cobalt_core::api::{EvictedInstance, EvictionSpec};

    use super::*;

    /// A drain of `all` servers of which `left` are still there.
    fn drain(host: &str, all: usize, left: usize) -> Eviction {
        let spec = EvictionSpec { hypervisor: host.to_owned(), ..EvictionSpec::default() };
        let status = EvictionStatus {
            instances: Some(vec![EvictedInstance::default(); all]),
            outstanding_instances: Some((0..left).map(|id| id.to_string()).collect()),
            ..EvictionStatus::default()
        };
        Eviction { status: Some(status), ..Eviction::new(host, spec) }
    }

    #[test]
    fn a_bar_is_as_full_as_the_drain_is_far() {
        let bar = |all, left| progress(&[Arc::new(drain("hv-0", all, left))]);
        assert_eq!(bar(6, 6), format!("  hv-0 {} 0 of 6 servers moved\n", "░".repeat(24)));
        assert_eq!(bar(6, 3), format!("  hv-0 {}{} 3 of 6 servers moved\n", "█".repeat(12), "░".repeat(12)));
        assert_eq!(bar(7, 1), format!("  hv-0 {}{} 6 of 7 servers moved\n", "█".repeat(20), "░".repeat(4)));
        assert_eq!(bar(1, 1), format!("  hv-0 {} 0 of 1 server moved\n", "░".repeat(24)));
    }

    #[test]
    fn only_drains_under_way_have_a_bar() {
        let unsaid = Eviction::new("hv-0", EvictionSpec::default());
        let all = [unsaid, drain("hv-1", 0, 0), drain("hv-2", 4, 0), drain("hv-3", 4, 2), drain("hv-4", 2, 1)];
        let text = progress(&all.map(Arc::new));
        let hosts: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(hosts, ["hv-3", "hv-4"], "{text}");
    }

    #[test]
    fn of_more_servers_than_are_listed_those_that_are_left_count() {
        let mut long = drain("hv-0", 2, 5);
        assert_eq!(moved(&long), Some((0, 5)));
        long.status = long.status.map(|status| EvictionStatus { outstanding_instances: None, ..status });
        assert_eq!(moved(&long), None, "nobody has said how many are left");
    }

    #[test]
    fn a_line_is_told_at_the_beginning_and_at_each_quarter() {
        let mut steps = Steps::default();
        assert_eq!(steps.line(&drain("hv-0", 0, 0)), None, "nothing to move");
        let told: Vec<_> = (0..=8).rev().filter_map(|left| steps.line(&drain("hv-0", 8, left))).collect();
        assert_eq!(told, [0, 2, 4, 6, 8].map(|done| format!("hv-0: {done} of 8 servers moved")));
        let mut steps = Steps::default();
        assert!(steps.line(&drain("hv-0", 3, 1)).is_some());
        assert_eq!(steps.line(&drain("hv-0", 3, 1)), None, "the same again");
        assert_eq!(steps.line(&drain("hv-0", 3, 0)).as_deref(), Some("hv-0: 3 of 3 servers moved"));
    }
}
