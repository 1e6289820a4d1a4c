//! The certificate of the endpoints: from a Secret, followed and reloaded; or one of their own making.
//!
//! A certificate of our own comes from an authority that signs it and is forgotten: its key is gone before the first
//! request, so nobody can sign anything else with it. Both are made anew long before they end.

use std::{
    fmt,
    net::IpAddr,
    sync::{Arc, RwLock},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, runtime::watcher};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::{
    ServerConfig,
    crypto::ring::{default_provider, sign::any_supported_type},
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::{
    agent::certificate::bundle::Bundle,
    runtime::{
        clock::Clock,
        metrics::Metrics,
        shutdown::{Chain, Shutdown, TaskError},
        state::Status,
        watch::{ObjectKey, watched_store},
    },
};

/// How long a certificate of our own is valid, and when it is made anew.
const VALID: Duration = Duration::from_secs(365 * 24 * 3600);
const RENEW: Duration = Duration::from_secs(240 * 24 * 3600);
/// Clocks differ.
const BEFORE: Duration = Duration::from_secs(3600);
/// A Secret that is not good yet (its certificate is valid later) is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Where the certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsSource {
    /// The fields `tls.crt`, `tls.key` and `ca.crt` of a Secret.
    Secret(ObjectKey),
    /// Made at the start, for these names and addresses.
    SelfSigned(Vec<String>),
}

/// The certificate in use, and who vouches for it.
#[derive(Clone)]
pub(super) struct Certificates {
    current: Arc<Resolver>,
    authority: watch::Sender<Option<String>>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Resolver(RwLock<Option<Arc<CertifiedKey>>>);

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

/// Why there is no certificate. The texts name fields, never what is in them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// One could not be made.
    #[error("make a certificate for the troubleshooting endpoints")]
    Make(#[source] rcgen::Error),
    /// A PEM text is none.
    #[error("read the certificate of the troubleshooting endpoints")]
    Pem(#[source] pem::Error),
    /// A certificate or key is of no use.
    #[error("use the certificate of the troubleshooting endpoints")]
    Use(#[source] rustls::Error),
}

impl Certificates {
    pub(super) fn new() -> Self {
        Self { current: Arc::default(), authority: watch::Sender::new(None) }
    }

    /// Who vouches for the certificate, as PEM; none while there is no certificate.
    pub(super) fn authority(&self) -> watch::Receiver<Option<String>> {
        self.authority.subscribe()
    }

    /// What connections are made with. HTTP/1.1 only.
    pub(super) fn server_config(&self) -> Result<ServerConfig, TlsError> {
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Use)?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(self.current.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    fn install(&self, certificate: &[u8], key: &[u8], authority: String) -> Result<(), TlsError> {
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(certificate).collect::<Result<_, _>>().map_err(TlsError::Pem)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(TlsError::Pem)?;
        let key = any_supported_type(&key).map_err(TlsError::Use)?;
        let new = Arc::new(CertifiedKey::new(chain, key));
        *self.current.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(new);
        self.authority.send_if_modified(|old| {
            let differs = old.as_ref() != Some(&authority);
            *old = Some(authority);
            differs
        });
        Ok(())
    }

    /// Keeps the certificate current until `stop`.
    pub(super) async fn run(
        self,
        source: TlsSource,
        client: Client,
        clock: Clock,
        metrics: Arc<Metrics>,
        stop: Shutdown,
    ) -> Result<(), TaskError> {
        match source {
            TlsSource::SelfSigned(names) => loop {
                let made = make(&names, clock.now())?;
                self.install(made.certificate.as_bytes(), made.key.as_bytes(), made.authority)?;
                tokio::select! {
                    () = stop.triggered() => return Ok(()),
                    () = tokio::time::sleep(RENEW) => {}
                }
            },
            TlsSource::Secret(key) => self.follow(key, client, clock, metrics, stop).await,
        }
    }

    async fn follow(
        self,
        key: ObjectKey,
        client: Client,
        clock: Clock,
        metrics: Arc<Metrics>,
        stop: Shutdown,
    ) -> Result<(), TaskError> {
        let (touch, mut changes) = watch::channel(());
        let namespace = key.namespace.as_deref().unwrap_or("default");
        let config = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
        let (secrets, watch) = watched_store::<Secret>("Secret", Api::namespaced(client, namespace), config, metrics)
            .clock(clock.clone())
            .on_touch(move |_| touch.send_replace(()))
            .build(&Status::new(clock.clone()));
        let load = async {
            if !secrets.ready().await {
                return;
            }
            loop {
                changes.mark_unchanged();
                let good = match secrets.get(&key) {
                    None => {
                        tracing::warn!(secret = %key, "there is no Secret with the endpoints' certificate");
                        true // the watch tells
                    }
                    Some(secret) => self.load(&key, &secret, clock.now()),
                };
                let again = async {
                    if good {
                        std::future::pending::<()>().await;
                    }
                    tokio::time::sleep(LOOK_AGAIN).await;
                };
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return },
                    () = again => {}
                }
            }
        };
        tokio::select! {
            ended = watch.run(stop) => ended.map_err(Into::into),
            () = load => Ok(()),
        }
    }

    /// Takes the certificate of a Secret into use. A bad one leaves the last good one in place.
    fn load(&self, key: &ObjectKey, secret: &Secret, now: Timestamp) -> bool {
        let loaded = Bundle::of(secret, now).map_err(TaskError::from).and_then(|bundle| {
            self.install(&bundle.certificate, &bundle.key, String::from_utf8_lossy(&bundle.ca).into_owned())?;
            tracing::info!(secret = %key, version = bundle.version, "the endpoints' certificate is loaded");
            Ok(())
        });
        if let Err(error) = &loaded {
            tracing::error!(secret = %key, error = %Chain(error.as_ref()), "the endpoints' certificate is of no use");
        }
        loaded.is_ok()
    }
}

struct Made {
    certificate: String,
    key: String,
    authority: String,
}

fn make(names: &[String], now: Timestamp) -> Result<Made, TlsError> {
    let at = |moment: Timestamp| {
        // Neither end of jiff's range is outside of time's.
        OffsetDateTime::from_unix_timestamp(moment.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    };
    let from = at(now.saturating_sub(BEFORE).unwrap_or(now));
    let until = at(now.saturating_add(VALID).unwrap_or(Timestamp::MAX));
    let mut authority = CertificateParams::new(Vec::new()).map_err(TlsError::Make)?;
    (authority.not_before, authority.not_after) = (from, until);
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let title = names.first().map_or("ovs-agent", String::as_str);
    authority.distinguished_name.push(DnType::CommonName, format!("ovs-agent of {title}"));
    let signing = KeyPair::generate().map_err(TlsError::Make)?;
    let vouches = authority.self_signed(&signing).map_err(TlsError::Make)?.pem();
    let mut leaf = CertificateParams::new(Vec::new()).map_err(TlsError::Make)?;
    (leaf.not_before, leaf.not_after) = (from, until);
    leaf.distinguished_name.push(DnType::CommonName, title);
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    for name in names {
        let name = match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(name.as_str().try_into().map_err(TlsError::Make)?),
        };
        leaf.subject_alt_names.push(name);
    }
    let key = KeyPair::generate().map_err(TlsError::Make)?;
    let certificate = leaf.signed_by(&key, &Issuer::new(authority, signing)).map_err(TlsError::Make)?.pem();
    Ok(Made { certificate, key: key.serialize_pem(), authority: vouches })
}
