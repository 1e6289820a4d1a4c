#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use super::*;

/// Somebody who vouches, and what they vouch for.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn vouch(&self) -> (String, String) {
        let mut params = CertificateParams::new(vec!["node-1".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn secret(&self) -> Secret {
        let (certificate, key) = self.vouch();
        secret(&[("ca.crt", &self.pem), ("tls.crt", &certificate), ("tls.key", &key)])
    }
}

fn secret(fields: &[(&str, &str)]) -> Secret {
    let data: BTreeMap<String, ByteString> =
        fields.iter().map(|(name, text)| ((*name).to_owned(), ByteString(text.as_bytes().to_vec()))).collect();
    let mut secret = Secret { data: Some(data), ..Secret::default() };
    secret.metadata.name = Some("tls-libvirt-node-1".into());
    secret.metadata.resource_version = Some("7".into());
    secret
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn bundle(secret: &Secret) -> Bundle {
    Bundle::of(secret, now()).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// The files under a directory with what tells whether they were touched.
fn inodes(root: &Path) -> Vec<u64> {
    ["CA/cacert.pem", "libvirt/servercert.pem", "libvirt/private/serverkey.pem", "qemu/server-key.pem"]
        .map(|path| fs::metadata(root.join(path)).unwrap().ino())
        .into()
}

fn field<'a>(secret: &'a Secret, name: &str) -> &'a [u8] {
    &secret.data.as_ref().unwrap()[name].0
}

fn without(secret: &Secret, name: &str) -> Secret {
    let mut secret = secret.clone();
    secret.data.as_mut().unwrap().remove(name);
    secret
}

fn with(secret: &Secret, name: &str, text: &str) -> Secret {
    let mut secret = secret.clone();
    secret.data.as_mut().unwrap().insert(name.to_owned(), ByteString(text.as_bytes().to_vec()));
    secret
}

#[test]
fn files_links_and_rights_are_as_libvirt_wants_them() {
    let (root, good) = (tempfile::tempdir().unwrap(), Authority::new().secret());
    let (root, pki) = (root.path(), Pki::new(root.path(), None));
    assert_eq!(pki.install(&bundle(&good)).unwrap(), 9 + 6);
    for (paths, name, rights) in [
        (["CA/cacert.pem", "qemu/ca-cert.pem", "ch/ca-cert.pem"], "ca.crt", 0o644),
        (["libvirt/servercert.pem", "qemu/server-cert.pem", "ch/server-cert.pem"], "tls.crt", 0o644),
        (["libvirt/private/serverkey.pem", "qemu/server-key.pem", "ch/server-key.pem"], "tls.key", 0o600),
    ] {
        for path in paths {
            assert_eq!(fs::read(root.join(path)).unwrap(), field(&good, name), "{path}");
            assert_eq!(mode(&root.join(path)), rights, "{path}");
        }
    }
    for (link, target) in [
        ("libvirt/clientcert.pem", "servercert.pem"),
        ("libvirt/private/clientkey.pem", "serverkey.pem"),
        ("qemu/client-cert.pem", "server-cert.pem"),
        ("qemu/client-key.pem", "server-key.pem"),
        ("ch/client-cert.pem", "server-cert.pem"),
        ("ch/client-key.pem", "server-key.pem"),
    ] {
        assert_eq!(fs::read_link(root.join(link)).unwrap(), Path::new(target));
    }
    assert_eq!(mode(&root.join("libvirt/private")), 0o700);
    let hidden = |directory: &str| {
        let names = fs::read_dir(root.join(directory)).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with('.')).count()
    };
    assert_eq!(["CA", "libvirt", "libvirt/private", "qemu", "ch"].map(hidden), [0; 5], "nothing is left lying about");
}

#[test]
fn a_second_run_touches_nothing_and_remembers_what_libvirt_was_told() {
    let (root, good) = (tempfile::tempdir().unwrap(), Authority::new().secret());
    let pki = Pki::new(root.path(), None);
    let first = bundle(&good);
    pki.install(&first).unwrap();
    assert!(!pki.is_told(&first), "files alone are not enough");
    pki.told(&first).unwrap();
    let before = inodes(root.path());
    let again = Pki::new(root.path(), None);
    assert!(again.is_told(&first));
    assert_eq!(again.install(&first).unwrap(), 0);
    assert_eq!(inodes(root.path()), before);
    assert_eq!(mode(&root.path().join("CA/.last_resource_version")), 0o600);
    assert!(!again.is_told(&bundle(&Authority::new().secret())), "another one is news");
}

