//! The values of a database.

use std::{cmp::Ordering, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, IgnoredAny, MapAccess, SeqAccess, Visitor},
    ser::SerializeTuple,
};
use uuid::Uuid;

/// One value that is not made of others.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Atom {
    /// A whole number.
    Integer(i64),
    /// A number.
    Real(f64),
    /// True or false.
    Boolean(bool),
    /// Text.
    String(Box<str>),
    /// A row.
    Uuid(Uuid),
    /// A row that the same transaction inserts under this name.
    NamedUuid(Box<str>),
}

/// One value of a column.
///
/// On the wire a set of one element is written like that element, so both are [`Datum::Atom`] here. Sets and maps are
/// in order, so that equal values are equal.
///
/// ```
/// use cobalt_ovs::ovsdb::{Atom, Datum};
///
/// let set: Datum = serde_json::from_str(r#"["set",["b","a"]]"#)?;
/// assert_eq!(set, Datum::set(["a", "b"]));
/// let one: Datum = serde_json::from_str(r#"["set",["a"]]"#)?;
/// assert_eq!(one.as_str(), Some("a"));
/// let map: Datum = serde_json::from_str(r#"["map",[["iface-id","vm1"]]]"#)?;
/// assert_eq!(map.get("iface-id"), Some("vm1"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Datum {
    /// One value.
    Atom(Atom),
    /// None, or several.
    Set(Vec<Atom>),
    /// Pairs.
    Map(Vec<(Atom, Atom)>),
}

impl Atom {
    fn rank(&self) -> u8 {
        match self {
            Self::Integer(_) => 0,
            Self::Real(_) => 1,
            Self::Boolean(_) => 2,
            Self::String(_) => 3,
            Self::Uuid(_) => 4,
            Self::NamedUuid(_) => 5,
        }
    }

    /// The text, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number, if it is one.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// The row, if it is one.
    pub fn as_uuid(&self) -> Option<Uuid> {
        match self {
            Self::Uuid(uuid) => Some(*uuid),
            _ => None,
        }
    }

    /// True or false, if it is that.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Boolean(it) => Some(*it),
            _ => None,
        }
    }
}

impl Ord for Atom {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Integer(one), Self::Integer(two)) => one.cmp(two),
            (Self::Real(one), Self::Real(two)) => one.total_cmp(two),
            (Self::Boolean(one), Self::Boolean(two)) => one.cmp(two),
            (Self::String(one), Self::String(two)) | (Self::NamedUuid(one), Self::NamedUuid(two)) => one.cmp(two),
            (Self::Uuid(one), Self::Uuid(two)) => one.cmp(two),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Atom {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Atom {}

impl From<&str> for Atom {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for Atom {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl From<i64> for Atom {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<bool> for Atom {
    fn from(it: bool) -> Self {
        Self::Boolean(it)
    }
}

impl From<Uuid> for Atom {
    fn from(row: Uuid) -> Self {
        Self::Uuid(row)
    }
}

impl<T: Into<Atom>> From<T> for Datum {
    fn from(value: T) -> Self {
        Self::Atom(value.into())
    }
}

impl Datum {
    /// No value: an empty set.
    pub const EMPTY: Self = Self::Set(Vec::new());

    /// A set. Duplicates count once.
    pub fn set<T: Into<Atom>>(atoms: impl IntoIterator<Item = T>) -> Self {
        Self::from_atoms(atoms.into_iter().map(Into::into).collect())
    }

    /// A map. Of pairs with the same key the first counts.
    pub fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::from_pairs(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    pub(super) fn from_atoms(mut atoms: Vec<Atom>) -> Self {
        atoms.sort();
        atoms.dedup();
        if atoms.len() == 1
            && let Some(atom) = atoms.pop()
        {
            return Self::Atom(atom);
        }
        atoms.shrink_to_fit();
        Self::Set(atoms)
    }

    pub(super) fn from_pairs(mut pairs: Vec<(Atom, Atom)>) -> Self {
        pairs.sort_by(|one, other| one.0.cmp(&other.0));
        pairs.dedup_by(|one, other| one.0 == other.0);
        pairs.shrink_to_fit();
        Self::Map(pairs)
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Atom(_) => false,
            Self::Set(atoms) => atoms.is_empty(),
            Self::Map(pairs) => pairs.is_empty(),
        }
    }

    /// The elements of a set, of one element if it is an atom. A map has none.
    pub fn atoms(&self) -> &[Atom] {
        match self {
            Self::Atom(atom) => std::slice::from_ref(atom),
            Self::Set(atoms) => atoms,
            Self::Map(_) => &[],
        }
    }

    /// The pairs of a map. Anything else has none.
    pub fn pairs(&self) -> &[(Atom, Atom)] {
        match self {
            Self::Map(pairs) => pairs,
            Self::Atom(_) | Self::Set(_) => &[],
        }
    }

    /// The one value, if there is exactly one.
    pub fn as_atom(&self) -> Option<&Atom> {
        match self {
            Self::Atom(atom) => Some(atom),
            Self::Set(_) | Self::Map(_) => None,
        }
    }

    /// The text, if it is one text.
    pub fn as_str(&self) -> Option<&str> {
        self.as_atom().and_then(Atom::as_str)
    }

    /// The value of a key of a map from text to text.
    pub fn get(&self, key: &str) -> Option<&str> {
        let pairs = self.pairs();
        let found = pairs.binary_search_by(|(known, _)| match known {
            Atom::String(known) => known.as_ref().cmp(key),
            other => other.rank().cmp(&3),
        });
        pairs[found.ok()?].1.as_str()
    }
}

impl Serialize for Atom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(number) => serializer.serialize_i64(*number),
            Self::Real(number) => serializer.serialize_f64(*number),
            Self::Boolean(it) => serializer.serialize_bool(*it),
            Self::String(text) => serializer.serialize_str(text),
            Self::Uuid(uuid) => ("uuid", uuid.to_string()).serialize(serializer),
            Self::NamedUuid(name) => ("named-uuid", name).serialize(serializer),
        }
    }
}

impl Serialize for Datum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pair = match self {
            Self::Atom(atom) => return atom.serialize(serializer),
            Self::Set(_) | Self::Map(_) => serializer.serialize_tuple(2)?,
        };
        match self {
            Self::Map(pairs) => {
                pair.serialize_element("map")?;
                pair.serialize_element(pairs)?;
            }
            Self::Atom(_) | Self::Set(_) => {
                pair.serialize_element("set")?;
                pair.serialize_element(self.atoms())?;
            }
        }
        pair.end()
    }
}

