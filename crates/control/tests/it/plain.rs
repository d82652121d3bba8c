//! Keys, ranges and limits.

use super::snapshots::{blocks, restored};
use super::*;

#[test]
fn key_keeps_its_revisions_and_version() {
    let mut stage = TestState::default();
    stage.put("other", "x");
    assert_eq!((stage.put("a", "1"), stage.put("a", "2")), (2, 3));
    let item = stage.state.get(b"a").unwrap();
    assert_eq!((item.created, item.modified, item.version, &*item.value), (2, 3, 2, &b"2"[..]));
    assert_eq!(
        stage.ask(ControlCommand::Delete { key: b"a" }),
        Ok(ControlReply::Changed { revision: 4, keys: 1 })
    );
    assert_eq!(stage.put("a", "3"), 5);
    let item = stage.state.get(b"a").unwrap();
    assert_eq!((item.created, item.version), (5, 1), "a recreated key starts at version 1");
}

#[test]
fn command_without_effect_uses_no_revision() {
    let mut stage = TestState::default();
    stage.put("a", "1");
    assert_eq!(
        stage.ask(ControlCommand::Delete { key: b"b" }),
        Ok(ControlReply::Changed { revision: 1, keys: 0 })
    );
    let nothing = ControlCommand::DeleteRange { start: b"x", end: b"" };
    assert_eq!(stage.ask(nothing), Ok(ControlReply::Changed { revision: 1, keys: 0 }));
    assert_eq!(stage.effects.changes.len(), 1);
}

#[test]
fn write_expecting_another_revision_is_refused() {
    let mut stage = TestState::default();
    let put_if = |expect| ControlCommand::PutIf { key: b"a", value: b"v", lease: 0, expect };
    assert_eq!(stage.ask(put_if(7)), Err(ControlRefusal::Mismatch { modified: 0 }));
    assert_eq!(stage.ask(put_if(0)), Ok(ControlReply::Changed { revision: 1, keys: 1 }));
    assert_eq!(stage.ask(put_if(0)), Err(ControlRefusal::Mismatch { modified: 1 }));
    assert_eq!(stage.ask(put_if(1)), Ok(ControlReply::Changed { revision: 2, keys: 1 }));
    let delete_if = |expect| ControlCommand::DeleteIf { key: b"a", expect };
    assert_eq!(stage.ask(delete_if(1)), Err(ControlRefusal::Mismatch { modified: 2 }));
    assert_eq!(stage.ask(delete_if(2)), Ok(ControlReply::Changed { revision: 3, keys: 1 }));
}

#[test]
fn range_is_read_page_by_page() {
    let mut stage = TestState::default();
    for number in 0..25 {
        stage.put(&format!("k/{number:02}"), "v");
    }
    stage.put("l", "outside");
    let end = prefix_end(b"k/");
    let (mut start, mut seen) = (b"k/".to_vec(), Vec::new());
    loop {
        let found = stage.state.range(&start, &end, 10);
        seen.extend(found.items.iter().map(|pair| text(&pair.key)));
        let Some(last) = found.items.last().filter(|_| found.more) else { break };
        start = [&*last.key, b"\0"].concat();
    }
    assert_eq!(seen, (0..25).map(|number| format!("k/{number:02}")).collect::<Vec<_>>());
}

#[test]
fn key_page_ends_at_the_byte_limit_but_has_one_key() {
    let limits = ControlStateLimits { range_bytes_max: 1_000, ..ControlStateLimits::default() };
    let mut stage = TestState { state: ControlState::new(limits), ..TestState::default() };
    (0..10).for_each(|number| {
        stage.put(&format!("small/{number}"), "v");
    });
    stage.put("zz", &"v".repeat(5_000));
    let found = stage.state.range(b"", b"", 0);
    assert!(found.more && (5..10).contains(&found.items.len()), "{}", found.items.len());
    assert_eq!(stage.state.range(b"zz", b"", 0).items.len(), 1);
}

