//! `dpif-netdev/pmd-stats-show`, `pmd-rxq-show` and `pmd-perf-show`: what the threads that forward packets in userspace
//! have done, and for whom.

use std::time::Duration;

use cobalt_core::ovs::{PmdCounters, ReceiveQueue};

use super::{indent, lines, pair};

/// Reads `dpif-netdev/pmd-stats-show`, `dpif-netdev/pmd-rxq-show` and `dpif-netdev/pmd-perf-show`: any of them, or several
/// one after the other. The threads are in the order in which they are named first. A switch with the kernel's datapath
/// has none.
pub fn pmds(text: &str) -> Vec<PmdCounters> {
    let mut threads: Vec<PmdCounters> = Vec::new();
    let mut current = None;
    for line in lines(text) {
        if let Some(named) = thread(line) {
            let known = threads.iter().position(|known| (&known.thread, known.numa) == (&named.thread, named.numa));
            current = Some(known.unwrap_or(threads.len()));
            threads.extend(known.is_none().then_some(named));
        } else if let (Some((name, value)), Some(thread)) = (pair(line), current.and_then(|at| threads.get_mut(at)))
            && indent(line) > 0
        {
            note(thread, name, value);
        }
    }
    threads
}

fn note(thread: &mut PmdCounters, name: &str, value: &str) {
    // Behind a number may be its share of the whole, or its unit.
    let count = value.split_whitespace().next().and_then(|count| count.parse().ok());
    let counter = match name {
        "packets received" => &mut thread.received,
        "packet recirculations" => &mut thread.recirculated,
        "emc hits" => &mut thread.emc_hits,
        "smc hits" => &mut thread.smc_hits,
        "megaflow hits" => &mut thread.megaflow_hits,
        "miss with success upcall" => &mut thread.upcalls,
        "miss with failed upcall" => &mut thread.failed_upcalls,
        "idle cycles" => &mut thread.idle_cycles,
        "processing cycles" => &mut thread.busy_cycles,
        "- idle iterations" => &mut thread.idle_iterations,
        "- busy iterations" => &mut thread.busy_iterations,
        "- sleep iterations" => &mut thread.sleep_iterations,
        "overhead" => &mut thread.overhead_percent,
        "Sleep time (us)" => {
            thread.slept = count.map(Duration::from_micros);
            return;
        }
        "isolated" => {
            thread.isolated = value.parse().ok();
            return;
        }
        "port" => {
            thread.queues.extend(queue(value));
            return;
        }
        _ => return,
    };
    if count.is_some() {
        *counter = count;
    }
}

/// `p1                queue-id:  1 (enabled)   pmd usage:  3 %`, or `NOT AVAIL` for the last.
fn queue(text: &str) -> Option<ReceiveQueue> {
    let (interface, rest) = text.split_once("queue-id:")?;
    let (rest, usage) = rest.split_once("pmd usage:").unwrap_or((rest, ""));
    Some(ReceiveQueue {
        interface: interface.trim().to_owned(),
        queue: rest.split_whitespace().next()?.parse().ok()?,
        enabled: !rest.contains("disabled"),
        usage_percent: usage.split_whitespace().next().and_then(|percent| percent.parse().ok()),
    })
}

/// `pmd thread numa_id 0 core_id 3:` or `main thread:`.
fn thread(line: &str) -> Option<PmdCounters> {
    let line = line.strip_suffix(':').filter(|line| indent(line) == 0)?;
    let (kind, rest) = line.split_once(" thread")?;
    let after = |word: &str| {
        let mut words = rest.split_whitespace().skip_while(|found| *found != word);
        words.nth(1).and_then(|number| number.parse().ok())
    };
    let core: Option<u32> = after("core_id");
    let name = core.map_or_else(|| kind.to_owned(), |core| core.to_string());
    Some(PmdCounters { thread: name, numa: after("numa_id"), ..PmdCounters::default() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TEXT: &str = "pmd thread numa_id 0 core_id 3:\n  packets received: 100\n  packet recirculations: 7\n\
        \x20 avg. datapath passes per packet: 1.07\n  phwol hits: 0\n  emc hits: 60\n  smc hits: 0\n  megaflow hits: 40\n\
        \x20 miss with success upcall: 5\n  miss with failed upcall: 2\n  idle cycles: 900 (90.00%)\n\
        \x20 processing cycles: 100 (10.00%)\nmain thread:\n  packets received: 1\n  something new: 5\n";

    #[test]
    fn each_thread_has_its_own_counters_and_what_it_does_not_say_is_unknown() {
        let found = pmds(TEXT);
        let [pmd, main] = &found[..] else { panic!("{found:?}") };
        assert_eq!((pmd.thread.as_str(), pmd.numa, pmd.received), ("3", Some(0), Some(100)));
        assert_eq!((pmd.recirculated, pmd.emc_hits, pmd.megaflow_hits), (Some(7), Some(60), Some(40)));
        assert_eq!((pmd.upcalls, pmd.failed_upcalls), (Some(5), Some(2)));
        assert_eq!((pmd.idle_cycles, pmd.busy_cycles), (Some(900), Some(100)));
        assert_eq!((main.thread.as_str(), main.received, main.idle_cycles), ("main", Some(1), None));
        assert_eq!((main.isolated, main.slept, main.queues.len()), (None, None, 0));
    }

    #[test]
    fn a_queue_of_which_nobody_knows_the_usage_yet_and_one_that_is_off_are_told() {
        let text = "pmd thread numa_id 1 core_id 5:\n  isolated : false\n\
            \x20 port: vhu1  queue-id:  3 (disabled)  pmd usage: NOT AVAIL\n  port: odd\n  overhead: NOT AVAIL\n";
        let [pmd] = &pmds(text)[..] else { panic!("not one thread") };
        let queue = ReceiveQueue { interface: "vhu1".into(), queue: 3, enabled: false, usage_percent: None };
        assert_eq!((pmd.isolated, pmd.overhead_percent, &pmd.queues[..]), (Some(false), None, &[queue][..]));
    }

    #[test]
    fn what_is_no_such_text_has_no_threads() {
        for text in ["", "  packets received: 3\n", "unknown command\n", "thread:\n", ":\n"] {
            assert_eq!(pmds(text), [], "{text}");
        }
    }
}
