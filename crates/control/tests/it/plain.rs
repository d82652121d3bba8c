//! Tests of keys, ranges and limits.

use super::snapshots::{blocks, restore};
use super::*;

#[test]
fn key_records_when_it_was_created_and_last_modified() {
    let mut test = TestState::default();
    test.put("other", "x");
    assert_eq!((test.put("a", "1"), test.put("a", "2")), (2, 3));
    let item = test.state.get(b"a").unwrap();
    assert_eq!((item.created, item.modified, item.version, &*item.value), (2, 3, 2, &b"2"[..]));
    assert_eq!(
        test.apply(ControlCommand::Delete { key: b"a" }),
        Ok(ControlReply::Changed { revision: 4, keys: 1 })
    );
    assert_eq!(test.put("a", "3"), 5);
    let item = test.state.get(b"a").unwrap();
    assert_eq!((item.created, item.version), (5, 1), "a recreated key starts at version 1");
}

#[test]
fn command_without_effect_uses_no_revision() {
    let mut test = TestState::default();
    test.put("a", "1");
    assert_eq!(
        test.apply(ControlCommand::Delete { key: b"b" }),
        Ok(ControlReply::Changed { revision: 1, keys: 0 })
    );
    let empty_range = ControlCommand::DeleteRange { start: b"x", end: b"" };
    assert_eq!(test.apply(empty_range), Ok(ControlReply::Changed { revision: 1, keys: 0 }));
    assert_eq!(test.effects.changes.len(), 1);
}

#[test]
fn write_is_refused_if_the_key_is_not_at_the_expected_revision() {
    let mut test = TestState::default();
    let put_if = |expect| ControlCommand::PutIf { key: b"a", value: b"v", lease: 0, expect };
    assert_eq!(test.apply(put_if(7)), Err(ControlRefusal::Mismatch { modified: 0 }));
    assert_eq!(test.apply(put_if(0)), Ok(ControlReply::Changed { revision: 1, keys: 1 }));
    assert_eq!(test.apply(put_if(0)), Err(ControlRefusal::Mismatch { modified: 1 }));
    assert_eq!(test.apply(put_if(1)), Ok(ControlReply::Changed { revision: 2, keys: 1 }));
    let delete_if = |expect| ControlCommand::DeleteIf { key: b"a", expect };
    assert_eq!(test.apply(delete_if(1)), Err(ControlRefusal::Mismatch { modified: 2 }));
    assert_eq!(test.apply(delete_if(2)), Ok(ControlReply::Changed { revision: 3, keys: 1 }));
}

#[test]
fn range_is_read_page_by_page() {
    let mut test = TestState::default();
    for number in 0..25 {
        test.put(&format!("k/{number:02}"), "v");
    }
    test.put("l", "outside");
    let end = prefix_end(b"k/");
    let (mut start, mut keys) = (b"k/".to_vec(), Vec::new());
    loop {
        let found = test.state.range(&start, &end, 10);
        keys.extend(found.items.iter().map(|pair| text(&pair.key)));
        let Some(last) = found.items.last().filter(|_| found.more) else { break };
        start = [&*last.key, b"\0"].concat();
    }
    assert_eq!(keys, (0..25).map(|number| format!("k/{number:02}")).collect::<Vec<_>>());
}

#[test]
fn key_page_respects_its_byte_limit_but_is_never_empty() {
    let limits = ControlStateLimits { range_bytes_max: 1_000, ..ControlStateLimits::default() };
    let mut test = TestState { state: ControlState::new(limits), ..TestState::default() };
    (0..10).for_each(|number| {
        test.put(&format!("small/{number}"), "v");
    });
    test.put("zz", &"v".repeat(5_000));
    let found = test.state.range(b"", b"", 0);
    assert!(found.more && (5..10).contains(&found.items.len()), "{}", found.items.len());
    assert_eq!(test.state.range(b"zz", b"", 0).items.len(), 1);
}

#[test]
fn key_range_of_prefix_ab_ends_before_key_ac() {
    assert_eq!(prefix_end(b"ab"), b"ac");
    assert_eq!(prefix_end(b"a\xff"), b"b");
    assert_eq!(prefix_end(b"\xff\xff"), b"");
}

