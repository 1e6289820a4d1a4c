//! How the special lists and maps of a kind merge.

use std::collections::BTreeMap;

use serde_json::Value;

/// How one list or map merges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A list of objects, told apart by these fields (`x-kubernetes-list-type: map`).
    Map(Vec<String>),
    /// Such a list whose items are replaced as a whole, as `metadata.ownerReferences` is.
    MapOfAtomic(Vec<String>),
    /// A list of distinct scalars (`x-kubernetes-list-type: set`).
    Set,
    /// A map or object that is replaced as a whole (`x-kubernetes-map-type: atomic`).
    Atomic,
}

impl Rule {
    /// The path element of an item, as the server writes it: `k:{"type":"Ready"}` or `v:"finalizer"`.
    pub(super) fn item(&self, item: &Value) -> String {
        match self {
            Rule::Map(keys) | Rule::MapOfAtomic(keys) => {
                let pairs: BTreeMap<&str, &Value> =
                    keys.iter().filter_map(|key| Some((key.as_str(), item.get(key)?))).collect();
                format!("k:{}", serde_json::to_string(&pairs).unwrap_or_default())
            }
            Rule::Set | Rule::Atomic => format!("v:{item}"),
        }
    }
}

/// The rules of a kind, by field path. Everything not named follows the defaults: maps merge, lists are replaced.
///
/// The default knows `status.conditions` (by `type`) and the lists of `metadata`, which is all that Cobalt's own kinds
/// need.
///
/// ```
/// use cobalt_core::runtime::fields::{Rule, Shape};
///
/// let shape = Shape::default().with("spec.ports", Rule::Map(vec!["port".into(), "protocol".into()]));
/// assert_eq!(shape.rule(&["metadata", "finalizers"]), Some(&Rule::Set));
/// assert_eq!(shape.rule(&["spec", "customTraits"]), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(BTreeMap<String, Rule>);

impl Default for Shape {
    fn default() -> Self {
        Self(BTreeMap::new())
            .with("metadata.finalizers", Rule::Set)
            .with("metadata.ownerReferences", Rule::MapOfAtomic(vec!["uid".into()]))
            .with("status.conditions", Rule::Map(vec!["type".into()]))
    }
}

impl Shape {
    /// Adds or replaces the rule of a path, written with dots; items of a list have the path of the list.
    #[must_use]
    pub fn with(mut self, path: &str, rule: Rule) -> Self {
        self.0.insert(path.to_owned(), rule);
        self
    }

    /// The rule of a path, if it is special.
    pub fn rule(&self, path: &[&str]) -> Option<&Rule> {
        // Special paths are at least two deep and few: most lookups end here.
        if path.len() < 2 { None } else { self.0.get(&path.join(".")) }
    }
}
