//! Hypervisor: one KVM host.

mod maintenance;
mod status;

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::maintenance::Maintenance;
pub use self::status::{
    Aggregate, Capabilities, Cell, DomainCapabilities, HypervisorStatus, Instance, OperatingSystem, ResourceList,
    UpdateStatus, resources,
};
use super::{Condition, conditions, tolerant};

/// What is wanted of a host.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kvm.cloud.sap",
    version = "v1",
    kind = "Hypervisor",
    plural = "hypervisors",
    singular = "hypervisor",
    shortname = "hv",
    doc = "One KVM host: what is wanted of it, and how it is. It has the name of its Node.",
    status = "HypervisorStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(
        name = "Zone",
        type_ = "string",
        priority = 2,
        json_path = r".metadata.labels.topology\.kubernetes\.io/zone"
    ),
    printcolumn(
        name = "Building Block",
        type_ = "string",
        priority = 2,
        json_path = r".metadata.labels.kubernetes\.metal\.cloud\.sap/bb"
    ),
    printcolumn(
        name = "Group",
        type_ = "string",
        priority = 2,
        json_path = r".metadata.labels.worker\.garden\.sapcloud\.io/group"
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "State", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Taint", type_ = "string", json_path = r#".status.conditions[?(@.type=="Tainted")].message"#),
    printcolumn(name = "Lifecycle", type_ = "boolean", json_path = ".spec.lifecycleEnabled"),
    printcolumn(name = "High Availability", type_ = "boolean", json_path = ".spec.highAvailability"),
    printcolumn(name = "Skip Tests", type_ = "boolean", json_path = ".spec.skipTests"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.operatingSystem.prettyVersion"),
    printcolumn(name = "IP", type_ = "string", json_path = ".status.internalIp"),
    printcolumn(name = "Instances", type_ = "integer", json_path = ".status.numInstances"),
    printcolumn(
        name = "Hardware",
        type_ = "string",
        priority = 2,
        json_path = ".status.operatingSystem.hardwareModel"
    ),
    printcolumn(name = "Kernel", type_ = "string", priority = 2, json_path = ".status.operatingSystem.kernelRelease"),
    printcolumn(
        name = "Onboarding",
        type_ = "string",
        priority = 3,
        json_path = r#".status.conditions[?(@.type=="Onboarding")].reason"#
    ),
    printcolumn(name = "Service ID", type_ = "string", priority = 3, json_path = ".status.serviceId"),
    printcolumn(name = "Hypervisor ID", type_ = "string", priority = 3, json_path = ".status.hypervisorId"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(remote = "Self", rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [
    {
        "rule": "!has(oldSelf.maintenance) || oldSelf.maintenance != 'termination' || self.maintenance == 'ha' || self == oldSelf",
        "message": "spec is immutable when maintenance is 'termination'; can only change maintenance to 'ha'",
    },
    {
        "rule": "!has(self.maintenance) || self.maintenance != 'manual' || (has(self.maintenanceReason) && self.maintenanceReason.size() > 0)",
        "message": "maintenanceReason must be non-empty when maintenance is 'manual'",
    },
]))]
pub struct HypervisorSpec {
    /// The operating system version to install. `latest` is whatever is newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// Reboot after a successful update.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, extend("default" = false))]
    pub reboot: Option<bool>,

    /// Hold a reboot back until the instances have been moved away.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, extend("default" = true))]
    pub evacuate_on_reboot: Option<bool>,

    /// Manage the life of the host: onboarding, traits, aggregates, offboarding.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, extend("default" = true))]
    pub lifecycle_enabled: Option<bool>,

    /// Leave out the smoke test of the onboarding.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, extend("default" = false))]
    pub skip_tests: Option<bool>,

    /// Placement traits of the host (`CUSTOM_…`).
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    #[schemars(required, extend("default" = []))]
    pub custom_traits: Option<Vec<String>>,

    /// Names of the Nova aggregates of the host.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    #[schemars(required, extend("default" = []))]
    pub aggregates: Option<Vec<String>>,

    /// Scheduling groups. They belong to the scheduler; nothing here writes them.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<Group>>,

    /// UUIDs of the projects that may use the host. Empty: all.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    #[schemars(required, extend("default" = []))]
    pub allowed_projects: Option<Vec<String>>,

    /// Bring instances back elsewhere when the host dies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, extend("default" = true))]
    pub high_availability: Option<bool>,

    /// Let the node agent request its own certificate from cert-manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, extend("default" = false))]
    pub create_cert_manager_certificate: Option<bool>,

    /// Let the node agent install the TLS certificate on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, extend("default" = true))]
    pub install_certificate: Option<bool>,

    /// Take the host out of service, and why: by a person, by the node agent, by HA, or for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Maintenance>,

    /// The reason in words. A person must give one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance_reason: Option<String>,

    /// How much more of a resource (`cpu`, `memory`) to offer than there is. It belongs to the scheduler; nothing here
    /// writes it.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [
        {"rule": "self.all(k, self[k] >= 1.0)", "message": "overcommit ratios must be >= 1.0"},
    ]))]
    pub overcommit: Option<BTreeMap<String, f64>>,
}

