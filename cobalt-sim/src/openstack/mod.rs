//! The region's cloud as an OpenStack: Keystone, Nova, Placement, Glance and Neutron on one socket.
//!
//! Programs that know nothing of Cobalt's seams, or that are to be tried with the client they are shipped with, talk to
//! a simulated region as they would to a real cloud: `cobalt-operator`, `openstack` on a command line, your own client
//! in your own language.
//!
//! ```
//! use cobalt_sim::Region;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let region = Region::builder().hosts(3).vms_per_host(8).build();
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let address = listener.local_addr()?;
//! for (name, value) in region.openstack().environment(address) {
//!     println!("export {name}={value}");
//! }
//! let stop = async { /* until somebody has seen enough */ };
//! region.serve_openstack(listener, stop).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Where things are
//!
//! | Service | Below | What of it |
//! |---|---|---|
//! | Keystone | `/identity/v3`, `/v3` | tokens by password, application credential or token; catalog; revocation |
//! | Nova | `/compute/v2.1` | services, hypervisors, servers and their actions, migrations, aggregates, flavors; 2.1 to 2.95 |
//! | Placement | `/placement` | providers, inventories, usages, traits, allocations, candidates; 1.0 to 1.39 |
//! | Glance | `/image/v2` | images |
//! | Neutron | `/network/v2.0` | networks |
//!
//! Lists come in pages (`limit`, `marker`, links), errors with each service's own status and body, and every answer has
//! a request id. There is more in Nova than what is here; what is not here answers 404 in Nova's words.
//!
//! # Logging in
//!
//! Everybody is let in as an administrator until [`OpenStackApi::set_user`] says who. A login is for the region's own
//! project, by whatever name, unless its scope names another project of the region (`project-1` to `project-8`).
//! Tokens end after [`OpenStackApi::set_token_life`]; [`OpenStackApi::revoke_tokens`] ends all of them, and the next
//! request with an old one is answered 401.
//!
//! # Faults
//!
//! The faults of the API are those of its handles: [`OpenStackApi::nova`], [`OpenStackApi::placement`] and
//! [`OpenStackApi::test_bed`] have [`Faults`](crate::faults::Faults) by the methods of the seams, and a request is
//! struck by the fault of the method that a client would call it for. What a seam says as an error is an answer here:
//!
//! | Fault | Answer |
//! |---|---|
//! | `Unavailable`, or [`World::set_nova_available`](crate::World::set_nova_available) | 503 |
//! | `Busy` | 429 with `Retry-After` |
//! | `Internal` | 500 |
//! | `Conflict`, `Refused`, `Denied`, `NotFound` | 409, 400, 403, 404 |
//! | `Malformed` | 200 with something that is no JSON |
//! | `Timeout`, a lost answer | the connection ends without an answer |
//! | a delay, a hang | the answer comes late, or the connection ends after half a minute |
//!
//! # Counting
//!
//! [`OpenStackApi::counters`] has the requests by method and route, which is what a client costs its cloud.
//!
//! # Without a socket
//!
//! [`OpenStackApi::answer`] takes a request in process, also where time is virtual.

mod answer;
mod call;
mod compute;
mod counters;
mod discovery;
mod identity;
mod image;
mod network;
mod page;
mod placement;
mod route;
mod serve;
#[cfg(test)]
mod tests;
mod tokens;
mod version;

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cobalt_core::ids::HostName;
use http::{HeaderMap, Request, Response, StatusCode, header, request::Parts};
use http_body::Body;
use http_body_util::{BodyExt, Full, Limited};
use tokio::{net::TcpListener, time::Instant};
use uuid::Uuid;

pub use self::counters::Counters;
use self::{
    answer::{Answer, Refusal},
    call::{Call, Query},
    route::Found,
    tokens::{Shown, Tokens},
    version::{COMPUTE, PLACEMENT, Version},
};
use crate::{
    nova::{SimNova, SimPlacement, SimTestBed},
    world::World,
};

/// No request may be larger, as in Nova.
const LARGEST: usize = 112 << 10;
/// How long a request may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// The services, each with its own way to say no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    Identity,
    Compute,
    Placement,
    Image,
    Network,
}

impl Service {
    fn of(path: &str) -> Self {
        match path.split('/').find(|segment| !segment.is_empty()) {
            Some("compute") => Self::Compute,
            Some("placement") => Self::Placement,
            Some("image") => Self::Image,
            Some("network") => Self::Network,
            _ => Self::Identity,
        }
    }

    fn versions(self) -> Option<version::Range> {
        match self {
            Self::Compute => Some(COMPUTE),
            Self::Placement => Some(PLACEMENT),
            Self::Identity | Self::Image | Self::Network => None,
        }
    }
}

