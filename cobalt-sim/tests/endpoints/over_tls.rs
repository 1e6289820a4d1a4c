//! The whole server on a socket.

use std::sync::Arc;

use cobalt_core::{
    agent::ovs::endpoints::{Endpoints, Published, TlsSource},
    runtime::watch::ObjectKey,
};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::rig::{Endless, LONG, NAMESPACE, Rig};

struct Served {
    published: Published,
    running: tokio::task::JoinHandle<()>,
}

async fn serve(rig: &Rig, endpoints: Endpoints) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let published = endpoints.published();
    let serving = endpoints.serve(listener, [127, 0, 0, 1].into(), rig.stop.clone());
    let running = tokio::spawn(async move { serving.await.unwrap() });
    Served { published, running }
}

impl Served {
    /// Waits until the certificate is one that was not seen before.
    async fn authority(&mut self, before: Option<&str>) -> String {
        let told = async {
            loop {
                if let Some(bundle) = self.published.get().and_then(|told| told.ca_bundle)
                    && before != Some(bundle.as_str())
                {
                    return bundle;
                }
                self.published.changed().await;
            }
        };
        timeout(LONG, told).await.unwrap()
    }

    fn address(&self) -> String {
        let told = self.published.get().unwrap();
        told.url.strip_prefix("https://").unwrap().to_owned()
    }

    async fn connect(&self, authority: &str, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_from("127.0.0.1", authority, name).await
    }

    /// From another address of the loopback.
    async fn connect_from(&self, from: &str, authority: &str, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots.add(root.unwrap()).unwrap();
        }
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        let stream = socket.connect(self.address().parse().unwrap()).await.unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config.with_no_client_auth())).connect(name, stream).await
    }

    async fn request(&self, authority: &str, name: &str, method: &str, path: &str, body: &Value) -> Response<Incoming> {
        let stream = self.connect(authority, name).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header("host", name);
        let request = request.header("authorization", "Bearer alices-token");
        let request = request.body(Full::new(Bytes::from(serde_json::to_vec(body).unwrap()))).unwrap();
        timeout(LONG, sender.send_request(request)).await.unwrap().unwrap()
    }
}

#[tokio::test]
async fn it_serves_with_a_certificate_of_its_own_that_it_publishes() {
    let rig = Rig::new().await;
    let host = rig.host.to_string();
    let source = TlsSource::SelfSigned(vec![host.clone(), "127.0.0.1".into()]);
    let mut served = serve(&rig, rig.endpoints(rig.switch()).tls(source)).await;
    let authority = served.authority(None).await;
    assert_eq!(served.published.get().unwrap().server_name.as_deref(), Some(host.as_str()));
    for name in [host.as_str(), "127.0.0.1"] {
        let answer = served.request(&authority, name, "GET", "/v1/doctor", &Value::Null).await;
        assert_eq!(answer.status(), StatusCode::OK, "{name}");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&body).contains("nothing is wrong"), "{body:?}");
    }
    assert!(served.connect(&authority, "somebody-else").await.is_err(), "the name is checked");
    let other = certificate("other").0;
    assert!(served.connect(&other, &host).await.is_err(), "the authority is checked");
    rig.stop.trigger();
    timeout(LONG, served.running).await.unwrap().unwrap();
}

