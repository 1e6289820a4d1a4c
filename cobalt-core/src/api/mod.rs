//! The custom resources: data only, no behaviour beyond reading them well.
//!
//! | Kind | Group | Scope | |
//! |---|---|---|---|
//! | [`Hypervisor`] | `kvm.cloud.sap/v1` | cluster | one KVM host: what is wanted of it, and how it is |
//! | [`Eviction`] | `kvm.cloud.sap/v1` | cluster | the draining of one host |
//! | [`Migration`] | `kvm.cloud.sap/v1alpha1` | namespace | one instance on its way between hosts |
//! | [`OVSNode`] | `ovs.c5c3.io/v1alpha1` | namespace | the virtual switch of one host |
//!
//! # Reading
//!
//! Foreign objects never stop a watch: `null`, unknown fields, unknown words, missing fields and odd numbers are read
//! for what they are worth. What makes no sense at all (a `spec` that is a string) is an error that names the field.
//! Fields are `Option`s where the wire may lack them, and a method of the same name gives the value with the default
//! of the CRD applied: `spec.skip_tests` is what was written, `spec.skip_tests()` is what it means.
//!
//! # Writing
//!
//! An absent field stays absent, so a value that has only our own fields set is the body of a server-side apply that
//! touches nothing else. [`Apply`] puts the envelope around it:
//!
//! ```
//! use cobalt_core::api::{Apply, Hypervisor, HypervisorSpec, Maintenance};
//!
//! let seen: Hypervisor = serde_json::from_str(
//!     r#"{"metadata": {"name": "node-1"}, "spec": {"maintenance": null, "fromTheFuture": 1}}"#,
//! )?;
//! assert!(seen.spec.maintenance().is_off());
//! assert!(seen.spec.evacuate_on_reboot(), "the CRD's default");
//!
//! let wanted = HypervisorSpec {
//!     maintenance: Some(Maintenance::Auto),
//!     maintenance_reason: Some("reboot".into()),
//!     ..HypervisorSpec::default()
//! };
//! assert_eq!(
//!     serde_json::to_value(Apply::<Hypervisor>::to("node-1").spec(wanted))?,
//!     serde_json::json!({
//!         "apiVersion": "kvm.cloud.sap/v1",
//!         "kind": "Hypervisor",
//!         "metadata": {"name": "node-1"},
//!         "spec": {"maintenance": "auto", "maintenanceReason": "reboot"},
//!     }),
//! );
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! # The CRDs
//!
//! [`crd::all`] gives them as objects, `crd::to_yaml` (feature `yaml`) as the text that `deploy/crds` holds.

#![allow(clippy::duplicated_attributes, reason = "clippy takes equal keys of two printer columns for a duplicate")]

mod apply;
pub mod condition_types;
pub mod conditions;
pub mod crd;
mod eviction;
mod hypervisor;
pub mod labels;
mod migration;
mod ovsnode;
mod quantity;
pub mod reasons;
#[cfg(feature = "testing")]
pub mod testing;
mod tolerant;

pub use apply::Apply;
pub use conditions::{Condition, ConditionStatus};
pub use eviction::{EvictedInstance, Eviction, EvictionSpec, EvictionStatus, InstanceState, MoveKind};
pub use hypervisor::{
    Aggregate, AggregateGroup, Capabilities, Cell, DomainCapabilities, Group, Hypervisor, HypervisorSpec,
    HypervisorStatus, Instance, Maintenance, OperatingSystem, ResourceList, TraitGroup, UpdateStatus, resources,
};
pub use migration::{Migration, MigrationProgress, MigrationSpec, MigrationStatus};
pub use ovsnode::{
    Bond, BondMember, Bridge, FlowStats, Interfaces, Issue, NodeRef, OVSNode, OVSNodeSpec, OVSNodeStatus,
    OvnController, PhysicalInterface, SwitchMetrics, TableFlows, Troubleshooting,
};
pub use quantity::{Quantity, QuantityError};
