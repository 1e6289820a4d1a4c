//! Whom we trust.

use std::sync::Arc;

use cobalt_openstack::{Cloud, OpenStack, testing::ScriptedCloud};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

use super::{chain, quick};

/// A door with a certificate in front of a scripted cloud, and the certificate of who signed it.
async fn door(cloud: &ScriptedCloud) -> (String, String) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let root = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let server_key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&server_key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}/identity", listener.local_addr().unwrap());
    let behind = cloud.address().to_owned();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, behind) = (acceptor.clone(), behind.clone());
            tokio::spawn(async move {
                // A client that does not trust us hangs up.
                let Ok(mut outer) = acceptor.accept(stream).await else { return };
                let mut inner = TcpStream::connect(behind).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
            });
        }
    });
    (address, root)
}

#[tokio::test]
async fn only_whom_the_ca_bundle_names_is_trusted() {
    let cloud = ScriptedCloud::start().await.unwrap();
    let (address, root) = door(&cloud).await;
    let directory = tempfile::tempdir().unwrap();
    let bundle = directory.path().join("ca.pem");
    std::fs::write(&bundle, root).unwrap();
    let with = |more: &[(&str, &str)]| {
        let mut vars = cloud.environment();
        vars.push(("OS_AUTH_URL".into(), address.clone()));
        vars.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Cloud::from_vars(vars).unwrap()
    };
    let trusting = with(&[("OS_CACERT", bundle.to_str().unwrap())]);
    OpenStack::connect_with(&trusting, quick(), None).await.unwrap();
    let error = OpenStack::connect_with(&with(&[]), quick(), None).await.unwrap_err();
    assert_eq!(error.category(), "unavailable");
    assert!(chain(&error).contains("certificate"), "{}", chain(&error));
    OpenStack::connect_with(&with(&[("OS_INSECURE", "true")]), quick(), None).await.unwrap();
}

#[tokio::test]
async fn a_bundle_that_is_none_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let cloud = ScriptedCloud::start().await.unwrap();
    let empty = directory.path().join("empty.pem");
    std::fs::write(&empty, "no certificate\n").unwrap();
    for path in [empty, directory.path().join("missing.pem")] {
        let mut vars = cloud.environment();
        vars.push(("OS_CACERT".into(), path.display().to_string()));
        let error = OpenStack::connect(&Cloud::from_vars(vars).unwrap()).await.unwrap_err();
        assert_eq!(error.to_string(), format!("cannot use CA bundle {}", path.display()));
    }
}
