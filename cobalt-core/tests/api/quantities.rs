//! Quantities are what Kubernetes takes them for.

use cobalt_core::api::Quantity;
use proptest::prelude::*;

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap()
}

/// Texts and their canonical forms, as the Go library prints them.
#[test]
fn the_canonical_form_is_that_of_kubernetes() {
    let cases = [
        ("0", "0"),
        ("-0", "0"),
        ("0Ki", "0"),
        ("1", "1"),
        ("+1", "1"),
        ("1.", "1"),
        (".5", "500m"),
        ("0.5", "500m"),
        ("1500m", "1500m"),
        ("1000m", "1"),
        ("1.5", "1500m"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1e-3", "1e-3"),
        ("12e5", "1200e3"),
        ("1E", "1E"),
        ("1000k", "1M"),
        ("100u", "100u"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("1Ki", "1Ki"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1000Ki", "1000Ki"),
        ("1025Mi", "1025Mi"),
        ("-1Gi", "-1Gi"),
        ("-1500m", "-1500m"),
        ("007", "7"),
        ("9223372036854775807", "9223372036854775807"),
        ("99999999999999999999", "9223372036854775807"),
        ("1e1000000000000", "9223372036854775807"),
        ("1e-1000000000000", "1e-9"),
        ("8Ei", "9223372036854775807"),
    ];
    for (text, canonical) in cases {
        assert_eq!(quantity(text).to_string(), canonical, "{text}");
    }
}

#[test]
fn what_is_no_quantity_is_an_error_that_says_so() {
    for text in [
        "", "-", ".", "Gi", "1.2.3", "1 Gi", " 1", "1gi", "1Kib", "1e", "1e+", "1e1.5", "0x10", "1K", "٣", "NaN",
        "1_000",
    ] {
        let error = text.parse::<Quantity>().unwrap_err();
        assert_eq!(error.to_string(), format!("{text:?} is not a quantity such as 64Gi, 1500m or 2e3"));
        assert_eq!((error.category(), error.is_transient()), ("invalid_quantity", false));
    }
}

#[test]
fn amounts_compare_by_size_not_by_spelling() {
    assert_eq!(quantity("1024Mi"), quantity("1Gi"));
    assert_eq!(quantity("1500m"), quantity("1.5"));
    assert!(quantity("1Gi") > quantity("1G"));
    assert!(quantity("-1") < quantity("1n"));
}

#[test]
fn whole_units_are_rounded_up() {
    assert_eq!(quantity("1500m").as_u64(), Some(2));
    assert_eq!(quantity("64Gi").as_u64(), Some(64 << 30));
    assert_eq!(quantity("0").as_u64(), Some(0));
    assert_eq!(quantity("-1").as_u64(), None);
    assert_eq!(Quantity::bytes(u64::MAX).as_u64(), Some(i64::MAX.unsigned_abs()));
}

#[test]
fn overcommit_scales_and_cuts() {
    let cases = [
        (Quantity::cpus(128), 2.5, "320"),
        (Quantity::cpus(10), 2.35, "23"),
        (Quantity::cpus(10), 2.3, "23"),
        (Quantity::cpus(100), 1.15, "115"),
        (Quantity::cpus(3), 1.0, "3"),
        (Quantity::bytes(512 << 30), 1.5, "768Gi"),
        (Quantity::bytes(1), 1e300, "9223372036854775807"),
        (Quantity::bytes(1 << 40), 1e-300, "0"),
        (quantity("1500m"), 1.0, "1"),
        (quantity("1500m"), 2.0, "3"),
    ];
    for (amount, ratio, scaled) in cases {
        assert_eq!(amount.scaled(ratio).to_string(), scaled, "{amount} × {ratio}");
    }
}

#[test]
fn a_senseless_ratio_counts_as_one() {
    for ratio in [f64::NAN, f64::INFINITY, -2.0, 0.0] {
        assert_eq!(Quantity::cpus(7).scaled(ratio), Quantity::cpus(7));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = text.parse::<Quantity>();
    }

    #[test]
    fn whatever_the_api_server_accepts_is_read_unless_its_exponent_is_a_fraction(
        text in "[+-]?([0-9]{1,40}(\\.[0-9]{0,40})?|\\.[0-9]{1,40})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,12})?"
    ) {
        let read: Quantity = text.parse().map_err(|error| TestCaseError::fail(format!("{error}")))?;
        let again = quantity(&read.to_string());
        prop_assert_eq!(again, read, "the canonical form is the same amount");
        prop_assert_eq!(again.to_string(), read.to_string(), "and it is canonical");
    }

    #[test]
    fn whole_amounts_survive(units in 0..=i64::MAX.unsigned_abs()) {
        for amount in [Quantity::bytes(units), Quantity::cpus(units)] {
            prop_assert_eq!(amount.as_u64(), Some(units));
            prop_assert_eq!(quantity(&amount.to_string()), amount);
            prop_assert_eq!(serde_json::from_value::<Quantity>(units.into()).unwrap(), amount);
        }
    }

    #[test]
    fn suffixes_multiply(units in 0..8_000_u64, suffix in 0..6_usize) {
        let (binary, decimal) = (["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][suffix], ["k", "M", "G", "T", "P", "E"][suffix]);
        let power = u32::try_from(suffix).unwrap() + 1;
        let cap = i64::MAX.unsigned_abs();
        let times = |base: u64| base.checked_pow(power).and_then(|n| n.checked_mul(units)).unwrap_or(cap).min(cap);
        prop_assert_eq!(quantity(&format!("{units}{binary}")).as_u64(), Some(times(1024)));
        prop_assert_eq!(quantity(&format!("{units}{decimal}")).as_u64(), Some(times(1000)));
    }

    #[test]
    fn scaling_by_hundredths_is_exact(units in 0..1_u64 << 50, hundredths in 100..2000_u64) {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let ratio = hundredths as f64 / 100.0;
        prop_assert_eq!(Quantity::bytes(units).scaled(ratio).as_u64(), Some(units * hundredths / 100));
    }

    #[test]
    fn scaling_never_panics(text in "[+-]?[0-9]{1,30}(\\.[0-9]{1,12})?", ratio in any::<f64>()) {
        let _ = quantity(&text).scaled(ratio).to_string();
    }
}
