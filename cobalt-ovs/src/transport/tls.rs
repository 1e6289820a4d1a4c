//! TLS as Open vSwitch does it: an authority of its own, and certificates on both sides.

use std::{path::Path, sync::Arc, time::Duration};

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{
        self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
        client::{
            WebPkiServerVerifier,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        },
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem, pem::PemObject},
    },
};

use super::{Stream, attempt};
use crate::{
    error::{Error, Result},
    options::ConnectOptions,
    remote::Remote,
};

pub(super) struct Connector {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Connector {
    pub(super) fn new(host: &str, remote: &Remote, options: &ConnectOptions) -> Result<Self> {
        let Some(pki) = &options.pki else {
            return Err(Error::tls(format!("connect to {remote}"), "no authority is configured for ssl: addresses"));
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let setup = |error| Error::tls("set up TLS", error);
        let verifier = WebPkiServerVerifier::builder_with_provider(authorities(&pki.ca)?.into(), Arc::clone(&provider))
            .build()
            .map_err(|error| Error::tls(format!("trust {}", pki.ca.display()), error))?;
        let verifier: Arc<dyn ServerCertVerifier> =
            if pki.verify_name { verifier } else { Arc::new(AnyName(verifier)) };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(setup)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match &pki.identity {
            Some((certificate, key)) => {
                let (chain, secret) = identity(certificate, key)?;
                builder.with_client_auth_cert(chain, secret).map_err(|error| {
                    Error::tls(format!("use {} with {}", certificate.display(), key.display()), error)
                })?
            }
            None => builder.with_no_client_auth(),
        };
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| Error::tls(format!("use {host} as the name in a certificate"), error))?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    pub(super) async fn handshake(
        self,
        stream: TcpStream,
        remote: &Remote,
        timeout: Duration,
    ) -> Result<Box<dyn Stream>> {
        let stream = attempt(timeout, self.connector.connect(self.name, stream)).await.map_err(|error| {
            let step = format!("TLS handshake with {remote}");
            // A broken certificate stays broken; a broken socket may be a server that restarts.
            let of_tls = error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>);
            if of_tls { Error::tls(step, error) } else { Error::connect(step, error) }
        })?;
        Ok(Box::new(stream))
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

fn identity(certificate: &Path, key: &Path) -> Result<Identity> {
    let chain = certificates(certificate)
        .map_err(|error| Error::tls(format!("read our certificate {}", certificate.display()), error))?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| Error::tls(format!("read our key {}", key.display()), error))?;
    Ok((chain, key))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    CertificateDer::pem_file_iter(path)?.collect()
}

/// Everything is checked but the name: the chain to the authority, the dates, the use, the signatures.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last, when all else has been found good.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
