//! What an expression may cost, in the units of the real server: about one for each step of the interpreter.
//!
//! The same walk serves twice. When a definition is registered, sizes are the largest the schema allows, and a rule
//! that could be too expensive is refused. Before a rule runs, sizes are those of the values it will see, so that an
//! expensive one is given up instead of holding the server. Both are upper bounds: nothing is cut short.

use std::rc::Rc;

use cel::Value as Cel;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
use cel::objects::Key;

use super::convert::escape;
use crate::schema::node::{Kind, Node};

/// No request is larger, so nothing in one is.
const REQUEST: u64 = 3 * 1024 * 1024;

/// What is known of a value before an expression is evaluated.
#[derive(Clone, Default)]
pub(in crate::schema) enum Known<'a> {
    /// A scalar, or something whose size is no matter.
    #[default]
    Nothing,
    /// Any value of a schema.
    Schema(&'a Node),
    /// One of these values.
    Values(Vec<&'a Cel>),
    /// Something an expression makes: its size and what is in it.
    Made(u64, Rc<Known<'a>>),
}

impl<'a> Known<'a> {
    fn text(size: u64) -> Self {
        Self::Made(size, Rc::default())
    }

    /// Bytes of a text, items of a list or map; one for everything else.
    fn size(&self) -> u64 {
        match self {
            Self::Nothing => 1,
            Self::Schema(node) => largest(node),
            Self::Values(values) => values.iter().map(|value| length(value)).max().unwrap_or(0),
            Self::Made(size, _) => *size,
        }
    }

    fn field(&self, name: &str) -> Self {
        match self {
            Self::Schema(node) => {
                let declared = node.properties.iter().find(|(property, _)| escape(property) == name);
                let inner = declared.map(|(_, inner)| inner).or(node.additional.as_deref());
                inner.map_or(Self::Nothing, Self::Schema)
            }
            Self::Values(values) => {
                let inner = values.iter().filter_map(|value| match value {
                    Cel::Map(map) => map.map.get(&Key::from(name)),
                    _ => None,
                });
                Self::Values(inner.collect())
            }
            Self::Made(_, inner) => (**inner).clone(),
            Self::Nothing => Self::Nothing,
        }
    }

    /// What is in a list, or under the keys of a map.
    fn element(&self) -> Self {
        match self {
            Self::Schema(node) => {
                let inner = if node.kind == Kind::Array { &node.items } else { &node.additional };
                inner.as_deref().map_or(Self::Nothing, Self::Schema)
            }
            Self::Values(values) => Self::Values(
                values
                    .iter()
                    .flat_map(|value| -> Box<dyn Iterator<Item = &'a Cel>> {
                        match value {
                            Cel::List(items) => Box::new(items.iter()),
                            Cel::Map(map) => Box::new(map.map.values()),
                            _ => Box::new(std::iter::empty()),
                        }
                    })
                    .collect(),
            ),
            Self::Made(_, inner) => (**inner).clone(),
            Self::Nothing => Self::Nothing,
        }
    }

    /// What a macro's variable is: an item of a list, a key of a map.
    fn item(&self) -> Self {
        match self {
            Self::Schema(node) if node.kind == Kind::Object => Self::text(REQUEST / largest(node).max(1)),
            Self::Values(values) => {
                let keys = values.iter().filter_map(|value| match value {
                    Cel::Map(map) => map.map.keys().map(key_length).max(),
                    _ => None,
                });
                match keys.max() {
                    Some(longest) => Self::text(longest),
                    None => self.element(),
                }
            }
            other => other.element(),
        }
    }

    fn is_map(&self) -> bool {
        match self {
            Self::Schema(node) => node.kind == Kind::Object,
            Self::Values(values) => values.iter().any(|value| matches!(value, Cel::Map(_))),
            _ => false,
        }
    }

    fn larger(self, other: Self) -> Self {
        if other.size() > self.size() { other } else { self }
    }
}

fn length(value: &Cel) -> u64 {
    let length = match value {
        Cel::String(text) => text.len(),
        Cel::Bytes(bytes) => bytes.len(),
        Cel::List(items) => items.len(),
        Cel::Map(map) => map.map.len(),
        _ => 1,
    };
    length as u64
}

fn key_length(key: &Key) -> u64 {
    match key {
        Key::String(text) => text.len() as u64,
        _ => 1,
    }
}

/// The largest a value of a schema can be.
fn largest(node: &Node) -> u64 {
    let limits = &node.limits;
    let longest =
        || limits.allowed.iter().flatten().filter_map(|value| value.as_str()).map(|text| text.len() as u64).max();
    match node.kind {
        // A character has up to four bytes.
        Kind::String => match (limits.max_length, limits.format.as_deref()) {
            (Some(characters), _) => characters.saturating_mul(4),
            (None, Some("date" | "date-time" | "duration" | "uuid" | "ipv4" | "ipv6")) => 64,
            (None, _) => longest().unwrap_or(REQUEST),
        },
        Kind::IntOrString => REQUEST,
        Kind::Array => limits.max_items.unwrap_or_else(|| most(node.items.as_deref(), 1)),
        Kind::Object => match &node.additional {
            Some(inner) => limits.max_properties.unwrap_or_else(|| most(Some(inner), 6)),
            None => node.properties.len() as u64,
        },
        Kind::Any | Kind::Integer | Kind::Number | Kind::Boolean => 1,
    }
}

/// How many values of a schema fit into a request, each with so many bytes around it.
fn most(node: Option<&Node>, around: u64) -> u64 {
    REQUEST / (node.map_or(1, smallest) + around)
}

/// The shortest JSON of a schema's value.
fn smallest(node: &Node) -> u64 {
    match node.kind {
        Kind::String | Kind::Array => 2,
        Kind::Boolean => 4,
        Kind::Any | Kind::Integer | Kind::Number | Kind::IntOrString => 1,
        Kind::Object => {
            let needed = node.limits.required.iter().filter_map(|name| Some((name, node.properties.get(name)?)));
            let needed = needed.filter(|(_, property)| property.default.is_none());
            2 + needed.map(|(name, property)| name.len() as u64 + 4 + smallest(property)).sum::<u64>()
        }
    }
}

/// How often a rule at a node may have to be evaluated, if the lists and maps around it have no bounds.
pub(in crate::schema) fn unbounded(node: &Node) -> u64 {
    most(Some(node), 1)
}

/// At most so much does an expression cost with these variables.
pub(in crate::schema) fn estimate<'a>(expression: &'a IdedExpr, variables: Vec<(&'a str, Known<'a>)>) -> u64 {
    Estimator { variables }.expression(expression).0
}

