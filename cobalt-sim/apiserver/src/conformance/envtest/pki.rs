//! The certificates and keys of one server.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

use super::EnvtestError;

pub(super) const AUTHORITY: &str = "ca.crt";
pub(super) const SERVER_CERTIFICATE: &str = "server.crt";
pub(super) const SERVER_KEY: &str = "server.key";
pub(super) const ACCOUNT_KEY: &str = "service-account.key";
pub(super) const ACCOUNT_PUBLIC_KEY: &str = "service-account.pub";

pub(super) struct Pki {
    /// The certificate authority as PEM.
    pub(super) authority: String,
}

impl Pki {
    /// Makes an authority, a server certificate for 127.0.0.1 and a key for service account tokens.
    pub(super) fn create(directory: &Path) -> Result<Pki, EnvtestError> {
        let wrong = EnvtestError::Certificate;
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "envtest");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().map_err(wrong)?).map_err(wrong)?;

        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut server = CertificateParams::new(names).map_err(wrong)?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.is_ca = IsCa::ExplicitNoCa;
        let server_key = KeyPair::generate().map_err(wrong)?;
        let certificate = server.signed_by(&server_key, &authority).map_err(wrong)?;

        let account = KeyPair::generate().map_err(wrong)?;
        for (name, content) in [
            (AUTHORITY, authority.pem()),
            (SERVER_CERTIFICATE, certificate.pem()),
            (SERVER_KEY, server_key.serialize_pem()),
            (ACCOUNT_KEY, account.serialize_pem()),
            (ACCOUNT_PUBLIC_KEY, account.public_key_pem()),
        ] {
            write_private(&directory.join(name), &content)?;
        }
        Ok(Pki { authority: authority.pem() })
    }
}

fn write_private(path: &Path, content: &str) -> Result<(), EnvtestError> {
    let opened = std::fs::File::options().create_new(true).write(true).mode(0o600).open(path);
    let written = opened.and_then(|mut file| file.write_all(content.as_bytes()));
    written.map_err(|source| EnvtestError::File { path: path.to_owned(), source })
}
