//! Hosts: power, operating system, units, network, and everything that can befall them.
//!
//! ```text
//!            power_on            boot time
//!   Off ───────────────▶ Booting ──────────▶ Up ◀──────▶ Hung
//!    ▲                      │                │  hang/unhang │
//!    └──────────────────────┴────────────────┴──────────────┘
//!        power_cut, power_off (after a moment), end of a shutdown
//! ```
//!
//! Each edge to or from *Off* begins a new epoch of the host; what was planned in an older one does not happen.

use std::{collections::BTreeMap, time::Duration};

use cobalt_core::{
    backend::{BackendEvent, EventKind, Features, HostCell},
    host::{ActiveState, HostEvent},
    ids::HostName,
    ovs::OvsChange,
};
use tokio::sync::watch;
use uuid::Uuid;

use super::{Domain, HostId, State, World, switch::Switch, time::Due};
use crate::{
    error::{Result, SimError},
    topic::Topic,
};

/// Which hypervisor a host runs, and with it what its backend can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Driver {
    /// QEMU behind libvirt: everything.
    #[default]
    Qemu,
    /// Cloud Hypervisor behind libvirt: no statistics, no domain capabilities, no jobs, no migration through the
    /// backend, lifecycle events only.
    CloudHypervisor,
}

impl Driver {
    /// The driver's own name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::CloudHypervisor => "ch",
        }
    }

    /// Nova's word for it.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Qemu => "QEMU",
            Self::CloudHypervisor => "CH",
        }
    }

    /// What its backend can do.
    pub fn features(self) -> Features {
        match self {
            Self::Qemu => Features {
                domain_capabilities: true,
                stats: true,
                jobs: true,
                migration: true,
                power: true,
                events: EventKind::ALL.to_vec(),
            },
            Self::CloudHypervisor => {
                Features { power: true, events: vec![EventKind::Lifecycle], ..Features::default() }
            }
        }
    }

    fn sends(self, kind: EventKind) -> bool {
        self == Self::Qemu || kind == EventKind::Lifecycle
    }
}

/// How far a host's operating system is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Os {
    /// Nothing runs.
    Down,
    /// There is power, and soon an operating system.
    Booting,
    /// It works.
    Up,
    /// It has power and does nothing: guests run on, nobody answers.
    Hung,
}

/// What a program on the host feels of its host's fortunes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Vitals {
    pub(crate) os: Os,
    /// The cluster and the cloud can be reached.
    pub(crate) connected: bool,
    /// Another number is another boot.
    pub(crate) boot: u32,
}

impl Vitals {
    /// Whether the cluster would hear from this host.
    pub(crate) fn heard(self) -> bool {
        self.os == Os::Up && self.connected
    }
}

/// A host as one sees it standing in front of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostStatus {
    /// Whether it has power.
    pub powered: bool,
    /// Whether its operating system works.
    pub running: bool,
    /// Whether it has power and does nothing.
    pub hung: bool,
    /// Whether it is cut off from the cluster and the cloud.
    pub partitioned: bool,
    /// Its active VMs.
    pub active_vms: usize,
}

/// One host.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: HostName,
    pub(crate) driver: Driver,
    pub(crate) cells: Vec<HostCell>,
    pub(crate) power: bool,
    pub(crate) os: Os,
    pub(crate) boot_id: Uuid,
    pub(crate) os_version: String,
    pub(crate) partitioned: bool,
    pub(crate) bmc_reachable: bool,
    /// The libvirt daemon answers.
    pub(crate) daemon: bool,
    pub(crate) domains: BTreeMap<Uuid, Domain>,
    pub(crate) switch: Switch,
    pub(crate) events: Topic<BackendEvent>,
    pub(crate) os_events: Topic<HostEvent>,
    pub(crate) switch_changes: Topic<OvsChange>,
    /// The compute agent's process runs whenever the operating system does.
    pub(crate) compute_wanted: bool,
    pub(crate) compute_running: bool,
    pub(crate) epoch: u32,
    pub(crate) inhibitors: u32,
    pub(crate) vitals: watch::Sender<Vitals>,
    next_version: Option<String>,
    units: BTreeMap<String, ActiveState>,
    /// A shutdown is under way; whether it is a reboot.
    shutdown: Option<bool>,
}

const LIBVIRTD: &str = "libvirtd.service";
const SWITCH: &str = "openvswitch-switch.service";
const UPDATE: &str = "systemd-sysupdate";
const UPDATE_REBOOT: &str = "systemd-sysupdate-reboot.target";
const UPDATE_TLS: &str = "virt-admin-server-update-tls.service";

