//! The one writer of an OVSNode.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Config, FIELD_MANAGER, figures,
    news::{self, News},
};
use crate::{
    agent::Own,
    api::{OVSNode, OVSNodeStatus},
    publish,
    runtime::{
        apply::{Applied, Applier, ApplyError},
        events::{Event, Recorder},
        metrics::Metrics,
    },
};

/// How often to look for a Node that is not there.
const NODE_PAUSE: Duration = Duration::from_secs(30);

pub(super) struct Publisher {
    api: Api<OVSNode>,
    nodes: Api<Node>,
    applier: Applier,
    own: Own<OVSNode>,
    recorder: Recorder,
    config: Config,
    /// What the server answered last: until the cache has caught up, this is newer.
    written: Option<Arc<OVSNode>>,
    /// Not before this is the Node looked for again.
    node_after: Option<Instant>,
    /// What was last said about our state.
    said: &'static str,
}

impl Publisher {
    pub(super) fn new(
        client: &Client,
        own: Own<OVSNode>,
        metrics: Arc<Metrics>,
        recorder: Recorder,
        config: &Config,
    ) -> Self {
        Self {
            api: Api::namespaced(client.clone(), &config.namespace),
            nodes: Api::all(client.clone()),
            applier: Applier::new(FIELD_MANAGER, metrics),
            own,
            recorder,
            config: config.clone(),
            written: None,
            node_after: None,
            said: "",
        }
    }

    /// Logs a change of state, once.
    fn say(&mut self, state: &'static str) {
        if std::mem::replace(&mut self.said, state) != state {
            tracing::info!(node = self.config.node_name, namespace = self.config.namespace, "{state}");
        }
    }

    /// The OVSNode as far as we know; none if there is none.
    pub(super) fn observed(&self) -> Option<Arc<OVSNode>> {
        publish::newer(self.own.get(), self.written.clone())
    }

    /// Writes what is new, and tells whether anything was.
    pub(super) async fn publish(&mut self, wanted: OVSNodeStatus, now: Timestamp) -> Result<bool, ApplyError> {
        if !self.own.is_synced() {
            return Ok(false); // the watch wakes us
        }
        let observed = self.observed();
        if observed.as_ref().is_some_and(|node| node.metadata.deletion_timestamp.is_some()) {
            return Ok(false); // on its way out: nothing we write now would last
        }
        let Some(observed) = self.made(observed).await? else { return Ok(false) };
        let status = figures::hold(wanted, observed.status.as_ref(), now, &self.config.figures);
        let body = json!({"status": status});
        let applied = self.applier.status_unconditionally(&self.api, observed.as_ref(), &body).await?;
        let written = applied.is_written();
        if let Applied::Written(object) = applied {
            self.tell(&object, observed.status.as_ref(), &status);
            self.say("publishing");
            self.written = Some(Arc::new(*object));
        } else {
            self.written = Some(observed);
        }
        Ok(written)
    }

    /// The OVSNode, made and given to its Node if it is not. None while there is no Node: it would stay for ever.
    async fn made(&mut self, observed: Option<Arc<OVSNode>>) -> Result<Option<Arc<OVSNode>>, ApplyError> {
        let owner = observed.as_ref().and_then(|object| {
            let node = |owner: &&_| is_node(owner, &self.config.node_name);
            object.owner_references().iter().find(node).map(|owner| json!(owner))
        });
        let owner = match owner {
            Some(owner) => owner,
            None => match self.owner().await? {
                Some(owner) => owner,
                None => return Ok(None),
            },
        };
        let name = &self.config.node_name;
        let body = json!({"metadata": {"ownerReferences": [owner]}, "spec": {"nodeRef": {"name": name}}});
        let known = observed.as_deref();
        match self.applier.main(&self.api, name, known, &body).await? {
            Applied::Unchanged => Ok(observed),
            Applied::Written(object) => Ok(Some(Arc::new(*object))),
        }
    }

    async fn owner(&mut self) -> Result<Option<Value>, ApplyError> {
        if self.node_after.is_some_and(|after| Instant::now() < after) {
            return Ok(None);
        }
        let name = &self.config.node_name;
        let found = self.nodes.get_metadata_opt(name).await.map_err(|cause| ApplyError::Request {
            what: format!("look for Node {name}, which an OVSNode belongs to"),
            cause: Box::new(cause),
        })?;
        let living = found.filter(|node| node.metadata.deletion_timestamp.is_none());
        let Some(uid) = living.and_then(|node| node.uid()) else {
            self.node_after = Some(Instant::now() + NODE_PAUSE);
            self.written = None;
            self.say("waiting for the Node");
            return Ok(None);
        };
        self.node_after = None;
        Ok(Some(json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid})))
    }

    /// Events for what came and went.
    fn tell(&self, about: &OVSNode, before: Option<&OVSNodeStatus>, after: &OVSNodeStatus) {
        let of = |status: Option<&OVSNodeStatus>| status.and_then(|status| status.issues.clone()).unwrap_or_default();
        for News { bad, reason, note } in news::between(&of(before), &of(Some(after))) {
            let event = if bad { Event::warning } else { Event::normal };
            self.recorder.publish(event(about, "Observe", &reason, note));
        }
    }
}

fn is_node(owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference, name: &str) -> bool {
    owner.kind == "Node" && owner.name == name
}
