//! `serviceaccounts/token`: a service account gets a token, perhaps bound to a pod.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::{Answer, Call, Reply};
use crate::auth::Identity;
use crate::auth::tokens::{AUDIENCE, Issued};
use crate::clock;
use crate::http::{decode, user_agent};
use crate::meta;
use crate::status::{ApiError, ApiResult, StatusCause, Subject};
use crate::store::Key;

const GROUP: &str = "authentication.k8s.io";
/// Validity of a token unless the request says otherwise.
const HOUR: i64 = 3600;
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;

/// Issues a token.
pub(super) fn request(call: &Call<'_>) -> ApiResult<Answer> {
    let mut body = decode::object("TokenRequest", call.headers, call.body)?.value;
    let spec = &body["spec"];
    if !spec.is_object() && !spec.is_null() {
        return Err(ApiError::bad_request(format!(
            "TokenRequest in version \"v1\" cannot be handled as a TokenRequest: json: cannot unmarshal {} into Go struct field TokenRequest.spec of type v1.TokenRequestSpec",
            decode::go_kind(spec)
        )));
    }
    let account = call.live()?;
    let seconds = body["spec"]["expirationSeconds"].as_i64().unwrap_or(HOUR);
    let problem = match seconds {
        seconds if seconds < SHORTEST => Some("may not specify a duration less than 10 minutes"),
        seconds if seconds > LONGEST => Some("may not specify a duration larger than 2^32 seconds"),
        _ => None,
    };
    if let Some(problem) = problem {
        let cause = StatusCause::invalid("spec.expirationSeconds", &json!(seconds), problem);
        return Err(ApiError::invalid(&Subject { group: GROUP, kind: "TokenRequest", name: "" }, &[cause]));
    }
    body["spec"]["expirationSeconds"] = seconds.into();
    let owned = owned_fields(&body["spec"], &[]);
    let (namespace, name, uid) = (&account.key.namespace, &account.key.name, account.uid());
    let credential = call.server.entropy.uid();
    let mut identity = Identity::service_account(namespace, name)
        .with_extra("authentication.kubernetes.io/credential-id", format!("JTI={credential}"));
    uid.clone_into(&mut identity.uid);
    let mut kubernetes = json!({"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}});
    bind(call, &body["spec"]["boundObjectRef"], &mut identity, &mut kubernetes)?;
    let audiences = body["spec"]["audiences"].as_array().cloned().unwrap_or_default();
    let audiences = if audiences.is_empty() { vec![json!(AUDIENCE)] } else { audiences };
    let now = call.server.clock.now();
    let expires = now.checked_add(Duration::from_secs(seconds.unsigned_abs())).unwrap_or(now);
    let claims = json!({
        "aud": audiences, "iss": AUDIENCE, "sub": identity.user, "jti": credential,
        "iat": now.as_second(), "nbf": now.as_second(), "exp": expires.as_second(), "kubernetes.io": kubernetes,
    });
    let issued = Issued {
        identity,
        audiences: audiences.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        expires,
    };
    let token = call.server.tokens.issue(&claims, &call.server.entropy.uid(), issued, now);
    let spec = &mut body["spec"];
    spec["audiences"] = audiences.into();
    if spec.get("boundObjectRef").is_none() {
        spec["boundObjectRef"] = Value::Null;
    }
    body["kind"] = "TokenRequest".into();
    body["apiVersion"] = format!("{GROUP}/v1").into();
    body["metadata"] = json!({
        "name": name, "namespace": namespace, "uid": uid, "creationTimestamp": call.server.clock.rfc3339(),
    });
    track(call, &mut body, &owned, Some("token"));
    body["status"] = json!({"token": token, "expirationTimestamp": clock::seconds(expires)});
    Ok(Answer::new(StatusCode::CREATED, Reply::Value(body)))
}

/// Checks the object a token shall live as long as, and notes it with its node.
fn bind(call: &Call<'_>, reference: &Value, identity: &mut Identity, kubernetes: &mut Value) -> ApiResult<()> {
    if reference.is_null() {
        return Ok(());
    }
    let (kind, name) = (reference["kind"].as_str().unwrap_or_default(), meta_name(reference));
    let bucket = match kind {
        "Pod" => "pods",
        "Secret" => "secrets",
        "Node" => "nodes",
        _ => {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount to object of kind {kind}"
            )));
        }
    };
    let namespace = if bucket == "nodes" { "" } else { call.target.namespace.as_deref().unwrap_or_default() };
    let store = &call.server.store;
    let Some(bound) = store.get(bucket, &Key::new(namespace, name)) else {
        return Err(ApiError::not_found(&Subject { group: "", kind: bucket, name }));
    };
    let wanted = reference["uid"].as_str().unwrap_or_default();
    if !wanted.is_empty() && wanted != bound.uid() {
        return Err(ApiError::conflict(
            &Subject { group: "", kind, name },
            &format!(
                "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
            ),
        ));
    }
    let mut note = |kind: &str, name: &str, uid: &str| {
        kubernetes[kind] = json!({"name": name, "uid": uid});
        for (what, value) in [("name", name), ("uid", uid)] {
            let key = format!("authentication.kubernetes.io/{kind}-{what}");
            identity.extra.entry(key).or_default().push(value.to_owned());
        }
    };
    note(&kind.to_lowercase(), name, bound.uid());
    let node = bound.value["spec"]["nodeName"].as_str().unwrap_or_default();
    if let ("Pod", Some(node)) = (kind, store.get("nodes", &Key::new("", node))) {
        note("node", &node.key.name, node.uid());
    }
    Ok(())
}

fn meta_name(reference: &Value) -> &str {
    reference["name"].as_str().unwrap_or_default()
}

/// The fields of a `spec` in the form of managed fields. Pointers to structures also count themselves.
pub(super) fn owned_fields(spec: &Value, pointers: &[&str]) -> Value {
    let mut owned = serde_json::Map::new();
    for (name, value) in spec.as_object().into_iter().flatten() {
        let inner = match value {
            Value::Array(items) if items.is_empty() => continue,
            Value::Object(fields) => {
                let mut inner: serde_json::Map<_, _> =
                    fields.keys().map(|field| (format!("f:{field}"), json!({}))).collect();
                if pointers.contains(&name.as_str()) {
                    inner.insert(".".to_owned(), json!({}));
                }
                Value::Object(inner)
            }
            _ => json!({}),
        };
        owned.insert(format!("f:{name}"), inner);
    }
    json!({"f:spec": owned})
}

/// Notes who sent an object that is answered and not stored.
pub(super) fn track(call: &Call<'_>, body: &mut Value, owned: &Value, subresource: Option<&str>) {
    if owned["f:spec"].as_object().is_none_or(serde_json::Map::is_empty) {
        return;
    }
    let manager = call.params.text("fieldManager").map(str::to_owned).or_else(|| user_agent(call.headers));
    let mut entry = json!({
        "manager": manager.unwrap_or_else(|| "unknown".to_owned()),
        "operation": "Update",
        "apiVersion": body["apiVersion"],
        "time": call.server.clock.rfc3339(),
        "fieldsType": "FieldsV1",
        "fieldsV1": owned,
    });
    if let Some(subresource) = subresource {
        entry["subresource"] = subresource.into();
    }
    meta::set(body, "managedFields", Some(json!([entry])));
}
