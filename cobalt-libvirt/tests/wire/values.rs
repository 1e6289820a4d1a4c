//! What we read is what another decoder read: the recorder's, whose reading is beside each frame.

use cobalt_libvirt::{
    DomainRef,
    event::{Event, EventKind, Lifecycle, Message, ResumedDetail, StartedDetail, StoppedDetail, SuspendedDetail},
    frame::{MessageType, Status},
    rpc::{self, DomainState, JobKind, Procedure},
    typed::{TypedParams, Value},
    xdr,
};
use serde_json::{Value as Json, json};

use crate::recording::{self, Recorded};

fn domain_json(domain: &DomainRef) -> Json {
    json!({"name": domain.name, "uuid": {"hex": domain.uuid.simple().to_string()}, "id": domain.id.unwrap_or(-1)})
}

fn params_json(params: &TypedParams) -> Json {
    params
        .iter()
        .map(|(name, value)| {
            let (disc, arm, value) = match value {
                Value::Int(value) => (1, "i", json!(value)),
                Value::Uint(value) => (2, "ui", json!(value)),
                Value::Llong(value) => (3, "l", json!(value)),
                Value::Ullong(value) => (4, "ul", json!(value)),
                Value::Double(value) => (5, "d", json!(value)),
                Value::Boolean(value) => (6, "b", json!(i32::from(value))),
                value => (7, "s", json!(value.as_str())),
            };
            json!({"field": name, "value": {"disc": disc, "arm": arm, "value": value}})
        })
        .collect()
}

/// The OK replies to one procedure.
fn replies<P: Procedure>() -> Vec<(P::Reply, Recorded)> {
    let frames = recording::all().into_iter().filter(|recorded| {
        let header = recorded.frame.header;
        header.procedure == P::NUMBER && header.kind == MessageType::Reply && header.status == Status::Ok
    });
    frames.map(|recorded| (xdr::from_bytes(&recorded.frame.payload).unwrap(), recorded)).collect()
}

#[test]
fn bulk_statistics_have_the_recorded_values() {
    let mut params = 0;
    for ((records,), recorded) in replies::<rpc::ConnectGetAllDomainStats>() {
        let read: Json = records
            .iter()
            .map(|record| json!({"dom": domain_json(&record.domain), "params": params_json(&record.params)}))
            .collect();
        assert_eq!(read, recorded.payload["retStats"], "{}", recorded.place);
        params += records.iter().map(|record| record.params.len()).sum::<usize>();
    }
    assert!(params > 500, "{params}");
}

#[test]
fn single_lookups_in_statistics_find_what_going_through_them_finds() {
    for ((records,), recorded) in replies::<rpc::ConnectGetAllDomainStats>() {
        for record in records {
            for (name, value) in &record.params {
                assert_eq!(record.params.get(name), Some(value), "{} {name}", recorded.place);
            }
        }
    }
}

#[test]
fn job_statistics_have_the_recorded_values() {
    let mut kinds = Vec::new();
    for (job, recorded) in replies::<rpc::DomainGetJobStats>() {
        assert_eq!(json!(i32::from(job.kind)), recorded.payload["type"], "{}", recorded.place);
        assert_eq!(params_json(&job.params), recorded.payload["params"], "{}", recorded.place);
        if job.kind.is_running() {
            // A number, whatever integer type the daemon has chosen for it.
            assert!(job.params.get_u64("time_elapsed").is_some(), "{}", recorded.place);
        }
        kinds.push(job.kind);
    }
    for kind in [JobKind::None, JobKind::Unbounded, JobKind::Completed] {
        assert!(kinds.contains(&kind), "{kind:?}");
    }
}

#[test]
fn lists_have_the_recorded_domains() {
    for (reply, recorded) in replies::<rpc::ConnectListAllDomains>() {
        assert_eq!(
            reply.domains.iter().map(domain_json).collect::<Json>(),
            recorded.payload["domains"],
            "{}",
            recorded.place
        );
        assert_eq!(json!(reply.count), recorded.payload["ret"], "{}", recorded.place);
    }
}

#[test]
fn a_domain_has_the_recorded_state_memory_and_cpus() {
    for (info, recorded) in replies::<rpc::DomainGetInfo>() {
        let read = json!({
            "state": i32::from(info.state), "maxMem": info.max_memory_kib, "memory": info.memory_kib,
            "nrVirtCpu": info.vcpus, "cpuTime": info.cpu_time_ns,
        });
        assert_eq!(read, recorded.payload, "{}", recorded.place);
    }
}

#[test]
fn a_domain_paused_by_a_full_disk_is_seen_as_such() {
    let (status, _) = replies::<rpc::DomainGetState>()
        .into_iter()
        .find(|(_, recorded)| recorded.place.contains("ioerror/"))
        .expect("a state while the disk is full");
    assert_eq!(status.state, DomainState::Paused);
    assert!(status.is_paused_on_io_error());
}

#[test]
fn a_node_has_the_recorded_hardware() {
    for (node, recorded) in replies::<rpc::NodeGetInfo>() {
        assert_eq!(json!(node.model.text()), recorded.payload["model"]["chars"], "{}", recorded.place);
        assert_eq!(json!(node.memory_kib), recorded.payload["memory"], "{}", recorded.place);
        assert_eq!(json!(node.cpus), recorded.payload["cpus"], "{}", recorded.place);
    }
}

fn events(file: &str) -> Vec<(Event, Recorded)> {
    recording::frames(file)
        .into_iter()
        .map(|recorded| match Message::decode(recorded.frame.header.procedure, &recorded.frame.payload).unwrap() {
            Message::Event(event) => (event, recorded),
            other => panic!("{}: {other:?}", recorded.place),
        })
        .collect()
}

#[test]
fn events_are_about_the_recorded_domain_and_callback() {
    for file in recording::FILES.iter().filter(|file| file.ends_with("-messages.jsonl")) {
        for (event, recorded) in events(file) {
            assert_eq!(json!(event.callback), recorded.payload["callbackID"], "{}", recorded.place);
            let domain = if recorded.payload["msg"].is_null() { &recorded.payload } else { &recorded.payload["msg"] };
            assert_eq!(domain_json(&event.domain), domain["dom"], "{}", recorded.place);
            if let EventKind::Lifecycle(lifecycle) = event.kind {
                let (kind, detail) = lifecycle.numbers();
                assert_eq!(json!([kind, detail]), json!([domain["event"], domain["detail"]]), "{}", recorded.place);
                assert!(!format!("{lifecycle:?}").contains("Other"), "{}: {lifecycle:?}", recorded.place);
            }
        }
    }
}

#[test]
fn a_migration_reads_as_it_went() {
    let kinds: Vec<EventKind> =
        events("qemu-9.0-migration-messages.jsonl").into_iter().map(|(event, _)| event.kind).collect();
    for expected in [
        Lifecycle::Suspended(SuspendedDetail::Migrated),
        Lifecycle::Stopped(StoppedDetail::Migrated),
        Lifecycle::Started(StartedDetail::Migrated),
        Lifecycle::Resumed(ResumedDetail::Migrated),
    ] {
        assert!(kinds.contains(&EventKind::Lifecycle(expected)), "{expected:?}");
    }
    let completed = kinds.iter().find_map(|kind| match kind {
        EventKind::JobCompleted { params } => Some(params),
        _ => None,
    });
    let params = completed.expect("a completed job");
    assert_eq!(params.len(), 23);
    assert!(params.get_u64("downtime").is_some());
    assert!(params.get_u64("time_elapsed").is_some());
}
