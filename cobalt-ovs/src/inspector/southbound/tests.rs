use std::sync::Arc;

use cobalt_core::ovs::{Device, InterfaceRole};

use super::*;
use crate::ovsdb::{Datum, RowUpdate, Updates};

const HERE: Uuid = Uuid::from_u128(1);
const THERE: Uuid = Uuid::from_u128(2);

fn tables(bindings: Vec<Row>) -> Tables {
    let schema: Schema = serde_json::from_str(r#"{"name":"OVN_Southbound"}"#).unwrap();
    let named = |name: &str| Row::new().with("name", name);
    let bindings = (100..).map(Uuid::from_u128).zip(bindings).map(|(uuid, row)| ("Port_Binding", uuid, row));
    let fixed = [
        ("Chassis", HERE, named("hv1")),
        ("Chassis", THERE, named("hv2")),
        ("SB_Global", Uuid::from_u128(3), Row::new().with("nb_cfg", 9)),
        ("Chassis_Private", Uuid::from_u128(4), named("hv1").with("nb_cfg", 7)),
    ];
    let mut tables = Tables::default();
    for (table, uuid, row) in fixed.into_iter().chain(bindings) {
        let update = vec![(Arc::from(table), vec![(uuid, RowUpdate::Whole(row))])];
        tables.apply(Updates { tables: update, ..Updates::default() }, &schema);
    }
    tables
}

fn port(name: &str) -> Row {
    Row::new().with("logical_port", name)
}

fn interface(logical_port: &str) -> Interface {
    Interface {
        name: format!("tap-{logical_port}"),
        bridge: "br-int".into(),
        role: InterfaceRole::Instance,
        admin_up: None,
        link_up: None,
        speed_bps: None,
        bond: None,
        error: None,
        ifindex: None,
        ofport: None,
        mac: None,
        instance: None,
        logical_port: Some(logical_port.into()),
        binding: None,
        remote_chassis: None,
        remote_known: None,
        device: Device::default(),
        statistics: BTreeMap::new(),
    }
}

#[test]
fn a_claim_is_here_elsewhere_unknown_or_undecided() {
    let known = read(
        &tables(vec![
            port("here").with("chassis", HERE),
            port("there").with("chassis", THERE),
            port("gone").with("chassis", Uuid::from_u128(99)),
            port("unbound"),
            port("everywhere").with("type", "localport"),
            port("arriving").with("chassis", THERE).with("additional_chassis", Datum::set([HERE])),
        ]),
        Some("hv1"),
        &[],
    );
    assert_eq!(known.binding("here"), Some(Binding::Here));
    assert_eq!(known.binding("there"), Some(Binding::Elsewhere("hv2".into())));
    assert!(matches!(known.binding("gone"), Some(Binding::Elsewhere(_))));
    assert_eq!(known.binding("unbound"), None);
    assert_eq!(known.binding("everywhere"), Some(Binding::Here));
    assert_eq!(known.binding("arriving"), Some(Binding::Here), "a migration has two places for a while");
    assert_eq!(known.binding("never"), Some(Binding::Unknown));
    assert!(known.has_host("hv2") && !known.has_host("hv3"));
}

#[test]
fn a_vm_s_port_bound_here_that_nothing_claims_is_unplugged() {
    let known = read(
        &tables(vec![
            port("plugged").with("chassis", HERE),
            port("missing").with("chassis", HERE),
            port("also-missing").with("chassis", HERE).with("type", ""),
            port("gateway").with("chassis", HERE).with("type", "chassisredirect"),
            port("nested").with("chassis", HERE).with("parent_port", "plugged"),
            port("elsewhere").with("chassis", THERE),
        ]),
        Some("hv1"),
        &[interface("plugged")],
    );
    assert_eq!(known.unplugged, ["also-missing", "missing"]);
}

#[test]
fn lag_is_how_many_steps_are_missing_and_unknown_for_a_host_nobody_knows() {
    assert_eq!(read(&tables(vec![]), Some("hv1"), &[]).lag, Some(2));
    assert_eq!(read(&tables(vec![]), Some("hv7"), &[]).lag, None);
    assert_eq!(read(&tables(vec![]), None, &[]).lag, None);
}

#[test]
fn flows_without_a_row_are_unexplained_but_for_ovn_s_own() {
    let flows = BTreeMap::from([(0, 16), (0xaaaa_aaaa, 3), (0xdead_beef, 2), (0x1_aaaa_aaaa, 1)]);
    let stale = unexplained(&flows, &BTreeSet::from([0xaaaa_aaaa]));
    assert_eq!(stale, BTreeMap::from([(0xdead_beef, 2), (0x1_aaaa_aaaa, 1)]));
}

/// More rows than one message may hold, and none is missed: what is missed would be called stale.
#[cfg(feature = "testing")]
#[tokio::test]
async fn the_largest_table_is_read_in_parts_and_whole() {
    let server = crate::testing::OvsdbServer::southbound();
    let remote = server.listen_tcp().await.unwrap();
    let wanted: BTreeSet<u32> = (0..40)
        .flat_map(|table| (0..20).map(move |_| table))
        .map(|table| server.insert("Logical_Flow", Row::new().with("table_id", table)).as_fields().0)
        .collect();
    let options = crate::ConnectOptions::new().max_message(24 << 10);
    let database = Ovsdb::connect(&remote, &options).await.unwrap();
    assert_eq!(cookies(&database).await.unwrap(), wanted);
}
