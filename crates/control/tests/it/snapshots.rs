//! Snapshots restore an equal state.

use std::convert::Infallible;

use super::*;

pub fn blocks(state: &ControlState) -> Vec<Vec<u8>> {
    blocks_of(&state.freeze())
}

fn blocks_of(frozen: &Frozen) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    let Ok(()) = frozen.write(|block| {
        blocks.push(block.to_vec());
        Ok::<_, Infallible>(())
    });
    blocks
}

pub fn restored(blocks: &[Vec<u8>]) -> Result<ControlState, ControlDecodeError> {
    let mut restoring = StateRestorer::default();
    blocks.iter().try_for_each(|block| restoring.take(block))?;
    restoring.end()
}

fn full() -> TestState {
    let mut stage = TestState::default();
    let leases = [100, 200, 300].map(|ttl_ms| stage.grant(ttl_ms));
    (0..3_000).for_each(|number| {
        stage.put_under(&format!("k{number:04}"), &"v".repeat(50), leases[number % 3]);
    });
    for lease in leases {
        stage.acquire("gate", lease, true).unwrap();
        stage.acquire("barrier", lease, true).unwrap();
    }
    stage
}

#[test]
fn restored_state_behaves_like_the_original() {
    let mut stage = full();
    let kept = blocks(&stage.state);
    assert!(kept.len() > 4, "in several blocks");
    let mut again = TestState { state: restored(&kept).unwrap(), ..TestState::default() };
    assert_eq!((again.state.bytes(), blocks(&again.state)), (stage.state.bytes(), kept));
    stage.effects = ControlEffects::default();
    for now_ms in [100, 200, 250] {
        stage.advance(now_ms);
        again.advance(now_ms);
        assert_eq!(stage.effects, again.effects);
        assert_eq!(blocks(&stage.state), blocks(&again.state));
    }
    assert_eq!(stage.effects.granted.len(), 4);
}

#[test]
fn frozen_copy_of_a_state_does_not_change_with_the_state() {
    let mut stage = full();
    let frozen = stage.state.freeze();
    let before = blocks(&stage.state);
    stage.ask(ControlCommand::DeleteRange { start: b"", end: b"" }).unwrap();
    assert_eq!(before, blocks_of(&frozen));
}

#[test]
fn missing_repeated_or_reordered_blocks_are_refused() {
    let kept = blocks(&full().state);
    for at in 0..kept.len() {
        let mut less = kept.clone();
        less.remove(at);
        assert!(restored(&less).is_err(), "without block {at}");
        let mut more = kept.clone();
        more.insert(at, kept[at].clone());
        assert!(restored(&more).is_err(), "block {at} twice");
    }
    for (at, block) in kept.iter().enumerate() {
        let mut cut = kept.clone();
        cut[at].truncate(block.len() - 1);
        assert!(restored(&cut).is_err(), "block {at} cut");
    }
    assert!(restored(&[]).is_err());
}

#[test]
fn snapshot_writing_stops_at_the_first_error() {
    let mut taken = 0;
    let stopped = full().state.freeze().write(|_| {
        taken += 1;
        if taken == 2 { Err("full") } else { Ok(()) }
    });
    assert_eq!((stopped, taken), (Err("full"), 2));
}
