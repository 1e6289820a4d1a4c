//! VMs on their hosts: what they are, and what befalls them from inside.

use std::time::Duration;

use cobalt_core::{
    backend::{
        BackendEvent, CellShare, DomainEvent, DomainState, IoErrorAction, Job, JobOperation, JobOutcome, Lifecycle,
        Progress, WatchdogAction,
    },
    ids::{HostName, InstanceId},
    ovs::OvsChange,
};
use tokio::{sync::oneshot, time::Instant};
use uuid::Uuid;

use super::{Host, HostId, State, World, instance, parse, time::Due};
use crate::error::{Result, SimError};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// A domain to be made on a host without Nova's knowledge, as a person with `virsh` would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmSpec {
    /// Its virtual CPUs.
    pub vcpus: u32,
    /// Its memory.
    pub memory_mb: u64,
    /// How many NUMA cells of the host it is bound to; 0 leaves it free.
    pub cells: u32,
}

impl Default for VmSpec {
    fn default() -> Self {
        Self { vcpus: 2, memory_mb: 4096, cells: 1 }
    }
}

/// One domain on one host. A VM that Nova knows has the same id there.
#[derive(Debug)]
pub(crate) struct Domain {
    /// libvirt's name is made of it.
    pub(crate) number: u32,
    pub(crate) state: DomainState,
    pub(crate) vcpus: u32,
    pub(crate) memory_mb: u64,
    /// The host's cells it is bound to: the first, and how many from there on.
    pub(crate) cells: (u32, u32),
    /// Nova made it.
    pub(crate) managed: bool,
    pub(crate) job: Option<Box<DomainJob>>,
    /// When it last began to run, and how long it had run before.
    running_since: Option<Instant>,
    ran: Duration,
}

/// A job on a domain, from which the figures of any moment follow.
#[derive(Debug)]
pub(crate) struct DomainJob {
    pub(crate) started: Instant,
    pub(crate) length: Duration,
    /// When it ended, and how.
    pub(crate) ended: Option<(Instant, JobOutcome)>,
    /// Where to, if libvirt was asked directly; and who waits for the end of it.
    direct: Option<(HostId, oneshot::Sender<std::result::Result<(), String>>)>,
    epoch: u32,
}

impl DomainJob {
    pub(crate) fn new(started: Instant, length: Duration) -> Self {
        Self { started, length, ended: None, direct: None, epoch: 0 }
    }
}

impl Domain {
    pub(crate) fn new(number: u32, vcpus: u32, memory_mb: u64, cells: (u32, u32), managed: bool) -> Self {
        Self {
            number,
            state: DomainState::ShutOff,
            vcpus,
            memory_mb,
            cells,
            managed,
            job: None,
            running_since: None,
            ran: Duration::ZERO,
        }
    }

    /// libvirt's name for it.
    pub(crate) fn name(&self) -> String {
        format!("instance-{:08x}", self.number)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_mb * MIB
    }

    /// What it takes of which cell of the host. What cannot be split evenly goes to the first cells.
    pub(crate) fn shares(&self) -> Vec<CellShare> {
        let (first, count) = self.cells;
        let cpu = u64::from(self.vcpus) * 1000;
        let part = |whole: u64, index: u32| {
            let count = u64::from(count);
            whole / count + u64::from(u64::from(index) < whole % count)
        };
        (0..count)
            .map(|index| CellShare {
                cell: first + index,
                memory_bytes: part(self.memory_bytes(), index),
                cpu_millis: part(cpu, index),
            })
            .collect()
    }

    /// How long its CPUs have run in all.
    pub(crate) fn run_time(&self, now: Instant) -> Duration {
        self.ran + self.running_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// How long it has been running without a break; `None` if it does not run.
    pub(crate) fn up_time(&self, now: Instant) -> Option<Duration> {
        self.running_since.map(|since| now.saturating_duration_since(since))
    }

    fn enter(&mut self, state: DomainState, now: Instant) {
        match (self.state == DomainState::Running, state == DomainState::Running) {
            (false, true) => self.running_since = Some(now),
            (true, false) => {
                self.ran = self.run_time(now);
                self.running_since = None;
            }
            _ => {}
        }
        self.state = state;
        if !state.is_active() {
            self.ran = Duration::ZERO;
        }
    }

    pub(crate) fn job_running(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.ended.is_none())
    }

