//! Migration: one instance on its way between hosts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tolerant;

/// Nothing is wanted of a migration: it is observed.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kvm.cloud.sap",
    version = "v1alpha1",
    kind = "Migration",
    plural = "migrations",
    singular = "migration",
    namespaced,
    doc = "The migration of one instance, as libvirt sees it. It has the instance's UUID as its name.",
    status = "MigrationStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Origin", type_ = "string", json_path = ".status.origin"),
    printcolumn(name = "Destination", type_ = "string", json_path = ".status.destination"),
    printcolumn(name = "Type", type_ = "string", json_path = ".status.type"),
    printcolumn(name = "Operation", type_ = "string", json_path = ".status.operation"),
    printcolumn(name = "Started", type_ = "date", json_path = ".status.started"),
    printcolumn(name = "Elapsed", type_ = "string", json_path = ".status.timeElapsed"),
    printcolumn(name = "Data Total", type_ = "string", json_path = ".status.dataTotal"),
    printcolumn(name = "Data Processed", type_ = "string", json_path = ".status.dataProcessed"),
    printcolumn(name = "Data Remaining", type_ = "string", json_path = ".status.dataRemaining"),
    printcolumn(name = "Memory TX", type_ = "string", json_path = ".status.memBps"),
    printcolumn(name = "Memory Dirty Rate", type_ = "string", json_path = ".status.memDirtyRate"),
    printcolumn(name = "Memory Iteration", type_ = "string", json_path = ".status.memIteration")
)]
#[serde(remote = "Self", rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct MigrationSpec {}

tolerant::section_at!("spec", MigrationSpec);

/// How the migration goes.
///
/// Amounts are texts for people: sizes as `4.0 GiB`, rates as `16.5 MiB/s`, times as `2.755s`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct MigrationStatus {
    /// The host the instance leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The host the instance goes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// The state of the job: `bounded`, `unbounded`, `completed`, `failed`, `cancelled`, `success`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// What the job is: `migration_in`, `migration_out`, and the other jobs libvirt knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// When it began.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// When the destination began to receive, by its own account.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub receiving_since: Option<Time>,
    /// When the instance ran on the destination, by its own account.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub arrived: Option<Time>,
    /// When it was over, whatever came of it.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
    /// The same figures as numbers, for programs.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub progress: Option<MigrationProgress>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub err_msg: Option<String>,
    /// How much the instance is slowed down so that the copy catches up, as `20%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_converge_throttle: Option<String>,
    /// How long it has taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_elapsed: Option<String>,
    /// How long it will take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_remaining: Option<String>,
    /// How long the preparation took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup_time: Option<String>,
    /// How long the instance stood still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime: Option<String>,
    /// Everything there is to copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_total: Option<String>,
    /// How much of it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_processed: Option<String>,
    /// How much of it is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_remaining: Option<String>,
    /// The memory to copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_total: Option<String>,
    /// How much of it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_processed: Option<String>,
    /// How much of it is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_remaining: Option<String>,
    /// How fast memory is copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_bps: Option<String>,
    /// How fast the instance changes memory, in pages: `1250/s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_dirty_rate: Option<String>,
    /// The size of a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_page_size: Option<String>,
    /// The memory copied page by page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_normal_bytes: Option<String>,
    /// The pages copied one by one.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub mem_normal: Option<i64>,
    /// The pages that were copied as one repeated byte.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub mem_constant: Option<i64>,
    /// How often memory has been gone through.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub mem_iteration: Option<i64>,
    /// The pages the instance asked for after it had moved.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub mem_postcopy_requests: Option<i64>,
    /// The disk data to copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_total: Option<String>,
    /// How much of it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_processed: Option<String>,
    /// How much of it is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_remaining: Option<String>,
    /// How fast disk data is copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bps: Option<String>,
}

tolerant::section_at!("status", MigrationStatus);

/// The figures of a migration as numbers: bytes, bytes per second, milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct MigrationProgress {
    /// How long it has taken.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub elapsed_ms: Option<i64>,
    /// How long it will take.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<i64>,
    /// How long the preparation took.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub setup_ms: Option<i64>,
    /// How long the instance stood still.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub downtime_ms: Option<i64>,
    /// Everything there is to copy.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub data_total_bytes: Option<i64>,
    /// How much of it is done.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub data_processed_bytes: Option<i64>,
    /// How much of it is left.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub data_remaining_bytes: Option<i64>,
    /// The memory to copy.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub mem_total_bytes: Option<i64>,
    /// How much of it is done.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub mem_processed_bytes: Option<i64>,
    /// How much of it is left.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub mem_remaining_bytes: Option<i64>,
    /// How fast memory is copied.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub mem_bytes_per_second: Option<i64>,
    /// How fast the instance changes memory, in pages.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub mem_dirty_pages_per_second: Option<i64>,
    /// The size of a page.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub mem_page_bytes: Option<i64>,
    /// The disk data to copy.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub disk_total_bytes: Option<i64>,
    /// How much of it is done.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub disk_processed_bytes: Option<i64>,
    /// How much of it is left.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub disk_remaining_bytes: Option<i64>,
    /// How fast disk data is copied.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub disk_bytes_per_second: Option<i64>,
    /// How much the instance is slowed down so that the copy catches up.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub throttle_percent: Option<i32>,
}

tolerant::objects!(MigrationProgress);
