//! The cluster, and the OVSNode in it.

use std::sync::Arc;

use cobalt_core::{
    api::OVSNode,
    runtime::{args::KubeArgs, client, metrics::Metrics},
};
use kube::{Api, Client, Config, ResourceExt, api::ListParams};

use super::{OvsError, Place};

/// A way to the Kubernetes API, and how it is configured.
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) config: Config,
}

impl Cluster {
    pub(super) async fn connect(args: &KubeArgs) -> Result<Self, OvsError> {
        let config = client::config(args).await?;
        let connection = client::connect(args, "cobaltctl", Arc::new(Metrics::new())).await?;
        Ok(Self { client: connection.client, config })
    }

    /// The OVSNode that is meant: in the namespace that was named, or in the only one that has it.
    pub(super) async fn node(&self, place: &Place) -> Result<OVSNode, OvsError> {
        let node = place.node.clone().unwrap_or_default();
        let failed = |cause| OvsError::Cluster { what: format!("look for OVSNode {node}"), cause: Box::new(cause) };
        if let Some(namespace) = &place.namespace {
            let api: Api<OVSNode> = Api::namespaced(self.client.clone(), namespace);
            let found = api.get_opt(&node).await.map_err(failed)?;
            return found.ok_or(OvsError::NoNode { node, place: format!("in namespace {namespace}") });
        }
        let api: Api<OVSNode> = Api::all(self.client.clone());
        let named = ListParams::default().fields(&format!("metadata.name={node}"));
        let mut found = api.list(&named).await.map_err(failed)?.items;
        if found.len() > 1 {
            let mut namespaces: Vec<String> = found.iter().filter_map(ResourceExt::namespace).collect();
            namespaces.sort();
            return Err(OvsError::SeveralNodes { node, namespaces: namespaces.join(", ") });
        }
        found.pop().ok_or(OvsError::NoNode { node, place: "in any namespace".into() })
    }
}
