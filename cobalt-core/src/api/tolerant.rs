//! Reading what others wrote.
//!
//! An object in the cluster may have been written by an older release, by another program, by hand, or under another
//! version of the CRD. One such object must not stop a watch over a thousand, so the types of this module read:
//!
//! - a missing field and an explicit `null` as the same thing: nothing there;
//! - unknown fields as if they were absent (serde's default);
//! - unknown words of an enumeration as that enumeration's catch-all;
//! - integers in any spelling JSON has for them (`3`, `3.0`, `3e0`, `"3"`);
//! - a quantity or time that cannot be understood as nothing there;
//! - `null` entries of a list or map as if the entry were absent.
//!
//! What is left is an error, because guessing would be worse than stopping (`lifecycleEnabled: "no"` must not become
//! the default, `true`). Such an error names the field from the object's root: `spec.lifecycleEnabled: invalid type …`.
//!
//! There is one mechanism: [`FromWire`] says how a type is read, [`option`] and [`or_default`] plug it into a derived
//! `Deserialize`. [`objects!`] gives it to structs, and [`section_at!`] to those that stand at `spec` and `status`.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_path_to_error::Track;

use super::Quantity;

/// How a type is read from a field that may be `null` or oddly spelled. `None` is "nothing usable there".
pub(super) trait FromWire<'de>: Sized {
    fn from_wire<D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error>;
}

/// For fields of type `Option<T>`: `#[serde(deserialize_with = "tolerant::option")]`.
pub(super) fn option<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromWire<'de>,
{
    T::from_wire(deserializer)
}

/// For fields of type `T`: `#[serde(deserialize_with = "tolerant::or_default")]`.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromWire<'de> + Default,
{
    Ok(T::from_wire(deserializer)?.unwrap_or_default())
}

macro_rules! plain {
    ($($type:ty),+) => { $(
        impl<'de> FromWire<'de> for $type {
            fn from_wire<D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
                Option::deserialize(deserializer)
            }
        }
    )+ };
}

plain!(bool, String, f64);

macro_rules! integer {
    ($($type:ty),+) => { $(
        impl<'de> FromWire<'de> for $type {
            fn from_wire<D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
                let Some(scalar) = Option::<Scalar>::deserialize(deserializer)? else { return Ok(None) };
                match scalar.as_integer().and_then(|n| Self::try_from(n).ok()) {
                    Some(n) => Ok(Some(n)),
                    None => Err(D::Error::custom(format_args!("{scalar} is not an integer this field can hold"))),
                }
            }
        }
    )+ };
}

integer!(i32, i64);

impl<'de> FromWire<'de> for Time {
    fn from_wire<D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        Ok(match Option::<Scalar>::deserialize(deserializer)? {
            Some(Scalar::Text(text)) => text.parse().ok().map(Time),
            _ => None,
        })
    }
}

impl<'de> FromWire<'de> for Quantity {
    fn from_wire<D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        let scalar = Option::<Scalar>::deserialize(deserializer)?;
        Ok(scalar.and_then(|scalar| scalar.to_string().parse().ok()))
    }
}

impl<'de, T: FromWire<'de>> FromWire<'de> for Vec<T> {
    fn from_wire<D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        let entries = Option::<Vec<Entry<T>>>::deserialize(deserializer)?;
        Ok(entries.map(|entries| entries.into_iter().filter_map(|Entry(value)| value).collect()))
    }
}

impl<'de, T: FromWire<'de>> FromWire<'de> for BTreeMap<String, T> {
    fn from_wire<D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        let entries = Option::<BTreeMap<String, Entry<T>>>::deserialize(deserializer)?;
        Ok(entries.map(|entries| entries.into_iter().filter_map(|(key, Entry(value))| Some((key, value?))).collect()))
    }
}

/// One entry of a list or map: [`FromWire`] seen from serde's side.
struct Entry<T>(Option<T>);

impl<'de, T: FromWire<'de>> Deserialize<'de> for Entry<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::from_wire(deserializer).map(Entry)
    }
}

/// A JSON value without structure, before anybody has decided what it means.
pub(super) enum Scalar {
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
}

impl Scalar {
    fn as_integer(&self) -> Option<i128> {
        match self {
            Self::Bool(_) => None,
            Self::Integer(n) => Some(*n),
            Self::Float(n) => whole(*n),
            Self::Text(text) => text.parse().ok(),
        }
    }
}

/// `3.0` is an integer, `3.5` is not, and neither is a float too large to be exact.
fn whole(n: f64) -> Option<i128> {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
    #[expect(clippy::cast_possible_truncation, reason = "the guard leaves only integers below 2^53")]
    (n.fract() == 0.0 && n.abs() <= EXACT).then_some(n as i128)
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScalarVisitor;

        impl Visitor<'_> for ScalarVisitor {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a string")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar::Integer(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar::Integer(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar::Float(value))
            }

            fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(value.to_owned()))
            }
        }

        deserializer.deserialize_any(ScalarVisitor)
    }
}

/// A struct, read from a JSON object and from nothing else.
///
/// A derived `Deserialize` would also take a list for the values of its fields in their order.
pub(super) trait Object<'de>: Sized {
    /// Reads the fields.
    fn fields<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

/// Reads an [`Object`]; `None` for `null` and for absence.
pub(super) fn object<'de, T: Object<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    struct ObjectVisitor<T>(PhantomData<T>);

    impl<'de, T: Object<'de>> Visitor<'de> for ObjectVisitor<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        // A missing field arrives here too: serde offers it to whoever asks for an option.
        fn visit_none<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_unit<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
            deserializer.deserialize_map(self)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<T>, A::Error> {
            T::fields(MapAccessDeserializer::new(map)).map(Some)
        }
    }

    deserializer.deserialize_option(ObjectVisitor(PhantomData))
}

/// Reads the struct that stands at `spec` or `status`, and puts the path to the field into the error.
pub(super) fn section<'de, T, D>(at: &str, deserializer: D) -> Result<T, D::Error>
where
    T: Object<'de> + Default,
    D: Deserializer<'de>,
{
    let mut track = Track::new();
    let read = object(serde_path_to_error::Deserializer::new(deserializer, &mut track));
    read.map(Option::unwrap_or_default).map_err(|error| match track.path().to_string().as_str() {
        "." => D::Error::custom(format_args!("{at}: {error}")),
        path => D::Error::custom(format_args!("{at}.{path}: {error}")),
    })
}

/// Makes structs with a derived `Deserialize` readable as fields of others.
macro_rules! objects {
    ($($type:ty),+ $(,)?) => { $(
        impl<'de> $crate::api::tolerant::Object<'de> for $type {
            fn fields<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                serde::Deserialize::deserialize(deserializer)
            }
        }

        impl<'de> $crate::api::tolerant::FromWire<'de> for $type {
            fn from_wire<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
                $crate::api::tolerant::object(deserializer)
            }
        }
    )+ };
}
pub(super) use objects;

/// Gives a struct with derived, `#[serde(remote = "Self")]` serialisation the reading of [`section`].
///
/// `remote = "Self"` makes serde's derive produce inherent functions instead of trait implementations, which leaves
/// the traits to us while the field list is still written once.
macro_rules! section_at {
    ($at:literal, $type:ty) => {
        impl<'de> $crate::api::tolerant::Object<'de> for $type {
            fn fields<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <$type>::deserialize(deserializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::api::tolerant::section($at, deserializer)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$type>::serialize(self, serializer)
            }
        }
    };
}
pub(super) use section_at;
