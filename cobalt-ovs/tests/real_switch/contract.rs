//! The contract of the seam, on a real switch.

use std::sync::Arc;

use async_trait::async_trait;
use cobalt_core::{
    contract::{self, Outcome, Provoked, Stop, ovs::OvsFixture},
    ovs::{OvsInspector, TraceRequest},
};
use cobalt_ovs::{OvsSwitch, Southbound};
use cobalt_rig::ovs::{Daemon, Node, Orphan};

use crate::{
    packets::echo,
    rig::{controller, own, seen, switch_options},
};

struct Real<'a> {
    node: &'a Node,
    switch: OvsSwitch,
}

fn done<T>(result: cobalt_rig::Result<T>) -> Provoked<T> {
    result.or_else(|error| Stop::failed(error.to_string()))
}

#[async_trait]
impl OvsFixture for Real<'_> {
    fn switch(&self) -> Arc<dyn OvsInspector> {
        Arc::new(self.switch.clone())
    }

    async fn change_ports(&mut self) -> Provoked<()> {
        done(self.node.add_port("tap-new", None))
    }

    async fn packet(&mut self) -> Provoked<TraceRequest> {
        Ok(echo(self.node))
    }

    async fn hang_switch(&mut self, hang: bool) -> Provoked<()> {
        done(if hang { self.node.freeze(Daemon::Switch) } else { self.node.thaw(Daemon::Switch) })
    }

    async fn hang_controller(&mut self, hang: bool) -> Provoked<()> {
        done(if hang { self.node.freeze(Daemon::Controller) } else { self.node.thaw(Daemon::Controller) })
    }

    async fn stop_database(&mut self, stop: bool) -> Provoked<()> {
        done(if stop { self.node.kill(Daemon::Database) } else { self.node.start(Daemon::Database) })
    }

    async fn plug_stranger(&mut self, plug: bool) -> Provoked<String> {
        done(if plug { self.node.orphan(Orphan::Unknown) } else { self.node.adopt(Orphan::Unknown) })?;
        Ok(Orphan::Unknown.port().to_owned())
    }

    async fn break_bond(&mut self, broken: bool) -> Provoked<String> {
        done(self.node.cable("eth1", !broken))?;
        Ok("eth1".to_owned())
    }
}

fn kept(test: &str, southbound: &Southbound) {
    let Some(node) = own(test) else { return };
    // Captures need to see the node's interfaces.
    let report = node.inside(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let options = switch_options(&node).southbound(southbound.clone());
            let switch = OvsSwitch::connect(options).await.unwrap();
            // Without access nobody says how far behind the controller is.
            seen(&switch, "all that can be read", |found| {
                found.database_connected && (*southbound == Southbound::None || controller(found).lag.is_some())
            })
            .await;
            contract::ovs::run(&mut Real { node: &node, switch }).await
        })
    });
    let report = report.unwrap();
    report.assert_passed();
    let skipped = report.checks.iter().filter(|checked| matches!(checked.outcome, Outcome::Skipped(_)));
    let skipped: Vec<&str> = skipped.map(|checked| checked.id.as_str()).collect();
    // Not every kernel has a driver for bonds, so the rig has none.
    assert_eq!(skipped, ["kernel-bond"], "{report}");
}

#[test]
fn a_real_switch_keeps_the_contract() {
    kept("a_real_switch_keeps_the_contract", &Southbound::AsController);
}

#[test]
fn a_real_switch_keeps_the_contract_without_the_southbound_database() {
    kept("a_real_switch_keeps_the_contract_without_the_southbound_database", &Southbound::None);
}
