//! The laws of a backend's event stream.

use futures::{FutureExt, StreamExt, stream::BoxStream};

use super::{Provoked, Stop, Suite, backend::BackendFixture, ensure, eventually, rejects, same, soon};
use crate::{
    backend::{BackendEvent, DomainEvent, DomainState, EventKind, Lifecycle},
    ids::InstanceId,
};

pub(super) async fn run(suite: &mut Suite, fixture: &mut dyn BackendFixture) {
    let announced = fixture.backend().features().events;
    suite.check("events-connected", "a stream on a live connection begins with Connected", connected(fixture)).await;
    if announced.contains(&EventKind::Lifecycle) {
        suite.check("events-start", "a start is told, and the inventory then agrees", start(fixture)).await;
        suite.check("events-stop", "a stop is told, and the inventory then agrees", stop(fixture)).await;
        suite.check("events-everybody", "every stream gets every event", everybody(fixture)).await;
    }
    for kind in EventKind::ALL.into_iter().filter(|kind| *kind != EventKind::Lifecycle) {
        let name = format!("{kind:?}").to_lowercase();
        if announced.contains(&kind) {
            let law = format!("an announced {kind:?} event comes");
            suite.check(format!("event-{name}"), law, arrives(fixture, kind)).await;
        } else {
            let law = format!("a {kind:?} event that is not announced does not come");
            suite.check(format!("event-{name}-lacking"), law, stays_away(fixture, kind)).await;
        }
    }
    suite
        .check("events-lagged", "a slow reader is told what it lost, and its queue does not grow", lagged(fixture))
        .await;
    suite
        .check("events-reconnect", "a cut is told, calls fail meanwhile, and Connected follows", reconnect(fixture))
        .await;
    suite.check("events-dropped", "a dropped stream leaves nothing behind", dropped(fixture)).await;
}

/// Waits for an event of a domain; everything else passes by.
async fn seen(
    events: &mut BoxStream<'static, BackendEvent>,
    id: &InstanceId,
    what: &str,
    wanted: impl Fn(&DomainEvent) -> bool,
) -> Provoked<()> {
    let waiting = async {
        while let Some(event) = events.next().await {
            if let BackendEvent::Domain { id: whose, event, .. } = event
                && whose == *id
                && wanted(&event)
            {
                return true;
            }
        }
        false
    };
    ensure(soon(what, waiting).await?, || format!("{what}: the stream ended"))
}

fn started(event: &DomainEvent) -> bool {
    matches!(event, DomainEvent::Lifecycle(Lifecycle::Started | Lifecycle::Resumed))
}

fn stopped(event: &DomainEvent) -> bool {
    use Lifecycle::{Crashed, Destroyed, Failed, Stopped, Undefined};
    matches!(event, DomainEvent::Lifecycle(Stopped | Destroyed | Crashed | Failed | Undefined))
}

async fn connected(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let backend = fixture.backend();
    backend.versions().await?;
    let first = soon("a first event", backend.events().next()).await?;
    same("the first event", first, Some(BackendEvent::Connected))
}

async fn start(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let backend = fixture.backend();
    let mut events = backend.events();
    let id = fixture.start_domain().await?;
    seen(&mut events, &id, "the start", started).await?;
    same("the started domain", backend.domain(&id).await?.state, DomainState::Running)?;
    fixture.remove_domain(&id).await
}

async fn stop(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let backend = fixture.backend();
    let id = fixture.start_domain().await?;
    let mut events = backend.events();
    fixture.remove_domain(&id).await?;
    seen(&mut events, &id, "the stop", stopped).await?;
    eventually("an inventory without it", || async {
        Ok(!backend.inventory().await?.iter().any(|domain| domain.id == id && domain.state.is_active()))
    })
    .await
}

async fn everybody(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let (one, two) = (fixture.backend(), fixture.backend());
    let (mut first, mut second) = (one.events(), two.events());
    let id = fixture.start_domain().await?;
    seen(&mut first, &id, "the start, by the first reader", started).await?;
    seen(&mut second, &id, "the start, by the second reader", started).await?;
    fixture.remove_domain(&id).await
}

async fn arrives(fixture: &mut dyn BackendFixture, kind: EventKind) -> Provoked<()> {
    let backend = fixture.backend();
    let id = fixture.start_domain().await?;
    let mut events = backend.events();
    fixture.provoke(&id, kind).await?;
    seen(&mut events, &id, &format!("a {kind:?} event"), |event| event.kind() == kind).await
}

async fn stays_away(fixture: &mut dyn BackendFixture, kind: EventKind) -> Provoked<()> {
    let backend = fixture.backend();
    let id = fixture.start_domain().await?;
    let mut events = backend.events();
    fixture.provoke(&id, kind).await?;
    // What happens next is a mark: whatever was to come before it has come by then.
    let mark = fixture.start_domain().await?;
    let waiting = async {
        while let Some(event) = events.next().await {
            match event {
                BackendEvent::Domain { event, .. } if event.kind() == kind => {
                    return Stop::failed(format!("a {kind:?} event came"));
                }
                BackendEvent::Domain { id, event, .. } if id == mark && started(&event) => return Ok(()),
                _ => {}
            }
        }
        Stop::failed("the stream ended")
    };
    soon("the mark", waiting).await??;
    fixture.remove_domain(&mark).await
}

async fn lagged(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let backend = fixture.backend();
    let mut events = backend.events();
    let sent = fixture.flood().await?;
    let (mut lost, mut kept) = (0, 0);
    let reading = async {
        while let Some(event) = events.next().await {
            match event {
                BackendEvent::Lagged(count) => lost += count,
                _ => kept += 1,
            }
            if lost > 0 && lost + kept >= sent {
                return;
            }
        }
    };
    soon("word of what was lost", reading).await?;
    ensure(kept < sent, || format!("{kept} of {sent} events were kept"))?;
    let more = std::iter::from_fn(|| events.next().now_or_never().flatten()).count() as u64;
    ensure(kept + more < sent, || "the queue held everything".into())?;
    // The reader lists again, as it was told to.
    Ok(backend.inventory().await.map(|_| ())?)
}

async fn reconnect(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let backend = fixture.backend();
    let mut events = backend.events();
    fixture.cut_connection().await?;
    let cut = async {
        while let Some(event) = events.next().await {
            if matches!(event, BackendEvent::Disconnected(_)) {
                return true;
            }
        }
        false
    };
    ensure(soon("word of the cut", cut).await?, || "the stream ended".into())?;
    rejects("inventory", "unavailable", backend.inventory().await)?;
    rejects("versions", "unavailable", backend.versions().await)?;
    fixture.restore_connection().await?;
    let back = async {
        while let Some(event) = events.next().await {
            if event == BackendEvent::Connected {
                return true;
            }
        }
        false
    };
    ensure(soon("Connected", back).await?, || "the stream ended".into())?;
    backend.inventory().await?;
    // Callbacks are registered again, not only the socket opened.
    let id = fixture.start_domain().await?;
    seen(&mut events, &id, "a start after the reconnect", started).await?;
    fixture.remove_domain(&id).await
}

async fn dropped(fixture: &mut dyn BackendFixture) -> Provoked<()> {
    let backend = fixture.backend();
    let before = fixture.open_streams()?;
    let streams: Vec<_> = (0..16).map(|_| backend.events()).collect();
    same("open streams", fixture.open_streams()?, before + streams.len())?;
    drop(streams);
    let fixture = &*fixture;
    eventually("the streams to be gone", || async { Ok(fixture.open_streams()? <= before) }).await
}
