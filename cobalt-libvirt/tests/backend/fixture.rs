//! A backend and the scripted daemon below it.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use cobalt_core::{
    backend::{BackendEvent, EventKind, HypervisorBackend},
    contract::{Provoked, Stop, backend::BackendFixture},
    ids::InstanceId,
};
use cobalt_libvirt::{
    BackendOptions, ConnectOptions, LibvirtBackend,
    testing::{Event, Identity, Recording, Server},
};
use futures::{StreamExt, stream::BoxStream};

/// Nothing that is waited for takes longer, however busy the machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// More events than anybody's queue holds.
const FLOOD: u64 = 3000;

/// A recording by the name of its files.
pub(crate) fn recording(name: &str) -> Recording {
    let read = |file: String| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded").join(file);
        Recording::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    read(format!("{name}.jsonl")).and(read(format!("{name}-messages.jsonl")))
}

/// A UUID of our own making.
pub(crate) fn uuid(number: usize) -> String {
    format!("55555555-bbbb-4000-8000-{number:012}")
}

/// Options that do not make a test wait.
pub(crate) fn options() -> BackendOptions {
    let connection = ConnectOptions::new().call_timeout(LIMIT).connect_timeout(LIMIT);
    BackendOptions::new().connection(connection).reconnect(Duration::from_millis(5), Duration::from_millis(50))
}

/// A backend on a replayed driver, over TCP.
pub(crate) async fn replayed(name: &str) -> (Server, LibvirtBackend) {
    replayed_with(name, options()).await
}

pub(crate) async fn replayed_with(name: &str, options: BackendOptions) -> (Server, LibvirtBackend) {
    let server = Server::replay(recording(name));
    let address = server.listen_tcp().await.unwrap();
    let driver = name.split('-').next().unwrap();
    let path = if driver == "test" { "default" } else { "system" };
    let backend = LibvirtBackend::connect(&format!("{driver}+tcp://{address}/{path}"), options).await.unwrap();
    assert!(backend.connection_state().connected, "{:?}", backend.connection_state());
    (server, backend)
}

/// The next event, which must come.
pub(crate) async fn next(events: &mut BoxStream<'static, BackendEvent>) -> BackendEvent {
    tokio::time::timeout(LIMIT, events.next()).await.expect("an event").expect("the stream goes on")
}

/// Waits for an event of this kind; everything else passes by.
pub(crate) async fn until(events: &mut BoxStream<'static, BackendEvent>, wanted: fn(&BackendEvent) -> bool) {
    while !wanted(&next(events).await) {}
}

pub(crate) fn is_disconnected(event: &BackendEvent) -> bool {
    matches!(event, BackendEvent::Disconnected(_))
}

pub(crate) fn is_connected(event: &BackendEvent) -> bool {
    *event == BackendEvent::Connected
}

/// What the contract suite drives.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) backend: LibvirtBackend,
    started: usize,
}

impl Fixture {
    pub(crate) fn new(server: Server, backend: LibvirtBackend) -> Self {
        Self { server, backend, started: 0 }
    }

    fn identity(&self, id: &InstanceId) -> Provoked<Identity> {
        let found = self.server.domains().into_iter().find(|domain| domain.uuid_text() == id.as_str());
        found.map_or_else(|| Stop::failed(format!("the daemon has no domain {id}")), Ok)
    }
}

#[async_trait]
impl BackendFixture for Fixture {
    fn backend(&self) -> Arc<dyn HypervisorBackend> {
        Arc::new(self.backend.clone())
    }

    async fn start_domain(&mut self) -> Provoked<InstanceId> {
        self.started += 1;
        let uuid = uuid(self.started);
        match self.server.start_domain(&format!("instance-{}", self.started), &uuid) {
            Some(_) => Ok(InstanceId::from(uuid)),
            None => Stop::failed("the daemon took no domain"),
        }
    }

    async fn remove_domain(&mut self, id: &InstanceId) -> Provoked<()> {
        self.server.remove_domain(&self.identity(id)?);
        Ok(())
    }

    async fn provoke(&mut self, id: &InstanceId, kind: EventKind) -> Provoked<()> {
        let domain = self.identity(id)?;
        let event = match kind {
            EventKind::Reboot => Event::reboot(&domain),
            EventKind::Watchdog => Event::watchdog(&domain, 2),
            EventKind::IoError => Event::io_error(&domain, "/srv/a.img", "virtio-disk0", 1, "enospc"),
            EventKind::JobCompleted => Event::job_completed(&domain, &[("time_elapsed", 7)]),
            EventKind::MigrationIteration => Event::migration_iteration(&domain, 1),
            EventKind::ControlError => Event::control_error(&domain),
            EventKind::AgentLifecycle => Event::agent_lifecycle(&domain, 2),
            EventKind::MemoryFailure => Event::memory_failure(&domain, 1, 0),
            EventKind::DeviceRemoved => Event::device_removed(&domain, "net1"),
            _ => return Stop::cannot(format!("provoke a {kind:?} event")),
        };
        self.server.happen(&event);
        Ok(())
    }

    async fn flood(&mut self) -> Provoked<u64> {
        let id = self.start_domain().await?;
        let domain = self.identity(&id)?;
        let mut through = self.backend.events();
        for _ in 0..FLOOD {
            self.server.emit(&Event::lifecycle(&domain, 4, 0));
        }
        // Only once all of them are through the backend is a reader that did not read behind.
        let mut seen = 0;
        while seen < FLOOD {
            seen += if let BackendEvent::Lagged(lost) = next(&mut through).await { lost } else { 1 };
        }
        Ok(FLOOD)
    }

    async fn cut_connection(&mut self) -> Provoked<()> {
        self.server.stop().await;
        Ok(())
    }

    async fn restore_connection(&mut self) -> Provoked<()> {
        self.server.start().await.map_err(|error| Stop::Failed(error.to_string()))
    }

    fn open_streams(&self) -> Provoked<usize> {
        Ok(self.backend.listeners())
    }
}
