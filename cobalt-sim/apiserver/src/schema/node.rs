//! The schema as a tree that is ready to use: regular expressions compiled, junctors parsed.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use super::rules::Rule;
use crate::types::{Field, ListKey, ListKind, ListNode, MapNode, Merge, Scalar, TypeNode, object_meta};

/// How deep a schema may nest; the real server has no structural schema that comes close.
pub(super) const MAX_SCHEMA_DEPTH: usize = 64;

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Kind {
    /// No type given: in junctors, below preserved fields.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

impl Kind {
    /// The name in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::IntOrString => "integer,string",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::Object, Self::Array, Self::String, Self::Integer, Self::Number, Self::Boolean]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// One node of a schema.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) nullable: bool,
    pub(super) default: Option<Value>,
    pub(super) properties: BTreeMap<String, Node>,
    pub(super) additional: Option<Box<Node>>,
    pub(super) items: Option<Box<Node>>,
    pub(super) preserve_unknown: bool,
    pub(super) embedded: bool,
    pub(super) atomic_map: bool,
    pub(super) list: List,
    pub(super) limits: Limits,
    pub(super) all_of: Vec<Node>,
    pub(super) any_of: Vec<Node>,
    pub(super) one_of: Vec<Node>,
    pub(super) not: Option<Box<Node>>,
    pub(super) rules: Vec<Rule>,
}

/// `x-kubernetes-list-type` and its keys.
#[derive(Debug, Default, PartialEq)]
pub(super) enum List {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// The constraints on a value itself.
#[derive(Debug, Default)]
pub(super) struct Limits {
    pub(super) allowed: Option<Vec<Value>>,
    pub(super) required: Vec<String>,
    pub(super) minimum: Option<(f64, bool)>,
    pub(super) maximum: Option<(f64, bool)>,
    pub(super) multiple_of: Option<f64>,
    pub(super) min_length: Option<u64>,
    pub(super) max_length: Option<u64>,
    pub(super) pattern: Option<Regex>,
    pub(super) format: Option<String>,
    pub(super) min_items: Option<u64>,
    pub(super) max_items: Option<u64>,
    pub(super) min_properties: Option<u64>,
    pub(super) max_properties: Option<u64>,
    pub(super) unique_items: bool,
}

impl Node {
    /// Reads a node. What is malformed is reported by [`super::structural`]; here it reads as absent.
    pub(super) fn read(schema: &Value, depth: usize) -> Self {
        let (Some(schema), true) = (schema.as_object(), depth <= MAX_SCHEMA_DEPTH) else { return Self::default() };
        let child = |value: &Value| Self::read(value, depth + 1);
        let list = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten().map(child).collect();
        let is_object = |value: &&Value| value.is_object();
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let int_or_string = flag(schema, "x-kubernetes-int-or-string");
        Self {
            kind: if int_or_string { Kind::IntOrString } else { Kind::parse(text(schema, "type")).unwrap_or_default() },
            nullable: flag(schema, "nullable"),
            default: schema.get("default").filter(|value| !value.is_null()).cloned(),
            properties: properties.map(|(name, value)| (name.clone(), child(value))).collect(),
            additional: match schema.get("additionalProperties") {
                Some(Value::Bool(true)) => Some(Box::new(Self { preserve_unknown: true, ..Self::default() })),
                other => other.filter(is_object).map(|value| Box::new(child(value))),
            },
            items: schema.get("items").filter(is_object).map(|value| Box::new(child(value))),
            preserve_unknown: flag(schema, "x-kubernetes-preserve-unknown-fields"),
            embedded: flag(schema, "x-kubernetes-embedded-resource"),
            atomic_map: text(schema, "x-kubernetes-map-type") == "atomic",
            list: match text(schema, "x-kubernetes-list-type") {
                "set" => List::Set,
                "map" => List::Map(strings(schema, "x-kubernetes-list-map-keys")),
                _ => List::Atomic,
            },
            limits: Limits::read(schema),
            all_of: list("allOf"),
            any_of: list("anyOf"),
            one_of: list("oneOf"),
            not: schema.get("not").filter(is_object).map(|value| Box::new(child(value))),
            rules: Vec::new(),
        }
    }

    /// The schema of the value under `name`.
    pub(super) fn field(&self, name: &str) -> Option<&Node> {
        self.properties.get(name).or(self.additional.as_deref())
    }

    /// The item of an old list that stands for `item`: only map lists know.
    pub(super) fn old_item<'a>(&self, old: Option<&'a Value>, item: &Value) -> Option<&'a Value> {
        let List::Map(keys) = &self.list else { return None };
        let key = |value: &Value| keys.iter().map(|key| value.get(key).cloned()).collect::<Vec<_>>();
        let wanted = key(item);
        old?.as_array()?.iter().find(|old| key(old) == wanted)
    }

    /// What server-side apply needs to know.
    pub(super) fn types(&self) -> TypeNode {
        match self.kind {
            Kind::Boolean => TypeNode::Scalar(Scalar::Boolean),
            Kind::String => TypeNode::Scalar(Scalar::String),
            Kind::Integer | Kind::Number => TypeNode::Scalar(Scalar::Number),
            Kind::IntOrString => TypeNode::Scalar(Scalar::Any),
            Kind::Any => TypeNode::Deduced,
            Kind::Array => TypeNode::List(self.list_types()),
            Kind::Object => self.map_types(),
        }
    }

    fn list_types(&self) -> ListNode {
        let default = |key: &str| self.items.as_ref().and_then(|items| items.properties.get(key)?.default.clone());
        ListNode {
            items: Box::new(self.items.as_ref().map_or(TypeNode::Deduced, |items| items.types())),
            kind: match &self.list {
                List::Atomic => ListKind::Atomic,
                List::Set => ListKind::Set,
                List::Map(keys) => {
                    ListKind::Map(keys.iter().map(|key| ListKey { name: key.clone(), default: default(key) }).collect())
                }
            },
            merge: Merge::Replace,
        }
    }

    fn map_types(&self) -> TypeNode {
        let bare = self.properties.is_empty() && self.additional.is_none();
        if bare && self.preserve_unknown && !self.atomic_map && !self.embedded {
            return TypeNode::Deduced;
        }
        let mut fields: BTreeMap<String, Field> =
            self.properties.iter().map(|(name, node)| (name.clone(), node.types().into())).collect();
        if self.embedded {
            fields.extend(resource_fields());
        }
        let other = match &self.additional {
            Some(node) => Some(Box::new(node.types())),
            None => (bare || self.preserve_unknown).then(|| Box::new(TypeNode::Deduced)),
        };
        TypeNode::Map(MapNode { fields, other, atomic: self.atomic_map })
    }

    /// The type of a whole object: `metadata` is what it is everywhere.
    pub(super) fn root_types(&self) -> TypeNode {
        match self.map_types() {
            TypeNode::Map(mut map) => {
                map.fields.extend(resource_fields());
                TypeNode::Map(map)
            }
            _ => TypeNode::Map(MapNode {
                fields: resource_fields().collect(),
                other: Some(Box::new(TypeNode::Deduced)),
                atomic: false,
            }),
        }
    }
}

