//! The contract of [`PlacementClient`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;

use super::{Provoked, Report, Stop, Suite, ascending, ensure, eventually, rejects, same};
use crate::{
    ids::{InstanceId, ProviderId},
    nova::{PlacementClient, Resources, TraitChange, Traits, change_traits},
};

const NOBODY: &str = "00000000-dead-4000-8000-000000000000";

/// A Placement to be checked, and how to make things happen in it.
#[async_trait]
pub trait PlacementFixture: Send + Sync {
    /// Placement.
    fn placement(&self) -> Arc<dyn PlacementClient>;

    /// A provider that a server uses, and the server.
    async fn used_provider(&mut self) -> Provoked<(ProviderId, InstanceId)> {
        Stop::cannot("offer a provider in use")
    }

    /// A provider that nobody uses and that may be removed for good.
    async fn spare_provider(&mut self) -> Provoked<ProviderId> {
        Stop::cannot("offer a provider to be removed")
    }

    /// Kills a host and evacuates a server from it: the dead host's provider, and the server. The host of an earlier
    /// call may still be on its way back.
    async fn evacuate(&mut self) -> Provoked<(ProviderId, InstanceId)> {
        Stop::cannot("evacuate a server")
    }

    /// Brings the host of [`PlacementFixture::evacuate`] back.
    async fn revive(&mut self) -> Provoked<()> {
        Stop::cannot("revive a host")
    }
}

/// Checks every law of the trait.
pub async fn run(fixture: &mut dyn PlacementFixture) -> Report {
    let mut suite = Suite::new("PlacementClient");
    suite.check("providers", "providers are ordered by name, and one read alone is the same", providers(fixture)).await;
    suite
        .check("provider-unknown", "an unknown provider is not found, whatever is asked of it", unknown(fixture))
        .await;
    suite
        .check("trait-create", "a custom trait is made once or more; another name is refused", ensure_trait(fixture))
        .await;
    suite.check("traits", "traits are replaced at their generation only", traits(fixture)).await;
    suite.check("traits-change", "traits are added and removed without touching others", changed(fixture)).await;
    suite.check("trait-unknown", "a trait nobody made cannot be set", trait_unknown(fixture)).await;
    suite.check("usages", "usages are the sum of the allocations, within the inventories", usages(fixture)).await;
    suite.check("candidates", "candidates have the room and the traits", candidates(fixture)).await;
    suite.check("provider-used", "a provider in use cannot be removed", provider_used(fixture)).await;
    suite.check("provider-delete", "a provider is removed once", provider_delete(fixture)).await;
    suite.check("allocations-unknown", "the allocations of nobody are not found", allocations_unknown(fixture)).await;
    suite.check("evacuated", "an evacuated server's place is kept until its host returns", evacuated(fixture)).await;
    suite.check("released", "a consumer leaves one provider and keeps the others", released(fixture)).await;
    suite.0
}

async fn providers(fixture: &mut dyn PlacementFixture) -> Provoked<()> {
    let placement = fixture.placement();
    let all = placement.providers().await?;
    ensure(!all.is_empty(), || "there is no provider".into())?;
    let names: Vec<&str> = all.iter().map(|provider| provider.name.as_str()).collect();
    ascending("providers", &names)?;
    for provider in &all {
        same("provider", placement.provider(&provider.id).await?.name, provider.name.clone())?;
        let named = placement.provider_named(&provider.name).await?;
        same("provider_named", named.map(|found| found.id), Some(provider.id.clone()))?;
        let begin = &provider.name[..provider.name.len() - 1];
        let named = placement.provider_named(begin).await?;
        same(
            "the name of the provider found by another",
            named.map(|found| found.name),
            names.iter().find(|name| **name == begin).map(ToString::to_string),
        )?;
    }
    Ok(())
}

