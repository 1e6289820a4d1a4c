//! TLS as libvirt does it: certificates on both sides, and one byte that says ours was taken.

use std::{path::Path, sync::Arc, time::Duration};

use tokio::{io::AsyncReadExt, net::TcpStream};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem, pem::PemObject},
    },
};

use super::{Stream, attempt};
use crate::{
    connection::{ConnectOptions, Pki},
    error::{Cause, Error, Result},
    uri::LibvirtUri,
};

/// What the daemon sends, inside TLS, once it has accepted our certificate.
const ACCEPTED: u8 = 1;

pub(super) struct Connector {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Connector {
    pub(super) fn new(uri: &LibvirtUri, options: &ConnectOptions) -> Result<Self> {
        let pki = uri.pki_path().map_or_else(|| options.pki.clone(), Pki::directory);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::tls("set up TLS", error))?;
        let builder = if uri.no_verify() {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        } else {
            builder.with_root_certificates(authorities(&pki.ca)?)
        };
        let config = match identity(&pki)? {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| {
                Error::tls(format!("use {} with {}", pki.certificate.display(), pki.key.display()), error)
            })?,
            None => builder.with_no_client_auth(),
        };
        // A zone only says on which link the address is; certificates know nothing of it.
        let host = uri.host().split('%').next().unwrap_or_default().to_owned();
        let name = ServerName::try_from(host)
            .map_err(|error| Error::tls(format!("use {} as the name in a certificate", uri.host()), error))?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    pub(super) async fn handshake(
        self,
        stream: TcpStream,
        uri: &LibvirtUri,
        timeout: Duration,
    ) -> Result<Box<dyn Stream>> {
        let mut stream = attempt(timeout, self.connector.connect(self.name, stream)).await.map_err(|error| {
            let step = format!("TLS handshake with {}", uri.peer());
            // A broken certificate stays broken; a broken socket may be a daemon that restarts.
            let of_tls = error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>);
            if of_tls { Error::tls(step, error) } else { Error::connect(step, error) }
        })?;
        let refused = |cause: Option<Cause>| {
            Error::authentication(uri.peer(), "the daemon did not accept our certificate", cause)
        };
        match attempt(timeout, stream.read_u8()).await {
            Ok(ACCEPTED) => Ok(Box::new(stream)),
            Ok(_) => Err(refused(None)),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                Err(Error::connect(format!("wait for {} to accept our certificate", uri.peer()), error))
            }
            Err(error) => Err(refused(Some(error.into()))),
        }
    }
}

fn authorities(path: &Path) -> Result<RootCertStore> {
    let step = || format!("read the authority's certificate {}", path.display());
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path).map_err(|error| Error::tls(step(), error))? {
        roots.add(certificate).map_err(|error| Error::tls(step(), error))?;
    }
    if roots.is_empty() { Err(Error::tls(step(), "the file has no certificate")) } else { Ok(roots) }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Our certificate, if there is one. A certificate without its key, or the other way round, is a mistake.
fn identity(pki: &Pki) -> Result<Option<Identity>> {
    if !pki.certificate.exists() && !pki.key.exists() {
        return Ok(None);
    }
    let chain = certificates(&pki.certificate)
        .map_err(|error| Error::tls(format!("read our certificate {}", pki.certificate.display()), error))?;
    let key = PrivateKeyDer::from_pem_file(&pki.key)
        .map_err(|error| Error::tls(format!("read our key {}", pki.key.display()), error))?;
    Ok(Some((chain, key)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    CertificateDer::pem_file_iter(path)?.collect()
}

/// For `no_verify=1`: whoever answers may be the daemon, as long as he holds the key of the certificate he shows.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
