//! Flows that no row of the southbound database explains.

use std::{collections::BTreeMap, path::Path, time::Duration};

use cobalt_core::{Result, ovs::Flow};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};

use super::{connections::Connection, southbound};
use crate::{
    openflow::{OpenFlow, Options},
    ovsdb::Ovsdb,
};

/// The flows of a bridge, as they are read.
pub(super) async fn dump(
    management: &Path,
    table: Option<u8>,
    timeout: Duration,
    held: Connection,
) -> Result<BoxStream<'static, Result<Flow>>> {
    let bridge = OpenFlow::connect(management, Options { timeout }).await?;
    let flows = bridge.flows(table).map_err(Into::into);
    Ok(flows
        .map(move |flow| {
            let _held = &held;
            flow
        })
        .boxed())
}

/// Cookies and counts of what nothing explains.
///
/// The database is read again when something looks stale: a row may be younger than the first reading, and its flow
/// older than the dump. What nothing explains before and after is stale.
pub(super) async fn find(
    southbound: &Ovsdb,
    management: &Path,
    timeout: Duration,
    held: Connection,
) -> Result<BTreeMap<u64, u64>> {
    let before = southbound::cookies(southbound).await?;
    let mut counts = BTreeMap::<u64, u64>::new();
    let mut flows = dump(management, None, timeout, held).await?;
    while let Some(flow) = flows.try_next().await? {
        *counts.entry(flow.cookie).or_default() += 1;
    }
    let suspects = southbound::unexplained(&counts, &before);
    if suspects.is_empty() {
        return Ok(suspects);
    }
    Ok(southbound::unexplained(&suspects, &southbound::cookies(southbound).await?))
}
