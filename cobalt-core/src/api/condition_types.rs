//! The condition types of the contract.

/// Hypervisor, OVSNode: usable.
pub const READY: &str = "Ready";

/// Hypervisor: on its way into Nova. Its reason is the step.
pub const ONBOARDING: &str = "Onboarding";
/// Hypervisor: gone from Nova and Placement.
pub const OFFBOARDED: &str = "Offboarded";
/// Hypervisor: its Node is being removed. Node: set by Gardener, the source of the former.
pub const TERMINATING: &str = "Terminating";
/// Hypervisor: edited by hand.
pub const TAINTED: &str = "Tainted";
/// Hypervisor: Placement has the custom traits of the spec.
pub const TRAITS_UPDATED: &str = "TraitsUpdated";
/// Hypervisor: Nova has the aggregates of the spec.
pub const AGGREGATES_UPDATED: &str = "AggregatesUpdated";
/// Hypervisor: no agent runs on the host any more.
pub const AGENT_PODS_EVICTED: &str = "AgentPodsEvicted";
/// Hypervisor: its compute service is disabled, no new instance lands there.
pub const HYPERVISOR_DISABLED: &str = "HypervisorDisabled";
/// Hypervisor, Eviction: instances are being moved away. `False` on a Hypervisor means that it is empty.
pub const EVICTING: &str = "Evicting";
/// Hypervisor: a failure of the host leads to evacuation.
pub const HA_ENABLED: &str = "HaEnabled";
/// Hypervisor: the agent is connected to libvirt.
pub const LIBVIRT_CONNECTION: &str = "LibVirtConnection";
/// Hypervisor: the unit of the monolithic libvirt daemon.
pub const LIBVIRTD_SERVICE: &str = "libvirtd.service";
/// Hypervisor: the unit of Open vSwitch.
pub const OPENVSWITCH_SERVICE: &str = "openvswitch-switch.service";
/// Hypervisor: the operating system update.
pub const OPERATING_SYSTEM_UPDATE: &str = "OperatingSystemUpdate";
/// Hypervisor: the TLS certificate is on the host.
pub const TLS_CERTIFICATE_INSTALLED: &str = "TLSCertificateInstalled";
/// Hypervisor: its OVSNode says that the switch works.
pub const OVS_HEALTHY: &str = "OVSHealthy";

/// Eviction: the drain may begin.
pub const PREFLIGHT_CHECKS_SUCCEEDED: &str = "PreflightChecksSucceeded";
/// Eviction: how the last migration went.
pub const MIGRATING_INSTANCE: &str = "MigratingInstance";
/// Eviction: no instance is on its way to the host any more.
pub const INCOMING_MIGRATIONS_SETTLED: &str = "IncomingMigrationsSettled";
/// Eviction: declared by the contract, written by nobody.
pub const HYPERVISOR_RE_ENABLED: &str = "HypervisorReEnabled";

/// OVSNode: the switch's database answers.
pub const OVSDB_CONNECTED: &str = "OVSDBConnected";
/// OVSNode: ovn-controller is connected to the southbound database.
pub const OVN_CONTROLLER_CONNECTED: &str = "OVNControllerConnected";
/// OVSNode: every bridge is as it should be.
pub const ALL_BRIDGES_HEALTHY: &str = "AllBridgesHealthy";
/// OVSNode: every bond is as it should be.
pub const ALL_BONDS_HEALTHY: &str = "AllBondsHealthy";
/// OVSNode: the daemons of the switch answer.
pub const OVS_DAEMON_RESPONSIVE: &str = "OVSDaemonResponsive";
/// OVSNode: ovn-controller is connected to the switch.
pub const OPENFLOW_CONNECTED: &str = "OpenFlowConnected";
/// OVSNode: the last look found no flow that nothing in OVN explains.
pub const NO_STALE_FLOWS: &str = "NoStaleFlows";
