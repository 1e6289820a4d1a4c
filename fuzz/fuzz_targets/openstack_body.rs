//! Any bytes as the body of an answer of Keystone, Nova or Placement.

#![no_main]

use cobalt_openstack::decode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((choice, body)) = input.split_first() else { return };
    match choice % 16 {
        0 => {
            if let Ok(token) = decode::token(body) {
                let _ = (token.life(), token.project_id(), token.endpoints().count());
            }
        }
        1 => {
            if let Ok(all) = decode::services(body) {
                assert!(all.is_sorted_by(|one, other| one.host <= other.host));
            }
        }
        2 => drop(decode::hypervisors(body)),
        3 => drop(decode::hypervisor(body)),
        4 => drop(decode::servers(body)),
        5 => drop(decode::server(body)),
        6 => drop(decode::migrations(body)),
        7 => {
            if let Ok(all) = decode::aggregates(body) {
                assert!(all.is_sorted_by(|one, other| one.name <= other.name));
            }
        }
        8 => drop(decode::providers(body)),
        9 => drop(decode::provider(body)),
        10 => drop(decode::traits(body)),
        11 => {
            if let Ok(all) = decode::inventories(body) {
                all.values().for_each(|inventory| {
                    let _ = inventory.capacity();
                });
            }
        }
        12 => drop(decode::usages(body)),
        13 => drop(decode::allocations(body)),
        14 => {
            if let Ok(all) = decode::candidates(body) {
                assert!(all.is_sorted_by(|one, other| one.provider < other.provider));
            }
        }
        _ => assert!(decode::message(body).chars().count() <= 401),
    }
});
