//! Who is asking, and whether they may.

mod escalation;
mod impersonation;
mod rbac;
mod rules;
pub(crate) mod tokens;

use std::collections::BTreeMap;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};

use crate::http::Params;
use crate::server::Inner;
use crate::status::{ApiError, ApiResult};
use crate::verbs::{Call, Target, Verb};

pub(crate) use escalation::check as check_escalation;
pub(crate) use impersonation::impersonate;
pub(crate) use rbac::{Request, allowed};
pub(crate) use rules::summary as rules_of;

/// Members of this group may do everything.
pub const MASTERS: &str = "system:masters";

/// A user and the groups it is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// User name, for example `system:serviceaccount:ns:name`.
    pub user: String,
    /// Groups the user belongs to.
    pub groups: Vec<String>,
    /// What tells this user from another one of that name; empty means nothing does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// What else the authenticator knows, for example the node a token is bound to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// A user with groups.
    pub fn new<G: Into<String>>(user: impl Into<String>, groups: impl IntoIterator<Item = G>) -> Self {
        let groups = groups.into_iter().map(Into::into).collect();
        Self { user: user.into(), groups, uid: String::new(), extra: BTreeMap::new() }
    }

    /// Adds what an authenticator would know besides, for example
    /// `authentication.kubernetes.io/node-name` of a token that is bound to a pod.
    pub fn with_extra(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.extra.entry(key.into()).or_default().push(value.into());
        self
    }

    /// A user who may do everything.
    pub fn admin(user: impl Into<String>) -> Self {
        Self::new(user, [MASTERS, "system:authenticated"])
    }

    /// Nobody in particular.
    pub fn anonymous() -> Self {
        Self::new("system:anonymous", ["system:unauthenticated"])
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::new(
            format!("system:serviceaccount:{namespace}:{name}"),
            [
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ],
        )
    }

    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|g| g == MASTERS)
    }
}

/// How requests are authenticated and authorized.
#[derive(Debug, Clone, Default)]
pub(crate) struct AuthConfig {
    pub(crate) tokens: BTreeMap<String, Identity>,
    /// Requests without a token are anonymous instead of admin.
    pub(crate) required: bool,
    /// Stored roles and bindings decide.
    pub(crate) rbac: bool,
}

impl AuthConfig {
    /// Who a token of the configuration stands for.
    pub(crate) fn static_identity(&self, token: &str) -> Option<Identity> {
        self.tokens.get(token).map(authenticated)
    }

    /// The identity of a request. `issued` knows the tokens of service accounts, `local` is who the in-process transport was opened for.
    pub(crate) fn authenticate(
        &self,
        headers: &HeaderMap,
        local: Option<&Identity>,
        issued: impl Fn(&str) -> Option<Identity>,
    ) -> ApiResult<Identity> {
        let header = headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok());
        let token = header.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        if let Some(token) = token {
            let known = self.static_identity(token).or_else(|| issued(token));
            return known.ok_or_else(ApiError::unauthorized);
        }
        Ok(match local {
            Some(identity) => identity.clone(),
            None if self.required => Identity::anonymous(),
            None => Identity::admin("admin"),
        })
    }
}

/// Whoever has a token is in the group of those who have.
fn authenticated(identity: &Identity) -> Identity {
    let mut identity = identity.clone();
    let group = "system:authenticated";
    if !identity.groups.iter().any(|g| g == group) {
        identity.groups.push(group.to_owned());
    }
    identity
}

/// Refuses a verb on a resource that no role allows.
pub(crate) fn authorize(server: &Inner, identity: &Identity, target: &Target, params: &Params) -> ApiResult<()> {
    if !server.auth.rbac {
        return Ok(());
    }
    // Who lists or watches one name needs no right to the others.
    let selected = match target.verb {
        Verb::List | Verb::Watch => params.get("fieldSelector").and_then(selected_name),
        _ => None,
    };
    let name = target.name.as_deref().or(selected).unwrap_or_default();
    let request = Request::Resource {
        verb: target.verb.name(),
        group: &target.resource.group,
        resource: &target.resource.plural,
        subresource: target.subresource.as_deref().unwrap_or_default(),
        namespace: target.namespace.as_deref().unwrap_or_default(),
        name,
    };
    if allowed(server, identity, &request).is_some() {
        return Ok(());
    }
    Err(ApiError::forbidden(&target.resource.subject(name), &denial(identity, &request), &[]))
}

/// The name that a field selector demands.
fn selected_name(selector: &str) -> Option<&str> {
    selector.split(',').find_map(|term| {
        let rest = term.strip_prefix("metadata.name")?;
        rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))
    })
}

/// Refuses what would make a new object, for those who may only change the ones there are.
pub(crate) fn authorize_create(call: &Call<'_>) -> ApiResult<()> {
    let target = Target { verb: Verb::Create, ..call.target.clone() };
    authorize(call.server, call.identity, &target, call.params)
}

/// Refuses a path that is no resource. Version, health and discovery are open to all.
pub(crate) fn authorize_path(server: &Inner, identity: &Identity, method: &Method, path: &str) -> ApiResult<()> {
    let open = ["/version", "/healthz", "/readyz", "/livez"].contains(&path);
    let discovery = path == "/" || path.starts_with("/api") || path.starts_with("/openapi");
    let known = identity.groups.iter().any(|g| g == "system:authenticated");
    let verb = method.as_str().to_ascii_lowercase();
    let reads = matches!(verb.as_str(), "get" | "head");
    if !server.auth.rbac || (reads && (open || (discovery && known))) {
        return Ok(());
    }
    let request = Request::Path { verb: &verb, path };
    if allowed(server, identity, &request).is_some() {
        return Ok(());
    }
    Err(ApiError::forbidden_path(&denial(identity, &request)))
}

/// `User "x" cannot get resource "y" in API group "z" in the namespace "n"`.
fn denial(identity: &Identity, request: &Request<'_>) -> String {
    let user = &identity.user;
    match request {
        Request::Path { verb, path } => format!("User {user:?} cannot {verb} path {path:?}"),
        Request::Resource { verb, group, resource, subresource, namespace, .. } => {
            let slash = if subresource.is_empty() { "" } else { "/" };
            let place = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {namespace:?}")
            };
            format!(
                "User {user:?} cannot {verb} resource \"{resource}{slash}{subresource}\" in API group {group:?} {place}"
            )
        }
    }
}

/// The client name of a request: its User-Agent up to the slash unless a token says who it is.
pub(crate) fn client_name(headers: &HeaderMap, identity: &Identity, has_token: bool) -> String {
    if has_token {
        return identity.user.clone();
    }
    crate::http::user_agent(headers).unwrap_or_else(|| identity.user.clone())
}
