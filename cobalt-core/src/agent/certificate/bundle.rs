//! What a Secret holds, and whether it is any good.

use std::fmt::{self, Write};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use ring::digest;
use rustls::{
    Error as TlsError, InconsistentKeys, RootCertStore,
    client::verify_server_cert_signed_by_trust_anchor,
    crypto::ring::{default_provider, sign::any_supported_type},
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem, pem::PemObject},
    server::ParsedCertificate,
    sign::CertifiedKey,
};

/// Why a Secret is not installed. The texts name fields, never what is in them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(in crate::agent) enum BundleError {
    #[error("Secret {secret} has no {field}")]
    Missing { secret: String, field: &'static str },
    #[error("{field} of Secret {secret} is no PEM")]
    Pem {
        secret: String,
        field: &'static str,
        #[source]
        cause: pem::Error,
    },
    #[error("{what} of Secret {secret}")]
    Tls {
        secret: String,
        what: &'static str,
        #[source]
        cause: TlsError,
    },
}

/// A certificate, its key and who vouches for it, checked: they belong together and are valid.
pub(in crate::agent) struct Bundle {
    pub(in crate::agent) ca: Vec<u8>,
    pub(in crate::agent) certificate: Vec<u8>,
    pub(in crate::agent) key: Vec<u8>,
    /// The Secret's resourceVersion.
    pub(in crate::agent) version: String,
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Bundle {
    /// Takes a Secret apart and checks it as libvirt's peers would.
    pub(in crate::agent) fn of(secret: &Secret, now: Timestamp) -> Result<Self, BundleError> {
        let field = |field: &'static str| {
            let found = secret.data.as_ref().and_then(|data| data.get(field)).filter(|bytes| !bytes.0.is_empty());
            let missing = || BundleError::Missing { secret: secret.name_any(), field };
            found.map(|bytes| bytes.0.clone()).ok_or_else(missing)
        };
        let bundle = Self {
            ca: field("ca.crt")?,
            certificate: field("tls.crt")?,
            key: field("tls.key")?,
            version: secret.resource_version().unwrap_or_default(),
        };
        bundle.check(&secret.name_any(), now)?;
        Ok(bundle)
    }

    fn check(&self, secret: &str, now: Timestamp) -> Result<(), BundleError> {
        let bad_pem = |field| move |cause| BundleError::Pem { secret: secret.to_owned(), field, cause };
        let bad = |what| move |cause| BundleError::Tls { secret: secret.to_owned(), what, cause };
        let certificates = |bytes: &[u8], field| {
            let found: Vec<CertificateDer<'static>> =
                CertificateDer::pem_slice_iter(bytes).collect::<Result<_, _>>().map_err(bad_pem(field))?;
            if found.is_empty() { Err(bad_pem(field)(pem::Error::NoItemsFound)) } else { Ok(found) }
        };
        let chain = certificates(&self.certificate, "tls.crt")?;
        let mut roots = RootCertStore::empty();
        for root in certificates(&self.ca, "ca.crt")? {
            roots.add(root).map_err(bad("ca.crt"))?;
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(bad_pem("tls.key"))?;
        let key = any_supported_type(&key).map_err(bad("tls.key"))?;
        match CertifiedKey::new(chain.clone(), key).keys_match() {
            // A kind of key that cannot be compared may still be the right one.
            Ok(()) | Err(TlsError::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(cause) => return Err(bad("tls.key does not belong to tls.crt")(cause)),
        }
        let Some((leaf, intermediates)) = chain.split_first() else { return Ok(()) };
        let leaf = ParsedCertificate::try_from(leaf).map_err(bad("tls.crt"))?;
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        verify_server_cert_signed_by_trust_anchor(
            &leaf,
            &roots,
            intermediates,
            UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)),
            default_provider().signature_verification_algorithms.all,
        )
        .map_err(bad("ca.crt does not vouch for tls.crt"))
    }

    /// One value for all three, to tell whether libvirt has been told of them.
    pub(in crate::agent) fn hash(&self) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        for part in [&self.ca, &self.certificate, &self.key] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.finish().as_ref().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}"); // a String takes everything
            text
        })
    }
}
