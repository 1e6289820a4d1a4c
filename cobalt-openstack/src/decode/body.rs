//! What all services have in common: errors and pages.

use std::{borrow::Cow, fmt};

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// Longer texts of others are cut: they go into logs and conditions.
const LONGEST: usize = 400;

pub(crate) fn shortened(text: &str) -> String {
    // In one line: some services format their messages for a terminal.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// What a service says in the body of an error, in any of the ways they have.
///
/// ```
/// use cobalt_openstack::decode::message;
///
/// assert_eq!(message(br#"{"conflictingRequest": {"code": 409, "message": "it moves"}}"#), "it moves");
/// assert_eq!(message(br#"{"errors": [{"status": 409, "title": "Conflict", "detail": "stale"}]}"#), "stale");
/// assert_eq!(message(b"<html>gateway</html>"), "");
/// ```
pub fn message(body: &[u8]) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return String::new() };
    let said = |value: &Value| value.as_str().map(shortened);
    let errors = || value["errors"][0]["detail"].as_str().or_else(|| value["errors"][0]["title"].as_str());
    let keyed = || value.as_object()?.values().find_map(|inner| said(&inner["message"]));
    errors().map(shortened).or_else(keyed).or_else(|| said(&value["message"])).unwrap_or_default()
}

/// Where a listing goes on: the query of the link to the next page. Its address is not looked at; a proxy's or an
/// attacker's would get our token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) marker: String,
}

/// The links of a listing, found without building what else is in it: a page can be megabytes, and a value of every thing
/// in it several times that.
struct Links<'a>(&'a str);

impl<'de> Visitor<'de> for Links<'_> {
    type Value = Vec<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a listing")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut links = Vec::new();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key.strip_suffix("_links") == Some(self.0) {
                links = map.next_value()?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(links)
    }
}

pub(crate) fn next_page(body: &[u8], collection: &str) -> Option<Page> {
    let links = serde_json::Deserializer::from_slice(body).deserialize_map(Links(collection)).ok()?;
    let next = links.iter().find(|link| link["rel"] == "next")?["href"].as_str()?;
    let (_, query) = next.split_once('?')?;
    let marker = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "marker")?.1;
    Some(Page { marker: marker.into_owned() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let body = serde_json::json!({"error": {"message": "ü".repeat(1000)}}).to_string();
        assert_eq!(message(body.as_bytes()).chars().count(), LONGEST + 1);
    }

    #[test]
    fn only_the_marker_of_the_next_page_is_taken() {
        let body = br#"{"servers": [], "servers_links": [
            {"rel": "previous", "href": "http://a/servers?marker=0"},
            {"rel": "next", "href": "http://evil.example/servers?limit=1&marker=a%20b"}]}"#;
        assert_eq!(next_page(body, "servers"), Some(Page { marker: "a b".into() }));
        assert_eq!(next_page(body, "migrations"), None);
        assert_eq!(next_page(b"{}", "servers"), None);
        assert_eq!(next_page(br#"{"servers_links": [{"rel": "next", "href": 1}]}"#, "servers"), None);
    }
}
