//! Objects for tests, built as sentences.
//!
//! ```
//! use cobalt_core::api::testing::{hypervisor, node};
//! use cobalt_core::api::{Maintenance, condition_types, labels};
//!
//! let host = hypervisor("node-1").onboarded().in_maintenance(Maintenance::Manual).with_instances(3).build();
//! assert!(host.is_false(condition_types::ONBOARDING));
//! assert_eq!(host.spec.maintenance(), &Maintenance::Manual);
//!
//! let machine = node("node-1").with_label(labels::ZONE, "qa-1a").with_internal_ip("10.0.0.1").build();
//! assert_eq!(machine.metadata.name.as_deref(), Some("node-1"));
//! ```
//!
//! An object looks as one read from the API server does: it has a uid, a resourceVersion and a creation time, and the
//! defaults of the CRD are filled in. Everything is derived from the name, so two runs build the same object.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::{
    Condition, ConditionStatus, Eviction, EvictionSpec, EvictionStatus, Hypervisor, HypervisorSpec, HypervisorStatus,
    Instance, Maintenance, condition_types, conditions, labels, reasons,
};

/// The time at which everything here was made and last changed: 2026-01-01T00:00:00Z.
pub const MADE_AT: Timestamp = Timestamp::constant(1_767_225_600, 0);

fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        uid: Some(uid(name)),
        resource_version: Some("1".to_owned()),
        generation: Some(1),
        creation_timestamp: Some(Time(MADE_AT)),
        ..ObjectMeta::default()
    }
}

/// A UUID that is always the same for the same text (FNV-1a, spread over the digits).
fn uid(of: &str) -> String {
    let hash =
        |start: u64| of.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let (high, low) = (hash(0xcbf2_9ce4_8422_2325), hash(0x8422_2325_cbf2_9ce4));
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        low >> 52,
        low & 0xffff_ffff_ffff
    )
}

/// Begins a Hypervisor of that name: managed, in service, and nothing known about it yet.
pub fn hypervisor(name: &str) -> HypervisorBuilder {
    let spec = HypervisorSpec {
        reboot: Some(false),
        evacuate_on_reboot: Some(true),
        lifecycle_enabled: Some(true),
        skip_tests: Some(false),
        custom_traits: Some(Vec::new()),
        aggregates: Some(Vec::new()),
        allowed_projects: Some(Vec::new()),
        high_availability: Some(true),
        create_cert_manager_certificate: Some(false),
        install_certificate: Some(true),
        ..HypervisorSpec::default()
    };
    HypervisorBuilder { object: Hypervisor { metadata: metadata(name), spec, status: None } }
}

/// Builds a [`Hypervisor`]; see [`hypervisor`].
#[derive(Clone, Debug)]
#[must_use]
pub struct HypervisorBuilder {
    object: Hypervisor,
}

impl HypervisorBuilder {
    /// Changes the metadata.
    pub fn metadata(mut self, change: impl FnOnce(&mut ObjectMeta)) -> Self {
        change(&mut self.object.metadata);
        self
    }

    /// Changes the spec.
    pub fn spec(mut self, change: impl FnOnce(&mut HypervisorSpec)) -> Self {
        change(&mut self.object.spec);
        self
    }

    /// Changes the status.
    pub fn status(mut self, change: impl FnOnce(&mut HypervisorStatus)) -> Self {
        change(self.object.status.get_or_insert_default());
        self
    }

    /// With that label.
    pub fn with_label(self, key: &str, value: &str) -> Self {
        self.metadata(|metadata| {
            metadata.labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        })
    }

    /// With that condition, and its reason for a message.
    pub fn with_condition(self, type_: &str, status: ConditionStatus, reason: &str) -> Self {
        self.status(|current| {
            conditions::set_condition(&mut current.conditions, Condition::new(type_, status, reason, reason), MADE_AT);
        })
    }

    /// Not managed: `lifecycleEnabled` is false.
    pub fn unmanaged(self) -> Self {
        self.spec(|spec| spec.lifecycle_enabled = Some(false))
    }

    /// In that maintenance mode, with a reason.
    pub fn in_maintenance(self, mode: Maintenance) -> Self {
        self.spec(|spec| {
            spec.maintenance_reason = Some(format!("testing {mode}"));
            spec.maintenance = Some(mode);
        })
    }

    /// Known to Nova: it has a hypervisor and a service id.
    pub fn registered(self) -> Self {
        let name = self.object.metadata.name.clone().unwrap_or_default();
        self.status(|status| {
            status.hypervisor_id = Some(uid(&format!("hypervisor {name}")));
            status.service_id = Some(uid(&format!("service {name}")));
        })
    }

    /// Known to Nova and in that step of the onboarding.
    pub fn onboarding(self, step: &str) -> Self {
        self.registered().with_condition(condition_types::ONBOARDING, ConditionStatus::True, step)
    }

    /// Known to Nova and onboarded.
    pub fn onboarded(self) -> Self {
        self.registered().with_condition(condition_types::ONBOARDING, ConditionStatus::False, reasons::SUCCEEDED)
    }

    /// Onboarded and ready.
    pub fn ready(self) -> Self {
        self.onboarded().with_condition(condition_types::READY, ConditionStatus::True, reasons::READY)
    }