struct Estimator<'a> {
    /// Innermost last.
    variables: Vec<(&'a str, Known<'a>)>,
}

/// A tenth: reading a byte costs less than a step.
fn traversal(size: u64) -> u64 {
    size.div_ceil(10).max(1)
}

fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |product, factor| product.saturating_mul(*factor))
}

impl<'a> Estimator<'a> {
    fn expression(&mut self, expression: &'a IdedExpr) -> (u64, Known<'a>) {
        match &expression.expr {
            Expr::Ident(name) => {
                let found = self.variables.iter().rfind(|(variable, _)| variable == name);
                (1, found.map(|(_, known)| known.clone()).unwrap_or_default())
            }
            Expr::Select(select) => {
                let (cost, operand) = self.expression(&select.operand);
                (cost.saturating_add(1), operand.field(&select.field))
            }
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::List(list) => {
                let (cost, inner) = self.all(list.elements.iter());
                (cost.saturating_add(10), Known::Made(list.elements.len() as u64, Rc::new(inner)))
            }
            Expr::Map(map) => {
                let parts = map.entries.iter().flat_map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
                    EntryExpr::StructField(field) => vec![&field.value],
                });
                let (cost, inner) = self.all(parts);
                (cost.saturating_add(30), Known::Made(map.entries.len() as u64, Rc::new(inner)))
            }
            Expr::Literal(LiteralValue::String(text)) => (0, Known::text(text.inner().len() as u64)),
            Expr::Literal(LiteralValue::Bytes(bytes)) => (0, Known::text(bytes.inner().len() as u64)),
            Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => (0, Known::Nothing),
        }
    }

    /// The sum of the costs, and the largest of the values.
    fn all(&mut self, expressions: impl IntoIterator<Item = &'a IdedExpr>) -> (u64, Known<'a>) {
        let mut sum: (u64, Option<Known<'a>>) = (0, None);
        for expression in expressions {
            let (cost, known) = self.expression(expression);
            sum.0 = sum.0.saturating_add(cost);
            sum.1 = Some(match sum.1 {
                Some(largest) => largest.larger(known),
                None => known,
            });
        }
        (sum.0, sum.1.unwrap_or_default())
    }

    fn call(&mut self, call: &'a CallExpr) -> (u64, Known<'a>) {
        let name = call.func_name.as_str();
        if let ("_?_:_", [condition, yes, no]) = (name, &call.args[..]) {
            let (condition, _) = self.expression(condition);
            let ((yes, this), (no, that)) = (self.expression(yes), self.expression(no));
            return (condition.saturating_add(yes.max(no)), this.larger(that));
        }
        let mut sum: u64 = 0;
        let mut values = Vec::new();
        for operand in call.target.as_deref().into_iter().chain(&call.args) {
            let (cost, known) = self.expression(operand);
            sum = sum.saturating_add(cost);
            values.push(known);
        }
        // The namespace of a function is no operand.
        if matches!(call.target.as_deref().map(|target| &target.expr), Some(Expr::Ident(name)) if super::check::NAMESPACES.contains(&name.as_str()))
        {
            values.remove(0);
        }
        let (own, made) = work(name, &values, call.args.last().map(|argument| &argument.expr));
        (sum.saturating_add(own), made)
    }

    fn comprehension(&mut self, comprehension: &'a ComprehensionExpr) -> (u64, Known<'a>) {
        let (range_cost, range) = self.expression(&comprehension.iter_range);
        let (init_cost, init) = self.expression(&comprehension.accu_init);
        let (rounds, before) = (range.size(), init.size());
        let outer = self.variables.len();
        self.variables.push((&comprehension.accu_var, init));
        let first = if comprehension.iter_var2.is_some() && !range.is_map() { Known::Nothing } else { range.item() };
        self.variables.push((&comprehension.iter_var, first));
        self.variables.extend(comprehension.iter_var2.as_deref().map(|name| (name, range.element())));
        let (condition, _) = self.expression(&comprehension.loop_cond);
        let (step, next) = self.expression(&comprehension.loop_step);
        // What grows by a round grows by each of them.
        let grown = next.size().saturating_sub(before).saturating_mul(rounds).saturating_add(before);
        let result = match &next {
            Known::Made(_, inner) => Known::Made(grown, inner.clone()),
            other => other.clone(),
        };
        self.variables.truncate(outer);
        self.variables.push((&comprehension.accu_var, result));
        let (result_cost, result) = self.expression(&comprehension.result);
        self.variables.truncate(outer);
        let loops = rounds.saturating_mul(condition.saturating_add(step));
        let cost =
            [range_cost, init_cost, loops, result_cost].iter().fold(0, |sum: u64, part| sum.saturating_add(*part));
        (cost, result)
    }
}

