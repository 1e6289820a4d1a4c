//! Kubernetes quantities: `64Gi` of memory, `1500m` of CPU.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};
use thiserror::Error;

use super::tolerant::Scalar;

/// What the API server accepts as a quantity, in its own words.
const PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The finest step: Kubernetes keeps nine decimal places.
const NANO: i128 = 1_000_000_000;

/// The largest magnitude, 2^63 - 1 units; Kubernetes caps at the same value instead of overflowing.
const LIMIT: i128 = i64::MAX as i128 * NANO;

const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

/// An amount as Kubernetes writes amounts, held exactly.
///
/// Two quantities are equal when they are the same amount, however they are written, so that comparing what is wanted
/// with what is there does not see `1024Mi` and `1Gi` as a change.
///
/// ```
/// use cobalt_core::api::Quantity;
///
/// let memory = Quantity::bytes(64 << 30);
/// assert_eq!(memory.to_string(), "64Gi");
/// assert_eq!(memory, "65536Mi".parse()?);
/// assert_eq!(Quantity::cpus(10).scaled(2.35).to_string(), "23");
/// # Ok::<(), cobalt_core::api::QuantityError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    notation: Notation,
}

/// The family of suffixes an amount is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    /// `Ki`, `Mi`, `Gi`: bytes.
    Binary,
    /// `m`, `k`, `M`: everything else.
    Decimal,
    /// `1e3`.
    Exponent,
}

/// A text that is not a quantity.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{text:?} is not a quantity such as 64Gi, 1500m or 2e3")]
pub struct QuantityError {
    text: String,
}

impl QuantityError {
    /// A stable word for metrics and events.
    pub fn category(&self) -> &'static str {
        "invalid_quantity"
    }

    /// Never: the same text gives the same error.
    pub fn is_transient(&self) -> bool {
        false
    }
}

impl Quantity {
    /// An amount of memory, written with binary suffixes.
    pub fn bytes(bytes: u64) -> Self {
        Self::whole(bytes, Notation::Binary)
    }

    /// A number of CPUs, written with decimal suffixes.
    pub fn cpus(cpus: u64) -> Self {
        Self::whole(cpus, Notation::Decimal)
    }

    /// A number of thousandths of a CPU.
    pub fn cpu_millis(millis: u64) -> Self {
        Self { nanos: (i128::from(millis) * (NANO / 1000)).min(LIMIT), notation: Notation::Decimal }
    }

    fn whole(units: u64, notation: Notation) -> Self {
        Self { nanos: (i128::from(units) * NANO).min(LIMIT), notation }
    }

    /// Whole units (bytes, CPUs), a fraction rounded up as Kubernetes does; `None` below zero.
    pub fn as_u64(&self) -> Option<u64> {
        u64::try_from(div_up(self.nanos, NANO)).ok()
    }

    /// The amount times an overcommit ratio, cut to whole units.
    ///
    /// The ratio counts as the decimal number it is written as: ten times `2.3` is 23, although the nearest binary
    /// fraction of 2.3 lies below it. A ratio that is no positive number counts as one.
    pub fn scaled(&self, ratio: f64) -> Self {
        let (digits, exponent) = if ratio.is_finite() && ratio > 0.0 { decimal(ratio) } else { (1, 0) };
        let (whole, rest) = (self.nanos / NANO, self.nanos % NANO);
        // |whole| < 2^63 and digits < 10^17, so neither product leaves i128.
        let product = whole * digits + rest * digits / NANO;
        let units = match power_of_ten(exponent.unsigned_abs()) {
            Some(power) if exponent < 0 => product / power,
            Some(power) => product.saturating_mul(power),
            None if exponent < 0 => 0,
            None => product.signum() * LIMIT,
        };
        Self { nanos: units.saturating_mul(NANO).clamp(-LIMIT, LIMIT), notation: self.notation }
    }
}

/// The digits and the power of ten of a positive number, as Rust's shortest exact notation gives them.
fn decimal(number: f64) -> (i128, i32) {
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}").parse().unwrap_or(1);
    let places = i32::try_from(fraction.len()).unwrap_or(0);
    (digits, exponent.parse().unwrap_or(0) - places)
}

