//! The JSONPath of printer columns: `.spec.replicas`, `.metadata.labels.a\.b/c`, `.items[0]`,
//! `.status.conditions[?(@.type=="Ready")].status`.
//!
//! The paths come from whoever writes a definition, so parsing refuses what it does not know and evaluation is
//! bounded by the size of the object times the number of steps.

use std::cmp::{Ordering, Reverse};

use serde_json::Value;

/// A path with more steps than this is refused; the longest in use has a dozen.
const MAX_STEPS: usize = 64;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    All,
    Filter(Filter),
}

/// `@.left OP right`, or only `@.left`.
#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Path,
    test: Option<(Operator, Operand)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Value(Value),
    Path(Path),
}

impl Path {
    /// Reads a path; `None` if it is not one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(text);
        let text = text.strip_prefix('$').unwrap_or(text);
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if steps.len() == MAX_STEPS {
                return None;
            }
            let (step, after) = if let Some(inner) = rest.strip_prefix('[') {
                let (inner, after) = split_bracket(inner)?;
                (bracket(inner.trim())?, after)
            } else if let Some(name) = rest.strip_prefix('.') {
                if name.is_empty() && steps.is_empty() {
                    // `.` alone is the object itself.
                    break;
                }
                field(name)?
            } else if steps.is_empty() {
                field(rest)?
            } else {
                return None;
            };
            steps.push(step);
            rest = after;
        }
        Some(Self(steps))
    }

    /// The first value at the path.
    pub(crate) fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.find(value).into_iter().next()
    }

    fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        self.0.iter().fold(vec![value], |found, step| {
            let mut next = Vec::new();
            for value in found {
                step.walk(value, &mut next);
            }
            next
        })
    }
}

/// The text up to the bracket that closes, and what follows it. Quoted brackets do not count.
fn split_bracket(text: &str) -> Option<(&str, &str)> {
    let (mut depth, mut quote) = (1_usize, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some((&text[..at], &text[at + 1..]));
                }
            }
            (Some(_) | None, _) => {}
        }
    }
    None
}

/// A name up to the next step; a backslash takes the next character as it is.
fn field(text: &str) -> Option<(Step, &str)> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.push(chars.next()?.1),
            '.' | '[' => {
                end = at;
                break;
            }
            _ => name.push(c),
        }
    }
    let step = match name.as_str() {
        // `..` searches the whole tree, which no printer column is allowed to.
        "" => return None,
        "*" => Step::All,
        _ => Step::Field(name),
    };
    Some((step, &text[end..]))
}

fn bracket(text: &str) -> Option<Step> {
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(name) = quoted(text) {
        return Some(Step::Field(name));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|inner| inner.strip_suffix(')')) {
        return filter_step(filter.trim());
    }
    if let Some((from, to)) = text.split_once(':') {
        let bound = |text: &str| match text.trim() {
            "" => Some(None),
            text => text.parse().ok().map(Some),
        };
        return Some(Step::Slice(bound(from)?, bound(to)?));
    }
    text.parse().ok().map(Step::Index)
}

fn quoted(text: &str) -> Option<String> {
    let inner = ['"', '\''].iter().find_map(|q| text.strip_prefix(*q)?.strip_suffix(*q))?;
    (!inner.contains(['"', '\''])).then(|| inner.replace('\\', ""))
}

fn filter_step(text: &str) -> Option<Step> {
    // The longer operators come first, so that `<=` is not read as `<`.
    const OPERATORS: [(&str, Operator); 6] = [
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ];
    let found = OPERATORS.iter().filter_map(|(sign, operator)| Some((text.find(sign)?, *sign, *operator)));
    let filter = match found.min_by_key(|(at, sign, _)| (*at, Reverse(sign.len()))) {
        None => Filter { left: own_path(text)?, test: None },
        Some((at, sign, operator)) => {
            let right = text[at + sign.len()..].trim();
            let operand = match quoted(right) {
                Some(text) => Operand::Value(text.into()),
                None if right.starts_with('@') => Operand::Path(own_path(right)?),
                None => Operand::Value(serde_json::from_str(right).ok()?),
            };
            Filter { left: own_path(text[..at].trim())?, test: Some((operator, operand)) }
        }
    };
    Some(Step::Filter(filter))
}

fn own_path(text: &str) -> Option<Path> {
    // A filter within a filter is beyond what columns need, and would let a short text nest without end.
    let path = text.strip_prefix('@').filter(|path| !path.contains("?("))?;
    Path::parse(path)
}