impl<'de> Deserialize<'de> for Datum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DatumVisitor)
    }
}

impl<'de> Deserialize<'de> for Atom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Datum::deserialize(deserializer)? {
            Datum::Atom(atom) => Ok(atom),
            Datum::Set(_) | Datum::Map(_) => Err(de::Error::custom("a set or map where one value belongs")),
        }
    }
}

/// The id of a row, which is text on the wire.
pub(super) struct RowId(pub(super) Uuid);

impl<'de> Deserialize<'de> for RowId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Uuid::try_parse(&text).map(Self).map_err(de::Error::custom)
    }
}

struct DatumVisitor;

impl<'de> Visitor<'de> for DatumVisitor {
    type Value = Datum;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, [\"uuid\", …], [\"set\", …] or [\"map\", …]")
    }

    fn visit_bool<E>(self, it: bool) -> Result<Datum, E> {
        Ok(it.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Datum, E> {
        Ok(number.into())
    }

    // Whole numbers of a database have 63 bits; more than that is one we can only keep roughly.
    #[allow(clippy::cast_precision_loss)]
    fn visit_u64<E>(self, number: u64) -> Result<Datum, E> {
        Ok(Datum::Atom(i64::try_from(number).map_or(Atom::Real(number as f64), Atom::Integer)))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Datum, E> {
        Ok(Datum::Atom(Atom::Real(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Datum, E> {
        Ok(text.into())
    }

    // Not of the protocol, but what else could it mean?
    fn visit_unit<E>(self) -> Result<Datum, E> {
        Ok(Datum::EMPTY)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Datum, A::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum Tag {
            Uuid,
            NamedUuid,
            Set,
            Map,
        }
        let short = |at| de::Error::invalid_length(at, &"a tag and a value");
        let tag: Tag = seq.next_element()?.ok_or_else(|| short(0))?;
        let missing = || short(1);
        let datum = match tag {
            Tag::Uuid => seq.next_element::<RowId>()?.ok_or_else(missing)?.0.into(),
            Tag::NamedUuid => Datum::Atom(Atom::NamedUuid(seq.next_element()?.ok_or_else(missing)?)),
            Tag::Set => Datum::from_atoms(seq.next_element()?.ok_or_else(missing)?),
            Tag::Map => Datum::from_pairs(seq.next_element()?.ok_or_else(missing)?),
        };
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(datum)
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Datum, A::Error> {
        Err(de::Error::custom("an object where a value belongs"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(json: &str) -> Datum {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn every_kind_of_value_is_read_and_written_the_same() {
        for json in [
            "7",
            "-1",
            "0.5",
            "true",
            r#""5\" {""#,
            r#"["uuid","550e8400-e29b-41d4-a716-446655440000"]"#,
            r#"["named-uuid","row1"]"#,
            r#"["set",[]]"#,
            r#"["set",[1,2]]"#,
            r#"["map",[]]"#,
            r#"["map",[["a","1"],["b","2"]]]"#,
            r#"["map",[[0,["uuid","550e8400-e29b-41d4-a716-446655440000"]]]]"#,
        ] {
            assert_eq!(serde_json::to_string(&read(json)).unwrap(), json);
        }
    }

    #[test]
    fn order_and_the_way_of_writing_make_no_difference() {
        assert_eq!(read(r#"["set",["a"]]"#), read(r#""a""#));
        assert_eq!(read(r#"["set",[3,1,2,1]]"#), read(r#"["set",[1,2,3]]"#));
        assert_eq!(read(r#"["map",[["b","2"],["a","1"]]]"#).get("a"), Some("1"));
        assert_eq!(read("null"), Datum::EMPTY);
        assert_eq!(read(r#"["set",[],"and more"]"#), Datum::EMPTY);
        assert_eq!(read("18446744073709551615").as_atom().unwrap().as_i64(), None);
    }

    #[test]
    fn nonsense_is_refused() {
        for json in ["{}", "[]", r#"["set"]"#, r#"["tree",[]]"#, r#"["uuid","x"]"#, r#"["map",[[1]]]"#, "[[]]"] {
            assert!(serde_json::from_str::<Datum>(json).is_err(), "{json}");
        }
        assert!(serde_json::from_str::<Datum>(r#"["set",[["set",[1,2]]]]"#).is_err());
        assert_eq!(read(r#"["map",[["a",1]]]"#).get("a"), None);
        assert_eq!(read(r#"["map",[[1,"x"]]]"#).get("1"), None);
    }
}
