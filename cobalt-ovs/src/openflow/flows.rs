//! A dump of flows, read while it comes.

use bytes::Bytes;
use cobalt_core::ovs::Flow;
use futures::{Stream, stream};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};

use super::{Error, OpenFlow, Result, Version, multipart, stats::read_flow, wire::Reader};

/// A dump under way.
struct Dump<S> {
    bridge: OpenFlow<S>,
    operation: String,
    table: Option<u8>,
    state: State,
}

enum State {
    /// Nothing was asked yet.
    New,
    /// A piece, how much of it was read, and whether another follows it.
    Reading { xid: u32, piece: Bytes, at: usize, more: bool },
    /// Everything was read, or an error was told.
    Done,
}

impl<S: AsyncRead + AsyncWrite + Unpin> OpenFlow<S> {
    /// The flows of one table or of all, in pieces as the bridge sends them: never more than one message is held.
    ///
    /// The stream ends after the first error. It takes the connection: who stops reading has a bridge that still
    /// sends.
    pub fn flows(self, table: Option<u8>) -> impl Stream<Item = Result<Flow>> + use<S> {
        let which = table.map_or_else(String::new, |table| format!(" in table {table}"));
        let operation = format!("read the flows{which} of {}", self.peer());
        stream::unfold(Dump { bridge: self, operation, table, state: State::New }, |mut dump| async {
            let after = dump.bridge.options().timeout;
            let next = match timeout(after, dump.next()).await {
                Ok(next) => next,
                Err(_) => Some(Err(Error::Timeout { operation: dump.operation.clone(), after })),
            };
            if !matches!(next, Some(Ok(_))) {
                dump.state = State::Done;
            }
            next.map(|flow| (flow, dump))
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Dump<S> {
    async fn next(&mut self) -> Option<Result<Flow>> {
        match self.advance().await {
            Ok(flow) => flow.map(Ok),
            Err(error) => Some(Err(error)),
        }
    }

    async fn advance(&mut self) -> Result<Option<Flow>> {
        loop {
            let xid = match &mut self.state {
                State::New => self.bridge.request(&self.operation, multipart::FLOWS, &request(self.table)).await?,
                State::Reading { piece, at, .. } if *at < piece.len() => {
                    let mut from = Reader::new(&piece[*at..]);
                    let flow = read_flow(&mut from, self.bridge.version());
                    *at = piece.len() - from.rest().len();
                    let detail = "a flow is not whole".to_owned();
                    let broken = || Error::Protocol { operation: self.operation.clone(), detail };
                    return flow.ok_or_else(broken).map(Some);
                }
                State::Done | State::Reading { more: false, .. } => return Ok(None),
                State::Reading { xid, .. } => *xid,
            };
            let reply = self.bridge.reply(&self.operation, xid, multipart::FLOWS).await?;
            self.state = State::Reading { xid, piece: reply.body, at: 0, more: reply.more };
        }
    }
}

/// All flows of a table, or of all tables: any port, any group, any cookie, an empty match.
fn request(table: Option<u8>) -> [u8; 40] {
    let mut body = [0; 40];
    body[0] = table.unwrap_or(u8::MAX);
    body[4..12].fill(0xff);
    body[33] = 1;
    body[35] = 4;
    body
}

/// The flows in the body of one reply, for tests and fuzzing; ends at the first that is not whole.
#[doc(hidden)]
pub fn flows_in(body: &[u8], version: Version) -> Vec<Flow> {
    let mut from = Reader::new(body);
    std::iter::from_fn(|| (!from.is_empty()).then(|| read_flow(&mut from, version)).flatten()).collect()
}
