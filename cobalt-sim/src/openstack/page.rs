//! Lists in pages, as Nova makes them: a full page says where the next one begins, also if that one is empty.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::{answer::Refusal, call::Call};

/// What part of a list is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    limit: usize,
    marker: Option<String>,
}

impl Page {
    /// Reads what a request says of pages, which is nothing for most.
    pub(super) fn asked(call: &Call<'_>) -> Result<Self, Refusal> {
        let most = call.api.settings().page_size;
        let limit = match call.query.get("limit") {
            None => most,
            Some(text) => {
                let invalid = || Refusal::bad(format!("Invalid input for query parameters limit: {text}"));
                text.parse::<usize>().map_err(|_| invalid())?.min(most)
            }
        };
        Ok(Self { limit, marker: call.query.get("marker").map(str::to_owned) })
    }

    /// The items of this page, by what their markers are; and the marker of the next one, if this one is full.
    pub(super) fn cut<T>(
        &self,
        items: Vec<T>,
        marker_of: impl Fn(&T) -> String,
    ) -> Result<(Vec<T>, Option<String>), Refusal> {
        let skip = match &self.marker {
            None => 0,
            Some(marker) => {
                let place = items.iter().position(|item| marker_of(item) == *marker);
                place.ok_or_else(|| Refusal::bad(format!("marker [{marker}] not found")))? + 1
            }
        };
        let items: Vec<T> = items.into_iter().skip(skip).take(self.limit).collect();
        let next = items.last().filter(|_| items.len() == self.limit).map(marker_of);
        Ok((items, next))
    }

    /// The body of a list: its items, and the link to the next page.
    pub(super) fn body(
        &self,
        call: &Call<'_>,
        path: &str,
        collection: &str,
        items: &[Value],
        next: Option<&str>,
    ) -> Value {
        let mut body = json!({collection: items});
        if let Some(marker) = next {
            let marker = utf8_percent_encode(marker, NON_ALPHANUMERIC);
            let href = format!("{}{path}?limit={}&marker={marker}", call.base, self.limit);
            body[format!("{collection}_links")] = json!([{"rel": "next", "href": href}]);
        }
        body
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_full_page_names_the_next_one_and_pages_meet_without_a_gap() {
        let items: Vec<u32> = (0..4).collect();
        let page = |marker: Option<&str>| Page { limit: 2, marker: marker.map(str::to_owned) };
        let cut = |marker| page(marker).cut(items.clone(), u32::to_string).unwrap();
        assert_eq!(cut(None), (vec![0, 1], Some("1".into())));
        assert_eq!(cut(Some("1")), (vec![2, 3], Some("3".into())), "full, so there may be more");
        assert_eq!(cut(Some("3")), (vec![], None));
        assert_eq!(page(Some("x")).cut(items, u32::to_string).unwrap_err().status().unwrap().as_u16(), 400);
    }
}
