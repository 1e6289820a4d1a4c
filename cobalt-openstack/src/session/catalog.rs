//! Where the services are.

use openstack_sdk_core::catalog::Catalog as Known;
use url::Url;

use super::Service;
use crate::{
    cloud::Cloud,
    decode::Token,
    error::{Error, Result},
};

/// The endpoints of one login. Entries that make no sense are left out, so that somebody else's broken endpoint is
/// not our outage.
#[derive(Debug)]
pub(super) struct Catalog {
    known: Known,
    regions: Vec<String>,
}

impl Catalog {
    pub(super) fn new(token: &Token) -> Self {
        let mut known = Known::default();
        known.set_project_id(token.project_id());
        for (kind, endpoint) in token.endpoints() {
            let registered = known.register_catalog_endpoint(
                kind,
                &endpoint.url,
                endpoint.region.as_deref(),
                Some(endpoint.interface.as_str()),
            );
            if let Err(error) = registered {
                tracing::debug!(service = kind, %error, "an endpoint of the catalog is left out");
            }
        }
        let regions = known.get_regions();
        Self { known, regions }
    }

    /// The address below which a service's calls are.
    pub(super) fn endpoint(&self, service: Service, cloud: &Cloud) -> Result<Url> {
        if let Some(url) = cloud.overrides.get(service.as_str()) {
            return Ok(versioned(service, url.clone()));
        }
        let (kind, interface) = (service.as_str(), cloud.interface.as_str());
        let absent = || {
            let place = cloud.region.as_ref().map_or(String::new(), |region| format!(" in region {region}"));
            let regions = if self.regions.is_empty() { "none".to_owned() } else { self.regions.join(", ") };
            Error::configuration(format!(
                "the catalog has no {interface} endpoint of {kind}{place} (regions: {regions})"
            ))
        };
        let found = self.known.get_service_endpoint(kind, None, cloud.region.as_deref(), Some(interface));
        let endpoint = found.map_err(|_| absent())?;
        // The library answers with another region rather than with none.
        let elsewhere = cloud.region.is_some() && *endpoint.region() != cloud.region;
        if elsewhere || endpoint.interface().as_deref() != Some(interface) {
            return Err(absent());
        }
        Ok(versioned(service, endpoint.url().clone()))
    }
}

/// Some catalogs name Nova without its version.
fn versioned(service: Service, mut url: Url) -> Url {
    let has_version = url.path_segments().is_some_and(|mut segments| segments.any(|segment| segment.starts_with("v2")));
    if service == Service::Compute && !has_version {
        let path = format!("{}/v2.1", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    url
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decode;

    fn catalog(entries: &serde_json::Value) -> Catalog {
        let body = json!({"token": {"expires_at": "2030-01-01T00:00:00.000000Z", "catalog": entries}});
        Catalog::new(&decode::token(body.to_string().as_bytes()).unwrap())
    }

    fn cloud(region: &str, interface: &str) -> Cloud {
        Cloud::from_vars([
            ("OS_AUTH_URL", "http://k"),
            ("OS_USER_ID", "u"),
            ("OS_PASSWORD", "p"),
            ("OS_REGION_NAME", region),
            ("OS_INTERFACE", interface),
        ])
        .unwrap()
    }

    fn endpoint(interface: &str, region: &str, url: &str) -> serde_json::Value {
        json!({"id": "1", "interface": interface, "region": region, "region_id": region, "url": url})
    }

    #[test]
    fn region_and_interface_choose_and_nothing_else_is_taken_instead() {
        let catalog = catalog(&json!([
            {"type": "compute", "name": "nova", "endpoints": [
                endpoint("public", "east", "http://east/v2.1"),
                endpoint("public", "west", "http://west/v2.1/4711"),
                endpoint("internal", "west", "http://inside/compute"),
            ]},
            {"type": "placement", "name": "placement", "endpoints": [endpoint("public", "west", "http://west/placement")]},
        ]));
        let at = |service, region, interface| catalog.endpoint(service, &cloud(region, interface));
        assert_eq!(at(Service::Compute, "west", "public").unwrap().as_str(), "http://west/v2.1/4711");
        assert_eq!(at(Service::Compute, "west", "internal").unwrap().as_str(), "http://inside/compute/v2.1");
        assert_eq!(at(Service::Placement, "west", "").unwrap().as_str(), "http://west/placement");
        for (service, region, interface) in [
            (Service::Compute, "north", "public"),
            (Service::Compute, "west", "admin"),
            (Service::Placement, "east", "public"),
            (Service::Placement, "west", "internal"),
        ] {
            let error = at(service, region, interface).unwrap_err();
            assert!(error.to_string().contains("regions: east, west"), "{error}");
        }
    }

    #[test]
    fn somebody_elses_broken_entry_does_no_harm() {
        let catalog = catalog(&json!([
            {"type": "broken", "endpoints": [endpoint("public", "r", "not an address"), {"url": 3}, "rubbish"]},
            {"endpoints": []},
            7,
            {"type": "compute", "endpoints": [
                {"interface": "public", "url": "mailto:me"},
                endpoint("public", "r", "http://nova/v2.1"),
            ]},
        ]));
        assert_eq!(catalog.endpoint(Service::Compute, &cloud("", "")).unwrap().as_str(), "http://nova/v2.1");
        assert!(catalog.endpoint(Service::Placement, &cloud("", "")).is_err());
    }

    #[test]
    fn an_override_needs_no_catalog() {
        let catalog = catalog(&json!([]));
        let mut cloud = cloud("", "");
        cloud.overrides.insert("compute".into(), Url::parse("http://other").unwrap());
        assert_eq!(catalog.endpoint(Service::Compute, &cloud).unwrap().as_str(), "http://other/v2.1");
    }
}