impl Host {
    /// A host that is up, with its compute agent not yet started.
    pub(crate) fn new(name: HostName, driver: Driver, cells: Vec<HostCell>, boot_id: Uuid) -> Self {
        let units =
            [(LIBVIRTD, ActiveState::Active), (SWITCH, ActiveState::Active), (UPDATE_TLS, ActiveState::Inactive)];
        Self {
            name,
            driver,
            cells,
            power: true,
            os: Os::Up,
            boot_id,
            os_version: "1877.2".into(),
            partitioned: false,
            bmc_reachable: true,
            daemon: true,
            domains: BTreeMap::new(),
            switch: Switch::default(),
            events: Topic::default(),
            os_events: Topic::default(),
            switch_changes: Topic::default(),
            compute_wanted: false,
            compute_running: false,
            epoch: 0,
            inhibitors: 0,
            vitals: watch::Sender::new(Vitals { os: Os::Up, connected: true, boot: 0 }),
            next_version: None,
            units: units.into_iter().map(|(name, state)| (name.to_owned(), state)).collect(),
            shutdown: None,
        }
    }

    /// Whether the hypervisor daemon would answer a call.
    pub(crate) fn answers(&self) -> bool {
        self.os == Os::Up && self.daemon
    }

    pub(crate) fn status(&self) -> HostStatus {
        HostStatus {
            powered: self.power,
            running: self.os == Os::Up,
            hung: self.os == Os::Hung,
            partitioned: self.partitioned,
            active_vms: self.domains.values().filter(|domain| domain.state.is_active()).count(),
        }
    }

    /// A unit's state, `None` if there is no such unit.
    pub(crate) fn unit(&self, name: &str) -> Option<ActiveState> {
        match self.units.get(name) {
            Some(state) => Some(state.clone()),
            None if name.starts_with(UPDATE) => Some(ActiveState::Inactive),
            None => None,
        }
    }

    fn set_unit(&mut self, name: &str, state: ActiveState) {
        if self.unit(name).as_ref() != Some(&state) {
            self.units.insert(name.to_owned(), state);
            self.os_events.publish(&HostEvent::UnitChanged(name.to_owned()));
        }
    }

    /// Tells the readers of the hypervisor's events that nobody answers any more.
    fn disconnect(&mut self, why: &str) {
        self.events.publish(&BackendEvent::Disconnected(why.to_owned()));
    }

    /// Tells those who watch how the host is now; `true` if that is news.
    fn feel(&self) -> bool {
        let alive = matches!(self.os, Os::Up | Os::Hung);
        let now = Vitals { os: self.os, connected: alive && !self.partitioned, boot: self.epoch };
        self.vitals.send_if_modified(|before| std::mem::replace(before, now) != now)
    }

    pub(crate) fn sends(&self, kind: EventKind) -> bool {
        self.answers() && self.driver.sends(kind)
    }
}

/// What can befall a host.
impl World {
    fn on_host(&self, operation: &str, host: &HostName, act: impl FnOnce(&mut State, HostId)) -> Result<()> {
        self.with(|state| {
            let id = state.find(operation, host)?;
            act(state, id);
            Ok(())
        })
    }

    /// Takes the power away at once: guests end without a word, nobody answers, and the BMC says off.
    pub fn power_cut(&self, host: &HostName) -> Result<()> {
        self.on_host("cut power", host, |state, id| state.power_gone(id, "loses its power"))
    }

    /// Gives power; the operating system is there after its boot time.
    pub fn power_on(&self, host: &HostName) -> Result<()> {
        self.on_host("power on", host, State::power_on)
    }

    /// Stops the operating system without taking the power: guests run on, nobody answers.
    pub fn hang(&self, host: &HostName) -> Result<()> {
        self.with(|state| {
            let id = state.find("hang", host)?;
            if state.host(id).os != Os::Up {
                return Err(SimError::not_now(format!("hang {host}"), "its operating system does not run"));
            }
            state.host_mut(id).os = Os::Hung;
            state.note(format!("{host} hangs"));
            state.host_changed(id);
            Ok(())
        })
    }

    /// Lets a hung host go on where it stopped, guests and all.
    pub fn unhang(&self, host: &HostName) -> Result<()> {
        self.with(|state| {
            let id = state.find("unhang", host)?;
            if state.host(id).os != Os::Hung {
                return Err(SimError::not_now(format!("unhang {host}"), "it does not hang"));
            }
            state.host_mut(id).os = Os::Up;
            state.note(format!("{host} goes on"));
            state.host_changed(id);
            Ok(())
        })
    }

    /// Restarts the host's libvirt daemon. Guests do not notice; whoever is connected does.
    pub fn restart_daemon(&self, host: &HostName) -> Result<()> {
        self.with(|state| {
            let id = state.find("restart libvirt daemon", host)?;
            state.stop_daemon(id, ActiveState::Activating, "the libvirt daemon restarts")?;
            let epoch = state.host(id).epoch;
            state.plan(state.timing.daemon_restart, Due::DaemonUp(id, epoch));
            Ok(())
        })
    }