fn power_of_ten(exponent: u32) -> Option<i128> {
    10_i128.checked_pow(exponent)
}

/// Division that rounds away from zero, as Kubernetes rounds what is finer than a nano.
fn div_up(value: i128, by: i128) -> i128 {
    value / by + if value % by == 0 { 0 } else { value.signum() }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text).ok_or_else(|| QuantityError { text: text.chars().take(64).collect() })
    }
}

fn parse(text: &str) -> Option<Quantity> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return None;
    }

    let (notation, shift, exponent) = if let Some((_, shift)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        (Notation::Binary, *shift, 0)
    } else if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        (Notation::Decimal, 0, i64::from(*exponent))
    } else {
        (Notation::Exponent, 0, parse_exponent(suffix)?)
    };

    let magnitude = magnitude(whole, fraction, shift, exponent);
    Some(Quantity { nanos: if negative { -magnitude } else { magnitude }, notation })
}

/// `e3`, `E-3`. An exponent beyond any meaning is as good as a very large one.
fn parse_exponent(suffix: &str) -> Option<i64> {
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let value = digits.parse::<i64>().unwrap_or(i64::MAX).min(1_000_000);
    Some(if exponent.starts_with('-') { -value } else { value })
}

/// `whole.fraction × 2^shift × 10^exponent` in nanos, rounded up and capped.
fn magnitude(whole: &str, fraction: &str, shift: u32, exponent: i64) -> i128 {
    // Nineteen digits times 2^60 still fit. Digits beyond are below what counts, or the amount is over the limit.
    let keep = if shift == 0 { 37 } else { 19 };
    let all: String = whole.chars().chain(fraction.chars()).collect();
    let significant = all.trim_start_matches('0');
    let (head, tail) = significant.split_at(significant.len().min(keep));
    let Ok(digits) = head.parse::<i128>() else { return 0 };

    let length = |part: &str| i64::try_from(part.len()).unwrap_or(i64::MAX);
    let power = exponent + 9 + length(tail) - length(fraction);
    let value = digits << shift;
    let cut = tail.bytes().any(|b| b != b'0');
    let scale = u32::try_from(power.unsigned_abs()).ok().and_then(power_of_ten);
    let nanos = match scale {
        Some(scale) if power >= 0 => value.saturating_mul(scale),
        Some(scale) => value / scale + i128::from(cut || value % scale != 0),
        None if power >= 0 => LIMIT,
        None => 1,
    };
    nanos.min(LIMIT)
}

impl fmt::Display for Quantity {
    /// The shortest exact form, as Kubernetes chooses it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.notation {
            // Below 1024, and for what is no whole number, there is no exact binary form.
            Notation::Binary if self.nanos % NANO == 0 && self.nanos.abs() >= 1024 * NANO => {
                let units = self.nanos / NANO;
                match BINARY.iter().rev().find(|(_, shift)| units % (1 << shift) == 0) {
                    Some((suffix, shift)) => write!(f, "{}{suffix}", units / (1 << shift)),
                    None => units.fmt(f),
                }
            }
            Notation::Binary | Notation::Decimal => {
                let (mantissa, exponent) = self.thousands();
                let suffix = DECIMAL.iter().find(|(_, e)| *e == exponent).map_or("", |(suffix, _)| suffix);
                write!(f, "{mantissa}{suffix}")
            }
            Notation::Exponent => match self.thousands() {
                (mantissa, 0) => mantissa.fmt(f),
                (mantissa, exponent) => write!(f, "{mantissa}e{exponent}"),
            },
        }
    }
}

impl Quantity {
    /// The amount as `mantissa × 10^exponent` with the largest exponent that is a multiple of three and has a suffix.
    fn thousands(&self) -> (i128, i32) {
        let (mut mantissa, mut exponent) = (self.nanos, -9);
        if mantissa == 0 {
            return (0, 0);
        }
        while mantissa % 1000 == 0 && exponent < 18 {
            mantissa /= 1000;
            exponent += 3;
        }
        (mantissa, exponent)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Scalar::deserialize(deserializer)?.to_string().parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-int-or-string": true, "pattern": PATTERN })
    }
}
