//! Flows that no row of the southbound database explains.

use std::{collections::BTreeMap, path::Path, time::Duration};

use cobalt_core::{Result, ovs::Flow};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};

use super::{connections::Connection, southbound};
use crate::{
    error::{self, Error},
    openflow::{OpenFlow, Options},
    options::ConnectOptions,
    ovsdb::Ovsdb,
    remote::Remote,
};

/// How long the southbound database may take for one part of its rows, of which there may be a million.
const READ: Duration = Duration::from_secs(60);

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

/// A connection to the southbound database for one look. What is read by it is large, and takes the server long: on a
/// connection that also follows rows, an answer that is too long or too late would be the end of that too.
pub(super) async fn connect(remotes: &[Remote], options: &ConnectOptions) -> error::Result<Ovsdb> {
    // A server that is busy with our question does not answer a probe: the limit of the call is what counts.
    let options = options.clone().call_timeout(READ).probe_interval(None);
    let mut failed = Error::address("", "there is no address");
    for remote in remotes {
        match Ovsdb::connect(remote, &options).await {
            Ok(database) => return Ok(database),
            Err(error) => failed = error,
        }
    }
    Err(failed)
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
