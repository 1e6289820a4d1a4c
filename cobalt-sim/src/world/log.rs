//! What happened, in sentences: for stories, demos and golden logs.

use std::{collections::VecDeque, fmt};

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use jiff::Timestamp;

use crate::topic::{Delivery, Topic};

/// So many notes are kept, and a reader may be so far behind.
const KEPT: usize = 4096;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// When, in the world's time.
    pub at: Timestamp,
    /// What, as a sentence without a full stop.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}", self.at.strftime("%H:%M:%S"), self.text)
    }
}

#[derive(Debug, Default)]
pub(super) struct Log {
    notes: VecDeque<Note>,
    readers: Topic<Note>,
}

impl Log {
    pub(super) fn add(&mut self, note: Note) {
        tracing::debug!(at = %note.at, "{}", note.text);
        self.readers.publish(&note);
        if self.notes.len() == KEPT {
            self.notes.pop_front();
        }
        self.notes.push_back(note);
    }

    pub(super) fn all(&self) -> Vec<Note> {
        self.notes.iter().cloned().collect()
    }

    pub(super) fn follow(&mut self) -> BoxStream<'static, Note> {
        let reader = self.readers.subscribe(KEPT, []);
        reader
            .flat_map(|delivery| {
                stream::iter(match delivery {
                    Delivery::Item(note) => Some(note),
                    Delivery::Lost(_) => None,
                })
            })
            .boxed()
    }
}
