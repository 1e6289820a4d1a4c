//! Controller `certificate`: a certificate for every hypervisor Node, for libvirt's own connections.
//!
//! ```text
//!   does the cluster have cert-manager's Certificates? ──no──▶ ask again after a while
//!        │ yes
//!        ▼
//!   a Node changed, or its Certificate ──▶ as wanted? ──yes──▶ nothing
//!                                             │ no
//!                                             ▼
//!                                        one apply of libvirt-<node>
//! ```
//!
//! What is made of it (a key, a Secret `tls-libvirt-<node>`) is cert-manager's business; the node agent puts it into
//! libvirt's files. A Certificate belongs to its Node and goes with it.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt::Write as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use clap::{Args as ClapArgs, ValueEnum};
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, Resource, runtime::watcher};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use tracing::Instrument;

use super::{FIELD_MANAGER, Hand, hand::Withheld, installed::until_installed};
use crate::{
    Result,
    runtime::{
        apply::{Applied, Applier, ApplyError, Decision, Target},
        args::duration,
        clock::Clock,
        events::{Event, Recorder},
        lock,
        metrics::Metrics,
        queue::{self, Next, Queue},
        shutdown::{Shutdown, TaskGroup},
        state::Status,
        takeover::{TakeOver, compact_managed_fields},
        watch::{Lookup, ObjectKey, Store, watched_store},
    },
};

const HEADING: &str = "Certificates";

/// Field managers under which earlier programs wrote Certificates.
const EARLIER: [&str; 3] = ["manager", "openstack-hypervisor-operator", "unknown"];

/// How long to wait before a leader that was doubted asks again.
const LATER: Duration = Duration::from_secs(10);

/// The kind of private key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum KeyAlgorithm {
    /// RSA, in PKCS#1.
    #[default]
    #[value(name = "RSA", alias = "rsa")]
    Rsa,
    /// ECDSA, in PKCS#8.
    #[value(name = "ECDSA", alias = "ecdsa")]
    Ecdsa,
    /// Ed25519, in PKCS#8; it has one size.
    #[value(name = "Ed25519", alias = "ed25519")]
    Ed25519,
}

/// How certificates are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSettings {
    /// Where Certificates and Secrets are.
    pub namespace: String,
    /// Who signs.
    pub issuer_name: String,
    /// `Issuer` or `ClusterIssuer`.
    pub issuer_kind: String,
    /// The group of that kind.
    pub issuer_group: String,
    /// How long a certificate is valid.
    pub duration: Duration,
    /// How long before its end it is renewed.
    pub renew_before: Duration,
    /// The private key.
    pub key_algorithm: KeyAlgorithm,
    /// The size of the key in bits, where there is a choice.
    pub key_size: u16,
    /// What the key may be used for, in cert-manager's words.
    pub usages: Vec<String>,
    /// The organisation in the certificate.
    pub organization: String,
}

impl Default for CertificateSettings {
    fn default() -> Self {
        let usages = ["server auth", "client auth", "cert sign", "digital signature", "key encipherment"];
        Self {
            namespace: "monsoon3".into(),
            issuer_name: "nova-hypervisor-agents-ca-issuer".into(),
            issuer_kind: "Issuer".into(),
            issuer_group: "cert-manager.io".into(),
            duration: DAY * 47,
            renew_before: DAY * 37,
            key_algorithm: KeyAlgorithm::Rsa,
            key_size: 4096,
            usages: usages.map(str::to_owned).into(),
            organization: "nova".into(),
        }
    }
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Whether and how certificates are asked for.
#[derive(ClapArgs, Clone, Debug)]
#[group(skip)]
pub struct CertificateArgs {
    /// Ask cert-manager for a certificate for every hypervisor Node
    #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL", help_heading = HEADING)]
    pub certificates: bool,

    /// Namespace of the Certificates and their Secrets
    #[arg(long, default_value_t = CertificateSettings::default().namespace, value_name = "NAMESPACE", help_heading = HEADING, value_parser = given)]
    pub certificate_namespace: String,

    /// Who signs them
    #[arg(long, default_value_t = CertificateSettings::default().issuer_name, value_name = "NAME", help_heading = HEADING, value_parser = given)]
    pub certificate_issuer_name: String,

    /// Kind of who signs them
    #[arg(long, default_value = "Issuer", value_name = "KIND", help_heading = HEADING, value_parser = given)]
    pub certificate_issuer_kind: String,

    /// Group of that kind
    #[arg(long, default_value = "cert-manager.io", value_name = "GROUP", help_heading = HEADING, value_parser = given)]
    pub certificate_issuer_group: String,

    /// How long they are valid
    #[arg(long, default_value = "1128h", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub certificate_duration: Duration,

    /// How long before their end they are renewed; less than the above
    #[arg(long, default_value = "888h", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub certificate_renew_before: Duration,

