//! What the program says of the node it is on.

use cobalt_rig::ovs::{NodeOptions, Way};

use crate::rig::Rig;

#[test]
fn a_packet_is_followed_by_the_names_of_vms_and_a_stray_one_is_bad_news() {
    let Some(rig) = Rig::up("a_packet_is_followed_by_the_names_of_vms_and_a_stray_one_is_bad_news") else { return };
    let (one, two) = (rig.node.vm(0), rig.node.vm(1));
    let said = rig.run(&["trace", "--from", &one.uuid(), "--to", two.name()]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let wanted = format!("the packet leaves by {} (VM {})", two.tap(), two.uuid());
    assert!(said.out.contains(&wanted) && said.out.contains("br-int"), "{said:?}");
    let said = rig.run(&["trace", "--from", &one.tap(), "--to", "00:00:00:00:00:77"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    rig.run(&["trace", "--from", "tap-nowhere", "--to", &two.tap()]).refused(1, &["no port, VM or logical port"]);
}

#[test]
fn a_flow_that_somebody_added_is_told_by_its_cookie_also_over_tls() {
    const NAME: &str = "a_flow_that_somebody_added_is_told_by_its_cookie_also_over_tls";
    let Some(rig) = Rig::up_with(NAME, &NodeOptions { southbound: Way::Ssl }) else { return };
    rig.node.add_flow("br-int", "cookie=0xdeadbeef,table=200,priority=1,actions=drop").unwrap();
    // Without certificates there is no way to the database that knows.
    let said = rig.run(&["doctor", "--stale-flows"]);
    said.refused(1, &["nobody can tell which flows are stale", "--ssl-ca-cert"]);
    assert!(said.out.contains("nothing is wrong with the switch"), "{said:?}");
    let file = |name: &str| rig.node.pki().join(name).display().to_string();
    let (ca, certificate, key) = (file("cacert.pem"), file("clientcert.pem"), file("clientkey.pem"));
    let pki = ["--ssl-ca-cert", &ca, "--ssl-certificate", &certificate, "--ssl-private-key", &key];
    let said = rig.run(&[&["doctor", "--stale-flows"][..], &pki].concat());
    assert_eq!(said.code, Some(0), "a warning: {said:?}");
    for word in ["WARNING  StaleFlows br-int", "1 flow with 1 cookie that nothing in OVN explains", "0xdeadbeef   1"] {
        assert!(said.out.contains(word), "{word}: {said:?}");
    }
    // A question about one port is not a reason to leave out what else was asked for.
    let tap = rig.node.vm(0).tap();
    let said = rig.run(&[&["doctor", "--stale-flows", "--port", &tap, "-o", "json"][..], &pki].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    for word in ["\"name\": \"tap-vm1\"", "\"cookie\": \"0xdeadbeef\""] {
        assert!(said.out.contains(word), "{word}: {said:?}");
    }
}
