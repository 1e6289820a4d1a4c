//! Which of our types a frame's payload is.

use bytes::Bytes;
use cobalt_libvirt::{
    event::Message,
    frame::{Frame, MessageType, PROGRAM_REMOTE, Status},
    rpc::{self, DomainRef, Procedure},
    uuid::Uuid,
    xdr::{self, Decode, Encode, Text, XdrError},
};

/// Decodes a payload and encodes it again.
pub(crate) type Codec = fn(u32, &Bytes) -> Result<Vec<u8>, XdrError>;

fn again<T: Decode + Encode>(_: u32, payload: &Bytes) -> Result<Vec<u8>, XdrError> {
    xdr::from_bytes::<T>(payload).map(|value| xdr::to_bytes(&value))
}

fn message_again(procedure: u32, payload: &Bytes) -> Result<Vec<u8>, XdrError> {
    Message::decode(procedure, payload).map(|message| xdr::to_bytes(&message))
}

/// An error reply: code, domain, message, level, about which domain, three strings, two numbers, about which network.
type ErrorReply = (
    (i32, i32, Option<Text>),
    (i32, Option<DomainRef>, Option<Text>),
    (Option<Text>, Option<Text>, ((i32, i32), Option<(Text, Uuid)>)),
);

macro_rules! table {
    ($($name:ident)*) => {
        fn call_or_reply(procedure: u32, call: bool) -> Option<Codec> {
            match procedure {
                $(<rpc::$name as Procedure>::NUMBER => Some(if call {
                    again::<<rpc::$name as Procedure>::Arguments>
                } else {
                    again::<<rpc::$name as Procedure>::Reply>
                }),)*
                _ => None,
            }
        }

        pub(crate) const PROCEDURES: &[u32] = &[$(<rpc::$name as Procedure>::NUMBER,)*];
    };
}

table! {
    ConnectOpen ConnectClose ConnectGetType ConnectGetVersion ConnectGetLibVersion ConnectGetHostname ConnectGetUri
    ConnectSupportsFeature AuthList ConnectGetCapabilities ConnectGetDomainCapabilities NodeGetInfo
    NodeGetCellsFreeMemory NodeGetFreeMemory ConnectListAllDomains DomainLookupById DomainLookupByName
    DomainLookupByUuid DomainGetXmlDesc DomainGetInfo DomainGetState DomainIsActive DomainIsPersistent
    ConnectGetAllDomainStats DomainGetJobInfo DomainGetJobStats DomainAbortJob DomainMigratePerform3Params
    DomainMigrateSetMaxSpeed DomainMigrateGetMaxSpeed DomainMigrateSetMaxDowntime DomainMigrateGetMaxDowntime
    DomainDefineXmlFlags DomainCreate DomainCreateWithFlags DomainCreateXml DomainDestroy DomainDestroyFlags
    DomainShutdownFlags DomainSuspend DomainResume DomainReboot DomainReset DomainUndefineFlags DomainGetDiskErrors
    DomainAttachDeviceFlags DomainDetachDeviceFlags DomainSetMetadata DomainGetMetadata DomainInjectNmi
    ConnectDomainEventCallbackRegisterAny ConnectDomainEventCallbackDeregisterAny
}

/// The codec for a frame's payload, or `None` if we have no type for it.
pub(crate) fn of(frame: &Frame) -> Option<Codec> {
    let header = frame.header;
    if header.program != PROGRAM_REMOTE {
        return None;
    }
    match (header.kind, header.status) {
        (MessageType::Call, Status::Ok) => call_or_reply(header.procedure, true),
        (MessageType::Reply, Status::Ok) => call_or_reply(header.procedure, false),
        (MessageType::Reply, Status::Error) => Some(again::<ErrorReply>),
        // Procedures below are those that only carry events.
        (MessageType::Event, Status::Ok) if header.procedure >= 318 => Some(message_again),
        _ => None,
    }
}