    /// The job as libvirt would tell it at this moment.
    pub(crate) fn job_at(&self, now: Instant) -> Option<Job> {
        let job = self.job.as_deref()?;
        let (end, outcome) = job.ended.unwrap_or((now, JobOutcome::Running));
        let elapsed = end.saturating_duration_since(job.started);
        let total = self.memory_bytes();
        let share =
            if job.length.is_zero() { 1.0 } else { (elapsed.as_secs_f64() / job.length.as_secs_f64()).min(1.0) };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let processed = if outcome == JobOutcome::Completed { total } else { (total as f64 * share) as u64 };
        let progress = Progress { total: Some(total), processed: Some(processed), remaining: Some(total - processed) };
        let rate = u64::try_from(u128::from(total) * 1000 / job.length.as_millis().max(1)).unwrap_or(u64::MAX);
        Some(Job {
            operation: JobOperation::MigrationOut,
            outcome,
            elapsed: Some(elapsed),
            remaining: (outcome == JobOutcome::Running).then(|| job.length.saturating_sub(elapsed)),
            downtime: (outcome == JobOutcome::Completed).then_some(Duration::from_millis(120)),
            setup: Some(Duration::from_millis(20)),
            data: progress,
            memory: progress,
            disk: Progress { total: Some(0), processed: Some(0), remaining: Some(0) },
            memory_bps: Some(rate),
            memory_dirty_rate: Some(200),
            memory_page_size: Some(PAGE),
            memory_iteration: Some(if share < 0.5 { 1 } else { 2 }),
            memory_normal: Some(processed / PAGE),
            memory_normal_bytes: Some(processed),
            memory_constant: Some(0),
            error: (outcome == JobOutcome::Failed).then(|| "the migration failed".to_owned()),
            ..Job::default()
        })
    }

    fn end_job(&mut self, now: Instant, outcome: JobOutcome, answer: std::result::Result<(), String>) {
        if let Some(job) = &mut self.job
            && job.ended.is_none()
        {
            job.ended = Some((now, outcome));
            if let Some((_, waiting)) = job.direct.take() {
                // Whoever asked may have stopped listening; the migration goes its way all the same.
                let _unheard = waiting.send(answer);
            }
        }
    }
}

/// What befalls VMs.
impl World {
    /// Makes and starts a domain that Nova knows nothing of.
    pub fn start_domain(&self, host: &HostName, spec: &VmSpec) -> Result<InstanceId> {
        self.with(|state| {
            let id = state.find("start a domain", host)?;
            if !state.host(id).answers() {
                return Err(SimError::not_now(format!("start a domain on {host}"), "its daemon does not answer"));
            }
            let vm = state.random_uuid();
            state.define(id, vm, spec.vcpus, spec.memory_mb, spec.cells, false);
            state.enter(id, vm, DomainState::Running);
            state.lifecycle(id, vm, Lifecycle::Resumed);
            state.lifecycle(id, vm, Lifecycle::Started);
            Ok(instance(vm))
        })
    }

    /// Removes a domain that Nova knows nothing of.
    pub fn remove_domain(&self, host: &HostName, vm: &InstanceId) -> Result<()> {
        self.with(|state| {
            let (id, vm) = state.find_domain("remove the domain", host, vm)?;
            if state.host(id).domains[&vm].managed {
                return Err(SimError::not_now(format!("remove domain {vm}"), "it belongs to Nova"));
            }
            state.undefine(id, vm);
            Ok(())
        })
    }

