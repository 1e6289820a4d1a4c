//! One exchange over HTTP: bounded, without redirects, with our own trust.

use std::{path::Path, sync::Arc};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use reqwest::redirect::Policy;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

use super::{Answer, Failed, retry};
use crate::{
    cloud::Cloud,
    decode,
    error::{ConnectionError, Error, HttpError, Result},
    options::Options,
};

pub(super) fn client(cloud: &Cloud, options: &Options) -> Result<reqwest::Client> {
    let builder = reqwest::Client::builder()
        .user_agent(options.user_agent.clone())
        .connect_timeout(options.connect_timeout)
        .pool_max_idle_per_host(options.concurrency.max(1))
        // A redirect would carry the token to wherever it points.
        .redirect(Policy::none())
        .tls_backend_preconfigured(tls(cloud)?);
    builder.build().map_err(|cause| Error::Configuration {
        detail: "no HTTP client can be made of it".into(),
        cause: Some(Box::new(cause)),
    })
}

fn tls(cloud: &Cloud) -> Result<ClientConfig> {
    // Named here and not installed for the process, which may have another one.
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|cause| Error::Configuration {
        detail: "TLS is not available".into(),
        cause: Some(Box::new(cause)),
    })?;
    if cloud.insecure {
        let verifier = Arc::new(Trusting(provider));
        return Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth());
    }
    let mut roots = RootCertStore::empty();
    match &cloud.ca {
        Some(path) => trust_file(&mut roots, path)?,
        // A machine without certificates can still speak plain HTTP to its own cloud.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn trust_file(roots: &mut RootCertStore, path: &Path) -> Result<()> {
    let wrong = |cause| Error::CaBundle { path: path.display().to_string(), cause };
    let certificates = CertificateDer::pem_file_iter(path).map_err(|cause| wrong(Some(cause.to_string().into())))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|cause| wrong(Some(cause.to_string().into())))?;
        roots.add(certificate).map_err(|cause| wrong(Some(Box::new(cause))))?;
    }
    if roots.is_empty() { Err(wrong(Some("it holds no certificate".into()))) } else { Ok(()) }
}

/// One request and its answer. Dropping the future closes the connection.
pub(super) async fn exchange(
    client: &reqwest::Client,
    request: reqwest::Request,
    max_body: usize,
) -> Result<(Answer, HeaderMap), Failed> {
    let sent = client.execute(request).await;
    let response = sent.map_err(|error| {
        let not_sent = error.is_connect() || error.is_builder();
        let error = ConnectionError::new(error);
        if not_sent { Failed::NotSent(error) } else { Failed::Broken(error) }
    })?;
    let (status, headers) = (response.status(), response.headers().clone());
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let request_id = text("x-openstack-request-id").or_else(|| text("x-compute-request-id")).map(decode::shortened);
    let answer = |body| Answer { status, request_id: request_id.clone(), body };
    let body = match read(response, max_body).await? {
        Ok(body) => body,
        Err(detail) => return Err(Failed::Malformed(detail, answer(Bytes::new()).told())),
    };
    if status.is_success() {
        return Ok((answer(body), headers));
    }
    let retry_after = retry::retry_after(text("retry-after"), text("date"));
    Err(Failed::Http(HttpError { status, message: decode::message(&body), request_id, retry_after }))
}

/// The body, or what is wrong with it.
async fn read(mut response: reqwest::Response, max_body: usize) -> Result<Result<Bytes, String>, Failed> {
    let too_large = || Ok(Err(format!("the body is larger than {max_body} bytes")));
    let announced = response.content_length().unwrap_or(0);
    let Some(announced) = usize::try_from(announced).ok().filter(|announced| *announced <= max_body) else {
        return too_large();
    };
    // A buffer that grows is twice the body, and half of it for a moment once more. Who announces much and sends little
    // costs us addresses, not memory.
    let mut body = BytesMut::with_capacity(announced);
    while let Some(chunk) = response.chunk().await.map_err(|error| Failed::Broken(ConnectionError::new(error)))? {
        if body.len() + chunk.len() > max_body {
            return too_large();
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Ok(body.freeze()))
}

/// For `OS_INSECURE`: whoever answers is believed.
#[derive(Debug)]
struct Trusting(Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
