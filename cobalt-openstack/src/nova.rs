//! Nova over its API.

mod actions;
pub mod microversion;

use std::sync::Arc;

use async_trait::async_trait;
use cobalt_core::{
    Error as Seam, Result,
    ids::{AggregateId, HostName, InstanceId, MigrationId, ProviderId, ServiceId},
    nova::{
        AfterEvacuation, Aggregate, BlockMigration, ComputeService, Migration, NewServer, NovaClient, NovaHypervisor,
        Server, ServerGroup, ServerName, ServerStatus,
    },
};
use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    decode,
    session::{Call, Service, Session},
};

/// What may stand in a path as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// One segment of a path, whatever is in it.
pub(crate) fn segment(text: &str) -> String {
    // Two segments have a meaning of their own, and neither is the name of anything.
    if text == "." || text == ".." {
        return text.replace('.', "%2E");
    }
    utf8_percent_encode(text, PLAIN).to_string()
}

/// The longest part of a name that means itself in any regular expression.
fn longest_plain_part(name: &str) -> Option<&str> {
    let special = |letter: char| !letter.is_ascii_alphanumeric() && letter != '-' && letter != '_';
    name.split(special).max_by_key(|part| part.len()).filter(|part| !part.is_empty())
}

/// [`NovaClient`] over Nova's API. Cheap to clone; from [`OpenStack::nova`](crate::OpenStack::nova).
///
/// Each call names its [`microversion`]. Lists are read with all their pages.
#[derive(Debug, Clone)]
pub struct Nova {
    session: Arc<Session>,
}

impl Nova {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session }
    }

    fn call(name: &'static str, operation: String, method: Method, path: String, version: &'static str) -> Call {
        let (service, query) = (Service::Compute, Vec::new());
        Call { service, name, operation, method, path, query, microversion: version, body: None }
    }

    fn get(name: &'static str, operation: String, path: String, version: &'static str) -> Call {
        Self::call(name, operation, Method::GET, path, version)
    }

    async fn decoded<T>(&self, call: &Call, decode: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<T> {
        let answer = self.session.send(call).await?;
        decode(&answer.body).map_err(|detail| Seam::malformed(call.operation.clone(), detail))
    }

    /// Everything of a collection: one request per page.
    pub(crate) async fn pages<T>(
        &self,
        mut call: Call,
        collection: &str,
        decode: impl Fn(&[u8]) -> Result<Vec<T>, String>,
    ) -> Result<Vec<T>> {
        let options = self.session.options();
        // The limit is for the whole list: what it begins with is as old as the list takes.
        let deadline = Instant::now() + options.call_timeout;
        call.query.push(("limit", options.page_size.to_string()));
        let fixed = call.query.len();
        let mut all = Vec::new();
        let mut last = None;
        for _ in 0..options.max_pages {
            let answer = self.session.send_before(&call, deadline).await?;
            let malformed = |detail| Seam::malformed(call.operation.clone(), detail);
            let items = decode(&answer.body).map_err(malformed)?;
            let next = decode::next_page(&answer.body, collection).filter(|_| !items.is_empty());
            all.extend(items);
            let Some(next) = next else { return Ok(all) };
            if last.as_ref() == Some(&next) {
                return Err(malformed(format!("the page after {} is itself", next.marker)));
            }
            call.query.truncate(fixed);
            call.query.push(("marker", next.marker.clone()));
            last = Some(next);
        }
        Err(Seam::malformed(call.operation, format!("there are more than {} pages", options.max_pages)))
    }

    async fn update_service(&self, name: &'static str, operation: String, id: &ServiceId, body: Value) -> Result<()> {
        let path = format!("/os-services/{}", segment(id.as_str()));
        let mut call = Self::call(name, operation, Method::PUT, path, microversion::SERVICES);
        call.body = Some(body);
        self.session.send(&call).await.map(drop)
    }

    async fn change_aggregate(
        &self,
        name: &'static str,
        operation: String,
        id: &AggregateId,
        body: Value,
    ) -> Result<()> {
        let path = format!("/os-aggregates/{}/action", segment(id.as_str()));
        let mut call = Self::call(name, operation, Method::POST, path, microversion::AGGREGATES);
        call.body = Some(body);
        self.session.send(&call).await.map(drop)
    }
}

/// A hypervisor whose servers were asked for: Nova leaves out the list of one that has none.
fn asked_for_servers(mut hypervisor: NovaHypervisor) -> NovaHypervisor {
    hypervisor.servers.get_or_insert_default();
    hypervisor
}

