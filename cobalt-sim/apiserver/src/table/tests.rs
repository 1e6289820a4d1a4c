//! Recorded tables, rendered again from the objects they showed.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{cells, columns};
use crate::crd;
use crate::registry::{Registry, Resource};

const RECORDS: &str = include_str!("../../tests/wire/8-kubectl.jsonl");

fn record(id: &str) -> Value {
    let found = RECORDS.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find(|r| r["id"] == id);
    found.unwrap_or_else(|| panic!("{id} is not recorded"))
}

fn custom(definition: &str) -> Arc<Resource> {
    let definition: Value = serde_json::from_str(definition).expect("a definition");
    Arc::new(crd::resources(&definition).remove(0))
}

fn core(group: &str, plural: &str) -> Arc<Resource> {
    Registry::new().find(group, "v1", plural).expect("a built-in resource")
}

#[test]
fn the_columns_of_every_recorded_table_are_ours() {
    let hypervisors = custom(include_str!("../../tests/wire/crd-hypervisor.json"));
    let evictions = custom(include_str!("../../tests/wire/crd-eviction.json"));
    let gadgets = custom(include_str!("../../tests/wire/crd-gadget.json"));
    for (id, resource) in [
        ("8.001-table-hv", hypervisors),
        ("8.005-table-evi", evictions),
        ("8.006-table-gadget", gadgets),
        ("8.009-table-nodes", core("", "nodes")),
        ("8.010-table-pods", core("", "pods")),
        ("8.011-table-events", core("", "events")),
        ("8.012-table-cm", core("", "configmaps")),
        ("8.013-table-lease", core("coordination.k8s.io", "leases")),
        ("8.014-table-ns", core("", "namespaces")),
    ] {
        let recorded = &record(id)["response"]["body"]["columnDefinitions"];
        assert_eq!(columns(&resource), *recorded, "{id}");
    }
}

#[test]
fn a_row_has_a_cell_for_every_column() {
    let now = Timestamp::UNIX_EPOCH;
    for resource in Registry::new().all() {
        let empty = json!({"kind": resource.kind, "metadata": {"name": "x"}});
        let count = columns(&resource).as_array().map_or(0, Vec::len);
        assert_eq!(cells(&resource, &empty, now).len(), count, "{}", resource.kind);
    }
}

#[test]
fn the_cells_of_a_recorded_list_are_ours() {
    let full = record("8.002-table-hv-includeobject");
    let resource = custom(include_str!("../../tests/wire/crd-hypervisor.json"));
    let rows = full["response"]["body"]["rows"].as_array().expect("rows");
    assert!(!rows.is_empty());
    for row in rows {
        let own = cells(&resource, &row["object"], Timestamp::UNIX_EPOCH);
        let recorded = row["cells"].as_array().expect("cells");
        // The last one is an age, and the times are not in the recording.
        assert_eq!(own[..own.len() - 1], recorded[..recorded.len() - 1]);
    }
}

#[test]
fn a_cordoned_node_shows_its_roles_and_addresses() {
    let node = json!({
        "kind": "Node",
        "metadata": {
            "name": "n",
            "creationTimestamp": "1970-01-01T00:00:00Z",
            "labels": {"node-role.kubernetes.io/kvm": "", "kubernetes.io/role": "agent", "a": "b"},
        },
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "False"}],
            "addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1", "osImage": "Garden Linux"},
        },
    });
    let shown = cells(&core("", "nodes"), &node, Timestamp::UNIX_EPOCH);
    let expected = json!([
        "n",
        "NotReady,SchedulingDisabled",
        "agent,kvm",
        "0s",
        "v1",
        "10.0.0.1",
        "<none>",
        "Garden Linux",
        "<unknown>",
        "<unknown>"
    ]);
    assert_eq!(Value::from(shown), expected);
}

#[test]
fn an_event_of_the_new_kind_is_shown_by_its_series() {
    let event = json!({
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Node", "name": "n"},
        "eventTime": "1970-01-01T00:00:00.000000Z",
        "series": {"count": 4, "lastObservedTime": "1970-01-01T00:01:00.000000Z"},
        "reportingComponent": "c",
        "reportingInstance": "i",
        "type": "Normal",
        "reason": "R",
        "message": " m ",
    });
    let now = "1970-01-01T00:02:00Z".parse().expect("a time");
    let shown = cells(&core("", "events"), &event, now);
    assert_eq!(Value::from(shown), json!(["60s", "Normal", "R", "node/n", "", "c, i", "m", "2m", 4, "e"]));
}
