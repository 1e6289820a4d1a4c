//! Who is concerned by a new look at the region.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    api::{Hypervisor, labels},
    ids::HostName,
    nova::{
        Aggregate,
        view::{Listing, RegionView, Snapshot},
    },
    runtime::{queue::Queue, shutdown::Shutdown, watch::Store},
};

/// Puts the names of those into the queue about whom the region says something new, until `stop`.
pub(super) async fn follow(
    view: Arc<RegionView>,
    hypervisors: Store<Hypervisor>,
    queue: Queue<String>,
    stop: Shutdown,
) {
    let mut news = view.subscribe();
    let mut before = Arc::new(Snapshot::default());
    loop {
        tokio::select! {
            () = stop.triggered() => return,
            changed = news.changed() => if changed.is_err() { return },
        }
        let after = news.borrow_and_update().clone();
        if after.is_complete() && !before.is_complete() {
            // Nothing could be decided about anybody before.
            hypervisors.keys().into_iter().for_each(|key| queue.add(key.name));
        } else if after.is_complete() && has_new_aggregate(&before, &after) {
            // Anybody may have waited for it. It does not happen often.
            hypervisors.keys().into_iter().for_each(|key| queue.add(key.name));
        } else if after.is_complete() {
            let hosts = concerned(&before, &after);
            for name in names(&hosts, &hypervisors) {
                queue.add(name);
            }
        }
        before = after;
    }
}

/// Whether there is an aggregate of a name that there was not.
fn has_new_aggregate(before: &Snapshot, after: &Snapshot) -> bool {
    let items = |seen: &Snapshot| seen.aggregates.clone().map_or_else(|| Vec::new().into(), Listing::into_items);
    let (old, new): (Arc<[Aggregate]>, Arc<[Aggregate]>) = (items(before), items(after));
    !Arc::ptr_eq(&old, &new) && {
        let known: BTreeSet<&str> = old.iter().map(|aggregate| aggregate.name.as_str()).collect();
        new.iter().any(|aggregate| !known.contains(aggregate.name.as_str()))
    }
}

/// The hosts of which two looks differ.
fn concerned(before: &Snapshot, after: &Snapshot) -> BTreeSet<HostName> {
    let mut hosts = BTreeSet::new();
    differing(before.services.as_ref(), after.services.as_ref(), |service| &service.host, &mut hosts);
    differing(before.hypervisors.as_ref(), after.hypervisors.as_ref(), |one| &one.host, &mut hosts);
    let aggregates = |seen: &Snapshot| seen.aggregates.clone().map_or_else(|| Vec::new().into(), Listing::into_items);
    let (old, new) = (aggregates(before), aggregates(after));
    if !Arc::ptr_eq(&old, &new) {
        for (list, other) in [(&old, &new), (&new, &old)] {
            for aggregate in list.iter() {
                match other.iter().find(|one| one.id == aggregate.id) {
                    Some(same) if same.name == aggregate.name && same.metadata == aggregate.metadata => {
                        let lost = aggregate.hosts.iter().filter(|host| same.hosts.binary_search(host).is_err());
                        hosts.extend(lost.cloned());
                    }
                    _ => hosts.extend(aggregate.hosts.iter().cloned()),
                }
            }
        }
    }
    for hypervisor in after.hypervisors.iter().flat_map(Listing::items) {
        let same = match (before.shared_traits_of(&hypervisor.id), after.shared_traits_of(&hypervisor.id)) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new) || old.names == new.names,
            (old, new) => old.is_none() && new.is_none(),
        };
        if !same {
            hosts.insert(hypervisor.host.clone());
        }
    }
    hosts
}

/// The hosts of items that are in one list only, or not the same in both. Lists are ordered by host.
fn differing<T: PartialEq>(
    before: Option<&Listing<T>>,
    after: Option<&Listing<T>>,
    host: impl Fn(&T) -> &HostName,
    found: &mut BTreeSet<HostName>,
) {
    let (mut old, mut new) = (before.map_or(&[][..], Listing::items), after.map_or(&[][..], Listing::items));
    if std::ptr::eq(old, new) {
        return;
    }
    while let (Some(first), Some(second)) = (old.first(), new.first()) {
        let order = host(first).cmp(host(second));
        if order.is_ne() || first != second {
            found.insert(host(if order.is_gt() { second } else { first }).clone());
        }
        old = &old[usize::from(order.is_le())..];
        new = &new[usize::from(order.is_ge())..];
    }
    found.extend(old.iter().chain(new).map(|item| host(item).clone()));
}

/// The Hypervisors of hosts: those of that name, or whose Nodes say that they have that name in the network.
fn names(hosts: &BTreeSet<HostName>, hypervisors: &Store<Hypervisor>) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = hosts.iter().map(|host| host.as_str().to_owned()).collect();
    let known: BTreeSet<String> = hypervisors.keys().into_iter().map(|key| key.name).collect();
    if !names.is_subset(&known) {
        for key in hypervisors.keys() {
            let Some(hypervisor) = hypervisors.get(&key) else { continue };
            let label = hypervisor.metadata.labels.as_ref().and_then(|labels| labels.get(labels::HOSTNAME));
            if label.is_some_and(|label| names.contains(label)) {
                names.insert(key.name);
            }
        }
    }
    names.retain(|name| known.contains(name));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nova::{ComputeService, NovaClient, PlacementClient, ServiceState, view::ViewOptions};

    fn service(host: &str, enabled: bool) -> ComputeService {
        ComputeService {
            id: host.into(),
            host: host.into(),
            zone: None,
            enabled,
            disabled_reason: None,
            state: ServiceState::Up,
            forced_down: false,
        }
    }

    /// A snapshot as a view makes it of a cloud with these services.
    async fn snapshot(services: Vec<ComputeService>) -> Arc<Snapshot> {
        let mut nova = crate::nova::MockNovaClient::new();
        nova.expect_services().returning(move || Ok(services.clone()));
        nova.expect_hypervisors().returning(|| Ok(Vec::new()));
        nova.expect_aggregates().returning(|| Ok(Vec::new()));
        let (nova, placement): (Arc<dyn NovaClient>, Arc<dyn PlacementClient>) =
            (Arc::new(nova), Arc::new(crate::nova::MockPlacementClient::new()));
        let view = RegionView::new(nova, placement, ViewOptions::default());
        let run = tokio::spawn(view.clone().run());
        let mut news = view.subscribe();
        let seen = news.wait_for(|seen| seen.is_complete()).await.map(|seen| seen.clone());
        run.abort();
        seen.unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn only_those_are_woken_about_whom_there_is_something_new() {
        let before = snapshot(vec![service("a", true), service("b", true), service("d", true)]).await;
        let after = snapshot(vec![service("a", true), service("b", false), service("c", true)]).await;
        let hosts: Vec<String> = concerned(&before, &after).iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["b", "c", "d"]);
        assert!(concerned(&after, &after).is_empty());
    }
}
