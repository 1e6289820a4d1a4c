//! A bond whose partner falls silent or whose cables are pulled.

use crate::rig::{bond, own, seen, switch};

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_partner_is_seen_though_every_link_is_up() {
    let Some(node) = own("a_silent_partner_is_seen_though_every_link_is_up") else { return };
    let switch = switch(&node).await;
    node.silence_partner().unwrap();
    let found = seen(&switch, "a bond that carries nothing", |found| bond(found).active_members() == 0).await;
    for member in &bond(&found).members {
        assert_eq!(member.link_up, Some(true), "{member:?}");
        assert!(["expired", "defaulted"].contains(&member.lacp.as_deref().unwrap_or_default()), "{member:?}");
    }
    // What misleads: the database has it that all is negotiated.
    assert_eq!(node.vsctl(["get", "Interface", "eth1", "link_state"]).unwrap().trim(), "up");
    node.wake_partner().unwrap();
    seen(&switch, "both members", |found| bond(found).active_members() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pulled_cable_disables_one_member_and_two_disable_the_bond() {
    let Some(node) = own("a_pulled_cable_disables_one_member_and_two_disable_the_bond") else { return };
    let switch = switch(&node).await;
    node.cable("eth1", false).unwrap();
    let found = seen(&switch, "one member", |found| {
        bond(found).active_members() == 1 && bond(found).members[0].link_up == Some(false)
    })
    .await;
    let enabled: Vec<_> = bond(&found).members.iter().map(|member| (member.name.as_str(), member.enabled)).collect();
    assert_eq!(enabled, [("eth1", Some(false)), ("eth2", Some(true))]);
    node.cable("eth2", false).unwrap();
    seen(&switch, "no member", |found| bond(found).active_members() == 0).await;
    node.cable("eth1", true).unwrap();
    node.cable("eth2", true).unwrap();
    seen(&switch, "both members", |found| bond(found).active_members() == 2).await;
}
