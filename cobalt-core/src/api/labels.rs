//! Labels, annotations and taints by which Nodes, Hypervisors and programs find each other.

/// Node label: the Node is a hypervisor. Its presence counts; the value names the virt driver.
pub const VIRT_DRIVER: &str = "nova.openstack.cloud.sap/virt-driver";

/// Node label: manage the life of this hypervisor, from onboarding to offboarding. Its presence counts, see also
/// [`SKIP_TESTS`].
pub const LIFECYCLE: &str = "cobaltcore.cloud.sap/node-hypervisor-lifecycle";

/// Value of [`LIFECYCLE`] that leaves out the smoke test.
pub const SKIP_TESTS: &str = "skip-tests";

/// Node annotation: comma-separated names of the Nova aggregates the host belongs to.
pub const AGGREGATES_ANNOTATION: &str = "nova.openstack.cloud.sap/aggregates";

/// Node annotation: comma-separated custom traits of the host.
pub const CUSTOM_TRAITS_ANNOTATION: &str = "nova.openstack.cloud.sap/custom-traits";

/// The aggregate that keeps everybody but the smoke test away from a host being onboarded.
pub const TEST_AGGREGATE: &str = "tenant_filter_tests";

/// Node taint (`NoExecute`): the host is empty and its agents must go.
pub const OFFBOARDING_TAINT: &str = "kvm.cloud.sap/offboarding";

/// Finalizer of a Hypervisor: it goes after its host was taken out of Nova, or after a look that this is not to be done.
pub const FINALIZER: &str = "kvm.cloud.sap/offboarding";

/// Finalizer of an Eviction: it goes after the moves it has begun have ended, or after a while.
pub const EVICTION_FINALIZER: &str = "kvm.cloud.sap/eviction";

/// Annotation of a host's Lease: whether its agent is connected to libvirt (`connected`, `disconnected: why`).
pub const LIBVIRT_ANNOTATION: &str = "kvm.cloud.sap/libvirt";

/// Annotation of the Lease of a host's OVS agent: whether the switch works (`ready`, `not ready: why`).
pub const SWITCH_ANNOTATION: &str = "ovs.c5c3.io/switch";

/// Label of the Deployment, the PodDisruptionBudget and the Pods that hold a Node back from Gardener.
pub const MAINTENANCE_CONTROLLER: &str = "cobaltcore-maintenance-controller";

/// Pod label: Gardener treats the Node as not ready until such a Pod is.
pub const CRITICAL_COMPONENT: &str = "node.gardener.cloud/critical-component";

/// Where the objects with [`MAINTENANCE_CONTROLLER`] live.
pub const MAINTENANCE_NAMESPACE: &str = "kube-system";

/// The host's name in the network.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// The region the Node is in.
pub const REGION: &str = "topology.kubernetes.io/region";
/// The availability zone the Node is in.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The building block the machine belongs to.
pub const BUILDING_BLOCK: &str = "kubernetes.metal.cloud.sap/bb";
/// The cluster the machine belongs to.
pub const METAL_CLUSTER: &str = "kubernetes.metal.cloud.sap/cluster";
/// The machine's name.
pub const METAL_NAME: &str = "kubernetes.metal.cloud.sap/name";
/// The machine's type.
pub const METAL_TYPE: &str = "kubernetes.metal.cloud.sap/type";
/// Gardener's worker group.
pub const WORKER_GROUP: &str = "worker.garden.sapcloud.io/group";
/// Gardener's worker pool.
pub const WORKER_POOL: &str = "worker.gardener.cloud/pool";

/// Node labels that a Hypervisor carries too.
pub const TRANSFERRED: [&str; 9] =
    [HOSTNAME, BUILDING_BLOCK, METAL_CLUSTER, METAL_NAME, METAL_TYPE, WORKER_GROUP, WORKER_POOL, REGION, ZONE];
