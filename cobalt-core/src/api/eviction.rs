//! Eviction: the draining of one host.

mod instance;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use instance::{EvictedInstance, InstanceState, MoveKind};

use super::{Condition, conditions, tolerant};

/// Which host to drain, and why.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kvm.cloud.sap",
    version = "v1",
    kind = "Eviction",
    plural = "evictions",
    singular = "eviction",
    shortname = "evi",
    doc = "The draining of one host: all its instances are moved to other hosts.",
    status = "EvictionStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Hypervisor", type_ = "string", json_path = ".spec.hypervisor"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".spec.reason"),
    printcolumn(name = "State", type_ = "string", json_path = r#".status.conditions[?(@.type=="Evicting")].reason"#),
    printcolumn(name = "Created", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(remote = "Self", rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct EvictionSpec {
    /// The name of the Hypervisor. It cannot be changed.
    #[serde(deserialize_with = "tolerant::or_default")]
    #[schemars(extend(
        "minLength" = 1,
        "x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "Value is immutable"}]
    ))]
    pub hypervisor: String,

    /// Why, in words.
    #[serde(deserialize_with = "tolerant::or_default")]
    #[schemars(extend("minLength" = 1))]
    pub reason: String,
}

tolerant::section_at!("spec", EvictionSpec);

/// How far the draining has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct EvictionStatus {
    /// The UUID of the hypervisor in Nova (not that of its service: the name is part of the contract).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hypervisor_service_id: Option<String>,

    /// The memory of the instances that are still there, in MiB.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub outstanding_ram_mb: Option<i64>,

    /// The UUIDs of the instances that are still there.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub outstanding_instances: Option<Vec<String>>,

    /// How far each instance is. Those that have left are kept as long as there is room for them here.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub instances: Option<Vec<EvictedInstance>>,

    /// What is to be said about the draining.
    #[serde(deserialize_with = "tolerant::or_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

tolerant::section_at!("status", EvictionStatus);

impl EvictionStatus {
    /// The instances that are still there; none where they are not known.
    pub fn outstanding_instances(&self) -> &[String] {
        self.outstanding_instances.as_deref().unwrap_or_default()
    }

    /// How far each instance is; none where that was not said.
    pub fn instances(&self) -> &[EvictedInstance] {
        self.instances.as_deref().unwrap_or_default()
    }
}

impl Eviction {
    /// The conditions; none where there is no status yet.
    pub fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    /// The condition of that type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        conditions::find(self.conditions(), type_)
    }
}
