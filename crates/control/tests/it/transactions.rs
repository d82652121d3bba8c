//! Tests of transactions: each is atomic and takes one revision.

use super::*;

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> KeyOperation<'a> {
    KeyOperation::Put { key, value, lease: 0 }
}

fn transaction<'a>(then: Vec<KeyOperation<'a>>) -> ControlCommand<'a> {
    ControlCommand::Transaction { compare: vec![], then, otherwise: vec![] }
}

#[test]
fn transaction_uses_one_revision_and_reads_its_own_writes() {
    let mut test = TestState::default();
    test.put("gone", "1");
    let reply = test.apply(transaction(vec![
        put(b"a", b"1"),
        put(b"a", b"2"),
        KeyOperation::Delete { key: b"gone" },
        KeyOperation::Get { key: b"a" },
        KeyOperation::Range { start: b"", end: b"", limit: 0 },
    ]));
    let Ok(ControlReply::Transaction { revision: 2, succeeded: true, results }) = reply else {
        panic!("{reply:?}")
    };
    let OperationOutcome::Found { found } = &results[3] else { panic!("{results:?}") };
    let item = &found.items[0].item;
    assert_eq!((&*item.value, item.version, item.modified), (&b"2"[..], 2, 2));
    assert_eq!(results[4], results[3], "only one key remains");
    assert_eq!(test.effects.changes.len(), 2);
}

#[test]
fn refused_transaction_changes_nothing() {
    let mut test = TestState::default();
    let refused = test.apply(transaction(vec![put(b"a", b"1"), put(b"$b", b"1")]));
    assert_eq!((refused, test.state.revision(), test.keys()), (Err(ControlRefusal::Reserved), 0, vec![]));
    let refused =
        test.apply(transaction(vec![put(b"a", b"1"), KeyOperation::Put { key: b"b", value: b"", lease: 9 }]));
    assert_eq!((refused, test.keys()), (Err(ControlRefusal::NoLease { lease: 9 }), vec![]));
}

#[test]
fn system_keys_are_changed_only_by_system_commands() {
    let mut test = TestState::default();
    let system = |then| ControlCommand::System { compare: vec![], then, otherwise: vec![] };
    let written = test.apply(system(vec![put(b"$cluster/a", b"1"), put(b"b", b"2")]));
    assert!(matches!(written, Ok(ControlReply::Transaction { succeeded: true, .. })), "{written:?}");
    assert_eq!(test.value("$cluster/a").as_deref(), Some("1"));
    let delete = || vec![KeyOperation::Delete { key: b"$cluster/a" }];
    assert_eq!(test.apply(transaction(delete())), Err(ControlRefusal::Reserved));
    let lease = test.grant(1_000);
    test.acquire("gate", lease, false).unwrap();
    let lock = test.keys().into_iter().find(|key| key.contains("gate")).expect("a lock is a key");
    assert_eq!(
        test.apply(system(vec![KeyOperation::Delete { key: lock.as_bytes() }])),
        Err(ControlRefusal::Reserved)
    );
    test.apply(system(delete())).unwrap();
    assert_eq!(test.value("$cluster/a"), None);
}

#[test]
fn every_attribute_of_a_key_can_be_compared() {
    let mut test = TestState::default();
    let lease = test.grant(1_000);
    test.put("a", "1");
    test.put_with_lease("a", "2", lease);
    let holds = |test: &mut TestState, key, is, target| {
        let compare = vec![Compare { key, is, target }];
        match test.apply(ControlCommand::Transaction { compare, then: vec![], otherwise: vec![] }) {
            Ok(ControlReply::Transaction { succeeded, .. }) => succeeded,
            other => panic!("{other:?}"),
        }
    };
    let targets = [
        (ComparedProperty::Version { version: 2 }, ComparedProperty::Version { version: 3 }),
        (ComparedProperty::Created { revision: 1 }, ComparedProperty::Created { revision: 2 }),
        (ComparedProperty::Modified { revision: 2 }, ComparedProperty::Modified { revision: 3 }),
        (ComparedProperty::Lease { lease }, ComparedProperty::Lease { lease: lease + 1 }),
        (ComparedProperty::Value { value: b"2" }, ComparedProperty::Value { value: b"3" }),
    ];
    for (same, more) in targets {
        for (is, holds_for_same, holds_for_greater) in [
            (Comparison::Equal, true, false),
            (Comparison::NotEqual, false, true),
            (Comparison::Less, false, true),
            (Comparison::Greater, false, false),
        ] {
            assert_eq!(holds(&mut test, b"a", is, same), holds_for_same, "{is:?} {same:?}");
            assert_eq!(holds(&mut test, b"a", is, more), holds_for_greater, "{is:?} {more:?}");
        }
    }
    assert!(
        holds(&mut test, b"none", Comparison::Equal, ComparedProperty::Version { version: 0 }),
        "a missing key"
    );
    assert!(holds(&mut test, b"none", Comparison::NotEqual, ComparedProperty::Value { value: b"" }));
    assert!(!holds(&mut test, b"none", Comparison::Less, ComparedProperty::Value { value: b"x" }));
}

#[test]
fn transaction_reads_stop_at_the_byte_limit() {
    let limits =
        ControlStateLimits { range_bytes_max: 500, operations_max: 8, ..ControlStateLimits::default() };
    let mut test = TestState { state: ControlState::new(limits), ..TestState::default() };
    test.put("a", &"x".repeat(300));
    let get = KeyOperation::Get { key: b"a" };
    let reply =
        test.apply(transaction(vec![get, get, KeyOperation::Range { start: b"", end: b"", limit: 0 }]));
    let Ok(ControlReply::Transaction { results, .. }) = reply else { panic!("{reply:?}") };
    let found = |outcome: &OperationOutcome| match outcome {
        OperationOutcome::Found { found } => (found.items.len(), found.more),
        other => panic!("{other:?}"),
    };
    assert_eq!(results.iter().map(found).collect::<Vec<_>>(), [(1, false), (0, true), (0, true)]);
    let many = test.apply(transaction(vec![get; 9]));
    assert_eq!(many, Err(ControlRefusal::TooManyOperations { count: 9, count_max: 8 }));
}

#[test]
fn transactions_in_one_log_entry_share_a_read_limit() {
    let mut test = TestState::default();
    test.put("a", &"x".repeat(1 << 20));
    let get = |test: &mut TestState| test.apply(transaction(vec![KeyOperation::Get { key: b"a" }]));
    let bytes_max = ControlStateLimits::ENTRY_READ_BYTES_MAX;
    let refusal = loop {
        match get(&mut test) {
            Ok(ControlReply::Transaction { results, .. }) => {
                assert!(
                    matches!(&results[..], [OperationOutcome::Found { found }] if found.items.len() == 1)
                );
            }
            other => break other,
        }
        assert!(test.effects.read_bytes <= bytes_max);
    };
    assert_eq!(refusal, Err(ControlRefusal::TooManyReads { bytes_max }));
    let put = KeyOperation::Put { key: b"b", value: b"1", lease: 0 };
    assert!(test.apply(transaction(vec![put])).is_ok(), "a transaction without reads");
    test.effects.read_bytes = 0;
    assert!(get(&mut test).is_ok(), "the next entry");
}
