//! A set of paths, as `managedFields` keeps it in `fieldsV1`.

use std::cmp::Ordering;
use std::fmt::Write;

use serde_json::{Map, Value};

use super::path::PathElement;
use crate::types::{MAX_DEPTH, TypeNode};

/// A set of paths: a trie of sorted nodes, so that the set operations are linear merges.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSet {
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    element: PathElement,
    /// The path that ends here is in the set.
    member: bool,
    /// Longer paths.
    children: FieldSet,
}

/// Chooses what becomes of an element that is in one set or in both.
type Pick<'a> = dyn Fn(Option<&Node>, Option<&Node>) -> Option<Node> + 'a;

impl Node {
    fn kept(self) -> Option<Self> {
        (self.member || !self.children.is_empty()).then_some(self)
    }
}

/// A set from elements that appear once each: whether the path of the element is a member, and the paths below it.
impl FromIterator<(PathElement, bool, FieldSet)> for FieldSet {
    fn from_iter<I: IntoIterator<Item = (PathElement, bool, FieldSet)>>(nodes: I) -> Self {
        let nodes =
            nodes.into_iter().filter_map(|(element, member, children)| Node { element, member, children }.kept());
        let mut nodes: Vec<Node> = nodes.collect();
        nodes.sort_by(|a, b| a.element.cmp(&b.element));
        Self { nodes }
    }
}

impl FieldSet {
    /// A set with these paths of field names.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<PathElement> = path.iter().map(|name| PathElement::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    /// Whether no path is in the set.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many paths are in the set.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.member) + node.children.len()).sum()
    }

    /// Whether the path of this one element is in the set.
    pub fn has(&self, element: &PathElement) -> bool {
        self.node(element).is_some_and(|node| node.member)
    }

    /// The longer paths below an element.
    pub fn below(&self, element: &PathElement) -> Option<&FieldSet> {
        self.node(element).map(|node| &node.children).filter(|children| !children.is_empty())
    }

    fn node(&self, element: &PathElement) -> Option<&Node> {
        self.position(element).ok().map(|at| &self.nodes[at])
    }

    fn position(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    /// Adds a path. The empty path is in no set.
    pub fn insert(&mut self, path: &[PathElement]) {
        if let Some((element, rest)) = path.split_first() {
            let node = self.child(element);
            if rest.is_empty() {
                node.member = true;
            } else {
                node.children.insert(rest);
            }
        }
    }

    fn child(&mut self, element: &PathElement) -> &mut Node {
        let at = match self.position(element) {
            Ok(at) => at,
            Err(at) => {
                let node = Node { element: element.clone(), member: false, children: Self::default() };
                self.nodes.insert(at, node);
                at
            }
        };
        &mut self.nodes[at]
    }

    /// The paths in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, &|left, right| match (left, right) {
            (Some(left), Some(right)) => Some(Node {
                element: left.element.clone(),
                member: left.member || right.member,
                children: left.children.union(&right.children),
            }),
            (Some(only), None) | (None, Some(only)) => Some(only.clone()),
            (None, None) => None,
        })
    }

    /// The paths in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, &|left, right| {
            let (left, right) = (left?, right?);
            let children = left.children.intersection(&right.children);
            Node { element: left.element.clone(), member: left.member && right.member, children }.kept()
        })
    }

    /// The paths of this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, &|left, right| {
            let left = left?;
            let Some(right) = right else { return Some(left.clone()) };
            let children = left.children.difference(&right.children);
            Node { element: left.element.clone(), member: left.member && !right.member, children }.kept()
        })
    }

    /// The paths of this set that are neither in the other nor below one that is.
    #[must_use]
    pub fn without_subtrees(&self, other: &Self) -> Self {
        self.combine(other, &|left, right| {
            let left = left?;
            match right {
                None => Some(left.clone()),
                Some(right) if right.member => None,
                Some(right) => {
                    let children = left.children.without_subtrees(&right.children);
                    Node { element: left.element.clone(), member: left.member, children }.kept()
                }
            }
        })
    }

    fn combine(&self, other: &Self, pick: &Pick<'_>) -> Self {
        let (mut left, mut right) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        let mut nodes = Vec::with_capacity(self.nodes.len());
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(l), Some(r)) => l.element.cmp(&r.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Self { nodes },
            };
            let l = if order.is_le() { left.next() } else { None };
            let r = if order.is_ge() { right.next() } else { None };
            nodes.extend(pick(l, r));
        }
    }

    /// The same set in which every declared field on the way to a path is a member too.
    ///
    /// Removing a field by omission must also remove the structures that held nothing else.
    #[must_use]
    pub fn with_named_fields(&self, types: &TypeNode) -> Self {
        let nodes = self.nodes.iter().map(|node| {
            let (declared, inner) = match &node.element {
                PathElement::Field(name) => (types.declared(name).is_some(), types.field(name)),
                PathElement::Key(_) => (false, Some(types.items())),
                _ => (false, None),
            };
            let member = node.member || (declared && !node.children.is_empty());
            let children = node.children.with_named_fields(inner.unwrap_or(&TypeNode::Opaque));
            Node { element: node.element.clone(), member, children }
        });
        Self { nodes: nodes.collect() }
    }

    /// Every path, sorted, as written in conflict messages (`.spec.list[name="a"].value`).
    pub fn paths(&self) -> Vec<String> {
        fn collect(set: &FieldSet, prefix: &str, out: &mut Vec<String>) {
            for node in &set.nodes {
                let mut path = prefix.to_owned();
                // Writing to a String cannot fail.
                let _ = write!(path, "{}", node.element);
                if node.member {
                    out.push(path.clone());
                }
                collect(&node.children, &path, out);
            }
        }
        let mut out = Vec::new();
        collect(self, "", &mut out);
        out
    }

    /// The `fieldsV1` form.
    pub fn to_fields_v1(&self) -> Value {
        let fields = self.nodes.iter().map(|node| {
            let mut inner = node.children.to_fields_v1();
            if node.member
                && !node.children.is_empty()
                && let Value::Object(inner) = &mut inner
            {
                inner.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (node.element.wire(), inner)
        });
        Value::Object(fields.collect())
    }

    /// Reads the `fieldsV1` form; `None` when it is malformed.
    pub fn from_fields_v1(fields: &Value) -> Option<Self> {
        Self::read(fields, MAX_DEPTH)
    }

    fn read(fields: &Value, depth: usize) -> Option<Self> {
        let map = fields.as_object()?;
        let mut nodes = Vec::with_capacity(map.len());
        for (key, inner) in map.iter().filter(|(key, _)| *key != ".") {
            let children = Self::read(inner, depth.checked_sub(1)?)?;
            let member = children.is_empty() || inner.get(".").is_some();
            nodes.push(Node { element: PathElement::parse(key)?, member, children });
        }
        nodes.sort_by(|a, b| a.element.cmp(&b.element));
        // Two spellings of one key (`{"a":1}` and `{"a": 1}`) are one element.
        nodes.dedup_by(|next, first| {
            let same = next.element == first.element;
            if same {
                first.member |= next.member;
                first.children = first.children.union(&next.children);
            }
            same
        });
        Some(Self { nodes })
    }
}
