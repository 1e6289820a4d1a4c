//! Any text at all: an answer or an error, never a panic.

use cobalt_libvirt::xml::{DomainCapabilitiesXml, DomainXml, HostXml};
use proptest::{prelude::*, sample::Index};

use crate::{ALL, FOUR_CELLS};

fn read_as_everything(text: &str) {
    let host = HostXml::parse(text).map(|host| host.or_one_cell(1, 1)).unwrap_or_default();
    let _ = (host.capabilities(), DomainCapabilitiesXml::parse(text));
    if let Ok(domain) = DomainXml::parse(text) {
        let _ = domain.shares(&host.cells);
        let _ = domain.shares(&HostXml::parse(FOUR_CELLS).unwrap().cells);
    }
}

#[test]
fn every_recording_is_read_by_its_parser_and_refused_by_the_others() {
    for text in ALL {
        let read =
            [HostXml::parse(text).is_ok(), DomainCapabilitiesXml::parse(text).is_ok(), DomainXml::parse(text).is_ok()];
        assert_eq!(read.iter().filter(|read| **read).count(), 1);
    }
}

#[test]
fn every_recording_may_end_anywhere() {
    for text in ALL {
        let end = text.rfind("</").unwrap();
        for length in (0..end).filter(|length| text.is_char_boundary(*length)).step_by(7) {
            let cut = &text[..length];
            assert!(HostXml::parse(cut).is_err());
            assert!(DomainCapabilitiesXml::parse(cut).is_err());
            assert!(DomainXml::parse(cut).is_err());
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        read_as_everything(&text);
    }

    #[test]
    fn any_text_in_a_domain_is_read_or_refused(text in "[<>/&;'\"=a-c !\\[\\]?-]{0,60}") {
        read_as_everything(&format!("<domain>{text}</domain>"));
        read_as_everything(&format!("<domain><name>{text}</name><vcpu cpuset='{text}'>1</vcpu></domain>"));
    }

    #[test]
    fn damaged_recordings_are_read_or_refused(
        which in any::<Index>(),
        damage in prop::collection::vec((any::<Index>(), any::<u8>(), 0..4_usize), 1..8),
    ) {
        let mut bytes = which.get(&ALL).as_bytes().to_vec();
        for (place, byte, cut) in damage {
            let place = place.index(bytes.len());
            bytes.splice(place..(place + cut).min(bytes.len()), [byte]);
        }
        read_as_everything(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn recordings_with_other_numbers_are_read(which in any::<Index>(), number in any::<u64>(), digit in 0..10_u8) {
        let digit = char::from(b'0' + digit);
        read_as_everything(&which.get(&ALL).replace(digit, &number.to_string()));
    }
}
