use std::path::Path;

use proptest::prelude::*;

use super::*;

fn uri(text: &str) -> LibvirtUri {
    text.parse().unwrap()
}

fn complaint(text: &str) -> String {
    text.parse::<LibvirtUri>().unwrap_err().to_string()
}

#[test]
fn every_form_libvirt_documents_for_our_transports_is_understood() {
    for (text, transport, host, port, name) in [
        ("qemu:///system", Transport::Unix, "localhost", 0, "qemu:///system"),
        ("qemu+unix:///system?socket=/tmp/s", Transport::Unix, "localhost", 0, "qemu:///system"),
        ("qemu+tcp://node-1:16509/system", Transport::Tcp, "node-1", 16509, "qemu:///system"),
        ("qemu+tcp:///system", Transport::Tcp, "localhost", 16509, "qemu:///system"),
        ("ch+tcp://192.0.2.7:16519/system", Transport::Tcp, "192.0.2.7", 16519, "ch:///system"),
        ("test+tcp://node-1/default", Transport::Tcp, "node-1", 16509, "test:///default"),
        ("test+tcp://node-1/srv/node.xml", Transport::Tcp, "node-1", 16509, "test:///srv/node.xml"),
        ("qemu://node-1/system", Transport::Tls, "node-1", 16514, "qemu:///system"),
        ("qemu+tls://[2001:db8::1]:7/system?no_verify=1", Transport::Tls, "2001:db8::1", 7, "qemu:///system"),
        ("qemu+tls://[fe80::1%eth0]/system", Transport::Tls, "fe80::1%eth0", 16514, "qemu:///system"),
        ("xen+tcp://h/?name=xen:///", Transport::Tcp, "h", 16509, "xen:///"),
        ("esx+tcp://h/dc?x=1&no_tty=1&y=a%26b", Transport::Tcp, "h", 16509, "esx:///dc?x=1&y=a%26b"),
    ] {
        let uri = uri(text);
        assert_eq!((uri.transport(), uri.host(), uri.port()), (transport, host, port), "{text}");
        assert_eq!(uri.remote_name(), name, "{text}");
    }
    let full = uri("qemu+tls://anna@h/system?pkipath=/etc/own%20pki&no_verify=0");
    assert_eq!(full.user(), Some("anna"));
    assert_eq!(full.pki_path(), Some(Path::new("/etc/own pki")));
    assert!(!full.no_verify());
}

#[test]
fn what_is_wrong_and_what_is_expected_is_said() {
    for (text, part) in [
        ("", "expected driver[+transport]://"),
        ("qemu:/system", "expected driver[+transport]://"),
        ("QEMU:///system", "no driver name"),
        ("qemu+ssh://h/system", "the transport ssh is not supported by this client; it has unix, tcp and tls"),
        ("qemu+ext://h/system", "the transport ext is not supported"),
        ("qemu+udp://h/system", "unknown transport \"udp\""),
        ("qemu+tcp://h", "a path is expected"),
        ("qemu+tcp://h:0/system", "\"0\" is no port"),
        ("qemu+tcp://h:99999/system", "no port"),
        ("qemu+tcp://h:+7/system", "no port"),
        ("qemu+tcp://::1/system", "brackets"),
        ("qemu+tcp://[::1/system", "closed by ]"),
        ("qemu+tcp://[x]/system", "no IPv6 address"),
        ("qemu+tcp://a:secret@h/system", "password does not belong"),
        ("qemu+unix://h/system", "expected no host"),
        ("qemu:///session", "?socket=/path"),
        ("qemu:///system?socket=tmp/s", "not an absolute path"),
        ("qemu:///system?no_verify=yes", "expected 0 or 1"),
        ("qemu:///system?mode=fast", "expected auto, legacy or direct"),
        ("qemu:///system#x", "fragment"),
        ("qemu:///sys tem", "percent-encoded"),
        ("qemu:///system?name=%ff", "not UTF-8"),
    ] {
        let complaint = complaint(text);
        assert!(complaint.contains(part), "{text}: {complaint}");
        assert!(complaint.contains(&format!("{text:?}")), "{complaint}");
    }
}

#[test]
fn local_sockets_are_tried_in_the_order_of_likelihood() {
    let run = Path::new("/run/libvirt");
    let names = |text: &str, read_only| -> Vec<String> {
        uri(text).sockets(run, read_only).iter().map(|path| path.display().to_string()).collect()
    };
    assert_eq!(names("qemu:///system", false), ["/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock"]);
    assert_eq!(names("ch:///system", true), ["/run/libvirt/libvirt-sock-ro", "/run/libvirt/virtchd-sock-ro"]);
    assert_eq!(names("ch:///system?mode=direct", false), ["/run/libvirt/virtchd-sock"]);
    assert_eq!(names("ch:///system?mode=legacy", false), ["/run/libvirt/libvirt-sock"]);
    assert_eq!(names("qemu:///session?socket=/tmp/own", false), ["/tmp/own"]);
}

fn any_uri() -> impl Strategy<Value = String> {
    let location = prop_oneof![
        Just("://".to_owned()),
        ("(tcp|tls)", "([a-z]{1,5}(%20|%40)?@)?", "([a-z0-9.-]{0,9}|\\[2001:db8::[1-9]\\])", "(:[1-9][0-9]{0,3})?")
            .prop_map(|(transport, user, host, port)| format!("+{transport}://{user}{host}{port}")),
    ];
    let query = "(\\?((socket|pkipath)=/[a-z%26]{1,3}x|no_verify=[01]|mode=(auto|direct)|name=[a-z:/]{1,9}|[a-m]{1,4}=[a-z+]{0,4}))?(&[n-q]{1,3}=%C3%A4)?";
    ("[a-z][a-z0-9]{0,4}", location, "/[a-z]{0,6}/?", query)
        .prop_map(|(driver, location, path, query)| format!("{driver}{location}{path}{query}"))
}

proptest! {
    #[test]
    fn what_is_displayed_parses_to_the_same(text in any_uri()) {
        if let Ok(first) = text.parse::<LibvirtUri>() {
            let second: LibvirtUri = first.to_string().parse().unwrap();
            prop_assert_eq!(&first, &second);
            prop_assert_eq!(first.remote_name(), second.remote_name());
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,40}") {
        let _ = text.parse::<LibvirtUri>();
        let _ = format!("qemu+tcp://{text}").parse::<LibvirtUri>();
        let _ = format!("qemu:///system?{text}").parse::<LibvirtUri>();
    }
}
