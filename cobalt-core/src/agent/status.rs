//! From what the agent knows to what it publishes: pure, so that each rule is a row of a test.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::report::{Report, Section};
use crate::{
    api::{
        self, Condition, ConditionStatus, HypervisorSpec, HypervisorStatus, Instance, Quantity, ResourceList,
        condition_types, reasons, resources,
    },
    backend::{Domain, HostCapabilities},
    host::{ActiveState, OsFacts, Unit},
};

/// Sections whose staleness has a condition of its own, once it has ever been stale.
pub mod section_conditions {
    /// Versions and capabilities of the host are current.
    pub const CAPABILITIES: &str = "CapabilitiesCurrent";
    /// What a VM may be made of is current.
    pub const DOMAIN_CAPABILITIES: &str = "DomainCapabilitiesCurrent";
    /// The list of instances and what they use is current.
    pub const INSTANCES: &str = "InstancesCurrent";
    /// The facts about the operating system are current.
    pub const OPERATING_SYSTEM: &str = "OperatingSystemCurrent";
    /// The conditions of the service units are current.
    pub const UNITS: &str = "UnitsCurrent";
}

/// The condition: nobody can listen in between agent and libvirt, or speak for either. There once it was not so.
pub const TRANSPORT_SECURE: &str = "LibVirtTransportSecure";

/// What is to be published: fields that are known, and conditions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// Fields to write. A field that is `None` keeps its last published value.
    pub status: HypervisorStatus,
    /// Conditions to set.
    pub conditions: Vec<Condition>,
}

/// Decides what to publish, given the Hypervisor's spec and the conditions published so far.
pub fn decide(report: &Report, spec: &HypervisorSpec, published: &[Condition]) -> Wanted {
    let mut status = HypervisorStatus::default();
    versions(report, &mut status);
    capacity(report, spec, &mut status);
    instances(report, &mut status);
    domain_capabilities(report, &mut status);
    if let Some(facts) = report.facts.known() {
        status.operating_system = Some(operating_system(facts));
    }
    let mut conditions: Vec<Condition> = shown_units(report).map(unit_condition).collect();
    conditions.push(connection(report));
    conditions.extend(transport(report, published));
    conditions.extend(section_states(report, published));
    Wanted { status, conditions }
}

fn versions(report: &Report, status: &mut HypervisorStatus) {
    match &report.versions {
        Section::Known(versions) => {
            let text = |version: &Option<String>| Some(version.clone().unwrap_or_else(|| "N/A".into()));
            status.lib_virt_version = text(&versions.library);
            status.hypervisor_version = text(&versions.hypervisor);
        }
        Section::NotOffered => {
            status.lib_virt_version = Some("N/A".into());
            status.hypervisor_version = Some("N/A".into());
        }
        Section::NotYet | Section::Failed(_) => {}
    }
}

fn capacity(report: &Report, spec: &HypervisorSpec, status: &mut HypervisorStatus) {
    let Some(host) = report.capabilities.known() else { return };
    let total = amounts(Quantity::cpus(host.cpus()), Quantity::bytes(host.memory_bytes()));
    status.capabilities = Some(api::Capabilities {
        cpu_arch: host.cpu_arch.clone(),
        memory: Some(Quantity::bytes(host.memory_bytes())),
        cpus: Some(Quantity::cpus(host.cpus())),
    });
    status.effective_capacity = Some(effective(&total, spec));
    status.capacity = Some(total);
    // Cells carry the instances' share, so they are published only when both halves are known.
    if let Some(domains) = report.domains.known() {
        status.cells = Some(cells(host, domains, spec));
    }
}

fn instances(report: &Report, status: &mut HypervisorStatus) {
    let Some(domains) = report.domains.known() else { return };
    // Foreign numbers: a sum that does not fit is a very large one, not a panic.
    let cpus = domains.iter().fold(0, |sum: u64, domain| sum.saturating_add(u64::from(domain.vcpus)));
    let memory = domains.iter().fold(0, |sum: u64, domain| sum.saturating_add(domain.memory_bytes));
    status.allocation = Some(amounts(Quantity::cpus(cpus), Quantity::bytes(memory)));
    status.num_instances = Some(i32::try_from(domains.len()).unwrap_or(i32::MAX));
    status.instances = Some(
        domains
            .iter()
            .map(|domain| Instance {
                id: domain.id.to_string(),
                name: domain.name.clone(),
                active: domain.state.is_active(),
            })
            .collect(),
    );
}

