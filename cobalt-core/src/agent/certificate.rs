//! The TLS certificate of the host: from one Secret to the places where libvirt looks for it.
//!
//! ```text
//!   Secret tls-libvirt-<node> ──▶ checked? ──no──▶ the old files stay, the condition says what is wrong
//!                                    │ yes
//!                                    ▼
//!                              files as wanted? ──yes, and libvirt was told──▶ Ready
//!                                    │ no
//!                                    ▼
//!                      Installing ──▶ write ──failed──▶ the condition says so, again later
//!                                    │
//!                                    ▼
//!                   tell libvirt ──failed──▶ the condition says so ──▶ start libvirtd ──failed──▶ again later
//!                                    │                                     │
//!                                    ▼                                     ▼
//!                              note it, Ready ◀────────────────────────────┘
//! ```
//!
//! The agent needs to `get`, `list` and `watch` this one Secret of one namespace, and no other. If the spec says so it
//! also asks cert-manager for the certificate; by default the operator does.

pub(super) mod bundle;
mod files;
mod request;

#[cfg(test)]
mod tests;

use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use clap::Args as ClapArgs;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, runtime::watcher};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

pub use self::request::CERTIFICATE_REQUESTED;
use self::{bundle::Bundle, files::Pki, request::Request};
use super::part::{Context, Contribution, Part};
use crate::{
    Error,
    api::{Condition, ConditionStatus, condition_types::TLS_CERTIFICATE_INSTALLED, reasons},
    host::{ActiveState, HostEvent},
    runtime::{
        args::{duration, path},
        queue::Backoff,
        shutdown::{Chain, Shutdown, TaskError},
        state::Status,
        watch::{ObjectKey, Store, WatchEnded, watched_store},
    },
};

const HEADING: &str = "Certificates";
const NAME: &str = "certificates";

/// The unit that tells libvirt to read its certificates anew.
const UPDATE_TLS: &str = "virt-admin-server-update-tls.service";
/// What is started if that unit cannot be.
const LIBVIRTD: &str = "libvirtd.service";

/// From an accepted start to its first effect.
const MOMENT: Duration = Duration::from_secs(2);

/// Where certificates come from and go to.
#[derive(ClapArgs, Clone, Debug)]
#[group(skip)]
pub struct CertificateArgs {
    /// Directory under which libvirt's certificates are installed [default: they are not]
    #[arg(long, env = "PKI_PATH", value_parser = path, value_name = "DIRECTORY", help_heading = HEADING)]
    pub pki_path: Option<PathBuf>,

    /// Number of the group that may read the private keys besides their owner [default: none]
    #[arg(long, value_name = "GID", help_heading = HEADING)]
    pub pki_key_group: Option<u32>,

    /// Namespace of the Secret and the Certificate [default: the namespace of the pod or context]
    #[arg(long, env = "NAMESPACE", value_name = "NAMESPACE", help_heading = HEADING)]
    pub certificate_namespace: Option<String>,

    /// Issuer of the certificate, where spec.createCertManagerCertificate has the agent ask for it
    #[arg(long, env = "ISSUER_NAME", value_name = "NAME", help_heading = HEADING)]
    pub issuer_name: Option<String>,

    /// Address of the host to put into that certificate
    #[arg(long, env = "HOST_IP_ADDRESS", value_parser = address, value_name = "ADDRESS", help_heading = HEADING)]
    pub host_ip_address: Option<Address>,

    /// How long that certificate is valid
    #[arg(long, default_value = "1128h", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub certificate_duration: Duration,

    /// How long before its end that certificate is renewed
    #[arg(long, default_value = "888h", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub certificate_renew_before: Duration,
}

/// An address, or none: an environment that is set to nothing names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address(pub Option<IpAddr>);

fn address(text: &str) -> Result<Address, std::net::AddrParseError> {
    if text.is_empty() { Ok(Address(None)) } else { text.parse().map(|address| Address(Some(address))) }
}

impl CertificateArgs {
    /// The address of this host, if it was given.
    pub fn address(&self) -> Option<IpAddr> {
        self.host_ip_address.unwrap_or_default().0
    }

    /// The part they describe.
    pub fn part(&self, own_namespace: &str) -> Certificates {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let root = self.pki_path.clone().filter(|path| !path.as_os_str().is_empty());
        Certificates {
            pki: root.map(|root| Pki::new(root, self.pki_key_group)),
            request: Request {
                namespace: given(&self.certificate_namespace).unwrap_or_else(|| own_namespace.to_owned()),
                issuer: given(&self.issuer_name),
                address: self.address(),
                duration: self.certificate_duration,
                renew_before: self.certificate_renew_before,
            },
        }
    }
}

/// Installs the host's certificate.
#[derive(Clone, Debug)]
pub struct Certificates {
    pki: Option<Pki>,
    request: Request,
}

