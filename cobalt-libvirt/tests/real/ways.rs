//! Every way to a daemon: TCP, TLS, UNIX socket, with and without a login.

use cobalt_libvirt::{ConnectOptions, Credentials, DomainFilter, Error, Libvirt, rpc::DomainState};
use cobalt_rig::{Guest, HostOptions, Hosts, Sasl};

use crate::rig::{Rig, connect, remove, start};

#[tokio::test]
async fn every_transport_leads_to_the_same_host() {
    let Some(rig) = Rig::shared("every_transport_leads_to_the_same_host") else { return };
    let guest = Guest::new("transports").memory_mib(48);
    start(rig.host(), &guest);
    for uri in [rig.host().tcp(), rig.host().tls(), rig.host().unix()] {
        let libvirt = connect(&uri).await;
        assert_eq!(libvirt.driver_type().await.unwrap(), "QEMU", "{uri}");
        assert_eq!(libvirt.hostname().await.unwrap(), rig.host().name(), "{uri}");
        let domain = libvirt.domain_by_name("transports").await.unwrap();
        assert_eq!(domain.uuid.to_string(), guest.uuid(), "{uri}");
        assert_eq!(libvirt.domain_info(&domain).await.unwrap().max_memory_kib, 48 * 1024, "{uri}");
        assert_eq!(libvirt.domain_status(&domain).await.unwrap().state, DomainState::Running, "{uri}");
        let listed = libvirt.domains(DomainFilter::ACTIVE).await.unwrap();
        assert!(listed.contains(&domain), "{uri}: {listed:?}");
        libvirt.close().await;
        assert!(libvirt.is_closed());
    }
    remove(rig.host(), &guest);
}

#[tokio::test]
async fn versions_are_those_that_virsh_tells() {
    let Some(rig) = Rig::shared("versions_are_those_that_virsh_tells") else { return };
    let libvirt = connect(&rig.host().unix()).await;
    let told = rig.host().virsh(["version", "--daemon"]).unwrap();
    let (daemon, qemu) = (libvirt.library_version().await.unwrap(), libvirt.hypervisor_version().await.unwrap());
    assert!(told.contains(&format!("Running against daemon: {daemon}")), "{daemon} in {told}");
    assert!(told.contains(&format!("Running hypervisor: QEMU {qemu}")), "{qemu} in {told}");
    assert_eq!(
        libvirt.capabilities().await.unwrap(),
        rig.host().virsh(["capabilities"]).unwrap().trim_end_matches('\n').to_owned() + "\n"
    );
}

#[tokio::test]
async fn the_test_driver_answers_over_tcp() {
    let Some(rig) = Rig::shared("the_test_driver_answers_over_tcp") else { return };
    let libvirt = connect(&rig.host().test_driver()).await;
    assert_eq!(libvirt.driver_type().await.unwrap(), "TEST");
    let names: Vec<String> = libvirt.domains(DomainFilter::NONE).await.unwrap().into_iter().map(|d| d.name).collect();
    assert_eq!(names, ["test"]);
}

#[tokio::test]
async fn a_read_only_connection_looks_and_does_not_touch() {
    let Some(rig) = Rig::shared("a_read_only_connection_looks_and_does_not_touch") else { return };
    let guest = Guest::new("untouched");
    start(rig.host(), &guest);
    let options = ConnectOptions::new().read_only(true);
    let libvirt = Libvirt::connect_with(&rig.host().tcp().parse().unwrap(), &options).await.unwrap();
    let domain = libvirt.domain_by_name("untouched").await.unwrap();
    let refused = libvirt.destroy(&domain).await.unwrap_err();
    assert_eq!(refused.code(), Some(cobalt_libvirt::error::code::OPERATION_DENIED), "{refused}");
    assert_eq!(libvirt.domain_status(&domain).await.unwrap().state, DomainState::Running);
    remove(rig.host(), &guest);
}

#[tokio::test]
async fn certificates_are_checked_on_both_sides() {
    let Some(rig) = Rig::shared("certificates_are_checked_on_both_sides") else { return };
    let strangers = Hosts::up(1).unwrap();
    let (ours, theirs) = (rig.hosts.pki(), strangers.pki());
    let mixed = tempfile::tempdir().unwrap();
    let copy = |name: &str, from: &std::path::Path| std::fs::copy(from.join(name), mixed.path().join(name)).unwrap();
    let with = |pki: &std::path::Path| format!("qemu+tls://{}/system?pkipath={}", rig.host().address(), pki.display());
    // We do not know who signed the daemon's certificate.
    let error = Libvirt::connect(&with(theirs)).await.unwrap_err();
    assert!(matches!(error, Error::Tls { .. }), "{error:?}");
    // The daemon does not know who signed ours.
    copy("cacert.pem", ours);
    copy("clientcert.pem", theirs);
    copy("clientkey.pem", theirs);
    let error = Libvirt::connect(&with(mixed.path())).await.unwrap_err();
    assert!(!matches!(error, Error::Remote { .. }), "{error:?}");
    // The name in the certificate counts: the other host of the rig has one for itself only.
    let port = forward(rig.other()).await;
    let uri = format!("qemu+tls://localhost:{port}/system?pkipath={}", ours.display());
    let error = Libvirt::connect(&uri).await.unwrap_err();
    assert!(matches!(error, Error::Tls { .. }), "{error:?}");
    assert!(Libvirt::connect(&with(ours)).await.is_ok());
}

/// A port of this machine that leads to the TLS port of a host.
async fn forward(host: &cobalt_rig::Host) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let target = format!("{}:16514", host.address());
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let mut to = tokio::net::TcpStream::connect(&target).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut from, &mut to).await });
        }
    });
    port
}

#[tokio::test]
async fn a_login_needs_the_right_password_by_every_mechanism() {
    let name = "a_login_needs_the_right_password_by_every_mechanism";
    if !cobalt_rig::available(name) {
        return;
    }
    let login = |mechanisms: &str| {
        let (user, password) = ("agent".to_owned(), "pencil, and paper".to_owned());
        HostOptions { sasl: Some(Sasl { user, password, mechanisms: mechanisms.to_owned() }) }
    };
    let hosts = Hosts::up_with(&[login("scram-sha-256"), login("scram-sha-1"), login("plain")]).unwrap();
    for host in hosts.iter() {
        let uri = host.tls().parse().unwrap();
        let as_ = |user: &str, password: &str| ConnectOptions::new().credentials(Credentials::new(user, password));
        let libvirt = Libvirt::connect_with(&uri, &as_("agent", "pencil, and paper")).await.unwrap();
        assert_eq!(libvirt.hostname().await.unwrap(), host.name());
        for options in [as_("agent", "a guess"), as_("nobody", "pencil, and paper"), ConnectOptions::new()] {
            let error = Libvirt::connect_with(&uri, &options).await.unwrap_err();
            assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
            assert!(!format!("{error:?}").contains("guess"), "{error:?}");
        }
    }
}