/// Per cell of the host, in the order of their ids. A VM that is bound to no cell is in the totals only.
fn cells(host: &HostCapabilities, domains: &[Domain], spec: &HypervisorSpec) -> Vec<api::Cell> {
    let mut used: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for share in domains.iter().flat_map(|domain| &domain.cells) {
        let (millis, bytes) = used.entry(share.cell).or_default();
        *millis = millis.saturating_add(share.cpu_millis);
        *bytes = bytes.saturating_add(share.memory_bytes);
    }
    let mut cells: Vec<_> = host.cells.iter().collect();
    cells.sort_by_key(|cell| cell.id);
    cells
        .into_iter()
        .map(|cell| {
            let capacity = amounts(Quantity::cpus(u64::from(cell.cpus)), Quantity::bytes(cell.memory_bytes));
            let (millis, bytes) = used.get(&cell.id).copied().unwrap_or_default();
            api::Cell {
                cell_id: i64::from(cell.id),
                allocation: Some(amounts(Quantity::cpu_millis(millis), Quantity::bytes(bytes))),
                effective_capacity: Some(effective(&capacity, spec)),
                capacity: Some(capacity),
            }
        })
        .collect()
}

fn amounts(cpu: Quantity, memory: Quantity) -> ResourceList {
    BTreeMap::from([(resources::CPU.to_owned(), cpu), (resources::MEMORY.to_owned(), memory)])
}

fn effective(capacity: &ResourceList, spec: &HypervisorSpec) -> ResourceList {
    capacity.iter().map(|(resource, amount)| (resource.clone(), amount.scaled(spec.overcommit(resource)))).collect()
}

/// A driver without domain capabilities still has a type: its own name.
fn domain_capabilities(report: &Report, status: &mut HypervisorStatus) {
    status.domain_capabilities = match &report.domain_capabilities {
        Section::Known(known) => Some(api::DomainCapabilities {
            arch: known.arch.clone(),
            hypervisor_type: known.hypervisor_type.clone().or_else(|| Some(report.driver.clone())),
            supported_devices: Some(known.devices.clone()),
            supported_cpu_modes: Some(known.cpu_modes.clone()),
            supported_features: Some(known.features.clone()),
        }),
        Section::NotOffered => Some(api::DomainCapabilities {
            arch: report.capabilities.known().and_then(|host| host.cpu_arch.clone()),
            hypervisor_type: Some(report.driver.clone()),
            ..api::DomainCapabilities::default()
        }),
        Section::NotYet | Section::Failed(_) => None,
    };
}

fn operating_system(facts: &OsFacts) -> api::OperatingSystem {
    api::OperatingSystem {
        version: facts.version.clone(),
        variant_id: facts.variant_id.clone(),
        pretty_version: facts.pretty_version.clone(),
        kernel_name: facts.kernel_name.clone(),
        kernel_release: facts.kernel_release.clone(),
        kernel_version: facts.kernel_version.clone(),
        kernel_command_line: facts.kernel_command_line.clone(),
        hardware_vendor: facts.hardware_vendor.clone(),
        hardware_model: facts.hardware_model.clone(),
        hardware_serial: facts.hardware_serial.clone(),
        firmware_version: facts.firmware_version.clone(),
        firmware_vendor: facts.firmware_vendor.clone(),
        firmware_date: facts.firmware_date.map(Time),
        garden_linux_commit_id: facts.garden_linux_commit_id.clone(),
        garden_linux_features: (!facts.garden_linux_features.is_empty()).then(|| facts.garden_linux_features.clone()),
    }
}

/// Every unit state has a status and a reason; none is left for the API server to refuse.
fn unit_condition(unit: &Unit) -> Condition {
    let (status, reason) = match &unit.active {
        ActiveState::Active | ActiveState::Reloading => (ConditionStatus::True, reasons::RUNNING),
        ActiveState::Inactive => (ConditionStatus::False, reasons::STOPPED),
        ActiveState::Failed => (ConditionStatus::False, reasons::FAILED),
        ActiveState::Activating => (ConditionStatus::False, "Activating"),
        ActiveState::Deactivating => (ConditionStatus::False, "Deactivating"),
        ActiveState::Other(_) => (ConditionStatus::Unknown, "UnknownState"),
    };
    let message = format!("{}: {}, {}", unit.name, unit.active.as_str(), unit.load_state);
    Condition::new(&unit.name, status, reason, message)
}

/// The units worth a condition. Of libvirt's, which are alternatives, the one not chosen says nothing about the host:
/// neither one that is not installed, nor one that rests while another runs.
fn shown_units(report: &Report) -> impl Iterator<Item = &Unit> {
    let others_run = libvirt_units(report).any(|unit| !is_down(unit));
    report.units.known().into_iter().flatten().filter(move |unit| {
        !report.libvirt_units.contains(&unit.name)
            || is_installed(unit) && !(others_run && unit.active == ActiveState::Inactive)
    })
}

