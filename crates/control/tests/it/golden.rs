//! Tests that the encoding of version 1 never changes: it must always equal the bytes in `tests/golden/*.hex`.
//!
//! `DUNLIN_WRITE_GOLDEN=1 cargo test -p dunlin-control` writes the files of new encodings.

use std::path::Path;

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

fn commands() -> Vec<(&'static str, ControlCommand<'static>)> {
    let (key, value) = (&b"key"[..], &b"value"[..]);
    let compare = [
        (Comparison::Equal, ComparedProperty::Version { version: 1 }),
        (Comparison::NotEqual, ComparedProperty::Created { revision: 2 }),
        (Comparison::Less, ComparedProperty::Modified { revision: 3 }),
        (Comparison::Greater, ComparedProperty::Lease { lease: 4 }),
        (Comparison::Equal, ComparedProperty::Value { value }),
    ];
    let compare = compare.map(|(is, target)| Compare { key, is, target }).to_vec();
    let then = vec![
        KeyOperation::Put { key, value, lease: 5 },
        KeyOperation::Delete { key },
        KeyOperation::DeleteRange { start: b"a", end: b"b" },
    ];
    let otherwise = vec![KeyOperation::Get { key }, KeyOperation::Range { start: b"a", end: b"", limit: 6 }];
    vec![
        ("put", ControlCommand::Put { key, value, lease: 7 }),
        ("put_if", ControlCommand::PutIf { key, value, lease: 0, expect: 8 }),
        ("delete", ControlCommand::Delete { key }),
        ("delete_if", ControlCommand::DeleteIf { key, expect: 9 }),
        ("delete_range", ControlCommand::DeleteRange { start: b"a", end: b"b" }),
        ("transaction", ControlCommand::Transaction { compare, then, otherwise }),
        ("grant", ControlCommand::Grant { ttl_ms: 10 }),
        ("keep_alive", ControlCommand::KeepAlive { leases: vec![11, 12] }),
        ("revoke", ControlCommand::Revoke { lease: 13 }),
        ("acquire", ControlCommand::Acquire { name: b"lock", lease: 14, value, wait: true }),
        ("release", ControlCommand::Release { name: b"lock", lease: 15 }),
        ("proclaim", ControlCommand::Proclaim { name: b"lock", lease: 16, value }),
        ("limit", ControlCommand::Limit { limits: ControlStateLimits::default() }),
        ("begin", ControlCommand::Begin { epoch: 17 }),
        ("begin_restored", ControlCommand::BeginRestored { epoch: 18, skipped: 1_000_000_000 }),
        (
            "system",
            ControlCommand::System {
                compare: vec![],
                then: vec![KeyOperation::Delete { key }],
                otherwise: vec![],
            },
        ),
        ("enlist", ControlCommand::Enlist { node: 17, lease: 18, value }),
        ("place", ControlCommand::Place { request: owner_request() }),
        ("move", ControlCommand::Move { topic: b"orders", node: 19, epoch: 20 }),
        (
            "by_user",
            ControlCommand::ByUser {
                user: b"ana",
                all_leases: false,
                command: &[1, 9, 5, 0, 0, 0, 0, 0, 0, 0],
            },
        ),
        ("of_tenant", ControlCommand::OfTenant { tenant: b"acme", command: &[1, 3, 1, 0, 0, 0, b'k'] }),
        ("remove", ControlCommand::Remove { topic: b"orders" }),
    ]
}

fn owner_request() -> OwnerRequest<'static> {
    OwnerRequest {
        topic: b"orders",
        pattern: b"orders.>",
        kind: TopicKind::Durable,
        config: b"config",
        epoch: 21,
        node: 22,
        holds: true,
    }
}

#[test]
fn placement_encoding_does_not_change() {
    let (pattern, config) = (&b"orders.>"[..], &b"config"[..]);
    let placement = Placement { owner: 1, epoch: 2, kind: TopicKind::Replicated, pattern, config, from: 3 };
    let mut bytes = Vec::new();
    placement.encode(&mut bytes);
    assert_eq!(Placement::decode(&bytes), Ok(placement));
    check("placement", &bytes);
}

