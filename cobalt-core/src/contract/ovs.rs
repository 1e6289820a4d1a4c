//! The contract of [`OvsInspector`].

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::StreamExt;

use super::{Provoked, Report, Stop, Suite, ascending, ensure, eventually, rejects, same, soon};
use crate::ovs::{CaptureRequest, Interface, OvsInspector, TraceRequest};

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
        same("members", members.into_iter().collect(), theirs)?;
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
        Ok::<_, Stop>(members.filter(|member| member.name == name).any(|member| member.enabled))
    };
    let broken = eventually("the leg to be disabled", || async { Ok(!enabled().await?) }).await;
    fixture.break_bond(false).await?;
    broken?;
    eventually("the leg to be enabled", || async { enabled().await }).await
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