fn resource_fields() -> impl Iterator<Item = (String, Field)> {
    let text = || Field::from(TypeNode::Scalar(Scalar::String));
    [("apiVersion", text()), ("kind", text()), ("metadata", object_meta().clone().into())]
        .into_iter()
        .map(|(name, field)| (name.to_owned(), field))
}

impl Limits {
    fn read(schema: &Map<String, Value>) -> Self {
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let count = |name: &str| schema.get(name).and_then(Value::as_u64);
        Self {
            allowed: schema.get("enum").and_then(Value::as_array).cloned(),
            required: strings(schema, "required"),
            minimum: number("minimum").map(|least| (least, flag(schema, "exclusiveMinimum"))),
            maximum: number("maximum").map(|most| (most, flag(schema, "exclusiveMaximum"))),
            multiple_of: number("multipleOf").filter(|of| *of != 0.0),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern: schema.get("pattern").and_then(Value::as_str).and_then(|pattern| Regex::new(pattern).ok()),
            format: schema.get("format").and_then(Value::as_str).map(str::to_owned),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            unique_items: flag(schema, "uniqueItems"),
        }
    }
}

pub(super) fn flag(schema: &Map<String, Value>, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or_default()
}

pub(super) fn text<'a>(schema: &'a Map<String, Value>, name: &str) -> &'a str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn strings(schema: &Map<String, Value>, name: &str) -> Vec<String> {
    let values = schema.get(name).and_then(Value::as_array).into_iter().flatten();
    values.filter_map(|value| value.as_str().map(str::to_owned)).collect()
}
