//! From a method and a path to one of the routes we know.

use http::Method;
use percent_encoding::percent_decode_str;

/// What a request is for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A route as it is written in the tables, and what stands in place of its `{}`.
    Route(&'static str, Vec<String>),
    /// Something is there, and this cannot be done to it.
    WrongMethod,
    Nothing,
}

/// Looks for a route. Of several that fit the first counts, so words stand before `{}`.
pub(super) fn find<'t>(
    tables: impl IntoIterator<Item = &'t &'static [&'static str]>,
    method: &Method,
    path: &str,
) -> Found {
    // Whoever asks for the head only is answered as if they wanted everything.
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let segments: Option<Vec<String>> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| percent_decode_str(segment).decode_utf8().ok().map(std::borrow::Cow::into_owned))
        .collect();
    let Some(segments) = segments else { return Found::Nothing };
    let mut elsewhere = false;
    for route in tables.into_iter().copied().flatten() {
        let Some((wanted, pattern)) = route.split_once(' ') else { continue };
        let Some(parameters) = fits(pattern, &segments) else { continue };
        if wanted == method {
            return Found::Route(route, parameters);
        }
        elsewhere = true;
    }
    if elsewhere { Found::WrongMethod } else { Found::Nothing }
}

fn fits(pattern: &str, segments: &[String]) -> Option<Vec<String>> {
    let mut parameters = Vec::new();
    let mut segments = segments.iter();
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let segment = segments.next()?;
        if part == "{}" {
            parameters.push(segment.clone());
        } else if part != segment {
            return None;
        }
    }
    segments.next().is_none().then_some(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[&str] = &["GET /servers/detail", "GET /servers/{}", "DELETE /servers/{}", "POST /servers"];

    fn found(method: &Method, path: &str) -> Found {
        find(&[TABLE], method, path)
    }

    #[test]
    fn words_come_before_ids_and_ids_are_decoded() {
        assert_eq!(found(&Method::GET, "/servers/detail"), Found::Route("GET /servers/detail", vec![]));
        assert_eq!(found(&Method::HEAD, "/servers/a%2Fb/"), Found::Route("GET /servers/{}", vec!["a/b".into()]));
        assert_eq!(found(&Method::PUT, "/servers/a"), Found::WrongMethod);
        assert_eq!(found(&Method::GET, "/servers/a/b"), Found::Nothing);
        assert_eq!(found(&Method::GET, "/servers/%ff"), Found::Nothing);
    }
}
