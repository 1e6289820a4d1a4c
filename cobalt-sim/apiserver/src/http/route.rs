//! From method and path to a verb on a resource.

use http::Method;

use crate::registry::Registry;
use crate::status::{ApiError, ApiResult};
use crate::verbs::{Target, Verb};

/// Where a request goes.
#[derive(Debug)]
pub(crate) enum Route {
    /// Discovery, version, health: paths that are no resources.
    Document(Vec<String>),
    Resource(Box<Target>),
}

/// Splits a path like `/apis/g/v1/namespaces/ns/things/name/status`.
pub(crate) fn route(registry: &Registry, method: &Method, path: &str, watch: bool) -> ApiResult<Route> {
    let segments: Vec<String> = path
        .split('/')
        .filter(|s| !s.is_empty())
        .map(|s| percent_encoding::percent_decode_str(s).decode_utf8_lossy().into_owned())
        .collect();
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Ok(Route::Document(segments)),
    };
    let (rest, watch) = match rest {
        ["watch", rest @ ..] => (rest, true),
        _ => (rest, watch),
    };
    let (namespace, rest) = match rest {
        ["namespaces", _, "status" | "finalize"] if group.is_empty() => (None, rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        _ => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, None, None),
        [plural, name] => (*plural, Some(*name), None),
        [plural, name, subresource] => (*plural, Some(*name), Some(*subresource)),
        _ => return Err(ApiError::page_not_found()),
    };
    let Some(resource) = registry.find(group, version, plural) else {
        return Err(unknown(registry, group, version));
    };
    if namespace.is_some() && !resource.namespaced {
        return Err(ApiError::page_not_found());
    }
    let across = resource.namespaced && namespace.is_none();
    if across && (name.is_some() || (resource.is_custom() && *method == Method::POST)) {
        return Err(ApiError::page_not_found());
    }
    let named = name.is_some();
    let verb = match *method {
        Method::GET | Method::HEAD if named => Verb::Get,
        Method::GET | Method::HEAD if watch => Verb::Watch,
        Method::GET | Method::HEAD => Verb::List,
        Method::POST if subresource.is_some() => Verb::Create,
        // A custom resource is created on its object path too.
        Method::POST if !named || resource.is_custom() => Verb::Create,
        Method::PUT if named => Verb::Update,
        Method::PATCH if named => Verb::Patch,
        Method::PUT | Method::PATCH if resource.is_custom() => {
            return Err(ApiError::bad_request("name must be provided"));
        }
        Method::DELETE if named => Verb::Delete,
        Method::DELETE if resource.bucket != "namespaces" => Verb::DeleteCollection,
        _ if resource.is_custom() => {
            return Err(ApiError::unsupported_verb(&resource.subject(""), ""));
        }
        _ => return Err(ApiError::method_not_allowed()),
    };
    if across && matches!(verb, Verb::Create) {
        return Err(ApiError::method_not_allowed());
    }
    Ok(Route::Resource(Box::new(Target {
        resource,
        namespace: namespace.map(str::to_owned),
        name: name.map(str::to_owned),
        subresource: subresource.map(str::to_owned),
        verb,
    })))
}

/// The groups that belong to the server itself answer unknown resources with a `Status`.
fn unknown(registry: &Registry, group: &str, version: &str) -> Box<ApiError> {
    let own = registry.all().iter().any(|r| r.group == group && r.version == version && !r.is_custom());
    if own || group.is_empty() { ApiError::no_such_resource() } else { ApiError::page_not_found() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn target(method: &Method, path: &str) -> ApiResult<Target> {
        match route(&Registry::new(), method, path, false)? {
            Route::Resource(target) => Ok(*target),
            Route::Document(_) => panic!("{path} is not a resource"),
        }
    }

    #[test]
    fn paths_name_namespace_resource_object_and_subresource() {
        let found = target(&Method::PATCH, "/api/v1/namespaces/w/pods/p/status").unwrap();
        assert_eq!(found.namespace.as_deref(), Some("w"));
        assert_eq!(found.resource.kind, "Pod");
        assert_eq!(found.name.as_deref(), Some("p"));
        assert_eq!(found.subresource.as_deref(), Some("status"));
        assert_eq!(found.verb, Verb::Patch);
        let found = target(&Method::GET, "/api/v1/namespaces/w/status").unwrap();
        assert_eq!(found.resource.kind, "Namespace");
        let found = target(&Method::GET, "/api/v1/watch/nodes").unwrap();
        assert_eq!(found.verb, Verb::Watch);
    }

    #[test]
    fn wrong_paths_and_methods_are_refused_as_the_real_server_does() {
        let code = |method: Method, path| target(&method, path).unwrap_err().code().as_u16();
        assert_eq!(code(Method::GET, "/api/v1/nosuch"), 404);
        assert_eq!(code(Method::GET, "/api/v1/namespaces/w/nodes"), 404);
        assert_eq!(code(Method::POST, "/api/v1/configmaps"), 405);
        assert_eq!(code(Method::PUT, "/api/v1/nodes"), 405);
        assert_eq!(code(Method::DELETE, "/api/v1/namespaces"), 405);
    }
}
