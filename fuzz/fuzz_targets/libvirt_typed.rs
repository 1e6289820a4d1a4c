//! Any bytes as something with typed parameters in it: bulk statistics, a job, a migration, an event.

#![no_main]

use cobalt_libvirt::{
    bytes::Bytes,
    event::Message,
    rpc::{self, Procedure},
    typed::TypedParams,
    xdr,
};
use libfuzzer_sys::fuzz_target;

fn look_at(params: &TypedParams) {
    assert!(params.iter().count() <= params.len());
    for (name, value) in params {
        // The first of a name is the one that is found, whatever it is.
        assert!(params.get(name).is_some());
        let _ = (value.as_u64(), value.as_i64(), value.as_f64(), value.as_bool(), value.as_str());
    }
    let again = Bytes::from(xdr::to_bytes(params));
    assert_eq!(xdr::from_bytes::<TypedParams>(&again).map(|again| again.len()), Ok(params.len()));
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, payload)) = input.split_first() else { return };
    let payload = Bytes::copy_from_slice(payload);
    match choice {
        0 => {
            if let Ok((records,)) = xdr::from_bytes::<<rpc::ConnectGetAllDomainStats as Procedure>::Reply>(&payload) {
                records.iter().for_each(|record| look_at(&record.params));
            }
        }
        1 => {
            if let Ok(job) = xdr::from_bytes::<rpc::JobStats>(&payload) {
                look_at(&job.params);
            }
        }
        2 => {
            if let Ok(migration) = xdr::from_bytes::<rpc::MigratePerformArguments>(&payload) {
                look_at(&migration.params);
            }
        }
        // The events lie between 318 and 423; 3 is the first.
        other => {
            let procedure = 315 + u32::from(*other);
            if let Ok(message) = Message::decode(procedure, &payload) {
                let again = Bytes::from(xdr::to_bytes(&message));
                assert!(Message::decode(procedure, &again).is_ok());
                assert_eq!(message.procedure(), procedure);
            }
        }
    }
});
