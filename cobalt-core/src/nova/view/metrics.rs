//! How old the view is, at the moment of a scrape.

use std::{fmt::Write, sync::Arc};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{Part, RegionView, Snapshot};
use crate::runtime::metrics::Source;

#[async_trait]
impl Source for Arc<RegionView> {
    async fn scrape(&self) -> String {
        ages(&self.snapshot(), Instant::now())
    }
}

/// A part that was never seen has no age: an alert on its absence is not fooled by a small number.
fn ages(seen: &Snapshot, now: Instant) -> String {
    const NAME: &str = "cobalt_openstack_view_age_seconds";
    let mut text = format!("# HELP {NAME} How long ago this part of the region was seen.\n# TYPE {NAME} gauge\n");
    let parts = Part::ALL.map(|part| (part.as_str(), seen.age(part, now)));
    for (part, age) in parts.into_iter().chain([("traits", seen.trait_age(now))]) {
        if let Some(age) = age {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{NAME}{{part=\"{part}\"}} {}", age.as_secs_f64());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::nova::view::Listing;

    #[test]
    fn what_was_never_seen_has_no_age() {
        let then = Instant::now();
        let now = then + Duration::from_secs(3);
        let mut seen = Snapshot::default();
        assert!(!ages(&seen, now).contains("part="));
        seen.services = Some(Listing::new(Vec::new(), 1, then));
        seen.hypervisors = Some(Listing::new(Vec::new(), 1, now));
        let text = ages(&seen, now);
        assert!(text.contains("cobalt_openstack_view_age_seconds{part=\"services\"} 3\n"), "{text}");
        assert!(text.contains("{part=\"traits\"} 0\n") && !text.contains("aggregates"), "{text}");
    }
}
