//! OVSNode: the virtual switch of one host.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Condition, conditions, tolerant};

/// Which host the switch is on.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ovs.c5c3.io",
    version = "v1alpha1",
    kind = "OVSNode",
    plural = "ovsnodes",
    singular = "ovsnode",
    namespaced,
    doc = "The virtual switch of one host, as its OVS agent sees it. It has the name of its Node.",
    status = "OVSNodeStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "OVS", type_ = "string", json_path = ".status.ovsVersion"),
    printcolumn(name = "DPDK", type_ = "boolean", json_path = ".status.dpdkEnabled"),
    printcolumn(name = "Flows", type_ = "integer", json_path = ".status.flowStats.totalFlows"),
    printcolumn(
        name = "State",
        type_ = "string",
        priority = 1,
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(remote = "Self", rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct OVSNodeSpec {
    /// The Node.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub node_ref: Option<NodeRef>,
}

tolerant::section_at!("spec", OVSNodeSpec);

/// Names a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct NodeRef {
    /// The Node's name.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub name: String,
}

/// How the switch is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct OVSNodeStatus {
    /// The version of ovs-vswitchd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovs_version: Option<String>,

    /// The version of ovsdb-server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovsd_version: Option<String>,

    /// Packets are forwarded by DPDK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dpdk_enabled: Option<bool>,

    /// The version of DPDK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dpdk_version: Option<String>,

    /// The bridges.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub bridges: Option<Vec<Bridge>>,

    /// The interfaces of the host that belong to the switch.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<Interfaces>,

    /// The OVN controller on the host.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub ovn_controller: Option<OvnController>,

    /// How many flows there are.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub flow_stats: Option<FlowStats>,

    /// What is to be said about the switch.
    #[serde(deserialize_with = "tolerant::or_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// Totals over all ports.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SwitchMetrics>,

    /// What is wrong.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub issues: Option<Vec<Issue>>,

    /// Where the agent answers questions about the switch.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub troubleshooting: Option<Troubleshooting>,
}

tolerant::section_at!("status", OVSNodeStatus);

/// A bridge of the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Bridge {
    /// Its name: `br-int`, `br-ex`.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub name: String,
    /// The number of its ports.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub ports: Option<i32>,
    /// The number of its flows.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub flows: Option<i32>,
    /// What forwards its packets: `netdev` (user space) or `system` (the kernel).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datapath_type: Option<String>,
    /// Its state in a word: `Active`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// The interfaces of the host that belong to the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Interfaces {
    /// Network cards.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub physical: Option<Vec<PhysicalInterface>>,
    /// Several of them taken as one.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub bonds: Option<Vec<Bond>>,
}

/// A network card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PhysicalInterface {
    /// Its name: `eno1`.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub name: String,
    /// Its state in a word: `Up`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Its speed: `25Gbps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<String>,
    /// The bond it is a member of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond: Option<String>,
}

/// Several interfaces taken as one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Bond {
    /// Its name: `bond0`.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub name: String,
    /// How packets are spread over its members: `balance-tcp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Its state in a word: `Active`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The number of its members.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub members: Option<i32>,
    /// The number of those that carry packets.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub active_members: Option<i32>,
    /// Who makes them one: `ovs` or `kernel`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Whether it negotiates by LACP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacp: Option<bool>,
    /// The members themselves.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub member_status: Option<Vec<BondMember>>,
}

/// One leg of a bond.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct BondMember {
    /// The interface: `eno1`.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub name: String,
    /// Whether the bond sends over it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// What LACP says about it: `current`, `expired`, `defaulted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacp: Option<String>,
    /// The system at the other end, as LACP names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partner: Option<String>,
}

/// The OVN controller on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct OvnController {
    /// Whether it is connected to the southbound database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected: Option<bool>,
    /// Where that database is: `tcp:10.0.0.10:6642`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sb_connection: Option<String>,
    /// The UUID by which OVN knows the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chassis_id: Option<String>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// How many flows there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FlowStats {
    /// On all bridges.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub total_flows: Option<i32>,
    /// By table, where there are any.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub flows_per_table: Option<Vec<TableFlows>>,
}

/// The flows of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct TableFlows {
    /// The table.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub table: i32,
    /// How many.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub flows: i32,
}

/// Totals over all ports of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct SwitchMetrics {
    /// Packets that came in.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub packets_received: Option<i64>,
    /// Packets that went out.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub packets_sent: Option<i64>,
    /// Bytes that came in.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub bytes_received: Option<i64>,
    /// Bytes that went out.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub bytes_sent: Option<i64>,
    /// Packets that were dropped.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub drops: Option<i64>,
    /// Packets that were broken.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub errors: Option<i64>,
    /// When these and the numbers of flows were counted. They are not written as often as they change.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub observed_at: Option<Time>,
}

/// Something that is wrong with a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Issue {
    /// How bad it is: `Warning`.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub severity: String,
    /// What it is, in words.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub message: String,
    /// When it was seen first.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub detected_at: Option<Time>,
    /// What it is, in a word for programs: `OrphanPort`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// What it is about: a port, a bond, a bridge, a daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

/// Where the agent answers questions about the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Troubleshooting {
    /// Its address: `https://192.0.2.1:8443`.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub url: String,
    /// The name to expect in its certificate; that of the address if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// The authority that signed its certificate, as PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,
    /// For whom a token has to be meant; for the API server if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
}

tolerant::objects!(
    NodeRef,
    Bridge,
    Interfaces,
    PhysicalInterface,
    Bond,
    BondMember,
    OvnController,
    FlowStats,
    TableFlows,
    SwitchMetrics,
    Issue,
    Troubleshooting
);

impl OVSNode {
    /// The conditions; none where there is no status yet.
    pub fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    /// The condition of that type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        conditions::find(self.conditions(), type_)
    }
}
