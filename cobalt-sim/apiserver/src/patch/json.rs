//! JSON patch (RFC 6902) with the habits of the real server: `replace` creates, negative indexes count from the
//! end, and every failure is the same 422.

use serde_json::Value;

use super::PatchError;
use crate::types::{MAX_DEPTH, same};

const MAX_OPERATIONS: usize = 10_000;
/// `copy` can double a document with each operation; the real server stops at this many bytes copied.
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// The patched copy of `target`.
pub fn json(target: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Array(operations) = patch else {
        let kind = match patch {
            Value::Object(_) => "object",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
            _ => return Ok(target.clone()),
        };
        let text = format!("json: cannot unmarshal {kind} into Go value of type []handlers.jsonPatchOp");
        return Err(PatchError::Decode(text));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooMany { limit: MAX_OPERATIONS, got: operations.len() });
    }
    let mut document = target.clone();
    let mut copied = 0;
    for operation in operations {
        run(&mut document, operation, &mut copied).ok_or(PatchError::Rejected)?;
    }
    Ok(document)
}

fn run(document: &mut Value, operation: &Value, copied: &mut usize) -> Option<()> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let path = text("path")?;
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match text("op")? {
        "add" => add(document, path, value()),
        "replace" => replace(document, path, value()),
        "remove" => remove(document, path).map(drop),
        "test" => same(&get(document, path)?, &value()).then_some(()),
        "move" => {
            let from = text("from")?;
            let value = remove(document, from)?;
            add(document, path, value)
        }
        "copy" => {
            let value = get(document, text("from")?)?;
            *copied += value.to_string().len();
            (*copied <= MAX_COPIED).then_some(())?;
            add(document, path, value)
        }
        _ => None,
    }
}

/// The container that holds the last step of a path, and that step.
fn parent<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parents, last) = path.rsplit_once('/')?;
    let mut current = document;
    if !parents.is_empty() {
        for step in parents.strip_prefix('/')?.split('/') {
            let step = unescape(step);
            current = match current {
                Value::Object(map) => map.get_mut(&step)?,
                Value::Array(items) => {
                    let at = index(&step, items.len())?;
                    items.get_mut(at)?
                }
                _ => return None,
            };
        }
    }
    (current.is_object() || current.is_array()).then(|| (current, unescape(last)))
}

/// Whether a value may be put at a path. Each operation can nest what earlier ones made (a parent copied into its
/// child, one thing moved into another), and a value that is too deep cannot even be dropped.
fn fits(path: &str, value: &Value) -> Option<()> {
    fn nests(value: &Value, most: usize) -> bool {
        match value {
            Value::Array(items) => most > 0 && items.iter().all(|item| nests(item, most - 1)),
            Value::Object(map) => most > 0 && map.values().all(|item| nests(item, most - 1)),
            _ => true,
        }
    }
    let steps = path.matches('/').count();
    nests(value, MAX_DEPTH.checked_sub(steps)?).then_some(())
}

fn unescape(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// A position in a list of this length; `-1` is the last item.
fn index(step: &str, length: usize) -> Option<usize> {
    let at: i64 = step.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    usize::try_from(if at < 0 { length + at } else { at }).ok()
}

fn get(document: &mut Value, path: &str) -> Option<Value> {
    match parent(document, path)? {
        // A missing member reads as null.
        (Value::Object(map), name) => Some(map.get(&name).cloned().unwrap_or(Value::Null)),
        (Value::Array(items), step) => items.get(index(&step, items.len())?).cloned(),
        _ => None,
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Option<()> {
    fits(path, &value)?;
    match parent(document, path)? {
        (Value::Object(map), name) => {
            map.insert(name, value);
        }
        (Value::Array(items), step) => {
            let at = if step == "-" {
                items.len()
            } else {
                // An insertion has one more place than the list has items.
                index(&step, items.len() + usize::from(step.starts_with('-'))).filter(|at| *at <= items.len())?
            };
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn replace(document: &mut Value, path: &str, value: Value) -> Option<()> {
    fits(path, &value)?;
    match parent(document, path)? {
        (Value::Object(map), name) => {
            map.insert(name, value);
        }
        (Value::Array(items), step) => {
            let at = index(&step, items.len())?;
            *items.get_mut(at)? = value;
        }
        _ => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &str) -> Option<Value> {
    match parent(document, path)? {
        (Value::Object(map), name) => map.remove(&name),
        (Value::Array(items), step) => {
            let at = index(&step, items.len()).filter(|at| *at < items.len())?;
            Some(items.remove(at))
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::too_deep;

    #[test]
    fn no_operation_nests_deeper_than_a_document_may() {
        let nested = (0..100).fold(json!({}), |inner, _| json!({"a": inner}));
        let bottom = "/a".repeat(100);
        let grow = |operation: Value| json(&json!({"a": nested["a"], "b": nested}), &json!([operation]));
        for operation in [
            json!({"op": "add", "path": format!("{bottom}/x"), "value": nested}),
            json!({"op": "replace", "path": bottom, "value": nested}),
            json!({"op": "move", "from": "/b", "path": format!("{bottom}/x")}),
            json!({"op": "copy", "from": "/b", "path": format!("{bottom}/x")}),
        ] {
            assert!(grow(operation.clone()).is_err(), "{operation}");
        }
        let shallow = json!({"op": "move", "from": "/b", "path": format!("{}/x", "/a".repeat(26))});
        assert!(!too_deep(&grow(shallow).unwrap()));
    }
}
