//! Tests that arbitrary bytes are either decoded or refused, without a panic.

use proptest::prelude::*;

use super::snapshots::restore;
use super::*;

proptest! {
    #[test]
    fn arbitrary_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..20u8) {
        for start in [vec![], vec![VERSION, kind]] {
            let bytes = [start, bytes.clone()].concat();
            let _ = ControlCommand::decode(&bytes);
            let _ = ControlReply::decode(&bytes);
            let _ = ControlRefusal::decode(&bytes);
            let _ = ControlQuery::decode(&bytes);
            let _ = ControlQueryResult::decode(&bytes);
            let _ = ControlOutcome::decode(&bytes);
            if let Ok(events) = KeyEvents::new(&bytes) {
                events.for_each(drop);
            }
            let _ = restore(&[bytes]);
        }
    }
}

#[test]
fn list_with_more_items_than_bytes_is_refused() {
    let bytes = [&[VERSION, 8][..], &u32::MAX.to_le_bytes()].concat();
    assert_eq!(ControlCommand::decode(&bytes), Err(ControlDecodeError::Short));
}

#[test]
fn list_length_is_limited_only_in_commands_from_clients() {
    let count_max = ControlCommand::CLIENT_ITEMS_MAX;
    let encoded = |count| {
        let (mut bytes, then) = (Vec::new(), vec![KeyOperation::Get { key: b"" }; count]);
        ControlCommand::Transaction { compare: vec![], then, otherwise: vec![] }.encode(&mut bytes);
        bytes
    };
    assert!(ControlCommand::decode_from_client(&encoded(count_max)).is_ok());
    let bytes = encoded(count_max + 1);
    let refused = ControlDecodeError::TooMany { count: count_max + 1, count_max };
    assert_eq!(ControlCommand::decode_from_client(&bytes), Err(refused));
    assert!(ControlCommand::decode(&bytes).is_ok(), "a log may contain such a command");
}

#[test]
fn unknown_version_is_named_in_the_error() {
    let refused = ControlCommand::decode(&[9, 1]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "version 9 of the encoding is unknown; this version of Dunlin writes version 1"
    );
    assert_eq!(
        ControlCommand::decode(&[VERSION, 200]),
        Err(ControlDecodeError::Unknown { what: "ControlCommand", number: 200 })
    );
}

#[test]
fn deeply_nested_command_is_refused() {
    let (tenant, mut inner) = (&b""[..], Vec::new());
    ControlCommand::Delete { key: b"k" }.encode(&mut inner);
    let mut wrapped = Vec::new();
    ControlCommand::OfTenant { tenant, command: &inner }.encode(&mut wrapped);
    // Each level begins with the same bytes, followed by the length of the next inner level.
    let head = &wrapped[..wrapped.len() - inner.len()];
    let levels = 1_000_000;
    let mut nested = Vec::new();
    for level in (0..levels).rev() {
        nested.extend_from_slice(&head[..head.len() - 4]);
        nested.extend_from_slice(&((inner.len() + level * head.len()) as u32).to_le_bytes());
    }
    nested.extend_from_slice(&inner);
    assert!(ControlCommand::decode(&nested).is_err());
    assert!(ControlCommand::decode(&wrapped).is_ok());
}
