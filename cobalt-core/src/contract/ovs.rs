//! The contract of [`OvsInspector`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures::StreamExt;

use super::{Provoked, Report, Stop, Suite, ascending, ensure, eventually, rejects, same, soon};
use crate::ovs::{
    Binding, BondKind, CaptureRequest, Interface, InterfaceRole, OvsChange, OvsCounters, OvsInspector, OvsSnapshot,
    TraceRequest,
};

const NO_BRIDGE: &str = "br-nowhere";

/// A switch to be checked, and how to make things happen on it.
#[async_trait]
pub trait OvsFixture: Send + Sync {
    /// The switch.
    fn switch(&self) -> Arc<dyn OvsInspector>;

    /// Adds a port, or removes one.
    async fn change_ports(&mut self) -> Provoked<()> {
        Stop::cannot("change the ports")
    }

    /// A packet that the switch can follow.
    async fn packet(&mut self) -> Provoked<TraceRequest> {
        Stop::cannot("describe a packet")
    }

    /// Stops `ovs-vswitchd` from answering, or lets it answer again.
    async fn hang_switch(&mut self, _hang: bool) -> Provoked<()> {
        Stop::cannot("hang the switch")
    }

    /// Stops `ovn-controller` from answering, or lets it answer again.
    async fn hang_controller(&mut self, _hang: bool) -> Provoked<()> {
        Stop::cannot("hang the controller")
    }

    /// Ends the switch's database, or starts it again.
    async fn stop_database(&mut self, _stop: bool) -> Provoked<()> {
        Stop::cannot("stop the database")
    }

    /// Plugs a port that claims a logical port nobody has, or takes it away: the interface's name.
    async fn plug_stranger(&mut self, _plug: bool) -> Provoked<String> {
        Stop::cannot("plug a port that claims to be another")
    }

    /// Gives a bridge a bond of the kernel's as its uplink, or takes it away: the bond's name.
    async fn kernel_bond(&mut self, _there: bool) -> Provoked<String> {
        Stop::cannot("make a bond of the kernel's")
    }

    /// Takes a leg of a bond out of service, or back: the interface's name.
    async fn break_bond(&mut self, _broken: bool) -> Provoked<String> {
        Stop::cannot("break a bond")
    }
}

/// Checks every law of the trait.
pub async fn run(fixture: &mut dyn OvsFixture) -> Report {
    let switch = fixture.switch();
    let features = switch.features();
    let mut suite = Suite::new("OvsInspector");
    suite.check("snapshot", "lists are ordered by name and refer to each other", snapshot(fixture)).await;
    suite.check("snapshot-stable", "two snapshots at rest show the same configuration", stable(fixture)).await;
    suite.check("changes", "a new port is told, and the snapshot then shows it", changes(fixture)).await;
    suite.check("hung", "a switch that hangs is a finding, not an error", hung(fixture)).await;
    suite.check("bond", "a leg that does not carry traffic is not enabled", bond(fixture)).await;
    suite.check("kernel-bond", "a bond of the kernel's is one interface, with members", kernel_bond(fixture)).await;
    suite.check("claims", "only a port that claims a logical port has a binding", claims(fixture)).await;
    suite.check("stranger", "a port that OVN does not know is not called bound", stranger(fixture)).await;
    suite.check("controller", "a controller that hangs is a finding, not an error", hung_controller(fixture)).await;
    suite.check("database", "a lost database is a finding, and it is told when it is back", database(fixture)).await;
    if features.flows {
        suite.check("flows", "flows are those that the tables count, of one table or of all", flows(fixture)).await;
    } else {
        suite
            .check("flows-lacking", "a switch that cannot list flows says so", async {
                rejects("flows", "unsupported", switch.flows(NO_BRIDGE, None).await.map(|_| ()))
            })
            .await;
    }
    if features.counters {
        suite.check("counters", "what is counted does not go back, and names its daemon", counters(fixture)).await;
    } else {
        suite
            .check("counters-lacking", "a switch that cannot count says so", async {
                rejects("counters", "unsupported", switch.counters().await)
            })
            .await;
    }
    if features.trace {
        suite.check("trace", "a packet's way ends in a verdict; an unknown bridge has none", trace(fixture)).await;
    } else {
        suite
            .check("trace-lacking", "a switch that cannot trace says so", async {
                rejects("trace", "unsupported", switch.trace(&nowhere()).await)
            })
            .await;
    }
    if features.capture {
        suite.check("capture", "a capture is a pcap file and keeps its bounds", capture(fixture)).await;
    } else {
        suite
            .check("capture-lacking", "a switch that cannot capture says so", async {
                rejects("capture", "unsupported", switch.capture(&capture_of("nothing")).await.map(|_| ()))
            })
            .await;
    }
    if features.southbound {
        suite
            .check("stale-flows", "a switch at rest can be asked for stale flows", async {
                let bridges = switch.snapshot().await?.bridges;
                let bridge = bridges.first().map(|bridge| bridge.name.clone());
                let bridge = bridge.map_or_else(|| Stop::cannot("offer a bridge"), Ok)?;
                Ok(switch.stale_flows(&bridge).await.map(|_| ())?)
            })
            .await;
    } else {
        suite
            .check("stale-flows-lacking", "without the southbound database nothing is called stale", async {
                rejects("stale_flows", "unsupported", switch.stale_flows(NO_BRIDGE).await)
            })
            .await;
    }
    suite.0
}

