//! Reads the notation of `builtin.types`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Field, ListKey, ListKind, ListNode, MapNode, Merge, Scalar, TypeNode, Zero};

struct Block<'a> {
    atomic: bool,
    lines: Vec<&'a str>,
}

/// All kinds of the sources, by `group/Kind`. Structures may be used before they are written down.
pub(super) fn read(sources: &[&str]) -> BTreeMap<String, TypeNode> {
    let mut kinds = BTreeMap::new();
    let mut structures = BTreeMap::new();
    for source in sources {
        let mut current: Option<&mut Block<'_>> = None;
        for line in source.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            if let Some(block) = line.strip_prefix("  ") {
                if let Some(current) = &mut current {
                    current.lines.push(block);
                }
                continue;
            }
            let mut words = line.split_whitespace();
            let into = if words.next() == Some("kind") { &mut kinds } else { &mut structures };
            let name = words.next().unwrap_or_default();
            let atomic = words.next() == Some("atomic");
            current = Some(into.entry(name).or_insert(Block { atomic, lines: Vec::new() }));
        }
    }
    let scope = Scope { structures: &structures };
    kinds
        .into_iter()
        .map(|(name, block)| {
            let mut map = scope.structure(&block, 0);
            for name in ["apiVersion", "kind"] {
                map.fields.insert(name.to_owned(), TypeNode::Scalar(Scalar::String).into());
            }
            map.fields.insert("metadata".to_owned(), scope.parse("ObjectMeta", 0).into());
            (name.to_owned(), TypeNode::Map(map))
        })
        .collect()
}

struct Scope<'a> {
    structures: &'a BTreeMap<&'a str, Block<'a>>,
}

impl Scope<'_> {
    fn structure(&self, block: &Block<'_>, depth: usize) -> MapNode {
        let fields = block.lines.iter().filter_map(|line| {
            let (name, notation) = line.split_once(' ')?;
            let (name, zero) = match name.split_once('=') {
                Some((name, value)) => (name, Zero::Value(serde_json::from_str(value).unwrap_or(Value::Null))),
                None => match name.strip_suffix('!') {
                    Some(name) => (name, Zero::Structure),
                    None => (name, Zero::Absent),
                },
            };
            Some((name.to_owned(), Field { node: self.parse(notation, depth + 1), zero }))
        });
        MapNode { fields: fields.collect(), other: None, atomic: block.atomic }
    }

    fn parse(&self, notation: &str, depth: usize) -> TypeNode {
        if let Some(inner) = notation.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return self.list(inner, depth);
        }
        for (prefix, atomic) in [("{", false), ("atomic{", true)] {
            if let Some(inner) = notation.strip_prefix(prefix).and_then(|rest| rest.strip_suffix('}')) {
                let other = Some(Box::new(self.parse(inner, depth)));
                return TypeNode::Map(MapNode { fields: BTreeMap::new(), other, atomic });
            }
        }
        match notation {
            "string" => TypeNode::Scalar(Scalar::String),
            "number" => TypeNode::Scalar(Scalar::Number),
            "boolean" => TypeNode::Scalar(Scalar::Boolean),
            "any" => TypeNode::Scalar(Scalar::Any),
            "opaque" => TypeNode::Opaque,
            name => match self.structures.get(name) {
                // A structure that contains itself ends as an unknown.
                Some(block) if depth < 16 => TypeNode::Map(self.structure(block, depth)),
                _ => TypeNode::Deduced,
            },
        }
    }

    fn list(&self, inner: &str, depth: usize) -> TypeNode {
        let words: Vec<&str> = inner.split(' ').collect();
        let items = Box::new(self.parse(words.first().copied().unwrap_or_default(), depth));
        let after = |word: &str| words.iter().position(|w| *w == word).map(|at| words.get(at + 1).copied());
        let kind = match after("by") {
            Some(keys) => ListKind::Map(keys.unwrap_or_default().split(',').map(key).collect()),
            None if words.contains(&"set") => ListKind::Set,
            None => ListKind::Atomic,
        };
        let merge = match after("merge") {
            Some(Some(key)) => Merge::Key(key.to_owned()),
            Some(None) => Merge::Values,
            None => Merge::Replace,
        };
        TypeNode::List(ListNode { items, kind, merge })
    }
}

fn key(notation: &str) -> ListKey {
    match notation.split_once('=') {
        Some((name, default)) => ListKey { name: name.to_owned(), default: Some(Value::from(default)) },
        None => ListKey { name: notation.to_owned(), default: None },
    }
}