/// All routes; [`Counters`] know them by these names.
const TABLES: [&[&str]; 6] =
    [discovery::ROUTES, identity::ROUTES, compute::ROUTES, placement::ROUTES, image::ROUTES, network::ROUTES];

#[derive(Debug, Clone)]
struct Settings {
    region: String,
    user: Option<(String, String)>,
    token_life: Duration,
    page_size: usize,
}

#[derive(Debug)]
struct Inner {
    world: World,
    nova: SimNova,
    placement: SimPlacement,
    test_bed: SimTestBed,
    settings: Mutex<Settings>,
    tokens: Mutex<Tokens>,
    counters: Counters,
    requests: AtomicU64,
}

impl Inner {
    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tokens(&self) -> MutexGuard<'_, Tokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nova without the faults of the API: for what a request needs besides what it is for.
    fn plain_nova(&self) -> SimNova {
        SimNova::new(self.world.clone())
    }

    /// What Nova called a host's records before they had UUIDs.
    fn number_of(&self, host: &HostName) -> u32 {
        self.world.with(|state| state.host_id(host)).map_or(0, |id| id.number() + 1)
    }

    fn login_of(&self, token: &str) -> Result<Shown, Refusal> {
        self.tokens().find(token, Instant::now()).ok_or_else(Refusal::unauthorized)
    }
}

/// The connection ends without an answer: a fault wants it so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection ends without an answer, as an injected fault wants it")]
pub struct NoAnswer;

/// The cloud of a region as an OpenStack API; from [`Region::openstack`](crate::Region::openstack). Clones are handles
/// to the same one.
///
/// ```
/// use cobalt_sim::Region;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let region = Region::builder().hosts(1).build();
/// let api = region.openstack();
/// let request = http::Request::get("/compute/v2.1/os-services").body(String::new())?;
/// let answer = api.answer(request).await?;
/// assert_eq!(answer.status(), 401, "nobody has logged in");
/// assert_eq!(api.counters().of("GET /compute/v2.1/os-services"), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct OpenStackApi {
    inner: Arc<Inner>,
}

impl OpenStackApi {
    pub(crate) fn new(world: &World, seed: u64) -> Self {
        let settings =
            Settings { region: "RegionOne".into(), user: None, token_life: Duration::from_secs(3600), page_size: 1000 };
        let inner = Inner {
            nova: SimNova::new(world.clone()),
            placement: SimPlacement::new(world.clone()),
            test_bed: SimTestBed::new(world.clone()),
            world: world.clone(),
            settings: Mutex::new(settings),
            tokens: Mutex::new(Tokens::new(seed)),
            counters: Counters::default(),
            requests: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Nova behind the API: its faults strike those who ask over HTTP.
    pub fn nova(&self) -> &SimNova {
        &self.inner.nova
    }

    /// Placement behind the API.
    pub fn placement(&self) -> &SimPlacement {
        &self.inner.placement
    }

    /// Images, networks and flavors behind the API.
    pub fn test_bed(&self) -> &SimTestBed {
        &self.inner.test_bed
    }

    /// How often what was asked for.
    pub fn counters(&self) -> &Counters {
        &self.inner.counters
    }

    /// Lets nobody in but this user; as an application credential, this id or name with this secret.
    pub fn set_user(&self, name: &str, password: &str) {
        self.inner.settings().user = Some((name.to_owned(), password.to_owned()));
    }

    /// What the region is called in the catalog; `RegionOne` unless told.
    pub fn set_region_name(&self, name: &str) {
        name.clone_into(&mut self.inner.settings().region);
    }

    /// How long the tokens from now on are good; an hour unless told.
    pub fn set_token_life(&self, life: Duration) {
        self.inner.settings().token_life = life;
    }

    /// How much comes in one page of Nova's lists at most, whatever is asked for; 1000 unless told.
    pub fn set_page_size(&self, most: usize) {
        self.inner.settings().page_size = most.max(1);
    }

    /// Accepts none of the tokens given out so far.
    pub fn revoke_tokens(&self) {
        self.inner.tokens().revoke_all();
    }

    /// The variables by which OpenStack clients find the API at this address.
    pub fn environment(&self, address: SocketAddr) -> Vec<(String, String)> {
        let settings = self.inner.settings();
        let (user, password) = settings.user.clone().unwrap_or_else(|| ("operator".into(), "simulated".into()));
        let pairs = [
            ("OS_AUTH_URL", format!("http://{address}/identity/v3")),
            ("OS_IDENTITY_API_VERSION", "3".into()),
            ("OS_USERNAME", user),
            ("OS_PASSWORD", password),
            ("OS_USER_DOMAIN_NAME", "Default".into()),
            ("OS_PROJECT_NAME", "operator".into()),
            ("OS_PROJECT_DOMAIN_NAME", "Default".into()),
            ("OS_REGION_NAME", settings.region.clone()),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }

    /// The same as a file for a shell to read.
    pub fn openrc(&self, address: SocketAddr) -> String {
        let quoted = |value: &str| format!("'{}'", value.replace('\'', r"'\''"));
        let line = |(name, value): (String, String)| ["export ", &name, "=", &quoted(&value), "\n"].concat();
        self.environment(address).into_iter().map(line).collect()
    }

    /// Serves the API on a socket until `shutdown` is ready, then closes all connections. Time is real there.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> std::io::Result<()> {
        serve::serve(self, listener, shutdown).await
    }

    /// Answers one request.
    pub async fn answer<B>(&self, request: Request<B>) -> Result<Response<Full<Bytes>>, NoAnswer>
    where
        B: Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let number = self.inner.requests.fetch_add(1, Ordering::Relaxed);
        let request_id = format!("req-{}", Uuid::from_u128(u128::from(number) + 1));
        let service = Service::of(parts.uri.path());
        let versions = service.versions();
        let version = versions.map_or(Ok(Version(0, 0)), |range| range.asked(&parts.headers));
        let told = version.as_ref().ok().copied();
        let answer = match read(body).await {
            Ok(body) => attend(&self.inner, &parts, &body, version).await,
            Err(refusal) => Err(refusal),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(refusal) => refusal.answer(service, &request_id).ok_or(NoAnswer)?,
        };
        let answer = finish(answer, service, told, &request_id);
        let mut response = Response::new(Full::new(answer.body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        Ok(response)
    }
}

/// The whole body, bounded in size and time.
async fn read<B>(body: B) -> Result<Bytes, Refusal>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let reading = tokio::time::timeout(PATIENCE, Limited::new(body, LARGEST).collect());
    match reading.await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "Request is too large."))
        }
        Ok(Err(_)) => Err(Refusal::bad("The request body cannot be read.")),
        Err(_) => Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "The request took too long to arrive.")),
    }
}

