//! The one writer of the Hypervisor's status.

use std::sync::Arc;

use kube::Api;

use super::{FIELD_MANAGER, heard::Heard};
use crate::{
    agent::{
        Report,
        incident::INSTANCES_HEALTHY,
        part::{Board, Context},
        status::{self, Wanted},
    },
    api::{Hypervisor, conditions},
    publish,
    runtime::{
        apply::{Applied, Applier, ApplyError, Target},
        clock::Clock,
        events::{Event, Recorder},
        takeover::TakeOver,
        watch::{ObjectKey, Store},
    },
};

/// Field managers under which earlier agents wrote. An operator used the same, so only what an agent writes is taken.
pub(super) const EARLIER_PROGRAMS: [&str; 3] = ["manager", "kvm-node-agent", "unknown"];

/// The fields of the status that are the agent's.
const STATUS_FIELDS: [&str; 12] = [
    "status.libVirtVersion",
    "status.hypervisorVersion",
    "status.operatingSystem",
    "status.instances",
    "status.capabilities",
    "status.domainCapabilities",
    "status.allocation",
    "status.capacity",
    "status.effectiveCapacity",
    "status.cells",
    "status.numInstances",
    "status.updateStatus",
];

pub(super) struct Publisher {
    api: Api<Hypervisor>,
    applier: Applier,
    key: ObjectKey,
    hypervisors: Store<Hypervisor>,
    clock: Clock,
    recorder: Recorder,
    /// What the parts have to say.
    board: Board,
    /// What the server answered last: until the cache has caught up, this is newer.
    written: Option<Arc<Hypervisor>>,
    /// The units the agent watches.
    units: Vec<String>,
    /// What was last said about our state.
    said: &'static str,
}

impl Publisher {
    pub(super) fn new(context: &Context, key: ObjectKey, hypervisors: Store<Hypervisor>, units: Vec<String>) -> Self {
        Self {
            api: Api::all(context.client.clone()),
            applier: Applier::new(FIELD_MANAGER, context.metrics.clone())
                .taking_over(TakeOver::from(EARLIER_PROGRAMS).only(STATUS_FIELDS)),
            key,
            hypervisors,
            clock: context.clock.clone(),
            recorder: context.recorder.clone(),
            board: context.board.clone(),
            written: None,
            units,
            said: "",
        }
    }

    /// Logs a change of state, once.
    fn say(&mut self, state: &'static str) {
        if std::mem::replace(&mut self.said, state) != state {
            tracing::info!(hypervisor = %self.key, "{state}");
        }
    }

    /// Writes what is new, and tells whether anything was.
    pub(super) async fn publish(&mut self, report: &Report, heard: &mut Heard) -> Result<bool, ApplyError> {
        let Some(cached) = self.hypervisors.get(&self.key) else {
            self.written = None;
            if self.hypervisors.is_synced() {
                self.say("waiting for the Hypervisor to be created");
            }
            return Ok(false); // the watch wakes us when it is there
        };
        let Some(observed) = publish::newer(Some(cached), self.written.take()) else { return Ok(false) };
        for told in heard.told() {
            let event = if told.incident.is_trouble() { Event::warning::<Hypervisor> } else { Event::normal };
            self.recorder.publish(event(observed.as_ref(), "Observe", told.incident.reason(), told.note));
        }
        let Wanted { mut status, conditions: mut wanted } =
            status::decide(report, &observed.spec, observed.conditions());
        let parts = self.board.all();
        status.update_status = parts.update_status;
        wanted.extend(parts.conditions);
        wanted.extend(heard.condition(report));
        let mut list = observed.conditions().to_vec();
        let types: Vec<String> = wanted.iter().map(|condition| condition.type_.clone()).collect();
        for condition in wanted {
            conditions::set_condition(&mut list, condition, self.clock.now());
        }
        let decided = list.iter().filter(|condition| types.contains(&condition.type_));
        let owned = self.applier.owned(observed.as_ref(), Target::Status);
        let body = publish::status_body(Some(observed.as_ref()), &owned, &status, decided.clone(), |type_| {
            status::is_former_unit(report, &self.units, type_) || parts.removed.iter().any(|removed| removed == type_)
        });
        if let Applied::Written(object) =
            self.applier.status_unconditionally(&self.api, observed.as_ref(), &body).await?
        {
            for condition in decided {
                let old = observed.condition(&condition.type_);
                // An incident has had its own Event, which says more.
                let told = condition.type_ == INSTANCES_HEALTHY && condition.is_false();
                if old.is_some_and(|old| old.status != condition.status) && !told {
                    let note = publish::sentence(condition);
                    let event = if condition.is_true() { Event::normal } else { Event::warning::<Hypervisor> };
                    self.recorder.publish(event(observed.as_ref(), "Observe", &condition.reason, note));
                }
            }
            self.say("publishing");
            self.written = Some(Arc::new(*object));
            Ok(true)
        } else {
            self.written = Some(observed);
            Ok(false)
        }
    }
}
