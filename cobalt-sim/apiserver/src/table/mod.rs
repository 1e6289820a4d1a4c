//! Objects as a `Table`: what kubectl prints, rendered by the server.
//!
//! A client asks for it by `Accept: application/json;as=Table;v=v1;g=meta.k8s.io`. Every answer that would be an
//! object or a list becomes a table then, also that of a write; errors stay what they are.

mod age;
mod builtin;
mod cells;
mod custom;
mod jsonpath;
mod pod;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use custom::Printer;

use crate::convert;
use crate::http::{Form, Params};
use crate::registry::Resource;
use crate::status::{ApiError, ApiResult};
use crate::store::{Object, encode};
use crate::verbs::{Answer, Call, Reply};

/// How a table is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Table {
    version: Version,
    include: Include,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V1beta1,
}

/// What a row carries besides its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Table {
    /// A table as it is wanted nowadays.
    pub(crate) const V1: Self = Self { version: Version::V1, include: Include::Metadata };
    /// A table as it was wanted once.
    pub(crate) const V1BETA1: Self = Self { version: Version::V1beta1, include: Include::Metadata };

    fn api_version(self) -> &'static str {
        match self.version {
            Version::V1 => "meta.k8s.io/v1",
            Version::V1beta1 => "meta.k8s.io/v1beta1",
        }
    }

    fn document(self, metadata: &Value, columns: &Value, rows: &[Value]) -> Bytes {
        encode(&json!({
            "kind": "Table",
            "apiVersion": self.api_version(),
            "metadata": metadata,
            "columnDefinitions": columns,
            "rows": rows,
        }))
    }

    fn row(self, resource: &Resource, object: &Value, now: Timestamp) -> Value {
        let whole = match self.include {
            Include::Nothing => Value::Null,
            Include::Metadata => {
                let mut partial = convert::partial(object);
                partial["apiVersion"] = self.api_version().into();
                partial
            }
            Include::Object if object["kind"] == resource.kind.as_str() => {
                convert::to_version(resource, object).into_owned()
            }
            Include::Object => object.clone(),
        };
        json!({"cells": cells(resource, object, now), "object": whole})
    }
}

/// The form with what the query says about it.
pub(crate) fn requested(form: Form, params: &Params) -> ApiResult<Form> {
    let Form::Table(table) = form else { return Ok(form) };
    let include = match params.get("includeObject") {
        None | Some("" | "Metadata") => Include::Metadata,
        Some("None") => Include::Nothing,
        Some("Object") => Include::Object,
        Some(other) => {
            return Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
            )));
        }
    };
    Ok(Form::Table(Table { include, ..table }))
}

/// Whether an object is shown by the columns of the resource. A subresource may answer with another kind.
fn is_own(resource: &Resource, object: &Value) -> bool {
    object.get("kind").is_none_or(|kind| *kind == resource.kind.as_str())
}

fn columns(resource: &Resource) -> Value {
    match &resource.custom {
        Some(custom) => custom.printer.definitions(),
        None => builtin::definitions(&resource.kind),
    }
    .into()
}

fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    match &resource.custom {
        _ if !is_own(resource, object) => cells::of("", object, now),
        Some(custom) => custom.printer.cells(object, now),
        None => cells::of(&resource.kind, object, now),
    }
}

/// A list as a table.
pub(crate) fn list(table: Table, call: &Call<'_>, items: &[Arc<Object>], metadata: &Value) -> Bytes {
    let now = call.server.clock.now();
    let resource = call.resource();
    let rows: Vec<Value> = items.iter().map(|object| table.row(resource, &object.value, now)).collect();
    table.document(metadata, &columns(resource), &rows)
}

/// The object of an answer as a table of one row, if a table was asked for.
pub(crate) fn answer(call: &Call<'_>, mut answer: Answer) -> Answer {
    let Form::Table(table) = call.form else { return answer };
    let object = match &answer.body {
        Reply::Object(object) => &object.value,
        Reply::Value(value) if value["kind"] != "Status" => value,
        // A list has been rendered where it was made; what became of a request is told as a status.
        Reply::Value(_) | Reply::Bytes(_) => return answer,
    };
    let resource = call.resource();
    let columns = if is_own(resource, object) { columns(resource) } else { Value::from(builtin::definitions("")) };
    answer.body = Reply::Bytes(one(table, resource, object, call.server.clock.now(), &columns));
    answer
}

/// The object of a watch event as a table of one row. Only the first event of a watch says what the columns are.
pub(crate) fn event(table: Table, resource: &Resource, object: &Value, now: Timestamp, first: bool) -> Bytes {
    let columns = if first { columns(resource) } else { Value::Null };
    one(table, resource, object, now, &columns)
}

fn one(table: Table, resource: &Resource, object: &Value, now: Timestamp, columns: &Value) -> Bytes {
    let metadata = match &object["metadata"]["resourceVersion"] {
        Value::Null => json!({}),
        revision => json!({"resourceVersion": revision}),
    };
    table.document(&metadata, columns, &[table.row(resource, object, now)])
}
