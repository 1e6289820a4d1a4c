//! Hypervisors.

use std::collections::BTreeMap;

use cobalt_core::nova::{ComputeService, Inventory, NovaClient, NovaHypervisor};
use serde_json::{Value, json};

use super::{services, state, status};
use crate::{
    nova::Amounts,
    openstack::{
        answer::{Answer, Refusal},
        call::Call,
        page::Page,
    },
};

const PATH: &str = "/compute/v2.1/os-hypervisors";

pub(super) async fn list(call: &Call<'_>, detail: bool) -> Result<Answer, Refusal> {
    let pattern = call.query.get("hypervisor_hostname_pattern").filter(|_| call.at_least(53));
    let method = if pattern.is_some() { "hypervisor_named" } else { "hypervisors" };
    let mut all = call.nova(method, |nova| async move { nova.hypervisors_with_servers().await }).await?;
    let paged = call.at_least(33);
    let (limit, marker) = (call.query.get("limit"), call.query.get("marker"));
    if let Some(pattern) = pattern {
        if limit.is_some() || marker.is_some() {
            let text =
                "Paging with limit and marker is not supported with the hypervisor_hostname_pattern query parameter.";
            return Err(Refusal::bad(text));
        }
        // A part of the name is enough, and nothing is an error.
        all.retain(|hypervisor| hypervisor.hostname.contains(pattern));
        if all.is_empty() {
            return Err(Refusal::missing(format!("No hypervisor matching '{pattern}' could be found.")));
        }
    }
    let shower = Shower::new(call).await?;
    if !paged || pattern.is_some() {
        let shown: Vec<Value> = all.iter().map(|one| shower.show(one, detail)).collect();
        return Ok(Answer::ok(&json!({"hypervisors": shown})));
    }
    let page = Page::asked(call)?;
    let (all, next) = page.cut(all, |one| shower.marker(one))?;
    let shown: Vec<Value> = all.iter().map(|one| shower.show(one, detail)).collect();
    let path = if detail { format!("{PATH}/detail") } else { PATH.to_owned() };
    Ok(Answer::ok(&page.body(call, &path, "hypervisors", &shown, next.as_deref())))
}

pub(super) async fn one(call: &Call<'_>) -> Result<Answer, Refusal> {
    let wanted = call.parameter(0);
    let shower = Shower::new(call).await?;
    let all = call.nova("hypervisor", |nova| async move { nova.hypervisors_with_servers().await }).await?;
    let found = all.iter().find(|one| shower.marker(one) == wanted);
    let missing = || Refusal::missing(format!("Hypervisor with ID '{wanted}' could not be found."));
    Ok(Answer::ok(&json!({"hypervisor": shower.show(found.ok_or_else(missing)?, true)})))
}

/// What a hypervisor offers, and what is taken of it.
type Sizes = ([Inventory; 3], Amounts);

/// Shows hypervisors, with what the seam does not tell of them.
struct Shower<'a> {
    call: &'a Call<'a>,
    services: BTreeMap<String, ComputeService>,
    sizes: BTreeMap<String, Sizes>,
    with_servers: bool,
}

impl<'a> Shower<'a> {
    async fn new(call: &'a Call<'a>) -> Result<Self, Refusal> {
        let services = call.api.plain_nova().services().await?;
        let sizes = call.api.world.with(|state| {
            let providers = state.nova.providers.values();
            let sizes = |one: &crate::nova::Provider| ([one.vcpu, one.memory, one.disk], one.used);
            providers.map(|one| (one.id.to_string(), sizes(one))).collect()
        });
        Ok(Self {
            services: services.into_iter().map(|service| (service.host.to_string(), service)).collect(),
            with_servers: call.at_least(53) && call.query.flag("with_servers"),
            call,
            sizes,
        })
    }

    /// Numbers for those who do not ask for UUIDs.
    fn id(&self, one: &NovaHypervisor) -> Value {
        if self.call.at_least(53) { one.id.as_str().into() } else { self.call.api.number_of(&one.host).into() }
    }

    /// The same as a text.
    fn marker(&self, one: &NovaHypervisor) -> String {
        match self.id(one) {
            Value::String(uuid) => uuid,
            number => number.to_string(),
        }
    }

    fn show(&self, one: &NovaHypervisor, detail: bool) -> Value {
        let service = self.services.get(one.host.as_str());
        let mut shown = json!({
            "id": self.id(one), "hypervisor_hostname": one.hostname, "state": state(one.state),
            "status": status(service.is_some_and(|service| service.enabled)),
        });
        let servers = one.servers.as_deref().unwrap_or_default();
        let shown_servers =
            || servers.iter().map(|id| json!({"uuid": id.as_str(), "name": super::servers::domain_name(id)}));
        // Without any, older versions leave the list out.
        if self.with_servers && (!servers.is_empty() || self.call.at_least(75)) {
            shown["servers"] = shown_servers().collect();
        }
        if !detail {
            return shown;
        }
        shown["hypervisor_type"] = one.kind.as_str().into();
        shown["hypervisor_version"] = 8_002_000.into();
        shown["host_ip"] = "127.0.0.1".into();
        shown["service"] = json!({
            "id": services::id(self.call, &one.host, &one.service), "host": one.host.as_str(),
            "disabled_reason": service.and_then(|service| service.disabled_reason.clone()),
        });
        if self.call.at_least(88) {
            shown["uptime"] = Value::Null;
            return shown;
        }
        if let Some(([vcpus, memory, disk], used)) = self.sizes.get(one.id.as_str()) {
            shown["vcpus"] = vcpus.total.into();
            shown["vcpus_used"] = used.vcpus.into();
            shown["memory_mb"] = memory.total.into();
            shown["memory_mb_used"] = (used.memory_mb + memory.reserved).into();
            shown["free_ram_mb"] = memory.total.saturating_sub(used.memory_mb + memory.reserved).into();
            shown["local_gb"] = disk.total.into();
            shown["local_gb_used"] = used.disk_gb.into();
            shown["free_disk_gb"] = disk.total.saturating_sub(used.disk_gb).into();
            shown["disk_available_least"] = disk.total.saturating_sub(used.disk_gb).into();
            shown["running_vms"] = servers.len().into();
            shown["current_workload"] = 0.into();
            shown["cpu_info"] = json!({});
        }
        shown
    }
}