    /// Stops the host's libvirt daemon until [`World::start_daemon`].
    pub fn stop_daemon(&self, host: &HostName) -> Result<()> {
        self.with(|state| {
            let id = state.find("stop libvirt daemon", host)?;
            state.stop_daemon(id, ActiveState::Inactive, "the libvirt daemon stopped")
        })
    }

    /// Starts the host's libvirt daemon.
    pub fn start_daemon(&self, host: &HostName) -> Result<()> {
        self.on_host("start libvirt daemon", host, |state, id| {
            let epoch = state.host(id).epoch;
            state.daemon_up(id, epoch);
        })
    }

    /// Cuts the host off from the cluster and the cloud (`true`), or connects it again. Its guests run on.
    pub fn partition(&self, host: &HostName, cut: bool) -> Result<()> {
        self.on_host("partition", host, |state, id| {
            if state.host(id).partitioned != cut {
                state.host_mut(id).partitioned = cut;
                let what = if cut { "is cut off from the network" } else { "is back on the network" };
                state.note(format!("{host} {what}"));
                state.host_changed(id);
            }
        })
    }

    /// Makes the host's BMC answer, or not.
    pub fn set_bmc_reachable(&self, host: &HostName, reachable: bool) -> Result<()> {
        self.on_host("change BMC", host, |state, id| state.host_mut(id).bmc_reachable = reachable)
    }

    /// Sets a unit's state, as if it had failed or been stopped on the host.
    pub fn set_unit(&self, host: &HostName, unit: &str, active: ActiveState) -> Result<()> {
        self.on_host("set unit", host, |state, id| state.host_mut(id).set_unit(unit, active))
    }

    /// Shuts the host down in an orderly way: those who delay it are heard first.
    pub fn shut_down(&self, host: &HostName) -> Result<()> {
        self.on_host("shut down", host, |state, id| state.begin_shutdown(id, false))
    }

    /// Reboots the host in an orderly way: those who delay it are heard first.
    pub fn reboot(&self, host: &HostName) -> Result<()> {
        self.on_host("reboot", host, |state, id| state.begin_shutdown(id, true))
    }

    /// Takes an announced shutdown back, if it has not begun.
    pub fn cancel_shutdown(&self, host: &HostName) -> Result<()> {
        self.on_host("cancel shutdown", host, |state, id| {
            let host = state.host_mut(id);
            if host.shutdown.take().is_some() {
                host.os_events.publish(&HostEvent::PrepareForShutdown(false));
            }
        })
    }
}

