//! Comparing our text of a flow with that of the switch's own tools.

use cobalt_core::ovs::Flow;

/// The flows in the output of `ovs-ofctl dump-flows`, as `(table, priority, cookie, match, actions)`; lines that are no
/// flows are passed over. Two dumps of a bridge at rest are equal in this form, whoever made them.
///
/// ```
/// use cobalt_ovs::openflow::normalized;
///
/// let line = " cookie=0x1f, duration=1.2s, table=8, n_packets=0, n_bytes=0, idle_age=1, priority=50,ip actions=drop";
/// assert_eq!(normalized::text(line), [(8, 50, 0x1f, "ip".to_owned(), "drop".to_owned())]);
/// ```
pub mod normalized {
    use super::Flow;

    /// Table, priority, cookie, match, actions.
    pub type Row = (u8, u16, u64, String, String);

    /// The rows of a text.
    pub fn text(dump: &str) -> Vec<Row> {
        dump.lines().filter_map(row).collect()
    }

    /// The row of a flow.
    pub fn flow(flow: &Flow) -> Row {
        (flow.table, flow.priority, flow.cookie, flow.matched.clone(), flow.actions.clone())
    }

    fn row(line: &str) -> Option<Row> {
        let (head, actions) = line.trim().split_once(" actions=")?;
        let (mut table, mut priority, mut cookie) = (0, 0x8000, 0);
        let mut matched = Vec::new();
        // Counters, timeouts and flags have spaces behind them; a match has none within.
        let last = head.split(' ').count() - 1;
        for (index, word) in head.split(' ').enumerate() {
            for word in word.split(',').filter(|word| !word.is_empty()) {
                match word.split_once('=') {
                    Some(("cookie", value)) => cookie = u64::from_str_radix(value.strip_prefix("0x")?, 16).ok()?,
                    Some(("table", value)) => table = value.parse().ok()?,
                    Some(("priority", value)) => priority = value.parse().ok()?,
                    Some(("n_packets" | "n_bytes" | "duration" | "idle_age" | "hard_age", _)) => {}
                    _ if index == last => matched.push(word),
                    _ => {}
                }
            }
        }
        Some((table, priority, cookie, matched.join(","), actions.to_owned()))
    }
}
