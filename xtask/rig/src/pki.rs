//! A certificate authority, and certificates in the files libvirt looks for.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use crate::error::{Error, Result, create, write};

/// The authority of one rig.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    client: PathBuf,
}

impl Authority {
    /// Makes the authority, and a client's certificate in the directory `client`: what `pkipath` of a URI names.
    pub(crate) fn new(client: &Path) -> Result<Authority> {
        let subject = "the rig's authority";
        let failed = |source| Error::Certificate { subject: subject.to_owned(), source };
        let mut parameters = CertificateParams::new(Vec::new()).map_err(failed)?;
        parameters.distinguished_name.push(DnType::CommonName, subject);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = parameters.self_signed(&key).map_err(failed)?.pem();
        let authority = Authority { issuer: Issuer::new(parameters, key), certificate, client: client.to_owned() };
        authority.issue(client, "client", "a client", Vec::new(), ExtendedKeyUsagePurpose::ClientAuth)?;
        Ok(authority)
    }

    /// The directory with `cacert.pem`, `clientcert.pem` and `clientkey.pem`.
    pub(crate) fn client(&self) -> &Path {
        &self.client
    }

    /// Writes `cacert.pem`, `servercert.pem` and `serverkey.pem` for these names and addresses.
    pub(crate) fn server(&self, directory: &Path, names: &[&str]) -> Result<()> {
        let subject = names.first().copied().unwrap_or("server");
        let names = names.iter().map(|&name| name.to_owned()).collect();
        self.issue(directory, "server", subject, names, ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn issue(
        &self,
        directory: &Path,
        role: &str,
        subject: &str,
        names: Vec<String>,
        purpose: ExtendedKeyUsagePurpose,
    ) -> Result<()> {
        let failed = |source| Error::Certificate { subject: subject.to_owned(), source };
        let mut parameters = CertificateParams::new(names).map_err(failed)?;
        parameters.distinguished_name.push(DnType::CommonName, subject);
        parameters.is_ca = IsCa::ExplicitNoCa;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        parameters.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = parameters.signed_by(&key, &self.issuer).map_err(failed)?;
        create(directory)?;
        write(&directory.join("cacert.pem"), &self.certificate)?;
        write(&directory.join(format!("{role}cert.pem")), certificate.pem())?;
        write(&directory.join(format!("{role}key.pem")), key.serialize_pem())
    }
}
