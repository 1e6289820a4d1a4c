//! Telling what happens to whoever listens.

use cobalt_core::host::HostEvent;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::broadcast::{self, error::RecvError};

/// A listener that is further behind than this is told to read everything again.
const CAPACITY: usize = 256;

pub(crate) fn channel() -> broadcast::Sender<HostEvent> {
    broadcast::Sender::new(CAPACITY)
}

/// Everything from now on, until the sender is gone.
pub(crate) fn follow(receiver: broadcast::Receiver<HostEvent>) -> BoxStream<'static, HostEvent> {
    stream::unfold(receiver, |mut receiver| async move {
        match receiver.recv().await {
            Ok(event) => Some((event, receiver)),
            Err(RecvError::Lagged(_)) => Some((HostEvent::Resync, receiver)),
            Err(RecvError::Closed) => None,
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_listener_is_told_to_read_again_and_then_hears_the_latest() {
        let sender = channel();
        let events = follow(sender.subscribe());
        for number in 0..=CAPACITY {
            sender.send(HostEvent::UnitChanged(format!("{number}.service"))).expect("somebody listens");
        }
        drop(sender);
        let heard: Vec<_> = events.collect().await;
        assert_eq!(heard.first(), Some(&HostEvent::Resync));
        assert_eq!(heard.last(), Some(&HostEvent::UnitChanged(format!("{CAPACITY}.service"))));
    }
}
