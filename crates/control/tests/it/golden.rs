//! The encoding of version 1 never changes: `tests/golden/*.hex` were written once.
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

fn commands() -> Vec<(&'static str, Command<'static>)> {
    let (key, value) = (&b"key"[..], &b"value"[..]);
    let compare = [
        (Comparison::Equal, Target::Version { version: 1 }),
        (Comparison::NotEqual, Target::Created { revision: 2 }),
        (Comparison::Less, Target::Modified { revision: 3 }),
        (Comparison::Greater, Target::Lease { lease: 4 }),
        (Comparison::Equal, Target::Value { value }),
    ];
    let compare = compare.map(|(is, target)| Compare { key, is, target }).to_vec();
    let then = vec![
        Operation::Put { key, value, lease: 5 },
        Operation::Delete { key },
        Operation::DeleteRange { start: b"a", end: b"b" },
    ];
    let otherwise = vec![Operation::Get { key }, Operation::Range { start: b"a", end: b"", limit: 6 }];
    vec![
        ("put", Command::Put { key, value, lease: 7 }),
        ("put_if", Command::PutIf { key, value, lease: 0, expect: 8 }),
        ("delete", Command::Delete { key }),
        ("delete_if", Command::DeleteIf { key, expect: 9 }),
        ("delete_range", Command::DeleteRange { start: b"a", end: b"b" }),
        ("transaction", Command::Transaction { compare, then, otherwise }),
        ("grant", Command::Grant { ttl_ms: 10 }),
        ("keep_alive", Command::KeepAlive { leases: vec![11, 12] }),
        ("revoke", Command::Revoke { lease: 13 }),
        ("acquire", Command::Acquire { name: b"lock", lease: 14, value, wait: true }),
        ("release", Command::Release { name: b"lock", lease: 15 }),
        ("proclaim", Command::Proclaim { name: b"lock", lease: 16, value }),
        ("limit", Command::Limit { limits: Limits::default() }),
        ("begin", Command::Begin { epoch: 17 }),
        ("begin_restored", Command::BeginRestored { epoch: 18, skipped: 1_000_000_000 }),
        (
            "system",
            Command::System { compare: vec![], then: vec![Operation::Delete { key }], otherwise: vec![] },
        ),
        ("enlist", Command::Enlist { node: 17, lease: 18, value }),
        ("place", Command::Place { wanted: wanted() }),
        ("move", Command::Move { topic: b"orders", node: 19, epoch: 20 }),
        (
            "by_user",
            Command::ByUser { user: b"ana", all_leases: false, command: &[1, 9, 5, 0, 0, 0, 0, 0, 0, 0] },
        ),
        ("of_tenant", Command::OfTenant { tenant: b"acme", command: &[1, 3, 1, 0, 0, 0, b'k'] }),
        ("remove", Command::Remove { topic: b"orders" }),
    ]
}

fn wanted() -> Wanted<'static> {
    Wanted {
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
fn placement_keeps_its_bytes() {
    let (pattern, config) = (&b"orders.>"[..], &b"config"[..]);
    let placement = Placement { owner: 1, epoch: 2, kind: TopicKind::Replicated, pattern, config, from: 3 };
    let mut bytes = Vec::new();
    placement.encode(&mut bytes);
    assert_eq!(Placement::decode(&bytes), Ok(placement));
    check("placement", &bytes);
}

#[test]
fn commands_keep_their_bytes() {
    for (name, command) in commands() {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        assert_eq!(Command::decode(&bytes).as_ref(), Ok(&command));
        check(name, &bytes);
    }
}

#[test]
fn queries_and_responses_keep_their_bytes() {
    let queries = [
        ("query_get", Query::Get { key: b"key" }),
        ("query_range", Query::Range { start: b"a", end: b"b", limit: 3 }),
        ("query_lease", Query::Lease { lease: 4 }),
        ("query_leases", Query::Leases { after: 5, limit: 6 }),
        ("query_status", Query::Status),
    ];
    for (name, query) in queries {
        let mut bytes = Vec::new();
        query.encode(&mut bytes);
        assert_eq!(Query::decode(&bytes), Ok(query));
        check(name, &bytes);
    }
    let mut stage = TestState::default();
    let lease = stage.grant(1_000);
    stage.put_under("a", "1", lease);
    let answers = [
        ("answer_found", Query::Get { key: b"a" }),
        ("answer_leases", Query::Leases { after: 0, limit: 0 }),
        ("answer_status", Query::Status),
    ];
    for (name, query) in answers {
        let (mut bytes, answer) = (Vec::new(), stage.state.answer(&query).unwrap());
        answer.encode(&mut bytes);
        assert_eq!(Answer::decode(&bytes), Ok(answer));
        check(name, &bytes);
    }
    let answered = [
        ("answered_done", Answered::Done { reply: Reply::Done }),
        ("answered_refused", Answered::Refused { refusal: Refusal::EmptyKey }),
    ];
    for (name, answered) in answered {
        let mut bytes = Vec::new();
        answered.encode(&mut bytes);
        assert_eq!(Answered::decode(&bytes), Ok(answered));
        check(name, &bytes);
    }
}

#[test]
fn replies_refusals_changes_and_snapshots_keep_their_bytes() {
    let mut stage = TestState::default();
    let leases = [0; 2].map(|_| stage.grant(1_000));
    stage.put_under("a", "1", leases[0]);
    let gates = leases.map(|lease| stage.acquire("gate", lease, true).unwrap());
    let read = |key| Operation::Get { key };
    let then = vec![Operation::Put { key: b"b", value: b"2", lease: 0 }, read(b"a"), read(b"none")];
    let transaction = Command::Transaction { compare: vec![], then, otherwise: vec![] };
    let replies = [
        ("reply_transaction", stage.ask(transaction).unwrap()),
        ("reply_changed", stage.ask(Command::Delete { key: b"b" }).unwrap()),
        ("reply_granted", Reply::Granted { lease: 3, ttl_ms: 1_000 }),
        ("reply_kept_alive", Reply::KeptAlive { ended: vec![9] }),
        ("reply_held", gates[0].clone()),
        ("reply_waiting", gates[1].clone()),
        ("reply_done", Reply::Done),
        ("reply_placed", Reply::Placed { owner: 4, epoch: 5, made: true }),
    ];
    for (name, reply) in replies {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        assert_eq!(Reply::decode(&bytes), Ok(reply));
        check(name, &bytes);
    }
    let mut bytes = Vec::new();
    Refusal::Held { holder: 1, token: 2 }.encode(&mut bytes);
    assert_eq!(Refusal::decode(&bytes), Ok(Refusal::Held { holder: 1, token: 2 }));
    check("refusal", &bytes);
    check("change", &stage.effects.changes.last().unwrap().bytes);
    check("snapshot", &snapshots::blocks(&stage.state).concat());
}
