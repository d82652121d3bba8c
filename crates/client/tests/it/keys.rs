//! Tests of keys, leases and locks, with a real node.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dunlin_client::state::{
    ComparedProperty, Comparison, ControlCommand, ControlQuery, ControlQueryResult, ControlReply,
    KeyOperation,
};
use dunlin_client::{ErrorCode, KvError, Transaction, WatchError, WatchFrom};
use dunlin_wait::{Deadline, PATIENCE, until};

use crate::running_node::RunningNode;

#[test]
fn client_puts_reads_swaps_and_deletes_keys() {
    let node = RunningNode::start();
    let kv = node.client().kv();
    assert_eq!(kv.get("a").unwrap(), None);
    assert_eq!(kv.put("a", "1").unwrap(), 1);
    assert_eq!(kv.cas("a", 7, "2"), Err(KvError::Moved { modified: 1 }));
    assert_eq!(kv.cas("a", 1, "2").unwrap(), 2);
    assert_eq!(kv.cas("b", 0, "new").unwrap(), 3);
    let entry = kv.get("a").unwrap().unwrap();
    assert_eq!((&*entry.value, entry.created, entry.modified, entry.version), (&b"2"[..], 1, 2, 2));
    assert_eq!(kv.stale().get("a").unwrap(), Some(entry));
    assert_eq!(kv.delete_if("a", 1), Err(KvError::Moved { modified: 2 }));
    let deleted = kv.delete("a").unwrap();
    assert_eq!((deleted.revision, deleted.keys), (4, 1));
    let again = kv.delete("a").unwrap();
    assert_eq!((again.revision, again.keys), (4, 0));
}

#[test]
fn key_ranges_are_paged_and_transactions_are_atomic() {
    let node = RunningNode::start();
    let kv = node.client().kv();
    let keys: Vec<String> = (0..250).map(|number| format!("k/{number:03}")).collect();
    let puts: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (key.as_bytes(), &b"v"[..])).collect();
    assert_eq!(kv.batch(&puts).unwrap(), 1, "one revision");
    kv.put("l", "after").unwrap();
    let page = kv.range("k/", "k0", 100).unwrap();
    assert!(page.more && page.entries.len() == 100 && page.revision == 2);
    let all: Vec<Vec<u8>> = kv.prefix("k/").unwrap().into_iter().map(|entry| entry.key).collect();
    assert_eq!(all, keys.iter().map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>());
    let transaction = Transaction::new()
        .compare(b"l", Comparison::Equal, ComparedProperty::Value { value: b"after" })
        .put(b"l", b"later")
        .then(KeyOperation::Get { key: b"l" })
        .otherwise(KeyOperation::Delete { key: b"l" });
    let done = kv.transact(&transaction).unwrap();
    assert!(done.succeeded && done.revision == 3 && done.results[0] == Ok(1));
    assert_eq!(&*done.results[1].as_ref().unwrap_err().0[0].value, b"later");
    assert!(!kv.transact(&transaction).unwrap().succeeded);
    assert_eq!(kv.get("l").unwrap(), None);
    assert_eq!(kv.delete_range("k/", "k0").unwrap().keys, 250);
}