#[async_trait]
impl NovaClient for Nova {
    async fn services(&self) -> Result<Vec<ComputeService>> {
        let mut call =
            Self::get("services", "list compute services".into(), "/os-services".into(), microversion::SERVICES);
        call.query.push(("binary", "nova-compute".into()));
        self.decoded(&call, decode::services).await
    }

    async fn service_on(&self, host: &HostName) -> Result<ComputeService> {
        let operation = format!("get compute service of {host}");
        let mut call = Self::get("service_on", operation, "/os-services".into(), microversion::SERVICES);
        call.query.extend([("binary", "nova-compute".into()), ("host", host.to_string())]);
        let found = self.decoded(&call, decode::services).await?;
        found.into_iter().find(|service| service.host == *host).ok_or_else(|| Seam::not_found(call.operation))
    }

    async fn enable_service(&self, id: &ServiceId) -> Result<()> {
        let body = json!({"status": "enabled"});
        self.update_service("enable_service", format!("enable service {id}"), id, body).await
    }

    async fn disable_service(&self, id: &ServiceId, reason: &str) -> Result<()> {
        let body = json!({"status": "disabled", "disabled_reason": reason});
        self.update_service("disable_service", format!("disable service {id}: {reason}"), id, body).await
    }

    async fn force_service_down(&self, id: &ServiceId, down: bool) -> Result<()> {
        let operation = format!("{} service {id} down", if down { "declare" } else { "do not declare" });
        let answer = self.update_service("force_service_down", operation, id, json!({"forced_down": down})).await;
        // Taking it back is refused until the host's agent has cleaned up after evacuations, which it will.
        if down { answer } else { actions::a_state_is_a_conflict(answer) }
    }

    async fn delete_service(&self, id: &ServiceId) -> Result<()> {
        let path = format!("/os-services/{}", segment(id.as_str()));
        let operation = format!("delete service {id}");
        let call = Self::call("delete_service", operation, Method::DELETE, path, microversion::SERVICES);
        self.session.send(&call).await.map(drop)
    }

    async fn hypervisors(&self) -> Result<Vec<NovaHypervisor>> {
        let path = "/os-hypervisors/detail".to_owned();
        let call = Self::get("hypervisors", "list hypervisors".into(), path, microversion::HYPERVISORS);
        let mut all = self.pages(call, "hypervisors", decode::hypervisors).await?;
        all.sort_by(|a, b| (&a.host, &a.hostname).cmp(&(&b.host, &b.hostname)));
        Ok(all)
    }

    async fn hypervisor(&self, id: &ProviderId) -> Result<NovaHypervisor> {
        let path = format!("/os-hypervisors/{}", segment(id.as_str()));
        let mut call = Self::get("hypervisor", format!("get hypervisor {id}"), path, microversion::HYPERVISORS);
        call.query.push(("with_servers", "true".into()));
        self.decoded(&call, decode::hypervisor).await.map(asked_for_servers)
    }

    async fn hypervisor_named(&self, hostname: &str) -> Result<NovaHypervisor> {
        let operation = format!("get hypervisor named {hostname}");
        let path = "/os-hypervisors/detail".to_owned();
        let mut call = Self::get("hypervisor_named", operation.clone(), path, microversion::HYPERVISORS);
        // Nova's pattern is a part of the name, so `hv-1` brings `hv-10` along. Without any it answers 404.
        let pattern = ("hypervisor_hostname_pattern", hostname.to_owned());
        call.query.extend([pattern, ("with_servers", "true".into())]);
        let found = self.decoded(&call, decode::hypervisors).await?;
        let exact = found.into_iter().filter(|hypervisor| hypervisor.hostname == hostname);
        let mut exact = exact.map(asked_for_servers);
        match (exact.next(), exact.next()) {
            (Some(one), None) => Ok(one),
            (None, _) => Err(Seam::not_found(operation)),
            (Some(one), Some(other)) => {
                let reason = format!("there are two of this name, {} and {}", one.id, other.id);
                Err(Seam::conflict(operation, reason))
            }
        }
    }

    async fn servers_on(&self, host: &HostName) -> Result<Vec<Server>> {
        let operation = format!("list servers on {host}");
        let mut call = Self::get("servers_on", operation, "/servers/detail".into(), microversion::SERVERS);
        // One that its owner deleted and may still restore is on the host as any other; without being asked, Nova's list
        // leaves it out.
        let (everybody, soft_deleted) = (("all_tenants", "true".into()), ("soft_deleted", "true".into()));
        call.query.extend([everybody, soft_deleted, ("host", host.to_string())]);
        let mut all = self.pages(call, "servers", decode::servers).await?;
        // The filter is exact in Nova's database; a policy that ignores it must not make us move somebody else's.
        all.retain(|server| server.host.as_ref() == Some(host));
        all.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(all)
    }

