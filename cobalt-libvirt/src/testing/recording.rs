//! Recorded conversations with real daemons.

use bytes::Bytes;
use serde_json::Value;

use super::{
    answer::{Answer, Event},
    wire::{Reader, parse_hex},
};
use crate::frame::{Frame, Status, decode};

/// A file that is no recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// A line is not JSON.
    #[error("read line {line} of a recording")]
    Json {
        /// Counted from one.
        line: usize,
        /// What was wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A frame is no frame.
    #[error("read line {line} of a recording: no frame in {field}")]
    Frame {
        /// Counted from one.
        line: usize,
        /// Which field should have held it.
        field: &'static str,
    },
}

/// Calls with their replies, and event messages, as a real daemon sent them.
///
/// The format is one JSON object per line: `{"kind": "call", "id", "procedure", "request": {"hex"}, "response":
/// {"hex"}}` or `{"kind": "message", "scenario", "frame": {"hex"}}`, where `hex` is the whole frame. Other fields and
/// other kinds of line are passed over.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    calls: Vec<RecordedCall>,
    messages: Vec<RecordedMessage>,
}

/// A call and its reply.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RecordedCall {
    /// Its name in the recording.
    pub id: String,
    /// Which procedure was called.
    pub procedure: u32,
    /// The arguments.
    pub arguments: Bytes,
    /// The answer.
    pub answer: Answer,
}

/// An event message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RecordedMessage {
    /// What was going on.
    pub scenario: String,
    /// The message.
    pub frame: Frame,
}

fn frame(value: &Value, line: usize, field: &'static str) -> Result<Frame, RecordingError> {
    let bytes = value.get("hex").and_then(Value::as_str).and_then(parse_hex);
    let decoded = bytes.and_then(|bytes| decode(&mut bytes.as_slice().into(), usize::MAX).ok().flatten());
    decoded.ok_or(RecordingError::Frame { line, field })
}

impl Recording {
    /// Reads a recording.
    pub fn parse(lines: &str) -> Result<Self, RecordingError> {
        let mut recording = Self::default();
        for (at, text) in lines.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
            let line = at + 1;
            let value: Value = serde_json::from_str(text).map_err(|source| RecordingError::Json { line, source })?;
            let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            match value.get("kind").and_then(Value::as_str) {
                Some("call") if value.get("response").is_some_and(|response| !response.is_null()) => {
                    let request = frame(&value["request"], line, "request")?;
                    let response = frame(&value["response"], line, "response")?;
                    recording.calls.push(RecordedCall {
                        id: text("id"),
                        procedure: request.header.procedure,
                        arguments: request.payload,
                        answer: Answer { status: response.header.status, payload: response.payload },
                    });
                }
                Some("message") => {
                    let frame = frame(&value["frame"], line, "frame")?;
                    recording.messages.push(RecordedMessage { scenario: text("scenario"), frame });
                }
                _ => {}
            }
        }
        Ok(recording)
    }

    /// This recording and another, as one.
    pub fn and(mut self, other: Self) -> Self {
        self.calls.extend(other.calls);
        self.messages.extend(other.messages);
        self
    }

    /// All calls, in order.
    pub fn calls(&self) -> &[RecordedCall] {
        &self.calls
    }

    /// All event messages, in order.
    pub fn messages(&self) -> &[RecordedMessage] {
        &self.messages
    }

    /// The answer to the call with this name.
    pub fn answer(&self, id: &str) -> Option<Answer> {
        self.calls.iter().find(|call| call.id == id).map(|call| call.answer.clone())
    }

    /// The answer to this procedure with exactly these arguments: the first success, else the first failure.
    pub fn find(&self, procedure: u32, arguments: &[u8]) -> Option<Answer> {
        let asked = || self.calls.iter().filter(|call| call.procedure == procedure && call.arguments == arguments);
        let success = asked().find(|call| call.answer.status == Status::Ok);
        success.or_else(|| asked().next()).map(|call| call.answer.clone())
    }

    /// The first success of this procedure, whatever it was asked.
    pub fn any(&self, procedure: u32) -> Option<Answer> {
        let mut found = self.calls.iter().filter(|call| call.procedure == procedure);
        found.find(|call| call.answer.status == Status::Ok).map(|call| call.answer.clone())
    }

    /// What the driver answers to a procedure that it lacks; `None` if it has it or was never asked.
    pub fn lacking(&self, procedure: u32) -> Option<Answer> {
        let mut answers = self.calls.iter().filter(|call| call.procedure == procedure).map(|call| &call.answer);
        let first = answers.next().filter(|answer| answer.code() == Some(3))?;
        answers.all(|answer| answer.code() == Some(3)).then(|| first.clone())
    }

    /// The string that the answer to the call with this name begins with.
    pub(super) fn text(&self, id: &str) -> Option<String> {
        Reader::new(&self.answer(id)?.payload).string()
    }
}

impl RecordedMessage {
    /// The event in the message, without the callback number it was sent to.
    pub fn event(&self) -> Option<Event> {
        // Registration numbers by procedure; what is missing here has no place in a model.
        let kind = match self.frame.header.procedure {
            318 => 0,
            319 => 1,
            321 => 3,
            324 => 6,
            325 => 7,
            333 => 15,
            348 => 18,
            359 => 20,
            363 => 21,
            423 => 25,
            _ => return None,
        };
        let mut reader = Reader::new(&self.frame.payload);
        reader.i32()?;
        let domain = reader.domain()?;
        let used = 4 + 4 + domain.name.len().next_multiple_of(4) + 16 + 4;
        let body = self.frame.payload.get(used..)?.to_vec().into();
        Some(Event { kind, procedure: self.frame.header.procedure, domain, body })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_frame_is_named() {
        let error = Recording::parse("\n{\"kind\":\"call\",\"request\":{\"hex\":\"00\"},\"response\":{}}").unwrap_err();
        assert_eq!(error.to_string(), "read line 2 of a recording: no frame in request");
        assert!(Recording::parse("{").is_err());
    }
}
