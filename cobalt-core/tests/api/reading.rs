//! What others wrote is read for what it is worth.

use cobalt_core::api::{ConditionStatus, Hypervisor, Maintenance, OVSNode, Quantity, condition_types, resources};
use cobalt_core::kube::core::DeserializeGuard;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::samples::{KINDS, Kind, Path, paths, pointer};

#[allow(clippy::needless_pass_by_value, reason = "literals read better at the call")]
fn hypervisor(spec: Value, status: Value) -> Hypervisor {
    serde_json::from_value(json!({"metadata": {"name": "node-1"}, "spec": spec, "status": status})).unwrap()
}

#[allow(clippy::needless_pass_by_value, reason = "literals read better at the call")]
fn error(spec: Value, status: Value) -> String {
    let object = json!({"metadata": {"name": "node-1"}, "spec": spec, "status": status});
    serde_json::from_value::<Hypervisor>(object).unwrap_err().to_string()
}

#[test]
fn an_object_with_every_field_is_read_and_written_without_loss() {
    for kind in KINDS {
        assert_eq!(kind.round_trip(kind.sample()), Ok(kind.sample()), "{}", kind.name);
    }
}

#[test]
fn an_object_with_no_field_at_all_is_read() {
    for kind in KINDS {
        let bare = json!({"metadata": {"name": "x"}});
        let written = kind.round_trip(bare).unwrap();
        assert_eq!(written.get("status"), None, "{}", kind.name);
    }
}

#[test]
fn defaults_are_those_of_the_crd() {
    let spec = hypervisor(json!({}), json!(null)).spec;
    assert!(!spec.reboot() && !spec.skip_tests() && !spec.create_cert_manager_certificate());
    assert!(spec.evacuate_on_reboot() && spec.lifecycle_enabled() && spec.high_availability());
    assert!(spec.install_certificate() && spec.maintenance().is_off());
    assert!(spec.custom_traits().is_empty() && spec.aggregates().is_empty() && spec.allowed_projects().is_empty());
    assert!((spec.overcommit(resources::CPU) - 1.0).abs() < f64::EPSILON);
}

#[test]
fn explicit_false_and_null_as_a_go_program_writes_them_are_kept_apart() {
    let spec = hypervisor(
        json!({"lifecycleEnabled": false, "evacuateOnReboot": false, "customTraits": null, "groups": null, "overcommit": null}),
        json!(null),
    )
    .spec;
    assert!(!spec.lifecycle_enabled() && !spec.evacuate_on_reboot());
    assert_eq!(spec.custom_traits, None);
    assert_eq!(serde_json::to_value(&spec).unwrap(), json!({"lifecycleEnabled": false, "evacuateOnReboot": false}));
}

#[test]
fn a_maintenance_mode_of_a_later_release_survives_a_round_trip() {
    let spec = hypervisor(json!({"maintenance": "hibernation"}), json!(null)).spec;
    assert_eq!(spec.maintenance(), &Maintenance::Other("hibernation".into()));
    assert!(!spec.maintenance().is_off());
    assert_eq!(serde_json::to_value(&spec).unwrap(), json!({"maintenance": "hibernation"}));
}

#[test]
fn integers_are_read_in_any_spelling() {
    for spelling in [json!(3), json!(3.0), json!(3e0), json!("3")] {
        let status = hypervisor(json!({}), json!({"numInstances": spelling})).status.unwrap();
        assert_eq!(status.num_instances, Some(3));
    }
    let large = 9_007_199_254_740_993_i64;
    let node: OVSNode =
        serde_json::from_value(json!({"metadata": {}, "status": {"metrics": {"bytesSent": large}}})).unwrap();
    assert_eq!(node.status.unwrap().metrics.unwrap().bytes_sent, Some(large));
}

#[test]
fn quantities_are_read_as_numbers_and_as_texts() {
    let status = hypervisor(json!({}), json!({"capacity": {"cpu": 64, "memory": "1Gi", "gpu": 1.5}})).status.unwrap();
    let capacity = status.capacity.unwrap();
    assert_eq!(capacity[resources::CPU], Quantity::cpus(64));
    assert_eq!(capacity[resources::MEMORY], Quantity::bytes(1 << 30));
    assert_eq!(capacity["gpu"], "1500m".parse().unwrap());
}

#[test]
fn a_quantity_that_means_nothing_is_as_good_as_none() {
    let status = hypervisor(
        json!({}),
        json!({"capacity": {"cpu": "1e1.5", "memory": "1Gi"}, "capabilities": {"memory": "plenty"}}),
    )
    .status
    .unwrap();
    assert_eq!(status.capacity.unwrap().into_keys().collect::<Vec<_>>(), ["memory"]);
    assert_eq!(status.capabilities.unwrap().memory, None);
}

#[test]
fn a_condition_without_or_with_a_senseless_time_is_read() {
    let host = hypervisor(
        json!({}),
        json!({"conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "Evicting", "status": "maybe", "lastTransitionTime": "yesterday", "reason": null},
            {"type": "Tainted", "lastTransitionTime": 17},
            null,
        ]}),
    );
    assert!(host.is_true(condition_types::READY));
    let evicting = host.condition(condition_types::EVICTING).unwrap();
    assert_eq!((evicting.status, evicting.reason.as_str()), (ConditionStatus::Unknown, ""));
    assert_eq!(evicting.last_transition_time, None);
    assert_eq!(host.conditions().len(), 3);
}