#[test]
fn prefix_end_is_the_first_key_after_the_prefix() {
    assert_eq!(prefix_end(b"ab"), b"ac");
    assert_eq!(prefix_end(b"a\xff"), b"b");
    assert_eq!(prefix_end(b"\xff\xff"), b"");
}

#[test]
fn key_over_a_limit_is_refused_with_the_limits_name() {
    let limits = ControlStateLimits {
        key_bytes_max: 3,
        value_bytes_max: 4,
        state_bytes_max: 300,
        ..ControlStateLimits::default()
    };
    let mut stage = TestState { state: ControlState::new(limits), ..TestState::default() };
    let put = |key, value| ControlCommand::Put { key, value, lease: 0 };
    assert_eq!(stage.ask(put(b"", b"")), Err(ControlRefusal::EmptyKey));
    assert_eq!(stage.ask(put(b"$a", b"")), Err(ControlRefusal::Reserved));
    assert_eq!(stage.ask(put(b"abcd", b"")), Err(ControlRefusal::KeyTooLong { bytes: 4, bytes_max: 3 }));
    assert_eq!(stage.ask(put(b"a", b"12345")), Err(ControlRefusal::ValueTooLong { bytes: 5, bytes_max: 4 }));
    stage.put("a", "1");
    stage.put("b", "12");
    stage.put("c", "1");
    let refused = stage.ask(put(b"d", b"1")).unwrap_err();
    assert!(refused.to_string().contains("kv.bytes_max = 300"), "{refused}");
    assert_eq!(stage.put("b", ""), 4, "a smaller value is accepted");
    assert_eq!(
        stage.ask(ControlCommand::Delete { key: b"a" }),
        Ok(ControlReply::Changed { revision: 5, keys: 1 })
    );
    assert_eq!(stage.put("d", "1"), 6, "after that there is room");
}

#[test]
fn deleting_every_key_leaves_the_system_keys() {
    let mut stage = TestState::default();
    stage.put("a", "1");
    let lease = stage.grant(1_000);
    stage.acquire("gate", lease, false).unwrap();
    stage.put("z", "1");
    let all = ControlCommand::DeleteRange { start: b"", end: b"" };
    assert_eq!(stage.ask(all), Ok(ControlReply::Changed { revision: 4, keys: 2 }));
    assert_eq!(stage.keys(), ["$lock/gate"]);
}

#[test]
fn events_of_one_revision_are_in_one_change() {
    let mut stage = TestState::default();
    stage.put("a", "1");
    stage.put("b", "2");
    stage.ask(ControlCommand::DeleteRange { start: b"a", end: b"" }).unwrap();
    let last = stage.effects.changes.last().unwrap();
    assert_eq!(last.revision, 3);
    let events: Vec<_> = KeyEvents::new(&last.bytes).unwrap().map(Result::unwrap).collect();
    assert_eq!(events, [KeyEvent::Deleted { key: b"a" }, KeyEvent::Deleted { key: b"b" }]);
}

#[test]
fn client_keys_cannot_use_up_the_room_of_topics_and_nodes() {
    let limits = ControlStateLimits { state_bytes_max: 1_000, ..ControlStateLimits::default() };
    let mut stage = TestState { state: ControlState::new(limits), ..TestState::default() };
    let full = (0..).find(|number: &u32| {
        let key = format!("key/{number}");
        stage.ask(ControlCommand::Put { key: key.as_bytes(), value: b"value", lease: 0 }).is_err()
    });
    let full = full.unwrap();
    let lease = stage.grant(1_000);
    stage.ask(ControlCommand::Enlist { node: 1, lease, value: b"here" }).unwrap();
    let wanted = dunlin_control::OwnerRequest {
        topic: b"orders",
        pattern: b"orders",
        kind: dunlin_control::TopicKind::Volatile,
        config: b"c",
        epoch: 1,
        node: 1,
        holds: false,
    };
    stage.ask(ControlCommand::Place { wanted }).unwrap();
    let lock = ControlCommand::Acquire { name: b"gate", lease, value: b"", wait: false };
    assert!(matches!(stage.ask(lock.clone()), Err(ControlRefusal::NoRoom { .. })), "locks count for clients");
    assert!(stage.state.bytes() <= 1_000 && stage.state.cluster_bytes() > 0);
    let again = restored(&blocks(&stage.state)).unwrap();
    let counted = |state: &ControlState| (state.bytes(), state.cluster_bytes());
    assert_eq!(counted(&again), counted(&stage.state), "the snapshot keeps the counts");
    for number in 0..full {
        stage.ask(ControlCommand::Delete { key: format!("key/{number}").as_bytes() }).unwrap();
    }
    stage.ask(lock).unwrap();
}

