//! A watch as bytes on the wire: one JSON object per line.

use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

use super::check::{Mismatch, ensure};
use super::exchange::Exchange;

/// Longer than every `timeoutSeconds` the suite asks for.
const EVENT_LIMIT: Duration = Duration::from_secs(45);

/// A server that sends an endless line has failed.
const LONGEST_LINE: usize = 4 << 20;

pub(crate) struct RawWatch {
    what: String,
    content_type: String,
    body: Body,
    unread: Vec<u8>,
}

impl RawWatch {
    /// Opens a watch, which must be answered by 200.
    pub(crate) async fn open(exchange: Exchange<'_>) -> Result<RawWatch, Mismatch> {
        let (what, response) = exchange.open().await?;
        let (head, body) = response.into_parts();
        let content_type = head.headers.get("content-type").and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_owned();
        if head.status.as_u16() == 200 {
            return Ok(RawWatch { what, content_type, body, unread: Vec::new() });
        }
        let text = match tokio::time::timeout(EVENT_LIMIT, body.collect_bytes()).await {
            Ok(Ok(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            _ => String::new(),
        };
        Err(Mismatch::new(format!("{what}: 200"), format!("{} {text}", head.status.as_u16())))
    }

    pub(crate) fn content_type(&self) -> &str {
        &self.content_type
    }

    /// The next event, or `None` when the server ended the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, Mismatch> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                let event = serde_json::from_slice(&line).map_err(|error| {
                    let text = String::from_utf8_lossy(&line);
                    Mismatch::new(format!("{}: one JSON object per line", self.what), format!("{error}: {text}"))
                })?;
                return Ok(Some(event));
            }
            ensure(self.unread.len() < LONGEST_LINE, format!("{}: lines of bounded length", self.what), "more")?;
            let Ok(frame) = tokio::time::timeout(EVENT_LIMIT, self.body.frame()).await else {
                return Err(Mismatch::new(format!("{}: an event or the end", self.what), "silence"));
            };
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.unread.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => {
                    return Err(Mismatch::new(format!("{}: an unbroken stream", self.what), format!("{error:?}")));
                }
                None => {
                    let rest = String::from_utf8_lossy(&self.unread).into_owned();
                    ensure(rest.trim().is_empty(), format!("{}: whole lines", self.what), rest)?;
                    return Ok(None);
                }
            }
        }
    }

    /// The next event, which must be of this type; returns its object.
    pub(crate) async fn expect(&mut self, kind: &str) -> Result<Value, Mismatch> {
        match self.next().await? {
            Some(mut event) if event["type"] == kind => Ok(event["object"].take()),
            Some(event) => Err(Mismatch::new(format!("{}: an event {kind}", self.what), event)),
            None => Err(Mismatch::new(format!("{}: an event {kind}", self.what), "the end of the stream")),
        }
    }

    /// All events up to the end of the stream.
    pub(crate) async fn rest(&mut self) -> Result<Vec<Value>, Mismatch> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await? {
            events.push(event);
        }
        Ok(events)
    }
}
