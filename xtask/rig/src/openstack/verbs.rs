//! What a test does to the cloud.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Account, ControlPlane, ControlService};
use crate::error::{Error, Result};

/// A server to be made; from [`Boot::new`].
#[derive(Debug, Clone)]
pub struct Boot<'a> {
    name: &'a str,
    host: Option<&'a str>,
    flavor: &'a str,
    network: Option<&'a str>,
    group: Option<&'a str>,
    account: Account,
}

impl<'a> Boot<'a> {
    /// A small one without a network, wherever the scheduler likes.
    pub fn new(name: &'a str) -> Boot<'a> {
        Boot { name, host: None, flavor: "1", network: None, group: None, account: Account::Operator }
    }

    /// On this host and on no other.
    pub fn on(mut self, host: &'a str) -> Boot<'a> {
        self.host = Some(host);
        self
    }

    /// Of this flavor, by id.
    pub fn flavor(mut self, id: &'a str) -> Boot<'a> {
        self.flavor = id;
        self
    }

    /// With a port in this network, by id.
    pub fn network(mut self, id: &'a str) -> Boot<'a> {
        self.network = Some(id);
        self
    }

    /// In this server group, by id.
    pub fn group(mut self, id: &'a str) -> Boot<'a> {
        self.group = Some(id);
        self
    }

    /// In the project of this account.
    pub fn by(mut self, account: Account) -> Boot<'a> {
        self.account = account;
        self
    }
}

impl ControlPlane {
    /// Ends a service without a warning and starts it again. Does not wait until it answers.
    pub fn restart(&self, service: ControlService) -> Result<()> {
        self.kill(service)?;
        self.start(service)
    }

    /// Makes all tokens of an account worthless, as a change of its password does.
    pub fn revoke_tokens(&self, account: Account) -> Result<()> {
        let (user, _) = account.names();
        let body = self.must("GET", "identity", &format!("/users?name={user}"), None)?;
        let id = body["users"][0]["id"].as_str().unwrap_or_default();
        let same = json!({"user": {"password": super::config::PASSWORD}});
        self.must("PATCH", "identity", &format!("/users/{id}"), Some(&same)).map(drop)
    }

    /// A new token of an account, to be told from those that clients have.
    pub fn log_in(&self, account: Account) -> Result<String> {
        self.launcher.log_in(account)
    }

    /// Whether Nova accepts a token.
    pub fn accepts(&self, token: &str) -> Result<bool> {
        match self.launcher.probe(token)? {
            401 => Ok(false),
            status if status < 300 => Ok(true),
            status => Err(Error::Failed { command: "try a token".to_owned(), said: status.to_string() }),
        }
    }

    /// The id of an account's project.
    pub fn project(&self, account: Account) -> Result<String> {
        let (_, project) = account.names();
        let body = self.must("GET", "identity", &format!("/projects?name={project}"), None)?;
        id_of(&body["projects"][0], &format!("find project {project}"))
    }

    /// Makes an aggregate, and with a zone an availability zone; answers its number.
    pub fn add_aggregate(&self, name: &str, zone: Option<&str>) -> Result<u64> {
        let body = json!({"aggregate": {"name": name, "availability_zone": zone}});
        let made = self.must("POST", "compute", "/os-aggregates", Some(&body))?;
        let nothing = || Error::Failed { command: format!("add aggregate {name}"), said: made.to_string() };
        made["aggregate"]["id"].as_u64().ok_or_else(nothing)
    }

    /// Writes metadata of an aggregate.
    pub fn set_aggregate_metadata(&self, id: u64, key: &str, value: &str) -> Result<()> {
        let body = json!({"set_metadata": {"metadata": {key: value}}});
        self.must("POST", "compute", &format!("/os-aggregates/{id}/action"), Some(&body)).map(drop)
    }

    /// Makes a flavor of one CPU and little memory, with extra specs such as `trait:CUSTOM_X` = `required`.
    pub fn add_flavor(&self, id: &str, name: &str, disk_gb: u64, extra_specs: &[(&str, &str)]) -> Result<()> {
        let body = json!({"flavor": {"id": id, "name": name, "ram": 64, "vcpus": 1, "disk": disk_gb}});
        self.must("POST", "compute", "/flavors", Some(&body))?;
        if extra_specs.is_empty() {
            return Ok(());
        }
        let specs: BTreeMap<&str, &str> = extra_specs.iter().copied().collect();
        let body = json!({"extra_specs": specs});
        self.must("POST", "compute", &format!("/flavors/{id}/os-extra_specs"), Some(&body)).map(drop)
    }

    /// Makes an image that boots, and answers its id.
    pub fn add_image(&self, name: &str) -> Result<String> {
        self.launcher.add_image(name)
    }

    /// Makes a network with a subnet in an account's project, and answers its id. Servers can have ports in it, which
    /// lead nowhere.
    pub fn add_network(&self, account: Account, name: &str, shared: bool) -> Result<String> {
        let project = self.project(account)?;
        let subnet = json!({"subnet": {
            "name": name, "project_id": project, "cidr": "192.0.2.0/24", "ip_version": 4, "gateway_ip": "192.0.2.1",
            "enable_dhcp": false, "dns_nameservers": [], "host_routes": [],
        }});
        let subnet = self.must("POST", "network", "/v2.0/subnets", Some(&subnet))?;
        let body = json!({"network": {
            "name": name, "shared": shared, "project_id": project, "router:external": false, "admin_state_up": true,
            "subnets": [subnet["subnet"]["id"]], "mtu": 1500, "port_security_enabled": false,
        }});
        let made = self.must("POST", "network", "/v2.0/networks", Some(&body))?;
        id_of(&made["network"], &format!("add network {name}"))
    }

    /// Puts a server on a host and waits until it runs.
    pub fn boot(&self, host: &str, name: &str) -> Result<String> {
        let id = self.request(&Boot::new(name).on(host))?;
        self.wait_for_server(&id, "ACTIVE")?;
        Ok(id)
    }

    /// Makes a server group of the operator's project, and answers its id.
    pub fn add_server_group(&self, name: &str, policy: &str) -> Result<String> {
        let body = json!({"server_group": {"name": name, "policy": policy}});
        let made = self.must("POST", "compute", "/os-server-groups", Some(&body))?;
        id_of(&made["server_group"], &format!("make server group {name}"))
    }

    /// Asks for a server and answers its id. Does not wait for it.
    pub fn request(&self, boot: &Boot<'_>) -> Result<String> {
        let networks = boot.network.map_or_else(|| json!("none"), |id| json!([{"uuid": id}]));
        let mut server =
            json!({"name": boot.name, "flavorRef": boot.flavor, "imageRef": self.image, "networks": networks});
        if let Some(host) = boot.host {
            // The zone must be the host's own.
            let services = self.services()?;
            let zone = services.iter().find(|service| service.host == host).map_or("nova", |service| &service.zone);
            server["availability_zone"] = format!("{zone}:{host}").into();
        }
        let mut body = json!({"server": server});
        if let Some(group) = boot.group {
            body["os:scheduler_hints"] = json!({"group": group});
        }
        let (status, made) = self.launcher.api_as(boot.account, "POST", "compute", "/servers", Some(&body))?;
        id_of(&made["server"], &format!("boot {}", boot.name))
            .map_err(|_| Error::Failed { command: format!("boot {}", boot.name), said: format!("{status} {made}") })
    }

    /// Waits until a server has this status and nothing is done with it; an error if it is broken instead.
    pub fn wait_for_server(&self, id: &str, status: &str) -> Result<()> {
        let (mut fault, mut looks) = (None, 0);
        self.wait_for("compute", &format!("/servers/{id}"), |body| {
            let server = &body["server"];
            if server["status"] == "ERROR" && status != "ERROR" {
                // The reason comes a moment after the status, if it comes.
                looks += 1;
                let said = server["fault"]["message"].as_str().map(str::to_owned);
                fault = said.or_else(|| (looks > 25).then(|| "it does not say why".to_owned()));
            }
            fault.is_some() || (server["status"] == status && server["OS-EXT-STS:task_state"].is_null())
        })?;
        fault.map_or(Ok(()), |said| Err(Error::Failed { command: format!("make server {id} {status}"), said }))
    }

    /// An action of Nova's on a server: `os-stop`, `pause`, `lock`, `os-migrateLive` …, with its arguments.
    pub fn act(&self, server: &str, action: &str, arguments: &Value) -> Result<()> {
        let body = json!({action: arguments});
        self.must("POST", "compute", &format!("/servers/{server}/action"), Some(&body)).map(drop)
    }

    /// Deletes a server and waits until it is gone. One that is gone already is fine.
    pub fn delete(&self, server: &str) -> Result<()> {
        let path = format!("/servers/{server}");
        match self.api("DELETE", "compute", &path, None)? {
            (404, _) => return Ok(()),
            (status, _) if status < 300 => {}
            (status, body) => {
                return Err(Error::Failed {
                    command: format!("delete server {server}"),
                    said: format!("{status} {body}"),
                });
            }
        }
        self.wait_until(&format!("the end of server {server}"), || {
            self.api("GET", "compute", &path, None).is_ok_and(|(status, _)| status == 404)
        })
    }
}

fn id_of(value: &Value, doing: &str) -> Result<String> {
    let nothing = || Error::Failed { command: doing.to_owned(), said: format!("it answers {value}") };
    value["id"].as_str().map(str::to_owned).ok_or_else(nothing)
}