    async fn servers_named(&self, name: &ServerName) -> Result<Vec<Server>> {
        let operation = format!("list our servers named {name}");
        let mut call = Self::get("servers_named", operation, "/servers/detail".into(), microversion::SERVERS);
        // Nova takes the name as a regular expression in the dialect of its database. What is plain in all of them
        // lets it leave out most of the others; which servers are meant is decided here.
        if let Some(plain) = longest_plain_part(name.as_str()) {
            call.query.push(("name", plain.to_owned()));
        }
        let mut all = self.pages(call, "servers", decode::servers).await?;
        all.retain(|server| name.fits(&server.name));
        all.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(all)
    }

    async fn server(&self, id: &InstanceId) -> Result<Server> {
        let path = format!("/servers/{}", segment(id.as_str()));
        let call = Self::get("server", format!("get server {id}"), path, microversion::SERVERS);
        self.decoded(&call, decode::server).await
    }

    async fn create_server(&self, server: &NewServer) -> Result<InstanceId> {
        let operation = format!("create server {}", server.name);
        let mut call =
            Self::call("create_server", operation, Method::POST, "/servers".into(), microversion::CREATE_SERVER);
        call.body = Some(actions::new_server(server));
        self.decoded(&call, decode::created).await
    }

    async fn delete_server(&self, id: &InstanceId) -> Result<()> {
        let path = format!("/servers/{}", segment(id.as_str()));
        let operation = format!("delete server {id}");
        let call = Self::call("delete_server", operation, Method::DELETE, path, microversion::SERVERS);
        self.session.send(&call).await.map(drop)
    }

    async fn console_output(&self, id: &InstanceId, lines: u32) -> Result<String> {
        let body = json!({"os-getConsoleOutput": {"length": lines}});
        let operation = format!("get console of server {id}");
        let call = actions::call("console_output", operation, id, body, microversion::SERVERS);
        self.decoded(&call, decode::console).await
    }