#[test]
fn error_for_a_key_over_a_limit_names_the_limit() {
    let limits = ControlStateLimits {
        key_bytes_max: 3,
        value_bytes_max: 4,
        state_bytes_max: 300,
        ..ControlStateLimits::default()
    };
    let mut test = TestState { state: ControlState::new(limits), ..TestState::default() };
    let put = |key, value| ControlCommand::Put { key, value, lease: 0 };
    assert_eq!(test.apply(put(b"", b"")), Err(ControlRefusal::EmptyKey));
    assert_eq!(test.apply(put(b"$a", b"")), Err(ControlRefusal::Reserved));
    assert_eq!(test.apply(put(b"abcd", b"")), Err(ControlRefusal::KeyTooLong { bytes: 4, bytes_max: 3 }));
    assert_eq!(test.apply(put(b"a", b"12345")), Err(ControlRefusal::ValueTooLong { bytes: 5, bytes_max: 4 }));
    test.put("a", "1");
    test.put("b", "12");
    test.put("c", "1");
    let refused = test.apply(put(b"d", b"1")).unwrap_err();
    assert!(refused.to_string().contains("kv.bytes_max = 300"), "{refused}");
    assert_eq!(test.put("b", ""), 4, "a smaller value is accepted");
    assert_eq!(
        test.apply(ControlCommand::Delete { key: b"a" }),
        Ok(ControlReply::Changed { revision: 5, keys: 1 })
    );
    assert_eq!(test.put("d", "1"), 6, "after that there is room");
}

#[test]
fn deleting_every_key_leaves_the_system_keys() {
    let mut test = TestState::default();
    test.put("a", "1");
    let lease = test.grant(1_000);
    test.acquire("gate", lease, false).unwrap();
    test.put("z", "1");
    let all = ControlCommand::DeleteRange { start: b"", end: b"" };
    assert_eq!(test.apply(all), Ok(ControlReply::Changed { revision: 4, keys: 2 }));
    assert_eq!(test.keys(), ["$lock/gate"]);
}

#[test]
fn range_deletion_skips_the_system_keys_inside_the_range() {
    for (start, end, left) in [
        ("", "", vec!["$lock/gate"]),
        ("", "$", vec!["$lock/gate", "%", "a"]),
        ("", "$lock/h", vec!["$lock/gate", "%", "a"]),
        ("", "%", vec!["$lock/gate", "%", "a"]),
        ("", "%a", vec!["$lock/gate", "a"]),
        ("#b", "%a", vec!["#", "$lock/gate", "a"]),
        ("$", "%", vec!["#", "$lock/gate", "%", "a"]),
        ("$lock/", "", vec!["#", "$lock/gate"]),
        ("%a", "", vec!["#", "$lock/gate", "%"]),
    ] {
        let mut test = TestState::default();
        for key in ["#", "%", "a"] {
            test.put(key, "1");
        }
        let lease = test.grant(1_000);
        test.acquire("gate", lease, false).unwrap();
        test.apply(ControlCommand::DeleteRange { start: start.as_bytes(), end: end.as_bytes() }).unwrap();
        assert_eq!(test.keys(), left, "{start:?} to {end:?}");
    }
}

#[test]
fn events_of_one_revision_are_in_one_change() {
    let mut test = TestState::default();
    test.put("a", "1");
    test.put("b", "2");
    test.apply(ControlCommand::DeleteRange { start: b"a", end: b"" }).unwrap();
    let last = test.effects.changes.last().unwrap();
    assert_eq!(last.revision, 3);
    let events: Vec<_> = KeyEvents::new(&last.bytes).unwrap().map(Result::unwrap).collect();
    assert_eq!(events, [KeyEvent::Deleted { key: b"a" }, KeyEvent::Deleted { key: b"b" }]);
}

#[test]
fn client_keys_leave_room_for_topics_and_nodes() {
    let limits = ControlStateLimits { state_bytes_max: 1_000, ..ControlStateLimits::default() };
    let mut test = TestState { state: ControlState::new(limits), ..TestState::default() };
    let full = (0..).find(|number: &u32| {
        let key = format!("key/{number}");
        test.apply(ControlCommand::Put { key: key.as_bytes(), value: b"value", lease: 0 }).is_err()
    });
    let full = full.unwrap();
    let lease = test.grant(1_000);
    test.apply(ControlCommand::Enlist { node: 1, lease, value: b"here" }).unwrap();
    let request = dunlin_control::OwnerRequest {
        topic: b"orders",
        pattern: b"orders",
        kind: dunlin_control::TopicKind::Volatile,
        config: b"c",
        epoch: 1,
        node: 1,
        holds: false,
    };
    test.apply(ControlCommand::Place { request }).unwrap();
    let lock = ControlCommand::Acquire { name: b"gate", lease, value: b"", wait: false };
    assert!(
        matches!(test.apply(lock.clone()), Err(ControlRefusal::NoRoom { .. })),
        "locks count for clients"
    );
    assert!(test.state.bytes() <= 1_000 && test.state.cluster_bytes() > 0);
    let again = restore(&blocks(&test.state)).unwrap();
    let byte_counts = |state: &ControlState| (state.bytes(), state.cluster_bytes());
    assert_eq!(byte_counts(&again), byte_counts(&test.state), "the snapshot keeps the counts");
    for number in 0..full {
        test.apply(ControlCommand::Delete { key: format!("key/{number}").as_bytes() }).unwrap();
    }
    test.apply(lock).unwrap();
}

