#![allow(clippy::unwrap_used)]

use super::*;

fn config(identity: &str) -> LeaseConfig {
    LeaseConfig {
        name: "4c28796a.cloud.sap".into(),
        namespace: "default".into(),
        identity: identity.into(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

fn lease(version: &str, holder: &str, seconds: i32) -> Lease {
    Lease {
        metadata: ObjectMeta { resource_version: Some(version.into()), ..Default::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(seconds),
            lease_transitions: Some(3),
            // Absurd on purpose: nobody may read it.
            renew_time: Some(MicroTime("1999-01-01T00:00:00Z".parse().unwrap())),
            ..Default::default()
        }),
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn follower(version: &str, holder: &str, since: Instant) -> State {
    State { observed: Some(Observed { lease: lease(version, holder, 15), since }), ..State::default() }
}

fn leader(version: &str, sent: Instant) -> State {
    State { leading_since_sent: Some(sent), ..follower(version, "me", sent) }
}

#[test]
fn a_missing_lease_is_created() {
    let now = Instant::now();
    let (_, action) = decide(State::default(), Input::Read(None), now, &config("me"));
    assert_eq!(action, Action::Create);
}

#[test]
fn a_released_lease_is_claimed_at_once() {
    let now = Instant::now();
    let (_, action) = decide(State::default(), Input::Read(Some(lease("7", "", 1))), now, &config("me"));
    assert_eq!(action, Action::Update);
}

#[test]
fn a_lease_seen_for_the_first_time_is_waited_for_however_old_its_renew_time() {
    let now = Instant::now();
    let (state, action) = decide(State::default(), Input::Read(Some(lease("7", "other", 15))), now, &config("me"));
    assert_eq!(action, Action::Wait(now + seconds(2)));
    assert_eq!(state.observed.unwrap().since, now);
}

#[test]
fn the_wait_ends_when_the_record_has_not_changed_for_its_own_duration() {
    let t0 = Instant::now();
    for (elapsed, duration, expected) in [
        (14, 15, Action::Wait(t0 + seconds(15))),
        (15, 15, Action::Update),
        // The holder promised sixty seconds; ours are shorter, but it is the holder's promise that counts.
        (15, 60, Action::Wait(t0 + seconds(17))),
        (60, 60, Action::Update),
        // A record without a usable duration gets ours.
        (14, 0, Action::Wait(t0 + seconds(15))),
        (15, -5, Action::Update),
    ] {
        let seen = lease("7", "other", duration);
        let state = State { observed: Some(Observed { lease: seen.clone(), since: t0 }), ..State::default() };
        let (_, action) = decide(state, Input::Read(Some(seen)), t0 + seconds(elapsed), &config("me"));
        assert_eq!(action, expected, "{elapsed}s of {duration}s");
    }
}

#[test]
fn a_renewal_by_the_other_starts_the_wait_anew() {
    let t0 = Instant::now();
    let (state, action) =
        decide(follower("7", "other", t0), Input::Read(Some(lease("8", "other", 15))), t0 + seconds(14), &config("me"));
    assert_eq!(action, Action::Wait(t0 + seconds(16)));
    assert_eq!(state.observed.unwrap().since, t0 + seconds(14));
}

#[test]
fn a_deleted_lease_is_not_claimed_while_its_holder_may_still_work() {
    let t0 = Instant::now();
    let (state, action) = decide(follower("7", "other", t0), Input::Read(None), t0 + seconds(5), &config("me"));
    assert_eq!(action, Action::Wait(t0 + seconds(7)));
    let (_, action) = decide(state, Input::Read(None), t0 + seconds(15), &config("me"));
    assert_eq!(action, Action::Create);
}

#[test]
fn leadership_counts_from_when_the_write_was_sent_not_from_its_answer() {
    let t0 = Instant::now();
    let input = Input::Written { sent: t0, lease: lease("8", "me", 15) };
    let (state, action) = decide(follower("7", "", t0), input, t0 + seconds(4), &config("me"));
    assert_eq!(state.valid_until(&config("me")), Some(t0 + seconds(10)));
    assert_eq!(action, Action::Wait(t0 + seconds(4)));
}

#[test]
fn a_claim_answered_after_the_deadline_does_not_make_a_leader() {
    let t0 = Instant::now();
    let input = Input::Written { sent: t0, lease: lease("8", "me", 15) };
    let (state, _) = decide(follower("7", "", t0), input, t0 + seconds(11), &config("me"));
    assert_eq!(state.leading_since_sent, None);
}

#[test]
fn a_leader_renews_until_its_deadline_and_then_stops() {
    let t0 = Instant::now();
    let (state, action) = decide(leader("7", t0), Input::Tick, t0 + seconds(9), &config("me"));
    assert_eq!(action, Action::Update);
    let (state, action) = decide(state, Input::Failed, t0 + seconds(9), &config("me"));
    assert_eq!(action, Action::Wait(t0 + seconds(11)));
    let (state, action) = decide(state, Input::Tick, t0 + seconds(10), &config("me"));
    assert!(matches!(action, Action::Lost(_)), "{action:?}");
    assert_eq!(state.leading_since_sent, None);
}

#[test]
fn a_leader_that_finds_somebody_else_in_the_record_stops_at_once() {
    let t0 = Instant::now();
    let (state, action) = decide(leader("7", t0), Input::Conflict, t0 + seconds(2), &config("me"));
    assert_eq!(action, Action::Read);
    let (state, action) = decide(state, Input::Read(Some(lease("8", "other", 15))), t0 + seconds(2), &config("me"));
    assert_eq!(action, Action::Lost("held by other".into()));
    assert_eq!(state.leading_since_sent, None);
}

#[test]
fn a_renewal_that_seemed_lost_is_recognised_as_ours() {
    let t0 = Instant::now();
    let (state, _) = decide(leader("7", t0), Input::Conflict, t0 + seconds(2), &config("me"));
    let (state, action) = decide(state, Input::Read(Some(lease("8", "me", 15))), t0 + seconds(2), &config("me"));
    assert_eq!(action, Action::Update);
    assert_eq!(state.observed.unwrap().lease.metadata.resource_version.as_deref(), Some("8"));
    // The time still counts from the last write we know to have succeeded.
    assert_eq!(state.leading_since_sent, Some(t0));
}

#[test]
fn transitions_count_changes_of_the_holder_and_renewals_keep_the_acquire_time() {
    let now: Timestamp = "2026-01-01T00:00:00.5Z".parse().unwrap();
    let t0 = Instant::now();
    let first = claim(&State::default(), now, &config("me")).spec.unwrap();
    assert_eq!((first.lease_transitions, first.lease_duration_seconds), (Some(0), Some(15)));

    let taken = claim(&follower("7", "other", t0), now, &config("me"));
    assert_eq!(taken.metadata.resource_version.as_deref(), Some("7"));
    assert_eq!(taken.spec.as_ref().unwrap().lease_transitions, Some(4));
    assert_eq!(taken.spec.unwrap().acquire_time, Some(MicroTime(now)));

    let renewed = claim(&leader("7", t0), now, &config("me")).spec.unwrap();
    assert_eq!((renewed.lease_transitions, renewed.acquire_time), (Some(3), None));
}

#[test]
fn the_release_names_the_version_and_nobody() {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let t0 = Instant::now();
    let freed = release(&leader("7", t0), now, &config("me")).unwrap();
    assert_eq!(freed.metadata.resource_version.as_deref(), Some("7"));
    assert_eq!(holder(&freed), None);
    assert_eq!(release(&follower("7", "other", t0), now, &config("me")), None);
}

#[test]
fn times_are_written_with_exactly_six_fractional_digits() {
    for text in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456789Z"] {
        let lease = claim(&State::default(), text.parse().unwrap(), &config("me"));
        let json = serde_json::to_value(lease).unwrap();
        let time = json["spec"]["renewTime"].as_str().unwrap();
        let fraction = time.split('.').nth(1).unwrap();
        assert_eq!(fraction.len(), "000000Z".len(), "{time}");
    }
}

#[test]
fn the_record_never_promises_less_time_than_the_leader_takes() {
    let config = LeaseConfig { lease_duration: Duration::from_millis(15_200), ..config("me") };
    let lease = claim(&State::default(), "2026-01-01T00:00:00Z".parse().unwrap(), &config);
    assert_eq!(lease.spec.unwrap().lease_duration_seconds, Some(16));
}
