#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

#[test]
fn every_structure_named_in_the_tables_is_defined() {
    let text = [include_str!("builtin.types"), include_str!("workloads.types")].concat();
    let defined: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("struct ")?.split(' ').next()).collect();
    let known = ["string", "number", "boolean", "any", "opaque", "deduced"];
    for line in text.lines().filter(|line| line.starts_with("  ")) {
        let notation = line.trim().split_once(' ').unwrap().1;
        let name = notation.trim_start_matches("atomic").trim_matches(['[', ']', '{', '}']).split(' ').next().unwrap();
        assert!(known.contains(&name) || defined.contains(&name), "{line}");
    }
}

#[test]
fn a_node_is_born_with_the_fields_the_server_always_writes() {
    let zero = builtin("", "Node").unwrap().zero();
    assert_eq!(zero["spec"], json!({}));
    assert_eq!(zero["status"]["daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 0}}));
    assert_eq!(zero["status"]["nodeInfo"]["bootID"], json!(""));
}

#[test]
fn taints_are_one_value_and_conditions_have_a_key() {
    let node = builtin("", "Node").unwrap();
    let TypeNode::List(taints) = node.field("spec").unwrap().field("taints").unwrap() else { panic!("not a list") };
    assert_eq!((&taints.kind, &taints.merge), (&ListKind::Atomic, &Merge::Replace));
    let TypeNode::List(conditions) = node.field("status").unwrap().field("conditions").unwrap() else {
        panic!("not a list")
    };
    assert_eq!(conditions.kind, ListKind::Map(vec![ListKey { name: "type".into(), default: None }]));
    assert_eq!(conditions.merge, Merge::Key("type".into()));
}

#[test]
fn whole_floats_become_integers_and_compare_equal_to_them() {
    let mut value = json!({"a": 2.0, "b": [1.5, 3.0]});
    assert!(same(&value, &json!({"a": 2, "b": [1.5, 3]})));
    canonical_numbers(&mut value);
    assert_eq!(value.to_string(), json!({"a": 2, "b": [1.5, 3]}).to_string());
}

#[test]
fn nesting_is_bounded() {
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    assert!(!too_deep(&nested(MAX_DEPTH)));
    assert!(too_deep(&nested(MAX_DEPTH + 1)));
}
