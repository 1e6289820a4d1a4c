//! Request bodies in protobuf, for the few kinds that kubectl sends in nothing else.
//!
//! Current clients of the built-in kinds speak protobuf by default and do not ask whether the server does. What
//! they send on the way to evicting a pod, asking for rights or creating simple objects is translated to JSON
//! here; anything else is refused as an unknown media type, as before. Answers are always JSON, which all of them
//! accept.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::{Map, Value, json};

use super::params::content_type;

const MEDIA: &str = "application/vnd.kubernetes.protobuf";
/// Every such body begins with it.
const MAGIC: &[u8] = b"k8s\0";

/// Number, name and type of a field.
type Field = (u64, &'static str, Type);

#[derive(Clone, Copy)]
enum Type {
    Text,
    Texts,
    Bool,
    Integer,
    /// One that Go sends although there is none.
    Positive,
    IntOrText,
    TextMap,
    BytesMap,
    Message(&'static [Field]),
    Messages(&'static [Field]),
}

use Type::{Bool, BytesMap, IntOrText, Integer, Message, Messages, Positive, Text, TextMap, Texts};

const META: Type = Message(&[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (5, "uid", Text),
    (6, "resourceVersion", Text),
    (11, "labels", TextMap),
    (12, "annotations", TextMap),
    (13, "ownerReferences", Messages(OWNER)),
    (14, "finalizers", Texts),
]);
const OWNER: &[Field] = &[
    (1, "kind", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "controller", Bool),
    (7, "blockOwnerDeletion", Bool),
];
const DELETE_OPTIONS: &[Field] = &[
    (1, "gracePeriodSeconds", Integer),
    (2, "preconditions", Message(&[(1, "uid", Text), (2, "resourceVersion", Text)])),
    (3, "orphanDependents", Bool),
    (4, "propagationPolicy", Text),
    (5, "dryRun", Texts),
];
const RESOURCE: Type = Message(&[
    (1, "namespace", Text),
    (2, "verb", Text),
    (3, "group", Text),
    (4, "version", Text),
    (5, "resource", Text),
    (6, "subresource", Text),
    (7, "name", Text),
]);
const PATH: Type = Message(&[(1, "path", Text), (2, "verb", Text)]);
const RULE: &[Field] = &[
    (1, "verbs", Texts),
    (2, "apiGroups", Texts),
    (3, "resources", Texts),
    (4, "resourceNames", Texts),
    (5, "nonResourceURLs", Texts),
];
const SUBJECT: &[Field] = &[(1, "kind", Text), (2, "apiGroup", Text), (3, "name", Text), (4, "namespace", Text)];
const ROLE_REF: &[Field] = &[(1, "apiGroup", Text), (2, "kind", Text), (3, "name", Text)];
const BOUND: &[Field] = &[(1, "kind", Text), (2, "apiVersion", Text), (3, "name", Text), (4, "uid", Text)];

const PORT: &[Field] = &[
    (1, "name", Text),
    (2, "protocol", Text),
    (3, "port", Integer),
    (4, "targetPort", IntOrText),
    (5, "nodePort", Positive),
    (6, "appProtocol", Text),
];
const SERVICE: &[Field] = &[
    (1, "ports", Messages(PORT)),
    (2, "selector", TextMap),
    (3, "clusterIP", Text),
    (4, "type", Text),
    (5, "externalIPs", Texts),
    (7, "sessionAffinity", Text),
    (8, "loadBalancerIP", Text),
    (9, "loadBalancerSourceRanges", Texts),
    (10, "externalName", Text),
    (11, "externalTrafficPolicy", Text),
    (12, "healthCheckNodePort", Positive),
    (13, "publishNotReadyAddresses", Bool),
    (17, "ipFamilyPolicy", Text),
    (18, "clusterIPs", Texts),
    (19, "ipFamilies", Texts),
    (22, "internalTrafficPolicy", Text),
];
const REQUIREMENT: &[Field] = &[(1, "key", Text), (2, "operator", Text), (3, "values", Texts)];
const SELECTOR: Type = Message(&[(1, "matchLabels", TextMap), (2, "matchExpressions", Messages(REQUIREMENT))]);
const BUDGET: &[Field] = &[
    (1, "minAvailable", IntOrText),
    (2, "selector", SELECTOR),
    (3, "maxUnavailable", IntOrText),
    (4, "unhealthyPodEvictionPolicy", Text),
];

#[rustfmt::skip]
fn fields(api_version: &str, kind: &str) -> Option<&'static [Field]> {
    Some(match (api_version, kind) {
        (_, "DeleteOptions") => DELETE_OPTIONS,
        ("policy/v1", "Eviction") => &[(1, "metadata", META), (2, "deleteOptions", Message(DELETE_OPTIONS))],
        ("v1", "ConfigMap") => {
            &[(1, "metadata", META), (2, "data", TextMap), (3, "binaryData", BytesMap), (4, "immutable", Bool)]
        }
        ("v1", "Secret") => &[
            (1, "metadata", META), (2, "data", BytesMap), (3, "type", Text), (4, "stringData", TextMap), (5, "immutable", Bool),
        ],
        ("v1", "Service") => &[(1, "metadata", META), (2, "spec", Message(SERVICE))],
        ("policy/v1", "PodDisruptionBudget") => &[(1, "metadata", META), (2, "spec", Message(BUDGET))],
        ("scheduling.k8s.io/v1", "PriorityClass") => &[
            (1, "metadata", META), (2, "value", Integer), (3, "globalDefault", Bool), (4, "description", Text), (5, "preemptionPolicy", Text),
        ],
        ("v1", "ServiceAccount") => &[(1, "metadata", META), (4, "automountServiceAccountToken", Bool)],
        ("authentication.k8s.io/v1", "TokenRequest") => &[
            (1, "metadata", META),
            (2, "spec", Message(&[(1, "audiences", Texts), (3, "boundObjectRef", Message(BOUND)), (4, "expirationSeconds", Integer)])),
        ],
        // Nothing else of these is the client's to say.
        ("v1", "Namespace") | ("authentication.k8s.io/v1", "SelfSubjectReview") => &[(1, "metadata", META)],
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview") => &[
            (1, "metadata", META),
            (2, "spec", Message(&[(1, "resourceAttributes", RESOURCE), (2, "nonResourceAttributes", PATH)])),
        ],
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview") => {
            &[(1, "metadata", META), (2, "spec", Message(&[(1, "namespace", Text)]))]
        }
        ("authorization.k8s.io/v1", "SubjectAccessReview") => &[
            (1, "metadata", META),
            (2, "spec", Message(&[
                (1, "resourceAttributes", RESOURCE), (2, "nonResourceAttributes", PATH), (3, "user", Text), (4, "groups", Texts), (6, "uid", Text),
            ])),
        ],
        ("rbac.authorization.k8s.io/v1", "Role" | "ClusterRole") => &[(1, "metadata", META), (2, "rules", Messages(RULE))],
        ("rbac.authorization.k8s.io/v1", "RoleBinding" | "ClusterRoleBinding") => {
            &[(1, "metadata", META), (2, "subjects", Messages(SUBJECT)), (3, "roleRef", Message(ROLE_REF))]
        }
        _ => return None,
    })
}

