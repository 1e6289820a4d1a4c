//! What goes wrong, and when.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use super::answer::{Answer, Event};

/// What goes wrong with the answer to one call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The call is done, and no answer comes.
    Silent,
    /// The connection is closed instead of an answer.
    HangUp,
    /// The answer breaks off in the middle, and the connection is closed.
    Truncated,
    /// The length word announces more than any peer accepts.
    Oversized,
    /// Bytes that are no frame.
    Garbage,
    /// The answer carries the serial of a call that nobody made.
    WrongSerial,
    /// An event is sent right before the answer.
    EventFirst(Event),
    /// The answer is held back until the next call is answered, so that the two come in the wrong order.
    AfterNext,
    /// The answer takes this long; others overtake it.
    Slow(Duration),
}

/// How new connections are received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Accept {
    /// As a daemon should.
    #[default]
    Normal,
    /// Accepted, read from, and never answered: the daemon hangs.
    Silent,
    /// Accepted and closed at once.
    HangUp,
}

/// Answers and faults that come before what the model would say.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) accept: Accept,
    next: BTreeMap<u32, VecDeque<Answer>>,
    always: BTreeMap<u32, Answer>,
    lacking: BTreeSet<u32>,
    faults: BTreeMap<u32, VecDeque<Fault>>,
}

impl Plan {
    pub(super) fn next(&mut self, procedure: u32, answer: Answer) {
        self.next.entry(procedure).or_default().push_back(answer);
    }

    pub(super) fn always(&mut self, procedure: u32, answer: Answer) {
        self.always.insert(procedure, answer);
    }

    pub(super) fn lack(&mut self, procedures: &[u32]) {
        self.lacking.extend(procedures);
    }

    pub(super) fn fault(&mut self, procedure: u32, fault: Fault) {
        self.faults.entry(procedure).or_default().push_back(fault);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn take_fault(&mut self, procedure: u32) -> Option<Fault> {
        self.faults.get_mut(&procedure)?.pop_front()
    }

    /// What was scripted for this procedure, if anything.
    pub(super) fn answer(&mut self, procedure: u32) -> Option<Answer> {
        let next = self.next.get_mut(&procedure).and_then(VecDeque::pop_front);
        let lacks = || self.lacking.contains(&procedure).then(Answer::no_support);
        next.or_else(lacks).or_else(|| self.always.get(&procedure).cloned())
    }
}
