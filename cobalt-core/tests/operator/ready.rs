use cobalt_core::{
    api::{
        ConditionStatus::{False, True, Unknown},
        Maintenance, condition_types as types, reasons,
        testing::{HypervisorBuilder, hypervisor},
    },
    operator::{AgentSeen, Ready},
};

use super::{decide, seen};

fn onboarded() -> HypervisorBuilder {
    hypervisor("node-1").onboarded()
}

#[track_caller]
fn check(hypervisor: HypervisorBuilder, reason: &str, message: &str) {
    let plan = decide(&Ready, &seen(None, Some(hypervisor.build())));
    let ready = plan.condition(types::READY).unwrap();
    assert_eq!((ready.reason.as_str(), ready.message.as_str()), (reason, message));
    assert_eq!(ready.is_true(), reason == reasons::READY, "{ready:?}");
}

#[test]
fn an_onboarded_host_without_trouble_is_ready() {
    check(onboarded(), "Ready", "Hypervisor is ready");
}

#[test]
fn offboarded_comes_before_everything() {
    let host = onboarded().with_condition(types::OFFBOARDED, True, reasons::OFFBOARDED).with_condition(
        types::TERMINATING,
        True,
        reasons::TERMINATING,
    );
    check(host, "Offboarded", "Hypervisor has been offboarded");
}

#[test]
fn terminating_comes_before_onboarding_and_maintenance() {
    let host = onboarded()
        .in_maintenance(Maintenance::Termination)
        .with_condition(types::TERMINATING, True, reasons::TERMINATING)
        .with_condition(types::ONBOARDING, True, reasons::TESTING);
    check(host, "Terminating", "Hypervisor is terminating");
}

#[test]
fn a_terminating_condition_that_is_false_is_nothing() {
    check(onboarded().with_condition(types::TERMINATING, False, "Running"), "Ready", "Hypervisor is ready");
}

#[test]
fn onboarding_in_progress_names_its_step_and_comes_before_maintenance() {
    let host = hypervisor("node-1").in_maintenance(Maintenance::Manual).with_condition(
        types::ONBOARDING,
        True,
        reasons::TESTING,
    );
    check(host, "Onboarding", "Onboarding in progress: Testing");
}

#[test]
fn maintenance_speaks_by_the_state_of_the_drain() {
    for mode in [Maintenance::Manual, Maintenance::Auto, Maintenance::Ha, Maintenance::Other("later".into())] {
        let host = || onboarded().in_maintenance(mode.clone());
        check(host(), "Maintenance", "Hypervisor is in maintenance mode");
        let evicting = |status| host().with_condition(types::EVICTING, status, reasons::RUNNING);
        check(evicting(True), "Evicting", "Hypervisor is disabled and evicting");
        check(evicting(False), "Evicted", "Hypervisor is disabled and evicted");
        check(evicting(Unknown), "Maintenance", "Hypervisor is in maintenance mode");
    }
}

#[test]
fn an_onboarding_that_has_not_begun_says_what_it_waits_for() {
    check(hypervisor("node-1").unmanaged(), "Onboarding", "Onboarding not started: lifecycle management is disabled");
    check(
        hypervisor("node-1"),
        "Onboarding",
        "Onboarding not started: waiting for nova-compute to register the hypervisor in Nova \
         (HypervisorID/ServiceID not yet available)",
    );
    let registered = hypervisor("node-1").status(|status| {
        status.hypervisor_id = Some("h".into());
        status.service_id = Some("s".into());
    });
    check(registered, "Onboarding", "Onboarding not started");
}

#[test]
fn an_onboarding_that_ended_otherwise_than_well_is_not_ready() {
    let ended = |reason| hypervisor("node-1").with_condition(types::ONBOARDING, False, reason);
    check(ended(reasons::ABORTED), "Onboarding", "Onboarding was aborted");
    check(ended(reasons::HANDOVER), "Onboarding", "Onboarding not yet completed");
    check(ended("SomethingNew"), "Onboarding", "Onboarding not yet completed");
}

#[test]
fn a_host_whose_libvirt_is_away_is_not_ready() {
    let connection = |status, reason| onboarded().with_condition(types::LIBVIRT_CONNECTION, status, reason);
    let lost = connection(False, reasons::CONNECT_FAILED);
    let said = lost.clone().build().condition(types::LIBVIRT_CONNECTION).unwrap().message.clone();
    check(lost, "LibVirtNotConnected", &format!("libvirt cannot be used: {said}"));
    check(connection(True, reasons::CONNECTED), "Ready", "Hypervisor is ready");
    // Whoever is on the way out or in says that first.
    let maintained = connection(False, reasons::CONNECT_FAILED).in_maintenance(Maintenance::Manual);
    check(maintained, "Maintenance", "Hypervisor is in maintenance mode");
}

fn ready_with(hypervisor: HypervisorBuilder, agent: AgentSeen) -> String {
    let mut seen = seen(None, Some(hypervisor.build()));
    seen.agent = agent;
    decide(&Ready, &seen).condition(types::READY).unwrap().reason.clone()
}

#[test]
fn a_host_whose_agent_has_fallen_silent_is_not_ready() {
    assert_eq!(ready_with(onboarded(), AgentSeen::Silent), "AgentSilent");
    assert_eq!(ready_with(onboarded(), AgentSeen::Alive), "Ready");
    assert_eq!(ready_with(onboarded(), AgentSeen::Unknown), "Ready", "earlier agents give no signs of life");
    let lost = onboarded().with_condition(types::LIBVIRT_CONNECTION, False, reasons::CONNECT_FAILED);
    assert_eq!(ready_with(lost, AgentSeen::Silent), "AgentSilent", "what it said of libvirt is old");
    let maintained = onboarded().in_maintenance(Maintenance::Manual);
    assert_eq!(ready_with(maintained, AgentSeen::Silent), "Maintenance");
    assert_eq!(ready_with(hypervisor("node-1"), AgentSeen::Silent), "Onboarding");
}

#[test]
fn a_silent_host_stays_silent_until_its_agent_is_heard() {
    let silent = || onboarded().with_condition(types::READY, False, reasons::AGENT_SILENT);
    assert_eq!(ready_with(silent(), AgentSeen::NotYet), "AgentSilent", "an operator that starts knows no better");
    assert_eq!(ready_with(silent(), AgentSeen::Alive), "Ready");
    assert_eq!(
        ready_with(silent(), AgentSeen::Unknown),
        "Ready",
        "its Lease was taken away: nobody claims that it lives"
    );
    assert_eq!(ready_with(onboarded(), AgentSeen::NotYet), "Ready");
}

#[test]
fn nothing_is_said_about_a_host_that_does_not_exist() {
    assert!(decide(&Ready, &seen(None, None)).condition(types::READY).is_none());
}

#[test]
fn the_transition_time_moves_only_when_the_status_flips() {
    let host = onboarded().with_condition(types::READY, False, reasons::ONBOARDING).build();
    let before = host.condition(types::READY).unwrap().last_transition_time.clone();
    let flipped = decide(&Ready, &seen(None, Some(host)));
    assert_ne!(flipped.condition(types::READY).unwrap().last_transition_time, before);

    let host = hypervisor("node-1").unmanaged().with_condition(types::READY, False, reasons::MAINTENANCE).build();
    let before = host.condition(types::READY).unwrap().last_transition_time.clone();
    let reworded = decide(&Ready, &seen(None, Some(host)));
    let after = reworded.condition(types::READY).unwrap();
    assert_eq!((after.reason.as_str(), &after.last_transition_time), (reasons::ONBOARDING, &before));
}
