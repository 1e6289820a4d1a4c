//! Reading a collection: selectors, pages, past revisions.

use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{Answer, Call, Reply};
use crate::convert;
use crate::http::{Form, Params};
use crate::registry::Resource;
use crate::selectors::{FieldSelector, LabelSelector};
use crate::server::Inner;
use crate::status::{ApiError, ApiResult, StatusCause};
use crate::store::{Key, Object, State, encode};
use crate::table;

/// Which objects of a collection are wanted.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) namespace: Option<String>,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

impl Query {
    pub(crate) fn parse(call: &Call<'_>) -> ApiResult<Self> {
        let labels = call.params.get("labelSelector").unwrap_or_default();
        let fields = call.params.get("fieldSelector").unwrap_or_default();
        Ok(Self {
            namespace: call.target.namespace.clone(),
            labels: LabelSelector::parse(labels)?,
            fields: FieldSelector::parse(fields, &call.resource().field_labels)?,
        })
    }

    pub(crate) fn is_filtered(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    /// The same for a state of the log, which need not be parsed where the key decides.
    pub(crate) fn matches_state(&self, state: &State) -> bool {
        self.is_here(state.key()) && (!self.is_filtered() || self.matches(&state.object()))
    }

    fn is_here(&self, key: &Key) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.is_here(&object.key)
            && self.fields.name().is_none_or(|n| n == object.key.name)
            && self.labels.matches(&object.value)
            && self.fields.matches(&object.value)
    }
}

/// The `resourceVersion` parameter as a number; `0` means any and is `None` here.
pub(super) fn checked_revision(params: &Params) -> ApiResult<Option<u64>> {
    let Some(text) = params.text("resourceVersion") else {
        return Ok(None);
    };
    let revision: u64 =
        text.parse().map_err(|_| ApiError::bad_request(format!("invalid resource version: {}", bad_revision(text))))?;
    Ok((revision > 0).then_some(revision))
}

/// The text for a resourceVersion that is no number.
pub(crate) fn bad_revision(text: &str) -> String {
    format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax")
}

/// 504 for a revision the store has not reached.
pub(super) fn too_large(server: &Inner, revision: u64) -> ApiResult<()> {
    let current = server.store.revision();
    if revision > current {
        return Err(ApiError::revision_too_large(revision, current));
    }
    Ok(())
}