/// Writes a key for a user of a tenant.
fn put_of(stage: &mut TestState, tenant: &str, key: &str) -> Result<ControlReply, ControlRefusal> {
    let mut bytes = Vec::new();
    ControlCommand::Put { key: key.as_bytes(), value: &[b'x'; 100], lease: 0 }.encode(&mut bytes);
    let mut bound = Vec::new();
    ControlCommand::OfTenant { tenant: tenant.as_bytes(), command: &bytes }.encode(&mut bound);
    stage.ask(ControlCommand::decode(&bound).unwrap())
}

#[test]
fn one_tenant_cannot_use_up_the_room_for_keys() {
    let limits = ControlStateLimits { state_bytes_max: 20_000, ..ControlStateLimits::default() };
    let mut stage = TestState { state: ControlState::new(limits), ..TestState::default() };
    let fill = |stage: &mut TestState, tenant: &str| {
        (0..1_000).find(|number| put_of(stage, tenant, &format!("{tenant}/{number}")).is_err()).unwrap()
    };
    let (a, b) = (fill(&mut stage, "a"), fill(&mut stage, "b"));
    assert!(a > 3 * b && b > 10, "{a}, {b}");
    let refused = put_of(&mut stage, "a", "a/new").unwrap_err();
    assert!(matches!(refused, ControlRefusal::NoShare { .. }), "{refused}");
    assert!(refused.to_string().contains("delete keys, or raise kv.bytes_max"), "{refused}");
    put_of(&mut stage, "a", "a/1").unwrap();
    assert!(put_of(&mut stage, "a", "b/1").is_err(), "the key would count for the tenant");
    put_of(&mut stage, "c", "c/new").unwrap();
    stage.state = restored(&blocks(&stage.state)).unwrap();
    assert!(put_of(&mut stage, "a", "a/new").is_err(), "the snapshot keeps the tenants");
    let before = stage.state.bytes_of_tenant(b"a");
    stage.put("a/1", "x");
    assert!(stage.state.bytes_of_tenant(b"a") < before, "the last writer's tenant is charged");
    stage.ask(ControlCommand::DeleteRange { start: b"a", end: b"" }).unwrap();
    let left = ["a", "b", "c"].map(|tenant| stage.state.bytes_of_tenant(tenant.as_bytes()));
    assert_eq!((left, stage.state.bytes()), ([0; 3], 0));
    assert_eq!(fill(&mut stage, "b"), a, "as many bytes as the other tenant had");
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
    let mut stage = TestState::default();
    let (first, second) = (stage.grant(1_000), stage.grant(1_000));
    let of_tenant = |stage: &mut TestState, command: &ControlCommand<'_>| {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        stage.ask(ControlCommand::OfTenant { tenant: b"a", command: &bytes })
    };
    of_tenant(&mut stage, &ControlCommand::Acquire { name: b"gate", lease: first, value: b"", wait: false })
        .unwrap();
    assert_eq!(stage.state.bytes_of_tenant(b"a"), stage.state.bytes());
    stage.acquire("gate", second, true).unwrap();
    of_tenant(&mut stage, &ControlCommand::Release { name: b"gate", lease: first }).unwrap();
    assert_eq!(stage.state.bytes_of_tenant(b"a"), 0);
}
