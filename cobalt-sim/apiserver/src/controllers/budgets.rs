//! Disruption budgets: how many of their pods may go, kept in `status` for evictions to decide on.

use serde_json::{Value, json};

use super::amend;
use crate::selectors::LabelSelector;
use crate::server::Inner;
use crate::store::{BUDGETS, Object, ObjectRef, PODS};
use crate::strategy::set_condition;

/// Recounts the budgets of a namespace.
pub(super) fn attend(server: &Inner, namespace: &str) {
    let list = |bucket: &str| {
        let snapshot = server.store.snapshot(bucket, Some(namespace), None);
        snapshot.map(|s| s.objects).unwrap_or_default()
    };
    let pods = list(PODS);
    for budget in list(BUDGETS) {
        let at = ObjectRef::new(BUDGETS, budget.key.clone());
        amend(server, &at, "kube-controller-manager", true, |budget| {
            let selector = LabelSelector::from_json(&budget.value["spec"]["selector"]);
            let matching = pods.iter().filter(|pod| selector.matches(&pod.value));
            let matching: Vec<&Object> = matching.map(AsRef::as_ref).collect();
            let next = recount(&budget.value, &matching, &server.clock.rfc3339());
            (next != budget.value).then_some(next)
        });
    }
}

fn recount(budget: &Value, pods: &[&Object], now: &str) -> Value {
    let mut next = budget.clone();
    let status = &mut next["status"];
    // An evicted pod no longer counts, whether or not its deletion was seen yet.
    if let Some(disrupted) = status.get_mut("disruptedPods").and_then(Value::as_object_mut) {
        disrupted.retain(|name, _| pods.iter().any(|p| p.key.name == *name && !p.is_terminating()));
        if disrupted.is_empty()
            && let Some(status) = status.as_object_mut()
        {
            status.remove("disruptedPods");
        }
    }
    let disrupted = |pod: &Object| status["disruptedPods"].get(&pod.key.name).is_some();
    let healthy = pods.iter().filter(|pod| is_ready(&pod.value) && !pod.is_terminating() && !disrupted(pod)).count();
    let (expected, healthy) = (int(pods.len()), int(healthy));
    let desired = desired(&budget["spec"], expected);
    let allowed = if expected > 0 { healthy.saturating_sub(desired).max(0) } else { 0 };
    let generation = budget["metadata"]["generation"].clone();
    status["observedGeneration"] = generation.clone();
    status["expectedPods"] = expected.into();
    status["currentHealthy"] = healthy.into();
    status["desiredHealthy"] = desired.into();
    status["disruptionsAllowed"] = allowed.into();
    let (flag, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let condition = json!({
        "type": "DisruptionAllowed", "status": flag, "reason": reason, "message": "", "observedGeneration": generation,
    });
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    set_condition(&mut conditions, condition, now);
    status["conditions"] = conditions.into();
    next
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// How many pods must stay healthy.
fn desired(spec: &Value, expected: i64) -> i64 {
    if let Some(minimum) = spec.get("minAvailable") {
        return scaled(minimum, expected);
    }
    match spec.get("maxUnavailable") {
        Some(maximum) => expected.saturating_sub(scaled(maximum, expected)).max(0),
        None => expected,
    }
}

/// A number, or a percentage of all rounded up.
fn scaled(value: &Value, all: i64) -> i64 {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    match percent {
        Some(percent) => all.saturating_mul(percent).saturating_add(99) / 100,
        None => value.as_i64().unwrap_or(0),
    }
}

fn int(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Key;

    fn pod(name: &str, ready: bool) -> Object {
        let flag = if ready { "True" } else { "False" };
        Object::new(Key::new("w", name), 1, json!({"status": {"conditions": [{"type": "Ready", "status": flag}]}}))
    }

    #[test]
    fn a_budget_allows_what_is_healthy_beyond_the_minimum() {
        let pods = [pod("a", true), pod("b", true), pod("c", false)];
        let pods: Vec<&Object> = pods.iter().collect();
        for (spec, allowed) in [
            (json!({"minAvailable": 1}), 1),
            (json!({"minAvailable": "50%"}), 0),
            (json!({"maxUnavailable": 1}), 0),
            (json!({"maxUnavailable": "100%"}), 2),
            (json!({"minAvailable": 0}), 2),
        ] {
            let budget = json!({"metadata": {"generation": 4}, "spec": spec, "status": {}});
            let next = recount(&budget, &pods, "now");
            assert_eq!(next["status"]["disruptionsAllowed"], allowed, "{spec}");
            assert_eq!(next["status"]["observedGeneration"], 4);
        }
    }

    #[test]
    fn a_pod_that_was_evicted_counts_no_longer_although_it_is_still_there() {
        let pods = [pod("a", true), pod("b", true)];
        let pods: Vec<&Object> = pods.iter().collect();
        let status = json!({"disruptedPods": {"a": "now", "gone": "now"}});
        let budget = json!({"metadata": {}, "spec": {"minAvailable": 1}, "status": status});
        let next = recount(&budget, &pods, "now");
        assert_eq!((&next["status"]["currentHealthy"], &next["status"]["disruptionsAllowed"]), (&json!(1), &json!(0)));
        assert_eq!(next["status"]["disruptedPods"], json!({"a": "now"}));
    }

    #[test]
    fn a_budget_of_any_size_can_be_counted() {
        let pods = [pod("a", true), pod("b", true)];
        let pods: Vec<&Object> = pods.iter().collect();
        for field in ["minAvailable", "maxUnavailable"] {
            for extreme in [i64::MIN, i64::MAX] {
                for value in [json!(extreme), json!(format!("{extreme}%"))] {
                    let budget = json!({"metadata": {}, "spec": {field: value}, "status": {}});
                    let next = recount(&budget, &pods, "now");
                    let all = (field == "maxUnavailable") == (extreme == i64::MAX);
                    assert_eq!(next["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) > 0, all, "{field} {value}");
                }
            }
        }
    }
}