#[test]
fn what_cannot_be_read_is_named() {
    let cases = [
        (error(json!("fast"), json!({})), "spec: "),
        (error(json!([]), json!({})), "spec: "),
        (error(json!({}), json!({"capabilities": ["x86_64"]})), "status.capabilities: "),
        (error(json!({}), json!(7)), "status: "),
        (error(json!({"lifecycleEnabled": "no"}), json!({})), "spec.lifecycleEnabled: "),
        (error(json!({"maintenance": 1}), json!({})), "spec.maintenance: "),
        (error(json!({"overcommit": {"cpu": {}}}), json!({})), "spec.overcommit.cpu: "),
        (error(json!({"groups": [{"trait": {"name": []}}]}), json!({})), "spec.groups[0].trait.name: "),
        (error(json!({}), json!({"instances": [{}, {"active": "x"}]})), "status.instances[1].active: "),
        (error(json!({}), json!({"numInstances": 1.5})), "status.numInstances: 1.5 is not an integer"),
        (
            error(json!({}), json!({"numInstances": 1_u64 << 40})),
            "status.numInstances: 1099511627776 is not an integer",
        ),
        (error(json!({}), json!({"conditions": "none"})), "status.conditions: "),
    ];
    for (message, start) in cases {
        assert!(message.starts_with(start), "{message:?} does not start with {start:?}");
    }
}

#[test]
fn an_unreadable_object_in_a_list_leaves_the_others_alone_and_is_named() {
    let list = json!([
        {"metadata": {"name": "node-1"}, "spec": {"reboot": "soon"}},
        {"metadata": {"name": "node-2"}, "spec": {"reboot": true}},
    ]);
    let read: Vec<DeserializeGuard<Hypervisor>> = serde_json::from_value(list).unwrap();
    let [DeserializeGuard(Err(bad)), DeserializeGuard(Ok(good))] = &read[..] else { panic!("{read:?}") };
    assert_eq!(bad.metadata.name.as_deref(), Some("node-1"));
    assert!(bad.error.starts_with("spec.reboot: "), "{}", bad.error);
    assert!(good.spec.reboot());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(|n| json!(n)),
        any::<String>().prop_map(Value::from),
        "[+-]?[0-9.]{1,40}(e[+-]?[0-9]{1,9}|[KMGTPE]i?|[numk])?".prop_map(Value::from),
        "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-zA-Z]{1,8}", inner, 0..4)
                .prop_map(|fields| Value::from(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn any_place() -> impl Strategy<Value = (Kind, Path)> {
    prop::sample::select(KINDS.to_vec()).prop_flat_map(|kind| (Just(kind), prop::sample::select(paths(&kind.sample()))))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Anything anywhere: it is read, or the error names a field on the way there.
    #[test]
    fn any_value_in_any_place_is_read_or_named((kind, path) in any_place(), value in any_json()) {
        let mut object = kind.sample();
        *object.pointer_mut(&pointer(&path)).unwrap() = value;
        if let Err(message) = kind.round_trip(object) {
            prop_assert!(message.starts_with(&path[0]), "{message}");
            if let Some(field) = path.get(1) {
                prop_assert!(message.contains(field.as_str()), "{message}");
            }
        }
    }

    /// Holes and novelties anywhere: it is read, and written again without either.
    #[test]
    fn nulls_missing_and_unknown_fields_are_always_read(
        kind in prop::sample::select(KINDS.to_vec()),
        holes in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..12),
        news in prop::collection::vec((any::<prop::sample::Index>(), any_json()), 0..6),
    ) {
        let mut object = kind.sample();
        for (index, remove) in holes {
            let paths = paths(&object);
            let Some((last, parent)) = paths[index.index(paths.len())].split_last() else { continue };
            match object.pointer_mut(&pointer(&parent.to_vec())) {
                Some(Value::Object(fields)) if remove => { fields.remove(last); }
                Some(Value::Object(fields)) => { fields.insert(last.clone(), Value::Null); }
                Some(Value::Array(items)) => items[last.parse::<usize>().unwrap()] = Value::Null,
                _ => {}
            }
        }
        for (index, value) in news {
            let paths = paths(&object);
            let place = &paths[index.index(paths.len())];
            // Maps have no unknown keys; a new key there is a new entry.
            let map = ["overcommit", "allocation", "capacity", "effectiveCapacity", "metadata"];
            if place.last().is_some_and(|last| map.contains(&last.as_str())) { continue }
            if let Some(Value::Object(fields)) = object.pointer_mut(&pointer(place)) {
                fields.insert("fromTheFuture".to_owned(), value);
            }
        }
        let once = kind.round_trip(object).map_err(TestCaseError::fail)?;
        prop_assert!(!once.to_string().contains("fromTheFuture"));
        prop_assert!(!once.to_string().contains("null"));
        prop_assert_eq!(kind.round_trip(once.clone()), Ok(once));
    }
}
