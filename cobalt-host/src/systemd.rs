//! A host with systemd, over the system bus.

mod follow;
mod units;

use std::{
    error::Error as _,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use cobalt_core::{
    Error, Result,
    host::{ActiveState, HostEvent, HostFeatures, HostSystem, OsFacts, ShutdownInhibitor, Unit},
};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::{sync::broadcast, task::JoinHandle};
use tracing::{debug, warn};
use zbus::{OwnedFd, OwnedObjectPath, OwnedVariant};

use crate::{
    bus::{Bus, DBUS, Service},
    error::BusError,
    events, facts,
    options::Options,
};
use units::FollowedUnits;

const SYSTEMD: Service = Service {
    name: "org.freedesktop.systemd1",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};
const LOGIND: Service = Service {
    name: "org.freedesktop.login1",
    path: "/org/freedesktop/login1",
    interface: "org.freedesktop.login1.Manager",
};
const HOSTNAMED: Service = Service {
    name: "org.freedesktop.hostname1",
    path: "/org/freedesktop/hostname1",
    interface: "org.freedesktop.hostname1",
};

/// One line of systemd's `ListUnitsByNames`.
type Listed = (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

/// A host with systemd: units from systemd, facts from hostnamed and the kernel's files, shutdowns from logind.
///
/// It lives as long as the agent does, whatever becomes of the bus: while that is away, calls are
/// [`Error::Unavailable`], and when it is back, [`HostEvent::Resync`] says so. It needs no privileges to look; logind
/// and systemd decide whether our user may delay a shutdown or start a unit.
#[derive(Debug)]
pub struct Systemd {
    shared: Arc<Shared>,
    root: PathBuf,
    who: String,
    follower: JoinHandle<()>,
}

/// What the calls and the follower of the signals share.
#[derive(Debug)]
struct Shared {
    bus: Bus,
    events: broadcast::Sender<HostEvent>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    units: FollowedUnits,
    /// A shutdown is announced and not taken back.
    shutting_down: bool,
    /// Logind runs or could be started. Taken for granted until the bus says otherwise.
    logind: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everybody; that nobody listens is fine.
    fn tell(&self, events: impl IntoIterator<Item = HostEvent>) {
        for event in events {
            let _ = self.events.send(event);
        }
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl Systemd {
    /// Connects to the host's system bus and follows it from now on.
    ///
    /// A bus that is not there (yet) is no error: it is looked for until it comes. Only options that can never work
    /// are, such as an address that is none.
    pub async fn connect(options: &Options) -> Result<Self> {
        let state = State { units: FollowedUnits::default(), shutting_down: false, logind: true };
        let shared = Shared { bus: Bus::new(options)?, events: events::channel(), state: Mutex::new(state) };
        let shared = Arc::new(shared);
        // The first attempt is made here, so that whoever listens after this call misses nothing.
        let first = follow::subscribe(&shared).await;
        if let Err(error) = &first {
            warn!(%error, cause = error.source(), "the system bus cannot be followed yet");
        }
        let follower = tokio::spawn(follow::run(shared.clone(), first.ok()));
        Ok(Self { shared, root: options.root.clone(), who: options.who.clone(), follower })
    }

    /// Whether systemd is on the bus now.
    pub(crate) async fn is_present(&self) -> Result<bool> {
        self.shared.bus.call("look for systemd on the bus", DBUS, "NameHasOwner", &(SYSTEMD.name,)).await
    }

    /// What hostnamed tells: its description, or its properties if it is too old for that.
    async fn host_named(&self) -> Result<OsFacts> {
        let operation = "read facts from hostnamed";
        match self.shared.bus.call::<_, String>(operation, HOSTNAMED, "Describe", &()).await {
            Ok(description) => facts::from_description(&description).map_err(|how| Error::malformed(operation, how)),
            Err(error) if error.is_unsupported() => {
                let all = (HOSTNAMED.interface,);
                let properties = self.shared.bus.call(operation, HOSTNAMED.properties(), "GetAll", &all).await?;
                Ok(facts::from_properties(&properties))
            }
            Err(error) => Err(error),
        }
    }

    async fn max_delay(&self) -> Result<Option<Duration>> {
        let property = (LOGIND.interface, "InhibitDelayMaxUSec");
        let value: OwnedVariant =
            self.shared.bus.call("read InhibitDelayMaxUSec", LOGIND.properties(), "Get", &property).await?;
        // The largest number is systemd's infinity. None at all is told as such: then no shutdown waits for anybody.
        let limit = u64::try_from(value).ok().filter(|limit| *limit != u64::MAX);
        Ok(limit.map(Duration::from_micros))
    }
}

/// Whether the bus answered that this service does not exist here. The bus itself being away is something else.
fn is_absent(error: &Error) -> bool {
    let answer = error.source().and_then(|cause| cause.downcast_ref::<BusError>()).and_then(BusError::answer);
    let Some((name, _)) = answer else { return error.is_unsupported() };
    let name = name.as_str();
    ["ServiceUnknown", "NameHasNoOwner"].iter().any(|word| name.ends_with(word))
        || name.starts_with("org.freedesktop.DBus.Error.Spawn.")
        // The unit that would start the service is masked or missing.
        || name.starts_with("org.freedesktop.systemd1.")
}

#[async_trait]
impl HostSystem for Systemd {
    fn features(&self) -> HostFeatures {
        HostFeatures { units: true, start_units: true, shutdown_inhibitor: self.shared.state().logind }
    }

    async fn facts(&self) -> Result<OsFacts> {
        let told = match self.host_named().await {
            Ok(facts) => facts,
            Err(error) if is_absent(&error) => {
                debug!(%error, "no hostnamed, reading files only");
                OsFacts::default()
            }
            Err(error) => return Err(error),
        };
        let root = self.root.clone();
        let read = move || (facts::kernel_and_machine(&root), facts::os_release(&root));
        let (kernel, release) =
            tokio::task::spawn_blocking(read).await.map_err(|error| Error::unavailable("read facts", error))?;
        // An agent in a container may see the os-release of its image; hostnamed sees the host's.
        let foreign =
            told.version.is_some() || (told.pretty_version.is_some() && told.pretty_version != release.pretty_version);
        let release = if foreign { OsFacts::default() } else { release };
        Ok(facts::complete(facts::complete(told, kernel), release))
    }

    async fn units(&self, names: &[String]) -> Result<Vec<Unit>> {
        let operation = format!("read units {}", names.join(", "));
        let asked: Vec<&str> = names.iter().map(String::as_str).filter(|name| units::is_valid_name(name)).collect();
        let mut listed: Vec<Listed> = Vec::new();
        if !asked.is_empty() {
            // A unit under another name than its own is heard of only once its own is known: then read once more.
            for _ in 0..2 {
                let since = self.shared.state().units.asked(asked.iter().copied());
                listed = self.shared.bus.call(&operation, SYSTEMD, "ListUnitsByNames", &(&asked,)).await?;
                let mut state = self.shared.state();
                let heard = asked.iter().enumerate().all(|(index, name)| {
                    line(&listed, asked.len(), index, name).is_none_or(|(id, _, _, active, _, _, path, ..)| {
                        state.units.read(name, id, path.as_str(), &ActiveState::parse(active), since)
                    })
                });
                if heard {
                    break;
                }
            }
        }
        let mut position = 0;
        let unit = |name: &String| {
            let line = if units::is_valid_name(name) {
                position += 1;
                line(&listed, asked.len(), position - 1, name)
            } else {
                None
            };
            let (active, load_state) = match line {
                Some((_, _, load, active, ..)) => (ActiveState::parse(active), load.clone()),
                None => (ActiveState::Inactive, "not-found".to_owned()),
            };
            Unit { name: name.clone(), active, load_state }
        };
        Ok(names.iter().map(unit).collect())
    }

    fn events(&self) -> BoxStream<'static, HostEvent> {
        // Under the lock, so that an announcement is heard either as what is or as what comes.
        let state = self.shared.state();
        let receiver = self.shared.events.subscribe();
        let announced = state.shutting_down.then_some(HostEvent::PrepareForShutdown(true));
        drop(state);
        stream::iter(announced).chain(events::follow(receiver)).boxed()
    }

    async fn start_unit(&self, name: &str) -> Result<()> {
        let operation = format!("start unit {name}");
        if !units::is_valid_name(name) {
            return Err(Error::not_found(operation));
        }
        let job: OwnedObjectPath = self.shared.bus.call(&operation, SYSTEMD, "StartUnit", &(name, "replace")).await?;
        debug!(unit = name, job = job.as_str(), "start accepted");
        Ok(())
    }

    async fn inhibit_shutdown(&self, why: &str) -> Result<Box<dyn ShutdownInhibitor>> {
        let operation = format!("delay shutdown ({why})");
        if !self.features().shutdown_inhibitor {
            return Err(Error::unsupported(operation, "a host without logind"));
        }
        let body = ("sleep:shutdown", self.who.as_str(), why, "delay");
        let lock: OwnedFd = self.shared.bus.call(&operation, LOGIND, "Inhibit", &body).await?;
        let max_delay = self.max_delay().await.unwrap_or_else(|error| {
            debug!(%error, "how long a shutdown waits is unknown");
            None
        });
        Ok(Box::new(Inhibitor { _lock: lock, max_delay }))
    }
}

/// The line about the unit asked for at `index`. Systemd answers in order, under the units' own names; if it left
/// some out, only the names tell which.
fn line<'a>(listed: &'a [Listed], asked: usize, index: usize, name: &str) -> Option<&'a Listed> {
    if listed.len() == asked { listed.get(index) } else { listed.iter().find(|line| line.0 == name) }
}

/// Logind waits for as long as this descriptor is open, whatever becomes of the bus or of us.
#[derive(Debug)]
struct Inhibitor {
    _lock: OwnedFd,
    max_delay: Option<Duration>,
}

impl ShutdownInhibitor for Inhibitor {
    fn max_delay(&self) -> Option<Duration> {
        self.max_delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str) -> Listed {
        let text = || String::new();
        let root = || OwnedObjectPath::try_from("/").expect("a path");
        (name.to_owned(), text(), "loaded".into(), "active".into(), text(), text(), root(), 0, text(), root())
    }

    #[test]
    fn a_complete_answer_is_read_by_place_and_a_short_one_by_name() {
        let lines = [listed("own-name.service"), listed("b.service")];
        assert_eq!(line(&lines, 2, 0, "alias.service").map(|line| line.0.as_str()), Some("own-name.service"));
        assert_eq!(line(&lines, 3, 0, "alias.service"), None);
        assert_eq!(line(&lines, 3, 2, "b.service").map(|line| line.0.as_str()), Some("b.service"));
    }

    #[tokio::test]
    async fn an_address_that_is_none_is_refused_at_once() {
        for address in ["", "nonsense", "carrier-pigeon:path=/x"] {
            let refused = Systemd::connect(&Options::default().address(address)).await.expect_err("no address");
            assert_eq!(refused.category(), "refused", "{address}");
        }
    }
}