impl State {
    /// Tells programs, cluster and cloud how a host is now. To be called whenever that may have changed.
    pub(crate) fn host_changed(&mut self, id: HostId) {
        self.refresh_compute(id);
        if self.host(id).feel() {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// The moment of darkness.
    pub(crate) fn power_gone(&mut self, id: HostId, how: &str) {
        let host = self.host_mut(id);
        if !host.power {
            return;
        }
        let name = host.name.clone();
        host.power = false;
        self.note(format!("{name} {how}"));
        self.os_gone(id, "the host is gone");
    }

    /// The operating system ends, and everything on it.
    fn os_gone(&mut self, id: HostId, why: &str) {
        let host = self.host_mut(id);
        host.os = Os::Down;
        host.epoch = host.epoch.wrapping_add(1);
        host.inhibitors = 0;
        host.shutdown = None;
        host.compute_running = false;
        host.daemon = false;
        host.disconnect(why);
        self.all_guests_end(id);
        self.host_gone(id);
        self.host_changed(id);
        self.host_mut(id).switch_changes.publish(&OvsChange::Connected(false));
    }

    pub(crate) fn power_on(&mut self, id: HostId) {
        let host = self.host_mut(id);
        if host.power {
            return;
        }
        host.power = true;
        host.epoch = host.epoch.wrapping_add(1);
        let name = host.name.clone();
        self.note(format!("{name} gets power"));
        self.begin_boot(id);
    }

    fn begin_boot(&mut self, id: HostId) {
        let host = self.host_mut(id);
        host.os = Os::Booting;
        let epoch = host.epoch;
        self.host_changed(id);
        self.plan(self.timing.boot, Due::OsUp(id, epoch));
    }

    /// Plans a power-off, as a BMC does it.
    pub(crate) fn request_power_off(&mut self, id: HostId) {
        let epoch = self.host(id).epoch;
        self.plan(self.timing.power_off, Due::PowerOff(id, epoch));
    }

    pub(super) fn power_off_due(&mut self, id: HostId, epoch: u32) {
        if self.host(id).epoch == epoch {
            self.power_gone(id, "is switched off");
        }
    }

    pub(super) fn os_up(&mut self, id: HostId, epoch: u32) {
        if self.host(id).epoch != epoch {
            return;
        }
        let boot_id = self.random_uuid();
        let host = self.host_mut(id);
        host.os = Os::Up;
        host.boot_id = boot_id;
        host.daemon = true;
        host.switch.recover();
        if let Some(version) = host.next_version.take() {
            host.os_version = version;
        }
        for unit in [LIBVIRTD, SWITCH] {
            host.units.insert(unit.to_owned(), ActiveState::Active);
        }
        host.events.publish(&BackendEvent::Connected);
        host.os_events.publish(&HostEvent::Resync);
        host.switch_changes.publish(&OvsChange::Connected(true));
        let name = host.name.clone();
        if host.compute_wanted {
            self.plan(self.timing.compute_start, Due::ComputeUp(id, epoch));
        }
        self.note(format!("{name} is up"));
        self.host_changed(id);
    }

    fn stop_daemon(&mut self, id: HostId, unit: ActiveState, why: &str) -> Result<()> {
        let host = self.host_mut(id);
        if !host.answers() {
            return Err(SimError::not_now(format!("stop libvirt daemon of {}", host.name), "it does not run"));
        }
        host.daemon = false;
        host.set_unit(LIBVIRTD, unit);
        host.disconnect(why);
        let text = format!("{}: {why}", host.name);
        self.note(text);
        Ok(())
    }

    pub(super) fn daemon_up(&mut self, id: HostId, epoch: u32) {
        let host = self.host_mut(id);
        if host.epoch != epoch || host.daemon || !matches!(host.os, Os::Up | Os::Hung) {
            return;
        }
        host.daemon = true;
        host.set_unit(LIBVIRTD, ActiveState::Active);
        host.events.publish(&BackendEvent::Connected);
        let text = format!("{}: the libvirt daemon is back", host.name);
        self.note(text);
    }

    fn begin_shutdown(&mut self, id: HostId, reboot: bool) {
        let delay = self.timing.inhibit_delay;
        let host = self.host_mut(id);
        if host.os != Os::Up || host.shutdown.is_some() {
            return;
        }
        host.shutdown = Some(reboot);
        host.os_events.publish(&HostEvent::PrepareForShutdown(true));
        let (epoch, held) = (host.epoch, host.inhibitors > 0);
        let text = format!("{} wants to {}", host.name, if reboot { "reboot" } else { "shut down" });
        self.note(text);
        self.plan(if held { delay } else { Duration::ZERO }, Due::ShutdownNow(id, epoch));
    }

    /// One who delayed shutdowns does so no longer.
    pub(crate) fn inhibitor_dropped(&mut self, id: HostId, epoch: u32) {
        let host = self.host_mut(id);
        if host.epoch != epoch {
            return;
        }
        host.inhibitors = host.inhibitors.saturating_sub(1);
        if host.inhibitors == 0 && host.shutdown.is_some() {
            self.plan(Duration::ZERO, Due::ShutdownNow(id, epoch));
        }
    }

    pub(super) fn shutdown_due(&mut self, id: HostId, epoch: u32) {
        let host = self.host_mut(id);
        if host.epoch != epoch {
            return;
        }
        let Some(reboot) = host.shutdown else { return };
        let name = host.name.clone();
        if reboot {
            self.note(format!("{name} reboots"));
            self.os_gone(id, "the host reboots");
            self.begin_boot(id);
        } else {
            self.power_gone(id, "shuts down");
        }
    }

    /// Starts a unit. `false` if there is no such unit.
    pub(crate) fn start_unit(&mut self, id: HostId, name: &str) -> bool {
        let update = self.timing.os_update;
        let host = self.host_mut(id);
        let Some(active) = host.unit(name) else { return false };
        let epoch = host.epoch;
        if name == UPDATE_REBOOT {
            self.begin_shutdown(id, true);
        } else if name.starts_with(UPDATE) {
            host.set_unit(name, ActiveState::Activating);
            self.plan(update, Due::UnitDone(id, epoch, name.to_owned()));
        } else if name == UPDATE_TLS {
            host.set_unit(name, ActiveState::Activating);
            self.plan(Duration::from_secs(1), Due::UnitDone(id, epoch, name.to_owned()));
        } else if name == LIBVIRTD {
            self.daemon_up(id, epoch);
        } else if active != ActiveState::Active {
            host.set_unit(name, ActiveState::Active);
        }
        true
    }

    pub(super) fn unit_done(&mut self, id: HostId, epoch: u32, name: &str) {
        let host = self.host_mut(id);
        // A unit that somebody made fail meanwhile has not done its work.
        if host.epoch != epoch || host.unit(name) != Some(ActiveState::Activating) {
            return;
        }
        host.set_unit(name, ActiveState::Inactive);
        let version = name.strip_prefix("systemd-sysupdate@").and_then(|rest| rest.strip_suffix(".service"));
        if let Some(version) = version {
            host.next_version = Some(version.to_owned());
        }
    }
}
