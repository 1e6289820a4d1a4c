//! Stage `aggregates`: the aggregates of a host in Nova.
//!
//! | State | Wanted | `AggregatesUpdated` |
//! |---|---|---|
//! | termination, not empty yet | as they are | `False/EvictionInProgress` |
//! | termination, empty | none | `False/Terminating` |
//! | onboarding, before `Handover` | the zone and the test aggregate | `False/TestAggregates` |
//! | onboarding, `Handover`, traits not there yet | the same | `False/WaitingForTraits` |
//! | otherwise | `spec.aggregates` | `True/Succeeded` |
//!
//! The host joins before it leaves, so that no filter is open in between. The exception is a change of the availability
//! zone: Nova lets no host be in two, so there it must leave first.
//!
//! **What is ours.** `status.aggregates` lists what we applied. Only from those is the host removed; and if somebody else
//! removes it from one that is wanted, it is put back. An aggregate that a person added the host to stays.
//!
//! A wanted aggregate that Nova does not have fails the whole change: half of it could open a filter.

mod change;

use std::{collections::BTreeSet, sync::Arc};

use clap::Args as ClapArgs;

use self::change::{Change, steps};
use super::{
    Cloud, Outcome, Plan, Snapshot, Stage,
    acting::{self, SLOWLY},
};
use crate::{
    api::{Aggregate as Recorded, Condition, ConditionStatus, Maintenance, condition_types, labels, reasons},
    nova::{Aggregate, view},
};

const HEADING: &str = "Aggregates";

/// Which aggregates are special.
#[derive(ClapArgs, Clone, Debug)]
#[group(skip)]
pub struct AggregatesArgs {
    /// The aggregate that keeps everybody but the smoke test away from a host being onboarded
    #[arg(long, default_value = labels::TEST_AGGREGATE, value_name = "NAME", help_heading = HEADING)]
    pub test_aggregate: String,
}

impl AggregatesArgs {
    /// The settings they describe.
    pub fn settings(&self) -> AggregatesSettings {
        AggregatesSettings { test_aggregate: self.test_aggregate.clone() }
    }
}

/// How it is done.
#[derive(Clone, Debug)]
pub struct AggregatesSettings {
    /// The aggregate that keeps everybody but the smoke test away from a host being onboarded.
    pub test_aggregate: String,
}

impl Default for AggregatesSettings {
    fn default() -> Self {
        Self { test_aggregate: labels::TEST_AGGREGATE.to_owned() }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Aggregates {
    cloud: Cloud,
    settings: AggregatesSettings,
}

impl Aggregates {
    /// On this cloud.
    pub fn new(cloud: Cloud, settings: AggregatesSettings) -> Self {
        Self { cloud, settings }
    }
}

/// What is wanted of a host, and what is said when it is so.
struct Wanted {
    names: Vec<String>,
    say: Condition,
}

impl Stage for Aggregates {
    fn name(&self) -> &'static str {
        "aggregates"
    }

    fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
        let spec = plan.effective_spec();
        let terminating = spec.maintenance() == &Maintenance::Termination;
        let concerned = spec.lifecycle_enabled()
            && seen.provider_id().is_some()
            && seen.service_id().is_some()
            && !plan.condition(condition_types::OFFBOARDED).is_some_and(Condition::is_true)
            && (!seen.is_leaving() || terminating && seen.is_held());
        let Some(region) = seen.region().filter(|_| concerned) else { return };
        match wanted(&self.settings, seen, plan) {
            Some(Ok(wanted)) => self.apply(region, &wanted, seen, plan),
            Some(Err(unchanged)) => plan.set(unchanged),
            None => {}
        }
    }
}