tolerant::section_at!("spec", HypervisorSpec);

/// A scheduling group: exactly one of its fields is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [{
    "rule": "(has(self.trait) ? 1 : 0) + (has(self.aggregate) ? 1 : 0) == 1",
    "message": "exactly one group type must be set",
}]))]
pub struct Group {
    /// All hosts with a trait.
    #[serde(rename = "trait", deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub trait_: Option<TraitGroup>,

    /// All hosts of an aggregate.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<AggregateGroup>,
}

/// A group made by a trait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct TraitGroup {
    /// The trait.
    #[serde(deserialize_with = "tolerant::or_default")]
    #[schemars(extend("minLength" = 1))]
    pub name: String,
}

/// A group made by an aggregate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AggregateGroup {
    /// The aggregate's name.
    #[serde(deserialize_with = "tolerant::or_default")]
    #[schemars(extend("minLength" = 1))]
    pub name: String,

    /// The aggregate's UUID.
    #[serde(deserialize_with = "tolerant::or_default")]
    #[schemars(extend("pattern" = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"))]
    pub uuid: String,

    /// The aggregate's metadata.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
}

tolerant::objects!(Group, TraitGroup, AggregateGroup);

/// What the fields mean where they are absent: the defaults of the CRD.
impl HypervisorSpec {
    /// Reboot after a successful update; by default not.
    pub fn reboot(&self) -> bool {
        self.reboot.unwrap_or(false)
    }

    /// Hold a reboot back until the host is empty; by default so.
    pub fn evacuate_on_reboot(&self) -> bool {
        self.evacuate_on_reboot.unwrap_or(true)
    }

    /// Manage the life of the host; by default so.
    pub fn lifecycle_enabled(&self) -> bool {
        self.lifecycle_enabled.unwrap_or(true)
    }

    /// Leave out the smoke test; by default not.
    pub fn skip_tests(&self) -> bool {
        self.skip_tests.unwrap_or(false)
    }

    /// Placement traits; by default none.
    pub fn custom_traits(&self) -> &[String] {
        self.custom_traits.as_deref().unwrap_or_default()
    }

    /// Names of Nova aggregates; by default none.
    pub fn aggregates(&self) -> &[String] {
        self.aggregates.as_deref().unwrap_or_default()
    }

    /// Scheduling groups; by default none.
    pub fn groups(&self) -> &[Group] {
        self.groups.as_deref().unwrap_or_default()
    }

    /// Projects that may use the host; none means all.
    pub fn allowed_projects(&self) -> &[String] {
        self.allowed_projects.as_deref().unwrap_or_default()
    }

    /// Bring instances back when the host dies; by default so.
    pub fn high_availability(&self) -> bool {
        self.high_availability.unwrap_or(true)
    }

    /// Request a certificate from cert-manager; by default not.
    pub fn create_cert_manager_certificate(&self) -> bool {
        self.create_cert_manager_certificate.unwrap_or(false)
    }

    /// Install the certificate; by default so.
    pub fn install_certificate(&self) -> bool {
        self.install_certificate.unwrap_or(true)
    }

    /// The maintenance mode; by default off.
    pub fn maintenance(&self) -> &Maintenance {
        self.maintenance.as_ref().unwrap_or(&Maintenance::Off)
    }

    /// How much of a resource to offer for each unit there is; by default one.
    pub fn overcommit(&self, resource: &str) -> f64 {
        self.overcommit.as_ref().and_then(|ratios| ratios.get(resource)).copied().unwrap_or(1.0)
    }
}

impl Hypervisor {
    /// The conditions; none where there is no status yet.
    pub fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    /// The condition of that type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        conditions::find(self.conditions(), type_)
    }

    /// Whether the condition is there and `True`.
    pub fn is_true(&self, type_: &str) -> bool {
        conditions::is_true(self.conditions(), type_)
    }

    /// Whether the condition is there and `False`.
    pub fn is_false(&self, type_: &str) -> bool {
        conditions::is_false(self.conditions(), type_)
    }
}
