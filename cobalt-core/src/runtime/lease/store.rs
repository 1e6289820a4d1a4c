//! Where the record is kept.

use async_trait::async_trait;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::PostParams};

/// Reads and writes one Lease. The elector's only contact with the world.
#[async_trait]
pub trait LeaseStore: Send + Sync {
    /// The Lease, if it exists.
    async fn get(&self) -> Result<Option<Lease>, StoreError>;
    /// Creates it; [`StoreError::Conflict`] if it exists.
    async fn create(&self, lease: &Lease) -> Result<Lease, StoreError>;
    /// Replaces the version named in its metadata; [`StoreError::Conflict`] if that is no longer the stored one.
    async fn update(&self, lease: &Lease) -> Result<Lease, StoreError>;
}

/// Why a Lease was not read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The stored version is not the one the write was based on.
    #[error("write lease: changed by somebody else")]
    Conflict,
    /// Anything else; the write may have happened.
    #[error("reach lease")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// The class of the error.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Failed(_) => "lease_unreachable",
        }
    }

    /// Whether trying again may help.
    pub fn is_transient(&self) -> bool {
        true
    }
}

impl From<kube::Error> for StoreError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            // Deleted between reading and writing: the next read shows it.
            kube::Error::Api(status) if status.code == 404 => Self::Conflict,
            _ => Self::Failed(Box::new(error)),
        }
    }
}

/// The Lease in the Kubernetes API.
#[derive(Clone, Debug)]
pub struct KubeLeases {
    api: Api<Lease>,
    name: String,
    manager: String,
}

impl KubeLeases {
    /// The Lease `namespace/name`, written under the field manager `manager`.
    pub fn new(client: Client, namespace: &str, name: &str, manager: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), manager: manager.to_owned() }
    }

    fn params(&self) -> PostParams {
        PostParams { field_manager: Some(self.manager.clone()), ..Default::default() }
    }
}

#[async_trait]
impl LeaseStore for KubeLeases {
    async fn get(&self) -> Result<Option<Lease>, StoreError> {
        Ok(self.api.get_opt(&self.name).await?)
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, StoreError> {
        Ok(self.api.create(&self.params(), lease).await?)
    }

    async fn update(&self, lease: &Lease) -> Result<Lease, StoreError> {
        Ok(self.api.replace(&self.name, &self.params(), lease).await?)
    }
}
