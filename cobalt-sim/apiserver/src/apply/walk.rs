//! Walking values along their types: the field set of a value, merging, comparing, removing.
//!
//! Each walker follows the real server's structured merge rule by rule; the subtle ones are commented. Values
//! must have passed [`super::check::check`] against the same type.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fieldset::FieldSet;
use super::path::PathElement;
use crate::types::{ListKind, ListNode, TypeNode, same};

/// How a value is treated once its type and its form are both known.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Leaf,
    List,
    Map,
}

/// The shape of a value. An unknown type takes the form of its value; null stands for an (empty) map.
fn shape(types: &TypeNode, value: Option<&Value>) -> Shape {
    match (types, value) {
        (TypeNode::Scalar(_), _) => Shape::Leaf,
        (TypeNode::List(_), _) => Shape::List,
        (TypeNode::Map(_), _) | (_, None | Some(Value::Null | Value::Object(_))) => Shape::Map,
        (_, Some(Value::Array(_))) => Shape::List,
        (_, Some(_)) => Shape::Leaf,
    }
}

fn atomic_map(types: &TypeNode) -> bool {
    match types {
        TypeNode::Map(map) => map.atomic,
        TypeNode::Opaque => true,
        _ => false,
    }
}

/// The list's type when its items are owned one by one.
fn associative(types: &TypeNode) -> Option<&ListNode> {
    match types {
        TypeNode::List(list) if list.kind != ListKind::Atomic => Some(list),
        _ => None,
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    match value {
        Some(Value::Array(items)) => items,
        _ => &[],
    }
}

fn fields(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object).filter(|map| !map.is_empty())
}

fn inner<'a>(types: &'a TypeNode, name: &str) -> &'a TypeNode {
    types.field(name).unwrap_or(&TypeNode::Opaque)
}

/// Items by identity. Identity was checked before; an item without one is left out.
fn identified(list: &ListNode, items: &[Value]) -> Vec<(PathElement, usize)> {
    let element = |(index, item)| PathElement::of_item(&list.kind, index, item).ok().map(|element| (element, index));
    items.iter().enumerate().filter_map(element).collect()
}

/// The paths an applier of `value` owns.
pub(super) fn field_set(types: &TypeNode, value: &Value) -> FieldSet {
    owned(types, value).1
}

/// Whether an applier owns the value itself, and what it owns inside.
fn owned(types: &TypeNode, value: &Value) -> (bool, FieldSet) {
    match shape(types, Some(value)) {
        Shape::Leaf => (true, FieldSet::default()),
        Shape::List => match associative(types) {
            None => (true, FieldSet::default()),
            Some(list) => {
                let items = items(Some(value));
                let mut groups: BTreeMap<PathElement, Vec<usize>> = BTreeMap::new();
                for (element, index) in identified(list, items) {
                    groups.entry(element).or_default().push(index);
                }
                let nodes = groups.into_iter().map(|(element, indexes)| match indexes[..] {
                    [index] => (element, true, owned(&list.items, &items[index]).1),
                    // Duplicates are owned together, not field by field.
                    _ => (element, true, FieldSet::default()),
                });
                (false, nodes.collect())
            }
        },
        Shape::Map if atomic_map(types) => (true, FieldSet::default()),
        Shape::Map => {
            let nodes = fields(Some(value)).into_iter().flatten().map(|(name, field)| {
                let (itself, inside) = owned(inner(types, name), field);
                let empty = field.is_null() || field.as_object().is_some_and(Map::is_empty);
                let member = itself || empty || types.declared(name).is_none();
                (PathElement::field(name), member, inside)
            });
            (false, nodes.collect())
        }
    }
}

