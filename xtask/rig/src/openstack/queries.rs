//! What a test wants to know of the cloud, by a way that is not the one under test.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ControlPlane;
use crate::error::{Error, Result};

/// A compute service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenService {
    /// Its UUID.
    pub id: String,
    /// Its host.
    pub host: String,
    /// The availability zone of its host.
    pub zone: String,
    /// Whether the scheduler may use it.
    pub enabled: bool,
    /// Why not.
    pub reason: Option<String>,
    /// Whether Nova hears from it.
    pub up: bool,
    /// Whether somebody declared it down.
    pub forced_down: bool,
}

/// A resource provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenProvider {
    /// Its UUID.
    pub id: String,
    /// Its name, which is the host's.
    pub name: String,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenServer {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `ACTIVE`, `SHUTOFF`, ….
    pub status: String,
    /// What Nova does with it.
    pub task: Option<String>,
    /// Where it is.
    pub host: Option<String>,
}

/// A migration record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenMigration {
    /// Its number.
    pub id: u64,
    /// The server.
    pub server: String,
    /// `live-migration`, `migration`, `evacuation`.
    pub kind: String,
    /// `running`, `completed`, `error`, ….
    pub status: String,
    /// From where.
    pub source: String,
    /// To where.
    pub destination: Option<String>,
    /// Since when, as Nova writes it: to the second, and ordered as text.
    pub created: String,
    /// When it was changed last.
    pub updated: String,
}

/// An aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenAggregate {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// The availability zone it makes.
    pub zone: Option<String>,
    /// Its members, ordered.
    pub hosts: Vec<String>,
    /// Its metadata.
    pub metadata: BTreeMap<String, String>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn some(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn server(value: &Value) -> SeenServer {
    SeenServer {
        id: text(&value["id"]),
        name: text(&value["name"]),
        status: text(&value["status"]),
        task: some(&value["OS-EXT-STS:task_state"]),
        host: some(&value["OS-EXT-SRV-ATTR:host"]),
    }
}

impl ControlPlane {
    /// A call as administrator that must succeed.
    pub(super) fn must(&self, method: &str, service: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let (status, body) = self.api(method, service, path, body)?;
        if status < 300 {
            return Ok(body);
        }
        Err(Error::Failed { command: format!("{method} {service} {path}"), said: format!("{status} {body}") })
    }

    fn list<T>(&self, service: &str, path: &str, key: &str, read: impl Fn(&Value) -> T) -> Result<Vec<T>> {
        let body = self.must("GET", service, path, None)?;
        Ok(body[key].as_array().into_iter().flatten().map(read).collect())
    }

    /// All compute services, ordered by host.
    pub fn services(&self) -> Result<Vec<SeenService>> {
        let read = |value: &Value| SeenService {
            id: text(&value["id"]),
            host: text(&value["host"]),
            zone: text(&value["zone"]),
            enabled: value["status"] == "enabled",
            reason: some(&value["disabled_reason"]),
            up: value["state"] == "up",
            forced_down: value["forced_down"] == true,
        };
        let mut all = self.list("compute", "/os-services?binary=nova-compute", "services", read)?;
        all.sort_by(|a, b| a.host.cmp(&b.host));
        Ok(all)
    }

    /// All resource providers, ordered by name.
    pub fn providers(&self) -> Result<Vec<SeenProvider>> {
        let read = |value: &Value| SeenProvider { id: text(&value["uuid"]), name: text(&value["name"]) };
        let mut all = self.list("placement", "/resource_providers", "resource_providers", read)?;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// A provider's traits.
    pub fn traits(&self, provider: &str) -> Result<Vec<String>> {
        self.list("placement", &format!("/resource_providers/{provider}/traits"), "traits", text)
    }

    /// Who uses a provider: ids of servers and of migrations, ordered.
    pub fn allocations(&self, provider: &str) -> Result<Vec<String>> {
        let body = self.must("GET", "placement", &format!("/resource_providers/{provider}/allocations"), None)?;
        let mut consumers: Vec<String> =
            body["allocations"].as_object().into_iter().flatten().map(|(id, _)| id.clone()).collect();
        consumers.sort();
        Ok(consumers)
    }

    /// All aggregates, ordered by name.
    pub fn aggregates(&self) -> Result<Vec<SeenAggregate>> {
        let read = |value: &Value| {
            let mut hosts: Vec<String> = value["hosts"].as_array().into_iter().flatten().map(text).collect();
            hosts.sort();
            let metadata = value["metadata"].as_object().into_iter().flatten();
            SeenAggregate {
                id: value["id"].as_u64().unwrap_or_default(),
                name: text(&value["name"]),
                zone: some(&value["availability_zone"]),
                hosts,
                metadata: metadata.map(|(key, value)| (key.clone(), text(value))).collect(),
            }
        };
        let mut all = self.list("compute", "/os-aggregates", "aggregates", read)?;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// The servers on exactly this host, of all projects, ordered by name.
    pub fn servers_on(&self, host: &str) -> Result<Vec<SeenServer>> {
        let path = format!("/servers/detail?all_tenants=true&host={host}");
        let mut all = self.list("compute", &path, "servers", server)?;
        all.retain(|server| server.host.as_deref() == Some(host));
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// One server; `None` if there is none.
    pub fn server(&self, id: &str) -> Result<Option<SeenServer>> {
        match self.api("GET", "compute", &format!("/servers/{id}"), None)? {
            (404, _) => Ok(None),
            (status, body) if status < 300 => Ok(Some(server(&body["server"]))),
            (status, body) => {
                Err(Error::Failed { command: format!("get server {id}"), said: format!("{status} {body}") })
            }
        }
    }

    /// All migrations that a server has been through, the oldest first.
    pub fn migrations_of(&self, server: &str) -> Result<Vec<SeenMigration>> {
        let read = |value: &Value| SeenMigration {
            id: value["id"].as_u64().unwrap_or_default(),
            server: text(&value["instance_uuid"]),
            kind: text(&value["migration_type"]),
            status: text(&value["status"]),
            source: text(&value["source_compute"]),
            destination: some(&value["dest_compute"]),
            created: text(&value["created_at"]),
            updated: text(&value["updated_at"]),
        };
        let path = format!("/os-migrations?instance_uuid={server}");
        let mut all = self.list("compute", &path, "migrations", read)?;
        all.sort_by_key(|migration| migration.id);
        Ok(all)
    }
}
