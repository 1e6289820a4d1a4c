//! From the aggregates a host is in to those it shall be in.

use async_trait::async_trait;

use crate::{
    Error, Result,
    ids::{AggregateId, HostName},
    nova::Aggregate,
    operator::{Action, Cloud, Progress},
};

/// One membership to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) join: bool,
    pub(super) id: AggregateId,
    pub(super) name: String,
    /// Whether the aggregate makes an availability zone, which a host with instances cannot change.
    pub(super) zone: bool,
}

impl Step {
    fn new(join: bool, aggregate: &Aggregate) -> Self {
        let (id, name) = (aggregate.id.clone(), aggregate.name.clone());
        Self { join, id, name, zone: aggregate.zone.is_some() }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", if self.join { '+' } else { '-' }, self.name)
    }
}

/// The steps from what a host is in to what is wanted: joins first, then departures from what is ours and not wanted.
/// Where it would be in two availability zones, it leaves the old one before it joins the new one.
pub(super) fn steps(host: &HostName, wanted: &[&Aggregate], ours: &[&Aggregate], is_in: &[&Aggregate]) -> Vec<Step> {
    debug_assert!(is_in.iter().all(|one| one.hosts.contains(host)));
    let among = |list: &[&Aggregate], one: &Aggregate| list.iter().any(|other| other.id == one.id);
    let joins: Vec<&Aggregate> = wanted.iter().copied().filter(|one| !among(is_in, one)).collect();
    let departures: Vec<&Aggregate> =
        ours.iter().copied().filter(|one| among(is_in, one) && !among(wanted, one)).collect();
    let clash = |a: &Aggregate, b: &Aggregate| a.zone.is_some() && b.zone.is_some() && a.zone != b.zone;
    let (early, late): (Vec<&Aggregate>, Vec<&Aggregate>) =
        departures.into_iter().partition(|old| joins.iter().any(|new| clash(old, new)));
    let (swapped, plain): (Vec<&Aggregate>, Vec<&Aggregate>) =
        joins.into_iter().partition(|new| early.iter().any(|old| clash(old, new)));
    let join = |one: &&Aggregate| Step::new(true, one);
    let leave = |one: &&Aggregate| Step::new(false, one);
    let first = plain.iter().map(join).chain(early.iter().map(leave));
    first.chain(swapped.iter().map(join)).chain(late.iter().map(leave)).collect()
}

#[derive(Debug)]
pub(super) struct Change {
    pub(super) cloud: Cloud,
    pub(super) host: HostName,
    pub(super) steps: Vec<Step>,
}

impl Change {
    fn words(&self) -> String {
        let steps: Vec<String> = self.steps.iter().map(ToString::to_string).collect();
        steps.join(" ")
    }

    /// Whether the host is a member now, by Nova itself. Nova answers the same to one that is already and to one that
    /// may not be.
    async fn is_in(&self, id: &AggregateId) -> Result<bool> {
        let all = self.cloud.nova.aggregates().await?;
        Ok(all.iter().any(|one| one.id == *id && one.hosts.contains(&self.host)))
    }

    async fn take(&self, step: &Step) -> Result<()> {
        let nova = &self.cloud.nova;
        let answer = if step.join {
            nova.add_to_aggregate(&step.id, &self.host).await
        } else {
            nova.remove_from_aggregate(&step.id, &self.host).await
        };
        match answer {
            Ok(()) => {}
            Err(Error::Conflict { .. }) if step.join && self.is_in(&step.id).await? => {}
            Err(error) if !step.join && error.is_not_found() => {}
            Err(error) => return Err(self.explained(step, error)),
        }
        self.cloud.view.learn_member(&step.id, &self.host, step.join);
        Ok(())
    }

    /// Nova's 409 says little. What is almost always behind it is that a host with instances would change its zone.
    fn explained(&self, step: &Step, error: Error) -> Error {
        let (verb, way) = if step.join { ("add", "to") } else { ("remove", "from") };
        let operation = format!("{verb} {} {way} aggregate {}", self.host, step.name);
        match error {
            Error::Conflict { reason, cause, .. } if step.zone => {
                let reason = format!("{reason} (a host with instances cannot change its availability zone)");
                Error::Conflict { operation, reason, cause }
            }
            other => other,
        }
    }
}

#[async_trait]
impl Action for Change {
    fn key(&self) -> String {
        format!("aggregates: {}", self.words())
    }

    fn describe(&self) -> String {
        format!("change the aggregates of {}: {}", self.host, self.words())
    }

    async fn run(&self) -> Result<Progress> {
        for step in &self.steps {
            self.take(step).await?;
        }
        Ok(Progress::Done)
    }
}
