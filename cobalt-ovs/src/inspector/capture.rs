//! Capturing on any port, also on one that has no device.
//!
//! Where a port has no device to listen on (DPDK, vhost-user, tunnels), the switch copies its packets to an internal
//! port made for this. That changes the node, so it is undone however the capture ends: when its stream is dropped,
//! before the next one, and at the start of the program for one that crashed.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{Arc, Weak},
    time::Duration,
};

use cobalt_core::{Error as Seam, Result, ovs::CaptureRequest};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use super::{Inner, OvsSwitch, inventory, snapshot};
use crate::{
    capture::{Capture, bring_up, mirror},
    error,
    ovsdb::{Replica, Tables},
};

/// How long the switch may take to make the port that packets are copied to.
const APPEARANCE: Duration = Duration::from_secs(10);
/// How often a mirror is tried to be removed while the database is away, and how long to wait in between.
const REMOVALS: (u32, Duration) = (600, Duration::from_secs(1));

/// Where packets of a port can be had.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    /// On the device of the same name.
    Device,
    /// On a copy only. The port's bridge, its name and its row.
    Copy { bridge: String, port: String, row: Uuid },
    /// Nowhere: its device has vanished.
    Vanished,
}

pub(super) async fn start(switch: &OvsSwitch, request: &CaptureRequest) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
    let operation = || format!("capture on {}", request.port);
    let source = match switch.inner.database.read(|tables| source(tables, &request.port)) {
        Some(source) => source,
        None if is_kernel_member(switch, &request.port).await => Source::Device,
        None => return Err(Seam::not_found(operation())),
    };
    match source {
        Source::Device => Ok(Capture::open(request)?.into_stream().map_err(Into::into).boxed()),
        Source::Vanished => Err(Seam::conflict(operation(), "its device has vanished")),
        Source::Copy { bridge, port, row } => copied(switch, request, &bridge, &port, row).await,
    }
}

fn source(tables: &Tables, interface: &str) -> Option<Source> {
    for (_, bridge) in tables.rows("Bridge") {
        for row in bridge.uuids("ports") {
            let Some(port) = tables.row("Port", row) else { continue };
            let mut members = port.uuids("interfaces").filter_map(|member| tables.row("Interface", member));
            let Some(found) = members.find(|member| member.str("name") == Some(interface)) else { continue };
            return Some(match (inventory::has_device(found), found.integer("ifindex").unwrap_or_default()) {
                (true, 0) => Source::Vanished,
                (true, _) => Source::Device,
                (false, _) => {
                    Source::Copy { bridge: bridge.str("name")?.to_owned(), port: port.str("name")?.to_owned(), row }
                }
            });
        }
    }
    None
}

/// Members of the kernel's bonds are no ports of the switch, but carry its packets.
async fn is_kernel_member(switch: &OvsSwitch, name: &str) -> bool {
    let found = switch.inner.database.read(inventory::read);
    let bonds = snapshot::kernel_bonds(switch, &found).await;
    bonds.iter().flat_map(|bond| &bond.interfaces).any(|member| member.name == name)
}

async fn copied(
    switch: &OvsSwitch,
    request: &CaptureRequest,
    bridge: &str,
    port: &str,
    row: Uuid,
) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
    let inner = &switch.inner;
    let operation = || format!("capture on {}", request.port);
    let turn = Arc::clone(&inner.copies).try_acquire_owned().map_err(|_| {
        Seam::conflict(operation(), "another capture has its packets copied, and only one can at a time")
    })?;
    clean(&inner.database, &inner.options.owner).await?;
    // From here on whatever happens ends with the mirror's removal.
    let copy = Copy { inner: Arc::downgrade(inner), turn: Some(turn) };
    let number = u32::try_from(RandomState::new().build_hasher().finish() >> 32).unwrap_or_default();
    let port_uuid = row.to_string();
    let mirror = mirror::Mirror { bridge, port, port_uuid: &port_uuid, owner: &inner.options.owner, number };
    inner.database.client()?.transact_json(inventory::DATABASE, &mirror::start(&mirror)).await?;
    let device = mirror.device();
    if tokio::time::timeout(APPEARANCE, appears(&inner.database, &device)).await.is_err() {
        return Err(Seam::timeout(operation(), APPEARANCE));
    }
    bring_up(&device)?;
    let capture = Capture::open(&CaptureRequest { port: device, ..request.clone() })?;
    let packets = capture.into_stream().map_err(Into::into);
    Ok(packets
        .map(move |piece| {
            let _held = &copy;
            piece
        })
        .boxed())
}

