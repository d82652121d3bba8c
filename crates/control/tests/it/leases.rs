//! Tests of leases, and of the keys that end with them.

use super::snapshots::{blocks, restore};
use super::*;

#[test]
fn keys_of_an_ended_lease_are_deleted_in_one_revision() {
    let mut test = TestState::default();
    let lease = test.grant(100);
    test.put_with_lease("a", "1", lease);
    test.put_with_lease("b", "1", lease);
    test.put("c", "1");
    test.advance(99);
    assert_eq!(test.keys(), ["a", "b", "c"]);
    test.advance(100);
    assert_eq!((test.keys(), test.state.revision()), (vec!["c".to_owned()], 4));
    assert_eq!(test.state.lease(lease), None);
}

#[test]
fn renewed_lease_ends_one_ttl_after_its_renewal() {
    let mut test = TestState::default();
    let (renewed, unrenewed) = (test.grant(100), test.grant(100));
    test.advance(60);
    let reply = test.apply(ControlCommand::KeepAlive { leases: vec![renewed, 77] });
    assert_eq!(reply, Ok(ControlReply::KeptAlive { ended: vec![77] }));
    test.advance(159);
    assert_eq!(
        (test.state.lease(renewed).map(|info| info.left_ms), test.state.lease(unrenewed)),
        (Some(1), None)
    );
    assert_eq!(test.state.next_lease_end_ms(), Some(160));
}

#[test]
fn earlier_time_does_not_set_the_clock_back() {
    let mut test = TestState::default();
    test.advance(1_000);
    test.advance(10);
    let lease = test.grant(100);
    assert_eq!((test.state.now_ms(), test.state.lease(lease).unwrap().left_ms), (1_000, 100));
}

#[test]
fn key_belongs_to_the_lease_of_its_last_write() {
    let mut test = TestState::default();
    let (first, second) = (test.grant(100), test.grant(200));
    test.put_with_lease("a", "1", first);
    test.put_with_lease("a", "2", second);
    test.put_with_lease("b", "1", second);
    test.put("b", "2");
    test.advance(100);
    assert_eq!(test.keys(), ["a", "b"]);
    test.advance(200);
    assert_eq!(test.keys(), ["b"], "a key without a lease stays");
}

#[test]
fn put_with_an_ended_lease_is_refused() {
    let mut test = TestState::default();
    let lease = test.grant(100);
    assert_eq!(
        test.apply(ControlCommand::Revoke { lease }),
        Ok(ControlReply::Changed { revision: 0, keys: 0 })
    );
    let put = ControlCommand::Put { key: b"a", value: b"1", lease };
    assert_eq!(test.apply(put), Err(ControlRefusal::NoLease { lease }));
    assert_eq!(test.apply(ControlCommand::Revoke { lease }), Err(ControlRefusal::NoLease { lease }));
    assert_eq!(test.grant(1), lease + 1, "a lease number is never reused");
}

#[test]
fn number_and_duration_of_leases_are_limited() {
    let limits = ControlStateLimits {
        leases_max: 2,
        lease_ttl_ms_max: 50,
        operations_max: 3,
        ..ControlStateLimits::default()
    };
    let mut test = TestState { state: ControlState::new(limits), ..TestState::default() };
    for ttl_ms in [0, 51] {
        assert_eq!(
            test.apply(ControlCommand::Grant { ttl_ms }),
            Err(ControlRefusal::LeaseTtl { ttl_ms_max: 50 })
        );
    }
    test.grant(1);
    test.grant(50);
    assert_eq!(
        test.apply(ControlCommand::Grant { ttl_ms: 1 }),
        Err(ControlRefusal::TooManyLeases { count_max: 2 })
    );
    test.advance(1);
    test.grant(1);
    let many = ControlCommand::KeepAlive { leases: vec![1; 4] };
    assert_eq!(test.apply(many), Err(ControlRefusal::TooManyOperations { count: 4, count_max: 3 }));
}

