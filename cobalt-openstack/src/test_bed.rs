//! What a smoke test is made of, over the APIs of Glance, Neutron and Nova.

use std::sync::Arc;

use async_trait::async_trait;
use cobalt_core::{Error as Seam, Result, nova::TestBed};
use http::Method;

use crate::{
    decode,
    nova::{Nova, microversion},
    session::{Call, Service, Session},
};

/// [`TestBed`] over the APIs of Glance, Neutron and Nova. Cheap to clone; from
/// [`OpenStack::test_bed`](crate::OpenStack::test_bed).
#[derive(Debug, Clone)]
pub struct Bed {
    session: Arc<Session>,
}

impl Bed {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session }
    }

    fn call(service: Service, name: &'static str, operation: String, path: &str) -> Call {
        let (method, path, query) = (Method::GET, path.to_owned(), Vec::new());
        Call { service, name, operation, method, path, query, microversion: "", body: None }
    }

    async fn decoded<T>(&self, call: &Call, decode: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<T> {
        let answer = self.session.send(call).await?;
        decode(&answer.body).map_err(|detail| answer.malformed(call.operation.clone(), detail))
    }
}

#[async_trait]
impl TestBed for Bed {
    async fn image_named(&self, name: &str) -> Result<String> {
        let mut call = Self::call(Service::Image, "image_named", format!("get image named {name}"), "/images");
        // Glance's own order is the newest first. It takes `in:` at the beginning of a name for a list of names, so
        // what comes is looked at again.
        call.query.extend([("name", name.to_owned()), ("status", "active".into()), ("sort", "created_at:desc".into())]);
        let found = self.decoded(&call, decode::images).await?;
        let newest = found.into_iter().find(|image| image.name == name);
        newest.map(|image| image.id).ok_or_else(|| Seam::not_found(call.operation))
    }

    async fn network<'a>(&self, name: Option<&'a str>) -> Result<Option<String>> {
        let operation = name.map_or("get a network of ours".into(), |name| format!("get network named {name}"));
        let mut call = Self::call(Service::Network, "network", operation, "/networks");
        let Some(name) = name else {
            // An administrator sees everybody's.
            if let Some(project) = self.session.project().await? {
                call.query.push(("project_id", project));
            }
            call.query.extend([("shared", "false".into()), ("router:external", "false".into())]);
            let mut found = self.decoded(&call, decode::networks).await?;
            found.retain(|network| !network.shared && !network.external);
            found.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
            return Ok(found.into_iter().next().map(|network| network.id));
        };
        call.query.push(("name", name.to_owned()));
        let found = self.decoded(&call, decode::networks).await?;
        let mut exact = found.into_iter().filter(|network| network.name == name);
        match (exact.next(), exact.next()) {
            (Some(one), None) => Ok(Some(one.id)),
            (None, _) => Err(Seam::not_found(call.operation)),
            (Some(one), Some(other)) => {
                let reason = format!("there are two of this name, {} and {}", one.id, other.id);
                Err(Seam::conflict(call.operation, reason))
            }
        }
    }

    async fn flavor_called(&self, id_or_name: &str) -> Result<String> {
        let operation = format!("get flavor {id_or_name}");
        let mut call = Self::call(Service::Compute, "flavor_called", operation.clone(), "/flavors");
        call.microversion = microversion::FLAVORS;
        let all = Nova::new(self.session.clone()).pages(call, "flavors", decode::flavors).await?;
        let by_id = all.iter().find(|flavor| flavor.id == id_or_name);
        let found = by_id.or_else(|| all.iter().find(|flavor| flavor.name == id_or_name));
        found.map(|flavor| flavor.id.clone()).ok_or_else(|| Seam::not_found(operation))
    }
}
