//! Replies in pieces, and refusals.

use bytes::{Buf, Bytes};

use super::{Error, Result, wire::Reader};

pub(crate) const FLOWS: u16 = 1;
pub(crate) const TABLES: u16 = 3;
pub(crate) const PORTS: u16 = 4;
pub(crate) const GROUPS: u16 = 6;

/// How much of a refusal's words is kept.
const MAX_WORDS: usize = 200;

/// One piece of an answer.
#[derive(Debug)]
pub(crate) struct Reply {
    /// Whether another piece follows.
    pub(crate) more: bool,
    /// The entries.
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn read(operation: &str, what: u16, body: &Bytes) -> Result<Self> {
        let malformed = |detail: String| Error::Protocol { operation: operation.to_owned(), detail };
        let mut from = Reader::new(body);
        let (Some(kind), Some(flags), Some(())) = (from.u16(), from.u16(), from.skip(4)) else {
            return Err(malformed(format!("a reply of {} bytes is not whole", body.len())));
        };
        if kind != what {
            return Err(malformed(format!("asked for statistics {what} and got {kind}")));
        }
        let mut entries = body.clone();
        entries.advance(8);
        Ok(Self { more: flags & 1 == 1, body: entries })
    }
}

/// A refusal, from the body of an error message.
pub(crate) fn error(operation: &str, body: &[u8]) -> Error {
    let mut from = Reader::new(body);
    let (Some(kind), Some(code)) = (from.u16(), from.u16()) else {
        let detail = "an error that is not whole".to_owned();
        return Error::Protocol { operation: operation.to_owned(), detail };
    };
    // Only a failed greeting comes with words; the others repeat the request.
    let words = if kind == 0 { from.rest() } else { &[] };
    let words: String =
        String::from_utf8_lossy(words).chars().filter(|word| !word.is_control()).take(MAX_WORDS).collect();
    let detail = if words.is_empty() { words } else { format!(": {words}") };
    Error::Refused { operation: operation.to_owned(), kind, code, detail }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_greeting_is_told_in_the_bridges_words() {
        let error = error("greet br-int", b"\0\0\0\0we support versions 0x05 and 0x06 inclusive\n");
        let expected =
            "greet br-int: hello failed (OpenFlow error 0, code 0): we support versions 0x05 and 0x06 inclusive";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_reply_of_another_kind_is_refused() {
        let body = Bytes::from_static(&[0, 4, 0, 0, 0, 0, 0, 0]);
        assert!(Reply::read("read", TABLES, &body).is_err());
        assert!(!Reply::read("read", PORTS, &body).unwrap().more);
    }
}