/// Applies a command on behalf of a user.
fn apply_as_user(
    test: &mut TestState,
    user: &str,
    command: &ControlCommand<'_>,
) -> Result<ControlReply, ControlRefusal> {
    let mut bytes = Vec::new();
    command.encode(&mut bytes);
    let all_leases = user == "root";
    let command = ControlCommand::ByUser { user: user.as_bytes(), all_leases, command: &bytes };
    let mut bytes = Vec::new();
    command.encode(&mut bytes);
    assert_eq!(ControlCommand::decode(&bytes).as_ref(), Ok(&command));
    test.apply(command)
}

fn grant_to_user(test: &mut TestState, user: &str) -> u64 {
    match apply_as_user(test, user, &ControlCommand::Grant { ttl_ms: 100 }) {
        Ok(ControlReply::Granted { lease, .. }) => lease,
        other => panic!("{other:?}"),
    }
}

#[test]
fn other_users_cannot_use_or_revoke_a_lease() {
    let mut test = TestState::default();
    let lease = grant_to_user(&mut test, "ana");
    let put = KeyOperation::Put { key: b"k", value: b"v", lease };
    let foreign = [
        ControlCommand::Put { key: b"k", value: b"v", lease },
        ControlCommand::PutIf { key: b"k", value: b"v", lease, expect: 0 },
        ControlCommand::Transaction { compare: vec![], then: vec![put], otherwise: vec![] },
        ControlCommand::Transaction { compare: vec![], then: vec![], otherwise: vec![put] },
        ControlCommand::Acquire { name: b"lock", lease, value: b"", wait: true },
        ControlCommand::Release { name: b"lock", lease },
        ControlCommand::Proclaim { name: b"lock", lease, value: b"" },
        ControlCommand::Revoke { lease },
    ];
    for command in &foreign {
        let refused = match command {
            ControlCommand::Release { .. } | ControlCommand::Proclaim { .. } => {
                ControlRefusal::NotHeld { lease }
            }
            _ => ControlRefusal::NoLease { lease },
        };
        assert_eq!(apply_as_user(&mut test, "bob", command), Err(refused), "{command:?}");
    }
    let keep_alive = ControlCommand::KeepAlive { leases: vec![lease] };
    test.advance(60);
    assert_eq!(
        apply_as_user(&mut test, "bob", &keep_alive),
        Ok(ControlReply::KeptAlive { ended: vec![lease] })
    );
    assert_eq!(test.state.lease(lease).unwrap().left_ms, 40, "no other user renews the lease");
    assert_eq!(apply_as_user(&mut test, "ana", &keep_alive), Ok(ControlReply::KeptAlive { ended: vec![] }));
    assert!(apply_as_user(&mut test, "ana", &foreign[0]).is_ok());
    assert!(apply_as_user(&mut test, "ana", &foreign[4]).is_ok());
    let mut restorer = StateRestorer::default();
    test.state.freeze().write(|block| restorer.read_block(block)).unwrap();
    test.state = restorer.end().unwrap();
    assert_eq!(test.state.lease_owner(lease), Some(&b"ana"[..]));
    assert_eq!(apply_as_user(&mut test, "bob", &foreign[7]), Err(ControlRefusal::NoLease { lease }));
    assert!(apply_as_user(&mut test, "root", &foreign[7]).is_ok());
    assert_eq!(test.state.len(), 0);
}

#[test]
fn lease_of_a_node_cannot_be_revoked_by_users() {
    let mut test = TestState::default();
    let lease = test.grant(100);
    test.apply(ControlCommand::Enlist { node: 1, lease, value: b"" }).unwrap();
    for user in ["", "ana", "root"] {
        let revoked = apply_as_user(&mut test, user, &ControlCommand::Revoke { lease });
        assert_eq!(revoked, Err(ControlRefusal::NoLease { lease }), "{user}");
    }
}

