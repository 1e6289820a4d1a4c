//! Strategic merge patch: merging along the type, steered by directives in the patch.

use serde_json::{Map, Value};

use super::PatchError;
use crate::types::{Merge, TypeNode, golang, same, too_deep};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

/// The patched copy of `target`.
pub fn strategic(target: &Value, patch: &Value, types: &TypeNode) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        let kind = if patch.is_array() { "array" } else { golang::type_name(patch) };
        let text = format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}");
        return Err(PatchError::Decode(text));
    };
    if too_deep(target) || patch.values().any(too_deep) {
        return Err(internal("the patch is nested too deeply"));
    }
    let target = target.as_object().cloned().unwrap_or_default();
    merge_map(target, patch, types).map(Value::Object)
}

fn internal(text: impl Into<String>) -> PatchError {
    PatchError::Internal(text.into())
}

type Object = Map<String, Value>;

fn merge_map(mut original: Object, patch: &Object, types: &TypeNode) -> Result<Object, PatchError> {
    match patch.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default()) {
        None => {}
        Some("replace") => {
            let mut replaced = patch.clone();
            replaced.remove(DIRECTIVE);
            return Ok(replaced);
        }
        Some("delete") => return Ok(Object::new()),
        Some("merge") => {
            let mut rest = patch.clone();
            rest.remove(DIRECTIVE);
            return merge_map(original, &rest, types);
        }
        Some(other) => return Err(unknown_directive(other, patch)),
    }
    if let Some(keys) = patch.get(RETAIN_KEYS) {
        retain_keys(&mut original, keys, patch)?;
    }
    for (key, value) in patch {
        if key == RETAIN_KEYS {
            continue;
        }
        if let Some(name) = key.strip_prefix(ELEMENT_ORDER) {
            order_list(&mut original, name, list_of(value, key)?, patch.get(name), types)?;
        } else if let Some(name) = key.strip_prefix(DELETE_FROM_LIST) {
            let unwanted = list_of(value, key)?;
            if let Some(Value::Array(items)) = original.get_mut(name) {
                items.retain(|item| !unwanted.iter().any(|other| same(item, other)));
            }
        } else if patch.contains_key(&format!("{ELEMENT_ORDER}{key}")) && value.is_array() {
            // Already merged together with its order.
        } else if value.is_null() {
            original.remove(key);
        } else {
            let merged = merge_field(original.remove(key), value, types.field(key).unwrap_or(&TypeNode::Opaque))?;
            original.extend(merged.map(|merged| (key.clone(), merged)));
        }
    }
    Ok(original)
}

fn merge_field(original: Option<Value>, patch: &Value, types: &TypeNode) -> Result<Option<Value>, PatchError> {
    Ok(match (original, patch) {
        (Some(Value::Object(original)), Value::Object(patch)) => {
            Some(Value::Object(merge_map(original, patch, types)?))
        }
        (Some(Value::Array(original)), Value::Array(patch)) => Some(Value::Array(merge_list(original, patch, types)?)),
        // Nothing to merge with: the patch as it is, without its directives.
        (_, patch) => fresh(patch, types),
    })
}

/// What a patch value stands for where the object has none: nulls and directives fall away, and a map that
/// carries a directive is lost as a whole.
fn fresh(patch: &Value, types: &TypeNode) -> Option<Value> {
    match patch {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let fields = map.iter().filter(|(name, value)| !value.is_null() && !is_directive(name));
            let fields = fields.filter_map(|(name, value)| {
                Some((name.clone(), fresh(value, types.field(name).unwrap_or(&TypeNode::Opaque))?))
            });
            Some(Value::Object(fields.collect()))
        }
        Value::Array(items) if *strategy(types) != Merge::Replace => {
            Some(Value::Array(items.iter().filter_map(|item| fresh(item, types.items())).collect()))
        }
        other => Some(other.clone()),
    }
}

fn is_directive(name: &str) -> bool {
    name == RETAIN_KEYS || name.starts_with(DELETE_FROM_LIST) || name.starts_with(ELEMENT_ORDER)
}

fn unknown_directive(directive: &str, patch: &Object) -> PatchError {
    internal(format!("unknown patch type: {directive} in map: {}", golang::plain(&Value::Object(patch.clone()))))
}

fn list_of<'a>(value: &'a Value, key: &str) -> Result<&'a [Value], PatchError> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| internal(format!("invalid value for {key}: expected a list")))
}

fn retain_keys(original: &mut Object, keys: &Value, patch: &Object) -> Result<(), PatchError> {
    let keys = list_of(keys, RETAIN_KEYS)?;
    let listed = |name: &str| keys.iter().any(|key| key == name);
    if patch.iter().any(|(name, value)| !name.starts_with('$') && !value.is_null() && !listed(name)) {
        return Err(internal("$retainKeys directive must contain all fields of the patch"));
    }
    original.retain(|name, _| listed(name));
    Ok(())
}