    /// The guest's kernel panics, and its domain ends.
    pub fn guest_crash(&self, vm: &InstanceId) -> Result<HostName> {
        self.guest("crash", vm, |state, id, vm| {
            state.lifecycle(id, vm, Lifecycle::Crashed);
            state.enter(id, vm, DomainState::Crashed);
            state.lifecycle(id, vm, Lifecycle::Stopped);
        })
    }

    /// The guest shuts itself down.
    pub fn guest_shutdown(&self, vm: &InstanceId) -> Result<HostName> {
        self.guest("shut down", vm, |state, id, vm| {
            state.lifecycle(id, vm, Lifecycle::Shutdown);
            state.enter(id, vm, DomainState::ShutOff);
            state.lifecycle(id, vm, Lifecycle::Stopped);
        })
    }

    /// The guest resets itself. QEMU says so more than once.
    pub fn guest_reboot(&self, vm: &InstanceId) -> Result<HostName> {
        self.guest("reboot", vm, |state, id, vm| {
            for _ in 0..2 {
                state.emit(id, vm, DomainEvent::Reboot);
            }
        })
    }

    /// The guest stops feeding its watchdog.
    pub fn guest_watchdog(&self, vm: &InstanceId, action: WatchdogAction) -> Result<HostName> {
        self.guest("trip the watchdog", vm, |state, id, vm| {
            state.emit(id, vm, DomainEvent::Watchdog(action));
            match action {
                WatchdogAction::Reset => state.emit(id, vm, DomainEvent::Reboot),
                WatchdogAction::Pause => {
                    state.enter(id, vm, DomainState::Paused);
                    state.lifecycle(id, vm, Lifecycle::Suspended);
                }
                WatchdogAction::PowerOff | WatchdogAction::Shutdown => {
                    state.enter(id, vm, DomainState::ShutOff);
                    state.lifecycle(id, vm, Lifecycle::Stopped);
                }
                _ => {}
            }
        })
    }

    /// A disk of the guest fails, and the guest is stopped until somebody helps.
    pub fn disk_error(&self, vm: &InstanceId, device: &str, reason: &str) -> Result<HostName> {
        self.guest("lose a disk", vm, |state, id, vm| {
            let event = DomainEvent::IoError {
                device: device.to_owned(),
                action: IoErrorAction::Pause,
                reason: reason.to_owned(),
            };
            state.emit(id, vm, event);
            state.enter(id, vm, DomainState::PausedOnIoError);
            state.lifecycle(id, vm, Lifecycle::SuspendedOnIoError);
        })
    }

    /// Any other event of a running guest: a lost guest agent, bad memory, a removed device.
    pub fn guest_event(&self, vm: &InstanceId, event: DomainEvent) -> Result<HostName> {
        self.guest("have an event", vm, |state, id, vm| state.emit(id, vm, event))
    }

    fn guest(&self, what: &str, vm: &InstanceId, act: impl FnOnce(&mut State, HostId, Uuid)) -> Result<HostName> {
        self.with(|state| {
            let operation = format!("let VM {vm} {what}");
            let unknown = || SimError::UnknownVm { operation: operation.clone(), vm: vm.clone() };
            let vm = parse(vm).ok_or_else(unknown)?;
            let runs = |id: &HostId| {
                let domain = state.host(*id).domains.get(&vm);
                domain.is_some_and(|domain| domain.state == DomainState::Running)
            };
            let Some(id) = state.host_ids().find(runs) else {
                let known = state.hosts.iter().any(|host| host.domains.contains_key(&vm));
                return Err(if known { SimError::not_now(operation, "it does not run") } else { unknown() });
            };
            act(state, id, vm);
            let host = state.host(id).name.clone();
            state.note(format!("{} on {host}: {what}", state.vm_name(vm)));
            Ok(host)
        })
    }
}

impl State {
    pub(crate) fn find_domain(&self, operation: &str, host: &HostName, vm: &InstanceId) -> Result<(HostId, Uuid)> {
        let id = self.find(operation, host)?;
        let found = parse(vm).filter(|vm| self.host(id).domains.contains_key(vm));
        let unknown = || SimError::UnknownVm { operation: operation.to_owned(), vm: vm.clone() };
        Ok((id, found.ok_or_else(unknown)?))
    }

