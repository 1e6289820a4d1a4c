//! One request, read and understood as far as all services have it in common.

use std::future::Future;

use cobalt_core::{Error, Result};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{Inner, answer::Refusal, version::Version};
use crate::{
    faults::Faults,
    nova::{SimNova, SimPlacement},
    world::State,
};

/// What stands behind the question mark, in its order.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let read = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        };
        Self(pairs.map(read).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// As OpenStack reads a yes; a name alone is one too.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| ["", "1", "t", "true", "on", "y", "yes"].contains(&&*value.to_lowercase()))
    }

    /// Whether a field has the value that is asked for, if one is.
    pub(super) fn admits(&self, name: &str, value: &str) -> bool {
        self.get(name).is_none_or(|wanted| wanted == value)
    }

    pub(super) fn admits_flag(&self, name: &str, value: bool) -> bool {
        self.get(name).is_none_or(|_| self.flag(name) == value)
    }
}

/// One request to a service.
pub(super) struct Call<'a> {
    pub(super) api: &'a Inner,
    /// What stands in place of the route's `{}`.
    pub(super) parameters: Vec<String>,
    pub(super) query: Query,
    pub(super) body: &'a [u8],
    pub(super) version: Version,
    /// The project of the token.
    pub(super) project: String,
    /// Where the caller found us: `http://host:port`.
    pub(super) base: String,
}

impl Call<'_> {
    /// One of the route's parameters; they are as many as its `{}`.
    pub(super) fn parameter(&self, index: usize) -> &str {
        self.parameters.get(index).map_or("", String::as_str)
    }

    pub(super) fn json(&self) -> Result<Value, Refusal> {
        let value: Option<Value> = serde_json::from_slice(self.body).ok();
        value.filter(Value::is_object).ok_or_else(|| Refusal::bad("Malformed request body"))
    }

    pub(super) fn at_least(&self, minor: u16) -> bool {
        self.version >= Version(self.version.0, minor)
    }

    /// Nova, under the faults of this method of its seam.
    pub(super) async fn nova<T, F>(&self, method: &'static str, act: impl FnOnce(SimNova) -> F) -> Result<T, Refusal>
    where
        F: Future<Output = Result<T>>,
    {
        let plain = SimNova::new(self.api.world.clone());
        Ok(self.api.nova.faults().run(method, || method.to_owned(), || act(plain)).await?)
    }

    /// Placement, under the faults of this method of its seam.
    pub(super) async fn placement<T, F>(
        &self,
        method: &'static str,
        act: impl FnOnce(SimPlacement) -> F,
    ) -> Result<T, Refusal>
    where
        F: Future<Output = Result<T>>,
    {
        let plain = SimPlacement::new(self.api.world.clone());
        Ok(self.api.placement.faults().run(method, || method.to_owned(), || act(plain)).await?)
    }

    /// What no seam has, under the faults of one that has something like it.
    pub(super) async fn world<T>(
        &self,
        faults: &Faults,
        method: &'static str,
        act: impl FnOnce(&mut State) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let reach = || async {
            self.api.world.with(|state| {
                if state.nova.available {
                    Ok(act(state))
                } else {
                    Err(Error::unavailable(method, std::io::Error::other("the service endpoint does not answer")))
                }
            })
        };
        faults.run(method, || method.to_owned(), reach).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded() {
        let query = Query::parse("name=a%20b+c&router%3Aexternal=False&all_tenants&x=1&x=2");
        assert_eq!(query.get("name"), Some("a b c"));
        assert!(query.flag("all_tenants") && !query.flag("router:external") && !query.flag("y"));
        assert!(query.admits_flag("router:external", false) && !query.admits_flag("router:external", true));
        assert!(query.admits("absent", "whatever") && !query.admits("name", "b"));
        assert_eq!(query.all("x").collect::<Vec<_>>(), ["1", "2"]);
    }
}
