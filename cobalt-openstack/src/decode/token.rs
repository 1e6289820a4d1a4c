//! Keystone's answer to a login.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// One way to a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `public`, `internal` or `admin`.
    pub interface: String,
    /// Its region.
    pub region: Option<String>,
    /// Its address, as somebody typed it.
    pub url: String,
}

/// What a token says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    issued_at: Option<Timestamp>,
    expires_at: Timestamp,
    project: Option<String>,
    endpoints: Vec<(String, Endpoint)>,
}

impl Token {
    /// How long it is good in all; `None` if it does not say.
    pub fn life(&self) -> Option<Duration> {
        Duration::try_from(self.expires_at.duration_since(self.issued_at?)).ok()
    }

    /// The project it is for.
    pub fn project_id(&self) -> Option<&str> {
        self.project.as_deref()
    }

    /// All endpoints, each with the type of its service.
    pub fn endpoints(&self) -> impl Iterator<Item = (&str, &Endpoint)> {
        self.endpoints.iter().map(|(kind, endpoint)| (kind.as_str(), endpoint))
    }
}

/// Reads the body of a token. Entries of the catalog that make no sense are left out.
pub fn token(body: &[u8]) -> Result<Token, String> {
    #[derive(Deserialize)]
    struct Body {
        token: Fields,
    }
    #[derive(Deserialize)]
    struct Fields {
        #[serde(default)]
        issued_at: Option<Timestamp>,
        expires_at: Timestamp,
        #[serde(default)]
        project: Value,
        #[serde(default)]
        catalog: Vec<Value>,
    }
    let Body { token } = super::json(body)?;
    let entries = token.catalog.iter().filter_map(|service| Some((service["type"].as_str()?, service)));
    let endpoints = entries.flat_map(|(kind, service)| {
        let all = service["endpoints"].as_array().into_iter().flatten();
        // Old clouds say `region`, new ones `region_id`, most say both.
        let read = |value: &Value| -> Option<Endpoint> {
            let text = |key: &str| value[key].as_str().map(str::to_owned);
            Some(Endpoint {
                interface: text("interface")?,
                region: text("region").or_else(|| text("region_id")),
                url: text("url")?,
            })
        };
        all.filter_map(read).map(|endpoint| (kind.to_owned(), endpoint))
    });
    Ok(Token {
        issued_at: token.issued_at,
        expires_at: token.expires_at,
        project: token.project["id"].as_str().map(str::to_owned),
        endpoints: endpoints.collect(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_token_tells_its_life_project_and_endpoints() {
        let body =
            br#"{"token": {"issued_at": "2026-11-18T10:00:00.000000Z", "expires_at": "2026-11-18T11:00:00.000000Z",
            "project": {"id": "p1", "name": "admin"}, "catalog": [{"type": "compute", "endpoints":
            [{"id": "e", "interface": "public", "region_id": "R", "region": "R", "url": "http://n/v2.1"}]}]}}"#;
        let token = token(body).unwrap();
        assert_eq!(token.life(), Some(Duration::from_secs(3600)));
        assert_eq!(token.project_id(), Some("p1"));
        let all: Vec<_> = token.endpoints().map(|(kind, endpoint)| (kind, endpoint.region.as_deref())).collect();
        assert_eq!(all, [("compute", Some("R"))]);
    }

    #[test]
    fn a_token_that_ends_before_it_begins_has_no_life() {
        let body = br#"{"token": {"issued_at": "2026-11-18T12:00:00Z", "expires_at": "2026-11-18T11:00:00Z"}}"#;
        assert_eq!(token(body).unwrap().life(), None);
        assert!(
            token(b"{}").is_err() && token(b"").is_err() && token(br#"{"token": {"expires_at": "soon"}}"#).is_err()
        );
    }
}
