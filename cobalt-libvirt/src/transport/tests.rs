use std::{error::Error as _, path::Path, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        pki_types::{PrivateKeyDer, pem::PemObject},
        server::WebPkiClientVerifier,
    },
};

use super::*;
use crate::connection::{Connection, Pki, peer::Peer};

type Ca = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Ca {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

struct Leaf {
    pem: String,
    key: String,
    der: rcgen::Certificate,
}

fn leaf(ca: &Ca, name: &str, purpose: ExtendedKeyUsagePurpose) -> Leaf {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.extended_key_usages = vec![purpose];
    let der = params.signed_by(&key, ca).unwrap();
    Leaf { pem: der.pem(), key: key.serialize_pem(), der }
}

/// What our side has: an authority it trusts and a certificate signed by `signer`, in libvirt's `pkipath` layout.
fn client_files(trusted: &Ca, signer: &Ca) -> TempDir {
    let files = tempfile::tempdir().unwrap();
    let Leaf { pem, key, .. } = leaf(signer, "client", ExtendedKeyUsagePurpose::ClientAuth);
    std::fs::write(files.path().join("cacert.pem"), trusted.pem()).unwrap();
    std::fs::write(files.path().join("clientcert.pem"), pem).unwrap();
    std::fs::write(files.path().join("clientkey.pem"), key).unwrap();
    files
}

/// A daemon with a certificate of `ca` for `name`, which asks for client certificates of `ca`; gives its port.
async fn daemon(ca: &Ca, name: &str, verdict: Option<u8>) -> u16 {
    use tokio::io::AsyncWriteExt;
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    let Leaf { key, der, .. } = leaf(ca, name, ExtendedKeyUsagePurpose::ServerAuth);
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![der.der().clone()], PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        // A failed handshake is the client's story to tell.
        let Ok(mut stream) = TlsAcceptor::from(Arc::new(config)).accept(socket).await else { return };
        let Some(verdict) = verdict else { return };
        stream.write_all(&[verdict]).await.unwrap();
        stream.flush().await.unwrap();
        if verdict == 1 {
            let mut peer = Peer::new(stream);
            peer.welcome(false).await;
            while peer.next().await.is_some() {}
        }
    });
    port
}

async fn connect_tls(port: u16, files: &Path, extra: &str) -> Result<Connection> {
    let uri = format!("qemu+tls://localhost:{port}/system?pkipath={}{extra}", files.display());
    Connection::connect(&uri.parse().unwrap(), &ConnectOptions::new()).await
}

fn whole(error: &Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

#[tokio::test]
async fn certificates_of_one_authority_open_a_tls_connection() {
    let ca = authority();
    let files = client_files(&ca, &ca);
    let port = daemon(&ca, "localhost", Some(1)).await;
    let connection = connect_tls(port, files.path(), "").await.unwrap();
    assert_eq!(connection.peer(), format!("tls localhost:{port}"));
    // The same files by options.
    let port = daemon(&ca, "localhost", Some(1)).await;
    let uri = format!("qemu+tls://localhost:{port}/system").parse().unwrap();
    Connection::connect(&uri, &ConnectOptions::new().pki(Pki::directory(files.path()))).await.unwrap();
}

#[tokio::test]
async fn a_daemon_of_another_authority_or_name_is_not_talked_to() {
    let (ca, other) = (authority(), authority());
    let files = client_files(&other, &ca);
    let error = connect_tls(daemon(&ca, "localhost", Some(1)).await, files.path(), "").await.unwrap_err();
    assert_eq!(error.category(), "tls");
    assert!(whole(&error).contains("invalid peer certificate"), "{}", whole(&error));

    let files = client_files(&ca, &ca);
    let error = connect_tls(daemon(&ca, "node-2.example", Some(1)).await, files.path(), "").await.unwrap_err();
    assert_eq!(error.category(), "tls");
    assert!(whole(&error).contains("not valid for name"), "{}", whole(&error));
}

#[tokio::test]
async fn no_verify_takes_any_daemon() {
    let (ca, other) = (authority(), authority());
    let files = client_files(&other, &ca);
    connect_tls(daemon(&ca, "node-2.example", Some(1)).await, files.path(), "&no_verify=1").await.unwrap();
}

#[tokio::test]
async fn a_certificate_the_daemon_does_not_take_is_an_authentication_failure() {
    let (ca, other) = (authority(), authority());
    // Of the wrong authority, none at all, and refused by the daemon's own list of names.
    let wrong = client_files(&ca, &other);
    let none = client_files(&ca, &ca);
    std::fs::remove_file(none.path().join("clientcert.pem")).unwrap();
    std::fs::remove_file(none.path().join("clientkey.pem")).unwrap();
    let fine = client_files(&ca, &ca);
    for (files, verdict) in [(&wrong, Some(1)), (&none, Some(1)), (&fine, Some(0)), (&fine, None)] {
        let error = connect_tls(daemon(&ca, "localhost", verdict).await, files.path(), "").await.unwrap_err();
        assert_eq!(error.category(), "authentication", "{}", whole(&error));
        assert!(error.to_string().contains("did not accept our certificate"), "{error}");
    }
}

#[tokio::test]
async fn files_that_are_missing_or_broken_are_named() {
    let ca = authority();
    let files = client_files(&ca, &ca);
    std::fs::remove_file(files.path().join("clientkey.pem")).unwrap();
    let error = connect_tls(1, files.path(), "").await.unwrap_err();
    assert!(error.to_string().contains("read our key") && error.to_string().contains("clientkey.pem"), "{error}");
    std::fs::write(files.path().join("cacert.pem"), "nothing").unwrap();
    let error = connect_tls(1, files.path(), "").await.unwrap_err();
    assert!(error.to_string().contains("cacert.pem"), "{error}");
    let error = connect_tls(1, Path::new("/nonexistent"), "").await.unwrap_err();
    assert!(error.to_string().contains("/nonexistent/cacert.pem"), "{error}");
}

#[tokio::test]
async fn a_plain_daemon_behind_a_tls_uri_is_a_failed_handshake() {
    let ca = authority();
    let files = client_files(&ca, &ca);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { drop(listener.accept().await) });
    let error = connect_tls(port, files.path(), "").await.unwrap_err();
    assert!(error.to_string().starts_with("TLS handshake with tls localhost:"), "{error}");
    assert!(error.is_transient(), "a daemon that hangs up may be restarting");
}

#[tokio::test]
async fn a_refused_tcp_connection_names_every_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let uri = format!("qemu+tcp://{address}/system").parse().unwrap();
    let error = Connection::connect(&uri, &ConnectOptions::new()).await.unwrap_err();
    assert_eq!(error.category(), "connect");
    assert!(whole(&error).starts_with(&format!("connect to tcp {address}: {address}: ")), "{}", whole(&error));
}

#[tokio::test]
async fn modular_sockets_are_found_and_missing_ones_named() {
    let run = tempfile::tempdir().unwrap();
    let uri: LibvirtUri = "ch:///system".parse().unwrap();
    let options = ConnectOptions::new().run_dir(run.path());
    let text = whole(&Connection::connect(&uri, &options).await.unwrap_err());
    assert!(text.contains("libvirt-sock: ") && text.contains("virtchd-sock: "), "{text}");

    let listener = UnixListener::bind(run.path().join("virtchd-sock")).unwrap();
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut peer = Peer::new(stream);
        peer.welcome(false).await;
        peer
    };
    let (connection, _peer) = tokio::join!(Connection::connect(&uri, &options), server);
    assert!(connection.unwrap().peer().ends_with("/virtchd-sock"));
}
