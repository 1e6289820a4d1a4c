//! Answers as YAML, in the layout Go programs write it.

use std::fmt::Write;

use serde_json::Value;

/// A document. Keys are in the order of the value's map, which is sorted.
pub(super) fn document(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => block(value, 0, &mut out),
        Value::Array(list) if !list.is_empty() => block(value, 0, &mut out),
        value => {
            inline(value, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

/// The lines of a map or list that is not empty. The first one starts where `out` ends.
fn block(value: &Value, indent: usize, out: &mut String) {
    let mut first = true;
    let mut start = |out: &mut String| {
        if !std::mem::take(&mut first) {
            pad(indent, out);
        }
    };
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                start(out);
                text(key, out);
                out.push(':');
                match value {
                    Value::Object(inner) if !inner.is_empty() => {
                        out.push('\n');
                        pad(indent + 2, out);
                        block(value, indent + 2, out);
                    }
                    // Lists in maps are not indented.
                    Value::Array(inner) if !inner.is_empty() => {
                        out.push('\n');
                        pad(indent, out);
                        block(value, indent, out);
                    }
                    value => {
                        out.push(' ');
                        inline(value, indent + 2, out);
                        out.push('\n');
                    }
                }
            }
        }
        Value::Array(list) => {
            for item in list {
                start(out);
                out.push_str("- ");
                match item {
                    Value::Object(inner) if !inner.is_empty() => block(item, indent + 2, out),
                    Value::Array(inner) if !inner.is_empty() => block(item, indent + 2, out),
                    item => {
                        inline(item, indent + 2, out);
                        out.push('\n');
                    }
                }
            }
        }
        _ => {}
    }
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// What stands on one line, and the texts that do not.
fn inline(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::String(value) if value.contains('\n') && is_printable(value) && !value.starts_with([' ', '\n']) => {
            literal(value, indent, out);
        }
        Value::String(value) => text(value, out),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
        scalar => {
            let _ = write!(out, "{scalar}");
        }
    }
}

/// A text of several lines as it is.
fn literal(value: &str, indent: usize, out: &mut String) {
    out.push('|');
    let body = value.trim_end_matches('\n');
    match value.len() - body.len() {
        0 => out.push('-'),
        1 => {}
        _ => out.push('+'),
    }
    for line in body.split('\n').chain(std::iter::repeat_n("", (value.len() - body.len()).saturating_sub(1))) {
        out.push('\n');
        if !line.is_empty() {
            pad(indent, out);
            out.push_str(line);
        }
    }
}

/// A text on one line: plain if it then reads as the same text, quoted otherwise.
fn text(value: &str, out: &mut String) {
    if !is_printable(value) || value.contains('\n') || resolves(value) {
        // JSON's escapes are YAML's.
        let _ = write!(out, "{}", Value::from(value));
    } else if is_plain(value) {
        out.push_str(value);
    } else {
        let _ = write!(out, "'{}'", value.replace('\'', "''"));
    }
}

fn is_printable(value: &str) -> bool {
    value.chars().all(|c| !c.is_control() || c == '\n')
        && !value.contains(['\u{feff}', '\u{2028}', '\u{2029}', '\u{85}'])
}

/// Whether a plain text means something else: a number, a time, a truth.
fn resolves(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let words = [
        "", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", ".nan", ".inf", "-.inf", "+.inf", "<<",
        "=",
    ];
    let starts = |c: char| value.starts_with(c);
    let digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let number =
        digit(value) || ((starts('-') || starts('+') || starts('.')) && digit(value[1..].trim_start_matches('.')));
    words.contains(&lower.as_str()) || (number && is_number_or_time(value))
}

/// Errs towards a quote more: it never changes what is read.
fn is_number_or_time(value: &str) -> bool {
    value.parse::<f64>().is_ok()
        || value.chars().all(|c| {
            c.is_ascii_hexdigit() || matches!(c, '_' | '.' | ':' | '-' | '+' | 'x' | 'o' | 'T' | 't' | 'Z' | 'z' | ' ')
        })
}

fn is_plain(value: &str) -> bool {
    let first = value.chars().next().unwrap_or(' ');
    let second = value.chars().nth(1);
    let indicator = match first {
        '-' | '?' | ':' => second.is_none_or(char::is_whitespace),
        ',' | '[' | ']' | '{' | '}' | '#' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => true,
        _ => false,
    };
    !indicator
        && !value.starts_with("---")
        && !value.starts_with("...")
        && !value.starts_with(' ')
        && !value.ends_with([' ', ':'])
        && !value.contains(": ")
        && !value.contains(" #")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_layout_is_that_of_go() {
        let value = json!({
            "empty": {}, "items": [{"a": 1, "b": ["x", []]}, "two"], "none": null, "none-of": [],
            "text": "1", "time": "2026-01-01T00:00:00Z", "lines": "a\nb\n", "k:{\"type\":\"Ready\"}": {".": {}},
            "colon": "a: b", "star": "*", "yes": "yes", "plain": "https://x:1/y#z",
        });
        let expected = "colon: 'a: b'\nempty: {}\nitems:\n- a: 1\n  b:\n  - x\n  - []\n- two\nk:{\"type\":\"Ready\"}:\n  .: {}\nlines: |\n  a\n  b\nnone: null\nnone-of: []\nplain: https://x:1/y#z\nstar: '*'\ntext: \"1\"\ntime: \"2026-01-01T00:00:00Z\"\n\"yes\": \"yes\"\n";
        assert_eq!(document(&value), expected);
    }

    fn values() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            any::<String>(),
            "[-a-zA-Z0-9 .:#'\"{}\\[\\],&*!|>%@`~?=<+_\n]{0,12}",
            "(true|null|0x1|1_0|1e3|-1|\\.5|12:30|~|a\n\n|\n| x)",
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(text.clone(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(value in values()) {
            let written = document(&value);
            let read: Value = serde_saphyr::from_str(&written).unwrap_or_else(|why| panic!("{why}: {written:?}"));
            prop_assert_eq!(read, value, "{}", written);
        }
    }
}