fn nowhere() -> TraceRequest {
    TraceRequest {
        bridge: NO_BRIDGE.into(),
        in_port: "nothing".into(),
        ethernet: ("00:00:00:00:00:01".into(), "00:00:00:00:00:02".into()),
        vlan: None,
        ip: None,
        transport: None,
    }
}

fn capture_of(port: &str) -> CaptureRequest {
    CaptureRequest { port: port.to_owned(), duration: Duration::from_secs(2), max_bytes: 400, snap_len: 64 }
}

async fn snapshot(fixture: &mut dyn OvsFixture) -> Provoked<()> {
    let found = fixture.switch().snapshot().await?;
    let bridges: Vec<&str> = found.bridges.iter().map(|bridge| bridge.name.as_str()).collect();
    let interfaces: Vec<&str> = found.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    let bonds: Vec<&str> = found.bonds.iter().map(|bond| bond.name.as_str()).collect();
    ascending("bridges", &bridges)?;
    ascending("interfaces", &interfaces)?;
    ascending("bonds", &bonds)?;
    for interface in &found.interfaces {
        let known = bridges.contains(&interface.bridge.as_str());
        ensure(known, || format!("{} is on {}, which is no bridge", interface.name, interface.bridge))?;
    }
    for bond in &found.bonds {
        let members: Vec<&str> = bond.members.iter().map(|member| member.name.as_str()).collect();
        ascending("members", &members)?;
        let theirs: BTreeSet<&str> = found
            .interfaces
            .iter()
            .filter(|member| member.bond.as_deref() == Some(&bond.name))
            .map(|member| member.name.as_str())
            .collect();
        // A member of the kernel's bonds is no interface of the switch.
        if bond.kind == BondKind::Ovs {
            same("members", members.into_iter().collect(), theirs)?;
        }
    }
    ensure(found.database_connected && found.switch.is_responsive(), || "the switch is not well to begin with".into())
}

async fn stable(fixture: &mut dyn OvsFixture) -> Provoked<()> {
    let switch = fixture.switch();
    let names = |all: &[Interface]| -> Vec<String> { all.iter().map(|interface| interface.name.clone()).collect() };
    let (first, second) = (switch.snapshot().await?, switch.snapshot().await?);
    same("interfaces", names(&second.interfaces), names(&first.interfaces))?;
    same("bonds", second.bonds, first.bonds)?;
    ensure(second.at >= first.at, || "time went back".into())
}

async fn changes(fixture: &mut dyn OvsFixture) -> Provoked<()> {
    let switch = fixture.switch();
    let ports = || async {
        let found = switch.snapshot().await?;
        Ok::<_, Stop>(found.interfaces.into_iter().map(|interface| interface.name).collect::<Vec<_>>())
    };
    let before = ports().await?;
    let mut changes = switch.changes();
    fixture.change_ports().await?;
    let told = soon("word of the change", changes.next()).await?;
    ensure(told.is_some(), || "the stream ended".into())?;
    eventually("other ports", || async { Ok(ports().await? != before) }).await
}

async fn hung(fixture: &mut dyn OvsFixture) -> Provoked<()> {
    let switch = fixture.switch();
    fixture.hang_switch(true).await?;
    let found = switch.snapshot().await;
    fixture.hang_switch(false).await?;
    let found = found?;
    ensure(!found.switch.is_responsive(), || "a switch that hangs is called responsive".into())?;
    ensure(found.bridges.iter().all(|bridge| bridge.flows.is_none()), || "flows were counted all the same".into())?;
    eventually("the switch to answer", || async { Ok(switch.snapshot().await?.switch.is_responsive()) }).await
}

async fn bond(fixture: &mut dyn OvsFixture) -> Provoked<()> {
    let switch = fixture.switch();
    let name = fixture.break_bond(true).await?;
    let enabled = || async {
        let found = switch.snapshot().await?;
        let members = found.bonds.into_iter().flat_map(|bond| bond.members);
        Ok::<_, Stop>(members.filter(|member| member.name == name).any(|member| member.enabled == Some(true)))
    };
    let broken = eventually("the leg to be disabled", || async { Ok(!enabled().await?) }).await;
    fixture.break_bond(false).await?;
    broken?;
    eventually("the leg to be enabled", || async { enabled().await }).await
}

