//! Documents with a validator: clients keep them and ask whether they still hold.

use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
    VARY,
};
use http::{Response, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;

use super::body::ResponseBody;
use super::params::Params;
use crate::server::Inner;
use crate::status::ApiResult;
use crate::{aggregated, openapi};

/// A document and how long it may be kept.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) media: &'static str,
    pub(crate) body: Bytes,
    pub(crate) cache: &'static str,
    pub(crate) validator: Validator,
}

/// What a client that has a page asks by whether it still holds.
#[derive(Debug)]
pub(crate) enum Validator {
    /// A name for this state of the page.
    Tag(String),
    /// The time of the answer: the page holds for the rest of a second.
    Second(Timestamp),
}

impl Page {
    /// The page, or that the client already has it.
    pub(super) fn answer(self, headers: &HeaderMap) -> Response<ResponseBody> {
        let mut response = Response::new(ResponseBody::whole(Bytes::new()));
        let known = self.validator.is_known(headers);
        if known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            *response.body_mut() = ResponseBody::whole(self.body);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.media));
        }
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(self.cache));
        let (name, value) = match &self.validator {
            Validator::Tag(tag) => {
                headers.insert(VARY, HeaderValue::from_static("Accept"));
                (ETAG, format!("\"{tag}\""))
            }
            Validator::Second(time) => (LAST_MODIFIED, http_date(*time)),
        };
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
        response
    }
}

impl Validator {
    fn is_known(&self, headers: &HeaderMap) -> bool {
        match self {
            Self::Tag(tag) => {
                let tag = format!("\"{tag}\"");
                let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
                known.flat_map(|value| value.split(',')).any(|value| value.trim() == tag)
            }
            Self::Second(time) => {
                let since = headers.get(IF_MODIFIED_SINCE).and_then(|value| value.to_str().ok());
                let since = since.and_then(|text| rfc2822::DateTimeParser::new().parse_timestamp(text).ok());
                since.is_some_and(|since| since.as_second() >= time.as_second())
            }
        }
    }
}

fn http_date(time: Timestamp) -> String {
    rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&time).unwrap_or_default()
}

/// An address below `/openapi` that leads nowhere.
fn missing() -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::whole(Bytes::new()));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// The answer at a path; `None` if something else is there.
pub(super) fn find(
    server: &Inner,
    path: &[String],
    params: &Params,
    headers: &HeaderMap,
) -> ApiResult<Option<Response<ResponseBody>>> {
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    let page = match parts.as_slice() {
        ["api"] => aggregated::page(server, true, headers)?,
        ["apis"] => aggregated::page(server, false, headers)?,
        ["openapi", "v2"] => {
            let mut answer = openapi::v2(server, headers).answer(headers);
            // The real server compresses this one. Whoever keeps copies is told the same.
            answer.headers_mut().append(VARY, HeaderValue::from_static("Accept-Encoding"));
            return Ok(Some(answer));
        }
        ["openapi", "v3"] => Some(openapi::index(server)),
        ["openapi", "v3", rest @ ..] => {
            let page = match rest {
                ["api", version] => openapi::v3(server, "", version, params),
                ["apis", group, version] => openapi::v3(server, group, version, params),
                rest => openapi::root(server, rest, params),
            };
            return Ok(Some(page.map_or_else(missing, |page| page.answer(headers))));
        }
        _ => None,
    };
    Ok(page.map(|page| page.answer(headers)))
}

/// One media range of an `Accept` header.
pub(crate) struct Range<'a> {
    pub(crate) media: &'a str,
    parameters: &'a str,
}

impl<'a> Range<'a> {
    /// A parameter of the range.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        let mut pairs = self.parameters.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(n, _)| *n == name).map(|(_, value)| value)
    }
}

/// The media ranges a client accepts, in the order it prefers them.
pub(crate) fn accepted(headers: &HeaderMap) -> impl Iterator<Item = Range<'_>> {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|range| !range.is_empty()).map(|range| {
        let (media, parameters) = range.split_once(';').unwrap_or((range, ""));
        Range { media: media.trim(), parameters }
    })
}

/// A short name for a state; the same in every run.
pub(crate) fn tag(state: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    format!("{:016X}", hasher.finish())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn asked(name: http::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn a_page_is_not_sent_to_who_has_it() {
        let page = |validator| Page { media: "text/plain", body: "x".into(), cache: "public", validator };
        let code = |validator, headers: &HeaderMap| page(validator).answer(headers).status().as_u16();
        let tagged = || Validator::Tag("A".to_owned());
        assert_eq!(code(tagged(), &asked(IF_NONE_MATCH, "\"B\", \"A\"")), 304);
        assert_eq!(code(tagged(), &asked(IF_NONE_MATCH, "A")), 200);
        let timed = || Validator::Second("2026-11-18T01:51:40.7Z".parse().unwrap());
        assert_eq!(code(timed(), &asked(IF_MODIFIED_SINCE, "Wed, 18 Nov 2026 01:51:40 GMT")), 304);
        assert_eq!(code(timed(), &asked(IF_MODIFIED_SINCE, "Wed, 18 Nov 2026 01:51:39 GMT")), 200);
        assert_eq!(code(timed(), &asked(IF_MODIFIED_SINCE, "yesterday")), 200);
        let answer = page(timed()).answer(&HeaderMap::new());
        assert_eq!(answer.headers()[LAST_MODIFIED], "Wed, 18 Nov 2026 01:51:40 GMT");
    }
}
