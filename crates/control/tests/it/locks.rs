//! Locks have at most one holder and a fair queue.

use super::*;

const HELD: fn(u64) -> Result<ControlReply, ControlRefusal> = |token| Ok(ControlReply::Held { token });

#[test]
fn lock_passes_to_the_next_waiter_with_a_higher_token() {
    let mut stage = TestState::default();
    let [a, b, c] = [0; 3].map(|_| stage.grant(1_000));
    assert_eq!(stage.acquire("gate", a, true), HELD(1));
    assert_eq!(stage.acquire("gate", b, true), Ok(ControlReply::Waiting { before: 0 }));
    assert_eq!(stage.acquire("gate", c, true), Ok(ControlReply::Waiting { before: 1 }));
    assert_eq!(stage.release("gate", a), Ok(ControlReply::Done));
    let granted = std::mem::take(&mut stage.effects.granted);
    assert_eq!(granted, [LockGrant { name: b"gate"[..].into(), lease: b, token: 2 }]);
    assert_eq!(stage.acquire("gate", c, true), Ok(ControlReply::Waiting { before: 0 }));
    assert_eq!(stage.release("gate", b), Ok(ControlReply::Done));
    assert_eq!(stage.acquire("gate", c, true), HELD(3));
    assert_eq!(stage.release("gate", c), Ok(ControlReply::Done));
    assert_eq!(stage.keys(), [""; 0]);
}

#[test]
fn repeated_lock_request_gets_the_same_reply() {
    let mut stage = TestState::default();
    let [a, b, c] = [0; 3].map(|_| stage.grant(1_000));
    stage.acquire("gate", a, true).unwrap();
    stage.acquire("gate", b, true).unwrap();
    stage.acquire("gate", c, true).unwrap();
    assert_eq!(stage.acquire("gate", a, true), HELD(1));
    assert_eq!(stage.acquire("gate", c, true), Ok(ControlReply::Waiting { before: 1 }));
    assert_eq!(stage.state.lease(c).unwrap().waits, 1);
}

#[test]
fn lock_of_a_dead_holder_skips_dead_waiters() {
    let mut stage = TestState::default();
    let [a, b, c] = [100, 50, 1_000].map(|ttl_ms| stage.grant(ttl_ms));
    stage.acquire("gate", a, true).unwrap();
    stage.acquire("gate", b, true).unwrap();
    stage.acquire("gate", c, true).unwrap();
    stage.advance(100);
    assert_eq!(stage.value("$lock/gate"), Some(format!("of {c}")));
    assert_eq!(stage.effects.granted.len(), 1);
    assert_eq!(stage.state.get(b"$lock/gate").unwrap().lease, c);
}

#[test]
fn ended_lease_is_removed_from_every_lock_queue() {
    let mut stage = TestState::default();
    let [a, b] = [0; 2].map(|_| stage.grant(1_000));
    stage.acquire("x", a, true).unwrap();
    stage.acquire("y", b, true).unwrap();
    stage.acquire("y", a, true).unwrap();
    stage.acquire("x", b, true).unwrap();
    stage.ask(ControlCommand::Revoke { lease: a }).unwrap();
    assert_eq!(stage.value("$lock/x"), Some(format!("of {b}")));
    stage.ask(ControlCommand::Revoke { lease: b }).unwrap();
    assert_eq!((stage.keys(), stage.state.bytes()), (vec![], 0));
}

#[test]
fn try_lock_names_the_current_holder() {
    let mut stage = TestState::default();
    let [a, b] = [0; 2].map(|_| stage.grant(1_000));
    stage.acquire("gate", a, false).unwrap();
    assert_eq!(stage.acquire("gate", b, false), Err(ControlRefusal::Held { holder: a, token: 1 }));
    assert_eq!(stage.release("gate", b), Err(ControlRefusal::NotHeld { lease: b }));
    assert_eq!(stage.release("nothing", a), Err(ControlRefusal::NotHeld { lease: a }));
    stage.acquire("gate", b, true).unwrap();
    assert_eq!(stage.release("gate", b), Ok(ControlReply::Done), "the lease does not wait any more");
    stage.release("gate", a).unwrap();
    assert_eq!(stage.keys(), [""; 0]);
}

#[test]
fn only_the_elected_candidate_can_proclaim_a_value() {
    let mut stage = TestState::default();
    let [a, b] = [0; 2].map(|_| stage.grant(1_000));
    let proclaim = |lease, value| ControlCommand::Proclaim { name: b"chair", lease, value };
    stage.acquire("chair", a, true).unwrap();
    stage.acquire("chair", b, true).unwrap();
    assert_eq!(stage.ask(proclaim(a, b"moved")), HELD(1), "the token does not change");
    assert_eq!(stage.value("$lock/chair"), Some("moved".to_owned()));
    stage.ask(ControlCommand::Revoke { lease: a }).unwrap();
    assert_eq!(stage.ask(proclaim(a, b"still me")), Err(ControlRefusal::NotHeld { lease: a }));
    assert_eq!(stage.value("$lock/chair"), Some(format!("of {b}")));
}

#[test]
fn write_with_the_token_of_a_former_lock_holder_is_refused() {
    let mut stage = TestState::default();
    let [a, b] = [0; 2].map(|_| stage.grant(1_000));
    stage.acquire("gate", a, true).unwrap();
    stage.acquire("gate", b, true).unwrap();
    stage.ask(ControlCommand::Revoke { lease: a }).unwrap();
    let write = |token| ControlCommand::Transaction {
        compare: vec![Compare {
            key: b"$lock/gate",
            is: Comparison::Equal,
            target: ComparedProperty::Created { revision: token },
        }],
        then: vec![KeyOperation::Put { key: b"ledger", value: b"mine", lease: 0 }],
        otherwise: vec![],
    };
    let succeeded = |reply| matches!(reply, Ok(ControlReply::Transaction { succeeded: true, .. }));
    assert!(!succeeded(stage.ask(write(1))));
    assert_eq!(stage.value("ledger"), None);
    assert!(succeeded(stage.ask(write(2))));
}

#[test]
fn lock_waiter_beyond_the_queue_limit_is_refused() {
    let limits = ControlStateLimits { waiters_max: 1, ..ControlStateLimits::default() };
    let mut stage = TestState { state: ControlState::new(limits), ..TestState::default() };
    let [a, b, c] = [0; 3].map(|_| stage.grant(1_000));
    stage.acquire("gate", a, true).unwrap();
    stage.acquire("gate", b, true).unwrap();
    assert_eq!(stage.acquire("gate", c, true), Err(ControlRefusal::TooManyWaiters { count_max: 1 }));
}
