//! What a message is, without what it carries.

use std::{borrow::Cow, fmt};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A message whose contents are still JSON. The pieces share the memory of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// The other side asks for something and wants an answer.
    Request {
        /// Any JSON; the answer must carry it.
        id: Bytes,
        /// What it asks for.
        method: String,
        /// The arguments, as JSON.
        params: Bytes,
    },
    /// The other side tells something.
    Notification {
        /// What it tells.
        method: String,
        /// The arguments, as JSON.
        params: Bytes,
    },
    /// The answer to something we asked.
    Reply {
        /// The id we gave to the question, as JSON.
        id: Bytes,
        /// The result, as JSON (`null` without one), or what the other side said instead.
        answer: Result<Bytes, RpcError>,
    },
}

/// An error as the other side tells it: OVSDB sends an object, the control sockets a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RpcError {
    /// Its short name, or all there is to say.
    pub error: String,
    /// More about it.
    pub details: Option<String>,
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)?;
        self.details.as_ref().map_or(Ok(()), |details| write!(f, " ({details})"))
    }
}

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// No JSON, or no object, or a member of the wrong type.
    #[error("no JSON-RPC message")]
    Json(#[from] serde_json::Error),
    /// Neither a method nor an id.
    #[error("a message that is neither request nor reply")]
    Neither,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl Message {
    /// Reads one whole message, as the [`Framer`](super::Framer) gives it.
    pub fn parse(message: &Bytes) -> Result<Self, MessageError> {
        let envelope: Envelope<'_> = serde_json::from_slice(message)?;
        let share = |raw: Option<&RawValue>, without: &'static [u8]| match raw {
            Some(raw) => message.slice_ref(raw.get().as_bytes()),
            None => Bytes::from_static(without),
        };
        let id = envelope.id.filter(|id| id.get() != "null");
        if let Some(method) = envelope.method {
            let (method, params) = (method.into_owned(), share(envelope.params, b"[]"));
            return Ok(match id {
                Some(id) => Self::Request { id: share(Some(id), b""), method, params },
                None => Self::Notification { method, params },
            });
        }
        let Some(id) = id else { return Err(MessageError::Neither) };
        // A control socket leaves `result` out where it sends an error, OVSDB sends both.
        let answer = match envelope.error.filter(|error| error.get() != "null") {
            Some(error) => Err(RpcError::read(error.get())),
            None => Ok(share(envelope.result, b"null")),
        };
        Ok(Self::Reply { id: share(Some(id), b""), answer })
    }
}

impl RpcError {
    /// Whatever it is: an error that cannot be read is an error all the same.
    fn read(json: &str) -> Self {
        #[derive(Deserialize)]
        struct Told {
            error: Option<String>,
            details: Option<String>,
        }
        if let Ok(sentence) = serde_json::from_str::<String>(json) {
            return Self { error: sentence, details: None };
        }
        match serde_json::from_str::<Told>(json) {
            Ok(Told { error: Some(error), details }) => Self { error, details },
            Ok(Told { error: None, details: Some(details) }) => Self { error: details, details: None },
            _ => Self { error: json.chars().take(200).collect(), details: None },
        }
    }
}
