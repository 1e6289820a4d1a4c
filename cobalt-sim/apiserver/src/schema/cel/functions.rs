//! Functions Kubernetes adds to CEL.

// The interpreter's function type takes its arguments by value.
#![allow(clippy::needless_pass_by_value)]

use std::cmp::Ordering;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use cel::common::types::{DYN_TYPE, LIST_TYPE, STRING_TYPE};
use cel::common::value::CowVal;
use cel::{DeclarationError, Env, ExecutionError, Value};
use regex::Regex;

/// Declares the functions.
pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_member_overload("isSorted", "list.isSorted()", LIST_TYPE, vec![], is_sorted)?;
    env.add_member_overload("sum", "list.sum()", LIST_TYPE, vec![], sum)?;
    env.add_member_overload("min", "list.min()", LIST_TYPE, vec![], min)?;
    env.add_member_overload("max", "list.max()", LIST_TYPE, vec![], max)?;
    env.add_member_overload("indexOf", "list.indexOf(dyn)", LIST_TYPE, vec![DYN_TYPE], index_of)?;
    env.add_member_overload("lastIndexOf", "list.lastIndexOf(dyn)", LIST_TYPE, vec![DYN_TYPE], last_index_of)?;
    env.add_overload("matches", "matches", vec![STRING_TYPE, STRING_TYPE], matches)?;
    env.add_member_overload("matches", "matches_string", STRING_TYPE, vec![STRING_TYPE], matches)?;
    env.add_member_overload("find", "string.find(string)", STRING_TYPE, vec![STRING_TYPE], find)?;
    env.add_member_overload("findAll", "string.findAll(string)", STRING_TYPE, vec![STRING_TYPE], find_all)?;
    env.add_overload("isIP", "isIP(string)", vec![STRING_TYPE], is_ip)?;
    env.add_overload("isURL", "isURL(string)", vec![STRING_TYPE], is_url)?;
    env.add_overload("isQuantity", "isQuantity(string)", vec![STRING_TYPE], is_quantity)?;
    env.add_overload("timestamp", "timestamp(string)", vec![STRING_TYPE], timestamp)?;
    Ok(())
}

type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

fn answer<'b, 'v>(value: Value) -> Answer<'b, 'v> {
    let value: Box<dyn cel::common::value::Val> =
        value.try_into().map_err(|_| ExecutionError::InternalError("a value without a CEL type".to_owned()))?;
    Ok(CowVal::Owned(value))
}

fn values(args: &[CowVal<'_, '_>]) -> Result<Vec<Value>, ExecutionError> {
    let convert = |arg: &CowVal<'_, '_>| {
        Value::try_from(arg.as_ref())
            .map_err(|_| ExecutionError::InternalError("an argument without a value".to_owned()))
    };
    args.iter().map(convert).collect()
}

fn list(args: &[CowVal<'_, '_>]) -> Result<Arc<Vec<Value>>, ExecutionError> {
    match values(args)?.into_iter().next() {
        Some(Value::List(items)) => Ok(items),
        _ => Err(ExecutionError::invalid_argument_count(1, args.len())),
    }
}

fn strings(args: &[CowVal<'_, '_>]) -> Result<Vec<Arc<String>>, ExecutionError> {
    let strings = values(args)?.into_iter().map(|value| match value {
        Value::String(text) => Ok(text),
        other => Err(ExecutionError::unsupported_target_type(other)),
    });
    strings.collect()
}

fn ordering(a: &Value, b: &Value) -> Result<Ordering, ExecutionError> {
    a.partial_cmp(b).ok_or_else(|| ExecutionError::ValuesNotComparable(a.clone(), b.clone()))
}

fn is_sorted<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let items = list(&args)?;
    for pair in items.windows(2) {
        if ordering(&pair[0], &pair[1])? == Ordering::Greater {
            return answer(Value::Bool(false));
        }
    }
    answer(Value::Bool(true))
}

fn sum<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let items = list(&args)?;
    let mut total = Value::Int(0);
    for (index, item) in items.iter().enumerate() {
        let overflow = || ExecutionError::function_error("sum", "integer overflow");
        total = match (&total, item) {
            (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_add(*b).ok_or_else(overflow)?),
            (Value::UInt(a), Value::UInt(b)) => Value::UInt(a.checked_add(*b).ok_or_else(overflow)?),
            (Value::Float(a), Value::Float(b)) => Value::Float(a + b),
            // The first item decides the type.
            (_, Value::UInt(_) | Value::Float(_)) if index == 0 => item.clone(),
            _ => return Err(ExecutionError::no_such_member_overload("sum", vec!["list".to_owned()])),
        };
    }
    answer(total)
}

