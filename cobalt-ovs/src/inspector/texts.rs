//! What other modules make of the daemons' texts, as the inspector needs it.

use std::{collections::BTreeMap, path::Path, time::Duration};

use cobalt_core::{
    Result,
    ovs::{CaptureRequest, DatapathCounters, FdbEntry, Interface, Trace, Verdict},
};
use futures::stream::BoxStream;

use super::OvsSwitch;
use crate::openflow::{OpenFlow, Options, flow_counts as counted};

/// A claim of an interface, as OVN's controller sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalBinding {
    pub(super) logical_port: String,
    pub(super) interface: Option<String>,
    pub(super) bound: bool,
}

/// Flows per table; `None` if the bridge does not answer.
pub(super) async fn flow_counts(management: &Path, timeout: Duration) -> Option<BTreeMap<u8, u64>> {
    let counts = async {
        let mut bridge = OpenFlow::connect(management, Options { timeout }).await?;
        bridge.table_stats().await
    };
    match counts.await {
        Ok(tables) => Some(counted(&tables)),
        Err(error) => {
            tracing::debug!(error = crate::error::chain(&error), "no flow counts");
            None
        }
    }
}

pub(super) fn enabled_members(_text: &str) -> BTreeMap<String, BTreeMap<String, bool>> {
    BTreeMap::new()
}

pub(super) fn lacp_members(_text: &str) -> BTreeMap<String, BTreeMap<String, (String, Option<String>)>> {
    BTreeMap::new()
}

pub(super) fn memory(_text: &str) -> BTreeMap<String, u64> {
    BTreeMap::new()
}

pub(super) fn coverage(_text: &str) -> BTreeMap<String, u64> {
    BTreeMap::new()
}

pub(super) fn datapaths(_text: &str) -> BTreeMap<String, DatapathCounters> {
    BTreeMap::new()
}

pub(super) fn local_bindings(_text: &str) -> Vec<LocalBinding> {
    Vec::new()
}

pub(super) fn trace(_bridge: &str, text: String) -> Result<Trace> {
    Ok(Trace { steps: Vec::new(), verdict: Verdict::Dropped, text })
}

pub(super) fn fdb(_bridge: &str, _text: &str, _interfaces: &[Interface]) -> Vec<FdbEntry> {
    Vec::new()
}

pub(super) async fn capture(
    _switch: &OvsSwitch,
    request: &CaptureRequest,
) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
    Err(cobalt_core::Error::unsupported(format!("capture on {}", request.port), "this switch"))
}