/// `right` laid over `left`; `None` when nothing is left.
pub(super) fn merge(types: &TypeNode, left: Option<&Value>, right: Option<&Value>) -> Option<Value> {
    let leaf = || right.or(left).cloned();
    // When the two sides have different forms the right one decides.
    let shape = if right.is_some() { shape(types, right) } else { shape(types, left) };
    match shape {
        Shape::Leaf => leaf(),
        Shape::List => {
            let (l, r) = (items(left), items(right));
            match associative(types) {
                Some(list) if !(l.is_empty() && r.is_empty()) => {
                    let merged = merge_items(list, l, r);
                    (!merged.is_empty()).then_some(Value::Array(merged))
                }
                _ => leaf(),
            }
        }
        Shape::Map => {
            let (l, r) = (fields(left), fields(right));
            if atomic_map(types) || (l.is_none() && r.is_none()) {
                return leaf();
            }
            let mut merged = Map::new();
            for (name, value) in l.into_iter().flatten() {
                let other = r.and_then(|r| r.get(name));
                merged.extend(merge(inner(types, name), Some(value), other).map(|value| (name.clone(), value)));
            }
            for (name, value) in r.into_iter().flatten().filter(|(name, _)| l.is_none_or(|l| !l.contains_key(*name))) {
                merged.extend(merge(inner(types, name), None, Some(value)).map(|value| (name.clone(), value)));
            }
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
    }
}

/// Merges two lists. The relative order of the right side wins; items only on the left stay as near as possible
/// to where they were.
fn merge_items(list: &ListNode, left: &[Value], right: &[Value]) -> Vec<Value> {
    let (left_items, right_items) = (identified(list, left), identified(list, right));
    let mut on_left: BTreeMap<&PathElement, Option<&Value>> = BTreeMap::new();
    for (element, index) in &left_items {
        // A duplicated item matches nothing.
        on_left.entry(element).and_modify(|known| *known = None).or_insert(Some(&left[*index]));
    }
    let on_right: BTreeMap<&PathElement, &Value> =
        right_items.iter().map(|(element, index)| (element, &right[*index])).collect();

    let mut shared = right_items.iter().map(|(element, _)| element).filter(|element| on_left.contains_key(element));
    let mut next_shared = shared.next();
    let mut done: BTreeSet<&PathElement> = BTreeSet::new();
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let both = |element: &PathElement| {
        let left = on_left.get(element).copied().flatten();
        merge(&list.items, left, on_right.get(element).copied())
    };
    let (mut l, mut r) = (0, 0);
    while l < left_items.len() || r < right_items.len() {
        if let (Some((left_element, _)), Some((right_element, _))) = (left_items.get(l), right_items.get(r)) {
            if left_element == right_element {
                done.insert(left_element);
                out.extend(both(left_element));
                l += 1;
                r += 1;
                next_shared = shared.next();
                continue;
            }
            if on_right.contains_key(left_element) && next_shared.is_some_and(|next| next != left_element) {
                // Shared, but its turn comes later.
                l += 1;
                continue;
            }
        }
        if let Some((element, index)) = left_items.get(l) {
            if !on_right.contains_key(element) {
                out.extend(merge(&list.items, Some(&left[*index]), None));
                l += 1;
                continue;
            } else if done.contains(element) {
                l += 1;
            }
        }
        if let Some((element, _)) = right_items.get(r) {
            done.insert(element);
            out.extend(both(element));
            r += 1;
            if next_shared == Some(element) {
                next_shared = shared.next();
            }
        }
    }
    out
}

/// What changed between two values.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Comparison {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

impl Comparison {
    /// The same without what a write to this endpoint cannot change.
    pub(super) fn without(self, ignored: &FieldSet) -> Self {
        Self {
            added: self.added.without_subtrees(ignored),
            modified: self.modified.without_subtrees(ignored),
            removed: self.removed.without_subtrees(ignored),
        }
    }

    pub(super) fn taken(&self) -> FieldSet {
        self.added.union(&self.modified)
    }
}

/// What changed from `left` to `right`.
pub(super) fn compare(types: &TypeNode, left: &Value, right: &Value) -> Comparison {
    let mut comparison = Comparison::default();
    difference(types, Some(left), Some(right), &mut Vec::new(), &mut comparison);
    comparison
}

fn difference(
    types: &TypeNode,
    left: Option<&Value>,
    right: Option<&Value>,
    path: &mut Vec<PathElement>,
    out: &mut Comparison,
) {
    if left == right {
        // Most of an object stays as it is; nothing needs to be built for that part.
        return;
    }
    let (l, r) = (shape(types, left), shape(types, right));
    match (left, right) {
        (_, None) => difference_as(l, types, left, right, path, out),
        (None, _) => difference_as(r, types, left, right, path, out),
        _ if l == r => difference_as(r, types, left, right, path, out),
        _ => {
            difference_as(l, types, left, right, path, out);
            difference_as(r, types, left, right, path, out);
        }
    }
}

fn difference_as(
    shape: Shape,
    types: &TypeNode,
    left: Option<&Value>,
    right: Option<&Value>,
    path: &mut Vec<PathElement>,
    out: &mut Comparison,
) {
    let descended = match shape {
        Shape::Leaf => false,
        Shape::List => match associative(types) {
            Some(list) if !(items(left).is_empty() && items(right).is_empty()) => {
                difference_of_items(list, items(left), items(right), path, out);
                true
            }
            _ => false,
        },
        Shape::Map => {
            let (l, r) = (fields(left), fields(right));
            let descend = !atomic_map(types) && (l.is_some() || r.is_some());
            if descend {
                for (name, value) in l.into_iter().flatten() {
                    path.push(PathElement::field(name));
                    difference(inner(types, name), Some(value), r.and_then(|r| r.get(name)), path, out);
                    path.pop();
                }
                for (name, value) in
                    r.into_iter().flatten().filter(|(name, _)| l.is_none_or(|l| !l.contains_key(*name)))
                {
                    path.push(PathElement::field(name));
                    difference(inner(types, name), None, Some(value), path, out);
                    path.pop();
                }
            }
            descend
        }
    };
    match (left, right) {
        (None, _) => out.added.insert(path),
        (_, None) => out.removed.insert(path),
        (Some(left), Some(right)) if !descended && !same(left, right) => out.modified.insert(path),
        _ => {}
    }
}

fn difference_of_items(
    list: &ListNode,
    left: &[Value],
    right: &[Value],
    path: &mut Vec<PathElement>,
    out: &mut Comparison,
) {
    let mut groups: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for (element, index) in identified(list, left) {
        groups.entry(element).or_default().0.push(&left[index]);
    }
    for (element, index) in identified(list, right) {
        groups.entry(element).or_default().1.push(&right[index]);
    }
    for (element, (l, r)) in groups {
        path.push(element);
        match (&l[..], &r[..]) {
            ([_, _, ..], [_, _, ..]) => {
                // Duplicates on both sides are compared as one value.
                if l.len() != r.len() || l.iter().zip(&r).any(|(l, r)| !same(l, r)) {
                    out.modified.insert(path);
                }
            }
            ([_, _, ..], rest) => {
                if let Some(right) = rest.first() {
                    difference(&list.items, None, Some(right), path, out);
                }
                out.removed.insert(path);
            }
            (rest, [_, _, ..]) => {
                if let Some(left) = rest.first() {
                    difference(&list.items, Some(left), None, path, out);
                }
                out.added.insert(path);
            }
            (l, r) => difference(&list.items, l.first().copied(), r.first().copied(), path, out),
        }
        path.pop();
    }
}

/// `value` without the paths in `removed`. What becomes empty becomes null, as in the real server.
pub(super) fn remove(types: &TypeNode, value: &Value, removed: &FieldSet) -> Value {
    match (shape(types, Some(value)), value) {
        (Shape::Map, Value::Object(map)) if !atomic_map(types) => {
            let mut kept = Map::new();
            for (name, field) in map {
                let element = PathElement::field(name);
                if removed.has(&element) {
                    continue;
                }
                let field = match removed.below(&element) {
                    Some(below) => remove(inner(types, name), field, below),
                    None => field.clone(),
                };
                kept.insert(name.clone(), field);
            }
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (Shape::List, Value::Array(items)) => {
            let Some(list) = associative(types) else { return Value::Null };
            let mut kept = Vec::new();
            for (index, item) in items.iter().enumerate() {
                match PathElement::of_item(&list.kind, index, item) {
                    Ok(element) if removed.has(&element) => {}
                    Ok(element) => kept.push(match removed.below(&element) {
                        Some(below) => remove(&list.items, item, below),
                        None => item.clone(),
                    }),
                    Err(_) => kept.push(item.clone()),
                }
            }
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (Shape::Leaf, value) => value.clone(),
        _ => Value::Null,
    }
}