/// The table of the module. `Err` is said without a change; nothing at all is said of a host that was never onboarded.
fn wanted(settings: &AggregatesSettings, seen: &Snapshot, plan: &Plan) -> Option<Result<Wanted, Condition>> {
    let spec = plan.effective_spec();
    let not_yet = |reason, message: &str| said(ConditionStatus::False, reason, message);
    if spec.maintenance() == &Maintenance::Termination {
        let empty = plan.condition(condition_types::EVICTING).is_some_and(Condition::is_false);
        return Some(if empty {
            let message = "Aggregates cleared due to termination after eviction";
            Ok(Wanted { names: Vec::new(), say: not_yet(reasons::TERMINATING, message) })
        } else {
            let message = "Aggregates unchanged while terminating and eviction in progress";
            Err(not_yet(reasons::EVICTION_IN_PROGRESS, message))
        });
    }
    let onboarding = plan.condition(condition_types::ONBOARDING)?;
    let traits = plan.condition(condition_types::TRAITS_UPDATED).is_some_and(Condition::is_true);
    let testing = match onboarding.reason.as_str() {
        _ if !onboarding.is_true() => None,
        reasons::HANDOVER if traits => None,
        reasons::HANDOVER => {
            let message = "Waiting for traits to be applied before switching to spec aggregates";
            Some(not_yet(reasons::WAITING_FOR_TRAITS, message))
        }
        _ => {
            let message = "Test aggregate applied during onboarding instead of spec aggregates";
            Some(not_yet(reasons::TEST_AGGREGATES, message))
        }
    };
    Some(match (testing, seen.zone()) {
        (Some(say), Some(zone)) => {
            Ok(Wanted { names: distinct([zone.to_owned(), settings.test_aggregate.clone()]), say })
        }
        (Some(_), None) => Err(failed(&format!("the Node has no label {}", labels::ZONE))),
        (None, _) => {
            let message = "Aggregates from spec applied successfully";
            let say = said(ConditionStatus::True, reasons::SUCCEEDED, message);
            Ok(Wanted { names: distinct(spec.aggregates().iter().cloned()), say })
        }
    })
}

fn said(status: ConditionStatus, reason: &str, message: &str) -> Condition {
    Condition::new(condition_types::AGGREGATES_UPDATED, status, reason, message)
}

fn failed(why: &str) -> Condition {
    said(ConditionStatus::False, reasons::FAILED, &format!("failed to apply aggregates: {why}"))
}

fn distinct(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut known = BTreeSet::new();
    names.into_iter().filter(|name| known.insert(name.clone())).collect()
}

fn record(aggregate: &Aggregate) -> Recorded {
    let metadata = (!aggregate.metadata.is_empty()).then(|| aggregate.metadata.clone());
    Recorded { name: aggregate.name.clone(), uuid: aggregate.uuid.clone(), metadata }
}

/// The aggregate that a record means: by its UUID, for names change; by its name, where an earlier program knew no more.
fn meant<'a>(region: &'a view::Snapshot, recorded: &Recorded) -> Option<&'a Aggregate> {
    let all = region.aggregates.iter().flat_map(view::Listing::items);
    let mut by_uuid = all.filter(|one| !recorded.uuid.is_empty() && one.uuid == recorded.uuid);
    by_uuid.next().or_else(|| region.aggregate(&recorded.name).filter(|_| recorded.uuid.is_empty()))
}

impl Aggregates {
    fn apply(&self, region: &view::Snapshot, wanted: &Wanted, seen: &Snapshot, plan: &mut Plan) {
        let found: Vec<Option<&Aggregate>> = wanted.names.iter().map(|name| region.aggregate(name)).collect();
        let missing: Vec<&str> = wanted
            .names
            .iter()
            .zip(&found)
            .filter(|(_, aggregate)| aggregate.is_none())
            .map(|(name, _)| name.as_str())
            .collect();
        if !missing.is_empty() {
            plan.set(failed(&acting::words(&format!("aggregates not found: [{}]", missing.join(" ")))));
            plan.again_after(SLOWLY);
            return;
        }
        let target: Vec<&Aggregate> = found.into_iter().flatten().collect();
        let status = seen.status();
        let ours: Vec<&Aggregate> = status.aggregates().iter().filter_map(|one| meant(region, one)).collect();
        let host = seen.host();
        let steps = steps(&host, &target, &ours, &seen.nova_aggregates());
        if steps.is_empty() {
            plan.status.aggregates = Some(target.into_iter().map(record).collect());
            plan.set(wanted.say.clone());
            return;
        }
        let change = Change { cloud: self.cloud.clone(), host: host.clone(), steps };
        if let Some(Outcome::Failed { message, .. }) = acting::want(seen, plan, Arc::new(change)) {
            // What was done of it is ours all the same, and what was not undone still is.
            let joined = target.iter().filter(|one| one.hosts.contains(&host));
            let left = ours.iter().filter(|one| one.hosts.contains(&host) || target.iter().any(|t| t.id == one.id));
            let mut seen_ids = BTreeSet::new();
            let all = joined.chain(left).filter(|one| seen_ids.insert(one.id.clone())).map(|one| record(one));
            plan.status.aggregates = Some(all.collect());
            plan.set(failed(&message));
            plan.again_after(SLOWLY);
        }
    }
}
