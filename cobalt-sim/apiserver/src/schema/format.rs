//! The string formats the real server checks. Formats it does not know mean nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine;
use regex::Regex;

/// Whether `text` has the format.
pub(super) fn matches(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => is_date_time(text),
        "date" => is_date(text),
        "duration" => DURATION.is_match(text) || text.parse::<jiff::SignedDuration>().is_ok(),
        "uuid" => UUID.is_match(text),
        "uuid3" => UUID.is_match(text) && version_of(text) == Some('3'),
        "uuid4" => UUID.is_match(text) && version_of(text) == Some('4'),
        "uuid5" => UUID.is_match(text) && version_of(text) == Some('5'),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => MAC.is_match(text),
        "email" => EMAIL.is_match(text),
        "hostname" => text.len() <= 255 && HOSTNAME.is_match(text),
        "uri" => URI.is_match(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "hexcolor" => HEX_COLOR.is_match(text),
        _ => true,
    }
}

/// A regular expression of this file, compiled when first used.
struct Pattern(LazyLock<Option<Regex>>);

impl Pattern {
    fn is_match(&self, text: &str) -> bool {
        self.0.as_ref().is_some_and(|pattern| pattern.is_match(text))
    }
}

static TIME: Pattern = Pattern(LazyLock::new(|| {
    Regex::new(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?([zZ]|[+-][0-9]{2}:[0-9]{2})$").ok()
}));
static UUID: Pattern = Pattern(LazyLock::new(|| {
    Regex::new("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$").ok()
}));
static MAC: Pattern = Pattern(LazyLock::new(|| {
    Regex::new(
        "(?i)^([0-9a-f]{2}[:-]){5}[0-9a-f]{2}$|^([0-9a-f]{2}[:-]){7}[0-9a-f]{2}$|^([0-9a-f]{4}\\.){2}[0-9a-f]{4}$",
    )
    .ok()
}));
static EMAIL: Pattern = Pattern(LazyLock::new(|| Regex::new(r"^[^@\s]+@[^@\s]+$").ok()));
static HOSTNAME: Pattern = Pattern(LazyLock::new(|| {
    Regex::new(
        r"^[a-zA-Z0-9_]([-a-zA-Z0-9_]{0,62}[a-zA-Z0-9_])?(\.[a-zA-Z0-9_]([-a-zA-Z0-9_]{0,62}[a-zA-Z0-9_])?)*\.?$",
    )
    .ok()
}));
static URI: Pattern = Pattern(LazyLock::new(|| Regex::new(r"^([a-zA-Z][a-zA-Z0-9+.-]*:\S+|/\S*)$").ok()));
static HEX_COLOR: Pattern = Pattern(LazyLock::new(|| Regex::new("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$").ok()));
static DURATION: Pattern = Pattern(LazyLock::new(|| {
    Regex::new(r"^[+-]?([0-9]+(\.[0-9]*)?\s*(ns|us|µs|μs|ms|s|m|h|d|w|sec|secs|min|mins|hr|hour|hours|day|days|week|weeks)\s*)+$|^0$").ok()
}));

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't']) else { return false };
    let Some(found) = TIME.0.as_ref().and_then(|pattern| pattern.captures(time)) else { return false };
    let below = |group: usize, limit: u8| found[group].parse::<u8>().is_ok_and(|value| value < limit);
    is_date(date) && below(1, 24) && below(2, 60) && below(3, 60)
}

fn version_of(uuid: &str) -> Option<char> {
    uuid.chars().filter(|c| *c != '-').nth(12)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    !bits.starts_with('+') && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn formats_accept_what_they_name_and_nothing_else() {
        for (format, good, bad) in [
            ("date-time", "2026-01-01T00:00:00.123456Z", "2026-01-01 00:00:00Z"),
            ("date-time", "2026-02-28t23:59:59+01:00", "2026-02-30T00:00:00Z"),
            ("date", "2026-01-01", "2026-13-01"),
            ("uuid", "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", "x"),
            ("uuid4", "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", "aaaaaaaa-bbbb-5ccc-8ddd-eeeeeeeeeeee"),
            ("ipv4", "10.0.0.1", "1.2.3"),
            ("ipv6", "fd00::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "52:54:00:12:34:56", "52:54:00"),
            ("email", "a@b", "a"),
            ("hostname", "node-1.example.org", "-x"),
            ("uri", "https://a/b", "a b"),
            ("byte", "dg==", "*"),
            ("duration", "1h30m", "later"),
            ("hexcolor", "#fff", "#ff"),
        ] {
            assert!(matches(format, good), "{format} {good}");
            assert!(!matches(format, bad), "{format} {bad}");
        }
        assert!(matches("somebody-elses", "anything"));
    }
}