/// Writes a key on behalf of a user who belongs to a tenant.
fn put_as_tenant(test: &mut TestState, tenant: &str, key: &str) -> Result<ControlReply, ControlRefusal> {
    let mut bytes = Vec::new();
    ControlCommand::Put { key: key.as_bytes(), value: &[b'x'; 100], lease: 0 }.encode(&mut bytes);
    let mut tenant_command = Vec::new();
    ControlCommand::OfTenant { tenant: tenant.as_bytes(), command: &bytes }.encode(&mut tenant_command);
    test.apply(ControlCommand::decode(&tenant_command).unwrap())
}

#[test]
fn one_tenant_cannot_use_up_the_room_for_keys() {
    let limits = ControlStateLimits { state_bytes_max: 20_000, ..ControlStateLimits::default() };
    let mut test = TestState { state: ControlState::new(limits), ..TestState::default() };
    let fill = |test: &mut TestState, tenant: &str| {
        (0..1_000).find(|number| put_as_tenant(test, tenant, &format!("{tenant}/{number}")).is_err()).unwrap()
    };
    let (a, b) = (fill(&mut test, "a"), fill(&mut test, "b"));
    assert!(a > 3 * b && b > 10, "{a}, {b}");
    let refused = put_as_tenant(&mut test, "a", "a/new").unwrap_err();
    assert!(matches!(refused, ControlRefusal::NoShare { .. }), "{refused}");
    assert!(refused.to_string().contains("delete keys, or raise kv.bytes_max"), "{refused}");
    put_as_tenant(&mut test, "a", "a/1").unwrap();
    assert!(put_as_tenant(&mut test, "a", "b/1").is_err(), "the key would count for the tenant");
    put_as_tenant(&mut test, "c", "c/new").unwrap();
    test.state = restore(&blocks(&test.state)).unwrap();
    assert!(put_as_tenant(&mut test, "a", "a/new").is_err(), "the snapshot keeps the tenants");
    let before = test.state.bytes_of_tenant(b"a");
    test.put("a/1", "x");
    assert!(test.state.bytes_of_tenant(b"a") < before, "the last writer's tenant is charged");
    test.apply(ControlCommand::DeleteRange { start: b"a", end: b"" }).unwrap();
    let remaining = ["a", "b", "c"].map(|tenant| test.state.bytes_of_tenant(tenant.as_bytes()));
    assert_eq!((remaining, test.state.bytes()), ([0; 3], 0));
    assert_eq!(fill(&mut test, "b"), a, "as many bytes as the other tenant had");
}

#[test]
fn system_command_on_behalf_of_a_tenant_is_refused() {
    let mut limit = Vec::new();
    ControlCommand::Limit { limits: ControlStateLimits::default() }.encode(&mut limit);
    let mut of_tenant = Vec::new();
    ControlCommand::OfTenant { tenant: b"a", command: &[1, 3, 1, 0, 0, 0, b'k'] }.encode(&mut of_tenant);
    for inner in [limit, of_tenant] {
        let mut bytes = Vec::new();
        ControlCommand::OfTenant { tenant: b"a", command: &inner }.encode(&mut bytes);
        assert!(ControlCommand::decode(&bytes).is_err());
    }
}

#[test]
fn lock_is_charged_only_to_the_tenant_of_its_current_holder() {
    let mut test = TestState::default();
    let (first, second) = (test.grant(1_000), test.grant(1_000));
    let of_tenant = |test: &mut TestState, command: &ControlCommand<'_>| {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        test.apply(ControlCommand::OfTenant { tenant: b"a", command: &bytes })
    };
    of_tenant(&mut test, &ControlCommand::Acquire { name: b"gate", lease: first, value: b"", wait: false })
        .unwrap();
    assert_eq!(test.state.bytes_of_tenant(b"a"), test.state.bytes());
    test.acquire("gate", second, true).unwrap();
    of_tenant(&mut test, &ControlCommand::Release { name: b"gate", lease: first }).unwrap();
    assert_eq!(test.state.bytes_of_tenant(b"a"), 0);
}