    /// The name people know a VM by.
    pub(crate) fn vm_name(&self, vm: Uuid) -> String {
        self.nova.servers.get(&vm).map_or_else(|| vm.to_string(), |server| server.name.clone())
    }

    /// Defines a domain, bound to the cells with the most room.
    pub(crate) fn define(&mut self, id: HostId, vm: Uuid, vcpus: u32, memory_mb: u64, cells: u32, managed: bool) {
        let number = self.nova.next_domain_number();
        let host = self.host_mut(id);
        let cells = roomiest(host, cells);
        host.domains.insert(vm, Domain::new(number, vcpus, memory_mb, cells, managed));
        self.lifecycle(id, vm, Lifecycle::Defined);
        self.ports_changed(id);
    }

    pub(crate) fn undefine(&mut self, id: HostId, vm: Uuid) {
        if self.host(id).domains.get(&vm).is_some_and(|domain| domain.state.is_active()) {
            self.enter(id, vm, DomainState::ShutOff);
            self.lifecycle(id, vm, Lifecycle::Destroyed);
        }
        self.lifecycle(id, vm, Lifecycle::Undefined);
        self.host_mut(id).domains.remove(&vm);
        self.ports_changed(id);
    }

    fn ports_changed(&mut self, id: HostId) {
        let host = self.host_mut(id);
        if host.answers() {
            host.switch_changes.publish(&OvsChange::Changed);
        }
    }

    /// Puts a domain into a state; Nova hears of it if it can.
    pub(crate) fn enter(&mut self, id: HostId, vm: Uuid, state: DomainState) {
        let now = self.now;
        if let Some(domain) = self.host_mut(id).domains.get_mut(&vm) {
            domain.enter(state, now);
            if !state.is_active() && domain.job_running() {
                domain.end_job(now, JobOutcome::Failed, Err("the domain is gone".into()));
            }
            self.power_seen(id, vm);
        }
    }

    pub(crate) fn lifecycle(&mut self, id: HostId, vm: Uuid, step: Lifecycle) {
        self.emit(id, vm, DomainEvent::Lifecycle(step));
    }

    /// Sends an event, if this host's driver sends such and anybody can hear it.
    pub(crate) fn emit(&mut self, id: HostId, vm: Uuid, event: DomainEvent) {
        let host = self.host_mut(id);
        if !host.sends(event.kind()) || host.events.readers() == 0 {
            return;
        }
        let Some(name) = host.domains.get(&vm).map(Domain::name) else { return };
        host.events.publish(&BackendEvent::Domain { id: instance(vm), name, event });
    }

    /// The power went: nothing runs, nobody was told.
    pub(crate) fn all_guests_end(&mut self, id: HostId) {
        let now = self.now;
        for domain in self.host_mut(id).domains.values_mut() {
            domain.enter(DomainState::ShutOff, now);
            domain.end_job(now, JobOutcome::Failed, Err("the host is gone".into()));
            domain.job = None;
        }
    }

    /// Begins a migration that libvirt was asked for directly. The receiver hears of its end.
    pub(crate) fn begin_direct_migration(
        &mut self,
        id: HostId,
        vm: Uuid,
        to: HostId,
    ) -> oneshot::Receiver<std::result::Result<(), String>> {
        let (done, receiver) = oneshot::channel();
        let now = self.now;
        let length = self.copy_time(self.host(id).domains.get(&vm).map_or(0, |domain| domain.memory_mb));
        if let Some(domain) = self.host_mut(id).domains.get_mut(&vm) {
            let epoch = domain.job.as_ref().map_or(0, |job| job.epoch.wrapping_add(1));
            domain.job = Some(Box::new(DomainJob { direct: Some((to, done)), epoch, ..DomainJob::new(now, length) }));
            self.plan(length, Due::DirectMigration(id, vm, epoch));
            self.emit(id, vm, DomainEvent::MigrationIteration(1));
        }
        receiver
    }

