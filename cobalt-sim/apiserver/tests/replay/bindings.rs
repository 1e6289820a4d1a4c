//! What the placeholders of the recordings stand for in this run.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"<(rv|uid|time|continue|rand|jwt|jti|token|hash|etag|pem|server|path|tmp)(?::([^>]*))?>").unwrap()
});

/// Values by placeholder.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bindings {
    exact: HashMap<String, String>,
    revisions: BTreeMap<u64, u64>,
    /// Earliest and latest value seen for a rank.
    times: BTreeMap<u64, (String, String)>,
    /// Revisions of objects: there, two ranks are two writes.
    writes: HashMap<String, String>,
}

impl Bindings {
    /// Fixes a placeholder, with its angle brackets.
    pub(crate) fn set(&mut self, placeholder: &str, value: &str) {
        if let Some(rank) = placeholder.strip_prefix("<rv:").and_then(|rest| rest.strip_suffix('>')) {
            self.revisions.insert(rank.parse().unwrap(), value.parse().unwrap());
        } else {
            self.exact.insert(placeholder.to_owned(), value.to_owned());
        }
    }

    fn get(&self, kind: &str, argument: &str, whole: &str) -> Option<String> {
        match kind {
            "rv" => self.revisions.get(&argument.parse().ok()?).map(ToString::to_string),
            "time" => self.times.get(&argument.parse().ok()?).map(|(first, _)| first.clone()),
            _ => self.exact.get(whole).cloned(),
        }
    }

