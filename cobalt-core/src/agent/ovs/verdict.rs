//! What the loop has concluded, for whoever wants to know in between.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use super::finding::IssueType;
use crate::{api::OVSNodeStatus, runtime::lock};

/// The last conclusion of an agent. Cloned freely; all clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Verdict(Arc<Mutex<Judged>>);

#[derive(Debug, Default)]
struct Judged {
    status: Option<OVSNodeStatus>,
    issues: Option<BTreeMap<IssueType, usize>>,
    stale_flows: Option<u64>,
}

impl Verdict {
    /// The status as it would be published now, counters included; none before the first look.
    pub fn status(&self) -> Option<OVSNodeStatus> {
        lock(&self.0).status.clone()
    }

    /// How many issues of each type there are, those included that are not listed one by one; none if the last look
    /// failed: nobody knows then.
    pub fn issues(&self) -> Option<BTreeMap<IssueType, usize>> {
        lock(&self.0).issues.clone()
    }

    /// How many stale flows the last look found; none if nobody can tell.
    pub fn stale_flows(&self) -> Option<u64> {
        lock(&self.0).stale_flows
    }

    pub(super) fn set(
        &self,
        status: OVSNodeStatus,
        issues: Option<BTreeMap<IssueType, usize>>,
        stale_flows: Option<u64>,
    ) {
        *lock(&self.0) = Judged { status: Some(status), issues, stale_flows };
    }
}
