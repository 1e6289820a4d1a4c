//! Microversions: which one a request is to be answered in.

use std::fmt;

use http::{HeaderMap, StatusCode};

use super::answer::Refusal;

/// A microversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) u16, pub(super) u16);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        (digits(major) && digits(minor)).then_some(())?;
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }
}

/// What a service has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    /// The word in the header.
    pub(super) service: &'static str,
    /// A header that names a version alone.
    pub(super) own_header: Option<&'static str>,
    pub(super) lowest: Version,
    pub(super) highest: Version,
}

/// Nova's versions. The highest is the last that changes something the region shows.
pub(super) const COMPUTE: Range = Range {
    service: "compute",
    own_header: Some("x-openstack-nova-api-version"),
    lowest: Version(2, 1),
    highest: Version(2, 95),
};

/// Placement's versions.
pub(super) const PLACEMENT: Range =
    Range { service: "placement", own_header: None, lowest: Version(1, 0), highest: Version(1, 39) };

impl Range {
    /// The version that a request asks for; the lowest if it asks for none.
    pub(super) fn asked(&self, headers: &HeaderMap) -> Result<Version, Refusal> {
        let texts = |name: &str| headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        // One header may speak to several services.
        let listed = texts("openstack-api-version").flat_map(|text| text.split(','));
        let named = listed.filter_map(|item| {
            let (service, version) = item.trim().split_once(' ')?;
            service.eq_ignore_ascii_case(self.service).then(|| version.trim())
        });
        let own = self.own_header.into_iter().flat_map(texts);
        let Some(text) = named.chain(own).next() else { return Ok(self.lowest) };
        if text.eq_ignore_ascii_case("latest") {
            return Ok(self.highest);
        }
        let invalid = || Refusal::bad(format!("API Version String {text} is of invalid format."));
        let version = Version::parse(text).ok_or_else(invalid)?;
        if (self.lowest..=self.highest).contains(&version) {
            return Ok(version);
        }
        let Self { lowest, highest, .. } = self;
        let text =
            format!("Version {version} is not supported by the API. Minimum is {lowest} and maximum is {highest}.");
        Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, text))
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn asked(range: Range, name: &'static str, value: &'static str) -> Result<Version, u16> {
        let headers = [(HeaderName::from_static(name), HeaderValue::from_static(value))];
        let answer = range.asked(&headers.into_iter().collect());
        answer.map_err(|refusal| refusal.status().map_or(0, |status| status.as_u16()))
    }

    #[test]
    fn a_version_is_read_from_either_header() {
        let name = "openstack-api-version";
        assert_eq!(asked(COMPUTE, name, "compute 2.53"), Ok(Version(2, 53)));
        assert_eq!(asked(COMPUTE, "x-openstack-nova-api-version", "2.10"), Ok(Version(2, 10)));
        assert_eq!(asked(PLACEMENT, name, "compute 2.53, placement 1.29"), Ok(Version(1, 29)));
        assert_eq!(asked(COMPUTE, name, "compute latest"), Ok(Version(2, 95)));
        assert_eq!(asked(COMPUTE, name, "placement 1.29"), Ok(Version(2, 1)), "none for us is the lowest");
    }

    #[test]
    fn a_version_that_is_none_or_not_there_is_refused() {
        let name = "openstack-api-version";
        assert_eq!(asked(COMPUTE, name, "compute 2.96"), Err(406));
        assert_eq!(asked(PLACEMENT, name, "placement 2.0"), Err(406));
        for nonsense in ["compute two", "compute 2", "compute 2.+1", "compute 2.99999999", "compute 2.1.1"] {
            assert_eq!(asked(COMPUTE, name, nonsense), Err(400), "{nonsense}");
        }
    }
}
