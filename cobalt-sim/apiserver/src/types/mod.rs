//! What server-side apply and strategic merge must know about a type.
//!
//! A [`TypeNode`] is a schema reduced to ownership: which maps are granular, which lists have keys, what is
//! one indivisible value. Custom resources get theirs from [`crate::schema::Schema::types`], built-in kinds
//! from [`builtin`].

pub(crate) mod golang;
mod notation;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Number, Value};

/// Objects nested deeper than this are refused everywhere: the walkers recurse, and no real object comes close.
pub const MAX_DEPTH: usize = 128;

/// The type of one value.
#[derive(Debug, Clone, PartialEq)]
pub enum TypeNode {
    /// A single value.
    Scalar(Scalar),
    /// A list.
    List(ListNode),
    /// A map or a structure.
    Map(MapNode),
    /// Unknown; maps are granular, lists and scalars are single values.
    Deduced,
    /// Unknown and owned as a whole.
    Opaque,
}

/// What a scalar may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// A string.
    String,
    /// An integer or a float.
    Number,
    /// A boolean.
    Boolean,
    /// Any of them: quantities, times, int-or-string.
    Any,
}

/// A list and how its items are identified.
#[derive(Debug, Clone, PartialEq)]
pub struct ListNode {
    /// The type of the items.
    pub items: Box<TypeNode>,
    /// How the items are identified.
    pub kind: ListKind,
    /// How strategic merge treats the list.
    pub merge: Merge,
}

/// How the items of a list are identified by server-side apply.
#[derive(Debug, Clone, PartialEq)]
pub enum ListKind {
    /// The list is one value.
    Atomic,
    /// Each distinct scalar is an item.
    Set,
    /// Items are maps identified by these keys.
    Map(Vec<ListKey>),
}

/// One key of a map list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListKey {
    /// The field that holds the key.
    pub name: String,
    /// What an absent key means.
    pub default: Option<Value>,
}

/// How strategic merge treats a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merge {
    /// The patch replaces the list.
    Replace,
    /// The scalars of the patch are added.
    Values,
    /// Items with the same value in this field are merged.
    Key(String),
}

/// A structure with known fields, a map with values of one type, or both.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MapNode {
    /// The declared fields.
    pub fields: BTreeMap<String, Field>,
    /// The type of undeclared fields; none may appear when absent.
    pub other: Option<Box<TypeNode>>,
    /// Owned as a whole.
    pub atomic: bool,
}

/// A declared field of a structure.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Its type.
    pub node: TypeNode,
    /// What the zero object holds here.
    pub zero: Zero,
}

/// What the zero object of a kind holds in a field: the built-in kinds are born with some fields present, and
/// whoever creates such an object does not own these.
#[derive(Debug, Clone, PartialEq)]
pub enum Zero {
    /// Nothing.
    Absent,
    /// The zero object of the field's structure.
    Structure,
    /// A fixed value.
    Value(Value),
}

impl From<TypeNode> for Field {
    fn from(node: TypeNode) -> Self {
        Self { node, zero: Zero::Absent }
    }
}

static DEDUCED: TypeNode = TypeNode::Deduced;
static OPAQUE: TypeNode = TypeNode::Opaque;

impl TypeNode {
    /// The declared field `name` of a structure.
    pub fn declared(&self, name: &str) -> Option<&TypeNode> {
        match self {
            TypeNode::Map(map) => map.fields.get(name).map(|field| &field.node),
            _ => None,
        }
    }

    /// The type of the value under `name`, declared or not.
    pub fn field(&self, name: &str) -> Option<&TypeNode> {
        match self {
            TypeNode::Map(map) => map.field(name),
            TypeNode::Deduced => Some(&DEDUCED),
            TypeNode::Opaque => Some(&OPAQUE),
            _ => None,
        }
    }

    /// The type of a list's items.
    pub fn items(&self) -> &TypeNode {
        match self {
            TypeNode::List(list) => &list.items,
            TypeNode::Deduced => &DEDUCED,
            _ => &OPAQUE,
        }
    }

    /// The object nothing was set on yet.
    pub fn zero(&self) -> Value {
        let mut object = Map::new();
        if let TypeNode::Map(map) = self {
            for (name, field) in &map.fields {
                match &field.zero {
                    Zero::Absent => {}
                    Zero::Structure => {
                        object.insert(name.clone(), field.node.zero());
                    }
                    Zero::Value(value) => {
                        object.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        Value::Object(object)
    }
}

impl MapNode {
    /// The type of the value under `name`, declared or not.
    pub fn field(&self, name: &str) -> Option<&TypeNode> {
        self.fields.get(name).map(|field| &field.node).or(self.other.as_deref())
    }
}

static BUILTIN: LazyLock<BTreeMap<String, TypeNode>> =
    LazyLock::new(|| notation::read(&[include_str!("builtin.types"), include_str!("workloads.types")]));

/// The type of a built-in kind; the core group is `""`.
pub fn builtin(group: &str, kind: &str) -> Option<&'static TypeNode> {
    let group = if group.is_empty() { "-" } else { group };
    BUILTIN.get(&format!("{group}/{kind}"))
}

static OBJECT_META: LazyLock<TypeNode> = LazyLock::new(|| {
    BUILTIN.get("-/ConfigMap").and_then(|kind| kind.declared("metadata")).cloned().unwrap_or(TypeNode::Deduced)
});

/// The type of `metadata`, the same in every kind.
pub fn object_meta() -> &'static TypeNode {
    &OBJECT_META
}

/// Whether a value is nested deeper than the walkers are willing to go.
pub fn too_deep(value: &Value) -> bool {
    fn exceeds(value: &Value, left: usize) -> bool {
        match value {
            Value::Array(items) => left == 0 || items.iter().any(|item| exceeds(item, left - 1)),
            Value::Object(map) => left == 0 || map.values().any(|item| exceeds(item, left - 1)),
            _ => false,
        }
    }
    exceeds(value, MAX_DEPTH)
}

/// Whether two values are equal; numbers are compared by value (`2` and `2.0` are the same).
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => same_number(a, b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| same(value, other)))
        }
        _ => a == b,
    }
}

fn same_number(a: &Number, b: &Number) -> bool {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b || a.as_f64() == b.as_f64(),
    }
}

/// Writes whole floats as integers, as the real server does when it encodes (`2.0` becomes `2`).
pub fn canonical_numbers(value: &mut Value) {
    // 2^53: beyond it a float no longer stands for one integer.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(float) = number.as_f64()
                && float.fract() == 0.0
                && float.abs() < EXACT
            {
                #[allow(clippy::cast_possible_truncation)]
                let whole = float as i64;
                *value = Value::from(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(canonical_numbers),
        Value::Object(map) => map.values_mut().for_each(canonical_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
