//! A real Keystone, Placement, Glance and Nova with some computes, on one machine.
//!
//! Everything is of the newest release, from PyPI; only the guests are not real: the virt driver keeps them in a file
//! and does to them as it is told ([`Compute`]). MariaDB and RabbitMQ are the machine's own programs, with data and ports
//! of this rig. All of it lives in namespaces of its own, so that it meets neither another rig nor the daemons that a
//! package manager may have started, and nothing of it is left when they end.
//!
//! ```text
//!   us ── 10.231.n.11 ──┬── keystone :5000    nova-api :8774   placement :8778   glance :9292
//!                       ├── nova-conductor, nova-scheduler, nova-compute × N
//!                       └── mariadb, rabbitmq, a stand-in for Neutron          (127.0.0.1 within)
//! ```
//!
//! The first start on a machine fills the databases, which takes minutes; a copy of them is kept beside the Python
//! environment, and the later starts begin with it.

mod compute;
mod config;
mod launcher;
mod queries;
mod shared;
mod state;
mod venv;
mod verbs;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

pub use compute::{Compute, ComputeGuest, GuestState, GuestWatch};
pub use queries::{SeenAggregate, SeenMigration, SeenProvider, SeenServer, SeenService};
pub use shared::Turn;
pub use venv::Venv;
pub use verbs::Boot;

use crate::error::{Error, Result, create};
use crate::namespace::Namespace;
use crate::network::Network;
use crate::place::Place;
use config::Layout;
use launcher::{Launcher, Pid};

/// The whole of it, on a machine with more to do.
const START_LIMIT: Duration = Duration::from_secs(300);

/// A step towards a condition that nobody announces.
const PAUSE: Duration = Duration::from_millis(200);

/// A service of the control plane that can be stopped and started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ControlService {
    /// Keystone.
    Keystone,
    /// Placement.
    Placement,
    /// Glance.
    Glance,
    /// Nova's API.
    NovaApi,
    /// Nova's conductor.
    NovaConductor,
    /// Nova's scheduler.
    NovaScheduler,
}

impl ControlService {
    fn name(self) -> &'static str {
        match self {
            ControlService::Keystone => "keystone",
            ControlService::Placement => "placement",
            ControlService::Glance => "glance",
            ControlService::NovaApi => "nova-api",
            ControlService::NovaConductor => "nova-conductor",
            ControlService::NovaScheduler => "nova-scheduler",
        }
    }
}

/// Who logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Account {
    /// The cloud's administrator, in the project `admin`.
    Operator,
    /// Who runs smoke tests, in the project `test`. To choose a host is an administrator's right, so this is one too.
    Tester,
    /// A customer, in the project `demo`.
    Customer,
}

impl Account {
    /// The names of the user and of the project.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Account::Operator => ("admin", "admin"),
            Account::Tester => ("test", "test"),
            Account::Customer => ("demo", "demo"),
        }
    }
}

/// A running control plane with computes, until dropped.
#[derive(Debug)]
pub struct ControlPlane {
    // In the order of their end: the processes, then the wire, then the directory.
    launcher: Launcher,
    _namespace: Namespace,
    _network: Network,
    layout: Layout,
    address: String,
    image: String,
    phases: Vec<(&'static str, Duration)>,
    running: Mutex<Vec<(ControlService, Pid)>>,
    computes: Mutex<Vec<(String, Option<Pid>)>>,
    _place: Place,
}

impl ControlPlane {
    /// Brings it up with computes of these names. Returns when all of them are ready for servers.
    pub fn up(venv: &Venv, computes: &[&str]) -> Result<ControlPlane> {
        let mut phases = Phases::begin();
        let base = std::env::temp_dir().join("cobalt-rig");
        let place = Place::claim(&base)?;
        let network = Network::new(&place)?;
        let mut namespace = Namespace::new()?;
        let layout = Layout { directory: place.directory().join("openstack") };
        // Not the whole place, whose number would be free at once and claimed by somebody else before we let go of it.
        namespace.remove_at_end(&layout.directory)?;
        let address = network.connect(&place, 1, &namespace)?;
        layout.write_control(venv)?;
        let launcher = Launcher::start(&namespace, venv, &layout)?;
        phases.end("namespaces and launcher");
        let broker = state::bring(&launcher, venv, &layout)?;
        state::publish(&layout, &namespace, &address)?;
        phases.end("databases");
        let mut plane = ControlPlane {
            launcher,
            _namespace: namespace,
            _network: network,
            layout,
            address,
            image: String::new(),
            phases: Vec::new(),
            running: Mutex::default(),
            computes: Mutex::default(),
            _place: place,
        };
        plane.launcher.start_neutron(&plane.layout)?;
        // Programs of their own, which import what they need while the launcher imports Nova.
        for service in [ControlService::Keystone, ControlService::Placement, ControlService::Glance] {
            plane.start(service)?;
        }
        plane.launcher.preload()?;
        phases.end("imports of Nova");
        state::wait_for_broker(&plane.launcher, &plane.layout, broker)?;
        for service in [ControlService::NovaConductor, ControlService::NovaApi, ControlService::NovaScheduler] {
            plane.start(service)?;
        }
        // A compute that cannot reach these at its start ends.
        plane.wait_for("placement", "/resource_providers", |_| true)?;
        phases.end("Keystone and Placement");
        for name in computes {
            plane.start_compute(name)?;
        }
        plane.wait_for("compute", "/os-services?binary=nova-compute", |_| true)?;
        plane.wait_for("image", "/v2/images", |_| true)?;
        phases.end("Nova's API and Glance");
        plane.image = plane.launcher.furnish()?;
        phases.end("image and flavors");
        for name in computes {
            plane.wait_for_compute(name)?;
        }
        phases.end("computes");
        plane.phases = phases.told;
        Ok(plane)
    }

