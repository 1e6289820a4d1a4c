//! How a cache keeps one object: as it is, or packed.
//!
//! An object of a thousand that nobody looks at costs three times as much in its type as in its text: most of a type's
//! fields are unset, and each of its maps has room for eleven entries.

use std::sync::Arc;

use kube::{Resource, ResourceExt};
use serde::{Serialize, de::DeserializeOwned};

/// How to pack objects.
pub(super) struct Packing<K> {
    /// Nothing for one that would not come out as it went in.
    pack: fn(&K) -> Option<Vec<u8>>,
    unpack: fn(&[u8]) -> Option<K>,
}

impl<K> Clone for Packing<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Packing<K> {}

impl<K: Serialize + DeserializeOwned + PartialEq> Packing<K> {
    /// Into JSON.
    pub(super) fn json() -> Self {
        let pack = |object: &K| {
            let text = serde_json::to_vec(object).ok()?;
            serde_json::from_slice::<K>(&text).is_ok_and(|unpacked| unpacked == *object).then_some(text)
        };
        Self { pack, unpack: |text| serde_json::from_slice(text).ok() }
    }
}

/// One object.
pub(super) enum Kept<K> {
    Object(Arc<K>),
    Packed { text: Arc<[u8]>, version: Option<Box<str>>, unpack: fn(&[u8]) -> Option<K> },
}

impl<K> Clone for Kept<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Object(object) => Self::Object(object.clone()),
            Self::Packed { text, version, unpack } => {
                Self::Packed { text: text.clone(), version: version.clone(), unpack: *unpack }
            }
        }
    }
}

impl<K: Resource> Kept<K> {
    /// Keeps an object, packed if that is wanted and loses nothing.
    pub(super) fn new(object: &Arc<K>, packing: Option<Packing<K>>) -> Self {
        let packed = packing.and_then(|packing| {
            let text = (packing.pack)(object)?;
            let version = object.resource_version().map(String::into_boxed_str);
            Some(Self::Packed { text: text.into(), version, unpack: packing.unpack })
        });
        packed.unwrap_or_else(|| Self::Object(object.clone()))
    }

    /// Whether this is that version of the object.
    pub(super) fn is_version(&self, other: Option<&str>) -> bool {
        match self {
            Self::Object(object) => object.meta().resource_version.as_deref() == other,
            Self::Packed { version, .. } => version.as_deref() == other,
        }
    }
}

impl<K> Kept<K> {
    /// The object. What was packed can be unpacked: that was tried.
    pub(super) fn object(&self) -> Option<Arc<K>> {
        match self {
            Self::Object(object) => Some(object.clone()),
            Self::Packed { text, unpack, .. } => unpack(text).map(Arc::new),
        }
    }

    /// Whether both are the same in memory.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Object(one), Self::Object(other)) => Arc::ptr_eq(one, other),
            (Self::Packed { text: one, .. }, Self::Packed { text: other, .. }) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}
