//! The contract suite of a switch finds what it is for: an inspector with one flaw fails the one law it breaks.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use cobalt_core::{
    Error, Result,
    contract::{self, Outcome, Provoked, ovs::OvsFixture},
    ovs::{
        Binding, BondKind, CaptureRequest, Daemon, Flow, OvsChange, OvsCounters, OvsFeatures, OvsInspector,
        OvsSnapshot, Trace, TraceRequest, Verdict,
    },
};
use futures::{StreamExt, stream, stream::BoxStream};

use crate::contracts::Machine;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    Unordered,
    HungIsAnError,
    CountsWhatHangs,
    TrustsTheLink,
    SilentAboutChanges,
    SilentAboutTheDatabase,
    LosesTheDatabaseLoudly,
    HidesKernelBonds,
    BindsWhatClaimsNothing,
    BindsStrangers,
    TrustsAHungController,
    ListsEveryTable,
    MissesAFlow,
    CountsBackwards,
    CountsForNobody,
    ClaimsToTraceAnything,
    CapturesTooMuch,
    LacksFlowsSilently,
}

struct Flawed {
    inner: Arc<dyn OvsInspector>,
    flaw: Flaw,
    asked: std::sync::atomic::AtomicU64,
}

#[async_trait]
impl OvsInspector for Flawed {
    fn features(&self) -> OvsFeatures {
        let features = self.inner.features();
        OvsFeatures { flows: features.flows && self.flaw != Flaw::LacksFlowsSilently, ..features }
    }

    async fn snapshot(&self) -> Result<OvsSnapshot> {
        let mut seen = self.inner.snapshot().await?;
        match self.flaw {
            Flaw::Unordered => seen.interfaces.reverse(),
            Flaw::HungIsAnError if !seen.switch.is_responsive() => {
                return Err(Error::unavailable("inspect the switch", std::io::Error::other("it hangs")));
            }
            Flaw::LosesTheDatabaseLoudly if !seen.database_connected => {
                return Err(Error::unavailable("inspect the switch", std::io::Error::other("no database")));
            }
            Flaw::CountsWhatHangs => {
                for bridge in &mut seen.bridges {
                    bridge.flows.get_or_insert_default();
                }
            }
            Flaw::TrustsTheLink => {
                for member in seen.bonds.iter_mut().flat_map(|bond| &mut bond.members) {
                    member.enabled = member.link_up;
                }
            }
            Flaw::HidesKernelBonds => seen.bonds.retain(|bond| bond.kind == BondKind::Ovs),
            Flaw::BindsWhatClaimsNothing => {
                let free = seen.interfaces.iter_mut().filter(|port| port.logical_port.is_none());
                for port in free.filter(|_| seen.controller.as_ref().is_some_and(|it| it.daemon.is_responsive())) {
                    port.binding = Some(Binding::Here);
                }
            }
            Flaw::BindsStrangers => {
                for port in seen.interfaces.iter_mut().filter(|port| port.binding == Some(Binding::Unknown)) {
                    port.binding = Some(Binding::Here);
                }
            }
            Flaw::TrustsAHungController => {
                if let Some(controller) = &mut seen.controller {
                    controller.daemon = Daemon::Responsive { version: None };
                }
            }
            _ => {}
        }
        Ok(seen)
    }

