use bytes::Bytes;

use crate::{
    error::{Error, Operation},
    xdr::{self, Reader},
};

/// An error reply: the code, the part of libvirt, and a text that need not be UTF-8. What follows (level, objects,
/// templates) helps nobody and differs between versions.
pub(super) fn decode(operation: Operation, payload: &Bytes) -> Error {
    match fields(payload) {
        Ok((code, domain, message)) => Error::Remote { operation, code, domain, message },
        Err(error) => Error::protocol(operation, format!("an error reply that does not decode: {error}")),
    }
}

fn fields(payload: &[u8]) -> xdr::Result<(u32, u32, String)> {
    let mut reader = Reader::new(payload);
    let (code, domain) = (reader.u32()?, reader.u32()?);
    let message = if reader.bool()? { reader.string()? } else { "no message".into() };
    Ok((code, domain, message))
}
