//! Tests of locks: at most one lease holds a lock, and the queue is fair.

use super::*;

const HELD: fn(u64) -> Result<ControlReply, ControlRefusal> = |token| Ok(ControlReply::Held { token });

#[test]
fn next_waiter_for_a_lock_gets_a_higher_token() {
    let mut test = TestState::default();
    let [a, b, c] = [0; 3].map(|_| test.grant(1_000));
    assert_eq!(test.acquire("gate", a, true), HELD(1));
    assert_eq!(test.acquire("gate", b, true), Ok(ControlReply::Waiting { before: 0 }));
    assert_eq!(test.acquire("gate", c, true), Ok(ControlReply::Waiting { before: 1 }));
    assert_eq!(test.release("gate", a), Ok(ControlReply::Done));
    let granted = std::mem::take(&mut test.effects.granted);
    assert_eq!(granted, [LockGrant { name: b"gate"[..].into(), lease: b, token: 2 }]);
    assert_eq!(test.acquire("gate", c, true), Ok(ControlReply::Waiting { before: 0 }));
    assert_eq!(test.release("gate", b), Ok(ControlReply::Done));
    assert_eq!(test.acquire("gate", c, true), HELD(3));
    assert_eq!(test.release("gate", c), Ok(ControlReply::Done));
    assert_eq!(test.keys(), [""; 0]);
}

#[test]
fn repeated_lock_request_gets_the_same_reply() {
    let mut test = TestState::default();
    let [a, b, c] = [0; 3].map(|_| test.grant(1_000));
    test.acquire("gate", a, true).unwrap();
    test.acquire("gate", b, true).unwrap();
    test.acquire("gate", c, true).unwrap();
    assert_eq!(test.acquire("gate", a, true), HELD(1));
    assert_eq!(test.acquire("gate", c, true), Ok(ControlReply::Waiting { before: 1 }));
    assert_eq!(test.state.lease(c).unwrap().waits, 1);
}

#[test]
fn lock_of_a_dead_holder_skips_dead_waiters() {
    let mut test = TestState::default();
    let [a, b, c] = [100, 50, 1_000].map(|ttl_ms| test.grant(ttl_ms));
    test.acquire("gate", a, true).unwrap();
    test.acquire("gate", b, true).unwrap();
    test.acquire("gate", c, true).unwrap();
    test.advance(100);
    assert_eq!(test.value("$lock/gate"), Some(format!("of {c}")));
    assert_eq!(test.effects.granted.len(), 1);
    assert_eq!(test.state.get(b"$lock/gate").unwrap().lease, c);
}

#[test]
fn ended_lease_is_removed_from_every_lock_queue() {
    let mut test = TestState::default();
    let [a, b] = [0; 2].map(|_| test.grant(1_000));
    test.acquire("x", a, true).unwrap();
    test.acquire("y", b, true).unwrap();
    test.acquire("y", a, true).unwrap();
    test.acquire("x", b, true).unwrap();
    test.apply(ControlCommand::Revoke { lease: a }).unwrap();
    assert_eq!(test.value("$lock/x"), Some(format!("of {b}")));
    test.apply(ControlCommand::Revoke { lease: b }).unwrap();
    assert_eq!((test.keys(), test.state.bytes()), (vec![], 0));
}

#[test]
fn try_lock_names_the_current_holder() {
    let mut test = TestState::default();
    let [a, b] = [0; 2].map(|_| test.grant(1_000));
    test.acquire("gate", a, false).unwrap();
    assert_eq!(test.acquire("gate", b, false), Err(ControlRefusal::Held { holder: a, token: 1 }));
    assert_eq!(test.release("gate", b), Err(ControlRefusal::NotHeld { lease: b }));
    assert_eq!(test.release("nothing", a), Err(ControlRefusal::NotHeld { lease: a }));
    test.acquire("gate", b, true).unwrap();
    assert_eq!(test.release("gate", b), Ok(ControlReply::Done), "the lease does not wait any more");
    test.release("gate", a).unwrap();
    assert_eq!(test.keys(), [""; 0]);
}

#[test]
fn only_the_elected_candidate_can_proclaim_a_value() {
    let mut test = TestState::default();
    let [a, b] = [0; 2].map(|_| test.grant(1_000));
    let proclaim = |lease, value| ControlCommand::Proclaim { name: b"chair", lease, value };
    test.acquire("chair", a, true).unwrap();
    test.acquire("chair", b, true).unwrap();
    assert_eq!(test.apply(proclaim(a, b"moved")), HELD(1), "the token does not change");
    assert_eq!(test.value("$lock/chair"), Some("moved".to_owned()));
    test.apply(ControlCommand::Revoke { lease: a }).unwrap();
    assert_eq!(test.apply(proclaim(a, b"still me")), Err(ControlRefusal::NotHeld { lease: a }));
    assert_eq!(test.value("$lock/chair"), Some(format!("of {b}")));
}

#[test]
fn write_with_the_token_of_a_former_lock_holder_is_refused() {
    let mut test = TestState::default();
    let [a, b] = [0; 2].map(|_| test.grant(1_000));
    test.acquire("gate", a, true).unwrap();
    test.acquire("gate", b, true).unwrap();
    test.apply(ControlCommand::Revoke { lease: a }).unwrap();
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
    assert!(!succeeded(test.apply(write(1))));
    assert_eq!(test.value("ledger"), None);
    assert!(succeeded(test.apply(write(2))));
}

#[test]
fn lock_waiter_beyond_the_queue_limit_is_refused() {
    let limits = ControlStateLimits { waiters_max: 1, ..ControlStateLimits::default() };
    let mut test = TestState { state: ControlState::new(limits), ..TestState::default() };
    let [a, b, c] = [0; 3].map(|_| test.grant(1_000));
    test.acquire("gate", a, true).unwrap();
    test.acquire("gate", b, true).unwrap();
    assert_eq!(test.acquire("gate", c, true), Err(ControlRefusal::TooManyWaiters { count_max: 1 }));
}
