//! Any bytes as the arguments or the reply of any procedure: never a panic, and what reads, writes and reads the same.

#![no_main]

use cobalt_libvirt::{
    bytes::Bytes,
    rpc::{self, Procedure},
    xdr::{self, Decode, Encode},
};
use libfuzzer_sys::fuzz_target;

fn try_as<T: Decode + Encode + PartialEq + std::fmt::Debug>(payload: &Bytes) {
    if let Ok(value) = xdr::from_bytes::<T>(payload) {
        let again = Bytes::from(xdr::to_bytes(&value));
        assert_eq!(xdr::from_bytes::<T>(&again).as_ref(), Ok(&value));
    }
}

macro_rules! try_all {
    ($payload:expr, $choice:expr, $($name:ident)*) => {{
        let tries: &[fn(&Bytes)] = &[$(
            try_as::<<rpc::$name as Procedure>::Arguments>,
            try_as::<<rpc::$name as Procedure>::Reply>,
        )*];
        tries[usize::from($choice) % tries.len()]($payload);
    }};
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, payload)) = input.split_first() else { return };
    try_all!(
        &Bytes::copy_from_slice(payload), *choice,
        ConnectOpen AuthList ConnectGetCapabilities ConnectGetDomainCapabilities NodeGetInfo NodeGetCellsFreeMemory
        ConnectListAllDomains DomainLookupByUuid DomainGetXmlDesc DomainGetInfo DomainGetState DomainIsPersistent
        DomainGetJobInfo DomainMigrateSetMaxSpeed DomainDefineXmlFlags DomainCreateWithFlags DomainGetDiskErrors
        DomainAttachDeviceFlags DomainSetMetadata DomainGetMetadata ConnectDomainEventCallbackRegisterAny
    );
});
