//! Acting as somebody else, for those who may.

use http::HeaderMap;

use super::{Identity, Request, allowed, denial};
use crate::server::Inner;
use crate::status::{ApiError, ApiResult, Subject};

const GROUP: &str = "authentication.k8s.io";
const EXTRA: &str = "impersonate-extra-";

/// The identity to act as, if the request asks for another one.
pub(crate) fn impersonate(server: &Inner, identity: Identity, headers: &HeaderMap) -> ApiResult<Identity> {
    let user = texts(headers, "impersonate-user")?.into_iter().next().filter(|user| !user.is_empty());
    let groups = texts(headers, "impersonate-group")?;
    let uid = texts(headers, "impersonate-uid")?.into_iter().next().unwrap_or_default();
    let mut acting = Identity::new(user.unwrap_or_default(), groups);
    uid.clone_into(&mut acting.uid);
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            let key = percent_encoding::percent_decode_str(key).decode_utf8_lossy().into_owned();
            for value in texts(headers, name.as_str())? {
                acting = acting.with_extra(key.clone(), value);
            }
        }
    }
    let asked = !acting.groups.is_empty() || !acting.uid.is_empty() || !acting.extra.is_empty();
    match user {
        None if asked => {
            return Err(ApiError::internal("requested groups, uid or extra without impersonating a user"));
        }
        None => return Ok(identity),
        Some(_) => check(server, &identity, &acting)?,
    }
    if acting.groups.is_empty()
        && let Some((namespace, name)) = service_account(&acting.user)
    {
        acting.groups = Identity::service_account(namespace, name).groups;
    }
    let is_in = |group: &str| acting.groups.iter().any(|g| g == group);
    let (known, unknown) = ("system:authenticated", "system:unauthenticated");
    // Who is said to be unauthenticated is not authenticated by being impersonated.
    let group = if acting.user == Identity::anonymous().user { unknown } else { known };
    if !is_in(unknown) && !is_in(group) {
        acting.groups.push(group.to_owned());
    }
    Ok(acting)
}

/// Every part of the wanted identity needs its own right.
fn check(server: &Inner, identity: &Identity, acting: &Identity) -> ApiResult<()> {
    if !server.auth.rbac {
        return Ok(());
    }
    let (namespace, user) = service_account(&acting.user).unwrap_or(("", &acting.user));
    let mut wanted = vec![("", if namespace.is_empty() { "users" } else { "serviceaccounts" }, "", namespace, user)];
    wanted.extend(acting.groups.iter().map(|group| ("", "groups", "", "", group.as_str())));
    if !acting.uid.is_empty() {
        wanted.push((GROUP, "uids", "", "", &acting.uid));
    }
    for (key, values) in &acting.extra {
        wanted.extend(values.iter().map(|value| (GROUP, "userextras", key.as_str(), "", value.as_str())));
    }
    for (group, resource, subresource, namespace, name) in wanted {
        let request = Request::Resource { verb: "impersonate", group, resource, subresource, namespace, name };
        if allowed(server, identity, &request).is_none() {
            let subject = Subject { group, kind: resource, name };
            return Err(ApiError::forbidden(&subject, &denial(identity, &request), &[]));
        }
    }
    Ok(())
}

/// Namespace and name of the service account a user name stands for.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// The values of a header. One that cannot be read must not be passed over: the caller would act as itself.
fn texts<'a>(headers: &'a HeaderMap, name: &str) -> ApiResult<Vec<&'a str>> {
    let read = |value: &'a http::HeaderValue| {
        std::str::from_utf8(value.as_bytes())
            .map_err(|_| ApiError::bad_request(format!("header {name:?} is not valid UTF-8")))
    };
    headers.get_all(name).iter().map(read).collect()
}
