//! Command-line arguments that all programs have in common, to be flattened into their own.
//!
//! ```
//! use clap::Parser;
//! use cobalt_core::runtime::args::{AdminArgs, KubeArgs, LeaderArgs, LogArgs};
//!
//! #[derive(Parser)]
//! struct Args {
//!     #[command(flatten)]
//!     log: LogArgs,
//!     #[command(flatten)]
//!     admin: AdminArgs,
//!     #[command(flatten)]
//!     leader: LeaderArgs,
//!     #[command(flatten)]
//!     kube: KubeArgs,
//! }
//!
//! let args = Args::parse_from(["cobalt-operator", "--leader-elect", "--health-probe-bind-address=:8081"]);
//! assert!(args.leader.leader_elect);
//! assert_eq!(args.admin.admin_bind_address.to_string(), "0.0.0.0:8081");
//! ```

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use clap::{
    ArgAction, Args, ValueEnum,
    builder::{BoolishValueParser, NonEmptyStringValueParser},
};
use tokio::net::TcpListener;

use super::admin::{self, AdminError};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line.
    #[default]
    Json,
    /// Lines for people.
    Human,
}

/// What is logged, and how.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Logging")]
pub struct LogArgs {
    /// Format of the log on standard error
    #[arg(long, value_enum, default_value_t, env = "COBALT_LOG_FORMAT")]
    pub log_format: LogFormat,

    /// What to log: a level, or tracing directives such as `info,cobalt_core=debug`
    #[arg(long, default_value = "info", env = "RUST_LOG", value_name = "FILTER")]
    pub log_level: String,

    /// Send spans of passes, actions and calls to the OpenTelemetry collector at this address, by OTLP over HTTP (where
    /// the program was built with the feature `otlp`)
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub otlp_endpoint: Option<String>,
}

impl Default for LogArgs {
    fn default() -> Self {
        Self { log_format: LogFormat::default(), log_level: "info".into(), otlp_endpoint: None }
    }
}

/// An address to listen on, or none.
///
/// Takes what Go programs take: `:8081` means every IPv4 address, `0` means off.
///
/// ```
/// use cobalt_core::runtime::args::BindAddress;
///
/// assert_eq!(":8081".parse::<BindAddress>().unwrap().to_string(), "0.0.0.0:8081");
/// assert_eq!("[::1]:9".parse::<BindAddress>().unwrap().to_string(), "[::1]:9");
/// assert_eq!("0".parse::<BindAddress>().unwrap(), BindAddress::Off);
/// assert!("8081".parse::<BindAddress>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindAddress {
    /// Do not listen.
    Off,
    /// Listen here.
    On(SocketAddr),
}

impl FromStr for BindAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "0" {
            return Ok(Self::Off);
        }
        let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
        full.parse().map(Self::On).map_err(|_| "expected IP:PORT, :PORT for every address, or 0 for none".to_owned())
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("0"),
            Self::On(address) => address.fmt(f),
        }
    }
}

/// Where the admin server listens.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Admin server")]
pub struct AdminArgs {
    /// Address of /healthz, /readyz, /metrics and /debug/state; `0` turns it off
    #[arg(long, default_value = "0.0.0.0:8081", visible_alias = "health-probe-bind-address", value_name = "IP:PORT")]
    pub admin_bind_address: BindAddress,

    /// A second address for the same pages, where scrapers expect one of its own; `0` means none
    #[arg(long, default_value = "0", value_name = "IP:PORT")]
    pub metrics_bind_address: BindAddress,
}

impl AdminArgs {
    /// Opens the configured listeners. An address in use is an error that names it and its flag.
    pub async fn listen(&self) -> Result<Vec<TcpListener>, AdminError> {
        let mut listeners = Vec::new();
        for (flag, address) in
            [("--admin-bind-address", self.admin_bind_address), ("--metrics-bind-address", self.metrics_bind_address)]
        {
            if let BindAddress::On(address) = address {
                listeners.push(admin::bind(address, flag).await?);
            }
        }
        Ok(listeners)
    }
}

/// Leader election.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderArgs {
    /// Work only while holding the Lease; needed as soon as two replicas run
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub leader_elect: bool,

    /// Namespace of the Lease [default: the namespace of the pod or context]
    #[arg(long, value_name = "NAMESPACE", env = "COBALT_LEADER_NAMESPACE")]
    pub leader_elect_namespace: Option<String>,

    /// How long the others wait for a silent leader before one of them takes over
    #[arg(long, default_value = "15s", value_parser = duration, value_name = "DURATION")]
    pub leader_elect_lease_duration: Duration,

    /// How long the leader tries to renew before it stops working; shorter than the lease duration
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub leader_elect_renew_deadline: Duration,

    /// Pause between two attempts to acquire or renew
    #[arg(long, default_value = "2s", value_parser = duration, value_name = "DURATION")]
    pub leader_elect_retry_period: Duration,

    /// Name of this replica in the Lease; a unique suffix is added
    #[arg(long, value_name = "NAME", env = "POD_NAME", hide_env_values = true)]
    pub leader_elect_identity: Option<String>,
}

/// How to reach the Kubernetes API.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Kubernetes")]
pub struct KubeArgs {
    /// Kubeconfig file [default: $KUBECONFIG, the pod's service account, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// Time limit of every API request; watches are limited by their silence instead
    #[arg(long, default_value = "20s", value_parser = duration, value_name = "DURATION")]
    pub kube_request_timeout: Duration,
}

impl Default for KubeArgs {
    fn default() -> Self {
        Self { kubeconfig: None, context: None, kube_request_timeout: Duration::from_secs(20) }
    }
}

/// A path that may be empty, as in an environment that is set to nothing; clap's own parser refuses that.
pub fn path(text: &str) -> Result<std::path::PathBuf, std::convert::Infallible> {
    Ok(text.into())
}

/// Parses `15s`, `500ms`, `2m 30s`; zero and negative durations are refused. For use as a clap `value_parser`.
///
/// ```
/// use cobalt_core::runtime::args::duration;
/// use std::time::Duration;
///
/// assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
/// assert!(duration("0s").is_err());
/// assert!(duration("soon").is_err());
/// ```
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration =
        text.parse().map_err(|_| "expected a duration such as 500ms, 15s or 2m".to_owned())?;
    match Duration::try_from(parsed) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("expected a duration longer than zero".to_owned()),
    }
}
