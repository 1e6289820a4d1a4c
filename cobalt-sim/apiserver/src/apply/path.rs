//! One step of a path through an object, as written in `managedFields` and in conflict messages.

use std::fmt::{self, Display, Write};

use serde_json::{Map, Value};

use crate::types::{ListKey, ListKind, canonical_numbers};

/// One step: a field, an item identified by keys, an item identified by its value, or a position.
///
/// Keys and values are kept as canonical JSON text: small, ordered, and already in wire form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathElement {
    /// `f:name`
    Field(Box<str>),
    /// `k:{"type":"Ready"}`
    Key(Box<str>),
    /// `v:"finalizer"`
    Value(Box<str>),
    /// `i:3`
    Index(i64),
}

impl PathElement {
    /// A field.
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// Reads the wire form; `None` when it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::field(rest)),
            "k" => {
                let mut keys: Value = serde_json::from_str(rest).ok()?;
                canonical_numbers(&mut keys);
                keys.is_object().then(|| Self::Key(canonical(&keys).into()))
            }
            "v" => {
                let mut value: Value = serde_json::from_str(rest).ok()?;
                canonical_numbers(&mut value);
                Some(Self::Value(canonical(&value).into()))
            }
            "i" => rest.parse().ok().map(Self::Index),
            _ => None,
        }
    }

    /// The wire form.
    pub fn wire(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => format!("k:{keys}"),
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// What identifies `item` in a list of this kind, or the complaint of the real server.
    pub fn of_item(kind: &ListKind, index: usize, item: &Value) -> Result<Self, String> {
        match kind {
            ListKind::Atomic => Ok(Self::Index(i64::try_from(index).unwrap_or(i64::MAX))),
            ListKind::Set => match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                _ => {
                    let mut value = item.clone();
                    canonical_numbers(&mut value);
                    Ok(Self::Value(canonical(&value).into()))
                }
            },
            ListKind::Map(keys) => Self::of_keyed(keys, item),
        }
    }

    fn of_keyed(keys: &[ListKey], item: &Value) -> Result<Self, String> {
        let map = match item {
            Value::Object(map) => map,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let mut found = Map::new();
        for key in keys {
            if let Some(value) = map.get(&key.name).or(key.default.as_ref()) {
                found.insert(key.name.clone(), value.clone());
            }
        }
        if found.is_empty() {
            let names: Vec<String> = keys.iter().map(|key| format!("{:?}", key.name)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                names.join(" ")
            ));
        }
        let mut found = Value::Object(found);
        canonical_numbers(&mut found);
        Ok(Self::Key(canonical(&found).into()))
    }
}

impl Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Key(keys) => {
                f.write_char('[')?;
                if let Ok(Value::Object(keys)) = serde_json::from_str(keys) {
                    for (n, (name, value)) in keys.iter().enumerate() {
                        let comma = if n == 0 { "" } else { "," };
                        write!(f, "{comma}{name}={}", canonical(value))?;
                    }
                }
                f.write_char(']')
            }
        }
    }
}

/// Compact JSON with sorted keys, whatever order the map type keeps.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(name, _)| *name);
            let entries: Vec<String> = entries
                .into_iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", entries.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        scalar => scalar.to_string(),
    }
}