#[test]
fn cluster_command_on_behalf_of_a_user_is_refused() {
    let mut bytes = Vec::new();
    ControlCommand::Limit { limits: ControlStateLimits::default() }.encode(&mut bytes);
    let command = ControlCommand::ByUser { user: b"ana", all_leases: true, command: &bytes };
    let mut nested = Vec::new();
    command.encode(&mut nested);
    assert!(ControlCommand::decode(&nested).is_err());
    let twice = ControlCommand::ByUser { user: b"ana", all_leases: true, command: &nested };
    let mut bytes = Vec::new();
    twice.encode(&mut bytes);
    assert!(ControlCommand::decode(&bytes).is_err());
}

/// Grants leases to a user until the user has as many as one user may have. Returns the number of these leases.
fn grant_until_refused(test: &mut TestState, user: &'static str) -> u64 {
    for count in 0.. {
        match apply_as_user(test, user, &ControlCommand::Grant { ttl_ms: 100 }) {
            Ok(_) => {}
            Err(ControlRefusal::TooManyLeasesOfUser { count_max }) if count_max == count => return count,
            Err(other) => panic!("{user}, after {count}: {other}"),
        }
    }
    unreachable!("they end")
}

#[test]
fn one_user_cannot_use_up_the_leases_of_other_users_or_nodes() {
    let limits = ControlStateLimits { leases_max: 400, ..ControlStateLimits::default() };
    let mut test = TestState { state: ControlState::new(limits), ..TestState::default() };
    let grant = ControlCommand::Grant { ttl_ms: 100 };
    let count = grant_until_refused(&mut test, "ana");
    assert_eq!(count, 99, "a single user gets a quarter of the users' leases");
    let granted_leases = test.state.leases_of_user(b"ana");
    assert_eq!(granted_leases.len() as u64, count);
    apply_as_user(&mut test, "ana", &ControlCommand::Revoke { lease: granted_leases[0] }).unwrap();
    grant_to_user(&mut test, "ana");
    let full = Err(ControlRefusal::TooManyLeasesOfUser { count_max: 99 });
    assert_eq!(apply_as_user(&mut test, "ana", &grant), full);
    test.state = restore(&blocks(&test.state)).unwrap();
    assert_eq!(apply_as_user(&mut test, "ana", &grant), full, "the snapshot keeps the count");
    // Even if many users take all the leases that they can, the next user still gets some.
    let others = ["bob", "cid", "dan", "eve", "fay", "gil", "hal", "ida"];
    let counts: Vec<u64> = others.iter().map(|user| grant_until_refused(&mut test, user)).collect();
    assert!(counts.iter().all(|count| *count >= 10), "{counts:?}");
    let remaining = 400 - count - counts.iter().sum::<u64>();
    assert!(remaining > 4, "{remaining}");
    (0..remaining).for_each(|_| _ = test.grant(100));
    assert_eq!(
        test.apply(grant),
        Err(ControlRefusal::TooManyLeases { count_max: 400 }),
        "nodes get the remaining leases"
    );
}

