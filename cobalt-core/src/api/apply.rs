//! The envelope of a server-side apply.

use kube::Resource;
use kube::core::ObjectMeta;
use kube::core::object::{HasSpec, HasStatus};
use serde::{Serialize, Serializer, ser::SerializeStruct};

/// The body of a server-side apply of one of our kinds: only what was put into it is sent, and thereby owned.
///
/// Unlike the kind itself it can leave `spec` out, which an apply to the `status` subresource should. It serialises,
/// so it goes straight into `kube::api::Patch::Apply`.
///
/// ```
/// use cobalt_core::api::{Apply, Eviction, EvictionStatus};
///
/// let status = EvictionStatus { outstanding_ram_mb: Some(2048), ..EvictionStatus::default() };
/// let body = Apply::<Eviction>::to("node-1").at_version(Some("41".into())).status(status);
/// assert_eq!(
///     serde_json::to_value(body)?,
///     serde_json::json!({
///         "apiVersion": "kvm.cloud.sap/v1",
///         "kind": "Eviction",
///         "metadata": {"name": "node-1", "resourceVersion": "41"},
///         "status": {"outstandingRamMb": 2048},
///     }),
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Apply<K: HasSpec + HasStatus> {
    /// Name, and whatever else of the metadata is ours: labels, annotations, owners, finalizers.
    pub metadata: ObjectMeta,
    spec: Option<K::Spec>,
    status: Option<K::Status>,
}

impl<K: HasSpec + HasStatus> Apply<K> {
    /// An apply to the object of that name that says nothing yet.
    pub fn to(name: impl Into<String>) -> Self {
        let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
        Self { metadata, spec: None, status: None }
    }

    /// Names the namespace, for the kinds that live in one.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.metadata.namespace = Some(namespace.into());
        self
    }

    /// Makes the apply fail with a conflict if the object is not at that resourceVersion any more.
    #[must_use]
    pub fn at_version(mut self, resource_version: Option<String>) -> Self {
        self.metadata.resource_version = resource_version;
        self
    }

    /// Applies these fields of the spec.
    #[must_use]
    pub fn spec(mut self, spec: K::Spec) -> Self {
        self.spec = Some(spec);
        self
    }

    /// Applies these fields of the status.
    #[must_use]
    pub fn status(mut self, status: K::Status) -> Self {
        self.status = Some(status);
        self
    }
}

impl<K> Serialize for Apply<K>
where
    K: HasSpec + HasStatus + Resource<DynamicType = ()>,
    K::Spec: Serialize,
    K::Status: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_struct("Apply", 5)?;
        body.serialize_field("apiVersion", &K::api_version(&()))?;
        body.serialize_field("kind", &K::kind(&()))?;
        body.serialize_field("metadata", &self.metadata)?;
        match &self.spec {
            Some(spec) => body.serialize_field("spec", spec)?,
            None => body.skip_field("spec")?,
        }
        match &self.status {
            Some(status) => body.serialize_field("status", status)?,
            None => body.skip_field("status")?,
        }
        body.end()
    }
}
