//! A real `kube-apiserver` on loopback, started by the envtest convention.
//!
//! The binaries come from `$KUBEBUILDER_ASSETS` (a directory with `etcd` and `kube-apiserver`; what
//! `setup-envtest use -p path` prints) or from `$TEST_ASSET_ETCD` and `$TEST_ASSET_KUBE_APISERVER`. Where a
//! `kube-controller-manager` lies beside them (or `$TEST_ASSET_KUBE_CONTROLLER_MANAGER` names one), it is
//! started too, and with it comes garbage collection.
//!
//! Everything lives in a directory of its own and on free ports; RBAC is on, and each identity has a token.
//! Dropping the [`Envtest`] kills what it started, by process id, and removes the directory.

mod pki;
mod process;

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use thiserror::Error;

use self::pki::Pki;
use self::process::Process;
use super::{Capabilities, DetectError, Target};

/// From start to ready; a loaded two-core machine needs about ten seconds.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// Between two looks at `/readyz`.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A free port can be taken by somebody else before the server binds it.
const ATTEMPTS: usize = 3;

/// The user name of the identity without rights.
pub const VISITOR: &str = "visitor";

/// The binaries of a real API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assets {
    /// The store.
    pub etcd: PathBuf,
    /// The server.
    pub kube_apiserver: PathBuf,
    /// Brings garbage collection; optional.
    pub kube_controller_manager: Option<PathBuf>,
}

/// Why there is no real server.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EnvtestError {
    /// Nobody said where the binaries are.
    #[error(
        "no real API server is configured: set KUBEBUILDER_ASSETS to a directory with etcd and kube-apiserver, \
         or TEST_ASSET_ETCD and TEST_ASSET_KUBE_APISERVER to the binaries"
    )]
    NotConfigured,
    /// A binary is not where it was said to be.
    #[error("{variable} names {path}, where no file is")]
    NoSuchBinary {
        /// The environment variable that led there.
        variable: &'static str,
        /// The path that was tried.
        path: PathBuf,
    },
    /// A file of the server's directory cannot be written.
    #[error("cannot prepare {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A binary does not start.
    #[error("cannot start {program}")]
    Spawn {
        /// The binary.
        program: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A key or certificate cannot be made.
    #[error("cannot create the certificates of the server")]
    Certificate(#[source] rcgen::Error),
    /// A program ended before the server was ready.
    #[error("{program} ended before the server was ready; its last words: {log}")]
    Ended {
        /// The binary.
        program: PathBuf,
        /// The end of its log.
        log: String,
    },
    /// The server never became ready.
    #[error("the server at {server} was not ready within {} s; last seen: {last}", READY_LIMIT.as_secs())]
    NotReady {
        /// Its address.
        server: String,
        /// The last answer.
        last: String,
    },
    /// The kubeconfig of the server is not accepted by kube.
    #[error("cannot build a client for {server}")]
    Client {
        /// Its address.
        server: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server does not tell its version.
    #[error("cannot tell what the server can do")]
    Detect(#[from] DetectError),
}

impl EnvtestError {
    /// Nothing is wrong, there is just no real server on this machine.
    pub fn is_not_configured(&self) -> bool {
        matches!(self, EnvtestError::NotConfigured)
    }

    /// A bounded word for this kind of error.
    pub fn category(&self) -> &'static str {
        match self {
            EnvtestError::NotConfigured | EnvtestError::NoSuchBinary { .. } => "configuration",
            EnvtestError::File { .. } | EnvtestError::Certificate(_) => "preparation",
            EnvtestError::Spawn { .. } | EnvtestError::Ended { .. } | EnvtestError::NotReady { .. } => "start",
            EnvtestError::Client { .. } | EnvtestError::Detect(_) => "client",
        }
    }

    /// A second attempt with other ports may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, EnvtestError::Ended { .. })
    }
}

impl Assets {
    /// Looks the binaries up by the envtest variables; `variable` reads the environment.
    pub fn find(variable: impl Fn(&str) -> Option<OsString>) -> Result<Assets, EnvtestError> {
        const DIRECTORY: &str = "KUBEBUILDER_ASSETS";
        let given = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let directory = given(DIRECTORY);
        let locate = |own: &'static str, program: &str| {
            let (name, path) = match (given(own), &directory) {
                (Some(path), _) => (own, path),
                (None, Some(directory)) => (DIRECTORY, directory.join(program)),
                (None, None) => return Err(EnvtestError::NotConfigured),
            };
            if path.is_file() { Ok(path) } else { Err(EnvtestError::NoSuchBinary { variable: name, path }) }
        };
        Ok(Assets {
            etcd: locate("TEST_ASSET_ETCD", "etcd")?,
            kube_apiserver: locate("TEST_ASSET_KUBE_APISERVER", "kube-apiserver")?,
            kube_controller_manager: locate("TEST_ASSET_KUBE_CONTROLLER_MANAGER", "kube-controller-manager").ok(),
        })
    }

    /// [`Assets::find`] in the environment of this process.
    pub fn from_environment() -> Result<Assets, EnvtestError> {
        Assets::find(|name| std::env::var_os(name))
    }
}