impl Step {
    fn walk<'a>(&self, value: &'a Value, out: &mut Vec<&'a Value>) {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => out.extend(map.get(name)),
            (Self::All, Value::Object(map)) => out.extend(map.values()),
            (Self::All, Value::Array(items)) => out.extend(items),
            (Self::Index(index), Value::Array(items)) => out.extend(items.get(position(*index, items.len()))),
            (Self::Slice(from, to), Value::Array(items)) => {
                let end = to.map_or(items.len(), |to| position(to, items.len())).min(items.len());
                let start = from.map_or(0, |from| position(from, items.len()));
                out.extend(items.get(start..end).into_iter().flatten());
            }
            (Self::Filter(filter), Value::Array(items)) => out.extend(items.iter().filter(|item| filter.holds(item))),
            _ => {}
        }
    }
}

/// Negative indices count from the end.
fn position(index: i64, length: usize) -> usize {
    match usize::try_from(index) {
        Ok(index) => index,
        Err(_) => {
            usize::try_from(index.unsigned_abs()).ok().and_then(|back| length.checked_sub(back)).unwrap_or(length)
        }
    }
}

impl Filter {
    fn holds(&self, item: &Value) -> bool {
        let Some(left) = self.left.first(item) else { return false };
        let Some((operator, right)) = &self.test else { return true };
        let right = match right {
            Operand::Value(value) => Some(value),
            Operand::Path(path) => path.first(item),
        };
        let Some(right) = right else { return false };
        let order = match (left, right) {
            (Value::Number(a), Value::Number(b)) => a.as_f64().zip(b.as_f64()).and_then(|(a, b)| a.partial_cmp(&b)),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            _ => None,
        };
        match operator {
            Operator::Equal => order.is_some_and(Ordering::is_eq),
            Operator::NotEqual => !order.is_some_and(Ordering::is_eq),
            Operator::Less => order.is_some_and(Ordering::is_lt),
            Operator::LessOrEqual => order.is_some_and(Ordering::is_le),
            Operator::Greater => order.is_some_and(Ordering::is_gt),
            Operator::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn first(path: &str, value: &Value) -> Option<Value> {
        Path::parse(path).and_then(|path| path.first(value).cloned())
    }

    #[test]
    fn fields_may_have_dots_and_slashes_in_their_names() {
        let object = json!({"metadata": {"labels": {"a.b/c": "x"}}});
        assert_eq!(first(r".metadata.labels.a\.b/c", &object), Some(json!("x")));
        assert_eq!(first(r".metadata.labels['a\.b/c']", &object), Some(json!("x")));
        assert_eq!(first(".metadata.labels.none", &object), None);
    }

    #[test]
    fn items_are_chosen_by_place_or_by_what_they_hold() {
        let object = json!({"list": [{"type": "A", "n": 1}, {"type": "B", "n": 2, "ok": true}]});
        assert_eq!(first(r#".list[?(@.type=="B")].n"#, &object), Some(json!(2)));
        assert_eq!(first(".list[?(@.type == 'B')].n", &object), Some(json!(2)));
        assert_eq!(first(".list[?(@.n<=1)].type", &object), Some(json!("A")));
        assert_eq!(first(".list[?(@.ok)].type", &object), Some(json!("B")));
        assert_eq!(first(".list[?(@.type!='A')].type", &object), Some(json!("B")));
        assert_eq!(first(".list[-1].type", &object), Some(json!("B")));
        assert_eq!(first(".list[1:].type", &object), Some(json!("B")));
        assert_eq!(first(".list[*].n", &object), Some(json!(1)));
        assert_eq!(first(".list[7]", &object), None);
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in ["..a", ".a[", ".a[b", ".a[?(x==1)]", r".a\", ".a]b[", ".a[?(@.x==)]", &".a".repeat(100)] {
            let parsed = Path::parse(text);
            let harmless = parsed.as_ref().is_none_or(|path| path.find(&json!({"a": [1]})).is_empty());
            assert!(harmless, "{text} is {parsed:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in r#"[.\[\]?@()*=<>!'"\\a-c0-9:,{}$ é-]{0,40}"#) {
            if let Some(path) = Path::parse(&text) {
                let _ = path.find(&json!({"a": [{"b": 1, "c": "x"}, [1, 2]], "b": {"c": null}}));
            }
        }
    }
}