/// Grants a lease to a user who belongs to a tenant.
fn grant_to_tenant_user(test: &mut TestState, tenant: &str, user: &str) -> Result<u64, ControlRefusal> {
    let (mut grant, mut by_user, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    ControlCommand::Grant { ttl_ms: 100 }.encode(&mut grant);
    ControlCommand::ByUser { user: user.as_bytes(), all_leases: false, command: &grant }.encode(&mut by_user);
    ControlCommand::OfTenant { tenant: tenant.as_bytes(), command: &by_user }.encode(&mut bytes);
    match test.apply(ControlCommand::decode(&bytes).unwrap())? {
        ControlReply::Granted { lease, .. } => Ok(lease),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_tenant_gets_at_most_three_quarters_of_the_leases() {
    let limits = ControlStateLimits { leases_max: 404, ..ControlStateLimits::default() };
    let mut test = TestState { state: ControlState::new(limits), ..TestState::default() };
    let mut granted_leases = Vec::new();
    let refused = (0..404).find_map(|user| {
        loop {
            match grant_to_tenant_user(&mut test, "evil", &format!("eve{user}")) {
                Ok(lease) => granted_leases.push(lease),
                Err(ControlRefusal::TooManyLeasesOfUser { .. }) => return None,
                Err(refused) => return Some(refused),
            }
        }
    });
    let full = ControlRefusal::TooManyLeasesOfTenant { count_max: 300 };
    assert_eq!((refused, granted_leases.len()), (Some(full), 300), "three quarters of the users' leases");
    test.state = restore(&blocks(&test.state)).unwrap();
    assert_eq!(grant_to_tenant_user(&mut test, "evil", "new"), Err(full), "the snapshot keeps the count");
    apply_as_user(&mut test, "eve0", &ControlCommand::Revoke { lease: granted_leases[0] }).unwrap();
    granted_leases.push(grant_to_tenant_user(&mut test, "evil", "new").unwrap());
    assert_eq!(grant_to_tenant_user(&mut test, "evil", "new"), Err(full));
    (0..20).for_each(|_| _ = grant_to_tenant_user(&mut test, "acme", "ana").unwrap());
    test.advance(100);
    grant_to_tenant_user(&mut test, "evil", "eve1").expect("ended leases do not count");
}

#[test]
fn leases_of_anonymous_users_leave_room_for_nodes() {
    let limits = ControlStateLimits { leases_max: 400, ..ControlStateLimits::default() };
    let mut test = TestState { state: ControlState::new(limits), ..TestState::default() };
    (0..396).for_each(|_| _ = grant_to_user(&mut test, ""));
    let grant = ControlCommand::Grant { ttl_ms: 100 };
    assert_eq!(apply_as_user(&mut test, "", &grant), Err(ControlRefusal::TooManyLeases { count_max: 396 }));
    (0..4).for_each(|_| _ = test.grant(100));
}

#[test]
fn end_of_a_lease_counts_as_one_change_plus_one_for_each_key() {
    let mut test = TestState::default();
    let lease = test.grant(1_000);
    test.put_with_lease("a", "1", lease);
    test.put_with_lease("b", "1", lease);
    test.grant(2_000);
    let has_more_due = |test: &TestState, now_ms, count| test.state.has_more_due(now_ms, count);
    assert!(!has_more_due(&test, 999, 0));
    assert!(has_more_due(&test, 1_000, 2) && !has_more_due(&test, 1_000, 3));
    assert!(has_more_due(&test, 2_000, 3) && !has_more_due(&test, 2_000, 4));
    test.advance(1_000);
    assert!(!has_more_due(&test, 1_000, 0));
}

#[test]
fn state_knows_how_many_keys_commands_may_delete() {
    let mut test = TestState::default();
    let lease = test.grant(1_000);
    for key in ["a", "b"] {
        test.put_with_lease(key, "1", lease);
    }
    test.put("c", "1");
    let range = |start, end| ControlCommand::DeleteRange { start, end };
    let operation = |start, end| KeyOperation::DeleteRange { start, end };
    let transaction = ControlCommand::Transaction {
        compare: vec![],
        then: vec![operation(b"a", b"c"), operation(b"b", b"")],
        otherwise: vec![operation(b"", b"b")],
    };
    for (commands, deleted) in [
        (vec![range(b"a", b"c")], 2),
        (vec![range(b"a", b"c"), ControlCommand::Delete { key: b"c" }, range(b"b", b"")], 4),
        (vec![transaction], 5),
        (vec![ControlCommand::Revoke { lease }, ControlCommand::Revoke { lease: 77 }], 2),
        (vec![ControlCommand::Put { key: b"k", value: b"v", lease }], 0),
    ] {
        let encoded = commands.iter().map(|command| {
            let mut bytes = Vec::new();
            command.encode(&mut bytes);
            bytes
        });
        let encoded: Vec<Vec<u8>> = encoded.collect();
        let deletes_more = |count| test.state.deletes_more(&mut encoded.iter().map(Vec::as_slice), count);
        assert!(!deletes_more(deleted), "{commands:?}");
        assert!(deleted == 0 || deletes_more(deleted - 1), "{commands:?}");
    }
}