async fn kernel_bond(fixture: &mut dyn OvsFixture) -> Provoked<()> {
    let switch = fixture.switch();
    let name = fixture.kernel_bond(true).await?;
    let shown = eventually("the bond", || async {
        let found = switch.snapshot().await?;
        let Some(bond) = found.bonds.iter().find(|bond| bond.name == name) else { return Ok(false) };
        same("kind", bond.kind, BondKind::Kernel)?;
        ensure(!bond.members.is_empty(), || "it has no members".into())?;
        ensure(found.interfaces.iter().any(|one| one.name == name), || "it is no interface of the switch".into())?;
        let seen = |member: &str| found.interfaces.iter().any(|interface| interface.name == member);
        let members = bond.members.iter().find(|member| seen(&member.name));
        ensure(members.is_none(), || format!("{members:?} is its member and an interface of the switch"))?;
        Ok(true)
    })
    .await;
    fixture.kernel_bond(false).await?;
    shown
}

async fn claims(fixture: &mut dyn OvsFixture) -> Provoked<()> {
    let OvsSnapshot { interfaces, .. } = fixture.switch().snapshot().await?;
    for Interface { name, role, logical_port, binding, remote_chassis, remote_known, .. } in &interfaces {
        let claims = logical_port.is_some() || binding.is_none();
        ensure(claims, || format!("{name} claims no logical port, and is {binding:?}"))?;
        let tunnel = *role == InterfaceRole::Tunnel || (remote_chassis.is_none() && remote_known.is_none());
        ensure(tunnel, || format!("{name} is no tunnel, and leads to {remote_chassis:?}"))?;
    }
    Ok(())
}

async fn stranger(fixture: &mut dyn OvsFixture) -> Provoked<()> {
    let switch = fixture.switch();
    let name = fixture.plug_stranger(true).await?;
    let find = || async {
        let found = switch.snapshot().await?;
        Ok::<_, Stop>(found.interfaces.into_iter().find(|port| port.name == name))
    };
    let told = eventually("the binding of the stranger", || async {
        Ok(find().await?.is_some_and(|port| port.binding == Some(Binding::Unknown)))
    })
    .await;
    fixture.plug_stranger(false).await?;
    told?;
    eventually("the stranger to be gone", || async { Ok(find().await?.is_none()) }).await
}

async fn hung_controller(fixture: &mut dyn OvsFixture) -> Provoked<()> {
    let switch = fixture.switch();
    fixture.hang_controller(true).await?;
    let found = switch.snapshot().await;
    fixture.hang_controller(false).await?;
    let found = found?;
    ensure(found.switch.is_responsive(), || "the switch hangs with it".into())?;
    let responsive = |found: &OvsSnapshot| found.controller.as_ref().is_some_and(|it| it.daemon.is_responsive());
    ensure(!responsive(&found), || "a controller that hangs is called responsive".into())?;
    // The southbound database knows too, where it can be asked.
    let bound = found.interfaces.iter().find(|port| port.binding.is_some()).filter(|_| !switch.features().southbound);
    ensure(bound.is_none(), || format!("nobody could say so: {bound:?}"))?;
    eventually("the controller to answer", || async { Ok(responsive(&switch.snapshot().await?)) }).await
}

async fn database(fixture: &mut dyn OvsFixture) -> Provoked<()> {
    let switch = fixture.switch();
    let mut changes = switch.changes();
    fixture.stop_database(true).await?;
    let lost = eventually("the loss to be seen", || async { Ok(!switch.snapshot().await?.database_connected) }).await;
    fixture.stop_database(false).await?;
    lost?;
    eventually("the connection", || async { Ok(switch.snapshot().await?.database_connected) }).await?;
    let back = async {
        while let Some(change) = changes.next().await {
            if change == OvsChange::Connected(true) {
                return true;
            }
        }
        false
    };
    ensure(soon("word of the connection", back).await?, || "the stream ended".into())
}

