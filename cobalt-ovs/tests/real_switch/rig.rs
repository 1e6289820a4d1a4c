//! Nodes that the tests share, and ways to look at them.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use cobalt_core::ovs::{Bond, Controller, Interface, OvsInspector, OvsSnapshot};
use cobalt_ovs::{ConnectOptions, OvsOptions, OvsSwitch, Pki, Southbound};
use cobalt_rig::ovs::Node;

/// Whatever is to happen has happened by then, also on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);

/// The node of this process, for tests that leave it as they found it; `None` after telling why there is none. It ends
/// with the last test that uses it.
pub(crate) fn shared(test: &str) -> Option<Arc<Node>> {
    static SHARED: Mutex<Weak<Node>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(node) = shared.upgrade() {
        return Some(node);
    }
    let node = Arc::new(own(test)?);
    *shared = Arc::downgrade(&node);
    Some(node)
}

/// A node that nobody else has, for tests that break it.
pub(crate) fn own(test: &str) -> Option<Node> {
    cobalt_rig::ovs::available(test).then(|| Node::up().expect("a node"))
}

/// The client's certificates of a node.
pub(crate) fn pki(node: &Node) -> Pki {
    let at = |name: &str| node.pki().join(name);
    Pki::new(at("cacert.pem"), at("clientcert.pem"), at("clientkey.pem"))
}

/// Connections that notice a silent server soon.
pub(crate) fn options(node: &Node) -> ConnectOptions {
    ConnectOptions::new().pki(pki(node)).call_timeout(Duration::from_secs(60))
}

/// Waits for a condition that nobody announces.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LIMIT, waiting).await.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"));
}

/// How an agent on the node would be set up, with access to the southbound database.
pub(crate) fn switch_options(node: &Node) -> OvsOptions {
    OvsOptions::new()
        .run_dir(node.directory())
        .ovn_run_dir(node.directory())
        .southbound(Southbound::AsController)
        .connection(options(node))
        // A daemon that answers late on a loaded machine does not hang.
        .control_timeout(Duration::from_secs(15))
        .openflow_timeout(Duration::from_secs(60))
}

/// The switch of a node, whose databases have been read.
pub(crate) async fn switch(node: &Node) -> OvsSwitch {
    let switch = OvsSwitch::connect(switch_options(node)).await.unwrap();
    until("the databases are read", async || {
        switch.database_state().synced && switch.southbound_state().is_some_and(|state| state.synced)
    })
    .await;
    switch
}

/// Takes snapshots until one shows it.
pub(crate) async fn seen(switch: &OvsSwitch, what: &str, shows: impl Fn(&OvsSnapshot) -> bool) -> OvsSnapshot {
    let last = Mutex::new(None);
    let waiting = async {
        loop {
            let snapshot = switch.snapshot().await.unwrap();
            if shows(&snapshot) {
                return snapshot;
            }
            *last.lock().unwrap() = Some(snapshot);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let found = tokio::time::timeout(LIMIT, waiting).await;
    found.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}; the last was {:#?}", last.lock().unwrap()))
}

pub(crate) fn interface<'a>(snapshot: &'a OvsSnapshot, name: &str) -> &'a Interface {
    let found = snapshot.interfaces.iter().find(|interface| interface.name == name);
    found.unwrap_or_else(|| panic!("there is no {name} in {:#?}", snapshot.interfaces))
}

pub(crate) fn bond(snapshot: &OvsSnapshot) -> &Bond {
    let [bond] = snapshot.bonds.as_slice() else { panic!("not one bond: {:?}", snapshot.bonds) };
    bond
}

pub(crate) fn controller(snapshot: &OvsSnapshot) -> &Controller {
    snapshot.controller.as_ref().expect("a controller")
}
