//! Domain XML that need not be read again.

use std::{collections::HashMap, sync::Arc};

use uuid::Uuid;

use crate::xml::DomainXml;

/// What a list and bulk statistics say of a domain's shape. If it differs, so does the XML.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) id: Option<i32>,
    /// `None` where nobody said.
    pub(super) vcpus: Option<u64>,
    /// `None` where nobody said.
    pub(super) memory: Option<u64>,
}

impl Shape {
    fn fits(self, other: Self) -> bool {
        let agree = |one: Option<u64>, other: Option<u64>| one.is_none() || other.is_none() || one == other;
        self.id == other.id && agree(self.vcpus, other.vcpus) && agree(self.memory, other.memory)
    }

    fn or(self, other: Self) -> Self {
        Self { id: self.id, vcpus: self.vcpus.or(other.vcpus), memory: self.memory.or(other.memory) }
    }
}

/// XML by domain. An entry goes with any event of its domain, with its shape, and with the connection.
///
/// A stamp says when a domain last changed: XML that was asked for before that is not kept, however late it arrives.
#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: HashMap<Uuid, Entry>,
    clock: u64,
    /// The stamp of everything without an entry.
    floor: u64,
}

#[derive(Debug)]
struct Entry {
    stamp: u64,
    known: Option<(Shape, Arc<DomainXml>)>,
}

impl Cache {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The XML of a domain of this shape.
    pub(super) fn get(&mut self, uuid: Uuid, shape: Shape) -> Option<Arc<DomainXml>> {
        let (known, xml) = self.entries.get_mut(&uuid)?.known.as_mut()?;
        if !known.fits(shape) {
            return None;
        }
        *known = known.or(shape);
        Some(Arc::clone(xml))
    }

    /// To be taken before XML is asked for, and given back with it.
    pub(super) fn stamp(&self, uuid: Uuid) -> u64 {
        self.entries.get(&uuid).map_or(self.floor, |entry| entry.stamp)
    }

    /// Keeps XML, unless the domain has changed since it was asked for.
    pub(super) fn put(&mut self, uuid: Uuid, stamp: u64, shape: Shape, xml: &Arc<DomainXml>) {
        if self.stamp(uuid) == stamp {
            self.entries.insert(uuid, Entry { stamp, known: Some((shape, Arc::clone(xml))) });
        }
    }

    /// The domain has changed.
    pub(super) fn invalidate(&mut self, uuid: Uuid) {
        let stamp = self.tick();
        self.entries.insert(uuid, Entry { stamp, known: None });
    }

    /// Anything may have changed.
    pub(super) fn clear(&mut self) {
        self.floor = self.tick();
        self.entries = HashMap::new();
    }

    /// Forgets domains that are gone; what is on its way for them is not kept.
    pub(super) fn retain(&mut self, exists: impl Fn(Uuid) -> bool) {
        if self.entries.keys().any(|uuid| !exists(*uuid)) {
            self.floor = self.tick();
            self.entries.retain(|uuid, _| exists(*uuid));
        }
    }

    /// The target name of a disk by its alias, where the XML is at hand.
    pub(super) fn disk_target(&self, uuid: Uuid, alias: &str) -> Option<String> {
        let (_, xml) = self.entries.get(&uuid)?.known.as_ref()?;
        let disk = xml.disks.iter().find(|disk| disk.alias.as_deref() == Some(alias))?;
        disk.target.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { id: Some(1), vcpus: Some(2), memory: None };

    fn filled() -> (Cache, Uuid) {
        let (mut cache, uuid) = (Cache::default(), Uuid::from_u128(7));
        let stamp = cache.stamp(uuid);
        cache.put(uuid, stamp, SHAPE, &Arc::default());
        (cache, uuid)
    }

    #[test]
    fn another_number_or_size_makes_the_xml_old_and_an_unknown_size_does_not() {
        let (mut cache, uuid) = filled();
        assert!(cache.get(uuid, SHAPE).is_some());
        assert!(cache.get(uuid, Shape { vcpus: None, ..SHAPE }).is_some());
        assert!(cache.get(uuid, Shape { memory: Some(64), ..SHAPE }).is_some());
        assert!(cache.get(uuid, Shape { memory: Some(65), ..SHAPE }).is_none(), "the size is known by now");
        assert!(cache.get(uuid, Shape { id: Some(2), ..SHAPE }).is_none());
        assert!(cache.get(uuid, Shape { vcpus: Some(3), ..SHAPE }).is_none());
    }

    #[test]
    fn xml_that_was_asked_for_before_a_change_is_not_kept() {
        let (mut cache, uuid) = filled();
        let stamp = cache.stamp(uuid);
        cache.invalidate(uuid);
        cache.put(uuid, stamp, SHAPE, &Arc::default());
        assert!(cache.get(uuid, SHAPE).is_none());

        let stamp = cache.stamp(uuid);
        cache.clear();
        cache.put(uuid, stamp, SHAPE, &Arc::default());
        assert!(cache.get(uuid, SHAPE).is_none());

        let stamp = cache.stamp(uuid);
        cache.put(uuid, stamp, SHAPE, &Arc::default());
        assert!(cache.get(uuid, SHAPE).is_some());
        cache.retain(|_| false);
        assert!(cache.get(uuid, SHAPE).is_none());
    }
}