async fn unknown(fixture: &mut dyn PlacementFixture) -> Provoked<()> {
    let (placement, nobody) = (fixture.placement(), ProviderId::from(NOBODY));
    rejects("provider", "not_found", placement.provider(&nobody).await)?;
    rejects("traits", "not_found", placement.traits(&nobody).await)?;
    rejects("set_traits", "not_found", placement.set_traits(&nobody, &Traits::default()).await)?;
    rejects("inventories", "not_found", placement.inventories(&nobody).await)?;
    rejects("usages", "not_found", placement.usages(&nobody).await)?;
    rejects("allocations", "not_found", placement.allocations(&nobody).await)?;
    rejects("delete_provider", "not_found", placement.delete_provider(&nobody).await)
}

async fn ensure_trait(fixture: &mut dyn PlacementFixture) -> Provoked<()> {
    let placement = fixture.placement();
    placement.ensure_trait("CUSTOM_CONTRACT").await?;
    placement.ensure_trait("CUSTOM_CONTRACT").await?;
    rejects("a standard name", "refused", placement.ensure_trait("HW_CONTRACT").await)?;
    rejects("small letters", "refused", placement.ensure_trait("CUSTOM_contract").await)
}

async fn traits(fixture: &mut dyn PlacementFixture) -> Provoked<()> {
    let (id, _) = fixture.used_provider().await?;
    let placement = fixture.placement();
    placement.ensure_trait("CUSTOM_CONTRACT").await?;
    let before = placement.traits(&id).await?;
    let mut wanted = before.clone();
    wanted.names.insert("CUSTOM_CONTRACT".into());
    placement.set_traits(&id, &wanted).await?;
    let after = placement.traits(&id).await?;
    same("traits", &after.names, &wanted.names)?;
    ensure(after.generation != before.generation, || "the generation did not move".into())?;
    rejects("a stale generation", "conflict", placement.set_traits(&id, &wanted).await)?;
    let back = Traits { names: before.names.clone(), generation: after.generation };
    placement.set_traits(&id, &back).await?;
    same("traits", placement.traits(&id).await?.names, before.names)
}

async fn changed(fixture: &mut dyn PlacementFixture) -> Provoked<()> {
    let (id, _) = fixture.used_provider().await?;
    let placement = fixture.placement();
    let before = placement.traits(&id).await?.names;
    let name: BTreeSet<String> = ["CUSTOM_CONTRACT_CHANGE".to_owned()].into();
    let add = TraitChange { add: name.clone(), ..TraitChange::default() };
    let after = change_traits(&*placement, &id, &add).await?;
    same("traits", &after.names, &before.union(&name).cloned().collect())?;
    let again = change_traits(&*placement, &id, &add).await?;
    same("traits", &again.names, &after.names)?;
    let remove = TraitChange { remove: name, ..TraitChange::default() };
    same("traits", change_traits(&*placement, &id, &remove).await?.names, before)
}

async fn trait_unknown(fixture: &mut dyn PlacementFixture) -> Provoked<()> {
    let (id, _) = fixture.used_provider().await?;
    let placement = fixture.placement();
    let before = placement.traits(&id).await?;
    let mut wanted = before.clone();
    wanted.names.insert("CUSTOM_NOBODY_MADE_THIS".into());
    rejects("set_traits", "refused", placement.set_traits(&id, &wanted).await)?;
    same("traits", placement.traits(&id).await?.names, before.names)
}

async fn usages(fixture: &mut dyn PlacementFixture) -> Provoked<()> {
    let (id, consumer) = fixture.used_provider().await?;
    let placement = fixture.placement();
    let allocations = placement.allocations(&id).await?;
    let consumers: Vec<&InstanceId> = allocations.iter().map(|allocation| &allocation.consumer).collect();
    ascending("allocations", &consumers)?;
    ensure(consumers.contains(&&consumer), || "the server has no allocation".into())?;
    let mut sum: BTreeMap<String, u64> = BTreeMap::new();
    for (class, amount) in allocations.iter().flat_map(|allocation| &allocation.resources) {
        *sum.entry(class.clone()).or_default() += amount;
    }
    let mut used = placement.usages(&id).await?;
    used.retain(|_, amount| *amount > 0);
    same("usages", &used, &sum)?;
    let inventories = placement.inventories(&id).await?;
    for (class, amount) in &used {
        let capacity = inventories.get(class).map(crate::nova::Inventory::capacity);
        ensure(capacity.is_some_and(|capacity| *amount <= capacity), || format!("{class} is overbooked: {amount}"))?;
    }
    Ok(())
}