#[test]
fn command_encoding_does_not_change() {
    for (name, command) in commands() {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        assert_eq!(ControlCommand::decode(&bytes).as_ref(), Ok(&command));
        check(name, &bytes);
    }
}

#[test]
fn query_and_response_encodings_do_not_change() {
    let queries = [
        ("query_get", ControlQuery::Get { key: b"key" }),
        ("query_range", ControlQuery::Range { start: b"a", end: b"b", limit: 3 }),
        ("query_lease", ControlQuery::Lease { lease: 4 }),
        ("query_leases", ControlQuery::Leases { after: 5, limit: 6 }),
        ("query_status", ControlQuery::Status),
    ];
    for (name, query) in queries {
        let mut bytes = Vec::new();
        query.encode(&mut bytes);
        assert_eq!(ControlQuery::decode(&bytes), Ok(query));
        check(name, &bytes);
    }
    let mut test = TestState::default();
    let lease = test.grant(1_000);
    test.put_with_lease("a", "1", lease);
    let answers = [
        ("answer_found", ControlQuery::Get { key: b"a" }),
        ("answer_leases", ControlQuery::Leases { after: 0, limit: 0 }),
        ("answer_status", ControlQuery::Status),
    ];
    for (name, query) in answers {
        let (mut bytes, answer) = (Vec::new(), test.state.answer(&query).unwrap());
        answer.encode(&mut bytes);
        assert_eq!(ControlQueryResult::decode(&bytes), Ok(answer));
        check(name, &bytes);
    }
    let outcomes = [
        ("answered_done", ControlOutcome::Done { reply: ControlReply::Done }),
        ("answered_refused", ControlOutcome::Refused { refusal: ControlRefusal::EmptyKey }),
    ];
    for (name, outcome) in outcomes {
        let mut bytes = Vec::new();
        outcome.encode(&mut bytes);
        assert_eq!(ControlOutcome::decode(&bytes), Ok(outcome));
        check(name, &bytes);
    }
}

#[test]
fn reply_and_watch_and_snapshot_encodings_do_not_change() {
    let mut test = TestState::default();
    let leases = [0; 2].map(|_| test.grant(1_000));
    test.put_with_lease("a", "1", leases[0]);
    let gates = leases.map(|lease| test.acquire("gate", lease, true).unwrap());
    let read = |key| KeyOperation::Get { key };
    let then = vec![KeyOperation::Put { key: b"b", value: b"2", lease: 0 }, read(b"a"), read(b"none")];
    let transaction = ControlCommand::Transaction { compare: vec![], then, otherwise: vec![] };
    let replies = [
        ("reply_transaction", test.apply(transaction).unwrap()),
        ("reply_changed", test.apply(ControlCommand::Delete { key: b"b" }).unwrap()),
        ("reply_granted", ControlReply::Granted { lease: 3, ttl_ms: 1_000 }),
        ("reply_kept_alive", ControlReply::KeptAlive { ended: vec![9] }),
        ("reply_held", gates[0].clone()),
        ("reply_waiting", gates[1].clone()),
        ("reply_done", ControlReply::Done),
        ("reply_placed", ControlReply::Placed { owner: 4, epoch: 5, created: true }),
    ];
    for (name, reply) in replies {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        assert_eq!(ControlReply::decode(&bytes), Ok(reply));
        check(name, &bytes);
    }
    let mut bytes = Vec::new();
    ControlRefusal::Held { holder: 1, token: 2 }.encode(&mut bytes);
    assert_eq!(ControlRefusal::decode(&bytes), Ok(ControlRefusal::Held { holder: 1, token: 2 }));
    check("refusal", &bytes);
    check("change", &test.effects.changes.last().unwrap().bytes);
    check("snapshot", &snapshots::blocks(&test.state).concat());
}