/// What a function costs beside its operands, and what it makes.
fn work<'a>(name: &str, values: &[Known<'a>], last: Option<&Expr>) -> (u64, Known<'a>) {
    let value = |index: usize| values.get(index).cloned().unwrap_or_default();
    let size = |index: usize| values.get(index).map_or(1, Known::size);
    let largest = || values.iter().cloned().reduce(Known::larger).unwrap_or_default();
    let list = |size: u64| Known::Made(size, Rc::new(value(0).element()));
    match name {
        "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" => (traversal(size(0).min(size(1))), Known::Nothing),
        "_+_" => {
            let sum = size(0).saturating_add(size(1));
            (traversal(sum), Known::Made(sum, Rc::new(value(0).element().larger(value(1).element()))))
        }
        "@in" | "_in_" if value(1).is_map() => (1, Known::Nothing),
        "@in" | "_in_" => (product(&[size(1), traversal(size(0).min(value(1).element().size()))]), Known::Nothing),
        "_[_]" | "_[?_]" | "_?._" => (1, value(0).element()),
        "contains" => (product(&[traversal(size(0)), traversal(size(1))]), Known::Nothing),
        "startsWith" | "endsWith" => (traversal(size(1)), Known::Nothing),
        "matches" | "find" => (product(&[traversal(size(0)), size(1).div_ceil(4).max(1)]), value(0)),
        "findAll" => {
            let cost = product(&[traversal(size(0)), size(1).div_ceil(4).max(1)]);
            (cost, Known::Made(size(0), Rc::new(value(0))))
        }
        "split" => (traversal(size(0)), Known::Made(size(0).saturating_add(1), Rc::new(value(0)))),
        "replace" => {
            let made = size(0).saturating_add(1).saturating_mul(size(2).max(1));
            (traversal(made), Known::text(made))
        }
        "join" => {
            let made = size(0).saturating_mul(value(0).element().size().saturating_add(size(1)));
            (traversal(made), Known::text(made))
        }
        "format" => {
            let arguments = size(1).saturating_mul(value(1).element().size().max(32));
            let made = size(0).saturating_add(arguments);
            (traversal(made), Known::text(made))
        }
        "string" | "quote" => (traversal(size(0)), Known::text(size(0).saturating_mul(2).saturating_add(32))),
        "sum" | "isSorted" => (size(0), Known::Nothing),
        "min" | "max" => (size(0), value(0).element().larger(largest())),
        "indexOf" | "lastIndexOf" => (product(&[size(0), traversal(size(1))]), Known::Nothing),
        "sort" | "sortBy" => (size(0).saturating_mul(32), value(0)),
        // Each item is compared with those before it.
        "distinct" => (product(&[size(0), size(0)]), value(0)),
        "slice" | "reverse" | "lowerAscii" | "upperAscii" | "trim" | "substring" => (traversal(size(0)), value(0)),
        "flatten" => {
            let made = size(0).saturating_mul(value(0).element().size());
            (made, Known::Made(made, Rc::new(value(0).element().element())))
        }
        "range" => {
            let made = match last {
                Some(Expr::Literal(LiteralValue::Int(count))) => u64::try_from(*count.inner()).unwrap_or(0),
                _ => u64::MAX,
            };
            (made, list(made))
        }
        "size" | "has" | "type" | "isIP" | "isURL" | "isQuantity" | "isFinite" | "isInf" | "isNaN" => {
            (1, Known::Nothing)
        }
        _ => (1, largest()),
    }
}