#[test]
fn watch_delivers_every_revision_from_its_start() {
    let node = RunningNode::start();
    let kv = node.client().kv();
    let mut now = kv.watch("a/", WatchFrom::Now).unwrap();
    for (key, value) in [("a/1", "x"), ("b/1", "y"), ("a/2", "z")] {
        kv.put(key, value).unwrap();
    }
    kv.delete("a/1").unwrap();
    let next_change = |watch: &mut dunlin_client::Watch| {
        let change = watch.next_timeout(PATIENCE).unwrap().unwrap();
        let key = |event: &dunlin_client::KeyChange| match event {
            Ok(entry) => format!("{}={}", text(&entry.key), text(&entry.value)),
            Err(key) => format!("-{}", text(key)),
        };
        format!("{} {}", change.revision, change.events.iter().map(key).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(
        [next_change(&mut now), next_change(&mut now), next_change(&mut now)],
        ["1 a/1=x", "3 a/2=z", "4 -a/1"]
    );
    let (epoch, _) = kv.revision().unwrap();
    let from = |revision| WatchFrom::Revision { epoch, revision };
    let mut from_third = kv.watch("", from(3)).unwrap();
    assert_eq!([next_change(&mut from_third), next_change(&mut from_third)], ["3 a/2=z", "4 -a/1"]);
    let mut from_first = kv.watch("b/", WatchFrom::Oldest).unwrap();
    assert_eq!(next_change(&mut from_first), "2 b/1=y");
    assert!(kv.watch("", from(9)).is_err(), "the revision is in the future");
    let mut other_epoch = kv.watch("", WatchFrom::Revision { epoch: epoch - 1, revision: 3 }).unwrap();
    assert!(matches!(other_epoch.next(), Err(WatchError::Restarted { .. })), "revision 3 is another there");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn watch_from_a_compacted_revision_names_the_oldest_revision() {
    let mut config = dunlin::Config::default();
    config.limits.control.history_bytes = 64 << 10;
    let node = RunningNode::with_node(dunlin::Node::start(config).unwrap());
    let kv = node.client().kv();
    let big = vec![b'x'; 2_000];
    for _ in 0..200 {
        kv.put("a", &big).unwrap();
    }
    let (epoch, _) = kv.revision().unwrap();
    let from = |revision| WatchFrom::Revision { epoch, revision };
    let mut watch = kv.watch("", from(5)).unwrap();
    let Err(WatchError::Compacted { missed: 5, oldest }) = watch.next() else { panic!() };
    assert!(oldest > 100);
    let mut watch = kv.watch("", from(oldest)).unwrap();
    let change = watch.next().unwrap();
    assert_eq!((change.epoch, change.revision), (epoch, oldest));
}

#[test]
fn concurrent_commands_and_queries_get_their_own_responses() {
    let node = RunningNode::start();
    let client = node.client();
    let kv = client.kv();
    for _ in 0..4 {
        let keys: Vec<String> = (0..256).map(|number| format!("k/{number}")).collect();
        let pending: Vec<_> = keys
            .iter()
            .map(|key| kv.begin(&ControlCommand::Put { key: key.as_bytes(), value: b"v", lease: 0 }).unwrap())
            .collect();
        let mut revisions: Vec<u64> = pending
            .into_iter()
            .map(|pending| match pending.wait().unwrap() {
                ControlReply::Changed { revision, keys: 1 } => revision,
                other => panic!("{other:?}"),
            })
            .collect();
        revisions.dedup();
        assert_eq!(revisions.len(), 256);
    }
    assert_eq!(kv.revision().unwrap().1, 1_024);
    let keys: Vec<String> = (0..256).map(|number| format!("k/{number}")).collect();
    let pending: Vec<_> =
        keys.iter().map(|key| kv.begin_query(&ControlQuery::Get { key: key.as_bytes() }).unwrap()).collect();
    for (key, pending) in keys.iter().zip(pending) {
        let ControlQueryResult::Found { found, .. } = pending.wait().unwrap() else {
            panic!("another answer")
        };
        assert_eq!((found.items[0].key.as_ref(), found.items[0].item.version), (key.as_bytes(), 4));
    }
    let (commands, duration) = node.node.control().unwrap().commits().unwrap();
    assert!(commands >= 1_024 && !duration.is_zero(), "{commands} in {duration:?}");
}

#[test]
fn commands_and_watches_can_be_awaited() {
    let node = RunningNode::start();
    let kv = node.client().kv();
    let mut watch = kv.watch("", WatchFrom::Now).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let pending = kv.begin(&ControlCommand::Put { key: b"a", value: b"1", lease: 0 }).unwrap();
        let reply = tokio::time::timeout(PATIENCE, pending.answered()).await.unwrap().unwrap();
        assert_eq!(reply, ControlReply::Changed { revision: 1, keys: 1 });
        let change = tokio::time::timeout(PATIENCE, watch.changed()).await.unwrap().unwrap();
        assert_eq!(change.revision, 1);
    });
}

#[test]
fn renewed_lease_survives_and_unrenewed_lease_is_lost() {
    let node = RunningNode::start();
    let kv = node.client().kv();
    // If the machine pauses for longer than the time to live, it is right that the lease ends. The test is then
    // repeated with a longer time to live.
    let (renewed, unrenewed) = [500, 3_000, 15_000, 60_000]
        .into_iter()
        .find_map(|ttl_ms| {
            let mut renewed = kv.lease(Duration::from_millis(ttl_ms)).unwrap();
            renewed.start_renewal().unwrap();
            let unrenewed = kv.lease(Duration::from_millis(ttl_ms)).unwrap();
            let keys = [format!("kept {ttl_ms}"), format!("left {ttl_ms}")];
            kv.put_with_lease(keys[0].as_str(), "1", renewed.id()).ok()?;
            kv.put_with_lease(keys[1].as_str(), "1", unrenewed.id()).ok()?;
            let lost = unrenewed.wait_lost(PATIENCE).unwrap();
            assert_eq!(lost.lease, unrenewed.id());
            until("the key ends with its lease", || kv.get(keys[1].as_str()).unwrap().is_none());
            (kv.get(keys[0].as_str()).unwrap().is_some() && renewed.check().is_ok())
                .then_some((renewed, unrenewed))
        })
        .expect("a renewed lease lives");
    kv.revoke(renewed.id()).unwrap();
    assert!(renewed.wait_lost(PATIENCE).is_some(), "the revocation is reported");
    assert_eq!(
        kv.put_with_lease("late", "1", unrenewed.id()),
        Err(KvError::NoLease { lease: unrenewed.id() })
    );
}

#[test]
fn next_holder_of_a_released_lock_gets_a_higher_token() {
    let node = RunningNode::start();
    let (kv, other) = (node.client().kv(), node.client().kv());
    let lease = kv.lease(Duration::from_secs(60)).unwrap();
    let lock = kv.lock("gate", &lease, b"first").unwrap();
    let other_lease = other.lease(Duration::from_secs(60)).unwrap();
    let held = other.try_lock("gate", &other_lease, b"").unwrap_err();
    assert_eq!(held, KvError::Held { holder: lease.id(), token: lock.token() });
    assert_eq!(&*kv.holder("gate").unwrap().unwrap().value, b"first");
    let waiting = thread::spawn(move || {
        other.lock("gate", &other_lease, b"second").map(|lock| (lock.token(), lock, other_lease))
    });
    let waits = || kv.lease_state(lease.id() + 1).unwrap().is_some_and(|state| state.waits > 0);
    until("the other waits", waits);
    lock.proclaim(b"still").unwrap();
    let token = lock.token();
    lock.release().unwrap();
    let (next, other_lock, _lease) = waiting.join().unwrap().unwrap();
    assert!(next > token);
    other_lock.proclaim(b"third").unwrap();
    assert_eq!(&*kv.holder("gate").unwrap().unwrap().value, b"third");
}

#[test]
fn lock_request_is_repeated_after_a_lost_connection() {
    let mut node = RunningNode::start();
    let kv = node.client().kv();
    let others = node.client();
    let other = others.kv();
    let lease = kv.lease(Duration::from_secs(60)).unwrap();
    let other_lease = other.lease(Duration::from_secs(60)).unwrap();
    let lock = kv.lock("gate", &lease, b"").unwrap();
    let waits = || kv.lease_state(lease.id() + 1).unwrap().is_some_and(|state| state.waits == 1);
    let waiting =
        thread::spawn(move || other.lock("gate", &other_lease, b"").map(|lock| (lock, other_lease)));
    until("the other waits", waits);
    let before = others.connections();
    node.cut();
    until("the other is back", || others.connections() > before);
    lock.release().unwrap_or_else(|error| {
        assert!(matches!(error, KvError::Unknown(_) | KvError::Disconnected(_)), "{error}")
    });
    // If the first release was lost, this one releases the lock. If this one is lost too, the lock becomes free when
    // the lease ends.
    let _ = kv.command(&ControlCommand::Release { name: b"gate", lease: lease.id() });
    waiting.join().unwrap().unwrap();
}

#[test]
fn invalid_keys_are_refused_and_the_connection_survives() {
    let node = RunningNode::start();
    let client = node.client();
    let kv = client.kv();
    let refused = |result: Result<u64, KvError>| match result {
        Err(KvError::Refused(refused)) => (refused.code, refused.numbers, refused.text),
        other => panic!("{other:?}"),
    };
    let limits = node.node.control().unwrap().with(|state| state.limits()).unwrap();
    let (code, numbers, name) = refused(kv.put(vec![b'k'; limits.key_bytes_max as usize + 1], ""));
    assert_eq!(
        (code, numbers[0], &*name),
        (ErrorCode::KeyTooLarge, u64::from(limits.key_bytes_max) + 1, "key_bytes_max")
    );
    let (code, _, name) = refused(kv.put("a", vec![0; limits.value_bytes_max as usize + 1]));
    assert_eq!((code, &*name), (ErrorCode::KeyTooLarge, "value_bytes_max"));
    let (code, numbers, name) = refused(kv.put("a", vec![0; 16 << 20]));
    assert_eq!(
        (code, &*name),
        (ErrorCode::KeyTooLarge, "run_bytes_max"),
        "refused here, and the connection goes on"
    );
    assert!(numbers[0] > 16 << 20 && numbers[1] == 16 << 20, "{numbers:?}");
    let puts = vec![(&b"a"[..], &b""[..]); limits.operations_max as usize + 1];
    assert_eq!(refused(kv.batch(&puts)).2, "operations_max");
    assert_eq!(refused(kv.put("", "")).0, ErrorCode::BadKey);
    assert_eq!(refused(kv.put("$lock/gate", "")).0, ErrorCode::BadKey);
    assert_eq!(refused(kv.delete_range("b", "a").map(|written| written.keys)).0, ErrorCode::BadKey);
    let begin = kv.command(&ControlCommand::Begin { epoch: u32::MAX }).unwrap_err();
    assert!(matches!(begin, KvError::Refused(refused) if refused.code == ErrorCode::Forbidden));
    assert_eq!(kv.put("a", "1").unwrap(), 1);
    assert_eq!(client.connections(), 1);
}

#[test]
fn idle_watch_and_lease_survive_a_lost_connection() {
    let mut node = RunningNode::start();
    let kv = node.client().kv();
    let mut lease = kv.lease(Duration::from_secs(30)).unwrap();
    lease.start_renewal().unwrap();
    let mut watch = kv.watch("", WatchFrom::Now).unwrap();
    kv.put_with_lease("a", "1", lease.id()).unwrap();
    assert_eq!(watch.next_timeout(PATIENCE).unwrap().unwrap().revision, 1);
    node.cut();
    let again = Arc::new(node.client());
    again.kv().put("b", "2").unwrap();
    let deadline = Deadline::new();
    let revision = loop {
        match watch.next_timeout(Duration::from_secs(1)) {
            Ok(Some(change)) => break change.revision,
            Ok(None) | Err(WatchError::Subscribe(_)) => deadline.check("the watch receives the change"),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(revision, 2);
    assert!(kv.get("a").unwrap().is_some() && lease.keep_alive().is_ok());
}
