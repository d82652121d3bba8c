//! Tests that the encodings of version 1 never change: values must be encoded as in the files `tests/golden/*.hex`,
//! which were written once. Also tests that arbitrary other bytes are decoded, or refused with an error, without a
//! panic.
//!
//! `DUNLIN_WRITE_GOLDEN=1 cargo test -p dunlin-space` writes the files for new encodings.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

fn check(name: &str, bytes: &[u8]) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.hex"));
    let rows =
        bytes.chunks(16).map(|row| row.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" "));
    let hex: String = rows.map(|row| row + "\n").collect();
    if std::env::var_os("DUNLIN_WRITE_GOLDEN").is_some() && !file.exists() {
        std::fs::write(&file, &hex).unwrap();
    }
    assert_eq!(hex, std::fs::read_to_string(&file).unwrap_or_default(), "{name}");
}

fn entities() -> Vec<TransferredEntity> {
    let transferred =
        |id, state: &[u8]| TransferredEntity { id: EntityId(id), generation: 3, state: Arc::from(state) };
    vec![transferred(7, b"state"), transferred(8, b"")]
}

fn refused() -> Vec<RefusedEntity> {
    let whys = [EntityRefusal::Held, EntityRefusal::Full, EntityRefusal::Unreadable, EntityRefusal::Busy];
    (0..).zip(whys).map(|(index, why)| RefusedEntity { index, why }).collect()
}

fn messages() -> Vec<(&'static str, HandoverMessage)> {
    let message = |body| HandoverMessage {
        from: RegionId(5),
        epoch: 6,
        settled: TransferId { epoch: 6, number: 1 },
        transfer: TransferId { epoch: 6, number: 2 },
        body,
    };
    vec![
        ("prepare", message(MessageBody::Prepare(entities()))),
        ("prepared", message(MessageBody::Prepared(refused()))),
        ("commit", message(MessageBody::Commit)),
        ("taken", message(MessageBody::Taken(refused()))),
        ("abort", message(MessageBody::Abort)),
        ("ask_target", message(MessageBody::QueryTarget { addressed: 4 })),
        ("not_taken", message(MessageBody::NotTaken)),
        ("ask_source", message(MessageBody::QuerySource)),
        ("unknown", message(MessageBody::Unknown)),
        ("settled", message(MessageBody::Settled)),
    ]
}

fn entries() -> Vec<(&'static str, HandoverEntry)> {
    let entry =
        |step| HandoverEntry { peer: RegionId(5), transfer: TransferId { epoch: 6, number: 2 }, step };
    vec![
        ("entry_leaving", entry(HandoverStep::Leaving { addressed: 4, ids: vec![EntityId(7), EntityId(8)] })),
        ("entry_committed", entry(HandoverStep::Committed(refused()))),
        ("entry_aborted", entry(HandoverStep::Aborted)),
        ("entry_settled", entry(HandoverStep::Settled)),
        ("entry_staged", entry(HandoverStep::Staged { entities: entities(), refused: refused() })),
        ("entry_taken", entry(HandoverStep::Taken)),
        ("entry_dropped", entry(HandoverStep::Dropped)),
        ("entry_passed", entry(HandoverStep::PeerSettled)),
    ]
}

#[test]
fn message_encodings_do_not_change() {
    for (name, message) in messages() {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert_eq!(HandoverMessage::decode(&bytes), Ok(message));
        check(name, &bytes);
        for end in 0..bytes.len() {
            assert_eq!(
                HandoverMessage::decode(&bytes[..end]),
                Err(SpaceDecodeError::Short),
                "{name} cut at {end}"
            );
        }
        bytes[0] = 2;
        assert_eq!(HandoverMessage::decode(&bytes), Err(SpaceDecodeError::Version(2)));
    }
}

#[test]
fn encodings_of_handover_entries_do_not_change() {
    for (name, entry) in entries() {
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        assert_eq!(HandoverEntry::decode(&bytes), Ok(entry));
        check(name, &bytes);
    }
}

fn entity() -> EntityStore<3> {
    let mut schema = Schema::default();
    schema.register("heat", ComponentKind::F32).unwrap();
    schema.register("name", ComponentKind::Bytes(5)).unwrap();
    let mut store = EntityStore::new(schema, RegionLimits::default());
    let components = [&1.5_f32.to_le_bytes()[..], b"dunes"].concat();
    let entity = Entity {
        id: EntityId(7),
        generation: 3,
        kind: 2,
        position: [1.0, 2.0, 3.0],
        velocity: [-1.0, 0.5, 0.0],
        frozen: true,
        components: &components,
    };
    store.insert(&entity).unwrap();
    store
}

#[test]
fn entity_encodings_do_not_change() {
    let store = entity();
    let transferred = store.transferred_entity(0);
    check("entity", &transferred.state);
    let mut other = EntityStore::<3>::new(store.schema().clone(), RegionLimits::default());
    other.insert_transferred(&transferred).unwrap();
    assert_eq!(other.ledger(), store.ledger());
    assert_eq!((other.f32s(0), other.bytes_of(1, 0)), (Some(&[1.5][..]), Some(&b"dunes"[..])));
}

#[test]
fn entities_of_another_schema_are_refused_with_the_reason() {
    let transferred = entity().transferred_entity(0);
    let mut plain = EntityStore::<3>::new(Schema::default(), RegionLimits::default());
    assert_eq!(plain.insert_transferred(&transferred), Err(StoreError::State(StateError::Schema)));
    let mut flat = EntityStore::<2>::new(entity().schema().clone(), RegionLimits::default());
    let wrong = StateError::Dimensions { dimensions: 3, wanted: 2 };
    assert_eq!(flat.insert_transferred(&transferred), Err(StoreError::State(wrong)));
    assert_eq!(flat.refusal(&transferred, 0), Some(EntityRefusal::Unreadable));
    let mut endless = transferred.state.to_vec();
    endless[12..16].copy_from_slice(&f32::NAN.to_le_bytes());
    let endless = TransferredEntity { state: endless.into(), ..transferred };
    let mut own = EntityStore::<3>::new(entity().schema().clone(), RegionLimits::default());
    assert_eq!(own.insert_transferred(&endless), Err(StoreError::State(StateError::NotFinite)));
    assert_eq!(own.len(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn arbitrary_bytes_are_decoded_or_refused(
        which in 0_usize..10, at in any::<prop::sample::Index>(), byte in any::<u8>(),
        any in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = Vec::new();
        messages()[which].1.encode(&mut bytes);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        for bytes in [&bytes, &any] {
            let _ = HandoverMessage::decode(bytes);
            let _ = HandoverEntry::decode(bytes);
            let _ = GhostBatch::<3>::decode(bytes);
        }
    }
}