#[tokio::test]
async fn plain_text_and_endless_heads_get_nowhere() {
    let rig = Rig::new().await;
    let mut served = serve(&rig, rig.endpoints(rig.switch())).await;
    let authority = served.authority(None).await;
    let mut plain = TcpStream::connect(served.address()).await.unwrap();
    plain.write_all(b"GET /v1/doctor HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(LONG, plain.read_to_end(&mut answer)).await.unwrap();
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1 200"), "{answer:?}");

    let mut stream = served.connect(&authority, rig.host.as_str()).await.unwrap();
    let head = format!("GET /v1/doctor HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "a".repeat(1 << 20));
    // The server may hang up in the middle of it.
    let _ = stream.write_all(head.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = timeout(LONG, stream.read_to_end(&mut answer)).await.unwrap();
    let text = String::from_utf8_lossy(&answer);
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 431"), "{text}");
    rig.stop.trigger();
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_its_capture() {
    let rig = Rig::new().await;
    let (switch, tap) = (Endless::new(rig.switch()), rig.taps().await.remove(0).0);
    let mut served = serve(&rig, rig.endpoints(switch.clone())).await;
    let authority = served.authority(None).await;
    let question = json!({"port": tap, "seconds": 300});
    let answer = served.request(&authority, rig.host.as_str(), "POST", "/v1/capture", &question).await;
    let mut body = answer.into_body();
    assert!(timeout(LONG, body.frame()).await.unwrap().unwrap().is_ok());
    switch.running(1).await;
    drop(body);
    switch.running(0).await;
    rig.stop.trigger();
}

/// An authority, a certificate of it for this name, and its key.
fn certificate(name: &str) -> (String, String, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let mut leaf = CertificateParams::new(vec![name.to_owned()]).unwrap();
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = leaf.signed_by(&key, &issuer).unwrap().pem();
    (authority, certificate, key.serialize_pem())
}

async fn store(rig: &Rig, (authority, certificate, key): &(String, String, String)) {
    let secrets: Api<Secret> = Api::namespaced(rig.admin.clone(), NAMESPACE);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "endpoints-tls"},
        "stringData": {"ca.crt": authority, "tls.crt": certificate, "tls.key": key},
    });
    let params = PatchParams::apply("test").force();
    secrets.patch("endpoints-tls", &params, &Patch::Apply(&secret)).await.unwrap();
}

#[tokio::test]
async fn whoever_holds_many_connections_is_hung_up_on_and_others_are_served() {
    let rig = Rig::new().await.limits(|limits| {
        limits.connections.open_per_peer = 2;
        limits.guard.peer_burst = 1;
        limits.guard.peer_refill = LONG;
    });
    let mut served = serve(&rig, rig.endpoints(rig.switch())).await;
    let (authority, name) = (served.authority(None).await, rig.host.to_string());
    let held = [
        served.connect_from("127.0.0.2", &authority, &name).await.unwrap(),
        served.connect_from("127.0.0.2", &authority, &name).await.unwrap(),
    ];
    let third = timeout(LONG, served.connect_from("127.0.0.2", &authority, &name)).await.unwrap();
    assert!(third.is_err(), "a third from the same address");
    let answer = served.request(&authority, &name, "GET", "/v1/bonds", &Value::Null).await;
    assert_eq!(answer.status(), StatusCode::OK, "from another address");
    drop(held);
    let again = async {
        while served.connect_from("127.0.0.2", &authority, &name).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, again).await.expect("a place that is free again");
    // The address also reaches those who check tokens: each has its own share of the unknown ones.
    for (from, codes) in [("127.0.0.3", [401, 429]), ("127.0.0.4", [401, 429])] {
        for (number, code) in codes.into_iter().enumerate() {
            let mut stream = served.connect_from(from, &authority, &name).await.unwrap();
            let request =
                format!("GET /v1/bonds HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer guess-{from}-{number}\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            // It need not say goodbye by the rules of TLS.
            let _ = timeout(LONG, stream.read_to_string(&mut answer)).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{from}: {answer}");
        }
    }
}

#[tokio::test]
async fn a_certificate_in_a_secret_is_followed() {
    let rig = Rig::new().await;
    let name = "agents.example";
    let source = TlsSource::Secret(ObjectKey::namespaced(NAMESPACE, "endpoints-tls"));
    let endpoints = rig.endpoints(rig.switch()).tls(source).server_name(name);
    let mut served = serve(&rig, endpoints).await;
    assert_eq!(served.published.get(), None, "nothing is published without a certificate");

    let first = certificate(name);
    store(&rig, &first).await;
    let authority = served.authority(None).await;
    assert_eq!(authority, first.0);
    let answer = served.request(&authority, name, "GET", "/v1/bonds", &Value::Null).await;
    assert_eq!(answer.status(), StatusCode::OK);

    let second = certificate(name);
    store(&rig, &second).await;
    let renewed = served.authority(Some(&authority)).await;
    assert_eq!(renewed, second.0);
    let answer = served.request(&renewed, name, "GET", "/v1/bonds", &Value::Null).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(served.connect(&authority, name).await.is_err(), "the old one is no longer served");

    // A Secret that is of no use leaves the last good certificate in place; a good one after it shows that it was read.
    let third = certificate(name);
    store(&rig, &(third.0.clone(), second.1.clone(), "no key".into())).await;
    let answer = served.request(&renewed, name, "GET", "/v1/bonds", &Value::Null).await;
    assert_eq!(answer.status(), StatusCode::OK);
    store(&rig, &third).await;
    assert_eq!(served.authority(Some(&renewed)).await, third.0);
    rig.stop.trigger();
    timeout(LONG, served.running).await.unwrap().unwrap();
}
