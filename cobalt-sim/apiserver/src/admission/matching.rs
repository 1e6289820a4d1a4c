//! Which requests a policy or a binding is about.

use serde_json::Value;

use super::Attributes;
use crate::selectors::LabelSelector;

/// Whether `matchConstraints` or `matchResources` select a request; absent ones select all.
pub(super) fn matches(rules: &Value, attributes: &Attributes<'_>, object: Option<&Value>, old: Option<&Value>) -> bool {
    if rules.is_null() {
        return true;
    }
    let exact = rules["matchPolicy"] == "Exact";
    let any = |field: &str| {
        let list = rules[field].as_array();
        list.into_iter().flatten().any(|rule| rule_matches(rule, attributes, exact))
    };
    let selected = rules["resourceRules"].as_array().is_none_or(Vec::is_empty) || any("resourceRules");
    selected
        && !any("excludeResourceRules")
        && namespace_matches(&rules["namespaceSelector"], attributes, object.or(old))
        && [object, old].into_iter().flatten().any(|object| selector(&rules["objectSelector"], object))
}

fn selector(selector: &Value, object: &Value) -> bool {
    selector.as_object().is_none_or(serde_json::Map::is_empty) || LabelSelector::from_json(selector).matches(object)
}

/// A namespace is selected by its own labels, other objects without a namespace always.
fn namespace_matches(rules: &Value, attributes: &Attributes<'_>, object: Option<&Value>) -> bool {
    if attributes.resource.bucket == crate::store::NAMESPACES {
        return object.is_none_or(|object| selector(rules, object));
    }
    if !attributes.resource.namespaced {
        return true;
    }
    let namespace = attributes.server.namespace(&attributes.key.namespace);
    namespace.is_none_or(|namespace| selector(rules, &namespace.value))
}

fn rule_matches(rule: &Value, attributes: &Attributes<'_>, exact: bool) -> bool {
    let list = |field: &str| rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
    let has = |field: &str, wanted: &str| list(field).any(|value| value == "*" || value == wanted);
    let resource = attributes.resource;
    let named = rule["resourceNames"].as_array().is_none_or(Vec::is_empty)
        || list("resourceNames").any(|name| name == attributes.key.name);
    let scope = match rule["scope"].as_str() {
        Some("Cluster") => !resource.namespaced,
        Some("Namespaced") => resource.namespaced,
        _ => true,
    };
    has("operations", attributes.operation)
        && has("apiGroups", &resource.group)
        // Versions of one kind are equivalent unless the rule wants exactly what it names.
        && (!exact || has("apiVersions", &resource.version))
        && list("resources").any(|pattern| resource_matches(pattern, &resource.plural, attributes.subresource))
        && named
        && scope
}

/// `*` is every resource without subresources, `*/*` everything, `pods/*` all subresources of pods.
fn resource_matches(pattern: &str, plural: &str, subresource: &str) -> bool {
    let (wanted, wanted_sub) = pattern.split_once('/').unwrap_or((pattern, ""));
    let whole = pattern == "*/*";
    let resource = wanted == "*" || wanted == plural;
    whole || (resource && (wanted_sub == subresource || (wanted_sub == "*" && !subresource.is_empty())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_resources_and_subresources() {
        for (pattern, plural, subresource, expected) in [
            ("pods", "pods", "", true),
            ("pods", "pods", "status", false),
            ("*", "pods", "", true),
            ("*", "pods", "status", false),
            ("*/*", "pods", "status", true),
            ("pods/*", "pods", "status", true),
            ("pods/*", "pods", "", false),
            ("*/status", "pods", "status", true),
            ("nodes/status", "pods", "status", false),
        ] {
            assert_eq!(resource_matches(pattern, plural, subresource), expected, "{pattern} {plural}/{subresource}");
        }
    }
}