/// The body as JSON if it is protobuf we can read; otherwise as it is.
pub(super) fn translate(headers: &mut HeaderMap, body: Bytes) -> Bytes {
    if content_type(headers) != MEDIA {
        return body;
    }
    match decode(&body) {
        Some(value) => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            value.to_string().into()
        }
        None => body,
    }
}

fn decode(body: &[u8]) -> Option<Value> {
    const ENVELOPE: &[Field] = &[(1, "type", Message(&[(1, "apiVersion", Text), (2, "kind", Text)]))];
    const RAW: u64 = 2;
    let envelope = body.strip_prefix(MAGIC)?;
    let mut kind = message(ENVELOPE, envelope)?["type"].take();
    let raw = pieces(envelope)?.into_iter().find_map(|piece| match piece {
        (RAW, Wire::Bytes(raw)) => Some(raw),
        _ => None,
    });
    let known = fields(kind["apiVersion"].as_str()?, kind["kind"].as_str()?)?;
    let mut object = message(known, raw.unwrap_or_default())?;
    for field in ["apiVersion", "kind"] {
        object[field] = kind[field].take();
    }
    Some(object)
}

enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f).checked_shl(shift)?;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(taken)
}

/// The fields of a message in order.
fn pieces(mut bytes: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let piece = match key & 7 {
            0 => Wire::Number(varint(&mut bytes)?),
            1 => Wire::Bytes(take(&mut bytes, 8)?),
            2 => {
                let length = varint(&mut bytes)?;
                Wire::Bytes(take(&mut bytes, length)?)
            }
            5 => Wire::Bytes(take(&mut bytes, 4)?),
            _ => return None,
        };
        pieces.push((key >> 3, piece));
    }
    Some(pieces)
}