impl Certificates {
    /// From the Secret in this namespace to the places under this directory.
    pub fn new(namespace: impl Into<String>, root: impl Into<PathBuf>) -> Self {
        let day = Duration::from_secs(24 * 3600);
        Self {
            pki: Some(Pki::new(root, None)),
            request: Request {
                namespace: namespace.into(),
                issuer: None,
                address: None,
                duration: 47 * day,
                renew_before: 37 * day,
            },
        }
    }

    /// Asks this issuer for the certificate, where the spec wants it.
    #[must_use]
    pub fn issuer(mut self, name: impl Into<String>) -> Self {
        self.request.issuer = Some(name.into());
        self
    }
}

/// The Secret with the certificate of a host.
fn secret_name(node: &str) -> String {
    format!("tls-libvirt-{node}")
}

#[async_trait]
impl Part for Certificates {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn run(self: Box<Self>, context: Context, stop: Shutdown) -> Result<(), TaskError> {
        Installer::new(*self, context).run(&stop).await?;
        Ok(())
    }
}

/// A running watch of the one Secret.
struct Watching {
    secrets: Store<Secret>,
    changes: watch::Receiver<u64>,
    run: BoxFuture<'static, Result<(), WatchEnded>>,
}

struct Installer {
    config: Certificates,
    context: Context,
    key: ObjectKey,
    watching: Option<Watching>,
    installed: Option<Condition>,
    requested: Option<Condition>,
    /// The spec and the answer it got need no further work.
    request_done: bool,
    failures: u32,
    retry: Option<Instant>,
}

impl Installer {
    fn new(config: Certificates, context: Context) -> Self {
        let key = ObjectKey::namespaced(&config.request.namespace, secret_name(&context.node_name));
        Self {
            config,
            context,
            key,
            watching: None,
            installed: None,
            requested: None,
            request_done: false,
            failures: 0,
            retry: None,
        }
    }