/// A running API server of its own.
pub struct Envtest {
    // In the order in which they are to be stopped.
    controller_manager: Option<Process>,
    apiserver: Process,
    etcd: Process,
    directory: Directory,
    server: String,
    certificate_authority: String,
    admin_token: String,
    visitor_token: String,
}

impl Envtest {
    /// Starts the server and waits until it is ready.
    pub async fn start(assets: &Assets) -> Result<Envtest, EnvtestError> {
        let mut attempt = 1;
        loop {
            match Envtest::start_once(assets).await {
                Err(error) if error.is_transient() && attempt < ATTEMPTS => {
                    tracing::warn!(attempt, error = %error, "the API server did not start, trying again");
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn start_once(assets: &Assets) -> Result<Envtest, EnvtestError> {
        let directory = Directory::create()?;
        let pki = Pki::create(directory.path())?;
        let (store_port, port) = (free_port(directory.path())?, free_port(directory.path())?);
        let [admin_token, visitor_token] = [(); 2].map(|()| uuid::Uuid::new_v4().to_string());
        let tokens = format!("{admin_token},admin,1,\"system:masters\"\n{visitor_token},{VISITOR},2,\"\"\n");
        directory.write("tokens.csv", &tokens)?;
        let etcd = start_etcd(&assets.etcd, directory.path(), store_port)?;
        let apiserver = start_apiserver(&assets.kube_apiserver, directory.path(), store_port, port)?;
        let mut envtest = Envtest {
            controller_manager: None,
            apiserver,
            etcd,
            directory,
            server: format!("https://127.0.0.1:{port}"),
            certificate_authority: pki.authority,
            admin_token,
            visitor_token,
        };
        let admin = envtest.admin().await?;
        envtest.until_ready(&admin).await?;
        if let Some(program) = &assets.kube_controller_manager {
            let kubeconfig = envtest.directory.write("admin.kubeconfig", &envtest.kubeconfig())?;
            let manager = start_controller_manager(program, envtest.directory.path(), &kubeconfig)?;
            envtest.controller_manager = Some(manager);
        }
        Ok(envtest)
    }

    /// The address, `https://127.0.0.1:PORT`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Where certificates, logs and data lie.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A kubeconfig for the administrator.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_with(&self.admin_token)
    }

    /// A client that may do everything.
    pub async fn admin(&self) -> Result<Client, EnvtestError> {
        self.client(&self.admin_token).await
    }

    /// The server as a target of the suite, with all identities.
    pub async fn target(&self) -> Result<Target, EnvtestError> {
        let admin = self.admin().await?;
        let mut capabilities = Capabilities::detect(&admin).await?;
        if self.controller_manager.is_none() {
            capabilities = capabilities.without_garbage_collection();
        }
        let name = format!("a real kube-apiserver 1.{} at {}", capabilities.minor, self.server);
        let prefix = format!("c{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        Ok(Target::new(name, prefix, admin)
            .with_unprivileged(VISITOR, self.client(&self.visitor_token).await?)
            .with_unknown_token(self.client("nobody-knows-this-token").await?)
            .with_capabilities(capabilities))
    }

    fn kubeconfig_with(&self, token: &str) -> String {
        let authority = base64::engine::general_purpose::STANDARD.encode(&self.certificate_authority);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: envtest\n\
             clusters:\n- name: envtest\n  cluster:\n    server: {}\n    certificate-authority-data: {authority}\n\
             contexts:\n- name: envtest\n  context:\n    cluster: envtest\n    user: envtest\n\
             users:\n- name: envtest\n  user:\n    token: {token}\n",
            self.server
        )
    }

    async fn client(&self, token: &str) -> Result<Client, EnvtestError> {
        let wrong = |source: Box<dyn std::error::Error + Send + Sync>| EnvtestError::Client {
            server: self.server.clone(),
            source,
        };
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig_with(token)).map_err(|error| wrong(error.into()))?;
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let mut config = config.map_err(|error| wrong(error.into()))?;
        // The suite wants to see a 504, not to have it retried.
        config.default_retry = false;
        Client::try_from(config).map_err(|error| wrong(error.into()))
    }

    async fn until_ready(&mut self, admin: &Client) -> Result<(), EnvtestError> {
        let deadline = tokio::time::Instant::now() + READY_LIMIT;
        loop {
            for process in [&mut self.etcd, &mut self.apiserver] {
                process.check_alive()?;
            }
            let request = http::Request::get("/readyz").body(Vec::new());
            let answer = match request {
                Ok(request) => tokio::time::timeout(LOOK_AGAIN * 50, admin.request_text(request)).await,
                Err(error) => Ok(Err(kube::Error::HttpError(error))),
            };
            let last = match answer {
                Ok(Ok(text)) if text == "ok" => return Ok(()),
                Ok(Ok(text)) => text,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "silence".to_owned(),
            };
            if tokio::time::Instant::now() > deadline {
                return Err(EnvtestError::NotReady { server: self.server.clone(), last });
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

fn start_etcd(program: &Path, directory: &Path, port: u16) -> Result<Process, EnvtestError> {
    let address = format!("http://127.0.0.1:{port}");
    let mut arguments = vec![
        format!("--data-dir={}", directory.join("etcd").display()),
        format!("--listen-client-urls={address}"),
        format!("--advertise-client-urls={address}"),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
    ];
    // Durable writes only slow a throw-away store; not every etcd can do without.
    if process::help_mentions(program, "unsafe-no-fsync") {
        arguments.push("--unsafe-no-fsync".to_owned());
    }
    Process::start(program, &arguments, directory)
}

fn start_apiserver(program: &Path, directory: &Path, store: u16, port: u16) -> Result<Process, EnvtestError> {
    let file = |name: &str| directory.join(name).display().to_string();
    let arguments = [
        format!("--etcd-servers=http://127.0.0.1:{store}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        "--advertise-address=127.0.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        format!("--tls-cert-file={}", file(pki::SERVER_CERTIFICATE)),
        format!("--tls-private-key-file={}", file(pki::SERVER_KEY)),
        format!("--client-ca-file={}", file(pki::AUTHORITY)),
        format!("--cert-dir={}", file("pki")),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=RBAC".to_owned(),
        format!("--service-account-issuer=https://127.0.0.1:{port}"),
        format!("--service-account-key-file={}", file(pki::ACCOUNT_PUBLIC_KEY)),
        format!("--service-account-signing-key-file={}", file(pki::ACCOUNT_KEY)),
        format!("--api-audiences=https://127.0.0.1:{port}"),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--allow-privileged=true".to_owned(),
    ];
    Process::start(program, &arguments, directory)
}

fn start_controller_manager(program: &Path, directory: &Path, kubeconfig: &Path) -> Result<Process, EnvtestError> {
    let file = |name: &str| directory.join(name).display().to_string();
    let port = free_port(directory)?;
    let arguments = [
        format!("--kubeconfig={}", kubeconfig.display()),
        "--leader-elect=false".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", file("pki")),
        format!("--service-account-private-key-file={}", file(pki::ACCOUNT_KEY)),
        format!("--root-ca-file={}", file(pki::AUTHORITY)),
        "--use-service-account-credentials=false".to_owned(),
    ];
    Process::start(program, &arguments, directory)
}

fn free_port(directory: &Path) -> Result<u16, EnvtestError> {
    let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    let address = bound.map_err(|source| EnvtestError::File { path: directory.join("port"), source })?;
    Ok(address.port())
}

/// A directory of our own, removed with its content.
struct Directory(PathBuf);

impl Directory {
    fn create() -> Result<Directory, EnvtestError> {
        use std::os::unix::fs::DirBuilderExt;
        let path = std::env::temp_dir().join(format!("envtest-{}", uuid::Uuid::new_v4().simple()));
        // Tokens and keys lie in it.
        let created = std::fs::DirBuilder::new().mode(0o700).create(&path);
        created.map_err(|source| EnvtestError::File { path: path.clone(), source })?;
        Ok(Directory(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn write(&self, name: &str, content: &str) -> Result<PathBuf, EnvtestError> {
        let path = self.0.join(name);
        std::fs::write(&path, content).map_err(|source| EnvtestError::File { path: path.clone(), source })?;
        Ok(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(directory = %self.0.display(), error = %error, "cannot remove the server's directory");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn environment<'a>(variables: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        |wanted| variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| OsString::from(*value))
    }

    #[test]
    fn without_variables_there_is_no_real_server() {
        assert!(Assets::find(environment(&[])).unwrap_err().is_not_configured());
        assert!(Assets::find(environment(&[("KUBEBUILDER_ASSETS", "")])).unwrap_err().is_not_configured());
    }

    #[test]
    fn a_directory_without_binaries_is_an_error_and_not_a_skip() {
        let error = Assets::find(environment(&[("KUBEBUILDER_ASSETS", "/nonexistent")])).unwrap_err();
        assert!(!error.is_not_configured());
        assert!(error.to_string().contains("KUBEBUILDER_ASSETS names /nonexistent/etcd"), "{error}");
    }

    #[test]
    fn single_binaries_go_before_the_directory() {
        let directory = Directory::create().unwrap();
        for name in ["etcd", "kube-apiserver", "my-etcd"] {
            directory.write(name, "").unwrap();
        }
        let assets = directory.path().display().to_string();
        let own = directory.path().join("my-etcd").display().to_string();
        let found = Assets::find(environment(&[("KUBEBUILDER_ASSETS", &assets), ("TEST_ASSET_ETCD", &own)])).unwrap();
        assert_eq!(found.etcd, directory.path().join("my-etcd"));
        assert_eq!(found.kube_apiserver, directory.path().join("kube-apiserver"));
        assert_eq!(found.kube_controller_manager, None);
    }

    #[tokio::test]
    async fn a_server_that_ends_at_once_is_reported_with_its_last_words() {
        let directory = Directory::create().unwrap();
        let script = directory.write("liar", "#!/bin/sh\necho I cannot work here\nexit 1\n").unwrap();
        let mut permissions = std::fs::metadata(&script).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o700);
        std::fs::set_permissions(&script, permissions).unwrap();
        let assets = Assets { etcd: script.clone(), kube_apiserver: script, kube_controller_manager: None };
        let error = Envtest::start(&assets).await.err().unwrap();
        assert!(error.to_string().contains("I cannot work here"), "{error}");
    }
}
