#![cfg(feature = "testing")]

use std::{path::Path, sync::Arc, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
        server::WebPkiClientVerifier,
    },
};

use super::*;
use crate::{Pki, ovsdb::Ovsdb, testing::OvsdbServer};

const LIMIT: Duration = Duration::from_secs(60);

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key, both PEM, in this directory.
fn certificate(dir: &Path, name: &str, authority: &Authority, host: &str, purpose: ExtendedKeyUsagePurpose) {
    let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    params.extended_key_usages = vec![purpose];
    let key = KeyPair::generate().unwrap();
    let signed = params.signed_by(&key, authority).unwrap();
    std::fs::write(dir.join(format!("{name}.pem")), signed.pem()).unwrap();
    std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

/// A server that asks for certificates of the authority, with one for this host.
async fn server(dir: &Path, host: &str) -> (OvsdbServer, Remote) {
    let authority = authority();
    std::fs::write(dir.join("ca.pem"), authority.pem()).unwrap();
    certificate(dir, "client", &authority, "client", ExtendedKeyUsagePurpose::ClientAuth);
    let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().unwrap();
    let signed = params.signed_by(&key, &authority).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider)).build().unwrap();
    let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![signed.der().clone()], secret)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = OvsdbServer::southbound();
    let serving = server.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                serving.serve(stream);
            }
        }
    });
    (server, Remote::Ssl { host: "127.0.0.1".into(), port })
}

fn pki(dir: &Path) -> Pki {
    Pki::new(dir.join("ca.pem"), dir.join("client.pem"), dir.join("client.key"))
}

fn options(pki: Pki) -> ConnectOptions {
    ConnectOptions::new().connect_timeout(LIMIT).call_timeout(LIMIT).pki(pki)
}

async fn databases(remote: &Remote, pki: Pki) -> Result<Vec<String>> {
    Ovsdb::connect(remote, &options(pki)).await?.list_dbs().await
}

#[tokio::test]
async fn certificates_of_both_sides_are_checked_but_for_the_name_unless_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, remote) = server(dir.path(), "somebody-else.example").await;
    assert_eq!(databases(&remote, pki(dir.path())).await.unwrap()[0], "OVN_Southbound");
    let named = Pki { verify_name: true, ..pki(dir.path()) };
    assert_eq!(databases(&remote, named).await.unwrap_err().category(), "tls");
}

#[tokio::test]
async fn the_right_name_is_good_when_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, remote) = server(dir.path(), "127.0.0.1").await;
    let named = Pki { verify_name: true, ..pki(dir.path()) };
    assert_eq!(databases(&remote, named).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_server_of_another_authority_is_not_spoken_to() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, remote) = server(dir.path(), "127.0.0.1").await;
    std::fs::write(dir.path().join("ca.pem"), authority().pem()).unwrap();
    let error = databases(&remote, pki(dir.path())).await.unwrap_err();
    assert_eq!(error.to_string(), format!("TLS handshake with {remote}"));
    assert_eq!(error.category(), "tls");
}

#[tokio::test]
async fn without_a_certificate_the_server_ends_the_conversation() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, remote) = server(dir.path(), "127.0.0.1").await;
    let nobody = Pki { identity: None, ..pki(dir.path()) };
    assert!(databases(&remote, nobody).await.is_err());
}

#[tokio::test]
async fn files_that_are_not_in_order_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, remote) = server(dir.path(), "127.0.0.1").await;
    std::fs::write(dir.path().join("client.key"), "no key").unwrap();
    let error = databases(&remote, pki(dir.path())).await.unwrap_err();
    assert_eq!(error.to_string(), format!("read our key {}", dir.path().join("client.key").display()));
    let without = Ovsdb::connect(&remote, &ConnectOptions::new()).await.unwrap_err();
    assert_eq!(without.category(), "tls");
}

#[tokio::test]
async fn an_address_nobody_listens_at_is_named() {
    let error = Ovsdb::connect(&Remote::unix("/nonexistent/db.sock"), &ConnectOptions::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "connect to unix:/nonexistent/db.sock");
    assert!(error.is_transient());
}