fn strategy(types: &TypeNode) -> &Merge {
    match types {
        TypeNode::List(list) => &list.merge,
        _ => &Merge::Replace,
    }
}

fn merge_list(original: Vec<Value>, patch: &[Value], types: &TypeNode) -> Result<Vec<Value>, PatchError> {
    match strategy(types) {
        Merge::Replace => Ok(patch.to_vec()),
        Merge::Values => {
            let mut merged: Vec<Value> = Vec::with_capacity(original.len() + patch.len());
            for item in original.iter().chain(patch) {
                if item.is_object() || item.is_array() {
                    return Err(internal("cannot merge lists without merge key"));
                }
                if !merged.contains(item) {
                    merged.push(item.clone());
                }
            }
            Ok(in_order(merged, patch, &original, None))
        }
        Merge::Key(key) => {
            let (base, wanted) = special_items(original, patch, key)?;
            let mut merged = base.clone();
            for item in &wanted {
                let value = key_of(item, key)?;
                match merged.iter_mut().find(|known| known.get(key).is_some_and(|other| same(other, value))) {
                    Some(known) => {
                        let before = known.as_object().cloned().unwrap_or_default();
                        let item = item.as_object().cloned().unwrap_or_default();
                        *known = Value::Object(merge_map(before, &item, types.items())?);
                    }
                    None => merged.extend(fresh(item, types.items())),
                }
            }
            Ok(in_order(merged, &wanted, &base, Some(key)))
        }
    }
}

/// Carries out the directives among the items of a patch list: what is left of the object's list, and the items to
/// merge into it.
fn special_items(mut original: Vec<Value>, patch: &[Value], key: &str) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut wanted = Vec::new();
    let mut replace = false;
    for item in patch {
        let Value::Object(map) = item else {
            return Err(internal("list element types are not identical"));
        };
        match map.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default()) {
            None => wanted.push(item.clone()),
            Some("replace") => replace = true,
            Some("delete") => {
                let value = key_of(item, key)?.clone();
                original.retain(|known| known.get(key).is_none_or(|other| !same(other, &value)));
            }
            Some("merge") => return Err(internal("merging lists cannot yet be specified in the patch")),
            Some(other) => return Err(unknown_directive(other, map)),
        }
    }
    Ok(if replace { (wanted, Vec::new()) } else { (original, wanted) })
}

fn key_of<'a>(item: &'a Value, key: &str) -> Result<&'a Value, PatchError> {
    item.get(key)
        .ok_or_else(|| internal(format!("map: {} does not contain declared merge key: {key}", golang::plain(item))))
}

fn order_list(
    original: &mut Object,
    name: &str,
    order: &[Value],
    patch: Option<&Value>,
    types: &TypeNode,
) -> Result<(), PatchError> {
    let types = types.field(name).unwrap_or(&TypeNode::Opaque);
    let before = match original.remove(name) {
        Some(Value::Array(items)) => Some(items),
        _ => None,
    };
    let patch = patch.and_then(Value::as_array);
    let merged = match (&before, patch) {
        (Some(before), Some(patch)) => merge_list(before.clone(), patch, types)?,
        (Some(before), None) => before.clone(),
        (None, Some(patch)) => match fresh(&Value::Array(patch.clone()), types) {
            Some(Value::Array(items)) => items,
            _ => return Ok(()),
        },
        (None, None) => return Ok(()),
    };
    let key = match strategy(types) {
        Merge::Key(key) => Some(key.as_str()),
        _ => None,
    };
    let ordered = in_order(merged, order, before.as_deref().unwrap_or_default(), key);
    original.insert(name.to_owned(), Value::Array(ordered));
    Ok(())
}

/// Items named by the patch come in the patch's order, the others in the object's; where the two meet, the object's
/// order decides, and what the object did not know comes first.
fn in_order(merged: Vec<Value>, patch: &[Value], server: &[Value], key: Option<&str>) -> Vec<Value> {
    let matches = |a: &Value, b: &Value| match key {
        None => same(a, b),
        Some(key) => matches!((a.get(key), b.get(key)), (Some(a), Some(b)) if same(a, b)),
    };
    let place = |list: &[Value], item: &Value| list.iter().position(|other| matches(item, other));
    let (mut mine, mut theirs): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(patch, item).is_some());
    mine.sort_by_key(|item| place(patch, item));
    theirs.sort_by_key(|item| place(server, item));

    let mut out = Vec::with_capacity(mine.len() + theirs.len());
    let (mut mine, mut theirs) = (mine.into_iter().peekable(), theirs.into_iter().peekable());
    loop {
        let take_theirs = match (mine.peek(), theirs.peek()) {
            (None, None) => return out,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (Some(m), Some(t)) => {
                matches!((place(server, t), place(server, m)), (Some(theirs), Some(mine)) if theirs < mine)
            }
        };
        out.extend(if take_theirs { theirs.next() } else { mine.next() });
    }
}
