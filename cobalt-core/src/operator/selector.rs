//! Label selectors, as far as we must understand them ourselves: which labels they are about, and whether they choose an
//! object that the API server was not asked about.

use std::collections::BTreeMap;

/// A selector as `kubectl -l` takes it, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl std::str::FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = split(text)?;
        let read = |part: &str| {
            requirement(part)
                .ok_or_else(|| format!("`{part}` is no requirement: expected KEY=VALUE, KEY in (A,B), KEY"))
        };
        parts.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }
}

/// The text between the commas that are not in brackets.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' if !inside => inside = true,
            ')' if inside => inside = false,
            '(' | ')' => return Err(format!("the brackets of `{text}` do not match")),
            ',' if !inside => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(format!("the brackets of `{text}` do not match"));
    }
    parts.push(text[start..].trim());
    if text.trim().is_empty() {
        parts.clear();
    }
    Ok(parts)
}

fn requirement(part: &str) -> Option<Requirement> {
    let of = |key: &str, test: Test| {
        let key = key.trim();
        let letter = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
        (!key.is_empty() && key.chars().all(letter)).then(|| Requirement { key: key.to_owned(), test })
    };
    let one = |value: &str| vec![value.trim().to_owned()];
    if let Some(key) = part.strip_prefix('!') {
        return of(key, Test::Absent);
    }
    if let Some((head, list)) = part.split_once('(') {
        let list = list.strip_suffix(')')?.split(',').map(|value| value.trim().to_owned()).collect();
        let (key, word) = head.trim().rsplit_once(char::is_whitespace)?;
        return match word {
            "in" => of(key, Test::In(list)),
            "notin" => of(key, Test::NotIn(list)),
            _ => None,
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return of(key, Test::NotIn(one(value)));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return of(key, Test::In(one(value)));
    }
    of(part, Test::Exists)
}

impl Selector {
    /// The labels it is about.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|requirement| requirement.key.as_str())
    }

    /// Whether it chooses an object with these labels.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|Requirement { key, test }| match (test, labels.get(key)) {
            (Test::Exists, value) => value.is_some(),
            (Test::Absent, value) => value.is_none(),
            (Test::In(list), value) => value.is_some_and(|value| list.contains(value)),
            (Test::NotIn(list), value) => value.is_none_or(|value| !list.contains(value)),
        })
    }
}

/// One selector for what both choose.
pub(super) fn both(one: &str, other: &str) -> String {
    if other.is_empty() { one.to_owned() } else { format!("{one},{other}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn selectors_choose_what_the_api_server_would() {
        let host = labels(&[("zone", "a"), ("example.com/pool", "kvm")]);
        for (text, chosen) in [
            ("", true),
            ("zone", true),
            ("zone=a", true),
            ("zone==a,example.com/pool=kvm", true),
            ("zone = a", true),
            ("zone!=b", true),
            ("other!=b", true),
            ("zone in (a, b),!gone", true),
            ("zone notin (b,c)", true),
            ("zone=b", false),
            ("zone in (b,c)", false),
            ("zone notin (a)", false),
            ("!zone", false),
            ("gone", false),
            ("zone=a,gone", false),
        ] {
            assert_eq!(text.parse::<Selector>().map(|selector| selector.matches(&host)), Ok(chosen), "{text}");
        }
    }

    #[test]
    fn the_labels_it_is_about_are_known() {
        let selector: Selector = "zone in (a,b),!gone,example.com/pool=kvm".parse().unwrap_or_default();
        assert_eq!(selector.keys().collect::<Vec<_>>(), ["zone", "gone", "example.com/pool"]);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["zone in (a", "zone in a)", "=a", "zone of (a)", "a b", "zone=a,,b=c", "!"] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }
}
