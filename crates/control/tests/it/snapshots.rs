//! Tests that a snapshot restores an equal state.

use std::convert::Infallible;

use super::*;

pub fn blocks(state: &ControlState) -> Vec<Vec<u8>> {
    blocks_of(&state.freeze())
}

fn blocks_of(frozen: &FrozenControlState) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    let Ok(()) = frozen.write(|block| {
        blocks.push(block.to_vec());
        Ok::<_, Infallible>(())
    });
    blocks
}

pub fn restore(blocks: &[Vec<u8>]) -> Result<ControlState, ControlDecodeError> {
    let mut restorer = StateRestorer::default();
    blocks.iter().try_for_each(|block| restorer.read_block(block))?;
    restorer.end()
}

fn filled_state() -> TestState {
    let mut test = TestState::default();
    let leases = [100, 200, 300].map(|ttl_ms| test.grant(ttl_ms));
    (0..3_000).for_each(|number| {
        test.put_with_lease(&format!("k{number:04}"), &"v".repeat(50), leases[number % 3]);
    });
    for lease in leases {
        test.acquire("gate", lease, true).unwrap();
        test.acquire("barrier", lease, true).unwrap();
    }
    test
}

#[test]
fn restored_state_behaves_like_the_original() {
    let mut test = filled_state();
    let saved = blocks(&test.state);
    assert!(saved.len() > 4, "in several blocks");
    let mut again = TestState { state: restore(&saved).unwrap(), ..TestState::default() };
    assert_eq!((again.state.bytes(), blocks(&again.state)), (test.state.bytes(), saved));
    test.effects = ControlEffects::default();
    for now_ms in [100, 200, 250] {
        test.advance(now_ms);
        again.advance(now_ms);
        assert_eq!(test.effects, again.effects);
        assert_eq!(blocks(&test.state), blocks(&again.state));
    }
    assert_eq!(test.effects.granted.len(), 4);
}

#[test]
fn changing_a_state_does_not_change_its_frozen_copy() {
    let mut test = filled_state();
    let frozen = test.state.freeze();
    let before = blocks(&test.state);
    test.apply(ControlCommand::DeleteRange { start: b"", end: b"" }).unwrap();
    assert_eq!(before, blocks_of(&frozen));
}

#[test]
fn snapshot_with_a_missing_repeated_or_cut_block_is_refused() {
    let saved = blocks(&filled_state().state);
    for at in 0..saved.len() {
        let mut shorter = saved.clone();
        shorter.remove(at);
        assert!(restore(&shorter).is_err(), "without block {at}");
        let mut longer = saved.clone();
        longer.insert(at, saved[at].clone());
        assert!(restore(&longer).is_err(), "block {at} twice");
    }
    for (at, block) in saved.iter().enumerate() {
        let mut cut = saved.clone();
        cut[at].truncate(block.len() - 1);
        assert!(restore(&cut).is_err(), "block {at} cut");
    }
    assert!(restore(&[]).is_err());
}

#[test]
fn snapshot_writing_stops_at_the_first_error() {
    let mut written = 0;
    let stopped = filled_state().state.freeze().write(|_| {
        written += 1;
        if written == 2 { Err("full") } else { Ok(()) }
    });
    assert_eq!((stopped, written), (Err("full"), 2));
}