    /// Kind of their keys
    #[arg(long, value_enum, default_value_t, value_name = "ALGORITHM", help_heading = HEADING)]
    pub certificate_key_algorithm: KeyAlgorithm,

    /// Size of their keys in bits [default: 4096 for RSA, 256 for ECDSA]
    #[arg(long, value_name = "BITS", help_heading = HEADING)]
    pub certificate_key_size: Option<u16>,

    /// What their keys may be used for, in cert-manager's words
    #[arg(long, value_delimiter = ',', value_name = "USAGE", help_heading = HEADING, default_values_t = CertificateSettings::default().usages)]
    pub certificate_usages: Vec<String>,

    /// Organisation in them
    #[arg(long, default_value = "nova", value_name = "NAME", help_heading = HEADING)]
    pub certificate_organization: String,
}

/// A text that is not empty.
fn given(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("it must not be empty".to_owned()) } else { Ok(text.to_owned()) }
}

impl CertificateArgs {
    /// What they say; `None` if there are to be no certificates. An error is one of the person who gave them.
    pub fn settings(&self) -> Result<Option<CertificateSettings>, String> {
        if !self.certificates {
            return Ok(None);
        }
        if self.certificate_renew_before >= self.certificate_duration {
            return Err("--certificate-renew-before must be less than --certificate-duration".to_owned());
        }
        let usual = if self.certificate_key_algorithm == KeyAlgorithm::Ecdsa { 256 } else { 4096 };
        Ok(Some(CertificateSettings {
            namespace: self.certificate_namespace.clone(),
            issuer_name: self.certificate_issuer_name.clone(),
            issuer_kind: self.certificate_issuer_kind.clone(),
            issuer_group: self.certificate_issuer_group.clone(),
            duration: self.certificate_duration,
            renew_before: self.certificate_renew_before,
            key_algorithm: self.certificate_key_algorithm,
            key_size: self.certificate_key_size.unwrap_or(usual),
            usages: self.certificate_usages.clone(),
            organization: self.certificate_organization.clone(),
        }))
    }
}

impl CertificateSettings {
    /// What is wanted for a Node: the fields of its Certificate that are ours. None for a Node without an identity.
    pub fn body(&self, node: &Node) -> Option<Value> {
        let (name, uid) = (node.metadata.name.as_deref()?, node.metadata.uid.as_deref()?);
        let addresses = || node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        let of = |types: &[&str]| -> BTreeSet<&str> {
            let wanted = addresses().filter(|address| types.contains(&address.type_.as_str()));
            wanted.map(|address| address.address.as_str()).filter(|address| !address.is_empty()).collect()
        };
        let mut names = of(&["Hostname", "InternalDNS", "ExternalDNS"]);
        names.insert(name);
        let ips = of(&["InternalIP", "ExternalIP"]);
        let mut key = match self.key_algorithm {
            KeyAlgorithm::Rsa => json!({"algorithm": "RSA", "encoding": "PKCS1", "size": self.key_size}),
            KeyAlgorithm::Ecdsa => json!({"algorithm": "ECDSA", "encoding": "PKCS8", "size": self.key_size}),
            KeyAlgorithm::Ed25519 => json!({"algorithm": "Ed25519", "encoding": "PKCS8"}),
        };
        let mut spec = json!({
            "secretName": secret_name(name),
            "commonName": name,
            "dnsNames": names,
            "subject": {"organizations": [self.organization]},
            "privateKey": key.take(),
            "duration": hours(self.duration),
            "renewBefore": hours(self.renew_before),
            "usages": self.usages,
            "issuerRef": {"group": self.issuer_group, "kind": self.issuer_kind, "name": self.issuer_name},
        });
        if !ips.is_empty() {
            spec["ipAddresses"] = json!(ips);
        }
        Some(json!({
            "metadata": {
                "namespace": self.namespace,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}],
            },
            "spec": spec,
        }))
    }
}

/// A duration as the earlier programs wrote it (`1128h0m0s`), so that taking their objects over changes nothing.
fn hours(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write!(text, "{}h{}m{}s", seconds / 3600, seconds / 60 % 60, seconds % 60);
    text
}

fn certificate_name(node: &str) -> String {
    format!("libvirt-{node}")
}

fn secret_name(node: &str) -> String {
    format!("tls-libvirt-{node}")
}

/// cert-manager's Certificate, of which we read nothing but what we wrote.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Certificate {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
}

impl Resource for Certificate {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind(&(): &()) -> Cow<'_, str> {
        "Certificate".into()
    }

    fn group(&(): &()) -> Cow<'_, str> {
        "cert-manager.io".into()
    }

    fn version(&(): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural(&(): &()) -> Cow<'_, str> {
        "certificates".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What the controller is made of.
pub(super) struct Certificates {
    pub(super) client: Client,
    pub(super) settings: CertificateSettings,
    pub(super) nodes: Store<Node>,
    /// Names of Nodes that were touched.
    pub(super) queue: Queue<String>,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) status: Status,
    pub(super) recorder: Recorder,
    pub(super) hand: Hand,
}