/// Checks the combination of list options, with the texts of the real server.
pub(crate) fn check_options(params: &Params, watch: bool) -> ApiResult<()> {
    let matching = params.text("resourceVersionMatch");
    let revision = params.text("resourceVersion");
    let initial = params.get("sendInitialEvents").is_some();
    let mut causes = Vec::new();
    let forbid = |text: &str| StatusCause::forbidden("resourceVersionMatch", text);
    if watch && initial {
        if matching != Some("NotOlderThan") {
            causes.push(forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
        }
    } else if watch {
        if let Some(value) = matching {
            causes.push(forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"));
            if value != "NotOlderThan" {
                causes.push(StatusCause::unsupported("resourceVersionMatch", &json!(value), &["NotOlderThan"]));
            }
        }
    } else {
        if initial {
            causes.push(StatusCause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        if let Some(value) = matching {
            if revision.is_none() {
                causes.push(forbid("resourceVersionMatch is forbidden unless resourceVersion is provided"));
            }
            if params.text("continue").is_some() {
                causes.push(forbid("resourceVersionMatch is forbidden when continue is provided"));
            }
            if !matches!(value, "Exact" | "NotOlderThan") {
                causes.push(StatusCause::unsupported(
                    "resourceVersionMatch",
                    &json!(value),
                    &["Exact", "NotOlderThan", ""],
                ));
            }
            if value == "Exact" && revision == Some("0") {
                causes.push(forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
            }
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid_options("ListOptions", &causes)) }
}

pub(super) fn list(call: &Call<'_>) -> ApiResult<Answer> {
    let limit = usize::try_from(call.params.integer("limit")?.unwrap_or(0)).unwrap_or(0);
    call.params.integer("timeoutSeconds")?;
    check_options(call.params, false)?;
    let query = Query::parse(call)?;
    let page = page(call, &query, limit)?;
    let resource = call.resource();
    let metadata = page.metadata(resource.is_custom() && call.form == Form::Whole);
    let bytes = match call.form {
        Form::Whole => whole(resource, &page.items, &metadata),
        Form::Metadata => partial(&page.items, &metadata),
        Form::Table(table) => table::list(table, call, &page.items, &metadata),
    };
    Ok(Answer::ok(Reply::Bytes(bytes)))
}

/// One page of a list.
struct Page {
    items: Vec<Arc<Object>>,
    revision: u64,
    next: Option<String>,
    remaining: Option<usize>,
}

impl Page {
    /// Custom resources always send `continue`.
    fn metadata(&self, always: bool) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        match &self.next {
            Some(token) => metadata["continue"] = token.clone().into(),
            None if always => metadata["continue"] = "".into(),
            None => {}
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata
    }
}

fn page(call: &Call<'_>, query: &Query, limit: usize) -> ApiResult<Page> {
    let token = call.params.text("continue").map(Token::parse).transpose()?;
    let revision_text = call.params.text("resourceVersion");
    if token.is_some() && revision_text.is_some_and(|r| r != "0") {
        return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
    }
    let revision = checked_revision(call.params)?;
    if let Some(revision) = revision {
        too_large(call.server, revision)?;
    }
    let exact = match call.params.text("resourceVersionMatch") {
        Some("Exact") => true,
        Some(_) => false,
        // A limited list from a revision means exactly that revision.
        None => limit > 0,
    };
    // Any state will do: the real server answers from its cache, which knows no pages.
    let limit = if revision_text == Some("0") { 0 } else { limit };
    let at = match &token {
        Some(token) => token.revision,
        None => revision.filter(|_| exact),
    };
    let snapshot = call
        .server
        .store
        .snapshot(&call.resource().bucket, query.namespace.as_deref(), at)
        .map_err(|_| match &token {
            None => ApiError::expired("The resourceVersion for the provided list is too old."),
            Some(token) => ApiError::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
            )
            .with_continue(token.inconsistent().encode()),
        })?;
    let mut items: Vec<Arc<Object>> = snapshot.objects;
    if let Some(token) = &token {
        let start = items.partition_point(|o| o.key <= token.after);
        items.drain(..start);
    }
    if query.is_filtered() {
        items.retain(|o| query.matches(o));
    }
    let (mut next, mut remaining) = (None, None);
    if limit > 0 && items.len() > limit {
        let left = items.len() - limit;
        items.truncate(limit);
        remaining = (!query.is_filtered()).then_some(left);
        next = items.last().map(|last| {
            let token = Token { revision: Some(snapshot.revision), after: last.key.clone() };
            token.encode()
        });
    }
    Ok(Page { items, revision: snapshot.revision, next, remaining })
}

/// Go is lenient about the bits after the last character, and clients have seen the difference in error texts.
const TOKENS: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Where the next page starts, and in which state of the store.
struct Token {
    /// `None`: the present state, because the one of the first page is forgotten.
    revision: Option<u64>,
    after: Key,
}

impl Token {
    fn encode(&self) -> String {
        let start = if self.after.namespace.is_empty() {
            format!("/{}\0", self.after.name)
        } else {
            format!("/{}/{}\0", self.after.namespace, self.after.name)
        };
        let revision = self.revision.map_or(-1, |r| i64::try_from(r).unwrap_or(-1));
        let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start});
        TOKENS.encode(token.to_string())
    }

    fn inconsistent(&self) -> Self {
        Self { revision: None, after: self.after.clone() }
    }

    fn parse(text: &str) -> ApiResult<Self> {
        let invalid =
            |why: String| ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = TOKENS.decode(text).map_err(|error| invalid(error.to_string()))?;
        let token: Value = serde_json::from_slice(&bytes).map_err(|_| {
            let first = bytes.first().copied().map_or('?', char::from);
            invalid(format!("invalid character '{first}' looking for beginning of value"))
        })?;
        let start = token["start"].as_str().unwrap_or_default();
        let start = start.trim_start_matches('/').trim_end_matches('\0');
        if token["v"] != "meta.k8s.io/v1" || start.is_empty() {
            return Err(invalid("server is not able to process it".to_owned()));
        }
        let after = match start.split_once('/') {
            Some((namespace, name)) => Key::new(namespace, name),
            None => Key::new("", start),
        };
        Ok(Self { revision: token["rv"].as_u64(), after })
    }
}

/// The list as JSON. Items are the shared encodings of the stored objects.
fn whole(resource: &Resource, items: &[Arc<Object>], metadata: &Value) -> Bytes {
    let mut out = Vec::new();
    let head = json!({
        "kind": resource.list_kind,
        "apiVersion": resource.api_version(),
        "metadata": metadata,
    });
    write_list(&mut out, &head, items, |object| {
        if !resource.is_storage_form(&object.value) {
            let mut item = convert::to_version(resource, &object.value).into_owned();
            if !resource.is_custom()
                && let Some(map) = item.as_object_mut()
            {
                map.remove("apiVersion");
                map.remove("kind");
            }
            encode(&item)
        } else if resource.is_custom() {
            object.json()
        } else {
            object.item()
        }
    });
    out.into()
}

fn partial(items: &[Arc<Object>], metadata: &Value) -> Bytes {
    let mut out = Vec::new();
    let head = json!({
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
    });
    write_list(&mut out, &head, items, |object| encode(&convert::partial(&object.value)));
    out.into()
}

fn write_list(out: &mut Vec<u8>, head: &Value, items: &[Arc<Object>], item: impl Fn(&Object) -> Bytes) {
    let head = head.to_string();
    // The items go before the closing brace of the head.
    out.extend_from_slice(&head.as_bytes()[..head.len() - 1]);
    out.extend_from_slice(b",\"items\":[");
    for (index, object) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&item(object));
    }
    out.extend_from_slice(b"]}");
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_continue_token_survives_the_round_trip() {
        let token = Token { revision: Some(42), after: Key::new("ns", "name") };
        let parsed = Token::parse(&token.encode()).unwrap();
        assert_eq!(parsed.revision, Some(42));
        assert_eq!(parsed.after, Key::new("ns", "name"));
    }

    #[test]
    fn rubbish_is_no_continue_token() {
        let error = Token::parse("rubbish").map(|_| ()).unwrap_err();
        assert_eq!(
            error.message(),
            "invalid continue token: continue key is not valid: invalid character '\u{ae}' looking for beginning of value"
        );
    }
}