    async fn run(mut self, stop: &Shutdown) -> Result<(), WatchEnded> {
        let mut own = self.context.own.clone();
        loop {
            tokio::select! {
                () = stop.triggered() => return Ok(()),
                () = self.step(stop) => {}
            }
            let retry = self.retry;
            let watching = async {
                match &mut self.watching {
                    Some(Watching { changes, run, .. }) => tokio::select! {
                        ended = run => ended,
                        changed = changes.changed() => {
                            if changed.is_err() { std::future::pending::<()>().await; }
                            Ok(())
                        }
                    },
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.triggered() => return Ok(()),
                () = own.changed() => {}
                ended = watching => {
                    ended?;
                    self.retry = None; // another Secret, another try
                }
                () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => self.retry = None,
            }
        }
    }

    async fn step(&mut self, stop: &Shutdown) {
        let Some(own) = self.context.own.get() else { return };
        if self.retry.is_some() {
            return; // failed lately
        }
        let before = self.failures;
        if !own.spec.create_cert_manager_certificate() {
            (self.requested, self.request_done) = (None, false);
        } else if !self.request_done {
            let limit = self.context.call_timeout;
            let made = self.config.request.make(&self.context.client, &self.context.node_name, &own);
            if let Ok(answer) = timeout(limit, made).await {
                self.request_done = !answer.again;
                self.requested = Some(answer.condition);
            }
            if !self.request_done {
                self.failed();
            }
        }
        if let Some(pki) = self.config.pki.clone().filter(|_| own.spec.install_certificate()) {
            self.install(pki, stop).await;
        } else {
            (self.watching, self.installed) = (None, None);
        }
        if self.failures == before {
            self.failures = 0;
        }
        self.say();
    }

    async fn install(&mut self, pki: Pki, stop: &Shutdown) {
        let secrets = self.secrets(stop);
        if !secrets.is_synced() {
            return; // the watch tells
        }
        let Some(secret) = secrets.get(&self.key) else {
            let message = format!("there is no Secret {}", self.key);
            return self.show(false, reasons::FAILED_TO_UPDATE_TLS_CERTIFICATE, message);
        };
        let bundle = match Bundle::of(&secret, self.context.clock.now()) {
            Ok(bundle) => Arc::new(bundle),
            Err(error) => {
                let why = Chain(&error).to_string();
                tracing::warn!(secret = %self.key, error = why, "the certificate is not installed");
                self.failed(); // a certificate that is not valid yet will be
                return self.show(false, reasons::FAILED_TO_UPDATE_TLS_CERTIFICATE, why);
            }
        };
        let told = on_disk({
            let (pki, bundle) = (pki.clone(), bundle.clone());
            move || pki.is_told(&bundle)
        });
        let told = told.await;
        if !told {
            self.show(false, reasons::INSTALLING, "");
            self.say();
        }
        let (files, wanted) = (pki.clone(), bundle.clone());
        match on_disk(move || files.install(&wanted)).await {
            Ok(0) if told => return self.show(true, reasons::READY, ""),
            Ok(changed) => tracing::info!(secret = %self.key, version = bundle.version, changed, "installed"),
            Err(error) => {
                let why = Chain(&error).to_string();
                tracing::warn!(secret = %self.key, error = why, "the certificate could not be installed");
                self.failed();
                return self.show(false, reasons::FAILED_TO_UPDATE_TLS_CERTIFICATE, why);
            }
        }
        let message = match self.tell_libvirt().await {
            Ok(message) => message,
            Err(why) => {
                self.failed();
                return self.show(false, reasons::FAILED_TO_START_UPDATE_TLS_SERVICE, why);
            }
        };
        if let Err(error) = on_disk(move || pki.told(&bundle)).await {
            tracing::warn!(error = %Chain(&error), "libvirt will be told again after a restart");
        }
        self.show(true, reasons::READY, message);
    }

    /// The Secrets, watched from the first call on.
    fn secrets(&mut self, stop: &Shutdown) -> Store<Secret> {
        let Context { client, clock, metrics, .. } = &self.context;
        let watching = self.watching.get_or_insert_with(|| {
            let (touch, changes) = watch::channel(0_u64);
            let synced = touch.clone();
            let name = &self.key.name;
            let (secrets, watch) = watched_store::<Secret>(
                "Secret",
                Api::namespaced(client.clone(), &self.config.request.namespace),
                watcher::Config::default().fields(&format!("metadata.name={name}")),
                metrics.clone(),
            )
            .clock(clock.clone())
            .on_touch(move |_| touch.send_modify(|changes| *changes += 1))
            .build(&Status::new(clock.clone()));
            let (ready, stop) = (secrets.clone(), stop.clone());
            let run = async move {
                let run = watch.run(stop);
                // An empty first listing touches nothing, and is news all the same.
                let told = async {
                    ready.ready().await;
                    synced.send_modify(|changes| *changes += 1);
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    ended = run => ended,
                    () = told => Ok(()),
                }
            };
            Watching { secrets, changes, run: run.boxed() }
        });
        watching.secrets.clone()
    }

    /// Has libvirt read the files. A remark if that took the second way, or why neither worked.
    async fn tell_libvirt(&mut self) -> Result<String, String> {
        let Err(error) = Self::run_unit(&self.context, UPDATE_TLS).await else { return Ok(String::new()) };
        let why = Chain(&error).to_string();
        tracing::warn!(unit = UPDATE_TLS, error = why, "libvirt could not be told, starting it instead");
        self.show(false, reasons::FAILED_TO_START_UPDATE_TLS_SERVICE, why.clone());
        self.say();
        match Self::run_unit(&self.context, LIBVIRTD).await {
            Ok(()) => Ok(format!("{LIBVIRTD} was started, because: {why}")),
            Err(second) => Err(format!("{why}; {}", Chain(&second))),
        }
    }

    /// Starts a unit and waits until it is where it goes.
    async fn run_unit(context: &Context, name: &str) -> Result<(), Error> {
        let limit = context.call_timeout;
        let mut events = context.host.events();
        let run = async {
            context.host.start_unit(name).await?;
            let mut looks = 0;
            loop {
                looks += 1;
                let units = context.host.units(&[name.to_owned()]).await?;
                match units.first().map(|unit| &unit.active) {
                    Some(ActiveState::Activating | ActiveState::Reloading | ActiveState::Deactivating) => {}
                    Some(ActiveState::Failed) => return Err(Error::refused(format!("start unit {name}"), "it failed")),
                    // The start is accepted, but perhaps not begun.
                    Some(ActiveState::Inactive) if looks == 1 => {
                        let _ = timeout(MOMENT, changed(&mut events, name)).await;
                        continue;
                    }
                    _ => return Ok(()),
                }
                changed(&mut events, name).await;
            }
        };
        timeout(limit, run).await.unwrap_or_else(|_| Err(Error::timeout(format!("start unit {name}"), limit)))
    }

    fn show(&mut self, holds: bool, reason: &str, message: impl Into<String>) {
        let condition = Condition::new(TLS_CERTIFICATE_INSTALLED, ConditionStatus::from(holds), reason, message);
        self.installed = Some(condition);
    }

    fn say(&self) {
        let mut said = Contribution::default();
        for (type_, condition) in
            [(TLS_CERTIFICATE_INSTALLED, &self.installed), (CERTIFICATE_REQUESTED, &self.requested)]
        {
            match condition {
                Some(condition) => said.conditions.push(condition.clone()),
                None if type_ == TLS_CERTIFICATE_INSTALLED && self.watching.is_some() => {}
                None => said.removed.push(type_.to_owned()),
            }
        }
        self.context.board.put(NAME, said);
    }

    fn failed(&mut self) {
        self.failures += 1;
        let backoff = Backoff { first: Duration::from_secs(1), limit: Duration::from_secs(300) };
        self.retry = Some(Instant::now() + backoff.after(self.failures));
    }
}

/// Waits until a unit has changed, or may have.
async fn changed(events: &mut BoxStream<'static, HostEvent>, unit: &str) {
    while let Some(event) = events.next().await {
        match event {
            HostEvent::UnitChanged(name) if name == unit => return,
            HostEvent::Resync => return,
            _ => {}
        }
    }
    std::future::pending::<()>().await; // nobody will tell; the time limit ends it
}

/// Runs what waits for a disk where waiting harms nobody.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}
