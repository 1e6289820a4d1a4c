//! A scripted cloud on a socket: Keystone logs everybody in, and the rest answers as it was told.
//!
//! For what a real cloud does not do on demand: a token that is revoked in mid-life, `429` with `Retry-After`, a body
//! without end, nonsense instead of JSON.
//!
//! ```
//! use cobalt_openstack::{NovaClient, OpenStack, testing::{Reply, ScriptedCloud}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cloud = ScriptedCloud::start().await?;
//! cloud.on("GET", "/compute/v2.1/os-aggregates", [Reply::status(503).header("retry-after", "0"),
//!     Reply::json(r#"{"aggregates": []}"#)]);
//! let openstack = OpenStack::connect(&cloud.cloud()).await?;
//! assert!(openstack.nova().aggregates().await?.is_empty());
//! assert_eq!(cloud.requests("/compute/v2.1/os-aggregates").len(), 2);
//! # Ok(())
//! # }
//! ```

mod script;

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Limited, combinators::BoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinHandle};

use script::Script;
pub use script::{Reply, Seen};

use crate::Cloud;

/// No request of ours is larger.
const LARGEST: usize = 1 << 20;

/// A cloud that answers as told, until dropped.
///
/// Keystone is at `/identity/v3`, Nova at `/compute/v2.1`, Placement at `/placement`, Glance at `/image/v2` and Neutron at
/// `/network/v2.0`.
#[derive(Debug)]
pub struct ScriptedCloud {
    address: String,
    script: Arc<Mutex<Script>>,
    serving: JoinHandle<()>,
}

impl Drop for ScriptedCloud {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl ScriptedCloud {
    /// A cloud on a free port of this machine.
    pub async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let script = Arc::new(Mutex::new(Script::new(&address)));
        let serving = tokio::spawn(serve(listener, script.clone()));
        Ok(Self { address, script, serving })
    }

    /// How to log in to it.
    pub fn cloud(&self) -> Cloud {
        match Cloud::from_vars(self.environment()) {
            Ok(cloud) => cloud,
            Err(error) => unreachable!("our own variables are complete: {error}"),
        }
    }

    /// The same as variables.
    pub fn environment(&self) -> Vec<(String, String)> {
        let address = format!("http://{}/identity", self.address);
        let pairs = [
            ("OS_AUTH_URL", address.as_str()),
            ("OS_USERNAME", "operator"),
            ("OS_PASSWORD", "secret"),
            ("OS_USER_DOMAIN_NAME", "Default"),
            ("OS_PROJECT_NAME", "admin"),
            ("OS_PROJECT_DOMAIN_NAME", "Default"),
            ("OS_REGION_NAME", "RegionOne"),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Answers requests for this path with these replies, one after the other; the last one stays.
    pub fn on(&self, method: &str, path: &str, replies: impl IntoIterator<Item = Reply>) {
        self.script().on(method, path, replies);
    }

    /// Replaces the catalog that comes with a token.
    pub fn set_catalog(&self, catalog: serde_json::Value) {
        self.script().catalog = catalog;
    }

    /// How long the tokens from now on are good.
    pub fn set_token_life(&self, life: Duration) {
        self.script().life = life;
    }

    /// Accepts none of the tokens given out so far.
    pub fn revoke_tokens(&self) {
        self.script().revoke();
    }

    /// Answers the next logins so, before it lets anybody in again.
    pub fn fail_logins(&self, replies: impl IntoIterator<Item = Reply>) {
        self.script().logins.extend(replies);
    }

    /// How many logins there were.
    pub fn logins(&self) -> u64 {
        self.script().given
    }

    /// The requests for this path so far.
    pub fn requests(&self, path: &str) -> Vec<Seen> {
        self.script().seen.iter().filter(|seen| seen.path == path).cloned().collect()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(listener: TcpListener, script: Arc<Mutex<Script>>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let script = script.clone();
        // Dropped with the set, when the cloud is.
        connections.spawn(async move {
            let service = service_fn(move |request| answer(script.clone(), request));
            // A client that goes away is the client's business.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

type Body = BoxBody<Bytes, std::io::Error>;

async fn answer(script: Arc<Mutex<Script>>, request: Request<Incoming>) -> Result<Response<Body>, std::io::Error> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, LARGEST).collect().await.map_err(std::io::Error::other)?.to_bytes();
    let headers: HeaderMap = parts.headers;
    let (method, path) = (parts.method.as_str(), parts.uri.path());
    let query = parts.uri.query().unwrap_or_default();
    let reply = script.lock().unwrap_or_else(PoisonError::into_inner).reply(method, path, query, &headers, &body);
    tokio::time::sleep(reply.delay).await;
    if reply.cut {
        return Err(std::io::Error::other("told so"));
    }
    let mut response = Response::new(reply.body());
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    Ok(response)
}

/// A body that does not fail.
fn whole(bytes: Bytes) -> Body {
    http_body_util::Full::new(bytes).map_err(|never: Infallible| match never {}).boxed()
}