    /// Puts values in the place of placeholders; the error is the first one without a value.
    pub(crate) fn fill(&self, text: &str) -> Result<String, String> {
        let mut missing = None;
        let filled = PLACEHOLDER.replace_all(text, |found: &regex::Captures<'_>| {
            let argument = found.get(2).map_or("", |m| m.as_str());
            self.get(&found[1], argument, &found[0]).unwrap_or_else(|| {
                missing.get_or_insert_with(|| found[0].to_owned());
                found[0].to_owned()
            })
        });
        let filled = filled.into_owned();
        missing.map_or(Ok(filled), Err)
    }

    /// The same in a whole JSON value, keys included.
    pub(crate) fn fill_json(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => self.fill(text)?.into(),
            Value::Array(items) => items.iter().map(|item| self.fill_json(item)).collect::<Result<_, _>>()?,
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, field)| Ok((self.fill(name)?, self.fill_json(field)?)));
                Value::Object(fields.collect::<Result<_, String>>()?)
            }
            other => other.clone(),
        })
    }

    /// Whether a text mentions a time that was not seen yet.
    pub(crate) fn has_new_time(&self, text: &str) -> bool {
        PLACEHOLDER
            .captures_iter(text)
            .any(|found| &found[1] == "time" && self.get("time", found.get(2).map_or("", |m| m.as_str()), "").is_none())
    }

    /// Compares a text that may contain placeholders, learning those that are new.
    pub(crate) fn same(&mut self, expected: &str, actual: &str) -> Result<(), String> {
        if let (Some(expected), Some(actual)) = (generated(expected), generated(actual)) {
            // The random end of a volume's name, which the recordings kept.
            return self.learn("rand", expected, actual);
        }
        let mut pattern = String::from("(?s)^");
        let mut names = Vec::new();
        let mut end = 0;
        for found in PLACEHOLDER.captures_iter(expected) {
            let whole = found.get(0).unwrap();
            pattern += &regex::escape(&expected[end..whole.start()]);
            pattern += match &found[1] {
                "rv" => r"(\d+)",
                "uid" => "([0-9a-f-]{36})",
                "time" => r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)",
                "rand" => "([a-z0-9]{5})",
                _ => "(.+?)",
            };
            names.push((found[1].to_owned(), found.get(2).map_or("", |m| m.as_str()).to_owned()));
            end = whole.end();
        }
        if names.is_empty() {
            return if expected == actual { Ok(()) } else { Err(format!("expected {expected:?}, got {actual:?}")) };
        }
        pattern += &regex::escape(&expected[end..]);
        pattern.push('$');
        let pattern = Regex::new(&pattern).unwrap();
        let found = pattern.captures(actual).ok_or_else(|| format!("expected {expected:?}, got {actual:?}"))?;
        let mut result = Ok(());
        for (index, (kind, argument)) in names.iter().enumerate() {
            result = result.and(self.learn(kind, argument, &found[index + 1]));
        }
        result
    }

    fn learn(&mut self, kind: &str, argument: &str, value: &str) -> Result<(), String> {
        match kind {
            "rv" => self.learn_revision(argument, value.parse().map_err(|_| format!("{value} is no revision"))?),
            "time" => self.learn_time(argument, value),
            // These stand for anything that is there.
            "hash" | "etag" | "pem" | "server" | "path" | "tmp" | "token" => Ok(()),
            _ => {
                let placeholder = format!("<{kind}:{argument}>");
                if let Some(known) = self.exact.get(&placeholder) {
                    return if known == value {
                        Ok(())
                    } else {
                        Err(format!("expected {placeholder} which is {known}, got {value}"))
                    };
                }
                let taken =
                    self.exact.iter().find(|(name, known)| *known == value && name.starts_with(&placeholder[..4]));
                if let Some((name, _)) = taken {
                    return Err(format!("expected {placeholder}, got {value} which is {name}"));
                }
                self.exact.insert(placeholder, value.to_owned());
                Ok(())
            }
        }
    }

    fn learn_revision(&mut self, rank: &str, value: u64) -> Result<(), String> {
        // `N..` lies between two ranks.
        let (rank, loose) = rank.strip_suffix("..").map_or((rank, false), |rank| (rank, true));
        let rank: u64 = rank.parse().map_err(|_| format!("no rank: {rank}"))?;
        if !loose && let Some(known) = self.revisions.get(&rank) {
            let same = *known == value;
            return if same { Ok(()) } else { Err(format!("expected <rv:{rank}> which is {known}, got {value}")) };
        }
        let low = if loose { self.revisions.range(..=rank) } else { self.revisions.range(..rank) }.next_back();
        let high = self.revisions.range(rank + 1..).next();
        let wrong = low.filter(|(_, low)| **low > value).or(high.filter(|(_, high)| **high < value));
        let result = match wrong {
            Some((other, known)) => Err(format!("<rv:{rank}> is {value}, against <rv:{other}> which is {known}")),
            None => Ok(()),
        };
        if !loose {
            self.revisions.insert(rank, value);
        }
        result
    }

    fn learn_time(&mut self, rank: &str, value: &str) -> Result<(), String> {
        let rank: u64 = rank.parse().map_err(|_| format!("no rank: {rank}"))?;
        let low = self.times.range(..rank).next_back().filter(|(_, (_, latest))| latest.as_str() > value);
        let high = self.times.range(rank + 1..).next().filter(|(_, (earliest, _))| earliest.as_str() < value);
        let result = match low.or(high) {
            Some((other, (first, last))) => {
                Err(format!("<time:{rank}> is {value}, against <time:{other}> which is {first} to {last}"))
            }
            None => Ok(()),
        };
        if result.is_ok() {
            let seen = self.times.entry(rank).or_insert_with(|| (value.to_owned(), value.to_owned()));
            if value < seen.0.as_str() {
                value.clone_into(&mut seen.0);
            }
            if value > seen.1.as_str() {
                value.clone_into(&mut seen.1);
            }
        }
        result
    }

    /// Two ranks on objects are two writes, so their values differ.
    pub(crate) fn write(&mut self, expected: &Value, actual: &Value) -> Result<(), String> {
        let (expected, actual) = (&expected["metadata"], &actual["metadata"]);
        if !expected["uid"].is_string() {
            return Ok(());
        }
        let (Some(rank), Some(value)) = (expected["resourceVersion"].as_str(), actual["resourceVersion"].as_str())
        else {
            return Ok(());
        };
        let known = self.writes.entry(value.to_owned()).or_insert_with(|| rank.to_owned());
        if known == rank { Ok(()) } else { Err(format!("expected {rank}, a new revision; {value} was {known}")) }
    }
}

/// The random end of the name of a volume with a token.
fn generated(name: &str) -> Option<&str> {
    name.strip_prefix("kube-api-access-").filter(|end| end.len() == 5)
}