fn libvirt_units(report: &Report) -> impl Iterator<Item = &Unit> {
    let units = report.units.known().into_iter().flatten();
    units.filter(|unit| is_installed(unit) && report.libvirt_units.contains(&unit.name))
}

fn is_installed(unit: &Unit) -> bool {
    !matches!(unit.load_state.as_str(), "not-found" | "masked")
}

fn is_down(unit: &Unit) -> bool {
    matches!(unit.active, ActiveState::Inactive | ActiveState::Failed)
}

fn connection(report: &Report) -> Condition {
    let (status, reason, message) = match (&report.disconnected, &report.domains) {
        (None, Section::Failed(why)) => (ConditionStatus::False, reasons::PROCESS_FAILED, why.clone()),
        (None, _) => (ConditionStatus::True, reasons::CONNECTED, String::new()),
        (Some(why), _) => match libvirt_unit_that_is_down(report) {
            Some(unit) => {
                let service = unit.name.trim_end_matches(".service");
                let message = format!("{service} service is not running: {why}");
                (ConditionStatus::False, reasons::LIBVIRT_SERVICE_NOT_RUNNING, message)
            }
            None => (ConditionStatus::False, reasons::CONNECT_FAILED, why.clone()),
        },
    };
    Condition::new(condition_types::LIBVIRT_CONNECTION, status, reason, message)
}

/// The unit to blame: installed, not running, and no other in its place. One that does not exist says nothing: libvirt
/// may run in a container. One that a socket starts is down only as long as nobody asks, and we did ask.
fn libvirt_unit_that_is_down(report: &Report) -> Option<&Unit> {
    let mut units = libvirt_units(report);
    let first = units.next()?;
    (is_down(first) && units.all(is_down)).then_some(first)
}

/// Said when it is not so, taken back when it is so again.
fn transport(report: &Report, published: &[Condition]) -> Option<Condition> {
    match &report.insecure {
        Some(why) => Some(Condition::new(TRANSPORT_SECURE, ConditionStatus::False, "PlainTcp", why)),
        None => api::conditions::find(published, TRANSPORT_SECURE)
            .map(|_| Condition::new(TRANSPORT_SECURE, ConditionStatus::True, "Secure", String::new())),
    }
}

/// Whether a published condition is that of a unit which is reported no more. While the units cannot be read, those the
/// agent watches keep their last condition.
pub(super) fn is_former_unit(report: &Report, watched: &[String], type_: &str) -> bool {
    if !type_.ends_with(".service") {
        return false;
    }
    match &report.units {
        Section::Known(_) | Section::NotOffered => !shown_units(report).any(|unit| unit.name == type_),
        Section::NotYet | Section::Failed(_) => !watched.iter().any(|unit| unit == type_),
    }
}

/// A section that fails gets a condition that says so; one that is fine again gets it turned; one that never failed
/// has none, because a list of twenty conditions that are all true helps nobody.
fn section_states<'a>(report: &'a Report, published: &'a [Condition]) -> impl Iterator<Item = Condition> + 'a {
    let capabilities = match (&report.versions, &report.capabilities) {
        (Section::Failed(why), _) | (_, Section::Failed(why)) => State::Failed(why),
        (Section::NotYet, _) | (_, Section::NotYet) => State::NotYet,
        _ => State::Current,
    };
    [
        (section_conditions::CAPABILITIES, capabilities),
        (section_conditions::DOMAIN_CAPABILITIES, State::of(&report.domain_capabilities)),
        (section_conditions::INSTANCES, State::of(&report.domains)),
        (section_conditions::OPERATING_SYSTEM, State::of(&report.facts)),
        (section_conditions::UNITS, State::of(&report.units)),
    ]
    .into_iter()
    .filter_map(|(type_, state)| match state {
        State::NotYet => None,
        State::Failed(why) => Some(Condition::new(type_, ConditionStatus::False, "Stale", why)),
        State::Current => api::conditions::find(published, type_)
            .map(|_| Condition::new(type_, ConditionStatus::True, "Current", String::new())),
    })
}

enum State<'a> {
    NotYet,
    Current,
    Failed(&'a str),
}

impl<'a> State<'a> {
    fn of<T>(section: &'a Section<T>) -> Self {
        match section {
            Section::NotYet => Self::NotYet,
            Section::Known(_) | Section::NotOffered => Self::Current,
            Section::Failed(why) => Self::Failed(why),
        }
    }
}