/// What all answers of a service have.
fn finish(answer: Answer, service: Service, version: Option<Version>, request_id: &str) -> Answer {
    let mut answer = answer.header("x-openstack-request-id", request_id);
    if service == Service::Compute {
        answer = answer.header("x-compute-request-id", request_id);
    }
    if answer.status == StatusCode::UNAUTHORIZED {
        answer = answer.header("www-authenticate", "Keystone uri=\"/identity\"");
    }
    if let (Some(range), Some(version)) = (service.versions(), version) {
        answer = answer.header("openstack-api-version", &format!("{} {version}", range.service));
        answer = answer.header("vary", "OpenStack-API-Version");
        if let Some(own) = range.own_header {
            answer = answer.header(own, &version.to_string());
        }
    }
    answer
}

/// Where the caller found us, in the caller's own words: there may be a name or a tunnel in between.
fn base(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.and_then(|host| host.parse::<http::uri::Authority>().ok());
    host.map_or_else(|| "http://localhost".to_owned(), |host| format!("http://{host}"))
}

async fn attend(api: &Inner, parts: &Parts, body: &[u8], version: Result<Version, Refusal>) -> Result<Answer, Refusal> {
    let (route, parameters) = match route::find(&TABLES, &parts.method, parts.uri.path()) {
        Found::Route(route, parameters) => (route, parameters),
        Found::WrongMethod => {
            api.counters.count(counters::OTHER);
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "The method is not allowed for this resource."));
        }
        Found::Nothing => {
            api.counters.count(counters::OTHER);
            return Err(Refusal::missing("The resource could not be found."));
        }
    };
    api.counters.count(route);
    let base = base(&parts.headers);
    if discovery::ROUTES.contains(&route) {
        return Ok(discovery::answer(route, &base));
    }
    if identity::ROUTES.contains(&route) {
        return identity::answer(api, route, &parts.headers, body, &base);
    }
    let token = parts.headers.get("x-auth-token").and_then(|token| token.to_str().ok()).unwrap_or_default();
    let login = api.login_of(token)?.login;
    let call = Call {
        api,
        parameters,
        query: Query::parse(parts.uri.query().unwrap_or_default()),
        body,
        version: version?,
        project: login.project.map(|(id, _)| id).unwrap_or_default(),
        base,
    };
    match Service::of(parts.uri.path()) {
        Service::Compute => compute::answer(route, &call).await,
        Service::Placement => placement::answer(route, &call).await,
        Service::Image => image::answer(route, &call).await,
        Service::Network | Service::Identity => network::answer(route, &call).await,
    }
}