#[test]
fn what_a_crash_or_a_hand_left_behind_is_repaired() {
    let (root, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let (root, pki) = (root.path(), Pki::new(root.path(), None));
    pki.install(&bundle(&authority.secret())).unwrap();
    let new = authority.secret();
    // Half of the new set in place, a half-written file beside another, a wrong link, a file for a link, bad rights.
    fs::write(root.join("libvirt/servercert.pem"), field(&new, "tls.crt")).unwrap();
    fs::write(root.join("libvirt/private/.serverkey.pem.new"), "-----BEGIN").unwrap();
    fs::remove_file(root.join("qemu/client-key.pem")).unwrap();
    symlink("/etc/passwd", root.join("qemu/client-key.pem")).unwrap();
    fs::remove_file(root.join("ch/client-cert.pem")).unwrap();
    fs::write(root.join("ch/client-cert.pem"), "old").unwrap();
    fs::set_permissions(root.join("ch/server-key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::remove_file(root.join("CA/cacert.pem")).unwrap();
    pki.install(&bundle(&new)).unwrap();
    assert_eq!(pki.install(&bundle(&new)).unwrap(), 0);
    assert_eq!(fs::read_link(root.join("qemu/client-key.pem")).unwrap(), Path::new("server-key.pem"));
    assert_eq!(mode(&root.join("ch/server-key.pem")), 0o600);
    assert!(!root.join("libvirt/private/.serverkey.pem.new").exists());
}

#[test]
fn a_link_in_the_place_of_a_file_is_replaced_and_not_followed() {
    let (root, good) = (tempfile::tempdir().unwrap(), Authority::new().secret());
    let (root, pki) = (root.path(), Pki::new(root.path(), None));
    fs::create_dir(root.join("qemu")).unwrap();
    fs::write(root.join("innocent"), "innocent").unwrap();
    symlink("../innocent", root.join("qemu/server-key.pem")).unwrap();
    pki.install(&bundle(&good)).unwrap();
    assert_eq!(fs::read_to_string(root.join("innocent")).unwrap(), "innocent");
    assert_eq!(fs::read(root.join("qemu/server-key.pem")).unwrap(), field(&good, "tls.key"));
}

#[test]
fn a_disk_that_refuses_one_file_keeps_the_whole_old_set() {
    let (root, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let (root, pki) = (root.path(), Pki::new(root.path(), None));
    let old = authority.secret();
    pki.install(&bundle(&old)).unwrap();
    let before = inodes(root);
    // The last file to be written beside its place finds that place taken by a directory.
    fs::create_dir(root.join("ch/.server-key.pem.new")).unwrap();
    let refused = pki.install(&bundle(&authority.secret())).unwrap_err();
    assert!(Chain(&refused).to_string().contains("ch/.server-key.pem.new"), "{}", Chain(&refused));
    assert_eq!(inodes(root), before);
    assert!(!root.join("qemu/.server-key.pem.new").exists(), "no key is left lying about");
    fs::remove_dir(root.join("ch/.server-key.pem.new")).unwrap();
    assert_eq!(pki.install(&bundle(&old)).unwrap(), 0, "the old set is whole");
}

#[test]
fn a_file_in_the_place_of_a_directory_is_an_error_that_names_it() {
    let (root, good) = (tempfile::tempdir().unwrap(), Authority::new().secret());
    fs::write(root.path().join("qemu"), "").unwrap();
    let refused = Pki::new(root.path(), None).install(&bundle(&good)).unwrap_err();
    assert!(refused.to_string().ends_with("/qemu"), "{refused}");
}

#[test]
fn a_secret_that_is_not_good_is_refused_with_what_is_wrong() {
    let authority = Authority::new();
    let good = authority.secret();
    let stranger = Authority::new();
    let cases = [
        (without(&good, "tls.key"), "has no tls.key"),
        (without(&good, "ca.crt"), "has no ca.crt"),
        (with(&good, "tls.crt", ""), "has no tls.crt"),
        (with(&good, "tls.crt", "nonsense"), "tls.crt"),
        (with(&good, "tls.key", "nonsense"), "tls.key"),
        (with(&good, "tls.key", &authority.vouch().1), "tls.key does not belong to tls.crt"),
        (with(&good, "ca.crt", &stranger.pem), "ca.crt does not vouch for tls.crt"),
    ];
    for (secret, expected) in cases {
        let error = Bundle::of(&secret, now()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error} / {expected}");
    }
    let later = "9999-01-01T00:00:00Z".parse().unwrap();
    let expired = Bundle::of(&good, later).unwrap_err();
    assert!(expired.to_string().contains("does not vouch"), "{expired}");
}

#[test]
fn nothing_secret_is_in_debug_output_or_errors() {
    let authority = Authority::new();
    let good = authority.secret();
    let key = String::from_utf8(field(&good, "tls.key").to_vec()).unwrap();
    let line = key.lines().nth(1).unwrap();
    let shown = format!("{:?}", bundle(&good));
    assert!(!shown.contains(line) && shown.contains('7'), "{shown}");
    let broken = with(&good, "tls.key", &key.replace("PRIVATE KEY", "SECRET KEY"));
    let error = Bundle::of(&broken, now()).unwrap_err();
    assert!(!format!("{error:?} {}", Chain(&error)).contains(line));
}
