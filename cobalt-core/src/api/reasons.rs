//! The condition reasons of the contract. The same word serves several conditions.

/// The work is done.
pub const SUCCEEDED: &str = "Succeeded";
/// The work did not get done.
pub const FAILED: &str = "Failed";
/// The work, or a unit, is running.
pub const RUNNING: &str = "Running";
/// A unit, or an update, is not running.
pub const STOPPED: &str = "Stopped";
/// An update is finished.
pub const COMPLETED: &str = "Completed";
/// Waiting for something that only others can change.
pub const BLOCKED: &str = "Blocked";
/// `HaEnabled`: nobody is configured to own it.
pub const NOT_CONFIGURED: &str = "NotConfigured";

/// `Onboarding`: the host is known to Nova, test aggregates are being set.
pub const INITIAL: &str = "Initial";
/// `Onboarding`: the smoke test runs.
pub const TESTING: &str = "Testing";
/// `Onboarding`: waiting for traits, aggregates and HA.
pub const HANDOVER: &str = "Handover";
/// `Onboarding`: stopped before the end.
pub const ABORTED: &str = "Aborted";

/// `Ready`: nothing is in the way. `TLSCertificateInstalled`: the certificate is in place.
pub const READY: &str = "Ready";
/// `Ready`, `HaEnabled`: onboarding is not over.
pub const ONBOARDING: &str = "Onboarding";
/// `Offboarded`: on the way.
pub const OFFBOARDING: &str = "Offboarding";
/// `Offboarded`, `Ready`: the host is out of Nova.
pub const OFFBOARDED: &str = "Offboarded";
/// `Ready`, `Terminating`, `AggregatesUpdated`: the Node is going away.
pub const TERMINATING: &str = "Terminating";
/// `Ready`: in maintenance.
pub const MAINTENANCE: &str = "Maintenance";
/// `Ready`: in maintenance, instances are leaving.
pub const EVICTING: &str = "Evicting";
/// `Ready`, `HaEnabled`: in maintenance and empty.
pub const EVICTED: &str = "Evicted";
/// `Ready`: the host's agent has stopped to give signs of life.
pub const AGENT_SILENT: &str = "AgentSilent";
/// The host's agent cannot reach libvirt.
pub const LIBVIRT_NOT_CONNECTED: &str = "LibVirtNotConnected";

/// `HypervisorDisabled`: somebody else has disabled it, and not for maintenance.
pub const DISABLED_ELSEWHERE: &str = "DisabledElsewhere";
/// `Offboarded`: the Hypervisor was let go before its host was out of Nova.
pub const LEFT_BEHIND: &str = "LeftBehind";

/// `Tainted`: kubectl is among the field managers.
pub const KUBECTL: &str = "Kubectl";
/// `Tainted`: it is not.
pub const NO_KUBECTL: &str = "NoKubectl";

/// `AgentPodsEvicted`: none is left.
pub const NO_AGENT_PODS: &str = "NoAgentPods";
/// `AgentPodsEvicted`: some are left.
pub const AGENT_PODS_RUNNING: &str = "AgentPodsRunning";

/// `AggregatesUpdated`: unchanged until the host is empty.
pub const EVICTION_IN_PROGRESS: &str = "EvictionInProgress";
/// `AggregatesUpdated`: the host is in the test aggregate instead of its own.
pub const TEST_AGGREGATES: &str = "TestAggregates";
/// `AggregatesUpdated`: traits come first.
pub const WAITING_FOR_TRAITS: &str = "WaitingForTraits";

/// `LibVirtConnection`: the connection stands.
pub const CONNECTED: &str = "Connected";
/// `LibVirtConnection`: libvirt does not answer.
pub const CONNECT_FAILED: &str = "ConnectFailed";
/// `LibVirtConnection`: not even tried, the unit is down.
pub const LIBVIRT_SERVICE_NOT_RUNNING: &str = "LibVirtServiceNotRunning";
/// `LibVirtConnection`: connected, but the inventory could not be taken.
pub const PROCESS_FAILED: &str = "ProcessFailed";

/// `TLSCertificateInstalled`: files are being written.
pub const INSTALLING: &str = "Installing";
/// `TLSCertificateInstalled`: files could not be written.
pub const FAILED_TO_UPDATE_TLS_CERTIFICATE: &str = "FailedToUpdateTLSCertificate";
/// `TLSCertificateInstalled`: libvirt could not be told.
pub const FAILED_TO_START_UPDATE_TLS_SERVICE: &str = "FailedToStartUpdateTLSService";

/// `IncomingMigrationsSettled`: none is left.
pub const SETTLED: &str = "Settled";
/// `IncomingMigrationsSettled`: those that have not begun are being aborted.
pub const ABORTING_INCOMING_MIGRATIONS: &str = "AbortingIncomingMigrations";
/// `IncomingMigrationsSettled`: those that cannot be aborted are awaited.
pub const WAITING_FOR_INCOMING_MIGRATIONS: &str = "WaitingForIncomingMigrations";
