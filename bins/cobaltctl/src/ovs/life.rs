//! Whether the agent that published an OVSNode still lives, by the Lease it renews.
//!
//! An OVSNode stays as it is when its agent dies, so without a sign of life nobody can tell how the switch is now.

use cobalt_core::{
    agent::ovs::lease_name,
    api::OVSNode,
    jiff::{SignedDuration, Timestamp},
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt};

use super::{OvsError, find::Cluster};

/// How long a Lease lasts that does not say so.
const USUAL: SignedDuration = SignedDuration::from_secs(40);

/// Whether an agent lives.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Life {
    Alive,
    /// It gives no sign of life, in words.
    Silent(String),
    /// This person may not read its Lease, in words.
    Untold(String),
}

pub(super) async fn of(cluster: &Cluster, node: &OVSNode) -> Result<Life, OvsError> {
    let (name, namespace) = (lease_name(&node.name_any()), node.namespace().unwrap_or_default());
    let api: Api<Lease> = Api::namespaced(cluster.client.clone(), &namespace);
    match api.get_opt(&name).await {
        Ok(lease) => Ok(judge(node, lease.as_ref(), Timestamp::now())),
        Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => Ok(Life::Untold(format!(
            "you may not get Lease {name} in namespace {namespace}: this does not tell whether the agent of {} lives, \
             or how old its status is",
            node.name_any()
        ))),
        Err(cause) => {
            let what = format!("look for Lease {name} in namespace {namespace}");
            Err(OvsError::Cluster { what, cause: Box::new(cause) })
        }
    }
}

fn judge(node: &OVSNode, lease: Option<&Lease>, now: Timestamp) -> Life {
    let host = node.name_any();
    let ago = |then: Timestamp| {
        let age = SignedDuration::from_secs(now.duration_since(then).as_secs());
        if age.is_negative() { format!("{:#} from now by this clock", age.abs()) } else { format!("{age:#} ago") }
    };
    let spec = lease.and_then(|lease| lease.spec.as_ref());
    let Some(renewed) = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0) else {
        let written = written(node).map(|then| format!("; its status was last written {}", ago(then)));
        let written = written.unwrap_or_default();
        return Life::Silent(format!("the agent of {host} has given no sign of life{written}"));
    };
    let lasts =
        spec.and_then(|spec| spec.lease_duration_seconds).map_or(USUAL, |n| SignedDuration::from_secs(n.into()));
    // The agent's clock need not be this one: once more as long is for the difference, either way.
    if now.duration_since(renewed).abs() <= lasts + lasts {
        return Life::Alive;
    }
    Life::Silent(format!("the agent of {host} gave its last sign of life {}", ago(renewed)))
}

/// When somebody last wrote the status.
fn written(node: &OVSNode) -> Option<Timestamp> {
    let entries = node.metadata.managed_fields.iter().flatten();
    let of_status = entries.filter(|entry| entry.subresource.as_deref() == Some("status"));
    of_status.filter_map(|entry| entry.time.as_ref().map(|time| time.0)).max()
}

#[cfg(test)]
mod tests {
    use cobalt_core::api::OVSNodeSpec;
    use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime};

    use super::*;

    fn judged(seconds: i64) -> Life {
        let (now, node) = (Timestamp::UNIX_EPOCH, OVSNode::new("hv1", OVSNodeSpec::default()));
        let renew_time = Some(MicroTime(now - SignedDuration::from_secs(seconds)));
        let spec = LeaseSpec { renew_time, lease_duration_seconds: Some(40), ..LeaseSpec::default() };
        judge(&node, Some(&Lease { spec: Some(spec), ..Lease::default() }), now)
    }

    #[test]
    fn clocks_may_differ_by_as_long_as_a_lease_lasts() {
        assert_eq!([judged(-80), judged(0), judged(80)], [Life::Alive, Life::Alive, Life::Alive]);
        assert_eq!(judged(81), Life::Silent("the agent of hv1 gave its last sign of life 1m 21s ago".into()));
        let ahead = Life::Silent("the agent of hv1 gave its last sign of life 2h from now by this clock".into());
        assert_eq!(judged(-7200), ahead);
    }
}
