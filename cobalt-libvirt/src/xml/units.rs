//! Sizes with units, as libvirt reads them.

/// A size in bytes from a number and its unit; `None` if either makes no sense. Too large a size is [`u64::MAX`].
///
/// libvirt's rules: `b`, `byte`, `bytes`; a letter alone or with `iB` counts in powers of 1024 (`k`, `KiB`), with `B` in
/// powers of 1000 (`KB`); case does not matter. Without a unit the number counts in units of `default` bytes, which is
/// 1024 wherever libvirt speaks of memory.
///
/// ```
/// use cobalt_libvirt::xml::size_in_bytes;
///
/// assert_eq!(size_in_bytes("4", Some("MiB"), 1024), Some(4_194_304));
/// assert_eq!(size_in_bytes("4", Some("MB"), 1024), Some(4_000_000));
/// assert_eq!(size_in_bytes("4", None, 1024), Some(4096));
/// assert_eq!(size_in_bytes("4", Some("acres"), 1024), None);
/// ```
pub fn size_in_bytes(number: &str, unit: Option<&str>, default: u64) -> Option<u64> {
    let scale = match unit.map(str::trim) {
        None | Some("") => default,
        Some(unit) => scale(unit)?,
    };
    let number = number.trim();
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Digits that do not fit are a size beyond every machine, just as a product that does not fit.
    Some(number.parse::<u64>().map_or(u64::MAX, |number| number.saturating_mul(scale)))
}

fn scale(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    if matches!(unit.as_str(), "b" | "byte" | "bytes") {
        return Some(1);
    }
    let mut letters = unit.chars();
    let power = match letters.next()? {
        'k' => 1,
        'm' => 2,
        'g' => 3,
        't' => 4,
        'p' => 5,
        'e' => 6,
        _ => return None,
    };
    match letters.as_str() {
        "" | "ib" => Some(1024_u64.pow(power)),
        "b" => Some(1000_u64.pow(power)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::size_in_bytes;

    #[test]
    fn every_unit_has_its_scale() {
        let table = [
            ("b", 1),
            ("B", 1),
            ("byte", 1),
            ("bytes", 1),
            ("k", 1 << 10),
            ("K", 1 << 10),
            ("KiB", 1 << 10),
            ("kib", 1 << 10),
            ("KB", 1_000),
            ("kB", 1_000),
            ("M", 1 << 20),
            ("MiB", 1 << 20),
            ("MB", 1_000_000),
            ("G", 1 << 30),
            ("GiB", 1 << 30),
            ("GB", 1_000_000_000),
            ("T", 1 << 40),
            ("TiB", 1 << 40),
            ("TB", 1_000_000_000_000),
            ("P", 1 << 50),
            ("PiB", 1 << 50),
            ("PB", 1_000_000_000_000_000),
            ("E", 1 << 60),
            ("EiB", 1 << 60),
            ("EB", 1_000_000_000_000_000_000),
        ];
        for (unit, scale) in table {
            assert_eq!(size_in_bytes("3", Some(unit), 1024), Some(3 * scale), "{unit}");
        }
    }

    #[test]
    fn without_a_unit_the_default_counts() {
        assert_eq!(size_in_bytes("262144", None, 1024), Some(268_435_456));
        assert_eq!(size_in_bytes("262144", Some(""), 1), Some(262_144));
    }

    #[test]
    fn a_size_that_does_not_fit_saturates() {
        assert_eq!(size_in_bytes("16", Some("EiB"), 1024), Some(u64::MAX));
        assert_eq!(size_in_bytes("15", Some("EiB"), 1024), Some(15 << 60));
        assert_eq!(size_in_bytes("18446744073709551615", Some("b"), 1024), Some(u64::MAX));
        assert_eq!(size_in_bytes("99999999999999999999999", Some("b"), 1024), Some(u64::MAX));
    }

    #[test]
    fn nonsense_is_not_a_size() {
        for (number, unit) in [("", None), ("-1", None), ("+1", None), ("1.5", None), ("x", None), ("1 2", None)] {
            assert_eq!(size_in_bytes(number, unit, 1024), None, "{number:?}");
        }
        for unit in ["KiBi", "Kb1", "ki", "bit", "Z", "é", "iB"] {
            assert_eq!(size_in_bytes("1", Some(unit), 1024), None, "{unit:?}");
        }
    }
}
