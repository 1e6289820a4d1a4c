//! Nova's bodies.

use std::collections::BTreeMap;

use cobalt_core::{
    ids::{AggregateId, HostName, InstanceId, MigrationId, ProviderId, ServiceId},
    nova::{
        Aggregate, ComputeService, GroupPolicy, Migration, MigrationKind, MigrationPhase, NovaHypervisor, Server,
        ServerGroup, ServerStatus, ServiceState, TaskState,
    },
};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use super::json;

/// What each of these answers: the thing, or what is wrong with the body.
type Decoded<T> = Result<T, String>;

/// A number or a text: Nova has both for ids.
#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(i64),
    Text(String),
}

fn text_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match NumberOrText::deserialize(deserializer)? {
        NumberOrText::Number(number) => number.to_string(),
        NumberOrText::Text(text) => text,
    })
}

/// Nova's times have no zone, or a `Z`; all are UTC.
fn time(text: Option<&str>) -> Option<Timestamp> {
    let text = text?;
    text.parse().or_else(|_| format!("{text}Z").parse()).ok()
}

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn state(word: &str) -> ServiceState {
    // Nothing is sent to a host that is not up, and nothing deleted of one that is not down: another word is neither.
    if word.eq_ignore_ascii_case("up") {
        ServiceState::Up
    } else if word.eq_ignore_ascii_case("down") {
        ServiceState::Down
    } else {
        ServiceState::Unknown
    }
}

/// The compute services of a listing, ordered by host.
pub fn services(body: &[u8]) -> Decoded<Vec<ComputeService>> {
    #[derive(Deserialize)]
    struct Body {
        services: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        #[serde(deserialize_with = "text_id")]
        id: String,
        binary: String,
        host: String,
        #[serde(default)]
        zone: Option<String>,
        #[serde(default)]
        status: String,
        #[serde(default)]
        state: String,
        #[serde(default)]
        disabled_reason: Option<String>,
        #[serde(default)]
        forced_down: bool,
    }
    let entries = json::<Body>(body)?.services.into_iter().filter(|entry| entry.binary == "nova-compute");
    let mut all: Vec<ComputeService> = entries
        .map(|entry| ComputeService {
            id: entry.id.into(),
            host: entry.host.into(),
            zone: filled(entry.zone),
            enabled: entry.status == "enabled",
            disabled_reason: filled(entry.disabled_reason),
            state: state(&entry.state),
            forced_down: entry.forced_down,
        })
        .collect();
    all.sort_by(|a, b| (&a.host, &a.id).cmp(&(&b.host, &b.id)));
    Ok(all)
}

#[derive(Deserialize)]
struct HypervisorEntry {
    #[serde(deserialize_with = "text_id")]
    id: String,
    hypervisor_hostname: String,
    #[serde(default)]
    hypervisor_type: String,
    #[serde(default)]
    state: String,
    service: HypervisorService,
    #[serde(default)]
    servers: Option<Vec<HypervisorServer>>,
}

#[derive(Deserialize)]
struct HypervisorService {
    #[serde(deserialize_with = "text_id")]
    id: String,
    host: String,
}

#[derive(Deserialize)]
struct HypervisorServer {
    uuid: String,
}

impl From<HypervisorEntry> for NovaHypervisor {
    fn from(entry: HypervisorEntry) -> Self {
        let mut servers: Option<Vec<InstanceId>> =
            entry.servers.map(|all| all.into_iter().map(|server| InstanceId::from(server.uuid)).collect());
        if let Some(servers) = &mut servers {
            servers.sort();
        }
        Self {
            id: ProviderId::from(entry.id),
            hostname: entry.hypervisor_hostname,
            host: HostName::from(entry.service.host),
            service: ServiceId::from(entry.service.id),
            kind: entry.hypervisor_type,
            state: state(&entry.state),
            servers,
        }
    }
}

