//! Events to many readers, none of which can make the world grow.
//!
//! A queue costs memory only while something is in it, so that a thousand hosts with a listener each cost nothing at
//! rest. A reader that falls behind loses the oldest events and is told how many.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker},
};

use futures::Stream;

/// What a reader finds in its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Delivery<T> {
    /// This many events were dropped because the reader was slow.
    Lost(u64),
    /// The next event.
    Item(T),
}

/// The sending side. When it is dropped, all readers end after what they still hold.
#[derive(Debug)]
pub(crate) struct Topic<T> {
    readers: Vec<Weak<Mutex<Inbox<T>>>>,
}

impl<T> Default for Topic<T> {
    fn default() -> Self {
        Self { readers: Vec::new() }
    }
}

#[derive(Debug)]
struct Inbox<T> {
    items: VecDeque<T>,
    capacity: usize,
    lost: u64,
    closed: bool,
    waker: Option<Waker>,
}

/// The reading side.
#[derive(Debug)]
pub(crate) struct Subscription<T> {
    inbox: Arc<Mutex<Inbox<T>>>,
}

fn lock<T>(inbox: &Mutex<Inbox<T>>) -> MutexGuard<'_, Inbox<T>> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Clone> Topic<T> {
    /// Hands the event to every reader that is still there.
    pub(crate) fn publish(&mut self, item: &T) {
        self.readers.retain(|reader| {
            let Some(inbox) = reader.upgrade() else { return false };
            let mut inbox = lock(&inbox);
            if inbox.items.len() == inbox.capacity {
                inbox.items.pop_front();
                inbox.lost += 1;
            }
            inbox.items.push_back(item.clone());
            if let Some(waker) = inbox.waker.take() {
                waker.wake();
            }
            true
        });
    }
}

impl<T> Topic<T> {
    /// A new reader that sees what is published from now on, after `first`.
    pub(crate) fn subscribe(&mut self, capacity: usize, first: impl IntoIterator<Item = T>) -> Subscription<T> {
        let inbox = Inbox { items: first.into_iter().collect(), capacity, lost: 0, closed: false, waker: None };
        let inbox = Arc::new(Mutex::new(inbox));
        self.readers.retain(|reader| reader.strong_count() > 0);
        self.readers.push(Arc::downgrade(&inbox));
        Subscription { inbox }
    }

    /// How many readers there are.
    pub(crate) fn readers(&self) -> usize {
        self.readers.iter().filter(|reader| reader.strong_count() > 0).count()
    }
}

impl<T> Drop for Topic<T> {
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

impl<T> Stream for Subscription<T> {
    type Item = Delivery<T>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut inbox = lock(&self.inbox);
        if inbox.lost > 0 {
            return Poll::Ready(Some(Delivery::Lost(std::mem::take(&mut inbox.lost))));
        }
        if let Some(item) = inbox.items.pop_front() {
            if inbox.items.is_empty() {
                inbox.items = VecDeque::new();
            }
            return Poll::Ready(Some(Delivery::Item(item)));
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

    #[test]
    fn a_slow_reader_loses_the_oldest_and_is_told_how_many() {
        let mut topic = Topic::default();
        let mut reader = topic.subscribe(2, []);
        for n in 1..=5 {
            topic.publish(&n);
        }
        let seen: Vec<_> = std::iter::from_fn(|| reader.next().now_or_never().flatten()).collect();
        assert_eq!(seen, [Delivery::Lost(3), Delivery::Item(4), Delivery::Item(5)]);
    }

    #[test]
    fn a_dropped_reader_is_forgotten_and_a_dropped_topic_ends_its_readers() {
        let mut topic = Topic::default();
        let gone = topic.subscribe(2, []);
        let mut stays = topic.subscribe(2, [0]);
        drop(gone);
        topic.publish(&1);
        assert_eq!(topic.readers.len(), 1);
        drop(topic);
        assert_eq!(stays.next().now_or_never().unwrap(), Some(Delivery::Item(0)));
        assert_eq!(stays.next().now_or_never().unwrap(), Some(Delivery::Item(1)));
        assert_eq!(stays.next().now_or_never().unwrap(), None);
    }
}
