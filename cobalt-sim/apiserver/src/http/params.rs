//! Query parameters and headers of a request.

use http::HeaderMap;
use http::header::{CONTENT_TYPE, USER_AGENT};
use percent_encoding::percent_decode_str;
use serde_json::json;

use super::page::accepted;
use crate::status::{ApiError, ApiResult, StatusCause};
use crate::table::Table;

/// Decoded query parameters in the order they were sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    pub(crate) fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|part| !part.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name), decode(value))
                })
                .collect(),
        )
    }

    /// The first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(n, _)| n == name);
        found.map(|(_, v)| v.as_str())
    }

    /// The first value, where an empty one counts as absent.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|v| !v.is_empty())
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Any value but `false` and `0` counts as true, also the empty one.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|v| v != "false" && v != "0")
    }

    pub(crate) fn integer(&self, name: &str) -> ApiResult<Option<i64>> {
        let Some(value) = self.text(name) else {
            return Ok(None);
        };
        let parsed = value
            .parse()
            .map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing {value:?}: invalid syntax")))?;
        Ok(Some(parsed))
    }

    /// Whether `dryRun=All` was asked for. `options` names the options type in the error.
    pub(crate) fn dry_run(&self, options: &str) -> ApiResult<bool> {
        let values: Vec<&str> = self.all("dryRun").collect();
        dry_run(&values, options)
    }
}

/// Checks a list of dry run stages, from the query or from a body.
pub(crate) fn dry_run(values: &[&str], options: &str) -> ApiResult<bool> {
    if values.is_empty() {
        return Ok(false);
    }
    if values.iter().all(|v| *v == "All") {
        return Ok(true);
    }
    let cause = StatusCause::unsupported("dryRun", &json!(values), &["All"]);
    Err(ApiError::invalid_options(options, &[cause]))
}

fn decode(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

/// What happens to fields the server does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    pub(crate) fn parse(params: &Params, options: &str) -> ApiResult<Self> {
        match params.text("fieldValidation") {
            None | Some("Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => Err(ApiError::invalid_options(
                options,
                &[StatusCause::unsupported("fieldValidation", &json!(other), &["", "Ignore", "Strict", "Warn"])],
            )),
        }
    }
}

/// The form an answer is sent in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects as they are.
    Whole,
    /// `PartialObjectMetadata` and its list.
    Metadata,
    /// Rows and columns.
    Table(Table),
}

/// What a client wants to be answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) form: Form,
    /// As YAML instead of JSON.
    pub(crate) yaml: bool,
}

/// Chooses by the `Accept` header; what we cannot render is passed over like by the real server. A watch has no form
/// in YAML.
pub(crate) fn negotiate(headers: &HeaderMap, watch: bool) -> ApiResult<Wanted> {
    let mut any = false;
    for range in accepted(headers) {
        any = true;
        let yaml = range.media == "application/yaml" && !watch;
        if !yaml && !matches!(range.media, "application/json" | "application/*" | "*/*") {
            continue;
        }
        let wanted = |form| Ok(Wanted { form, yaml });
        let meta = |version| range.get("g") == Some("meta.k8s.io") && range.get("v") == Some(version);
        match range.get("as") {
            None => return wanted(Form::Whole),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") if meta("v1") => return wanted(Form::Metadata),
            Some("Table") if meta("v1") => return wanted(Form::Table(Table::V1)),
            Some("Table") if meta("v1beta1") => return wanted(Form::Table(Table::V1BETA1)),
            Some(_) => {}
        }
    }
    if any { Err(ApiError::not_acceptable()) } else { Ok(Wanted { form: Form::Whole, yaml: false }) }
}

/// The media type of the body without its parameters; empty if none was named.
pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let media = value.unwrap_or_default().split(';').next();
    media.unwrap_or_default().trim().to_ascii_lowercase()
}

/// The program behind the request: User-Agent up to the slash.
pub(crate) fn user_agent(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(USER_AGENT)?.to_str().ok()?;
    let name = value.split('/').next()?.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::header::ACCEPT;

    use super::*;

    fn accept(value: &str) -> ApiResult<Form> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, value.parse().unwrap());
        negotiate(&headers, false).map(|wanted| wanted.form)
    }

    #[test]
    fn the_first_form_we_can_render_wins() {
        let table = "application/json;as=Table;g=meta.k8s.io;v=v9,application/json";
        assert_eq!(accept(table).unwrap(), Form::Whole);
        let meta = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        assert_eq!(accept(meta).unwrap(), Form::Metadata);
        assert_eq!(accept("*/*").unwrap(), Form::Whole);
        assert_eq!(accept("text/html").unwrap_err().code().as_u16(), 406);
        assert_eq!(negotiate(&HeaderMap::new(), false).unwrap(), Wanted { form: Form::Whole, yaml: false });
    }

    #[test]
    fn parameters_are_decoded() {
        let params = Params::parse("labelSelector=z%20in%20%28a%2Cb%29&watch&x=a+b&limit=abc");
        assert_eq!(params.get("labelSelector"), Some("z in (a,b)"));
        assert!(params.flag("watch"));
        assert_eq!(params.get("x"), Some("a b"));
        assert_eq!(params.integer("limit").unwrap_err().message(), "strconv.ParseInt: parsing \"abc\": invalid syntax");
    }
}