async fn flows(fixture: &mut dyn OvsFixture) -> Provoked<()> {
    let switch = fixture.switch();
    let tables = |bridge: String, table: Option<u8>| {
        let switch = switch.clone();
        async move {
            let mut stream = switch.flows(&bridge, table).await?;
            let mut tables: BTreeMap<u8, u64> = BTreeMap::new();
            while let Some(flow) = stream.next().await {
                *tables.entry(flow?.table).or_default() += 1;
            }
            Ok::<_, Stop>(tables)
        }
    };
    let bridges = switch.snapshot().await?.bridges;
    ensure(!bridges.is_empty(), || "there is no bridge".into())?;
    for bridge in bridges {
        let name = bridge.name;
        // Others may add and remove flows between the two questions.
        eventually(&format!("the flows of {name} to be those its tables count"), || async {
            let found = switch.snapshot().await?.bridges.into_iter().find(|found| found.name == name);
            let counted = found.and_then(|found| found.flows).unwrap_or_default();
            Ok(tables(name.clone(), None).await? == counted)
        })
        .await?;
        if let Some(table) = bridge.flows.unwrap_or_default().into_keys().last() {
            let found = tables(name.clone(), Some(table)).await?;
            ensure(found.keys().all(|found| *found == table), || format!("table {table}: {found:?}"))?;
        }
    }
    let answer = switch.flows(NO_BRIDGE, None).await.map(|_| ());
    ensure(answer.is_err(), || "a bridge nobody has has flows".into())
}

async fn counters(fixture: &mut dyn OvsFixture) -> Provoked<()> {
    let switch = fixture.switch();
    let (first, second) = (switch.counters().await?, switch.counters().await?);
    ensure(!first.datapaths.is_empty(), || "there is no datapath".into())?;
    let grows = |what: &str, before: u64, after: Option<u64>| {
        ensure(after.is_some_and(|after| after >= before), || format!("{what} went from {before} to {after:?}"))
    };
    for (name, before) in &first.datapaths {
        let after = second.datapaths.get(name);
        grows(&format!("hits of {name}"), before.hit, after.map(|after| after.hit))?;
        grows(&format!("misses of {name}"), before.missed, after.map(|after| after.missed))?;
        grows(&format!("lost of {name}"), before.lost, after.map(|after| after.lost))?;
    }
    for pmd in &first.pmds {
        let after = second.pmds.iter().filter(|after| after.thread == pmd.thread).collect::<Vec<_>>();
        ensure(after.len() == 1, || format!("thread {} is told {} times", pmd.thread, after.len()))?;
        grows(&format!("packets of {}", pmd.thread), pmd.received.unwrap_or(0), after[0].received)?;
        let mut queues: Vec<_> = pmd.queues.iter().map(|queue| (&queue.interface, queue.queue)).collect();
        queues.sort_unstable();
        let twice = queues.windows(2).find(|pair| pair[0] == pair[1]);
        ensure(twice.is_none(), || format!("thread {} serves {twice:?} twice", pmd.thread))?;
    }
    for (daemon, events) in &first.coverage {
        for (event, before) in events {
            let after = second.coverage.get(daemon).and_then(|events| events.get(event)).copied();
            grows(&format!("{event} of {daemon}"), *before, after)?;
        }
    }
    let OvsCounters { coverage, memory, .. } = first;
    let daemons = ["ovs-vswitchd", "ovsdb-server", "ovn-controller"];
    let unknown = coverage.keys().chain(memory.keys()).find(|daemon| !daemons.contains(&daemon.as_str()));
    ensure(unknown.is_none(), || format!("{unknown:?} is no daemon"))
}

async fn trace(fixture: &mut dyn OvsFixture) -> Provoked<()> {
    let request = fixture.packet().await?;
    let switch = fixture.switch();
    let found = switch.trace(&request).await?;
    ensure(!found.steps.is_empty() && !found.text.is_empty(), || "the way has no steps".into())?;
    same("where it begins", &found.steps[0].bridge, &request.bridge)?;
    let answer = switch.trace(&nowhere()).await;
    ensure(answer.is_err(), || "a bridge nobody has answered".into())
}

async fn capture(fixture: &mut dyn OvsFixture) -> Provoked<()> {
    let switch = fixture.switch();
    let ports = switch.snapshot().await?.interfaces;
    let port = ports.first().map_or_else(|| Stop::cannot("offer a port"), Ok)?;
    let request = capture_of(&port.name);
    let mut stream = switch.capture(&request).await?;
    let mut bytes = Vec::new();
    let reading = async {
        while let Some(chunk) = stream.next().await {
            bytes.extend(chunk?);
        }
        Ok::<_, Stop>(())
    };
    soon("the end of the capture", reading).await??;
    ensure(bytes.len() >= 24, || format!("{} bytes are no pcap file", bytes.len()))?;
    let magic = [bytes[0], bytes[1], bytes[2], bytes[3]];
    let known = [0xa1b2_c3d4_u32, 0xa1b2_3c4d]
        .into_iter()
        .any(|word| magic == word.to_le_bytes() || magic == word.to_be_bytes());
    ensure(known, || format!("{magic:x?} is no pcap magic"))?;
    ensure(bytes.len() as u64 <= request.max_bytes, || format!("{} bytes are too many", bytes.len()))?;
    let answer = switch.capture(&capture_of("no-such-port")).await.map(|_| ());
    ensure(answer.is_err(), || "a port nobody has was captured".into())
}
