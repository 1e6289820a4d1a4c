//! Paths and sets in wire form.

use serde_json::json;

use crate::apply::{FieldSet, PathElement};
use crate::types::{ListKey, ListKind};

#[test]
fn every_kind_of_step_has_a_wire_form_and_a_readable_one() {
    for (wire, shown) in [
        ("f:spec", ".spec"),
        ("f:a:b", ".a:b"),
        ("f:", "."),
        (r#"k:{"port":1,"proto":"TCP"}"#, r#"[port=1,proto="TCP"]"#),
        (r#"v:"t.io/a""#, r#"[="t.io/a"]"#),
        ("v:3", "[=3]"),
        ("i:2", "[2]"),
    ] {
        let element = PathElement::parse(wire).unwrap();
        assert_eq!((element.wire().as_str(), element.to_string().as_str()), (wire, shown));
    }
    for malformed in ["", "spec", "x:1", "k:1", "k:{", "v:", "i:x"] {
        assert_eq!(PathElement::parse(malformed), None, "{malformed}");
    }
}

#[test]
fn spelling_does_not_make_a_difference() {
    let spellings = [r#"k:{"b":1.0,"a":"x"}"#, r#"k:{"a": "x", "b": 1}"#];
    assert_eq!(PathElement::parse(spellings[0]), PathElement::parse(spellings[1]));
    let set =
        FieldSet::from_fields_v1(&json!({spellings[0]: {"f:x": {}}, spellings[1]: {".": {}, "f:y": {}}})).unwrap();
    assert_eq!(set.to_fields_v1(), json!({r#"k:{"a":"x","b":1}"#: {".": {}, "f:x": {}, "f:y": {}}}));
    assert_eq!((set.len(), set.paths().len()), (3, 3));
}

#[test]
fn an_item_without_all_keys_is_known_by_those_it_has() {
    let key = |name: &str| ListKey { name: name.to_owned(), default: None };
    let kind = ListKind::Map(vec![key("a"), key("b")]);
    let element = PathElement::of_item(&kind, 0, &json!({"b": 1})).unwrap();
    assert_eq!(element.wire(), r#"k:{"b":1}"#);
    let error = PathElement::of_item(&kind, 0, &json!({"c": 1})).unwrap_err();
    assert!(error.contains(r#"omits all key fields ["a" "b"]"#), "{error}");
}

#[test]
fn a_set_nested_without_end_is_refused() {
    let deep = (0..1000).fold(json!({}), |inner, _| json!({"f:x": inner}));
    assert_eq!(FieldSet::from_fields_v1(&deep), None);
    assert_eq!(FieldSet::from_fields_v1(&json!([])), None);
}
