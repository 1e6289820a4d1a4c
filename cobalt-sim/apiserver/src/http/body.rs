//! Bodies: what we read (bounded) and what we send (whole or streamed).

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::status::{ApiError, ApiResult};

/// The largest request the server reads: 3 MiB, as the real one.
pub(crate) const REQUEST_LIMIT: usize = 3 * 1024 * 1024;

/// Reads a request body up to the limit.
pub(crate) async fn read<B>(body: B) -> ApiResult<Bytes>
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let mut body = std::pin::pin!(body);
    let mut first: Option<Bytes> = None;
    let mut buffer = BytesMut::new();
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::bad_request(format!("reading the request body: {error}")))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        size += data.len();
        if size > REQUEST_LIMIT {
            return Err(ApiError::too_large(REQUEST_LIMIT));
        }
        // Most bodies come in one piece and need no copy.
        match &first {
            None => first = Some(data),
            Some(start) => {
                if buffer.is_empty() {
                    buffer.extend_from_slice(start);
                }
                buffer.extend_from_slice(&data);
            }
        }
    }
    Ok(if buffer.is_empty() { first.unwrap_or_default() } else { buffer.freeze() })
}

/// A stream was cut on purpose by an injected fault: the connection breaks instead of ending.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("connection cut by an injected fault")]
pub struct Cut;

/// Body of an answer.
pub struct ResponseBody(Kind);

enum Kind {
    Whole(Option<Bytes>),
    Stream(BoxStream<'static, Result<Bytes, Cut>>),
}

impl ResponseBody {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self(Kind::Whole((!bytes.is_empty()).then_some(bytes)))
    }

    /// Changes a body that is sent at once.
    pub(crate) fn map_whole(self, change: impl FnOnce(Bytes) -> Bytes) -> Self {
        match self.0 {
            Kind::Whole(bytes) => Self(Kind::Whole(bytes.map(change))),
            stream @ Kind::Stream(_) => Self(stream),
        }
    }

    pub(crate) fn stream(lines: BoxStream<'static, Result<Bytes, Cut>>) -> Self {
        Self(Kind::Stream(lines))
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match &self.0 {
            Kind::Whole(bytes) => format!("{} bytes", bytes.as_ref().map_or(0, Bytes::len)),
            Kind::Stream(_) => "stream".to_owned(),
        };
        f.debug_tuple("ResponseBody").field(&kind).finish()
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match &mut self.0 {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Kind::Stream(lines) => lines.as_mut().poll_next(context).map(|line| line.map(|line| line.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Kind::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}
