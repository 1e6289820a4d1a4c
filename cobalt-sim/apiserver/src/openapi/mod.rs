//! `OpenAPI` documents: what kubectl explains, validates and merges by.
//!
//! Custom resources are described by the schemas of their definitions, built-in kinds by the same table that
//! server-side apply goes by: every field with its type and its merge rules, but hardly any prose.

mod kinds;
mod paths;
mod proto;
mod schemas;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::HeaderMap;
use serde_json::{Map, Value, json};

use crate::http::{Page, Params, Validator, accepted, tag};
use crate::registry::Resource;
use crate::server::Inner;
use crate::store::encode;

/// Which of the two generations of documents something is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Generation {
    V2,
    V3,
}

impl Generation {
    fn reference(self, name: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Self::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }

    /// A reference with a description beside it, which the newer generation has to wrap.
    fn described(self, name: &str, description: &str) -> Value {
        let mut schema = json!({"description": description});
        match self {
            Self::V2 => schema["$ref"] = self.reference(name)["$ref"].take(),
            Self::V3 => schema["allOf"] = json!([self.reference(name)]),
        }
        schema
    }
}

const PROTOBUF_V2: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

fn by_version(server: &Inner) -> Vec<Vec<Arc<Resource>>> {
    let mut all = server.registry.all();
    all.sort_by(|a, b| (&a.group, &a.version).cmp(&(&b.group, &b.version)));
    all.chunk_by(|a, b| a.group == b.group && a.version == b.version).map(<[_]>::to_vec).collect()
}

/// Changes whenever the documents of these resources do.
fn state(resources: &[Arc<Resource>]) -> String {
    let names = resources.iter().map(|resource| {
        let stamp = resource.custom.as_ref().map_or(env!("CARGO_PKG_VERSION"), |custom| &custom.stamp);
        (resource.api_version(), &resource.plural, stamp)
    });
    tag(&names.collect::<Vec<_>>())
}

fn path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Paths that lead to no objects.
const ROOTS: [&str; 3] = ["api", "apis", "version"];

fn add_root(paths: &mut Map<String, Value>, path: &str) {
    let url = format!("/openapi/v3/{path}?hash={}", tag(&env!("CARGO_PKG_VERSION")));
    paths.insert(path.to_owned(), json!({"serverRelativeURL": url}));
}

/// The document of a path that leads to no objects: one operation, which reads it.
pub(crate) fn root(server: &Inner, path: &[&str], params: &Params) -> Option<Page> {
    let known = match path {
        ["apis", group] => server.registry.all().iter().any(|r| r.group == *group && !r.is_custom()),
        [name] => ROOTS.contains(name),
        _ => false,
    };
    let reply = json!({"200": {"description": "OK"}, "401": {"description": "Unauthorized"}});
    let document = json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": {format!("/{}/", path.join("/")): {"get": {"responses": reply}}},
    });
    let tag = tag(&env!("CARGO_PKG_VERSION"));
    known.then(|| page(&document, tag, params))
}

/// A document of the newer generation. Under an address that names its state it never changes.
fn page(document: &Value, tag: String, params: &Params) -> Page {
    let cache = if params.get("hash") == Some(&tag) { "public, immutable" } else { "no-cache, private" };
    Page { media: "application/json", body: encode(document), cache, validator: Validator::Tag(tag) }
}

/// Where the documents of the single versions are.
pub(crate) fn index(server: &Inner) -> Page {
    let mut paths = Map::new();
    for resources in by_version(server) {
        let Some(first) = resources.first() else { continue };
        let path = path(&first.group, &first.version);
        let url = format!("/openapi/v3/{path}?hash={}", state(&resources));
        paths.insert(path, json!({"serverRelativeURL": url}));
        // Only our own groups have a document about the group itself.
        if !first.group.is_empty() && !first.is_custom() {
            add_root(&mut paths, &format!("apis/{}", first.group));
        }
    }
    for path in ROOTS {
        add_root(&mut paths, path);
    }
    let body = encode(&json!({"paths": paths}));
    let validator = Validator::Second(server.clock.now());
    Page { media: "text/plain; charset=utf-8", body, cache: "no-cache, private", validator }
}

/// The document of one version of a group, if we serve it.
pub(crate) fn v3(server: &Inner, group: &str, version: &str, params: &Params) -> Option<Page> {
    let mut all = by_version(server).into_iter();
    let resources = all.find(|r| r.first().is_some_and(|r| r.group == group && r.version == version))?;
    let tag = state(&resources);
    let info = if resources.iter().any(|r| r.is_custom()) {
        json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"})
    } else {
        json!({"title": "Kubernetes", "version": "unversioned"})
    };
    let document = json!({
        "openapi": "3.0.0",
        "info": info,
        "paths": paths::of(Generation::V3, &resources),
        "components": {"schemas": schemas::of(Generation::V3, &resources)},
    });
    Some(page(&document, tag, params))
}

/// The one document older clients read, in the encoding they ask for.
pub(crate) fn v2(server: &Inner, headers: &HeaderMap) -> Page {
    let all = server.registry.all();
    let document = json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "1.35"},
        "paths": paths::of(Generation::V2, &all),
        "definitions": schemas::of(Generation::V2, &all),
    });
    let binary = accepted(headers).next().is_some_and(|range| range.media == PROTOBUF_V2);
    let (media, body) = if binary {
        ("application/com.github.proto-openapi.spec.v2.v1.0+protobuf", proto::encode(&document).into())
    } else {
        ("application/json", encode(&document))
    };
    let validator = Validator::Tag(tag(&(state(&all), binary)));
    Page { media, body, cache: "no-cache, private", validator }
}