/// The hypervisors of a page, in its order.
pub fn hypervisors(body: &[u8]) -> Decoded<Vec<NovaHypervisor>> {
    #[derive(Deserialize)]
    struct Body {
        hypervisors: Vec<HypervisorEntry>,
    }
    Ok(json::<Body>(body)?.hypervisors.into_iter().map(Into::into).collect())
}

/// One hypervisor.
pub fn hypervisor(body: &[u8]) -> Decoded<NovaHypervisor> {
    #[derive(Deserialize)]
    struct Body {
        hypervisor: HypervisorEntry,
    }
    Ok(json::<Body>(body)?.hypervisor.into())
}

#[derive(Deserialize)]
struct ServerEntry {
    id: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    tenant_id: String,
    #[serde(default)]
    status: String,
    #[serde(default, rename = "OS-EXT-STS:task_state")]
    task: Option<String>,
    #[serde(default, rename = "OS-EXT-STS:power_state")]
    power: Option<i64>,
    #[serde(default, rename = "OS-EXT-SRV-ATTR:host")]
    host: Option<String>,
    #[serde(default, rename = "OS-EXT-AZ:availability_zone")]
    zone: Option<String>,
    #[serde(default)]
    locked: bool,
    #[serde(default)]
    flavor: FlavorEntry,
    /// An object, or an empty text when it boots from a volume.
    #[serde(default)]
    image: serde_json::Value,
    #[serde(default, rename = "os-extended-volumes:volumes_attached")]
    volumes: Vec<VolumeEntry>,
    #[serde(default)]
    fault: Option<FaultEntry>,
    #[serde(default, rename = "OS-SRV-USG:launched_at")]
    launched_at: Option<String>,
}

