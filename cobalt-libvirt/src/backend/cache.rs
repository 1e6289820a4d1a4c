//! Domain XML that need not be read again.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::Instant;
use uuid::Uuid;

use crate::xml::DomainXml;

/// XML by domain. An entry goes with any event of its domain, with its number, with the connection, and with time: a few
/// changes of a definition are told to nobody.
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
    known: Option<Known>,
}

#[derive(Debug)]
struct Known {
    /// The domain's number, if it runs. Another one is another run, and another XML.
    id: Option<i32>,
    read: Instant,
    xml: Arc<DomainXml>,
}

impl Cache {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The XML of a domain with this number, if it was read no longer ago than this.
    pub(super) fn get(&self, uuid: Uuid, id: Option<i32>, max_age: Duration) -> Option<Arc<DomainXml>> {
        let known = self.entries.get(&uuid)?.known.as_ref()?;
        (known.id == id && known.read.elapsed() <= max_age).then(|| Arc::clone(&known.xml))
    }

    /// To be taken before XML is asked for, and given back with it.
    pub(super) fn stamp(&self, uuid: Uuid) -> u64 {
        self.entries.get(&uuid).map_or(self.floor, |entry| entry.stamp)
    }

    /// Keeps XML, unless the domain has changed since it was asked for.
    pub(super) fn put(&mut self, uuid: Uuid, stamp: u64, id: Option<i32>, xml: &Arc<DomainXml>) {
        if self.stamp(uuid) == stamp {
            let known = Known { id, read: Instant::now(), xml: Arc::clone(xml) };
            self.entries.insert(uuid, Entry { stamp, known: Some(known) });
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
        let known = self.entries.get(&uuid)?.known.as_ref()?;
        let disk = known.xml.disks.iter().find(|disk| disk.alias.as_deref() == Some(alias))?;
        disk.target.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Option<i32> = Some(1);
    const AGE: Duration = Duration::from_secs(60);

    fn filled() -> (Cache, Uuid) {
        let (mut cache, uuid) = (Cache::default(), Uuid::from_u128(7));
        let stamp = cache.stamp(uuid);
        cache.put(uuid, stamp, ID, &Arc::default());
        (cache, uuid)
    }

    #[tokio::test(start_paused = true)]
    async fn another_number_makes_the_xml_old_and_so_does_time() {
        let (cache, uuid) = filled();
        assert!(cache.get(uuid, ID, AGE).is_some());
        assert!(cache.get(uuid, Some(2), AGE).is_none());
        assert!(cache.get(uuid, None, AGE).is_none());
        tokio::time::advance(AGE).await;
        assert!(cache.get(uuid, ID, AGE).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(cache.get(uuid, ID, AGE).is_none());
    }

    #[test]
    fn xml_that_was_asked_for_before_a_change_is_not_kept() {
        let (mut cache, uuid) = filled();
        let stamp = cache.stamp(uuid);
        cache.invalidate(uuid);
        cache.put(uuid, stamp, ID, &Arc::default());
        assert!(cache.get(uuid, ID, AGE).is_none());

        let stamp = cache.stamp(uuid);
        cache.clear();
        cache.put(uuid, stamp, ID, &Arc::default());
        assert!(cache.get(uuid, ID, AGE).is_none());

        let stamp = cache.stamp(uuid);
        cache.put(uuid, stamp, ID, &Arc::default());
        assert!(cache.get(uuid, ID, AGE).is_some());
        cache.retain(|_| false);
        assert!(cache.get(uuid, ID, AGE).is_none());
    }
}
