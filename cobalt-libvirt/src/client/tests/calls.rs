use std::time::Duration;

use uuid::Uuid;

use super::peer::{Answer, Peer, error, ok};
use crate::{
    DomainFilter, DomainRef, Error, JobQuery, Libvirt, MigrateOptions, StatsGroups, StatsOptions, Version,
    error::code,
    rpc::{self, DomainState, DomainStatsRecord, JobKind, MigrateFlags, Procedure, ShutdownFlags, XmlFlags},
    typed::TypedParams,
    xdr::{self, Decode},
};

fn web() -> DomainRef {
    DomainRef { name: "web-1".into(), uuid: Uuid::from_u128(0x11), id: Some(4) }
}

/// A client whose every call fails, and the peer that saw them.
async fn refusing() -> (Libvirt, Peer) {
    Peer::connect(Box::new(|_, _| error(55, "not now"))).await
}

fn arguments<P: Procedure>(peer: &Peer) -> P::Arguments
where
    P::Arguments: Decode,
{
    let (procedure, payload) = peer.last();
    assert_eq!(procedure, P::NUMBER);
    xdr::from_bytes(&payload).unwrap()
}

#[tokio::test]
async fn an_error_names_the_call_the_domain_and_the_code() {
    let (libvirt, _peer) = refusing().await;
    let error = libvirt.domain_xml(&web(), XmlFlags::NONE).await.unwrap_err();
    assert_eq!(error.code(), Some(code::OPERATION_INVALID));
    assert_eq!(
        error.to_string(),
        "get XML of domain web-1 (00000000-0000-0000-0000-000000000011): not now (libvirt error 55 in domain 10)"
    );
    let error = libvirt.domain_by_name("a \"b\"").await.unwrap_err();
    assert!(error.to_string().starts_with(r#"look up domain "a \"b\"": not now"#), "{error}");
    let error = libvirt.migrate_p2p(&web(), &MigrateOptions::live("qemu+tcp://b/system")).await.unwrap_err();
    assert!(error.to_string().contains("to qemu+tcp://b/system: not now"), "{error}");
}

#[tokio::test]
async fn an_answer_that_does_not_decode_is_a_protocol_error_of_that_call() {
    let (libvirt, _peer) = Peer::connect(Box::new(|_, _| ok(&(7_u32, 7_u32)))).await;
    let error = libvirt.hostname().await.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
    assert_eq!(error.to_string(), "get host name: decode the answer: 8 more bytes expected at offset 4, 4 are left");
    assert!(!libvirt.is_closed(), "the connection is fine");
}

#[tokio::test]
async fn versions_are_read_as_libvirt_counts_them() {
    let (libvirt, _peer) = Peer::connect(Box::new(|_, _| ok(&(11_003_002_u64,)))).await;
    let version = libvirt.library_version().await.unwrap();
    assert_eq!(version, Version { major: 11, minor: 3, release: 2 });
    assert_eq!(version.to_string(), "11.3.2");
    assert!(version > Version::from(9_000_000));
}

#[tokio::test]
async fn a_list_asks_for_what_the_filter_says() {
    let reply = rpc::ListAllDomainsReply { domains: vec![web()], count: 1 };
    let (libvirt, peer) = Peer::connect(Box::new(move |_, _| ok(&reply))).await;
    let filter = DomainFilter::ACTIVE | DomainFilter::PERSISTENT;
    assert_eq!(libvirt.domains(filter).await.unwrap(), [web()]);
    let arguments = arguments::<rpc::ConnectListAllDomains>(&peer);
    assert!(arguments.need_results);
    assert_eq!(arguments.filter.bits(), 5);
}

#[tokio::test]
async fn bulk_statistics_ask_for_groups_and_options() {
    let params = TypedParams::builder().with("cpu.time", 9_u64).build();
    let reply = (vec![DomainStatsRecord { domain: web(), params }],);
    let (libvirt, peer) = Peer::connect(Box::new(move |_, _| ok(&reply))).await;
    let groups = StatsGroups::STATE | StatsGroups::BLOCK;
    let records = libvirt.domain_stats(&[], groups, StatsOptions::polling()).await.unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].params.get_u64("cpu.time"), Some(9));
    let arguments = arguments::<rpc::ConnectGetAllDomainStats>(&peer);
    assert_eq!(arguments.groups.bits(), 0b10_0001);
    assert_eq!(arguments.flags, (1 << 29) | 1, "running domains, no waiting");
    assert!(arguments.domains.is_empty());
}