fn message(fields: &[Field], bytes: &[u8]) -> Option<Value> {
    let mut object = Map::new();
    for (number, piece) in pieces(bytes)? {
        let Some((_, name, kind)) = fields.iter().find(|(n, ..)| *n == number) else { continue };
        match (kind, piece) {
            (Bool, Wire::Number(number)) => drop(object.insert((*name).to_owned(), json!(number != 0))),
            // Negative numbers are sent in two's complement.
            (Integer, Wire::Number(number)) => drop(object.insert((*name).to_owned(), json!(number.cast_signed()))),
            (Positive, Wire::Number(number)) => {
                if number > 0 {
                    object.insert((*name).to_owned(), json!(number.cast_signed()));
                }
            }
            (IntOrText, Wire::Bytes(bytes)) => {
                let parts = message(&[(2, "int", Integer), (3, "text", Text)], bytes)?;
                if let Some(value) = parts.get("text").or(parts.get("int")) {
                    object.insert((*name).to_owned(), value.clone());
                }
            }
            (Text, Wire::Bytes(bytes)) => {
                let text = std::str::from_utf8(bytes).ok()?;
                // Go sends empty texts too, where JSON would leave them out.
                if !text.is_empty() {
                    object.insert((*name).to_owned(), text.into());
                }
            }
            (Texts, Wire::Bytes(bytes)) => push(&mut object, name, std::str::from_utf8(bytes).ok()?.into()),
            (Message(inner), Wire::Bytes(bytes)) => {
                drop(object.insert((*name).to_owned(), message(inner, bytes)?));
            }
            (Messages(inner), Wire::Bytes(bytes)) => push(&mut object, name, message(inner, bytes)?),
            (TextMap | BytesMap, Wire::Bytes(bytes)) => {
                let (key, value) = entry(bytes)?;
                let value = match kind {
                    BytesMap => STANDARD.encode(value),
                    _ => std::str::from_utf8(value).ok()?.to_owned(),
                };
                let map = object.entry(*name).or_insert_with(|| json!({}));
                map[key] = value.into();
            }
            _ => return None,
        }
    }
    Some(object.into())
}

fn push(object: &mut Map<String, Value>, name: &str, item: Value) {
    if let Value::Array(list) = object.entry(name).or_insert_with(|| json!([])) {
        list.push(item);
    }
}

fn entry(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
    for piece in pieces(bytes)? {
        match piece {
            (1, Wire::Bytes(bytes)) => key = bytes,
            (2, Wire::Bytes(bytes)) => value = bytes,
            _ => return None,
        }
    }
    Some((std::str::from_utf8(key).ok()?, value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_config_map_is_read() {
        let mut body = MAGIC.to_vec();
        body.extend(b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap"); // apiVersion and kind
        body.extend(b"\x12\x11\x0a\x07\x0a\x01c\x1a\x02ns\x12\x06\x0a\x01a\x12\x01b"); // metadata and data
        let expected = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": "ns"},
            "data": {"a": "b"},
        });
        assert_eq!(decode(&body), Some(expected));
        assert_eq!(decode(&body[..20]), None);
        assert_eq!(decode(b"k8s\0"), None);
    }

    #[test]
    fn a_kind_we_cannot_read_is_left_as_it_is() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA));
        let body = Bytes::from_static(b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod");
        assert_eq!(translate(&mut headers, body.clone()), body);
        assert_eq!(headers[CONTENT_TYPE], MEDIA);
    }

    proptest! {
        #[test]
        fn no_body_makes_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), known: bool) {
            let mut body = MAGIC.to_vec();
            if known {
                body.extend(b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12");
            }
            body.extend(bytes);
            let _ = decode(&body);
        }
    }
}
