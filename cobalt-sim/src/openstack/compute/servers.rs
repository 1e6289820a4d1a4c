//! Servers: listed, shown, made, deleted.

use std::sync::Arc;

use cobalt_core::{
    ids::{HostName, InstanceId},
    nova::{NewServer, NewVolume, NovaClient, Server, ServerStatus, TaskState},
};
use http::StatusCode;
use regex::RegexBuilder;
use serde_json::{Value, json};

use super::{links, time};
use crate::{
    nova::Flavor,
    openstack::{
        answer::{Answer, Refusal},
        call::Call,
        page::Page,
    },
    world::{instance, parse},
};

/// No name is looked for with a larger pattern.
const PATTERN: usize = 1 << 16;

pub(super) async fn list(call: &Call<'_>, detail: bool) -> Result<Answer, Refusal> {
    let query = &call.query;
    // Nova takes the name as a regular expression of its database, which minds no case.
    let name = query.get("name").map(|pattern| {
        let built = RegexBuilder::new(pattern).case_insensitive(true).size_limit(PATTERN).build();
        built.map_err(|_| Refusal::bad(format!("Invalid input for query parameters name: {pattern}")))
    });
    let name = name.transpose()?;
    let host = query.get("host").map(HostName::from);
    let method = if host.is_some() { "servers_on" } else { "servers_named" };
    let everybody = query.flag("all_tenants") || query.flag("all_projects");
    let meant = |project: &str, called: &str| {
        let ours = if everybody {
            query.admits("project_id", project) && query.admits("tenant_id", project)
        } else {
            project == call.project
        };
        ours && name.as_ref().is_none_or(|name| name.is_match(called))
    };
    // Of all servers of the region only those that are meant are looked at closely.
    let ids: Vec<InstanceId> = call.api.world.with(|state| {
        let all = state.nova.servers.iter().filter(|_| host.is_none());
        all.filter(|(_, server)| meant(&server.project, &server.name)).map(|(id, _)| instance(*id)).collect()
    });
    let mut all = call
        .nova(method, |nova| async move {
            if let Some(host) = host {
                return nova.servers_on(&host).await;
            }
            let mut all = Vec::new();
            for id in ids {
                match nova.server(&id).await {
                    Err(error) if error.is_not_found() => {}
                    server => all.push(server?),
                }
            }
            // A cloud that has none of them is asked all the same.
            if all.is_empty() { nova.aggregates().await.map(|_| all) } else { Ok(all) }
        })
        .await?;
    all.retain(|server| {
        let status = query.get("status").is_none_or(|wanted| wanted.eq_ignore_ascii_case(word(&server.status)));
        status && meant(&server.project, &server.name)
    });
    all.sort_by(|a, b| a.id.cmp(&b.id));
    let page = Page::asked(call)?;
    let (all, next) = page.cut(all, |server| server.id.to_string())?;
    let shown: Vec<Value> =
        all.iter().map(|server| if detail { show(call, server) } else { brief(call, server) }).collect();
    let path = if detail { "/compute/v2.1/servers/detail" } else { "/compute/v2.1/servers" };
    Ok(Answer::ok(&page.body(call, path, "servers", &shown, next.as_deref())))
}

pub(super) async fn one(call: &Call<'_>) -> Result<Answer, Refusal> {
    let id = InstanceId::from(call.parameter(0));
    let server =
        call.nova("server", |nova| async move { nova.server(&id).await }).await.map_err(|no| unknown(call, no))?;
    Ok(Answer::ok(&json!({"server": show(call, &server)})))
}

/// Nova's words for what is not there.
pub(super) fn unknown(call: &Call<'_>, refusal: Refusal) -> Refusal {
    match refusal.status() {
        Some(StatusCode::NOT_FOUND) => Refusal::missing(format!("Instance {} could not be found.", call.parameter(0))),
        _ => refusal,
    }
}

fn brief(call: &Call<'_>, server: &Server) -> Value {
    let id = server.id.as_str();
    json!({"id": id, "name": server.name, "links": links(call, &format!("/servers/{id}"))})
}

