#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn round_trip<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: &T) {
    let wire = to_bytes(value);
    assert_eq!(wire.len() % 4, 0);
    assert_eq!(&from_bytes::<T>(&wire.into()).unwrap(), value);
}

#[test]
fn a_string_is_padded_to_words() {
    assert_eq!(to_bytes("vm1"), [0, 0, 0, 3, b'v', b'm', b'1', 0]);
    assert_eq!(to_bytes("vm12"), [0, 0, 0, 4, b'v', b'm', b'1', b'2']);
    assert_eq!(to_bytes(""), [0, 0, 0, 0]);
}

#[test]
fn padding_may_hold_anything() {
    let mut reader = Reader::new(&[0, 0, 0, 1, b'a', 9, 9, 9]);
    assert_eq!(reader.string().unwrap(), "a");
    assert!(reader.rest().is_empty());
}

#[test]
fn a_string_that_is_not_utf8_is_read_with_replacements() {
    let mut reader = Reader::new(&[0, 0, 0, 2, 0xff, b'a', 0, 0]);
    assert_eq!(reader.string().unwrap(), "\u{fffd}a");
}

#[test]
fn any_non_zero_flag_means_present() {
    assert_eq!(from_bytes::<Option<u32>>(&vec![0, 0, 0, 2, 0, 0, 0, 7].into()), Ok(Some(7)));
}

#[test]
fn bytes_after_the_value_are_left_alone() {
    let wire = [0, 0, 0, 1, 0, 0, 0, 2];
    let mut reader = Reader::new(&wire);
    assert_eq!(reader.u32(), Ok(1));
    assert_eq!(reader.rest(), &[0, 0, 0, 2]);
    assert_eq!(reader.offset(), 4);
}

#[test]
fn a_length_beyond_the_bytes_is_an_error_and_no_allocation() {
    let claim = vec![0x01, 0xff, 0xff, 0xff, 0, 0, 0, 0].into();
    assert!(matches!(from_bytes::<Vec<u64>>(&claim), Err(XdrError::Truncated { .. })));
    assert!(matches!(from_bytes::<String>(&claim), Err(XdrError::Truncated { .. })));
    let above = vec![0xff, 0xff, 0xff, 0xff].into();
    assert_eq!(
        from_bytes::<String>(&above),
        Err(XdrError::TooLong { offset: 0, length: 0xffff_ffff, limit: MAX_LENGTH })
    );
}

#[test]
fn a_character_takes_a_word() {
    let model = CharArray::<4>::from("x86_64");
    assert_eq!(to_bytes(&model), [0, 0, 0, b'x', 0, 0, 0, b'8', 0, 0, 0, b'6', 0, 0, 0, 0]);
    assert_eq!(model.text(), "x86");
    round_trip(&model);
}

#[test]
fn shared_input_is_not_copied() {
    let wire = Bytes::from(to_bytes("abcd"));
    let mut reader = Reader::shared(&wire);
    let part = reader.opaque(16).unwrap();
    assert_eq!(reader.share(part).as_ptr(), wire[4..].as_ptr());
}

proptest! {
    #[test]
    fn what_is_written_reads_back(
        words in any::<(u32, i32, bool)>(),
        doubles in any::<(u64, i64)>(),
        texts in proptest::collection::vec(".{0,20}", 0..8),
        maybe in any::<Option<(String, u32)>>(),
        bytes in any::<Vec<u8>>(),
        uuid in any::<u128>(),
    ) {
        round_trip(&words);
        round_trip(&doubles);
        round_trip(&texts);
        round_trip(&maybe);
        round_trip(&Opaque(bytes.clone()));
        round_trip(&Text(bytes));
        round_trip(&Uuid::from_u128(uuid));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in any::<Vec<u8>>()) {
        let bytes = Bytes::from(bytes);
        let _ = from_bytes::<Vec<(String, Option<Vec<u64>>)>>(&bytes);
        let _ = from_bytes::<Vec<Vec<Vec<String>>>>(&bytes);
        let _ = from_bytes::<(CharArray<32>, Opaque, f64)>(&bytes);
    }
}
