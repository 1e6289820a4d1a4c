//! Where the services are.

use std::collections::BTreeSet;

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
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    kind: String,
    interface: String,
    region: Option<String>,
    url: Url,
}

impl Catalog {
    pub(super) fn new(token: &Token) -> Self {
        let entry = |(kind, endpoint): (&str, &crate::decode::Endpoint)| {
            let url = Url::parse(&endpoint.url).ok().filter(|url| ["http", "https"].contains(&url.scheme()));
            if url.is_none() {
                tracing::debug!(service = kind, "an endpoint of the catalog has no address that can be used");
            }
            let (interface, region) = (endpoint.interface.clone(), endpoint.region.clone());
            Some(Entry { kind: kind.to_owned(), interface, region, url: url? })
        };
        Self { entries: token.endpoints().filter_map(entry).collect() }
    }

    /// The address below which a service's calls are.
    pub(super) fn endpoint(&self, service: Service, cloud: &Cloud) -> Result<Url> {
        if let Some(url) = cloud.overrides.get(service.as_str()) {
            return Ok(versioned(service, url.clone()));
        }
        let (kind, interface) = (service.as_str(), cloud.interface.as_str());
        let here = |entry: &&Entry| cloud.region.is_none() || entry.region == cloud.region;
        let offered = self.entries.iter().filter(|entry| entry.kind == kind && entry.interface == interface);
        let found: Vec<&Entry> = offered.filter(here).collect();
        let Some(first) = found.first() else {
            let place = cloud.region.as_ref().map_or(String::new(), |region| format!(" in region {region}"));
            let known = regions(self.entries.iter());
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let detail = format!("the catalog has no {interface} endpoint of {kind}{place} (regions: {known})");
            return Err(Error::configuration(detail));
        };
        // Guessing would put some hosts under the care of the wrong region.
        let among = regions(found.iter().copied());
        if among.len() > 1 {
            let detail = format!("OS_REGION_NAME (region_name) is not set, and {kind} is in {}", among.join(", "));
            return Err(Error::configuration(detail));
        }
        Ok(versioned(service, first.url.clone()))
    }
}

/// The regions of some entries, each once.
fn regions<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<&'a str> {
    let regions: BTreeSet<&str> = entries.filter_map(|entry| entry.region.as_deref()).collect();
    regions.into_iter().collect()
}

/// Some catalogs name Nova without its version, and most name Glance and Neutron so.
fn versioned(service: Service, mut url: Url) -> Url {
    let version = match service {
        Service::Compute => "v2.1",
        Service::Image => "v2",
        Service::Network => "v2.0",
        Service::Identity | Service::Placement => return url,
    };
    let has_version = url.path_segments().is_some_and(|mut segments| segments.any(|segment| segment.starts_with("v2")));
    if !has_version {
        let path = format!("{}/{version}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    url
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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
            {"type": "image", "name": "glance", "endpoints": [endpoint("public", "west", "http://west:9292")]},
            {"type": "network", "name": "neutron", "endpoints": [endpoint("public", "west", "http://west/v2.0/")]},
        ]));
        let at = |service, region, interface| catalog.endpoint(service, &cloud(region, interface));
        assert_eq!(at(Service::Compute, "west", "public").unwrap().as_str(), "http://west/v2.1/4711");
        assert_eq!(at(Service::Compute, "west", "internal").unwrap().as_str(), "http://inside/compute/v2.1");
        assert_eq!(at(Service::Placement, "west", "").unwrap().as_str(), "http://west/placement");
        assert_eq!(at(Service::Image, "west", "").unwrap().as_str(), "http://west:9292/v2");
        assert_eq!(at(Service::Network, "west", "").unwrap().as_str(), "http://west/v2.0/");
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
    fn without_a_region_there_must_be_only_one() {
        let entry = |region: &str| endpoint("public", region, "http://nova/v2.1");
        let one =
            catalog(&json!([{"type": "compute", "endpoints": [entry("west"), endpoint("admin", "east", "http://x")]}]));
        assert!(one.endpoint(Service::Compute, &cloud("", "")).is_ok());
        let two = catalog(&json!([{"type": "compute", "endpoints": [entry("west"), entry("east")]}]));
        let error = two.endpoint(Service::Compute, &cloud("", "")).unwrap_err();
        assert!(error.to_string().ends_with("is not set, and compute is in east, west"), "{error}");
    }

    #[test]
    fn an_override_needs_no_catalog() {
        let catalog = catalog(&json!([]));
        let mut cloud = cloud("", "");
        cloud.overrides.insert("compute".into(), Url::parse("http://other").unwrap());
        assert_eq!(catalog.endpoint(Service::Compute, &cloud).unwrap().as_str(), "http://other/v2.1");
    }
}
