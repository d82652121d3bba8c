//! Tests that arbitrary and damaged bytes are refused without a panic.

use proptest::prelude::*;

use super::snapshots::{blocks, full, restored};
use super::*;

proptest! {
    #[test]
    fn arbitrary_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in prop_oneof![0..26u8, 128..150u8]) {
        for start in [vec![], vec![VERSION, kind]] {
            let bytes = [start, bytes.clone()].concat();
            let _ = TaskCommand::decode(&bytes);
            let _ = CommandReply::decode(&bytes);
            let _ = TaskRefusal::decode(&bytes);
            let _ = TaskEvent::decode(&bytes);
            let _ = TaskQuery::decode(&bytes);
            let _ = TaskQueryResult::decode(&bytes);
            let _ = TaskCommandOutcome::decode(&bytes);
            let _ = AttachRequest::decode(&bytes);
            let _ = AttachResponse::decode(&bytes);
            let _ = WorkerOrder::decode_all(&bytes);
            let _ = restored(&[bytes]);
        }
    }

    /// A snapshot with one changed byte is refused, or gives a usable state.
    #[test]
    fn damaged_snapshot_is_refused_or_restores_a_usable_state(block in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut snapshot = small_snapshot();
        let block = block.index(snapshot.len());
        let at = at.index(snapshot[block].len());
        snapshot[block][at] ^= 1 << bit;
        if let Ok(state) = restored(&snapshot) {
            let mut scene = Scene { state, ..Scene::default() };
            let worker = NewWorker { kinds: vec![b"work"], credit: 3, ttl_ms: 10_000, ..NewWorker::default() };
            let _ = scene.apply(TaskCommand::Join { worker });
            for start in scene.starts() {
                let _ = scene.complete(&start, 10);
            }
            let _ = scene.apply(TaskCommand::Submit { tenant: b"a", tasks: vec![work(); 3] });
        }
    }
}

fn small_snapshot() -> Vec<Vec<u8>> {
    let mut scene = Scene::new();
    scene.submit_all("a", vec![work(); 12]);
    scene.join(3);
    let start = scene.starts().remove(0);
    scene.fail(&start, false).unwrap();
    blocks(&scene.state)
}

#[test]
fn list_with_more_items_than_bytes_is_refused() {
    let bytes = [&[VERSION, 9][..], &u32::MAX.to_le_bytes()].concat();
    assert_eq!(TaskCommand::decode(&bytes), Err(TaskDecodeError::Short));
}

#[test]
fn unknown_version_of_the_encoding_is_named_in_the_error() {
    let refused = TaskCommand::decode(&[9, 1]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "version 9 of the encoding is not known here; this build writes version 1"
    );
    assert_eq!(
        TaskCommand::decode(&[VERSION, 200]),
        Err(TaskDecodeError::Unknown { what: "TaskCommand", number: 200 })
    );
    assert!(blocks(&full().state)[0].starts_with(&[VERSION, 0]));
}