    fn changes(&self) -> BoxStream<'static, OvsChange> {
        let flaw = self.flaw;
        let passes = move |change: &OvsChange| match change {
            OvsChange::Connected(true) => flaw != Flaw::SilentAboutTheDatabase,
            OvsChange::Changed => flaw != Flaw::SilentAboutChanges,
            _ => true,
        };
        self.inner.changes().filter(move |change| std::future::ready(passes(change))).boxed()
    }

    async fn trace(&self, request: &TraceRequest) -> Result<Trace> {
        match self.inner.trace(request).await {
            Err(_) if self.flaw == Flaw::ClaimsToTraceAnything => {
                Ok(Trace { steps: Vec::new(), verdict: Verdict::Dropped, text: String::new() })
            }
            answer => answer,
        }
    }

    async fn capture(&self, request: &CaptureRequest) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
        let stream = self.inner.capture(request).await?;
        let more = (self.flaw == Flaw::CapturesTooMuch).then(|| Ok(vec![0; 1000]));
        Ok(stream.chain(stream::iter(more)).boxed())
    }

    async fn flows(&self, bridge: &str, table: Option<u8>) -> Result<BoxStream<'static, Result<Flow>>> {
        let table = table.filter(|_| self.flaw != Flaw::ListsEveryTable);
        let stream = self.inner.flows(bridge, table).await?;
        Ok(stream.skip(usize::from(self.flaw == Flaw::MissesAFlow)).boxed())
    }

    async fn counters(&self) -> Result<OvsCounters> {
        let mut counters = self.inner.counters().await?;
        let asked = self.asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match self.flaw {
            Flaw::CountsBackwards => {
                let event = BTreeMap::from([("bridge_reconfigure".to_owned(), 1000 - asked)]);
                counters.coverage.insert("ovs-vswitchd".into(), event);
            }
            Flaw::CountsForNobody => {
                counters.memory.insert("somebody".into(), BTreeMap::new());
            }
            _ => {}
        }
        Ok(counters)
    }

    async fn stale_flows(&self, bridge: &str) -> Result<BTreeMap<u64, u64>> {
        self.inner.stale_flows(bridge).await
    }
}

struct Fixture(Machine, Flaw);

#[async_trait]
impl OvsFixture for Fixture {
    fn switch(&self) -> Arc<dyn OvsInspector> {
        Arc::new(Flawed { inner: self.0.switch(), flaw: self.1, asked: 0.into() })
    }

    async fn change_ports(&mut self) -> Provoked<()> {
        self.0.change_ports().await
    }

    async fn packet(&mut self) -> Provoked<TraceRequest> {
        self.0.packet().await
    }

    async fn hang_switch(&mut self, hang: bool) -> Provoked<()> {
        self.0.hang_switch(hang).await
    }

    async fn hang_controller(&mut self, hang: bool) -> Provoked<()> {
        self.0.hang_controller(hang).await
    }

    async fn stop_database(&mut self, stop: bool) -> Provoked<()> {
        self.0.stop_database(stop).await
    }

    async fn plug_stranger(&mut self, plug: bool) -> Provoked<String> {
        self.0.plug_stranger(plug).await
    }

    async fn kernel_bond(&mut self, there: bool) -> Provoked<String> {
        self.0.kernel_bond(there).await
    }

    async fn break_bond(&mut self, broken: bool) -> Provoked<String> {
        self.0.break_bond(broken).await
    }
}

#[tokio::test(start_paused = true)]
async fn each_flaw_of_a_switch_breaks_its_law_and_no_other() {
    let table: [(Flaw, &[&str]); 19] = [
        (Flaw::None, &[]),
        (Flaw::Unordered, &["snapshot"]),
        (Flaw::HungIsAnError, &["hung"]),
        (Flaw::CountsWhatHangs, &["hung"]),
        (Flaw::TrustsTheLink, &["bond"]),
        (Flaw::SilentAboutChanges, &["changes"]),
        (Flaw::SilentAboutTheDatabase, &["database"]),
        (Flaw::LosesTheDatabaseLoudly, &["database"]),
        (Flaw::HidesKernelBonds, &["kernel-bond"]),
        (Flaw::BindsWhatClaimsNothing, &["claims"]),
        (Flaw::BindsStrangers, &["stranger"]),
        (Flaw::TrustsAHungController, &["controller"]),
        (Flaw::ListsEveryTable, &["flows"]),
        (Flaw::MissesAFlow, &["flows"]),
        (Flaw::CountsBackwards, &["counters"]),
        (Flaw::CountsForNobody, &["counters"]),
        (Flaw::ClaimsToTraceAnything, &["trace"]),
        (Flaw::CapturesTooMuch, &["capture"]),
        (Flaw::LacksFlowsSilently, &["flows-lacking"]),
    ];
    for (flaw, laws) in table {
        let report = contract::ovs::run(&mut Fixture(Machine::new(), flaw)).await;
        let failed = report.checks.iter().filter(|checked| matches!(checked.outcome, Outcome::Failed(_)));
        let broken: Vec<&str> = failed.map(|checked| checked.id.as_str()).collect();
        assert_eq!(broken, laws, "{flaw:?}\n{report}");
        assert_eq!(report.skipped(), 0, "{report}");
    }
}