/// Waits until the switch has made the device.
async fn appears(database: &Replica, device: &str) {
    let mut events = database.events().boxed();
    let there = || {
        database.read(|tables| {
            let mut interfaces = tables.rows("Interface");
            interfaces.any(|(_, row)| row.str("name") == Some(device) && row.integer("ifindex").unwrap_or_default() > 0)
        })
    };
    while !there() {
        if events.next().await.is_none() {
            return std::future::pending().await;
        }
    }
}

/// Removes what this program, or one before it, has left in the database.
pub(super) async fn clean(database: &Replica, owner: &str) -> error::Result<()> {
    let client = database.client()?;
    let found = mirror::found(&client.transact_json(inventory::DATABASE, &mirror::find(owner)).await?);
    if let Some(operations) = mirror::remove(&found) {
        client.transact_json(inventory::DATABASE, &operations).await?;
        tracing::info!(mirrors = found.mirrors.len(), "removed the mirrors of captures");
    }
    Ok(())
}

/// Removes what an earlier run has left, trying until the database can be asked or nobody wants the switch any more.
pub(super) async fn sweep(inner: Weak<Inner>) {
    loop {
        let Some(switch) = inner.upgrade() else { return };
        let Ok(turn) = Arc::clone(&switch.copies).acquire_owned().await else { return };
        if clean(&switch.database, &switch.options.owner).await.is_ok() {
            return;
        }
        drop((turn, switch));
        tokio::time::sleep(REMOVALS.1).await;
    }
}

/// Packets are being copied. When this goes, they are not any more.
#[derive(Debug)]
struct Copy {
    /// Weak: a stream that is held for long must not hold the connections of a switch that nobody wants.
    inner: Weak<Inner>,
    turn: Option<OwnedSemaphorePermit>,
}

impl Drop for Copy {
    fn drop(&mut self) {
        // Without a runtime the program ends, and its next run cleans up.
        let (Some(inner), Ok(runtime)) = (self.inner.upgrade(), tokio::runtime::Handle::try_current()) else { return };
        let turn = self.turn.take();
        runtime.spawn(async move {
            for _ in 0..REMOVALS.0 {
                match clean(&inner.database, &inner.options.owner).await {
                    Ok(()) => break,
                    Err(error) => tracing::debug!(error = error::chain(&error), "a mirror is still there"),
                }
                tokio::time::sleep(REMOVALS.1).await;
            }
            drop(turn);
        });
    }
}

/// One mirror at a time: each costs the switch a copy of every packet.
pub(super) fn copies() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1))
}

#[cfg(all(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        ovsdb::{Datum, ReplicaOptions, Row},
        testing::OvsdbServer,
    };

    async fn with(kind: &str, ifindex: i64) -> (OvsdbServer, Replica) {
        let server = OvsdbServer::switch();
        let named = |name: &str| Row::new().with("name", name);
        let interface = server.insert("Interface", named("vhu0").with("type", kind).with("ifindex", ifindex));
        let port = server.insert("Port", named("vhu0").with("interfaces", Datum::set([interface])));
        server.insert("Bridge", named("br-int").with("ports", Datum::set([port])));
        let remote = server.listen_tcp().await.unwrap();
        let replica = Replica::connect(vec![remote], inventory::follow(), ReplicaOptions::new()).await.unwrap();
        (server, replica)
    }

    #[tokio::test]
    async fn a_port_without_a_device_needs_a_copy_and_one_that_vanished_has_nothing() {
        for (kind, ifindex, direct, vanished) in [
            ("", 7, true, false),
            ("internal", 7, true, false),
            ("", 0, false, true),
            ("dpdkvhostuserclient", 7, false, false),
            ("geneve", 0, false, false),
        ] {
            let (_server, replica) = with(kind, ifindex).await;
            let found = replica.read(|tables| source(tables, "vhu0")).unwrap();
            assert_eq!(found == Source::Device, direct, "{kind} {ifindex}");
            assert_eq!(found == Source::Vanished, vanished, "{kind} {ifindex}");
            assert_eq!(replica.read(|tables| source(tables, "nothing")), None);
        }
    }

    #[tokio::test]
    async fn what_an_earlier_run_left_is_removed_and_nothing_is_written_without_it() {
        let (server, replica) = with("dpdk", 1).await;
        server.answer("transact", serde_json::json!([{ "rows": [] }, { "rows": [] }]));
        clean(&replica, "me").await.unwrap();
        assert_eq!(server.requests("transact").len(), 1);
        let uuid = serde_json::json!(["uuid", "550e8400-e29b-41d4-a716-446655440000"]);
        server.answer("transact", serde_json::json!([{ "rows": [{ "_uuid": uuid }] }, { "rows": [] }]));
        clean(&replica, "me").await.unwrap();
        let written = server.requests("transact")[2]["params"].to_string();
        assert!(written.contains("\"mutate\"") && written.contains("550e8400"), "{written}");
    }
}
