//! A set of field paths, as a tree.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{FieldPath, Rule, Shape, is_untracked};

/// A set of fields, as in one entry of `managedFields`.
///
/// Path elements are kept as the server writes them: `f:name`, `k:{"type":"Ready"}`, `v:"x"`. A node may be a member
/// itself and have members below it (`"."` on the wire).
///
/// ```
/// use cobalt_core::runtime::fields::{FieldSet, Shape};
/// use serde_json::json;
///
/// let body = json!({"spec": {"lifecycleEnabled": true, "customTraits": ["CUSTOM_A"]}});
/// let set = FieldSet::of(&body, &Shape::default());
/// assert_eq!(set.to_fields_v1(), json!({"f:spec": {"f:customTraits": {}, "f:lifecycleEnabled": {}}}));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    member: bool,
    children: BTreeMap<String, FieldSet>,
}

impl FieldSet {
    /// The fields the server would record for this apply body.
    pub fn of(body: &Value, shape: &Shape) -> Self {
        let mut set = Self::default();
        if let Value::Object(fields) = body {
            set.insert_fields(fields, shape, &mut Vec::new());
        }
        set
    }

    fn insert_fields<'v>(&mut self, fields: &'v Map<String, Value>, shape: &Shape, path: &mut Vec<&'v str>) {
        for (name, value) in fields {
            if value.is_null() || is_untracked(path, name) {
                continue;
            }
            path.push(name);
            let child = Self::of_value(value, shape, path);
            // The server records no owner for an object that holds nothing it tracks (metadata with only a name), but
            // does for one that is written as empty.
            let written_empty = value.as_object().is_some_and(Map::is_empty);
            if !child.is_empty() || written_empty {
                self.children.insert(format!("f:{name}"), child);
            }
            path.pop();
        }
    }

    fn of_value<'v>(value: &'v Value, shape: &Shape, path: &mut Vec<&'v str>) -> Self {
        let mut set = Self::default();
        match (value, shape.rule(path)) {
            (Value::Object(fields), None | Some(Rule::Map(_) | Rule::MapOfAtomic(_) | Rule::Set))
                if !fields.is_empty() =>
            {
                set.insert_fields(fields, shape, path);
            }
            (Value::Array(items), Some(rule @ (Rule::Map(_) | Rule::MapOfAtomic(_) | Rule::Set))) => {
                for item in items {
                    let mut child = match rule {
                        Rule::Map(_) => Self::of_value(item, shape, path),
                        _ => Self::default(),
                    };
                    child.member = true;
                    set.children.insert(rule.item(item), child);
                }
            }
            _ => set.member = true,
        }
        set
    }

    /// Reads `fieldsV1`. Anything that is not an object counts as a leaf.
    pub fn from_fields_v1(fields: &Value) -> Self {
        let mut set = Self::default();
        if let Value::Object(map) = fields {
            for (name, value) in map {
                if name == "." {
                    set.member = true;
                } else {
                    set.children.insert(name.clone(), Self::from_fields_v1(value));
                }
            }
        }
        if set.children.is_empty() {
            set.member = true;
        }
        set
    }

    /// Writes `fieldsV1`.
    pub fn to_fields_v1(&self) -> Value {
        let mut map = Map::new();
        if self.member && !self.children.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (name, child) in &self.children {
            map.insert(name.clone(), child.to_fields_v1());
        }
        Value::Object(map)
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// Whether both own the same leaves. Whether an inner node is *itself* a member is not compared: the server decides
    /// that by the schema (it differs for maps and for objects), and a leaf below it always tells the same.
    pub fn same_leaves(&self, other: &Self) -> bool {
        self.children.len() == other.children.len()
            && self
                .children
                .iter()
                .zip(&other.children)
                .all(|((name, a), (other_name, b))| name == other_name && a.same_leaves(b))
    }

    /// Adds the other's members.
    pub fn union(&mut self, other: &Self) {
        self.member |= other.member;
        for (name, child) in &other.children {
            self.children.entry(name.clone()).or_default().union(child);
        }
    }

    /// What is at this path or below it, as a set of whole paths.
    #[must_use]
    pub fn under(&self, path: impl Into<FieldPath>) -> Self {
        self.under_names(&path.into().0)
    }

    fn under_names(&self, names: &[String]) -> Self {
        let Some((first, rest)) = names.split_first() else { return self.clone() };
        let name = format!("f:{first}");
        let mut set = Self::default();
        if let Some(child) = self.children.get(&name) {
            let kept = child.under_names(rest);
            if !kept.is_empty() {
                set.children.insert(name, kept);
            }
        }
        set
    }

    /// Without what is at this path or below it.
    #[must_use]
    pub fn without(&self, path: impl Into<FieldPath>) -> Self {
        let mut set = self.clone();
        set.remove(&path.into().0);
        set
    }

    fn remove(&mut self, names: &[String]) {
        let Some((first, rest)) = names.split_first() else { return };
        let name = format!("f:{first}");
        if rest.is_empty() {
            self.children.remove(&name);
        } else if let Some(child) = self.children.get_mut(&name) {
            let inner = !child.children.is_empty();
            child.remove(rest);
            // An inner node that was only there for what has been removed goes with it; a leaf stays.
            if inner && child.children.is_empty() {
                self.children.remove(&name);
            }
        }
    }

    /// Whether this field, or anything below it, is in the set. Names may have dots in them, as labels do.
    pub fn contains(&self, names: &[&str]) -> bool {
        let Some((first, rest)) = names.split_first() else { return !self.is_empty() };
        self.children.get(&format!("f:{first}")).is_some_and(|child| child.contains(rest))
    }

    /// The part of an object that is in the set, with the values the object has.
    ///
    /// ```
    /// use cobalt_core::runtime::fields::FieldSet;
    /// use serde_json::json;
    ///
    /// let ours = FieldSet::from_fields_v1(&json!({"f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {"f:type": {}, "f:status": {}}}}}));
    /// let object = json!({"status": {"numInstances": 2, "conditions": [
    ///     {"type": "Ready", "status": "True"}, {"type": "Tainted", "status": "False"}]}});
    /// assert_eq!(ours.project(&object), json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    /// ```
    pub fn project(&self, value: &Value) -> Value {
        match value {
            _ if self.children.is_empty() => value.clone(),
            Value::Object(fields) => Value::Object(
                self.children
                    .iter()
                    .filter_map(|(element, child)| {
                        let name = element.strip_prefix("f:")?;
                        Some((name.to_owned(), child.project(fields.get(name)?)))
                    })
                    .collect(),
            ),
            Value::Array(items) => Value::Array(
                self.children
                    .iter()
                    .filter_map(|(element, child)| {
                        let item = items.iter().find(|item| is_item(element, item))?;
                        Some(with_keys(element, child.project(item)))
                    })
                    .collect(),
            ),
            scalar => scalar.clone(),
        }
    }

    /// The values of `key` in the items owned in the list at `path`: the condition types, for instance.
    pub fn item_keys(&self, path: &str, key: &str) -> BTreeSet<String> {
        let mut node = self;
        for name in path.split('.') {
            match node.children.get(&format!("f:{name}")) {
                Some(child) => node = child,
                None => return BTreeSet::new(),
            }
        }
        node.children
            .keys()
            .filter_map(|element| serde_json::from_str::<Value>(element.strip_prefix("k:")?).ok())
            .filter_map(|item| Some(item.get(key)?.as_str()?.to_owned()))
            .collect()
    }
}

/// An item is nothing without its keys, even where somebody else owns them: a manager that only changed an item owns
/// what it changed.
fn with_keys(element: &str, mut item: Value) -> Value {
    let keys = element.strip_prefix("k:").and_then(|text| serde_json::from_str(text).ok());
    if let (Value::Object(fields), Some(Value::Object(keys))) = (&mut item, keys) {
        for (key, value) in keys {
            fields.entry(key).or_insert(value);
        }
    }
    item
}

/// Whether a path element (`k:{…}` or `v:…`) names this item of a list.
fn is_item(element: &str, item: &Value) -> bool {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    if let Some(Value::Object(keys)) = element.strip_prefix("k:").and_then(parsed) {
        return keys.iter().all(|(key, value)| item.get(key) == Some(value));
    }
    element.strip_prefix("v:").and_then(parsed).is_some_and(|value| value == *item)
}