async fn candidates(fixture: &mut dyn PlacementFixture) -> Provoked<()> {
    let (id, _) = fixture.used_provider().await?;
    let placement = fixture.placement();
    let little: Resources = [("VCPU".to_owned(), 1)].into();
    let none = BTreeSet::new();
    let found = placement.candidates(&little, &none).await?;
    let ids: Vec<&ProviderId> = found.iter().map(|candidate| &candidate.provider).collect();
    ascending("candidates", &ids)?;
    ensure(ids.contains(&&id), || "a provider with room is missing".into())?;
    let much: Resources = [("VCPU".to_owned(), 1_000_000)].into();
    same("candidates for too much", placement.candidates(&much, &none).await?.len(), 0)?;

    placement.ensure_trait("CUSTOM_CONTRACT").await?;
    let rare: BTreeSet<String> = ["CUSTOM_CONTRACT".to_owned()].into();
    let before = placement.traits(&id).await?;
    let mut wanted = before.clone();
    wanted.names.insert("CUSTOM_CONTRACT".into());
    placement.set_traits(&id, &wanted).await?;
    let found: Vec<ProviderId> =
        placement.candidates(&little, &rare).await?.into_iter().map(|candidate| candidate.provider).collect();
    let generation = placement.traits(&id).await?.generation;
    placement.set_traits(&id, &Traits { names: before.names, generation }).await?;
    same("candidates with a rare trait", found, vec![id])
}

async fn provider_used(fixture: &mut dyn PlacementFixture) -> Provoked<()> {
    let (id, _) = fixture.used_provider().await?;
    let placement = fixture.placement();
    rejects("delete_provider", "conflict", placement.delete_provider(&id).await)?;
    Ok(placement.provider(&id).await.map(|_| ())?)
}

async fn provider_delete(fixture: &mut dyn PlacementFixture) -> Provoked<()> {
    let id = fixture.spare_provider().await?;
    let placement = fixture.placement();
    placement.delete_provider(&id).await?;
    rejects("delete again", "not_found", placement.delete_provider(&id).await)
}

async fn allocations_unknown(fixture: &mut dyn PlacementFixture) -> Provoked<()> {
    let (placement, nobody) = (fixture.placement(), InstanceId::from(NOBODY));
    rejects("delete_allocations", "not_found", placement.delete_allocations(&nobody).await)?;
    let provider = placement.providers().await?.remove(0).id;
    rejects("release", "not_found", placement.release(&nobody, &provider).await)
}

async fn evacuated(fixture: &mut dyn PlacementFixture) -> Provoked<()> {
    let (dead, server) = fixture.evacuate().await?;
    let placement = fixture.placement();
    let holds = || async {
        let all = placement.allocations(&dead).await?;
        Ok::<_, Stop>(all.iter().any(|allocation| allocation.consumer == server))
    };
    ensure(holds().await?, || "the dead host's allocation vanished with the evacuation".into())?;
    fixture.revive().await?;
    eventually("the old allocation to be gone", || async { Ok(!holds().await?) }).await
}

async fn released(fixture: &mut dyn PlacementFixture) -> Provoked<()> {
    let (dead, server) = fixture.evacuate().await?;
    let placement = fixture.placement();
    let mut users = Vec::new();
    for provider in placement.providers().await? {
        let all = placement.allocations(&provider.id).await?;
        users.extend(all.into_iter().filter(|one| one.consumer == server).map(|one| (provider.id.clone(), one)));
    }
    same("providers it uses", users.len(), 2)?;
    placement.release(&server, &dead).await?;
    rejects("release again", "not_found", placement.release(&server, &dead).await)?;
    for (provider, before) in users {
        let mine: Vec<_> =
            placement.allocations(&provider).await?.into_iter().filter(|one| one.consumer == server).collect();
        same("what is left", mine, if provider == dead { Vec::new() } else { vec![before] })?;
    }
    fixture.revive().await
}
