//! A Node that we do not see: is it gone, or does it only lack the labels by which we choose?
//!
//! The watch cannot tell. Before anything is done that cannot be taken back because a Node is gone, the API server is asked.

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};

use super::{AbsentNode, Snapshot, hypervisor::is_terminating};
use crate::{
    api::{Maintenance, condition_types},
    runtime::{api_category, shutdown::Chain},
};

/// Whether a pass needs to know: of a host that is on its way out of Nova.
pub(super) fn is_asked(seen: &Snapshot) -> bool {
    let offboarded = seen.condition(condition_types::OFFBOARDED).is_some_and(crate::api::Condition::is_true);
    let terminating = seen.spec().maintenance() == &Maintenance::Termination && !offboarded;
    seen.node.is_none() && seen.hypervisor.is_some() && (seen.is_leaving() && seen.is_held() || terminating)
}

/// Asks the API server for a Node, whatever its labels.
pub(super) async fn look(client: &Client, name: &str) -> AbsentNode {
    match Api::<Node>::all(client.clone()).get_opt(name).await {
        Ok(None) => AbsentNode::Gone,
        Ok(Some(node)) => AbsentNode::Unlabelled { terminating: is_terminating(&node) },
        Err(error) => {
            tracing::warn!(node = name, error = %Chain(&error), "could not find out whether the Node is gone");
            AbsentNode::Failed(api_category(&error).to_owned())
        }
    }
}
