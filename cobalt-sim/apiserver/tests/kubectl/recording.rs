//! The recorded sessions, and what two runs of the same command have in common.

use regex::Regex;
use serde_json::Value;

const RECORDS: &str = include_str!("../wire/8-kubectl.jsonl");

/// A record by its id.
pub(crate) fn record(id: &str) -> Value {
    let mut records = RECORDS.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    records.find(|record| record["id"] == id).unwrap_or_else(|| panic!("{id} is not recorded"))
}

/// The recorded command without the program.
pub(crate) fn arguments(record: &Value) -> Vec<String> {
    let command = record["command"].as_str().expect("a command");
    command.split(' ').skip(1).map(str::to_owned).collect()
}

/// A recorded text.
pub(crate) fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record[field].as_str().expect("a recorded text")
}

/// The text without what is different in every run: ages, times, revisions, ids, and the width of columns.
pub(crate) fn stable(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, replacement) in [
        (r"<uid:\d+>|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
        (r"<time:\d+>|20\d\d-11-\d\dT[0-9:]+Z", "TIME"),
        (r"\w{3}, \d\d \w{3} \d{4} [0-9:]+ \+0000", "TIME"),
        (r#"(?i)(resource ?version:\s+)"?\d+"?"#, "${1}RV"),
        (r"\b\d+[smhdy](\d+[smhd])?\b", "AGE"),
        (r"[ \t]+", " "),
        (r" +\n", "\n"),
    ] {
        text = Regex::new(pattern).expect("a pattern").replace_all(&text, replacement).into_owned();
    }
    text.trim().to_owned()
}

#[test]
fn what_differs_from_run_to_run_is_left_out() {
    let ours = "hv1   10.0.0.1   3     7m3s\nresourceVersion: \"12\"\nat 2026-11-18T01:51:32Z\n";
    let theirs = "hv1  10.0.0.1  3   321d\nresourceVersion: \"99\"\nat <time:3>";
    assert_eq!(stable(ours), stable(theirs));
    assert_ne!(stable("hv1 4 1s"), stable("hv1 5 1s"));
}
