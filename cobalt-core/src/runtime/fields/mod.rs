//! Field sets: which fields a manager owns, as the API server records them in `metadata.managedFields`.
//!
//! Two questions are answered here without asking the server: *which fields would it record for this apply body?*
//! ([`FieldSet::of`]) and *are the values already as wanted?* ([`matches()`]). Both need to know how lists and maps
//! merge; [`Shape`] says so for the few that are special, everything else follows the rules for custom resources: maps
//! merge by key, lists are replaced as a whole.

mod set;
mod shape;

pub use set::FieldSet;
pub use shape::{Rule, Shape};

use serde_json::Value;

/// The names from the root of an object to a field.
///
/// ```
/// use cobalt_core::runtime::fields::FieldPath;
///
/// // Dots separate names, unless the names are given one by one, as labels need it.
/// assert_eq!(FieldPath::from("spec.groups"), FieldPath::from(["spec", "groups"]));
/// let zone = FieldPath::from(["metadata", "labels", "topology.kubernetes.io/zone"]);
/// # let _ = zone;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(pub(crate) Vec<String>);

impl From<&str> for FieldPath {
    fn from(path: &str) -> Self {
        Self(path.split('.').map(str::to_owned).collect())
    }
}

impl<const N: usize> From<[&str; N]> for FieldPath {
    fn from(names: [&str; N]) -> Self {
        Self(names.map(str::to_owned).into())
    }
}

impl From<&FieldPath> for FieldPath {
    fn from(path: &FieldPath) -> Self {
        path.clone()
    }
}

/// Fields the server never records as owned: identity and what it keeps itself.
const UNTRACKED_METADATA: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

pub(super) fn is_untracked(path: &[&str], name: &str) -> bool {
    match path {
        [] => name == "apiVersion" || name == "kind",
        ["metadata"] => UNTRACKED_METADATA.contains(&name),
        _ => false,
    }
}

/// Whether every field of `desired` has that value in `observed`.
///
/// Fields that `desired` does not mention do not matter, nor does the order of items in lists that merge by key.
/// Numbers are compared by value (the server calls `2` and `2.0` equal).
///
/// ```
/// use cobalt_core::runtime::fields::{Shape, matches};
/// use serde_json::json;
///
/// let observed = json!({"status": {"numInstances": 2, "conditions": [
///     {"type": "Ready", "status": "True"}, {"type": "Tainted", "status": "False"}]}});
/// let desired = json!({"status": {"conditions": [{"type": "Tainted", "status": "False"}]}});
/// assert!(matches(&desired, &observed, &Shape::default()));
/// ```
pub fn matches(desired: &Value, observed: &Value, shape: &Shape) -> bool {
    matches_at(desired, Some(observed), shape, &mut Vec::new())
}

fn matches_at<'v>(desired: &'v Value, observed: Option<&Value>, shape: &Shape, path: &mut Vec<&'v str>) -> bool {
    match (desired, observed) {
        (Value::Null, _) => true,
        (_, None) => false,
        (Value::Object(wanted), Some(Value::Object(found))) if shape.rule(path) != Some(&Rule::Atomic) => {
            wanted.iter().all(|(name, value)| {
                if is_untracked(path, name) {
                    return true;
                }
                path.push(name);
                let same = matches_at(value, found.get(name), shape, path);
                path.pop();
                same
            })
        }
        (Value::Array(wanted), Some(Value::Array(found))) => match shape.rule(path) {
            Some(rule @ (Rule::Map(_) | Rule::MapOfAtomic(_))) => wanted.iter().all(|item| {
                let key = rule.item(item);
                let same = found.iter().find(|other| rule.item(other) == key);
                match rule {
                    Rule::Map(_) => matches_at(item, same, shape, path),
                    _ => same.is_some_and(|same| equal(item, same)),
                }
            }),
            Some(Rule::Set) => wanted.iter().all(|item| found.iter().any(|other| equal(item, other))),
            _ => equal(desired, &Value::Array(found.clone())),
        },
        (_, Some(observed)) => equal(desired, observed),
    }
}

/// Deep equality with numbers compared by value.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            // Integers beyond 2^53 must not be equal because they round to the same float.
            if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
                return a == b;
            }
            a == b || a.as_f64() == b.as_f64()
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests;