/// What the hypervisor calls a server.
pub(super) fn domain_name(id: &InstanceId) -> String {
    format!("instance-{}", id.as_str().get(..8).unwrap_or(id.as_str()))
}

/// The older of Nova's two ways to write a moment.
fn whole_seconds(time: &str) -> String {
    format!("{}Z", time.split('.').next().unwrap_or(time))
}

fn show(call: &Call<'_>, server: &Server) -> Value {
    let (flavor, image) = call.api.world.with(|state| {
        let flavor = parse(&server.id).and_then(|id| state.nova.servers.get(&id)).map(|known| known.flavor.clone());
        (flavor, state.nova.images.first().map(|image| image.id.to_string()))
    });
    let image = match image {
        Some(id) if server.local_disk => json!({"id": id, "links": links(call, &format!("/images/{id}"))}),
        // Nova's way to say that it boots from a volume.
        _ => json!(""),
    };
    let volumes = server.volumes.iter().map(|id| json!({"id": id, "delete_on_termination": true}));
    let mut shown = brief(call, server);
    let (created, launched) = (server.created_at.map(time), server.launched_at.map(time));
    let host = server.host.as_ref().map(HostName::as_str);
    let more = json!({
        "status": word(&server.status), "tenant_id": server.project, "user_id": "operator", "metadata": {},
        "hostId": host.unwrap_or_default(), "image": image, "addresses": {}, "accessIPv4": "", "accessIPv6": "",
        "flavor": flavor.map_or(Value::Null, |flavor| embedded(call, server, &flavor)),
        "created": created.as_deref().map(whole_seconds),
        "updated": launched.as_deref().or(created.as_deref()).map(whole_seconds),
        "progress": 0, "config_drive": "", "key_name": null, "OS-DCF:diskConfig": "MANUAL", "security_groups": [],
        "OS-EXT-AZ:availability_zone": server.zone.as_deref().unwrap_or_default(),
        "OS-EXT-SRV-ATTR:host": host, "OS-EXT-SRV-ATTR:hypervisor_hostname": host,
        "OS-EXT-SRV-ATTR:instance_name": domain_name(&server.id),
        "OS-EXT-STS:vm_state": vm_state(&server.status), "OS-EXT-STS:task_state": server.task.as_ref().map(task),
        "OS-EXT-STS:power_state": power(server), "OS-SRV-USG:launched_at": launched, "OS-SRV-USG:terminated_at": null,
        "os-extended-volumes:volumes_attached": volumes.collect::<Vec<_>>(),
    });
    if let (Value::Object(shown), Value::Object(more)) = (&mut shown, more) {
        shown.extend(more);
    }
    if call.at_least(9) {
        shown["locked"] = server.locked.into();
    }
    if let Some(fault) = &server.fault {
        shown["fault"] = json!({"code": 500, "message": fault, "created": time(call.api.world.now())});
    }
    shown
}

/// The flavor as it was when the server was made, for those who ask for that.
fn embedded(call: &Call<'_>, server: &Server, flavor: &Arc<Flavor>) -> Value {
    if !call.at_least(47) {
        return json!({"id": flavor.id, "links": links(call, &format!("/flavors/{}", flavor.id))});
    }
    let mut shown = json!({
        "original_name": flavor.name, "vcpus": server.vcpus, "ram": server.memory_mb, "disk": flavor.disk_gb,
        "ephemeral": 0, "swap": 0,
    });
    if call.at_least(61) {
        let specs = server.required_traits.iter().map(|name| (format!("trait:{name}"), "required".into()));
        shown["extra_specs"] = Value::Object(specs.collect());
    }
    shown
}

fn word(status: &ServerStatus) -> &str {
    match status {
        ServerStatus::Active => "ACTIVE",
        ServerStatus::Build => "BUILD",
        ServerStatus::Error => "ERROR",
        ServerStatus::Migrating => "MIGRATING",
        ServerStatus::Paused => "PAUSED",
        ServerStatus::Rebuild => "REBUILD",
        ServerStatus::Resize => "RESIZE",
        ServerStatus::ShutOff => "SHUTOFF",
        ServerStatus::Suspended => "SUSPENDED",
        ServerStatus::VerifyResize => "VERIFY_RESIZE",
        ServerStatus::Deleted => "DELETED",
        ServerStatus::Other(word) => word,
        _ => "UNKNOWN",
    }
}

