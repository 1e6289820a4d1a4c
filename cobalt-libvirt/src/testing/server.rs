//! The scripted daemon.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream},
    net::{TcpListener, UnixListener},
    sync::watch,
    task::JoinHandle,
};

use super::{
    answer::{Answer, Event},
    model::Model,
    plan::{Accept, Fault, Plan},
    recording::Recording,
    session::{self, Session},
    wire::{Identity, Writer},
};

/// Callback numbers begin here: a client must not assume small ones.
const FIRST_CALLBACK: i32 = 17;

#[derive(Debug)]
pub(super) struct State {
    pub(super) model: Model,
    pub(super) plan: Plan,
    pub(super) counts: BTreeMap<u32, u64>,
    pub(super) sessions: BTreeMap<u64, Session>,
    pub(super) next_callback: i32,
    pub(super) kinds: i32,
    next_session: u64,
    clients: watch::Sender<usize>,
}

impl State {
    pub(super) fn enter(&mut self, session: Session) -> u64 {
        self.next_session += 1;
        self.sessions.insert(self.next_session, session);
        self.clients.send_replace(self.sessions.len());
        self.next_session
    }

    pub(super) fn leave(&mut self, session: u64) {
        self.sessions.remove(&session);
        self.clients.send_replace(self.sessions.len());
    }

    /// Sends what the last deed gave to tell.
    pub(super) fn tell_pending(&mut self) {
        for event in self.model.take_events() {
            self.tell(&event);
        }
    }

    fn tell(&self, event: &Event) {
        for session in self.sessions.values() {
            session.tell(event);
        }
    }
}

