//! Ages as kubectl shows them.

use jiff::Timestamp;

/// What stands for a time that was never set.
pub(super) const UNKNOWN: &str = "<unknown>";

/// The time since a timestamp in RFC 3339, in at most two units.
pub(super) fn since(text: Option<&str>, now: Timestamp) -> String {
    match text.filter(|text| !text.is_empty()) {
        None => UNKNOWN.to_owned(),
        Some(text) => match text.parse::<Timestamp>() {
            Ok(then) => human(now.duration_since(then).as_secs()),
            Err(_) => "<invalid>".to_owned(),
        },
    }
}

/// A duration, shorter the longer it is: `90s`, `5m3s`, `7h2m`, `3d4h`, `321d`, `2y10d`.
pub(super) fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let one = |unit: i64, name: &str| format!("{}{name}", seconds / unit);
    let two = |unit: i64, name: &str, lesser: i64, lesser_name: &str| match seconds % unit / lesser {
        0 => one(unit, name),
        rest => format!("{}{rest}{lesser_name}", one(unit, name)),
    };
    match seconds {
        // Clocks may differ by a second; more than that is no age.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => one(1, "s"),
        s if s < 10 * MINUTE => two(MINUTE, "m", 1, "s"),
        s if s < 3 * HOUR => one(MINUTE, "m"),
        s if s < 8 * HOUR => two(HOUR, "h", MINUTE, "m"),
        s if s < 2 * DAY => one(HOUR, "h"),
        s if s < 8 * DAY => two(DAY, "d", HOUR, "h"),
        s if s < 2 * YEAR => one(DAY, "d"),
        s if s < 8 * YEAR => two(YEAR, "y", DAY, "d"),
        _ => one(YEAR, "y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_at_most_two_units() {
        let shown: Vec<String> =
            [-5, -1, 0, 119, 120, 303, 6660, 10_800, 25_320, 90_000, 273_600, 27_734_400, 63_936_000, 400_000_000]
                .into_iter()
                .map(human)
                .collect();
        let expected = [
            "<invalid>",
            "0s",
            "0s",
            "119s",
            "2m",
            "5m3s",
            "111m",
            "3h",
            "7h2m",
            "25h",
            "3d4h",
            "321d",
            "2y10d",
            "12y",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_time_that_is_none_has_no_age() {
        assert_eq!(since(None, Timestamp::UNIX_EPOCH), "<unknown>");
        assert_eq!(since(Some("yesterday"), Timestamp::UNIX_EPOCH), "<invalid>");
    }
}