#[tokio::test]
async fn a_migration_says_peer_to_peer_and_what_was_asked_for() {
    let (libvirt, peer) = Peer::connect(Box::new(|_, _| ok(&(xdr::Opaque::default(),)))).await;
    let options = MigrateOptions {
        persist: true,
        undefine_source: true,
        auto_converge: true,
        unsafe_: true,
        bandwidth: Some(60),
        destination_name: Some("mig1".into()),
        ..MigrateOptions::live("qemu+tcp://10.78.0.12/system")
    };
    libvirt.migrate_p2p(&web(), &options).await.unwrap();
    let arguments = arguments::<rpc::DomainMigratePerform3Params>(&peer);
    // The word that a recorded, successful migration of the same kind has.
    assert_eq!(arguments.flags, MigrateFlags::from_bits(8731));
    assert_eq!(arguments.destination.as_deref(), Some("qemu+tcp://10.78.0.12/system"));
    assert_eq!(
        arguments.params,
        TypedParams::builder().with("bandwidth", 60_u64).with("destination_name", "mig1").build()
    );
}

#[tokio::test(start_paused = true)]
async fn a_migration_outlives_the_ordinary_timeout_and_ends_by_its_own() {
    let (libvirt, _peer) = Peer::connect(Box::new(|_, _| Answer::Silence)).await;
    let started = tokio::time::Instant::now();
    let options = MigrateOptions { timeout: Duration::from_secs(3600), ..MigrateOptions::live("qemu+tcp://b/system") };
    let error = libvirt.migrate_p2p(&web(), &options).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert_eq!(started.elapsed().as_secs(), 3600);
}

#[tokio::test(start_paused = true)]
async fn a_change_waits_longer_than_the_daemon_waits_for_a_busy_domain() {
    let (libvirt, _peer) = Peer::connect(Box::new(|_, _| Answer::Silence)).await;
    let started = tokio::time::Instant::now();
    assert!(matches!(libvirt.suspend(&web()).await, Err(Error::Timeout { .. })));
    assert_eq!(started.elapsed().as_secs(), 60);
}

#[tokio::test]
async fn which_job_is_asked_about_is_a_flag() {
    let reply = rpc::JobStats { kind: JobKind::None, params: TypedParams::default() };
    let (libvirt, peer) = Peer::connect(Box::new(move |_, _| ok(&reply))).await;
    for (query, flags) in [(JobQuery::Running, 0), (JobQuery::Completed, 1), (JobQuery::CompletedKeep, 3)] {
        assert_eq!(libvirt.job_stats(&web(), query).await.unwrap().kind, JobKind::None);
        assert_eq!(arguments::<rpc::DomainGetJobStats>(&peer), (web(), flags));
    }
}

#[tokio::test]
async fn every_power_call_reaches_its_procedure() {
    let (libvirt, peer) = Peer::connect(Box::new(|_, _| ok(&()))).await;
    let domain = web();
    libvirt.suspend(&domain).await.unwrap();
    libvirt.resume(&domain).await.unwrap();
    libvirt.reboot(&domain, ShutdownFlags::NONE).await.unwrap();
    libvirt.reset(&domain).await.unwrap();
    libvirt.shutdown(&domain, ShutdownFlags::ACPI).await.unwrap();
    libvirt.destroy(&domain).await.unwrap();
    libvirt.inject_nmi(&domain).await.unwrap();
    libvirt.abort_job(&domain).await.unwrap();
    let called: Vec<u32> = peer.calls.lock().unwrap().iter().map(|(procedure, _)| *procedure).collect();
    assert_eq!(called, [34, 28, 27, 245, 258, 12, 210, 164]);
    for (procedure, payload) in peer.calls.lock().unwrap().iter() {
        assert_eq!(xdr::from_bytes::<DomainRef>(payload).unwrap(), domain, "{procedure}");
    }
}

#[tokio::test]
async fn an_unknown_state_is_a_number_not_an_error() {
    let (libvirt, _peer) = Peer::connect(Box::new(|_, _| ok(&(42, 1)))).await;
    let status = libvirt.domain_status(&web()).await.unwrap();
    assert_eq!(status.state, DomainState::Other(42));
    assert!(!status.is_paused_on_io_error());
}

#[tokio::test]
async fn a_closed_connection_says_so_to_everybody() {
    let (libvirt, _peer) = refusing().await;
    let other = libvirt.clone();
    libvirt.close().await;
    assert_eq!(other.closed().await.category(), "requested");
    assert!(other.hostname().await.unwrap_err().is_closed());
    assert_eq!(format!("{other:?}"), r#"Libvirt { peer: "the peer", closed: true }"#);
}
