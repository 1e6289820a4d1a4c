//! Any text from a control socket, to every reader of one: nothing panics, and nothing is found that is not in the text.

#![no_main]

use cobalt_core::ovs::Verdict;
use cobalt_ovs::show;
use libfuzzer_sys::fuzz_target;

// A recorded text is an input as it is.
fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let ports = show::ports(&text);
    assert!(ports.ports.iter().all(|port| text.contains(&port.name) && text.contains(&port.bridge)));
    assert!(show::version(&text).is_none_or(|version| text.contains(&version)));
    for bond in show::bonds(&text) {
        assert!(bond.members.iter().all(|member| text.contains(&member.name)));
    }
    for bond in show::lacp(&text) {
        assert!(bond.members.iter().all(|member| text.contains(&member.name)));
    }
    assert!(show::fdb(&text, "br-int", &ports).iter().all(|entry| text.contains(&entry.mac)));
    assert!(show::bindings(&text).iter().all(|binding| text.contains(&binding.logical_port)));
    assert!(show::coverage(&text).keys().all(|name| text.contains(name)));
    assert!(show::memory(&text).keys().all(|name| text.contains(name)));
    let _ = (show::connected(&text), show::datapaths(&text), show::upcalls(&text));
    let trace = show::trace(&text, &ports);
    assert!(trace.steps.len() <= text.lines().count());
    assert!(!matches!(trace.verdict, Verdict::Forwarded(names) if names.is_empty()));
});
