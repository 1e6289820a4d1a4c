//! What a host is like, by those who know: the node agent and the stages of the operator.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::{Condition, Quantity, tolerant};

/// Amounts by resource. See [`resources`].
pub type ResourceList = BTreeMap<String, Quantity>;

/// The keys of a [`ResourceList`] and of `spec.overcommit`.
pub mod resources {
    /// Virtual CPUs.
    pub const CPU: &str = "cpu";
    /// Bytes of memory.
    pub const MEMORY: &str = "memory";
}

/// How a host is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct HypervisorStatus {
    /// The version of libvirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "unknown"))]
    pub lib_virt_version: Option<String>,

    /// The version of QEMU or Cloud Hypervisor.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "unknown"))]
    pub hypervisor_version: Option<String>,

    /// The operating system and the machine under it.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub operating_system: Option<OperatingSystem>,

    /// The operating system update.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub update_status: Option<UpdateStatus>,

    /// The instances on the host, running or not.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub instances: Option<Vec<Instance>>,

    /// What the host has.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities>,

    /// What an instance on the host can have.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub domain_capabilities: Option<DomainCapabilities>,

    /// What the instances use, by resource.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub allocation: Option<ResourceList>,

    /// What there is, by resource.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub capacity: Option<ResourceList>,

    /// What is offered, by resource: the capacity with overcommit.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub effective_capacity: Option<ResourceList>,

    /// The same by NUMA cell, in the order of their ids.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub cells: Option<Vec<Cell>>,

    /// The number of instances, running or not.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    #[schemars(required, extend("default" = 0))]
    pub num_instances: Option<i32>,

    /// The UUID of the hypervisor in Nova, which is that of the resource provider in Placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hypervisor_id: Option<String>,

    /// The UUID of the compute service in Nova.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_id: Option<String>,

    /// The traits in Placement, sorted.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub traits: Option<Vec<String>>,

    /// The custom traits among them that were applied from the spec, sorted. Others are somebody else's.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub applied_traits: Option<Vec<String>>,

    /// The aggregates in Nova.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub aggregates: Option<Vec<Aggregate>>,

    /// The address of the host inside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_ip: Option<String>,

    /// The host is in maintenance and empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evicted: Option<bool>,

    /// Declared by the contract, written by nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_hash: Option<String>,

    /// What is to be said about the host.
    #[serde(deserialize_with = "tolerant::or_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

tolerant::section_at!("status", HypervisorStatus);

impl HypervisorStatus {
    /// The instances; none where they are not known.
    pub fn instances(&self) -> &[Instance] {
        self.instances.as_deref().unwrap_or_default()
    }

    /// The number of instances; zero where it is not known.
    pub fn num_instances(&self) -> i32 {
        self.num_instances.unwrap_or(0)
    }

    /// The traits; none where they are not known.
    pub fn traits(&self) -> &[String] {
        self.traits.as_deref().unwrap_or_default()
    }

    /// The aggregates; none where they are not known.
    pub fn aggregates(&self) -> &[Aggregate] {
        self.aggregates.as_deref().unwrap_or_default()
    }

    /// Whether the host is in maintenance and empty; not where it is not known.
    pub fn evicted(&self) -> bool {
        self.evicted.unwrap_or(false)
    }
}

/// The operating system of a host and the machine under it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct OperatingSystem {
    /// The version as a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The variant of the distribution.
    #[serde(rename = "variantID", skip_serializing_if = "Option::is_none")]
    pub variant_id: Option<String>,
    /// The version for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pretty_version: Option<String>,
    /// `Linux`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_name: Option<String>,
    /// The release of the kernel, as `uname -r` prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_release: Option<String>,
    /// The build of the kernel, as `uname -v` prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_version: Option<String>,
    /// What the kernel was started with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_command_line: Option<String>,
    /// Who made the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware_vendor: Option<String>,
    /// Which machine it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware_model: Option<String>,
    /// The machine's serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware_serial: Option<String>,
    /// The version of the firmware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware_version: Option<String>,
    /// Who made the firmware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware_vendor: Option<String>,
    /// When the firmware was made.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub firmware_date: Option<Time>,
    /// The commit Garden Linux was built from.
    #[serde(rename = "gardenLinuxCommitID", skip_serializing_if = "Option::is_none")]
    pub garden_linux_commit_id: Option<String>,
    /// The features Garden Linux was built with.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub garden_linux_features: Option<Vec<String>>,
}

/// The operating system update of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct UpdateStatus {
    /// An update is running.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, extend("default" = false))]
    pub in_progress: Option<bool>,
    /// The version installed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "unknown"))]
    pub installed: Option<String>,
    /// How many attempts are left.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    #[schemars(required, extend("default" = 3))]
    pub retry: Option<i32>,
}

impl UpdateStatus {
    /// Whether an update is running; by default not.
    pub fn in_progress(&self) -> bool {
        self.in_progress.unwrap_or(false)
    }

    /// How many attempts are left; by default three.
    pub fn retry(&self) -> i32 {
        self.retry.unwrap_or(3)
    }
}

/// An instance on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Instance {
    /// Its UUID.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub id: String,
    /// The name libvirt has for it.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub name: String,
    /// Whether it is running.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub active: bool,
}

/// What a host has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Capabilities {
    /// The architecture of its CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "unknown"))]
    pub cpu_arch: Option<String>,
    /// Its memory.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
    /// The number of its CPUs.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Quantity>,
}

/// What an instance on a host can have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct DomainCapabilities {
    /// The architecture of its virtual CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "unknown"))]
    pub arch: Option<String>,
    /// What runs it: `kvm`, `qemu`, `ch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "unknown"))]
    pub hypervisor_type: Option<String>,
    /// Devices: `video`, `video/virtio`.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = []))]
    pub supported_devices: Option<Vec<String>>,
    /// CPU modes: `mode/host-passthrough`, `mode/host-passthrough/on`.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = []))]
    pub supported_cpu_modes: Option<Vec<String>>,
    /// Features: `sev`, `sgx`.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = []))]
    pub supported_features: Option<Vec<String>>,
}

/// A NUMA cell of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Cell {
    /// The host's number for the cell.
    #[serde(rename = "cellID", deserialize_with = "tolerant::or_default")]
    pub cell_id: i64,
    /// What the instances use, by resource.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub allocation: Option<ResourceList>,
    /// What there is, by resource.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub capacity: Option<ResourceList>,
    /// What is offered, by resource.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub effective_capacity: Option<ResourceList>,
}

/// An aggregate in Nova.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Aggregate {
    /// Its name.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub name: String,
    /// Its UUID.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub uuid: String,
    /// Its metadata.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
}

tolerant::objects!(OperatingSystem, UpdateStatus, Instance, Capabilities, DomainCapabilities, Cell, Aggregate);
