//! `dpif-netdev/pmd-stats-show`: what the threads that forward packets in userspace have done.

use cobalt_core::ovs::PmdCounters;

use super::{indent, lines, pair};

/// Reads `dpif-netdev/pmd-stats-show`, in its order. A switch with the kernel's datapath has no such threads.
pub fn pmds(text: &str) -> Vec<PmdCounters> {
    let mut threads: Vec<PmdCounters> = Vec::new();
    for line in lines(text) {
        if indent(line) == 0 {
            threads.extend(thread(line));
            continue;
        }
        let (Some(thread), Some((name, value))) = (threads.last_mut(), pair(line)) else { continue };
        // Behind a number may be its share of the whole.
        let Some(count) = value.split_whitespace().next().and_then(|count| count.parse().ok()) else { continue };
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
            _ => continue,
        };
        *counter = Some(count);
    }
    threads
}

/// `pmd thread numa_id 0 core_id 3:` or `main thread:`.
fn thread(line: &str) -> Option<PmdCounters> {
    let line = line.strip_suffix(':')?;
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
    }

    #[test]
    fn what_is_no_such_text_has_no_threads() {
        for text in ["", "  packets received: 3\n", "unknown command\n", "thread:\n", ":\n"] {
            assert_eq!(pmds(text), [], "{text}");
        }
    }
}
