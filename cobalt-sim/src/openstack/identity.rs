//! Keystone: logins, and the catalog that comes with them.

use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    Inner,
    answer::{Answer, Refusal},
    tokens::{Login, Shown},
};

/// Below both `/identity` and nothing: people write either.
pub(super) const ROUTES: &[&str] = &[
    "POST /identity/v3/auth/tokens",
    "GET /identity/v3/auth/tokens",
    "DELETE /identity/v3/auth/tokens",
    "GET /identity/v3/auth/catalog",
    "POST /v3/auth/tokens",
    "GET /v3/auth/tokens",
    "DELETE /v3/auth/tokens",
    "GET /v3/auth/catalog",
];

pub(super) fn answer(
    api: &Inner,
    route: &'static str,
    headers: &HeaderMap,
    body: &[u8],
    base: &str,
) -> Result<Answer, Refusal> {
    let (method, path) = route.split_once(' ').unwrap_or_default();
    if method == "POST" {
        return log_in(api, body, base);
    }
    let own = token(headers, "x-auth-token");
    api.login_of(own)?;
    if path.ends_with("/catalog") {
        return Ok(Answer::ok(&json!({"catalog": catalog(&api.settings().region, base), "links": {}})));
    }
    // A token may look at itself, and an administrator, which everybody is, at all others.
    let subject = token(headers, "x-subject-token");
    let missing = || Refusal::missing("Could not find token.");
    if method == "DELETE" {
        return if api.tokens().revoke(subject) { Ok(Answer::empty(StatusCode::NO_CONTENT)) } else { Err(missing()) };
    }
    let shown = api.tokens().find(subject, Instant::now()).ok_or_else(missing)?;
    Ok(Answer::ok(&show(api, &shown, base)).header("x-subject-token", subject))
}

fn token<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn log_in(api: &Inner, body: &[u8], base: &str) -> Result<Answer, Refusal> {
    let body: Value = serde_json::from_slice(body).map_err(|_| Refusal::bad("The request body is not JSON."))?;
    let auth = &body["auth"];
    let identity = &auth["identity"];
    let methods = identity["methods"].as_array().filter(|methods| !methods.is_empty());
    let methods = methods.ok_or_else(|| Refusal::bad("'identity' with 'methods' is a required property"))?;
    let mut user = None;
    for method in methods {
        user = Some(match method.as_str() {
            Some("password") => password(api, &identity["password"]["user"])?,
            Some("application_credential") => application(api, &identity["application_credential"])?,
            Some("token") => {
                let id = identity["token"]["id"].as_str().unwrap_or_default();
                api.login_of(id)?.login.user
            }
            _ => return Err(Refusal::unauthorized()),
        });
    }
    let login = Login {
        user: user.unwrap_or_default(),
        project: project(api, &auth["scope"]),
        system: auth["scope"].get("system").is_some(),
    };
    let (life, now) = (api.settings().token_life, Instant::now());
    let mut tokens = api.tokens();
    let id = tokens.issue(login.clone(), life, now);
    drop(tokens);
    let shown = Shown { login, issued: now, ends: now + life };
    Ok(Answer::json(StatusCode::CREATED, &show(api, &shown, base)).header("x-subject-token", &id))
}

/// Who it is, if we believe it.
fn password(api: &Inner, user: &Value) -> Result<String, Refusal> {
    let named = user["name"].as_str().or_else(|| user["id"].as_str());
    let (Some(name), Some(password)) = (named, user["password"].as_str()) else {
        return Err(Refusal::bad("a user with a name or an id and a password is required"));
    };
    match &api.settings().user {
        Some((known, right)) if known != name || right != password => Err(Refusal::unauthorized()),
        _ => Ok(name.to_owned()),
    }
}

fn application(api: &Inner, credential: &Value) -> Result<String, Refusal> {
    let named = credential["id"].as_str().or_else(|| credential["name"].as_str());
    let (Some(name), Some(secret)) = (named, credential["secret"].as_str()) else {
        return Err(Refusal::bad("an application credential with an id or a name and a secret is required"));
    };
    let user = &credential["user"];
    let owner = user["name"].as_str().or_else(|| user["id"].as_str()).unwrap_or(name);
    match &api.settings().user {
        Some((known, right)) if known != name || right != secret => Err(Refusal::unauthorized()),
        _ => Ok(owner.to_owned()),
    }
}

/// Id and name of the project of a login. What the region does not know is another name of its own project.
fn project(api: &Inner, scope: &Value) -> Option<(String, String)> {
    if scope.get("system").is_some() || scope.get("domain").is_some() {
        return None;
    }
    let asked = &scope["project"];
    let asked = asked["id"].as_str().or_else(|| asked["name"].as_str());
    let (own, known) = api.world.with(|state| {
        let known = asked.filter(|asked| state.nova.projects.iter().any(|project| &**project == *asked));
        (state.nova.own_project.to_string(), known.is_some())
    });
    let name = asked.unwrap_or(&own).to_owned();
    Some((if known { name.clone() } else { own }, name))
}

fn show(api: &Inner, shown: &Shown, base: &str) -> Value {
    // The world's clock, and not the machine's: its day is the one that all other answers are of.
    let at = |moment| text(api.world.with(|state| state.timestamp_of(moment)));
    let domain = json!({"id": "default", "name": "Default"});
    let user = &shown.login.user;
    let mut token = json!({
        "methods": ["password"], "audit_ids": [], "is_domain": false,
        "user": {"id": user, "name": user, "domain": domain, "password_expires_at": null},
        "issued_at": at(shown.issued), "expires_at": at(shown.ends),
        "roles": [{"id": "admin", "name": "admin"}, {"id": "member", "name": "member"}],
        "catalog": catalog(&api.settings().region, base),
    });
    if let Some((id, name)) = &shown.login.project {
        token["project"] = json!({"id": id, "name": name, "domain": domain});
    }
    if shown.login.system {
        token["system"] = json!({"all": true});
    }
    json!({"token": token})
}

fn text(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Every service is at the address where the caller found us.
fn catalog(region: &str, base: &str) -> Value {
    let services = [
        ("identity", "keystone", "/identity"),
        ("compute", "nova", "/compute/v2.1"),
        ("placement", "placement", "/placement"),
        ("image", "glance", "/image"),
        ("network", "neutron", "/network"),
    ];
    let entries = (1_u128..).zip(services).map(|(number, (kind, name, path))| {
        let endpoints = (1_u128..).zip(["public", "internal", "admin"]).map(|(interface_number, interface)| {
            json!({"id": Uuid::from_u128(number * 16 + interface_number).simple().to_string(), "interface": interface,
                   "region": region, "region_id": region, "url": format!("{base}{path}")})
        });
        let endpoints: Vec<Value> = endpoints.collect();
        json!({"id": Uuid::from_u128(number).simple().to_string(), "type": kind, "name": name, "endpoints": endpoints})
    });
    Value::Array(entries.collect())
}
