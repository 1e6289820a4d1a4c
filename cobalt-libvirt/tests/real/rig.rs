//! Hosts that the tests share, and ways to look at them.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use cobalt_libvirt::{
    EventSubscription, Libvirt, Notice,
    event::{EventId, EventKind, Message},
};
use cobalt_rig::{Act, Guest, Host, Hosts, Kernel};
use futures::StreamExt;

/// Whatever is to happen has happened by then, also on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);

/// Two hosts and a kernel.
pub(crate) struct Rig {
    pub(crate) hosts: Hosts,
    kernel: Option<Kernel>,
}

impl Rig {
    /// The rig of this process, or `None` after telling why there is none. It ends with the last test that uses it.
    pub(crate) fn shared(test: &str) -> Option<Arc<Rig>> {
        static SHARED: Mutex<Weak<Rig>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rig) = shared.upgrade() {
            return Some(rig);
        }
        let rig = Arc::new(Rig::own(test, 2)?);
        *shared = Arc::downgrade(&rig);
        Some(rig)
    }

    /// A rig that nobody else has, for tests that end daemons.
    pub(crate) fn own(test: &str, hosts: usize) -> Option<Rig> {
        if !cobalt_rig::available(test) {
            return None;
        }
        let hosts = Hosts::up(hosts).expect("hosts");
        // Cargo's directory for integration tests lies directly below the target directory.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let kernel = Kernel::prepare(target, &hosts.shared());
        if let Err(error) = &kernel {
            cobalt_rig::skip(&format!("{test} (what its guests do)"), &error.to_string());
        }
        Some(Rig { hosts, kernel: kernel.ok() })
    }

    /// The host on which most things happen.
    pub(crate) fn host(&self) -> &Host {
        self.hosts.host(0)
    }

    /// The host to migrate to.
    pub(crate) fn other(&self) -> &Host {
        self.hosts.host(1)
    }

    /// A guest that does something, if there is a kernel to do it.
    pub(crate) fn guest(&self, name: &str, act: Act) -> Option<Guest> {
        self.kernel.as_ref().map(|kernel| Guest::new(name).act(kernel, act))
    }
}

/// Defines a guest and starts it.
pub(crate) fn start(host: &Host, guest: &Guest) {
    host.define(guest).unwrap();
    host.virsh(["start", guest.name()]).unwrap();
}

/// Ends a guest and removes its definition, whether or not it runs.
pub(crate) fn remove(host: &Host, guest: &Guest) {
    let _ = host.virsh(["destroy", guest.name()]);
    host.virsh(["undefine", guest.name()]).unwrap();
}

/// Waits until a guest has booted.
pub(crate) async fn booted(host: &Host, guest: &Guest) {
    until("the guest is up", || host.console(guest.name()).contains("guest: up")).await;
}

/// Waits for a condition that nobody announces.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LIMIT, waiting).await.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"));
}

pub(crate) async fn connect(uri: &str) -> Libvirt {
    Libvirt::connect(uri).await.unwrap()
}

/// Every kind of event that there is.
pub(crate) const ALL: [EventId; 17] = [
    EventId::Lifecycle,
    EventId::Reboot,
    EventId::Watchdog,
    EventId::IoError,
    EventId::IoErrorReason,
    EventId::ControlError,
    EventId::BlockJob,
    EventId::DeviceRemoved,
    EventId::BlockJob2,
    EventId::AgentLifecycle,
    EventId::DeviceAdded,
    EventId::MigrationIteration,
    EventId::JobCompleted,
    EventId::DeviceRemovalFailed,
    EventId::MemoryFailure,
    EventId::Tunable,
    EventId::MetadataChange,
];

/// What happens to one domain.
pub(crate) struct Events {
    stream: EventSubscription,
    name: String,
    /// What has been seen so far, in order.
    pub(crate) seen: Vec<EventKind>,
}

impl Events {
    pub(crate) async fn of(libvirt: &Libvirt, guest: &Guest) -> Events {
        let stream = libvirt.subscribe(&ALL).await.unwrap();
        Events { stream, name: guest.name().to_owned(), seen: Vec::new() }
    }

    /// The next event of the domain.
    async fn next(&mut self) -> EventKind {
        loop {
            match self.stream.next().await {
                Some(Notice::Message(Message::Event(event))) if event.domain.name == self.name => return event.kind,
                Some(Notice::Message(_)) => {}
                Some(notice) => panic!("events are lost: {notice:?}"),
                None => panic!("the stream ended after {:?}", self.seen),
            }
        }
    }

    /// Waits for an event; those before it are kept in `seen`, and so is it.
    pub(crate) async fn until(&mut self, what: &str, wanted: impl Fn(&EventKind) -> bool) {
        let waiting = async {
            loop {
                let kind = self.next().await;
                self.seen.push(kind);
                if self.seen.last().is_some_and(&wanted) {
                    return;
                }
            }
        };
        let came = tokio::time::timeout(LIMIT, waiting).await.is_ok();
        assert!(came, "{what}: not within {LIMIT:?}; there were {:?}", self.seen);
    }

    /// Waits for the last of `wanted`. All of them must have been seen by then, in this order; others may lie between.
    pub(crate) async fn sequence(&mut self, wanted: &[EventKind]) {
        let Some(last) = wanted.last() else { return };
        self.until(&format!("{last:?}"), |kind| kind == last).await;
        let mut seen = self.seen.iter();
        for kind in wanted {
            assert!(seen.any(|other| other == kind), "{kind:?} is missing, or too late, in {:?}", self.seen);
        }
    }
}