#[derive(Deserialize, Default)]
struct FlavorEntry {
    #[serde(default)]
    vcpus: u32,
    #[serde(default)]
    ram: u64,
    #[serde(default)]
    disk: u64,
    #[serde(default)]
    ephemeral: u64,
    #[serde(default)]
    extra_specs: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct VolumeEntry {
    id: String,
}

#[derive(Deserialize)]
struct FaultEntry {
    #[serde(default)]
    message: String,
}

fn status(word: &str) -> ServerStatus {
    match word {
        "ACTIVE" => ServerStatus::Active,
        "BUILD" => ServerStatus::Build,
        "ERROR" => ServerStatus::Error,
        "MIGRATING" => ServerStatus::Migrating,
        "PAUSED" => ServerStatus::Paused,
        "REBUILD" => ServerStatus::Rebuild,
        "RESIZE" => ServerStatus::Resize,
        "SHUTOFF" => ServerStatus::ShutOff,
        "SUSPENDED" => ServerStatus::Suspended,
        "VERIFY_RESIZE" => ServerStatus::VerifyResize,
        "DELETED" | "SOFT_DELETED" => ServerStatus::Deleted,
        other => ServerStatus::Other(super::shortened(other)),
    }
}

fn task(word: &str) -> TaskState {
    match word {
        "migrating" => TaskState::Migrating,
        "deleting" | "soft-deleting" => TaskState::Deleting,
        word if word.starts_with("rebuild") => TaskState::Rebuilding,
        other => TaskState::Other(super::shortened(other)),
    }
}

/// Traits that a flavor asks for: `trait:X` or `trait3:X`, `required`.
fn required(specs: &BTreeMap<String, String>) -> Vec<String> {
    let asked = specs.iter().filter(|(_, value)| value.as_str() == "required");
    let names = asked.filter_map(|(key, _)| {
        let (group, name) = key.split_once(':')?;
        group.starts_with("trait").then(|| name.to_owned())
    });
    names.collect()
}

impl From<ServerEntry> for Server {
    fn from(entry: ServerEntry) -> Self {
        /// The hypervisor runs it, or holds it paused.
        const RUNNING: [i64; 2] = [1, 3];
        let from_volume = !entry.image.is_object();
        let status = status(&entry.status);
        let fault = entry.fault.map(|fault| super::shortened(&fault.message));
        Self {
            id: entry.id.into(),
            name: entry.name.unwrap_or_default(),
            project: entry.tenant_id,
            task: filled(entry.task).as_deref().map(task),
            host: filled(entry.host).map(HostName::from),
            powered: entry.power.is_some_and(|power| RUNNING.contains(&power)),
            locked: entry.locked,
            memory_mb: entry.flavor.ram,
            vcpus: entry.flavor.vcpus,
            local_disk_gb: entry.flavor.ephemeral + if from_volume { 0 } else { entry.flavor.disk },
            volumes: entry.volumes.into_iter().map(|volume| volume.id).collect(),
            required_traits: required(&entry.flavor.extra_specs),
            zone: filled(entry.zone),
            fault: filled(fault).filter(|_| status == ServerStatus::Error),
            launched_at: time(entry.launched_at.as_deref()),
            status,
        }
    }
}

/// The servers of a page, in its order.
pub fn servers(body: &[u8]) -> Decoded<Vec<Server>> {
    #[derive(Deserialize)]
    struct Body {
        servers: Vec<ServerEntry>,
    }
    Ok(json::<Body>(body)?.servers.into_iter().map(Into::into).collect())
}

/// One server.
pub fn server(body: &[u8]) -> Decoded<Server> {
    #[derive(Deserialize)]
    struct Body {
        server: ServerEntry,
    }
    Ok(json::<Body>(body)?.server.into())
}

/// The id of a new server.
pub(crate) fn created(body: &[u8]) -> Decoded<InstanceId> {
    #[derive(Deserialize)]
    struct Body {
        server: Entry,
    }
    #[derive(Deserialize)]
    struct Entry {
        id: String,
    }
    Ok(json::<Body>(body)?.server.id.into())
}

/// A console's text.
pub(crate) fn console(body: &[u8]) -> Decoded<String> {
    #[derive(Deserialize)]
    struct Body {
        output: Option<String>,
    }
    Ok(json::<Body>(body)?.output.unwrap_or_default())
}

fn kind(word: &str) -> MigrationKind {
    match word {
        "live-migration" => MigrationKind::Live,
        "migration" => MigrationKind::Cold,
        "evacuation" => MigrationKind::Evacuation,
        "resize" => MigrationKind::Resize,
        other => MigrationKind::Other(super::shortened(other)),
    }
}

fn phase(word: &str) -> MigrationPhase {
    match word {
        "queued" | "accepted" => MigrationPhase::Queued,
        "preparing" | "pre-migrating" => MigrationPhase::Preparing,
        "running" | "migrating" => MigrationPhase::Running,
        "post-migrating" | "reverting" => MigrationPhase::Finishing,
        "finished" => MigrationPhase::Unconfirmed,
        "confirming" => MigrationPhase::Confirming,
        "completed" | "done" | "confirmed" | "reverted" => MigrationPhase::Completed,
        "cancelled" => MigrationPhase::Cancelled,
        "error" | "failed" => MigrationPhase::Failed,
        other => MigrationPhase::Other(super::shortened(other)),
    }
}

/// The migrations of a page, in its order. Records without a server or a source are left out: nobody can act on them.
pub fn migrations(body: &[u8]) -> Decoded<Vec<Migration>> {
    #[derive(Deserialize)]
    struct Body {
        migrations: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        #[serde(deserialize_with = "text_id")]
        id: String,
        #[serde(default)]
        instance_uuid: Option<String>,
        #[serde(default)]
        migration_type: Option<String>,
        #[serde(default)]
        status: Option<String>,
        #[serde(default)]
        source_compute: Option<String>,
        #[serde(default)]
        dest_compute: Option<String>,
        #[serde(default)]
        created_at: Option<String>,
        #[serde(default)]
        updated_at: Option<String>,
    }
    let read = |entry: Entry| {
        Some(Migration {
            id: MigrationId::from(entry.id),
            server: entry.instance_uuid?.into(),
            kind: kind(&entry.migration_type.unwrap_or_default()),
            phase: phase(&entry.status.unwrap_or_default()),
            source: entry.source_compute?.into(),
            destination: filled(entry.dest_compute).map(HostName::from),
            created_at: time(entry.created_at.as_deref()),
            updated_at: time(entry.updated_at.as_deref()),
        })
    };
    Ok(json::<Body>(body)?.migrations.into_iter().filter_map(read).collect())
}

/// The server groups of a page, in its order.
pub fn server_groups(body: &[u8]) -> Decoded<Vec<ServerGroup>> {
    #[derive(Deserialize)]
    struct Body {
        server_groups: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        id: String,
        #[serde(default)]
        name: String,
        #[serde(default)]
        policy: Option<String>,
        #[serde(default)]
        rules: Option<Rules>,
        #[serde(default)]
        members: Vec<String>,
    }
    /// Nova takes a number here, and text that is one.
    #[derive(Deserialize, Default)]
    struct Rules {
        #[serde(default)]
        max_server_per_host: Option<NumberOrText>,
    }
    let per_host = |rules: Option<Rules>| match rules.unwrap_or_default().max_server_per_host {
        Some(NumberOrText::Number(number)) => u32::try_from(number).ok(),
        Some(NumberOrText::Text(text)) => text.parse().ok(),
        None => None,
    };
    let read = |entry: Entry| ServerGroup {
        id: entry.id,
        name: entry.name,
        policy: match entry.policy.as_deref().unwrap_or_default() {
            "affinity" => GroupPolicy::Affinity,
            "anti-affinity" => GroupPolicy::AntiAffinity { per_host: per_host(entry.rules).unwrap_or(1).max(1) },
            "soft-affinity" => GroupPolicy::SoftAffinity,
            "soft-anti-affinity" => GroupPolicy::SoftAntiAffinity,
            other => GroupPolicy::Other(super::shortened(other)),
        },
        members: entry.members.into_iter().map(InstanceId::from).collect(),
    };
    Ok(json::<Body>(body)?.server_groups.into_iter().map(read).collect())
}

/// All aggregates, ordered by name.
pub fn aggregates(body: &[u8]) -> Decoded<Vec<Aggregate>> {
    #[derive(Deserialize)]
    struct Body {
        aggregates: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        #[serde(deserialize_with = "text_id")]
        id: String,
        #[serde(default)]
        uuid: String,
        name: String,
        #[serde(default)]
        availability_zone: Option<String>,
        #[serde(default)]
        hosts: Vec<String>,
        #[serde(default)]
        metadata: BTreeMap<String, String>,
    }
    let read = |entry: Entry| {
        let mut hosts: Vec<HostName> = entry.hosts.into_iter().map(HostName::from).collect();
        hosts.sort();
        Aggregate {
            id: AggregateId::from(entry.id),
            uuid: entry.uuid,
            name: entry.name,
            zone: filled(entry.availability_zone),
            hosts,
            metadata: entry.metadata,
        }
    };
    let mut all: Vec<Aggregate> = json::<Body>(body)?.aggregates.into_iter().map(read).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_a_volume_has_no_local_disk_but_its_ephemeral_one() {
        let body = br#"{"server": {"id": "s1", "name": "n", "tenant_id": "p", "status": "ACTIVE", "image": "",
            "OS-EXT-STS:power_state": 1, "OS-EXT-STS:task_state": null, "OS-EXT-SRV-ATTR:host": "hv-1", "locked": true,
            "flavor": {"vcpus": 2, "ram": 512, "disk": 20, "ephemeral": 3, "swap": 0,
                       "extra_specs": {"trait:CUSTOM_A": "required", "trait:CUSTOM_B": "forbidden", "hw:x": "required"}},
            "os-extended-volumes:volumes_attached": [{"id": "v1", "delete_on_termination": true}],
            "OS-SRV-USG:launched_at": "2026-11-18T10:00:00.000000"}}"#;
        let server = server(body).unwrap();
        assert_eq!((server.local_disk_gb, server.volumes), (3, vec!["v1".to_owned()]));
        assert_eq!(server.required_traits, ["CUSTOM_A"]);
        assert!(server.powered && server.locked && server.launched_at.is_some());
        assert_eq!(server.host, Some("hv-1".into()));
    }

    #[test]
    fn words_of_newer_services_are_kept_and_no_error() {
        let body = br#"{"migrations": [
            {"id": 7, "instance_uuid": "s", "migration_type": "teleport", "status": "beaming", "source_compute": "a"},
            {"id": 8, "instance_uuid": null, "source_compute": null}]}"#;
        let all = migrations(body).unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(
            (&all[0].kind, &all[0].phase),
            (&MigrationKind::Other("teleport".into()), &MigrationPhase::Other("beaming".into()))
        );
        assert!(!all[0].phase.is_over());
    }

    #[test]
    fn a_move_that_wants_a_yes_is_told_from_one_that_has_it() {
        let record =
            |word: &str| format!(r#"{{"id": 1, "instance_uuid": "s", "status": "{word}", "source_compute": "a"}}"#);
        let body = format!(r#"{{"migrations": [{}, {}]}}"#, record("finished"), record("confirming"));
        let phases: Vec<_> = migrations(body.as_bytes()).unwrap().into_iter().map(|one| one.phase).collect();
        assert_eq!(phases, [MigrationPhase::Unconfirmed, MigrationPhase::Confirming]);
    }

    #[test]
    fn the_policies_of_server_groups_are_known_with_their_rules() {
        let body = br#"{"server_groups": [
            {"id": "a", "name": "n", "policy": "anti-affinity", "rules": {"max_server_per_host": "3"}, "members": ["s", "t"]},
            {"id": "b", "policy": "anti-affinity", "rules": {}, "members": []},
            {"id": "c", "policy": "affinity"}, {"id": "d", "policy": "chaos", "rules": null}]}"#;
        let all = server_groups(body).unwrap();
        let policies: Vec<_> = all.iter().map(|one| one.policy.clone()).collect();
        assert_eq!(
            policies,
            [
                GroupPolicy::AntiAffinity { per_host: 3 },
                GroupPolicy::AntiAffinity { per_host: 1 },
                GroupPolicy::Affinity,
                GroupPolicy::Other("chaos".into()),
            ]
        );
        assert_eq!(all[0].members, ["s".into(), "t".into()]);
    }

    #[test]
    fn only_computes_are_services_and_they_are_ordered() {
        let body = br#"{"services": [
            {"id": "2", "binary": "nova-compute", "host": "hv-2", "status": "disabled", "state": "down", "disabled_reason": "why"},
            {"id": "9", "binary": "nova-scheduler", "host": "ctl", "status": "enabled", "state": "up"},
            {"id": 1, "binary": "nova-compute", "host": "hv-1", "status": "enabled", "state": "up", "zone": "nova"}]}"#;
        let all = services(body).unwrap();
        assert_eq!(all.iter().map(|service| service.host.as_str()).collect::<Vec<_>>(), ["hv-1", "hv-2"]);
        assert_eq!(all[1].disabled_reason.as_deref(), Some("why"));
        assert!(all[0].enabled && all[0].state == ServiceState::Up && all[1].state == ServiceState::Down);
    }

    #[test]
    fn a_state_that_is_not_told_or_not_known_is_neither_up_nor_down() {
        let body = br#"{"services": [
            {"id": "1", "binary": "nova-compute", "host": "hv-1", "status": "enabled"},
            {"id": "2", "binary": "nova-compute", "host": "hv-2", "status": "enabled", "state": "resting"}]}"#;
        let all = services(body).unwrap();
        assert!(all.iter().all(|service| service.state == ServiceState::Unknown), "{all:?}");
    }

    #[test]
    fn nonsense_is_an_error_with_a_place() {
        for wrong in [&b""[..], b"[]", b"{\"servers\": 3}", b"{\"servers\": [{}]}", b"\xff\xfe"] {
            let error = servers(wrong).unwrap_err();
            assert!(error.contains("line"), "{error}");
        }
    }
}