    pub(super) fn direct_migration_done(&mut self, id: HostId, vm: Uuid, epoch: u32) {
        let now = self.now;
        let Some(domain) = self.host_mut(id).domains.get_mut(&vm) else { return };
        let Some(job) = domain.job.as_ref().filter(|job| job.epoch == epoch && job.ended.is_none()) else { return };
        let Some(to) = job.direct.as_ref().map(|(to, _)| *to) else { return };
        if !self.host(to).answers() {
            if let Some(domain) = self.host_mut(id).domains.get_mut(&vm) {
                domain.end_job(now, JobOutcome::Failed, Err("the destination does not answer".into()));
            }
            return;
        }
        self.switch_over(id, vm, to);
    }

    /// Ends the copying job of a migration.
    pub(crate) fn end_copy(&mut self, id: HostId, vm: Uuid, outcome: JobOutcome) {
        let now = self.now;
        let answer = match outcome {
            JobOutcome::Completed => Ok(()),
            JobOutcome::Cancelled => Err("the migration was cancelled by request".to_owned()),
            _ => Err("the migration failed".to_owned()),
        };
        if let Some(domain) = self.host_mut(id).domains.get_mut(&vm)
            && domain.job_running()
        {
            domain.end_job(now, outcome, answer);
            let job = domain.job_at(now);
            // libvirt says nothing when a migration was called off.
            if let Some(job) = job.filter(|_| outcome == JobOutcome::Completed) {
                self.emit(id, vm, DomainEvent::JobCompleted(Box::new(job)));
            }
        }
    }

    /// The step at which a guest ceases to run here and runs there: never on both.
    pub(crate) fn switch_over(&mut self, id: HostId, vm: Uuid, to: HostId) {
        let now = self.now;
        let Some(state) = self.host(id).domains.get(&vm).map(|domain| domain.state) else { return };
        self.lifecycle(id, vm, Lifecycle::SuspendedByMigration);
        self.lifecycle(id, vm, Lifecycle::Migrated);
        self.end_copy(id, vm, JobOutcome::Completed);
        self.lifecycle(id, vm, Lifecycle::Undefined);
        let Some(mut domain) = self.host_mut(id).domains.remove(&vm) else { return };
        domain.cells = roomiest(self.host(to), domain.cells.1);
        domain.job = None;
        domain.enter(state, now);
        self.host_mut(to).domains.insert(vm, domain);
        self.lifecycle(to, vm, Lifecycle::StartedByMigration);
        self.lifecycle(to, vm, Lifecycle::Defined);
        self.lifecycle(to, vm, Lifecycle::ResumedByMigration);
        self.ports_changed(id);
        self.ports_changed(to);
    }

    /// How long the memory of such a guest is on the wire.
    pub(crate) fn copy_time(&self, memory_mb: u64) -> Duration {
        let whole = self.timing.copy_per_gib.as_nanos() * u128::from(memory_mb) * u128::from(MIB) / u128::from(GIB);
        Duration::from_nanos(u64::try_from(whole).unwrap_or(u64::MAX))
    }
}

/// The run of `count` neighbouring cells with the most memory left; ties go to the lowest.
fn roomiest(host: &Host, count: u32) -> (u32, u32) {
    let cells = u32::try_from(host.cells.len()).unwrap_or(u32::MAX);
    let count = count.min(cells);
    if count == 0 {
        return (0, 0);
    }
    let mut used = vec![0u64; host.cells.len()];
    for share in host.domains.values().flat_map(Domain::shares) {
        used[share.cell as usize] += share.memory_bytes;
    }
    let free = |first: u32| -> i128 {
        let range = first as usize..(first + count) as usize;
        range.map(|cell| i128::from(host.cells[cell].memory_bytes) - i128::from(used[cell])).sum()
    };
    let first = (0..=cells - count).max_by_key(|first| (free(*first), std::cmp::Reverse(*first))).unwrap_or(0);
    (host.cells.get(first as usize).map_or(0, |cell| cell.id), count)
}
