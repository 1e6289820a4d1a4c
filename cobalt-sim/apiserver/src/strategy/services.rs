//! Services: defaults, and a cluster IP for those that want one. Nothing listens there.

use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

use crate::server::Inner;
use crate::status::StatusCause;

/// The first address of the range; the network's own and that of `kubernetes.default` are left out.
const FIRST: u32 = u32::from_be_bytes([10, 96, 0, 2]);
/// How many addresses there are.
const ADDRESSES: u32 = (1 << 16) - 3;

/// What the server chooses, and keeps when a replacement leaves it out.
const CHOSEN: [&str; 4] = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];

fn is_external(spec: &Map<String, Value>) -> bool {
    spec.get("type").is_some_and(|kind| kind == "ExternalName")
}

/// Fills in what a service may leave out.
pub(super) fn default(object: &mut Value) {
    let Some(spec) = object["spec"].as_object_mut() else { return };
    super::core::default(spec, "type", "ClusterIP");
    super::core::default(spec, "sessionAffinity", "None");
    if !is_external(spec) {
        super::core::default(spec, "internalTrafficPolicy", "Cluster");
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            super::core::default(port, "protocol", "TCP");
            let number = port.get("port").cloned().unwrap_or_default();
            // Zero is how Go says that there is none.
            if port.get("targetPort").is_some_and(|target| *target == 0 || *target == "") {
                port.remove("targetPort");
            }
            super::core::default(port, "targetPort", number);
        }
    }
}

/// Gives a new service its addresses. Nobody owns them.
pub(super) fn allocate(server: &Inner, object: &mut Value) {
    let Some(spec) = object["spec"].as_object_mut() else { return };
    if is_external(spec) {
        return;
    }
    let wanted = spec.get("clusterIP").and_then(Value::as_str).filter(|address| !address.is_empty());
    let address = match wanted {
        Some(address) => address.to_owned(),
        None => free(server),
    };
    spec.insert("clusterIP".to_owned(), address.clone().into());
    super::core::default(spec, "clusterIPs", json!([address]));
    super::core::default(spec, "ipFamilies", json!(["IPv4"]));
    super::core::default(spec, "ipFamilyPolicy", "SingleStack");
}

/// An address no service has.
fn free(server: &Inner) -> String {
    let services = server.store.snapshot("services", None, None).map(|s| s.objects).unwrap_or_default();
    let taken: std::collections::HashSet<&str> =
        services.iter().filter_map(|service| service.value["spec"]["clusterIP"].as_str()).collect();
    let addresses =
        (0..ADDRESSES).map(|_| Ipv4Addr::from_bits(FIRST + server.addresses.next() % ADDRESSES).to_string());
    addresses.into_iter().find(|address| !taken.contains(address.as_str())).unwrap_or_default()
}

/// A replacement that leaves out what the server chose means to keep it.
pub(super) fn keep(old: &Value, object: &mut Value) {
    let (old, Some(spec)) = (&old["spec"], object["spec"].as_object_mut()) else { return };
    if is_external(spec) || old["type"] == "ExternalName" {
        return;
    }
    for field in CHOSEN {
        if let Some(value) = old.get(field) {
            super::core::default(spec, field, value.clone());
        }
    }
}

/// An address is for life.
pub(super) fn causes(service: &Value, old: Option<&Value>) -> Vec<StatusCause> {
    let (new, Some(old)) = (&service["spec"], old.map(|old| &old["spec"])) else { return Vec::new() };
    let both_have = new["type"] != "ExternalName" && old["type"] != "ExternalName";
    if both_have && old["clusterIP"].is_string() && new["clusterIP"] != old["clusterIP"] {
        let why = "may not change once set";
        return vec![StatusCause::invalid("spec.clusterIPs[0]", &new["clusterIPs"], why)];
    }
    Vec::new()
}
