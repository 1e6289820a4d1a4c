use std::time::Duration;

use clap::Parser;
use cobalt_core::{
    api::testing::node,
    operator::{CertificateArgs, CertificateSettings, KeyAlgorithm},
};
use serde_json::json;

#[test]
fn a_node_is_certified_for_all_its_names_and_addresses() {
    let machine = node("node-1")
        .with_address("InternalIP", "10.0.0.2")
        .with_address("ExternalIP", "192.0.2.7")
        .with_address("InternalIP", "10.0.0.1")
        .with_address("InternalIP", "10.0.0.2")
        .with_address("Hostname", "node-1")
        .with_address("InternalDNS", "a.example")
        .build();
    let body = CertificateSettings::default().body(&machine).unwrap();
    let spec = &body["spec"];
    assert_eq!(spec["dnsNames"], json!(["a.example", "node-1"]), "ordered, each once");
    assert_eq!(spec["ipAddresses"], json!(["10.0.0.1", "10.0.0.2", "192.0.2.7"]));
    assert_eq!(spec["secretName"], "tls-libvirt-node-1");
    assert_eq!(spec["commonName"], "node-1");
    assert_eq!(spec["subject"], json!({"organizations": ["nova"]}));
    assert_eq!(spec["privateKey"], json!({"algorithm": "RSA", "encoding": "PKCS1", "size": 4096}));
    assert_eq!((&spec["duration"], &spec["renewBefore"]), (&json!("1128h0m0s"), &json!("888h0m0s")));
    assert_eq!(
        spec["issuerRef"],
        json!({"group": "cert-manager.io", "kind": "Issuer", "name": "nova-hypervisor-agents-ca-issuer"})
    );
    assert_eq!(body["metadata"]["namespace"], "monsoon3");
    let owner = &body["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["apiVersion"], &owner["kind"], &owner["controller"]),
        (&json!("v1"), &json!("Node"), &json!(null))
    );
    assert!(CertificateSettings::default().body(&node("a").metadata(|meta| meta.uid = None).build()).is_none());
}

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    certificate: CertificateArgs,
}

fn given(args: &[&str]) -> Result<Option<CertificateSettings>, String> {
    let args = Args::try_parse_from([&["x"], args].concat()).map_err(|error| error.to_string())?;
    args.certificate.settings()
}

#[test]
fn what_was_fixed_in_earlier_programs_is_configuration() {
    assert_eq!(given(&[]), Ok(Some(CertificateSettings::default())), "by default as they did it");
    let all = given(&[
        "--certificate-namespace=pki",
        "--certificate-issuer-name=vault",
        "--certificate-issuer-kind=ClusterIssuer",
        "--certificate-issuer-group=example.com",
        "--certificate-duration=240h",
        "--certificate-renew-before=80h",
        "--certificate-key-algorithm=ecdsa",
        "--certificate-usages=server auth,client auth",
        "--certificate-organization=compute",
    ]);
    let all = all.unwrap().unwrap();
    assert_eq!((all.duration, all.renew_before), (Duration::from_secs(240 * 3600), Duration::from_secs(80 * 3600)));
    assert_eq!((all.key_algorithm, all.key_size), (KeyAlgorithm::Ecdsa, 256));
    assert_eq!(all.usages, ["server auth", "client auth"], "no certificate authority on a host");
    let body = all.body(&node("node-1").build()).unwrap();
    assert_eq!(body["spec"]["privateKey"], json!({"algorithm": "ECDSA", "encoding": "PKCS8", "size": 256}));
    assert_eq!(body["spec"]["issuerRef"]["kind"], "ClusterIssuer");
    assert_eq!(given(&["--certificates=false"]), Ok(None));
}

#[test]
fn what_cannot_be_is_refused_with_the_flag_that_says_it() {
    let late = given(&["--certificate-renew-before=2000h"]).unwrap_err();
    assert!(late.contains("--certificate-renew-before") && late.contains("--certificate-duration"), "{late}");
    for flag in ["--certificate-namespace", "--certificate-issuer-name"] {
        assert!(given(&[&format!("{flag}=")]).unwrap_err().contains(flag));
    }
}