fn vm_state(status: &ServerStatus) -> &'static str {
    match status {
        ServerStatus::Build => "building",
        ServerStatus::Error => "error",
        ServerStatus::Paused => "paused",
        ServerStatus::ShutOff => "stopped",
        ServerStatus::Suspended => "suspended",
        ServerStatus::VerifyResize => "resized",
        ServerStatus::Deleted => "deleted",
        _ => "active",
    }
}

fn task(task: &TaskState) -> &str {
    match task {
        TaskState::Migrating => "migrating",
        TaskState::Deleting => "deleting",
        TaskState::Rebuilding => "rebuilding",
        TaskState::Other(word) => word,
        _ => "unknown",
    }
}

fn power(server: &Server) -> u8 {
    match (&server.status, server.powered) {
        (ServerStatus::Paused, true) => 3,
        (_, true) => 1,
        (ServerStatus::Build, false) => 0,
        (_, false) => 4,
    }
}

pub(super) async fn create(call: &Call<'_>) -> Result<Answer, Refusal> {
    let body = call.json()?;
    let new = wanted(call, &body["server"])?;
    let id = call.nova("create_server", |nova| async move { nova.create_server(&new).await }).await?;
    // The seam knows one project only; over HTTP it is the token's.
    call.api.world.with(|state| {
        if let Some(server) = parse(&id).and_then(|id| state.nova.servers.get_mut(&id))
            && *server.project != *call.project
        {
            server.project = Arc::from(call.project.as_str());
        }
    });
    let server = json!({"id": id.as_str(), "adminPass": "simulated", "OS-DCF:diskConfig": "MANUAL",
                        "security_groups": [{"name": "default"}], "links": links(call, &format!("/servers/{id}"))});
    let place = format!("{}/compute/v2.1/servers/{id}", call.base);
    Ok(Answer::json(StatusCode::ACCEPTED, &json!({"server": server})).header("location", &place))
}

/// Reads what a new server shall be.
fn wanted(call: &Call<'_>, server: &Value) -> Result<NewServer, Refusal> {
    let required = |key: &str| {
        let text = server[key].as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned).ok_or_else(|| Refusal::bad(format!("'{key}' is a required property")))
    };
    let network = match &server["networks"] {
        Value::Null if call.at_least(37) => return Err(Refusal::bad("'networks' is a required property")),
        Value::Null => None,
        Value::String(word) if word == "none" || word == "auto" => None,
        Value::Array(all) => match all.as_slice() {
            [] => None,
            [one] => {
                Some(one["uuid"].as_str().ok_or_else(|| Refusal::bad("a network needs its uuid here"))?.to_owned())
            }
            _ => return Err(Refusal::bad("a simulated server has one network at most")),
        },
        other => return Err(Refusal::bad(format!("Invalid input for field/attribute networks. Value: {other}."))),
    };
    let disk = &server["block_device_mapping_v2"][0];
    let (image, volume) = if disk.is_null() {
        (required("imageRef")?, None)
    } else {
        let from_image = disk["source_type"] == "image" && disk["destination_type"] == "volume";
        let (Some(image), true) = (disk["uuid"].as_str(), from_image) else {
            return Err(Refusal::bad("a simulated server boots from an image, or from a volume that is made of one"));
        };
        let size_gb = disk["volume_size"].as_u64().and_then(|size| u32::try_from(size).ok()).unwrap_or(1);
        (image.to_owned(), Some(NewVolume { size_gb, kind: disk["volume_type"].as_str().map(str::to_owned) }))
    };
    Ok(NewServer {
        name: required("name")?,
        flavor: required("flavorRef")?,
        image,
        network,
        availability_zone: server["availability_zone"].as_str().map(str::to_owned),
        volume,
    })
}

pub(super) async fn delete(call: &Call<'_>) -> Result<Answer, Refusal> {
    let id = InstanceId::from(call.parameter(0));
    let deleted = call.nova("delete_server", |nova| async move { nova.delete_server(&id).await }).await;
    deleted.map_err(|no| unknown(call, no))?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}