    /// What its start was made of, and how long each part took.
    pub fn phases(&self) -> &[(&'static str, Duration)] {
        &self.phases
    }

    /// The address that its services have for us.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Keystone.
    pub fn auth_url(&self) -> String {
        format!("http://{}:5000/v3", self.address)
    }

    /// What a client needs in its environment to be its administrator.
    pub fn environment(&self) -> BTreeMap<String, String> {
        self.environment_of(Account::Operator)
    }

    /// The same for another account.
    pub fn environment_of(&self, account: Account) -> BTreeMap<String, String> {
        let (user, project) = account.names();
        let pairs = [
            ("OS_AUTH_URL", self.auth_url()),
            ("OS_USERNAME", user.to_owned()),
            ("OS_PASSWORD", config::PASSWORD.to_owned()),
            ("OS_USER_DOMAIN_NAME", "Default".to_owned()),
            ("OS_PROJECT_NAME", project.to_owned()),
            ("OS_PROJECT_DOMAIN_NAME", "Default".to_owned()),
            ("OS_REGION_NAME", "RegionOne".to_owned()),
            ("OS_INTERFACE", "public".to_owned()),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The id of an image that boots, as far as guests here do.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// The id of a flavor without a local disk, and of one with.
    pub fn flavors(&self) -> (&'static str, &'static str) {
        ("1", "2")
    }

    /// A raw call as administrator: the status, and the body. `service` is `compute`, `identity`, ….
    pub fn api(&self, method: &str, service: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        self.api_as(Account::Operator, method, service, path, body)
    }

    /// The same by somebody else.
    pub fn api_as(
        &self,
        account: Account,
        method: &str,
        service: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value)> {
        self.launcher.api_as(account, method, service, path, body)
    }

    /// Starts a service unless it runs.
    pub fn start(&self, service: ControlService) -> Result<()> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.iter().any(|(other, _)| *other == service) {
            return Ok(());
        }
        running.push((service, self.launcher.start_control(service, &self.layout)?));
        Ok(())
    }

    /// Ends a service without a warning.
    pub fn kill(&self, service: ControlService) -> Result<()> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = running.iter().position(|(other, _)| *other == service) {
            let (_, pid) = running.swap_remove(index);
            self.launcher.kill(pid)?;
        }
        Ok(())
    }

    /// Adds a compute, or starts one again that was stopped or killed. Does not wait for it.
    pub fn start_compute(&self, name: &str) -> Result<()> {
        let mut computes = self.computes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = computes.iter_mut().find(|(other, _)| other == name);
        if known.as_ref().is_some_and(|(_, pid)| pid.is_some()) {
            return Ok(());
        }
        if known.is_none() {
            self.layout.write_compute(name)?;
        }
        let pid = Some(self.launcher.start_compute(name, &self.layout)?);
        match known {
            Some(known) => known.1 = pid,
            None => computes.push((name.to_owned(), pid)),
        }
        Ok(())
    }

    /// Ends a compute without a warning. Its guests are still in its files.
    pub fn kill_compute(&self, name: &str) -> Result<()> {
        self.take_compute(name).map_or(Ok(()), |pid| self.launcher.kill(pid))
    }

    /// Asks a compute to end and waits until it has, as kubelet does with the pod of a node that may run it no longer.
    /// Nova sees its service as down when it has not reported for half a minute. Its guests are still in its files.
    pub fn stop_compute(&self, name: &str) -> Result<()> {
        let Some(pid) = self.take_compute(name) else { return Ok(()) };
        self.launcher.tell(pid, 15)?;
        let ended = self.wait_until(&format!("the end of nova-compute of {name}"), || !self.launcher.is_alive(pid));
        // It must not come back to life in anybody's books.
        ended.or_else(|_| self.launcher.kill(pid))
    }

    /// Whether a compute's process is there.
    pub fn compute_runs(&self, name: &str) -> bool {
        let computes = self.computes.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = computes.iter().find(|(other, _)| other == name).and_then(|(_, pid)| *pid);
        pid.is_some_and(|pid| self.launcher.is_alive(pid))
    }

    fn take_compute(&self, name: &str) -> Option<Pid> {
        let mut computes = self.computes.lock().unwrap_or_else(PoisonError::into_inner);
        computes.iter_mut().find(|(other, _)| other == name).and_then(|(_, pid)| pid.take())
    }

    /// What a compute has, and how to make it behave differently.
    pub fn compute(&self, name: &str) -> Compute {
        Compute::new(self.layout.compute(name))
    }

    /// Waits until Nova and its scheduler know a compute, and hear from it.
    pub fn wait_for_compute(&self, name: &str) -> Result<()> {
        let path = format!("/os-hypervisors?hypervisor_hostname_pattern={name}");
        self.wait_for("compute", &path, |body| {
            let all = body["hypervisors"].as_array().into_iter().flatten();
            all.into_iter().any(|one| one["hypervisor_hostname"] == name && one["state"] == "up")
        })
    }

    /// Asks until an answer is a success and as wanted.
    fn wait_for(&self, service: &str, path: &str, mut wanted: impl FnMut(&Value) -> bool) -> Result<()> {
        self.wait_until(&format!("{service} {path} ready"), || {
            // Before it listens there is no answer at all.
            let answer = self.api("GET", service, path, None);
            answer.is_ok_and(|(status, body)| status < 300 && wanted(&body))
        })
    }

    /// Waits for a condition that nobody announces, as long as everything runs that should.
    fn wait_until(&self, what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
        let started = Instant::now();
        while !condition() {
            if let Some(name) = self.fallen() {
                return Err(Error::Failed { command: name, said: format!("it ended by itself{}", self.tail()) });
            }
            if started.elapsed() > START_LIMIT {
                return Err(Error::Late {
                    what: format!("no {what}: {}", self.tail()),
                    seconds: START_LIMIT.as_secs(),
                });
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// A service or compute that should run and does not.
    fn fallen(&self) -> Option<String> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let dead = running.iter().find(|(_, pid)| !self.launcher.is_alive(*pid));
        if let Some((service, _)) = dead {
            return Some(service.name().to_owned());
        }
        let computes = self.computes.lock().unwrap_or_else(PoisonError::into_inner);
        let dead = computes.iter().find(|(_, pid)| pid.is_some_and(|pid| !self.launcher.is_alive(pid)));
        dead.map(|(name, _)| format!("nova-compute of {name}"))
    }

    /// The last lines of all logs that complain.
    pub fn tail(&self) -> String {
        let mut text = String::new();
        for entry in std::fs::read_dir(self.layout.logs()).into_iter().flatten().flatten() {
            let log = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let bad = |line: &&str| ["ERROR", "CRITICAL", "Traceback", "Error:"].iter().any(|word| line.contains(word));
            let lines: Vec<&str> = log.lines().filter(bad).collect();
            for line in &lines[lines.len().saturating_sub(3)..] {
                // Writing to a String does not fail.
                let _ = write!(text, "\n{}: {line}", entry.file_name().display());
            }
        }
        text
    }

    /// Where the logs are.
    pub fn logs(&self) -> PathBuf {
        self.layout.logs()
    }
}

/// A stopwatch.
struct Phases {
    since: Instant,
    told: Vec<(&'static str, Duration)>,
}

impl Phases {
    fn begin() -> Phases {
        Phases { since: Instant::now(), told: Vec::new() }
    }

    fn end(&mut self, name: &'static str) {
        self.told.push((name, self.since.elapsed()));
        self.since = Instant::now();
    }
}

/// Copies a directory with everything in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let words = ["-a", "--sparse=always", "--reflink=auto"].map(std::ffi::OsStr::new);
    create(to.parent().unwrap_or(to))?;
    crate::process::run("cp", words.into_iter().chain([from.as_os_str(), to.as_os_str()])).map(drop)
}
