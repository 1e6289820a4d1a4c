//! Events to many readers, none of which can make the process grow.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker},
};

use cobalt_core::backend::BackendEvent;
use futures::Stream;

/// The sending side. When it is dropped, all readers end after what they still hold.
#[derive(Debug)]
pub(super) struct Topic {
    capacity: usize,
    readers: Vec<Weak<Mutex<Inbox>>>,
}

#[derive(Debug)]
struct Inbox {
    items: VecDeque<BackendEvent>,
    capacity: usize,
    lost: u64,
    closed: bool,
    waker: Option<Waker>,
}

impl Inbox {
    fn push(&mut self, event: BackendEvent) {
        if self.items.len() >= self.capacity
            && let Some(oldest) = self.items.pop_front()
        {
            // A note of earlier losses that gets lost itself still counts in full.
            self.lost += if let BackendEvent::Lagged(count) = oldest { count } else { 1 };
        }
        self.items.push_back(event);
    }
}

/// The reading side.
#[derive(Debug)]
pub(super) struct Reader {
    inbox: Arc<Mutex<Inbox>>,
}

fn lock(inbox: &Mutex<Inbox>) -> MutexGuard<'_, Inbox> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Topic {
    /// A topic whose readers hold this many events each.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), readers: Vec::new() }
    }

    /// Hands the event to every reader that is still there.
    pub(super) fn publish(&mut self, event: &BackendEvent) {
        self.readers.retain(|reader| {
            let Some(inbox) = reader.upgrade() else { return false };
            let mut inbox = lock(&inbox);
            inbox.push(event.clone());
            if let Some(waker) = inbox.waker.take() {
                waker.wake();
            }
            true
        });
    }

    /// A new reader that sees what is published from now on, after `first`.
    pub(super) fn subscribe(&mut self, first: Option<BackendEvent>) -> Reader {
        let items = first.into_iter().collect();
        let inbox = Inbox { items, capacity: self.capacity, lost: 0, closed: false, waker: None };
        let inbox = Arc::new(Mutex::new(inbox));
        self.readers.retain(|reader| reader.strong_count() > 0);
        self.readers.push(Arc::downgrade(&inbox));
        Reader { inbox }
    }

    /// How many readers there are.
    pub(super) fn readers(&self) -> usize {
        self.readers.iter().filter(|reader| reader.strong_count() > 0).count()
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        for inbox in self.readers.iter().filter_map(Weak::upgrade) {
            let mut inbox = lock(&inbox);
            inbox.closed = true;
            if let Some(waker) = inbox.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Stream for Reader {
    type Item = BackendEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut inbox = lock(&self.inbox);
        if inbox.lost > 0 {
            return Poll::Ready(Some(BackendEvent::Lagged(std::mem::take(&mut inbox.lost))));
        }
        if let Some(item) = inbox.items.pop_front() {
            if inbox.items.is_empty() {
                // At rest a reader costs nothing, however much it once held.
                inbox.items = VecDeque::new();
            }
            return Poll::Ready(Some(item));
        }
        if inbox.closed {
            return Poll::Ready(None);
        }
        inbox.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures::{FutureExt, StreamExt};

    use super::*;

    fn gone(why: &str) -> BackendEvent {
        BackendEvent::Disconnected(why.into())
    }

    #[test]
    fn a_slow_reader_loses_the_oldest_and_is_told_how_many_in_all() {
        let mut topic = Topic::new(2);
        let mut reader = topic.subscribe(None);
        topic.publish(&BackendEvent::Lagged(10));
        for n in 1..=4 {
            topic.publish(&gone(&n.to_string()));
        }
        let seen: Vec<_> = std::iter::from_fn(|| reader.next().now_or_never().flatten()).collect();
        assert_eq!(seen, [BackendEvent::Lagged(12), gone("3"), gone("4")]);
    }

    #[test]
    fn a_dropped_reader_is_forgotten_and_a_dropped_topic_ends_its_readers() {
        let mut topic = Topic::new(2);
        drop(topic.subscribe(None));
        let mut stays = topic.subscribe(Some(BackendEvent::Connected));
        assert_eq!(topic.readers(), 1);
        drop(topic);
        assert_eq!(stays.next().now_or_never().unwrap(), Some(BackendEvent::Connected));
        assert_eq!(stays.next().now_or_never().unwrap(), None);
    }
}