struct Context {
    api: Api<Certificate>,
    settings: CertificateSettings,
    nodes: Store<Node>,
    known: Store<Certificate>,
    applier: Applier,
    recorder: Recorder,
    hand: Hand,
}

impl Certificates {
    /// Works until `stop`, then finishes what is in flight. Its watch is one of these, whose end ends the program.
    pub(super) async fn run(self, watches: &TaskGroup, stop: Shutdown) {
        let Self { client, settings, nodes, queue, clock, metrics, status, recorder, hand } = self;
        let api: Api<Certificate> = Api::namespaced(client.clone(), &settings.namespace);
        let told = Mutex::new(false);
        let tell = |installed: Option<bool>| {
            if installed == Some(false) && !std::mem::replace(&mut *lock(&told), true) {
                tracing::info!("the cluster has no cert-manager: nobody gets a certificate");
            }
        };
        if !until_installed(&api, "nobody gets a certificate", tell, &stop).await {
            return;
        }
        let touched = queue.clone();
        let (known, watch) = watched_store::<Certificate>(
            "Certificate",
            Api::namespaced(client, &settings.namespace),
            watcher::Config::default(),
            metrics.clone(),
        )
        .clock(clock)
        .optional()
        .modify(|certificate| compact_managed_fields(certificate, FIELD_MANAGER, Some(&take_over())))
        .on_touch(move |touch| {
            let spec = |one: &Option<Arc<Certificate>>| {
                one.as_ref().map(|one| (one.spec.clone(), one.metadata.owner_references.clone()))
            };
            if let Some(node) =
                touch.key.name.strip_prefix("libvirt-").filter(|_| spec(&touch.before) != spec(&touch.after))
            {
                touched.add(node.to_owned());
            }
        })
        .build(&status);
        let applier = Applier::new(FIELD_MANAGER, metrics).taking_over(take_over());
        let context = Arc::new(Context { api, settings, nodes, known: known.clone(), applier, recorder, hand });
        watches.spawn("watch certificates", watch.run(stop.clone()));
        // What is merely not listed yet must not look absent.
        let listed = tokio::select! {
            () = stop.triggered() => false,
            listed = known.ready() => listed,
        };
        if listed {
            queue::run(&queue, 2, stop, move |node| {
                let context = context.clone();
                async move { context.reconcile(&node).await }
            })
            .await;
        }
    }
}

fn take_over() -> TakeOver {
    TakeOver::from(EARLIER).only(["spec", "metadata.ownerReferences"])
}

impl Context {
    async fn reconcile(&self, node: &str) -> Result<Next, ApplyError> {
        if !self.hand.may_act() {
            return Ok(Next::After(LATER));
        }
        let key = ObjectKey::namespaced(&self.settings.namespace, certificate_name(node));
        let Lookup::Found(found) = self.nodes.lookup(&ObjectKey::cluster(node)) else {
            // It goes with its Node.
            self.hand.withhold_all(&about(&key), []);
            return Ok(Next::Wait);
        };
        let going = found.metadata.deletion_timestamp.is_some();
        let Some(body) = self.settings.body(&found).filter(|_| !going) else { return Ok(Next::Wait) };
        let observed = match self.known.lookup(&key) {
            Lookup::Found(observed) => Some(observed),
            Lookup::Absent => None,
            Lookup::Malformed(_) => return Ok(Next::Wait),
        };
        if self.hand.is_observing() {
            let wish = (!self.is_as_wanted(observed.as_deref(), &body)).then(|| Withheld {
                key: "certificate".to_owned(),
                kind: "AskForCertificate",
                words: format!("ask for the certificate {key}"),
            });
            self.hand.withhold_all(&about(&key), wish);
            return Ok(Next::Wait);
        }
        let span = tracing::info_span!("action", kind = "AskForCertificate", what = %key);
        let written = self.applier.main(&self.api, &key.name, observed.as_deref(), &body).instrument(span).await?;
        if let Applied::Written(_) = written {
            tracing::info!(node, certificate = %key, "asked for a certificate");
            let note = format!("Asked for the certificate {key}");
            self.recorder.publish(Event::normal(found.as_ref(), "Certify", "CertificateRequested", note));
        }
        Ok(Next::Wait)
    }

    fn is_as_wanted(&self, observed: Option<&Certificate>, body: &Value) -> bool {
        observed.is_some_and(|observed| {
            let value = serde_json::to_value(observed).unwrap_or_default();
            let managed = observed.metadata.managed_fields.as_deref().unwrap_or_default();
            self.applier.decide(&value, managed, body, Target::Main) == Decision::Unchanged
        })
    }
}

fn about(key: &ObjectKey) -> String {
    format!("Certificate {key}")
}
