use std::time::Duration;

use cobalt_core::{
    api::{
        ConditionStatus::{False, True, Unknown},
        condition_types as types, conditions, reasons,
        testing::{HypervisorBuilder, NodeBuilder, hypervisor, node},
    },
    operator::{Gardener, GardenerSettings, Ha, HaOwner, KeeperSeen, Plan, Snapshot},
};

use super::{decide, nobody, seen, wishes};

const NOTHING: KeeperSeen = KeeperSeen::Known { deployment: None, budget: None };

fn look(owner: HaOwner, seen: &Snapshot) -> Plan {
    decide(&Gardener::new(nobody(), GardenerSettings::default(), Ha { owner }), seen)
}

fn host(node: NodeBuilder, hypervisor: HypervisorBuilder) -> Snapshot {
    let mut seen = seen(Some(node.build()), Some(hypervisor.build()));
    seen.keeper = NOTHING;
    seen
}

/// How many Pods hold the Node back, and whether they are ready, by what would be applied.
fn held(plan: &Plan) -> Option<(u64, bool)> {
    let body =
        plan.actions().values().map(|action| format!("{action:?}")).find(|text| text.contains("\"Deployment\""))?;
    let count = u64::from(body.contains("\"replicas\": Number(1)"));
    assert_eq!(
        wishes(plan)[0],
        format!("create the PodDisruptionBudget kube-system/maint-node-1 with minAvailable {count}")
    );
    assert_eq!(wishes(plan)[1], format!("create the Deployment kube-system/maint-node-1 with replicas {count}"));
    Some((count, body.contains("/bin/true")))
}

fn managed() -> NodeBuilder {
    node("node-1").managed()
}

fn going() -> NodeBuilder {
    managed().with_condition(types::TERMINATING, True)
}

fn offboarded() -> HypervisorBuilder {
    hypervisor("node-1").onboarded().with_condition(types::TERMINATING, True, reasons::TERMINATING).with_condition(
        types::OFFBOARDED,
        True,
        reasons::OFFBOARDED,
    )
}

#[tokio::test]
async fn a_node_is_held_back_from_the_beginning_until_it_is_offboarded() {
    for (what, hypervisor, expected) in [
        ("new", hypervisor("node-1"), (1, false)),
        ("on its way in", hypervisor("node-1").onboarding(reasons::TESTING), (1, false)),
        ("onboarded", hypervisor("node-1").onboarded(), (1, true)),
        (
            "on its way out",
            hypervisor("node-1").onboarded().with_condition(types::OFFBOARDED, False, "Offboarding"),
            (1, true),
        ),
        ("offboarded", offboarded(), (0, true)),
    ] {
        assert_eq!(held(&look(HaOwner::Nobody, &host(managed(), hypervisor))), Some(expected), "{what}");
    }
}

#[tokio::test]
async fn nothing_is_made_where_nothing_is_managed_or_known() {
    assert!(look(HaOwner::Nobody, &host(managed(), hypervisor("node-1").unmanaged())).actions().is_empty());
    let mut unknown = host(managed(), hypervisor("node-1"));
    unknown.keeper = KeeperSeen::NotYet;
    assert!(look(HaOwner::Nobody, &unknown).actions().is_empty(), "what is not listed yet must not look absent");
    let mut no_node = host(managed(), hypervisor("node-1"));
    no_node.node = None;
    assert!(look(HaOwner::Nobody, &no_node).actions().is_empty());
}

#[tokio::test]
async fn the_owner_is_the_node_by_its_proper_name() {
    let plan = look(HaOwner::Nobody, &host(managed(), hypervisor("node-1")));
    let body = format!("{:?}", plan.actions().values().next().unwrap());
    assert!(body.contains("\"apiVersion\": String(\"v1\")") && !body.contains("\"/v1\""), "{body}");
}

#[tokio::test]
async fn whoever_owns_ha_is_waited_for_but_not_for_ever() {
    let with_ha = |status, reason: &str| host(going(), offboarded().with_condition(types::HA_ENABLED, status, reason));
    // Nobody owns it, and nobody has written it: there is nothing to wait for.
    assert_eq!(held(&look(HaOwner::Nobody, &host(going(), offboarded()))), Some((0, true)));
    // Somebody has written it, so somebody owns it.
    let foreign = |seen: Snapshot, minutes: i64| {
        let mut seen = seen;
        let since =
            conditions::find(seen.conditions(), types::OFFBOARDED).unwrap().last_transition_time.clone().unwrap();
        seen.now = since.0 + jiff::SignedDuration::from_mins(minutes);
        seen
    };
    let waiting = look(HaOwner::Nobody, &foreign(with_ha(True, "Succeeded"), 5));
    assert_eq!(held(&waiting), Some((1, true)));
    assert_eq!(waiting.requeue(), Some(Duration::from_secs(600)), "and looked at when the time is over");
    assert_eq!(held(&look(HaOwner::Nobody, &foreign(with_ha(Unknown, "Failed"), 5))), Some((1, true)));
    assert_eq!(held(&look(HaOwner::Nobody, &foreign(with_ha(False, "Evicted"), 5))), Some((0, true)));
    assert_eq!(held(&look(HaOwner::Nobody, &foreign(with_ha(True, "Succeeded"), 15))), Some((0, true)));
    // Somebody is said to own it.
    assert_eq!(held(&look(HaOwner::External, &foreign(host(going(), offboarded()), 5))), Some((1, true)));
    // The machine is not to go: then nobody can be evacuated from it too early.
    let staying = offboarded().with_condition(types::TERMINATING, False, reasons::RUNNING);
    assert_eq!(held(&look(HaOwner::External, &foreign(host(managed(), staying.clone()), 5))), Some((0, true)));
    assert_eq!(held(&look(HaOwner::External, &foreign(host(managed().deleted(), staying), 5))), Some((1, true)));
}

#[tokio::test]
async fn a_machine_is_let_go_only_after_that_was_said() {
    let irreversible = |plan: &Plan| plan.actions().values().all(|action| action.is_irreversible());
    assert!(irreversible(&look(HaOwner::Nobody, &host(managed(), offboarded()))));
    let holding = look(HaOwner::Nobody, &host(managed(), hypervisor("node-1")));
    assert!(holding.actions().values().all(|action| !action.is_irreversible()));
}