#[derive(Debug)]
pub(super) struct Inner {
    state: Mutex<State>,
    endpoints: Mutex<Vec<Endpoint>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Inner {
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep(&self, task: JoinHandle<()>) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    fn take_tasks(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[derive(Debug, Clone)]
enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Ends everything when the last handle goes.
#[derive(Debug)]
struct Guard(Arc<Inner>);

impl Drop for Guard {
    fn drop(&mut self) {
        for task in self.0.take_tasks() {
            task.abort();
        }
        for endpoint in self.0.endpoints() {
            if let Endpoint::Unix(path) = endpoint {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// A libvirt daemon that does as it is told. Clones are handles to the same one; it ends with the last of them.
///
/// It answers calls, in this order, by what was scripted ([`next`](Self::next), [`lacks`](Self::lacks),
/// [`always`](Self::always)), by its model (domains that can be defined, started, listed and so on, with the events
/// the recorded driver sends), and by the recording.
#[derive(Debug, Clone)]
pub struct Server {
    inner: Arc<Inner>,
    _guard: Arc<Guard>,
}

impl Server {
    /// A daemon with the driver of this recording and without domains, that does not listen yet.
    pub fn replay(recording: Recording) -> Self {
        let state = State {
            model: Model::new(recording),
            plan: Plan::default(),
            counts: BTreeMap::new(),
            sessions: BTreeMap::new(),
            next_callback: FIRST_CALLBACK,
            kinds: session::KINDS,
            next_session: 0,
            clients: watch::Sender::new(0),
        };
        let (endpoints, tasks) = (Mutex::default(), Mutex::default());
        let inner = Arc::new(Inner { state: Mutex::new(state), endpoints, tasks });
        let guard = Arc::new(Guard(inner.clone()));
        Self { inner, _guard: guard }
    }

    /// Listens on a free TCP port of this machine.
    pub async fn listen_tcp(&self) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        self.remember(Endpoint::Tcp(address));
        self.accept_tcp(listener);
        Ok(address)
    }

    /// Listens on a unix socket at this path, such as `…/libvirt-sock` or `…/virtchd-sock`.
    pub fn listen_unix(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let listener = UnixListener::bind(path.as_ref())?;
        self.remember(Endpoint::Unix(path.as_ref().to_owned()));
        self.accept_unix(listener);
        Ok(())
    }

    /// Serves a client on a stream that is already there.
    pub fn serve<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.inner.keep(tokio::spawn(session::serve(self.inner.clone(), stream)));
    }

    /// The client's end of a connection within this process.
    pub fn duplex(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        self.serve(ours);
        theirs
    }

    fn remember(&self, endpoint: Endpoint) {
        self.inner.endpoints.lock().unwrap_or_else(PoisonError::into_inner).push(endpoint);
    }

    fn accept_tcp(&self, listener: TcpListener) {
        let inner = self.inner.clone();
        self.inner.keep(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                inner.keep(tokio::spawn(session::serve(inner.clone(), stream)));
            }
        }));
    }

    fn accept_unix(&self, listener: UnixListener) {
        let inner = self.inner.clone();
        self.inner.keep(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                inner.keep(tokio::spawn(session::serve(inner.clone(), stream)));
            }
        }));
    }

    /// Ends the daemon: connections are cut, new ones are refused. Domains live on, as they do under a real one.
    pub async fn stop(&self) {
        for task in self.inner.take_tasks() {
            task.abort();
            // Only once the task is gone is its socket free again.
            let _ = task.await;
        }
        self.inner.with(|state| {
            state.sessions.clear();
            state.clients.send_replace(0);
        });
        for endpoint in self.inner.endpoints() {
            if let Endpoint::Unix(path) = endpoint {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Lets a stopped daemon listen again where it did before.
    pub async fn start(&self) -> io::Result<()> {
        for endpoint in self.inner.endpoints() {
            match endpoint {
                Endpoint::Tcp(address) => self.accept_tcp(TcpListener::bind(address).await?),
                Endpoint::Unix(path) => self.accept_unix(UnixListener::bind(path)?),
            }
        }
        Ok(())
    }

    /// Cuts all connections and goes on listening.
    pub fn cut(&self) {
        self.inner.with(|state| state.sessions.values().for_each(Session::close));
    }

    /// Falls silent on all connections there are, without closing them: no answers, no events, no pongs.
    pub fn mute(&self) {
        self.inner.with(|state| state.sessions.values_mut().for_each(Session::mute));
    }

    /// How connections are received from now on.
    pub fn accept(&self, how: Accept) {
        self.inner.with(|state| state.plan.accept = how);
    }

    /// The next call of this procedure gets this answer; several of them queue up.
    pub fn next(&self, procedure: u32, answer: Answer) {
        self.inner.with(|state| state.plan.next(procedure, answer));
    }

    /// Every call of this procedure gets this answer.
    pub fn always(&self, procedure: u32, answer: Answer) {
        self.inner.with(|state| state.plan.always(procedure, answer));
    }

    /// The driver lacks these procedures.
    pub fn lacks(&self, procedures: &[u32]) {
        self.inner.with(|state| state.plan.lack(procedures));
    }

    /// An older daemon: it knows only this many kinds of event, by libvirt's numbers for them.
    pub fn knows_events(&self, count: i32) {
        self.inner.with(|state| state.kinds = count);
    }

    /// This goes wrong with the next call of this procedure; several faults queue up.
    pub fn fault(&self, procedure: u32, fault: Fault) {
        self.inner.with(|state| state.plan.fault(procedure, fault));
    }

    /// Forgets everything that was scripted.
    pub fn heal(&self) {
        self.inner.with(|state| state.plan.clear());
    }

    /// Does what another client's call would do, events included.
    pub fn call(&self, procedure: u32, arguments: &Bytes) -> Answer {
        self.inner.with(|state| {
            let answer = state.model.answer(procedure, arguments);
            state.tell_pending();
            answer
        })
    }

    /// Defines a domain and starts it, as another client would; `None` if that is no UUID.
    pub fn start_domain(&self, name: &str, uuid: &str) -> Option<Identity> {
        let identity = Identity::new(name, uuid, -1)?;
        let xml = format!("<domain><name>{name}</name><uuid>{uuid}</uuid></domain>");
        self.call(350, &Writer::new().string(&xml).u32(0).finish());
        self.call(9, &Writer::new().domain(&identity).finish());
        self.domains().into_iter().find(|domain| domain.uuid == identity.uuid)
    }

    /// Ends a domain and removes its definition, as another client would.
    pub fn remove_domain(&self, domain: &Identity) {
        let arguments = Writer::new().domain(domain).u32(0).finish();
        self.call(12, &arguments);
        self.call(231, &arguments);
    }

    /// Puts a domain with exactly this XML there, without a word to anybody; `None` if it lacks a name or a UUID.
    pub fn put_domain(&self, xml: &str, running: bool) -> Option<Identity> {
        self.inner.with(|state| state.model.put(xml, running))
    }

    /// Takes a domain away without a word to anybody, and tells whether it was there.
    pub fn take_domain(&self, domain: &Identity) -> bool {
        self.inner.with(|state| state.model.take(&domain.uuid))
    }

    /// Sets libvirt's numbers for a domain's state and its reason without a word to anybody.
    pub fn set_state(&self, domain: &Identity, state: i32, reason: i32) -> bool {
        self.inner.with(|inner| inner.model.set_state(&domain.uuid, (state, reason)))
    }

    /// All domains, in order of their UUIDs.
    pub fn domains(&self) -> Vec<Identity> {
        self.inner.with(|state| state.model.identities())
    }

    /// Sends an event to everybody who registered for its kind.
    pub fn emit(&self, event: &Event) {
        self.inner.with(|state| state.tell(event));
    }

    /// Lets something happen; whether anybody hears of it is the driver's way. Tells whether it is told.
    pub fn happen(&self, event: &Event) -> bool {
        self.inner.with(|state| {
            let told = state.model.tells(event);
            if told {
                state.tell(event);
            }
            told
        })
    }

    /// How often a procedure was called.
    pub fn count(&self, procedure: u32) -> u64 {
        self.inner.with(|state| state.counts.get(&procedure).copied().unwrap_or_default())
    }

    /// How often each procedure was called.
    pub fn counts(&self) -> BTreeMap<u32, u64> {
        self.inner.with(|state| state.counts.clone())
    }

    /// Begins to count anew.
    pub fn reset_counts(&self) {
        self.inner.with(|state| state.counts.clear());
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        self.inner.with(|state| state.sessions.len())
    }

    /// How many callbacks are registered by all clients together.
    pub fn callbacks(&self) -> usize {
        self.inner.with(|state| state.sessions.values().map(Session::callbacks).sum())
    }

    /// Waits until there are exactly this many clients.
    pub async fn until_clients(&self, count: usize) {
        let mut clients = self.inner.with(|state| state.clients.subscribe());
        // The sender lives in the daemon that `self` keeps alive, so there is always an end to wait for.
        let _ = clients.wait_for(|found| *found == count).await;
    }
}
