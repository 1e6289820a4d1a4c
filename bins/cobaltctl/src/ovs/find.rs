//! The cluster, and the OVSNode in it.

use std::sync::Arc;

use cobalt_core::{
    api::OVSNode,
    runtime::{args::KubeArgs, client, metrics::Metrics},
};
use kube::{Api, Client, Config, ResourceExt, api::ListParams};

use super::{OvsError, Place};

/// Where agents publish by default.
const NAMESPACE: &str = "ovn-system";

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

    /// The OVSNode that is meant: in the namespace that was named, or in that of the agents.
    ///
    /// Nowhere else. An OVSNode says where a token is sent to and who vouches for the place, so one that somebody put into
    /// a namespace of their own must not be taken for the host's.
    pub(super) async fn node(&self, place: &Place) -> Result<OVSNode, OvsError> {
        let node = place.node.clone().unwrap_or_default();
        let namespace = place.namespace.as_deref().unwrap_or(NAMESPACE);
        let api: Api<OVSNode> = Api::namespaced(self.client.clone(), namespace);
        let found = api.get_opt(&node).await.map_err(|cause| {
            let what = format!("look for OVSNode {node} in namespace {namespace}");
            OvsError::Cluster { what, cause: Box::new(cause) }
        })?;
        if let Some(found) = found {
            return Ok(found);
        }
        let others = if place.namespace.is_none() { self.elsewhere(&node).await } else { Vec::new() };
        let namespace = namespace.to_owned();
        Err(match others[..] {
            [] => OvsError::NoNode { node, namespace },
            _ => OvsError::NodeElsewhere { node, namespace, others: others.join(", ") },
        })
    }

    /// Other namespaces with an OVSNode of that name, to say so; none if this person may not look.
    async fn elsewhere(&self, node: &str) -> Vec<String> {
        let api: Api<OVSNode> = Api::all(self.client.clone());
        let named = ListParams::default().fields(&format!("metadata.name={node}"));
        let found = api.list(&named).await.map(|list| list.items).unwrap_or_default();
        let mut namespaces: Vec<String> = found.iter().filter_map(ResourceExt::namespace).collect();
        namespaces.sort();
        namespaces
    }
}