    /// With that many running instances.
    pub fn with_instances(self, count: u16) -> Self {
        let instance = |number| Instance {
            id: uid(&format!("instance {number}")),
            name: format!("instance-{number:08x}"),
            active: true,
        };
        self.status(|status| {
            status.num_instances = Some(count.into());
            status.instances = Some((1..=count).map(instance).collect());
        })
    }

    /// Ends the sentence.
    pub fn build(self) -> Hypervisor {
        self.object
    }
}

/// Begins a Node of that name, with the host name label that kubelet sets.
pub fn node(name: &str) -> NodeBuilder {
    let object =
        Node { metadata: metadata(name), spec: Some(NodeSpec::default()), status: Some(NodeStatus::default()) };
    NodeBuilder { object }.with_label(labels::HOSTNAME, name)
}

/// Builds a [`Node`]; see [`node`].
#[derive(Clone, Debug)]
#[must_use]
pub struct NodeBuilder {
    object: Node,
}

impl NodeBuilder {
    /// Changes the metadata.
    pub fn metadata(mut self, change: impl FnOnce(&mut ObjectMeta)) -> Self {
        change(&mut self.object.metadata);
        self
    }

    /// With that label.
    pub fn with_label(self, key: &str, value: &str) -> Self {
        self.metadata(|metadata| {
            metadata.labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        })
    }

    /// With that annotation.
    pub fn with_annotation(self, key: &str, value: &str) -> Self {
        self.metadata(|metadata| {
            metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        })
    }

    /// A hypervisor: with the label that says so.
    pub fn with_kvm(self) -> Self {
        self.with_label(labels::VIRT_DRIVER, "kvm")
    }

    /// A hypervisor whose life is managed.
    pub fn managed(self) -> Self {
        self.with_kvm().with_label(labels::LIFECYCLE, "true")
    }

    /// With that address inside the cluster, after those it has.
    pub fn with_internal_ip(self, address: &str) -> Self {
        self.with_address("InternalIP", address)
    }

    /// With that address, after those it has.
    pub fn with_address(mut self, type_: &str, address: &str) -> Self {
        self.status()
            .addresses
            .get_or_insert_default()
            .push(NodeAddress { address: address.to_owned(), type_: type_.to_owned() });
        self
    }

    /// With that condition.
    pub fn with_condition(mut self, type_: &str, status: ConditionStatus) -> Self {
        self.status().conditions.get_or_insert_default().push(NodeCondition {
            type_: type_.to_owned(),
            status: status.to_string(),
            last_transition_time: Some(Time(MADE_AT)),
            ..NodeCondition::default()
        });
        self
    }

    /// With that taint.
    pub fn with_taint(mut self, key: &str, effect: &str) -> Self {
        self.object.spec.get_or_insert_default().taints.get_or_insert_default().push(Taint {
            key: key.to_owned(),
            effect: effect.to_owned(),
            ..Taint::default()
        });
        self
    }

    /// About to go: with a deletion time.
    pub fn deleted(self) -> Self {
        self.metadata(|metadata| metadata.deletion_timestamp = Some(Time(MADE_AT)))
    }

    fn status(&mut self) -> &mut NodeStatus {
        self.object.status.get_or_insert_default()
    }

    /// Ends the sentence.
    pub fn build(self) -> Node {
        self.object
    }
}

/// Begins an Eviction of the Hypervisor of that name, which has the same name.
pub fn eviction(hypervisor: &str) -> EvictionBuilder {
    let spec = EvictionSpec { hypervisor: hypervisor.to_owned(), reason: "testing".to_owned() };
    EvictionBuilder { object: Eviction { metadata: metadata(hypervisor), spec, status: None } }
}

/// Builds an [`Eviction`]; see [`eviction`].
#[derive(Clone, Debug)]
#[must_use]
pub struct EvictionBuilder {
    object: Eviction,
}

impl EvictionBuilder {
    /// Changes the metadata.
    pub fn metadata(mut self, change: impl FnOnce(&mut ObjectMeta)) -> Self {
        change(&mut self.object.metadata);
        self
    }

    /// Changes the status.
    pub fn status(mut self, change: impl FnOnce(&mut EvictionStatus)) -> Self {
        change(self.object.status.get_or_insert_default());
        self
    }

    /// With that condition, and its reason for a message.
    pub fn with_condition(self, type_: &str, status: ConditionStatus, reason: &str) -> Self {
        self.status(|current| {
            conditions::set_condition(&mut current.conditions, Condition::new(type_, status, reason, reason), MADE_AT);
        })
    }

    /// Under way.
    pub fn running(self) -> Self {
        self.with_condition(condition_types::EVICTING, ConditionStatus::True, reasons::RUNNING)
    }

    /// Over, and the host is empty.
    pub fn succeeded(self) -> Self {
        self.with_condition(condition_types::EVICTING, ConditionStatus::False, reasons::SUCCEEDED)
    }

    /// Over, and the host is not empty.
    pub fn failed(self) -> Self {
        self.with_condition(condition_types::EVICTING, ConditionStatus::False, reasons::FAILED)
    }

    /// Ends the sentence.
    pub fn build(self) -> Eviction {
        self.object
    }
}
