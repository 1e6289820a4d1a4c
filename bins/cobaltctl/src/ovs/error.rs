//! Why there is no answer.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use cobalt_core::{agent::ovs::endpoints::resolve::Unclear, runtime::client::ClientError};

/// Why there is no answer about a switch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OvsError {
    /// There is no way to the cluster.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A question to the cluster failed.
    #[error("{what}")]
    Cluster {
        /// What was asked.
        what: String,
        /// What the cluster said.
        #[source]
        cause: Box<kube::Error>,
    },
    /// There is no OVSNode.
    #[error("there is no OVSNode {node} in namespace {namespace}: does an OVS agent run on that host?")]
    NoNode {
        /// The name.
        node: String,
        /// Where it was looked for.
        namespace: String,
    },
    /// There is none where agents publish, but elsewhere.
    #[error(
        "there is no OVSNode {node} in namespace {namespace}, only in {others}: if you trust what is published there, choose it with --namespace"
    )]
    NodeElsewhere {
        /// The name.
        node: String,
        /// Where it was looked for.
        namespace: String,
        /// Where there are some.
        others: String,
    },
    /// The agent answers no questions.
    #[error(
        "the agent of {node} answers no questions: status.troubleshooting of its OVSNode is empty (does it run, and with --troubleshooting-bind-address?)"
    )]
    NoEndpoints {
        /// The host.
        node: String,
    },
    /// What the OVSNode says of the endpoints cannot be used.
    #[error("the OVSNode {node} says where its agent answers, and its {field} is of no use: {problem}")]
    BadEndpoints {
        /// The host.
        node: String,
        /// The field.
        field: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The person has no token.
    #[error(
        "your kubeconfig has {what} and no token, which is what agents check{tried}: use --as-service-account NAMESPACE/NAME to ask with a token of a service account (you need the right to create serviceaccounts/token), or a context with a token"
    )]
    NoToken {
        /// What there is instead.
        what: &'static str,
        /// What was tried, if anything.
        tried: String,
    },
    /// The agent takes only tokens that are made for it, and the person's own is not to be shown to it.
    #[error(
        "this agent takes only tokens made for it, so yours was not sent: use --as-service-account NAMESPACE/NAME (you need the right to create serviceaccounts/token)"
    )]
    OwnToken,
    /// The token could not be had.
    #[error("get your token from the kubeconfig")]
    Token(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The agent cannot be reached.
    #[error("reach the agent of {node} at {address}")]
    Unreachable {
        /// The host.
        node: String,
        /// Where.
        address: SocketAddr,
        /// What happened.
        #[source]
        cause: io::Error,
    },
    /// The agent cannot be reached through a port-forward.
    #[error("reach the agent of {node} through a port-forward: {problem}")]
    PortForward {
        /// The host.
        node: String,
        /// What is wrong.
        problem: String,
    },
    /// Neither way works.
    #[error("{direct}; and {forward}")]
    NoWay {
        /// Why not straight.
        direct: String,
        /// Why not through a port-forward.
        forward: String,
    },
    /// The agent did not answer in time.
    #[error("{what}: no answer within {limit:?} (wait longer with --timeout)")]
    Timeout {
        /// What was asked.
        what: String,
        /// How long.
        limit: Duration,
    },
    /// The conversation broke.
    #[error("talk to the agent of {node}")]
    Conversation {
        /// The host.
        node: String,
        /// What happened.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The agent said no.
    #[error("the agent of {node} refused: {message} ({code})")]
    Refused {
        /// The host.
        node: String,
        /// The status code.
        code: u16,
        /// Its words.
        message: String,
    },
    /// The answer makes no sense.
    #[error("the agent of {node} answered something else than expected: {problem}")]
    Malformed {
        /// The host.
        node: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The switch of this machine could not be asked.
    #[error("ask the switch of this machine")]
    Local(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The question makes no sense on this machine.
    #[error(transparent)]
    Unclear(#[from] Unclear),
    /// A file could not be written.
    #[error("write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// The capture broke off. What was written can be read.
    #[error("the capture broke off after {bytes} bytes, which are in {}", path.display())]
    Broken {
        /// How many bytes were written.
        bytes: u64,
        /// The file.
        path: PathBuf,
        /// What happened.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Signals could not be received.
    #[error("listen for Ctrl-C and other signals")]
    Signals(#[source] io::Error),
    /// Standard output could not be written.
    #[error("print the answer")]
    Print(#[source] io::Error),
    /// The answer could not be written as JSON.
    #[error("print the answer as JSON")]
    Json(#[source] serde_json::Error),
}

impl OvsError {
    /// Whether it is a matter of rights.
    pub fn is_not_allowed(&self) -> bool {
        match self {
            Self::Refused { code, .. } => matches!(code, 401 | 403),
            Self::Cluster { cause, .. } => {
                matches!(&**cause, kube::Error::Api(status) if matches!(status.code, 401 | 403))
            }
            Self::NoToken { .. } | Self::OwnToken => true,
            _ => false,
        }
    }
}
