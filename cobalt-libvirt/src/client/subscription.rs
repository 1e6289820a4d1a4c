//! Events as a stream.

use std::{
    collections::HashMap,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{
    Stream, StreamExt,
    future::join_all,
    stream::{self, BoxStream},
};
use tokio::{
    runtime::Handle,
    sync::{Mutex, broadcast},
};

use super::Libvirt;
use crate::{
    connection::EventMessage,
    error::{Error, Result},
    event::{EventId, Message},
    rpc,
};

/// Which kinds of event the daemon sends us. It takes a kind only once per connection, so subscriptions share.
#[derive(Debug, Default)]
pub(super) struct Registry {
    kinds: Mutex<HashMap<i32, Registration>>,
}

#[derive(Debug)]
struct Registration {
    callback: i32,
    users: usize,
}

/// What a subscription yields.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Notice {
    /// Something happened.
    Message(Message),
    /// This reader was too slow, and so many messages of the connection are lost. Whoever keeps a picture of the host
    /// has to look at everything anew.
    Lagged(u64),
}

/// The events of some kinds, from the moment of the subscription on.
///
/// It is a [`Stream`]; its end is the end of the connection. While it exists, so does the connection. Dropping it tells
/// the daemon in the background to send no more; [`close`](Self::close) waits for that.
///
/// ```no_run
/// use cobalt_libvirt::{Libvirt, Notice, event::{EventId, Message}};
/// use futures::StreamExt;
///
/// # async fn example(libvirt: Libvirt) -> cobalt_libvirt::Result<()> {
/// let mut events = libvirt.subscribe(&[EventId::Lifecycle, EventId::Reboot]).await?;
/// while let Some(notice) = events.next().await {
///     match notice {
///         Notice::Message(Message::Event(event)) => println!("{}: {:?}", event.domain, event.kind),
///         Notice::Lagged(lost) => println!("{lost} events lost, listing again"),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct EventSubscription {
    notices: BoxStream<'static, Notice>,
    lease: Lease,
}

impl EventSubscription {
    /// Tells the daemon to send no more, and waits until it has heard.
    pub async fn close(mut self) {
        let kinds = std::mem::take(&mut self.lease.kinds);
        release(&self.lease.libvirt, &kinds).await;
    }
}

impl fmt::Debug for EventSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSubscription").field("kinds", &self.lease.kinds).finish_non_exhaustive()
    }
}

impl Stream for EventSubscription {
    type Item = Notice;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Notice>> {
        self.notices.poll_next_unpin(context)
    }
}

/// The right to events of some kinds, given back when dropped.
struct Lease {
    libvirt: Libvirt,
    kinds: Vec<i32>,
    callbacks: Vec<i32>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.kinds.is_empty() || self.libvirt.is_closed() {
            return;
        }
        // Without a runtime there is no connection either.
        if let Ok(runtime) = Handle::try_current() {
            let (libvirt, kinds) = (self.libvirt.clone(), std::mem::take(&mut self.kinds));
            runtime.spawn(async move { release(&libvirt, &kinds).await });
        }
    }
}

impl Libvirt {
    /// Subscribes to events of all domains. Nothing that happens after this returns is missed.
    pub async fn subscribe(&self, kinds: &[EventId]) -> Result<EventSubscription> {
        // Listening comes first: an event may overtake the answer to its registration.
        let messages = self.inner.connection.events();
        let mut kinds: Vec<i32> = kinds.iter().map(|kind| (*kind).into()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let libvirt = self.clone();
        // In a task of its own: given up halfway, the daemon would know of registrations that we do not.
        let lease = tokio::spawn(async move { acquire(libvirt, kinds).await })
            .await
            .map_err(|error| Error::protocol("subscribe to events", error.to_string()))??;
        Ok(EventSubscription { notices: notices(messages, lease.callbacks.clone()).boxed(), lease })
    }
}

async fn acquire(libvirt: Libvirt, kinds: Vec<i32>) -> Result<Lease> {
    let mut registered = libvirt.inner.registry.kinds.lock().await;
    let missing: Vec<i32> = kinds.iter().copied().filter(|kind| !registered.contains_key(kind)).collect();
    let answers = join_all(missing.iter().map(|kind| {
        let operation = format!("register for events {:?}", EventId::from(*kind));
        let libvirt = &libvirt;
        async move { libvirt.call::<rpc::ConnectDomainEventCallbackRegisterAny>(operation, &(*kind, None)).await }
    }))
    .await;
    let mut failure = None;
    for (kind, answer) in missing.into_iter().zip(answers) {
        match answer {
            Ok((callback,)) => {
                registered.insert(kind, Registration { callback, users: 0 });
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let mut lease = Lease { libvirt: libvirt.clone(), kinds: Vec::new(), callbacks: Vec::new() };
    for kind in kinds {
        if let Some(registration) = registered.get_mut(&kind) {
            registration.users += 1;
            lease.kinds.push(kind);
            lease.callbacks.push(registration.callback);
        }
    }
    drop(registered);
    // On failure the lease on what did succeed is dropped, and gives it back.
    failure.map_or(Ok(lease), Err)
}

async fn release(libvirt: &Libvirt, kinds: &[i32]) {
    let mut registered = libvirt.inner.registry.kinds.lock().await;
    let mut idle = Vec::new();
    for kind in kinds {
        if let Some(registration) = registered.get_mut(kind) {
            registration.users = registration.users.saturating_sub(1);
            if registration.users == 0 {
                idle.push((*kind, registration.callback));
            }
        }
    }
    // Under the lock until the daemon has answered: a new registration must not overtake.
    join_all(idle.iter().map(|(kind, callback)| async move {
        let operation = format!("deregister from events {:?}", EventId::from(*kind));
        let answer = libvirt.call::<rpc::ConnectDomainEventCallbackDeregisterAny>(operation, &(*callback,)).await;
        if let Err(error) = answer
            && !error.is_closed()
        {
            tracing::debug!(peer = libvirt.peer(), %error, "the daemon keeps sending events that nobody reads");
        }
    }))
    .await;
    for (kind, _) in idle {
        registered.remove(&kind);
    }
}

fn notices(messages: broadcast::Receiver<EventMessage>, callbacks: Vec<i32>) -> impl Stream<Item = Notice> + Send {
    stream::unfold((messages, callbacks), async |(mut messages, callbacks)| {
        let notice = loop {
            match messages.recv().await {
                Ok(message) => match Message::decode(message.procedure, &message.payload) {
                    Ok(decoded) if decoded.callback().is_some_and(|callback| callbacks.contains(&callback)) => {
                        break Notice::Message(decoded);
                    }
                    // Of another subscription.
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(procedure = message.procedure, %error, "event that cannot be decoded is left out");
                    }
                },
                Err(broadcast::error::RecvError::Lagged(lost)) => break Notice::Lagged(lost),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        };
        Some((notice, (messages, callbacks)))
    })
}
