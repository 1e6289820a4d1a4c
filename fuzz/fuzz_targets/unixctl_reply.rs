//! Any bytes as the answer of a control socket, and its text as any of the texts that are read: never a panic.

#![no_main]

use bytes::Bytes;
use cobalt_ovs::{show, unixctl};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let text = match unixctl::read_reply(&Bytes::copy_from_slice(input)) {
        Ok(Ok(text) | Err(text)) => text,
        // What is no answer may be a text all the same.
        Err(_) => String::from_utf8_lossy(input).into_owned(),
    };
    let ports = show::ports(&text);
    let _ = (show::version(&text), show::bonds(&text), show::lacp(&text), show::datapaths(&text), show::upcalls(&text));
    let _ = (show::coverage(&text), show::memory(&text), show::connected(&text), show::bindings(&text));
    let _ = (show::fdb(&text, "br-int", &ports), show::trace(&text, &ports));
});