fn extreme<'b, 'v>(args: &[CowVal<'b, 'v>], name: &str, wanted: Ordering) -> Answer<'b, 'v> {
    let items = list(args)?;
    let mut items = items.iter();
    let message = format!("{name} called on empty list");
    let mut best = items.next().ok_or_else(|| ExecutionError::function_error(name, message))?;
    for item in items {
        if ordering(item, best)? == wanted {
            best = item;
        }
    }
    answer(best.clone())
}

fn min<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    extreme(&args, "min", Ordering::Less)
}

fn max<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    extreme(&args, "max", Ordering::Greater)
}

fn place(index: Option<usize>) -> Value {
    Value::Int(index.and_then(|index| i64::try_from(index).ok()).unwrap_or(-1))
}

fn index_of<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let (items, all) = (list(&args)?, values(&args)?);
    answer(place(items.iter().position(|item| Some(item) == all.get(1))))
}

fn last_index_of<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let (items, all) = (list(&args)?, values(&args)?);
    answer(place(items.iter().rposition(|item| Some(item) == all.get(1))))
}

/// So many patterns are kept compiled.
const PATTERNS: usize = 128;

/// A compiled pattern. Rules apply the same one to item after item, and compiling takes longer than matching.
fn compiled(pattern: &str) -> Result<Regex, regex::Error> {
    static KNOWN: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);
    let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(pattern) {
        return Ok(known.clone());
    }
    let fresh = Regex::new(pattern)?;
    let mut known = lock();
    if known.len() >= PATTERNS {
        known.clear();
    }
    known.insert(pattern.to_owned(), fresh.clone());
    Ok(fresh)
}

fn matches<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let [text, pattern] = &strings(&args)?[..] else {
        return Err(ExecutionError::invalid_argument_count(2, args.len()));
    };
    let compiled = compiled(pattern)
        .map_err(|why| ExecutionError::function_error("matches", format!("'{pattern}' not a valid regex:\n{why}")))?;
    answer(Value::Bool(compiled.is_match(text)))
}

fn found(args: &[CowVal<'_, '_>]) -> Result<Vec<Value>, ExecutionError> {
    let [text, pattern] = &strings(args)?[..] else {
        return Err(ExecutionError::invalid_argument_count(2, args.len()));
    };
    let pattern = compiled(pattern).map_err(|_| ExecutionError::function_error("find", "Illegal regex"))?;
    Ok(pattern.find_iter(text).map(|found| Value::from(found.as_str())).collect())
}

fn find<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    answer(found(&args)?.into_iter().next().unwrap_or_else(|| Value::from("")))
}

fn find_all<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    answer(Value::List(Arc::new(found(&args)?)))
}

fn holds<'b, 'v>(args: &[CowVal<'b, 'v>], test: impl Fn(&str) -> bool) -> Answer<'b, 'v> {
    answer(Value::Bool(strings(args)?.iter().all(|text| test(text))))
}

fn is_ip<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    holds(&args, |text| text.parse::<IpAddr>().is_ok())
}

fn timestamp<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let [text] = &strings(&args)?[..] else {
        return Err(ExecutionError::invalid_argument_count(1, args.len()));
    };
    // A day alone is a time in a schema, but not here.
    let time = super::convert::time(text).filter(|_| text.contains(['T', 't']));
    let why = || ExecutionError::function_error("timestamp", format!("cannot parse {text:?} as a timestamp"));
    answer(Value::String(Arc::new(time.ok_or_else(why)?)))
}

static URL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^([a-zA-Z][a-zA-Z0-9+.-]*:[^\s%]+|/[^\s%]*)$").ok());
static QUANTITY: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$").ok());

fn is_url<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    holds(&args, |text| URL.as_ref().is_some_and(|pattern| pattern.is_match(text)))
}

fn is_quantity<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    holds(&args, |text| QUANTITY.as_ref().is_some_and(|pattern| pattern.is_match(text)))
}
