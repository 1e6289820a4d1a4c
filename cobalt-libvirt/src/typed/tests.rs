#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::xdr::{from_bytes, to_bytes};

#[test]
fn every_integer_type_answers_to_get_u64() {
    let params =
        TypedParams::builder().with("int", 7).with("uint", 7_u32).with("llong", 7_i64).with("ullong", 7_u64).build();
    for name in ["int", "uint", "llong", "ullong"] {
        assert_eq!(params.get_u64(name), Some(7), "{name}");
        assert_eq!(params.get_i64(name), Some(7), "{name}");
        assert_eq!(params.get_f64(name), Some(7.0), "{name}");
        assert_eq!(params.get_bool(name), Some(true), "{name}");
        assert_eq!(params.get_str(name), None, "{name}");
    }
}

#[test]
fn a_type_surprise_is_no_value() {
    let params =
        TypedParams::builder().with("minus", -1).with("text", "7").with("half", 0.5).with("huge", u64::MAX).build();
    assert_eq!(params.get_u64("minus"), None);
    assert_eq!(params.get_i64("minus"), Some(-1));
    assert_eq!(params.get_u64("text"), None);
    assert_eq!(params.get_u64("half"), None);
    assert_eq!(params.get_i64("huge"), None);
    assert_eq!(params.get_bool("huge"), Some(true));
    assert_eq!(params.get_u64("absent"), None);
}

#[test]
fn text_that_is_not_utf8_is_replaced() {
    let params: TypedParams = [("path", Value::String(b"/srv/\xff"))].into_iter().collect();
    assert_eq!(params.get_str("path").as_deref(), Some("/srv/\u{fffd}"));
}

#[test]
fn a_type_from_the_future_is_an_error_not_a_guess() {
    let mut wire = Writer::new();
    wire.u32(1);
    wire.string("new");
    wire.i32(8);
    wire.u64(0);
    assert_eq!(
        from_bytes::<TypedParams>(&wire.into_bytes().into()),
        Err(XdrError::UnknownKind { offset: 12, kind: 8 })
    );
}

#[test]
fn a_list_shares_the_memory_of_its_message() {
    let wire = Bytes::from(to_bytes(&TypedParams::builder().with("a", 1).build()));
    let params: TypedParams = from_bytes(&wire).unwrap();
    assert_eq!(params.data.as_ptr(), wire[4..].as_ptr());
}

fn value() -> impl Strategy<Value = (String, u8, u64, String)> {
    ("[a-z.0-9]{0,24}", 1_u8..=7, any::<u64>(), ".{0,12}")
}

#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
fn of_kind(kind: u8, number: u64, text: &str) -> Value<'_> {
    match kind {
        1 => Value::Int(number as i32),
        2 => Value::Uint(number as u32),
        3 => Value::Llong(number as i64),
        4 => Value::Ullong(number),
        5 => Value::Double(f64::from(number as u32) / 3.0),
        6 => Value::Boolean(number & 1 == 1),
        _ => Value::from(text),
    }
}

proptest! {
    #[test]
    fn what_is_written_reads_back(given in proptest::collection::vec(value(), 0..20)) {
        let values: Vec<(&str, Value<'_>)> =
            given.iter().map(|(name, kind, number, text)| (name.as_str(), of_kind(*kind, *number, text))).collect();
        let params: TypedParams = values.iter().copied().collect();
        let wire = Bytes::from(to_bytes(&params));
        let read: TypedParams = from_bytes(&wire).unwrap();
        prop_assert_eq!(read.len(), values.len());
        prop_assert_eq!(read.iter().collect::<Vec<_>>(), values.clone());
        prop_assert_eq!(to_bytes(&read), wire);
        for (name, _) in &values {
            let first = values.iter().find(|(other, _)| other == name).map(|(_, value)| *value);
            prop_assert_eq!(read.get(name), first);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in any::<Vec<u8>>(), count in 0_u8..4) {
        let mut wire = vec![0, 0, 0, count];
        wire.extend(bytes);
        if let Ok(params) = from_bytes::<TypedParams>(&wire.into()) {
            prop_assert!(params.iter().count() <= params.len());
        }
    }
}
