//! What keeps a replica.

use std::{sync::Arc, time::Instant};

use tokio::sync::{mpsc, oneshot};

use super::{ReplicaEvent, Shared};
use crate::{
    error::{self, Error, Result},
    ovsdb::{
        client::{Monitor, Ovsdb},
        monitor::{RawUpdate, Updates},
        row::Names,
        schema::Schema,
    },
};

type Wish = oneshot::Sender<Result<()>>;

/// One connection and what is needed to read what it tells.
struct Session {
    client: Ovsdb,
    monitor: Monitor,
    schema: Schema,
    names: Names,
    /// Which of the wishes for rows it began with.
    wanted: u64,
}

/// Connects, and connects again, for as long as it is polled.
pub(super) async fn run(shared: Arc<Shared>, mut wishes: mpsc::Receiver<Wish>) {
    let (mut attempt, mut turn) = (0_u32, 0);
    loop {
        match open(&shared, turn).await {
            Ok(mut session) => {
                tracing::debug!(peer = session.client.peer(), "following a database");
                let began = tokio::time::Instant::now();
                up(&shared, &mut session);
                let why = follow(&shared, &mut session, &mut wishes).await;
                tracing::warn!(peer = session.client.peer(), reason = why, "no longer following a database");
                down(&shared, why);
                // A server that takes us and throws us out at once is not one to run against at full speed.
                if began.elapsed() > shared.options.reconnect_most {
                    attempt = 0;
                }
            }
            Err(error) => {
                let why = error::chain(&error);
                tracing::debug!(attempt, error = why, "cannot follow a database");
                shared.state(|state| {
                    state.report.failed_attempts += 1;
                    state.report.last_error = Some(why);
                });
                shared.attempts.send_modify(|count| *count += 1);
            }
        }
        turn = (turn + 1) % shared.remotes.len();
        wait(&shared, attempt, &mut wishes).await;
        attempt = attempt.saturating_add(1);
    }
}

/// Waits before the next attempt. Who wants other rows meanwhile is told that there is no connection.
async fn wait(shared: &Shared, attempt: u32, wishes: &mut mpsc::Receiver<Wish>) {
    let until = tokio::time::Instant::now() + shared.options.wait(attempt);
    while let Ok(Some(wish)) = tokio::time::timeout_at(until, wishes.recv()).await {
        let _ = wish.send(Err(Error::connect("follow other rows", "there is no connection")));
    }
    tokio::time::sleep_until(until).await;
}

async fn open(shared: &Shared, turn: usize) -> Result<Session> {
    let client = Ovsdb::connect(&shared.remotes[turn], &shared.options.connection).await?;
    let (wanted, number, since, known) = shared
        .state(|state| (state.follow.clone(), state.wanted, state.transaction, state.report.schema_version.clone()));
    let schema = client.schema(wanted.database()).await?;
    // Another schema has other columns: what we have is not what the server would add to.
    let since = since.filter(|_| known.as_deref() == Some(&schema.version));
    let mut names = Names::default();
    let monitor = client.monitor(&wanted.within(&schema), since, &mut names).await?;
    Ok(Session { client, monitor, schema, names, wanted: number })
}

fn up(shared: &Shared, session: &mut Session) {
    let initial = std::mem::take(&mut session.monitor.initial);
    let changes = shared.state(|state| {
        state.transaction = initial.transaction;
        let changes = state.tables.apply(initial, &session.schema);
        state.followed = session.wanted;
        state.client = Some(session.client.clone());
        state.report.connected = true;
        state.report.synced = true;
        state.report.since = Instant::now();
        state.report.failed_attempts = 0;
        state.report.reconnects += u64::from(state.connected_before);
        state.report.schema_version = Some(session.schema.version.clone());
        state.connected_before = true;
        changes
    });
    let _ = shared.events.send(ReplicaEvent::Connected);
    if !changes.is_empty() {
        let _ = shared.events.send(ReplicaEvent::Changed(changes.into()));
    }
    shared.attempts.send_modify(|count| *count += 1);
}

fn down(shared: &Shared, why: String) {
    shared.state(|state| {
        state.client = None;
        state.report.connected = false;
        state.report.since = Instant::now();
        state.report.last_error = Some(why.clone());
    });
    let _ = shared.events.send(ReplicaEvent::Disconnected(why));
}

/// Works updates in until the connection ends, and says why it did.
async fn follow(shared: &Shared, session: &mut Session, wishes: &mut mpsc::Receiver<Wish>) -> String {
    loop {
        let told = tokio::select! {
            update = session.monitor.updates.recv() => match update {
                Some(update) => take_in(shared, session, &update),
                None => {
                    return if session.client.is_closed() {
                        session.client.epitaph().await
                    } else {
                        // Cancelled by the server, or more than we could take in: all rows again.
                        shared.state(|state| state.transaction = None);
                        "the server's updates ended".to_owned()
                    };
                }
            },
            Some(wish) = wishes.recv() => {
                let answer = reconsider(shared, session).await;
                // A monitor whose conditions nobody knows is of no use; the next one begins with the new ones.
                let told = answer.as_ref().map_or_else(|error| Err(error::chain(error)), |()| Ok(()));
                let _ = wish.send(answer);
                told
            }
        };
        if let Err(why) = told {
            shared.state(|state| state.transaction = None);
            return why;
        }
    }
}

async fn reconsider(shared: &Shared, session: &mut Session) -> Result<()> {
    let (wanted, number, there) =
        shared.state(|state| (state.follow.clone(), state.wanted, state.wanted == state.followed));
    if there {
        return Ok(()); // somebody else has waited for it
    }
    if !session.monitor.conditional {
        shared.state(|state| state.followed = number);
        return Ok(());
    }
    let wanted = wanted.within(&session.schema);
    session.client.change_conditions(&session.monitor.id, &wanted).await?;
    // The server tells what came and went before it answers.
    while let Ok(update) = session.monitor.updates.try_recv() {
        take_in(shared, session, &update).map_err(|detail| Error::protocol("follow other rows", detail))?;
    }
    shared.state(|state| state.followed = number);
    Ok(())
}

fn take_in(shared: &Shared, session: &mut Session, update: &RawUpdate) -> Result<(), String> {
    let updates = Updates::read(update, &mut session.names)
        .map_err(|error| format!("the server sent an update that cannot be read: {error}"))?;
    let changes = shared.state(|state| {
        if updates.transaction.is_some() {
            state.transaction = updates.transaction;
        }
        state.tables.apply(updates, &session.schema)
    });
    if !changes.is_empty() {
        let _ = shared.events.send(ReplicaEvent::Changed(changes.into()));
    }
    Ok(())
}
