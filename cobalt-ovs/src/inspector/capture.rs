//! Capturing on any port, also on one that has no device.
//!
//! Where a port has no device to listen on (DPDK, vhost-user, tunnels), the switch copies its packets to an internal
//! port made for this. That changes the node, so it is undone however the capture ends: when its stream is dropped,
//! before the next one, at the start of the program for one that crashed, and after its time by anybody for one that was
//! killed and never started again.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{Arc, Weak},
    time::Duration,
};

use cobalt_core::{Error as Seam, Result, ovs::CaptureRequest};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use super::{Inner, OvsSwitch, inventory, snapshot};
use crate::{
    capture::{
        Capture, bring_up,
        mirror::{self, Found},
    },
    error,
    ovsdb::{Replica, Row, Tables},
};

/// How long the switch may take to make the port that packets are copied to.
const APPEARANCE: Duration = Duration::from_secs(30);
/// A capture with a copy is certainly over when its time is, the port had its time to appear, and this has passed.
const SLACK: Duration = Duration::from_secs(10);
/// While the database is away, a mirror is tried to be removed again after this long.
const AGAIN: Duration = Duration::from_secs(1);
/// So often, once nobody wants the switch any more: after its time the mirror is removed by somebody else.
const ALONE: u32 = 60;
/// How often whoever sweeps looks for mirrors whose time is over. It is a look at what is followed anyway.
const LOOKS: Duration = Duration::from_secs(10);

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
    let until = Timestamp::now().saturating_add(request.duration + APPEARANCE + SLACK).unwrap_or(Timestamp::MAX);
    let mirror = mirror::Mirror { bridge, port, port_uuid: &port_uuid, owner: &inner.options.owner, until, number };
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
    remove(database, &found).await.map(drop)
}

/// Removes what is left of captures whose time is over, whoever made them, and tells how many mirrors there were.
pub(super) async fn clean_overdue(database: &Replica) -> error::Result<usize> {
    let found = database.read(|tables| overdue(tables, Timestamp::now()));
    remove(database, &found).await
}

fn overdue(tables: &Tables, now: Timestamp) -> Found {
    let over = |table: &str| {
        let is_over = |row: &Row| {
            let key = |key| row.key("external_ids", key);
            mirror::is_over(key(mirror::TAG), key(mirror::UNTIL), now)
        };
        tables.rows(table).filter(|(_, row)| is_over(row)).map(|(uuid, _)| uuid.to_string()).collect()
    };
    Found { mirrors: over("Mirror"), ports: over("Port") }
}

async fn remove(database: &Replica, found: &Found) -> error::Result<usize> {
    if let Some(operations) = mirror::remove(found) {
        database.client()?.transact_json(inventory::DATABASE, &operations).await?;
        tracing::info!(mirrors = found.mirrors.len(), "removed the mirrors of captures");
    }
    Ok(found.mirrors.len())
}

/// Removes what an earlier run has left, and from then on whatever is overdue, until nobody wants the switch any more.
pub(super) async fn sweep(inner: Weak<Inner>) {
    let mut earlier = true;
    loop {
        let Some(switch) = inner.upgrade() else { return };
        let swept = async {
            if earlier {
                // Not while a capture of this run has its mirror.
                let _turn = switch.copies.acquire().await;
                clean(&switch.database, &switch.options.owner).await?;
                earlier = false;
            }
            clean_overdue(&switch.database).await
        };
        if let Err(error) = swept.await {
            tracing::debug!(error = error::chain(&error), "mirrors may be left");
        }
        drop(switch);
        tokio::time::sleep(if earlier { AGAIN } else { LOOKS }).await;
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
            let mut alone = 0;
            while let Err(error) = clean(&inner.database, &inner.options.owner).await {
                tracing::debug!(error = error::chain(&error), "a mirror is still there");
                alone += u32::from(Arc::strong_count(&inner) == 1);
                if alone > ALONE {
                    tracing::warn!("a mirror is left on the switch until its time is over");
                    break;
                }
                tokio::time::sleep(AGAIN).await;
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
        inspector::OvsOptions,
        ovsdb::{Datum, ReplicaOptions},
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

    #[tokio::test]
    async fn what_is_overdue_is_removed_whoever_made_it_and_nothing_else() {
        let server = OvsdbServer::switch();
        let ids = |owner: &str, until: &str| Datum::map([(mirror::TAG, owner), (mirror::UNTIL, until)]);
        let insert = |table: &str, ids: Datum| server.insert(table, Row::new().with("external_ids", ids)).to_string();
        let over: Vec<String> = ["Mirror", "Port"].map(|table| insert(table, ids("killed", "1000"))).into();
        let others: Vec<String> = ["Mirror", "Port"]
            .into_iter()
            .flat_map(|table| {
                [insert(table, ids("runs", "99999999999")), insert(table, Datum::map([("somebody", "else")]))]
            })
            .collect();
        let remote = server.listen_tcp().await.unwrap();
        let replica = Replica::connect(vec![remote], inventory::follow(), ReplicaOptions::new()).await.unwrap();
        server.answer("transact", serde_json::json!([{}, {}]));
        assert_eq!(clean_overdue(&replica).await.unwrap(), 1);
        let written = server.requests("transact")[0]["params"].to_string();
        assert!(over.iter().all(|uuid| written.contains(uuid)), "{written}");
        assert!(!others.iter().any(|uuid| written.contains(uuid)), "{written}");
        for uuid in over {
            for table in ["Mirror", "Port"] {
                server.delete(table, uuid.parse().unwrap());
            }
        }
        let gone = async {
            while replica.read(|tables| overdue(tables, Timestamp::now())) != Found::default() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
        assert_eq!(clean_overdue(&replica).await.unwrap(), 0);
        assert_eq!(server.requests("transact").len(), 1, "at rest nothing is asked and nothing written");
    }

    #[tokio::test]
    async fn a_database_that_is_away_for_hours_finds_the_mirror_removed_when_it_is_back() {
        let directory = tempfile::tempdir().unwrap();
        let (server, socket) = (OvsdbServer::switch(), directory.path().join("db.sock"));
        let remote = server.listen_unix(&socket).unwrap();
        let options = OvsOptions::new().run_dir(directory.path()).owner("me").database(remote);
        let switch = OvsSwitch::connect(options).await.unwrap();
        let turn = Arc::clone(&switch.inner.copies).try_acquire_owned().unwrap();
        let copy = Copy { inner: Arc::downgrade(&switch.inner), turn: Some(turn) };
        server.stop();
        drop(copy);
        tokio::time::pause();
        tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
        tokio::time::resume();
        let uuid = serde_json::json!(["uuid", "550e8400-e29b-41d4-a716-446655440000"]);
        server.answer("transact", serde_json::json!([{ "rows": [{ "_uuid": uuid }] }, { "rows": [] }]));
        server.listen_unix(&socket).unwrap();
        tokio::time::timeout(Duration::from_secs(60), switch.settled()).await.expect("it is removed");
        let written = server.requests("transact").last().unwrap()["params"].to_string();
        assert!(written.contains("\"mutate\"") && written.contains("550e8400"), "{written}");
    }
}