    async fn live_migrate<'a>(
        &self,
        id: &InstanceId,
        target: Option<&'a HostName>,
        block_migration: BlockMigration,
    ) -> Result<()> {
        let operation = format!("live-migrate server {id} to {}", target.map_or("any host", HostName::as_str));
        let body = actions::live_migration(target, block_migration);
        let call = actions::call("live_migrate", operation, id, body, microversion::LIVE_MIGRATE);
        self.session.send(&call).await.map(drop)
    }

    async fn cold_migrate<'a>(&self, id: &InstanceId, target: Option<&'a HostName>) -> Result<()> {
        let operation =
            format!("cold-migrate server {id}{}", target.map(|host| format!(" to {host}")).unwrap_or_default());
        let body = match target {
            Some(host) => json!({"migrate": {"host": host.as_str()}}),
            None => json!({"migrate": null}),
        };
        let call = actions::call("cold_migrate", operation, id, body, microversion::COLD_MIGRATE);
        self.session.send(&call).await.map(drop)
    }

    async fn confirm_migration(&self, id: &InstanceId) -> Result<()> {
        let operation = format!("confirm migration of server {id}");
        let body = json!({"confirmResize": null});
        let call = actions::call("confirm_migration", operation, id, body, microversion::SERVERS);
        self.session.send(&call).await.map(drop)
    }

    async fn evacuate<'a>(&self, id: &InstanceId, target: Option<&'a HostName>, after: AfterEvacuation) -> Result<()> {
        let operation = format!("evacuate server {id} to {}", target.map_or("any host", HostName::as_str));
        // Nova takes a second evacuation while the first one runs, and rebuilds the server twice at once.
        if let Some(task) = self.server(id).await?.task {
            return Err(Seam::conflict(operation, format!("the server is in task {task:?}")));
        }
        let body = match target {
            Some(host) => json!({"evacuate": {"host": host.as_str()}}),
            None => json!({"evacuate": {}}),
        };
        let call = actions::call("evacuate", operation, id, body, microversion::evacuate(after));
        self.session.send(&call).await.map(drop)
    }

    async fn reset_state(&self, id: &InstanceId, status: ServerStatus) -> Result<()> {
        let operation = format!("reset server {id} to {status:?}");
        let state = match status {
            ServerStatus::Active => "active",
            ServerStatus::Error => "error",
            _ => return Err(Seam::refused(operation, "a server can be reset to active or error only")),
        };
        let body = json!({"os-resetState": {"state": state}});
        let call = actions::call("reset_state", operation, id, body, microversion::SERVERS);
        self.session.send(&call).await.map(drop)
    }

    async fn migrations(&self, host: &HostName) -> Result<Vec<Migration>> {
        let operation = format!("list migrations of {host}");
        let mut call = Self::get("migrations", operation, "/os-migrations".into(), microversion::MIGRATIONS);
        call.query.push(("host", host.to_string()));
        let mut all = self.pages(call, "migrations", decode::migrations).await?;
        all.retain(|migration| migration.source == *host || migration.destination.as_ref() == Some(host));
        let number = |migration: &Migration| migration.id.as_str().parse::<u64>().unwrap_or(0);
        all.sort_by_key(|migration| std::cmp::Reverse((migration.created_at, number(migration))));
        Ok(all)
    }

    async fn abort_migration(&self, server: &InstanceId, migration: &MigrationId) -> Result<()> {
        let path = format!("/servers/{}/migrations/{}", segment(server.as_str()), segment(migration.as_str()));
        let operation = format!("abort migration {migration} of server {server}");
        let call = Self::call("abort_migration", operation, Method::DELETE, path, microversion::ABORT_MIGRATION);
        actions::a_state_is_a_conflict(self.session.send(&call).await).map(drop)
    }

    async fn force_complete_migration(&self, server: &InstanceId, migration: &MigrationId) -> Result<()> {
        let (server_path, migration_path) = (segment(server.as_str()), segment(migration.as_str()));
        let path = format!("/servers/{server_path}/migrations/{migration_path}/action");
        let operation = format!("force migration {migration} of server {server} to complete");
        let name = "force_complete_migration";
        let mut call = Self::call(name, operation, Method::POST, path, microversion::ABORT_MIGRATION);
        call.body = Some(json!({"force_complete": null}));
        actions::a_state_is_a_conflict(self.session.send(&call).await).map(drop)
    }

    async fn server_groups(&self) -> Result<Vec<ServerGroup>> {
        let operation = "list server groups".to_owned();
        let mut call = Self::get("server_groups", operation, "/os-server-groups".into(), microversion::SERVER_GROUPS);
        let options = self.session.options();
        let deadline = Instant::now() + options.call_timeout;
        call.query.push(("all_projects", "true".into()));
        call.query.push(("limit", options.page_size.to_string()));
        let fixed = call.query.len();
        let mut all: Vec<ServerGroup> = Vec::new();
        // This list has neither markers nor links, and Nova may have a lower limit than we ask for: what comes after all
        // that were seen is asked for until there is nothing.
        for _ in 0..options.max_pages {
            call.query.truncate(fixed);
            call.query.push(("offset", all.len().to_string()));
            let answer = self.session.send_before(&call, deadline).await?;
            let page = decode::server_groups(&answer.body);
            let page = page.map_err(|detail| Seam::malformed(call.operation.clone(), detail))?;
            if page.is_empty() {
                // A group that is deleted between two pages shifts those behind it, and one that is made may repeat one.
                all.sort_by(|a, b| a.id.cmp(&b.id));
                all.dedup_by(|a, b| a.id == b.id);
                return Ok(all);
            }
            all.extend(page);
        }
        Err(Seam::malformed(call.operation, format!("there are more than {} pages", options.max_pages)))
    }

    async fn aggregates(&self) -> Result<Vec<Aggregate>> {
        let call = Self::get("aggregates", "list aggregates".into(), "/os-aggregates".into(), microversion::AGGREGATES);
        self.decoded(&call, decode::aggregates).await
    }

    async fn add_to_aggregate(&self, id: &AggregateId, host: &HostName) -> Result<()> {
        let operation = format!("add {host} to aggregate {id}");
        let body = json!({"add_host": {"host": host.as_str()}});
        self.change_aggregate("add_to_aggregate", operation, id, body).await
    }

    async fn remove_from_aggregate(&self, id: &AggregateId, host: &HostName) -> Result<()> {
        let operation = format!("remove {host} from aggregate {id}");
        let body = json!({"remove_host": {"host": host.as_str()}});
        self.change_aggregate("remove_from_aggregate", operation, id, body).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ids_cannot_leave_their_segment() {
        assert_eq!(segment("6f2c-41_x.~"), "6f2c-41_x.~");
        assert_eq!(segment("../servers?x#y z"), "..%2Fservers%3Fx%23y%20z");
        assert_eq!(segment(".."), "%2E%2E");
    }

    #[test]
    fn only_what_is_plain_is_searched_for() {
        assert_eq!(longest_plain_part("smoke-hv-1.zone-a.example"), Some("smoke-hv-1"));
        assert_eq!(longest_plain_part("a|(b+long_name"), Some("long_name"));
        assert_eq!(longest_plain_part("*"), None);
        assert_eq!(longest_plain_part(""), None);
    }
}
