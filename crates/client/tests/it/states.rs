//! Tests of replicas of state topics, over a connection. Every replica must equal the order book that the publisher
//! keeps.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dunlin::feed::{Book, BookEntry, Replica, ReplicaCounts, ReplicaReport, Scale, Side};
use dunlin::topic::*;
use dunlin_client::{Client, ClientLimits, ClientOptions, Subscriber};
use dunlin_wait::{Deadline, PATIENCE, until};

use crate::cut_connections::Proxy;
use crate::peer::ScriptedNode;
use crate::running_node::{RunningNode, patient};

fn now_ns() -> u64 {
    dunlin::now_ns()
}

fn book(retention_bytes: u64) -> TopicConfig {
    TopicConfig {
        retention: Retention { bytes: retention_bytes, ..Retention::default() },
        reducer: Some(ReducerConfig { kind: "book".to_owned(), options: BTreeMap::new() }),
        ..TopicConfig::default()
    }
}

fn with_snapshots() -> SubscribeOptions {
    SubscribeOptions { start: Start::Snapshot, on_gap: OnGap::Snapshot, ..SubscribeOptions::default() }
}

fn conflated() -> SubscribeOptions {
    SubscribeOptions { conflate: true, ..with_snapshots() }
}

type TcpReplica = Replica<Book, Subscriber>;

fn replica(client: &Client, pattern: &str, options: &SubscribeOptions) -> TcpReplica {
    let subscriber = client.subscribe(pattern, options.clone()).unwrap();
    Replica::new(subscriber, |_| Book::new(Scale::default())).with_retry_ns(500_000_000)
}

/// A publisher that sets and removes random price levels, and makes the same changes to an order book of its own.
struct Source {
    publisher: Publisher,
    subject: String,
    oracle: Book,
    levels: u64,
    random: u64,
    seq: u64,
}

impl Source {
    fn new(running: &RunningNode, subject: &str, levels: u64) -> Source {
        let publisher = running.node.publisher(subject).unwrap();
        let (subject, oracle) = (subject.to_owned(), Book::new(Scale::default()));
        Source { publisher, subject, oracle, levels, random: 7, seq: 0 }
    }

    fn entry(&mut self, at: Option<u64>) -> BookEntry {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        let level = at.unwrap_or((self.random >> 33) % self.levels) as i64;
        let (side, price) = match level % 2 {
            0 => (Side::Bid, 1_000_000 - level),
            _ => (Side::Ask, 1_000_001 + level),
        };
        match (self.random >> 20) % 5 {
            0 if at.is_none() => BookEntry::Remove { side, price },
            _ => BookEntry::Set { side, price, size: 1 + (self.random >> 40) as i64 },
        }
    }

    fn publish_entry(&mut self, at: Option<u64>) {
        let mut payload = Vec::new();
        self.entry(at).encode(&mut payload);
        let mut draft = Draft::from(payload.as_slice());
        draft.meta.event_time_ns = Some(now_ns());
        self.publisher.publish(draft).unwrap();
        self.seq += 1;
        self.oracle.apply_payload(self.seq, &payload).unwrap();
    }

    fn fill(&mut self) {
        (0..self.levels).for_each(|level| self.publish_entry(Some(level)));
    }

    fn publish(&mut self, count: u64) {
        (0..count).for_each(|_| self.publish_entry(None));
    }

    fn bytes(book: &mut Book) -> Vec<u8> {
        let mut bytes = Vec::new();
        book.freeze().write(&mut bytes);
        bytes
    }

    /// Waits until the replica has applied all records, and compares it with the publisher's order book.
    fn assert_equal_to(&mut self, replica: &mut TcpReplica, name: &str) {
        let log = LogName { topic: self.subject.clone(), subject_prefix: self.subject.clone(), partition: 0 };
        let deadline = Deadline::new();
        while replica.state(&log).is_none_or(|(at, _)| at.seq < self.seq) {
            let at = replica.state(&log).map(|(at, _)| at);
            deadline.check(format_args!("{name}: {} after {at:?}, {:?}", self.seq, replica.counts()));
            // The error of a cut connection is ignored, because the next read connects again.
            let _ = replica.wait(Some(Duration::from_millis(100)));
            let _ = replica.drain(now_ns(), usize::MAX, |_| ());
        }
        let (at, book) = replica.state(&log).unwrap();
        assert_eq!(at.seq, self.seq, "{name}");
        assert_eq!(book.checksum(), self.oracle.checksum(), "{name}");
        assert_eq!(book.entries(), self.oracle.entries(), "{name}");
    }
}

/// Applies records to the replica in steps. Between two steps, waits until `every` more records are published.
fn read_while(replica: &mut TcpReplica, is_active: &AtomicBool, published: &AtomicU64, every: u64) {
    let mut next = 0;
    while is_active.load(Ordering::Relaxed) {
        // The error of a cut connection is ignored, because the next read connects again.
        let _ = replica.wait(Some(Duration::from_millis(10)));
        let _ = replica.drain(now_ns(), 64, |_| ());
        until("more is published", || {
            !is_active.load(Ordering::Relaxed) || published.load(Ordering::Relaxed) >= next
        });
        next = published.load(Ordering::Relaxed) + every;
    }
}

#[test]
fn replicas_of_every_kind_reach_the_expected_states_under_load() {
    let running = RunningNode::start();
    running.node.create_topic("md.a", book(64 << 10), false).unwrap();
    let mut source = Source::new(&running, "md.a", 400);
    source.fill();
    let proxy = Proxy::start(running.address);
    let cut = format!("dunlin://{}", proxy.address);
    let test_loss_every = NonZeroU32::new(50);
    let kinds = [
        ("plain", with_snapshots(), running.url(), 0),
        ("slow", with_snapshots(), running.url(), 3_000),
        ("conflated", conflated(), running.url(), 0),
        ("conflated and slow", conflated(), running.url(), 600),
        ("losing", SubscribeOptions { test_loss_every, ..with_snapshots() }, running.url(), 0),
        ("cut", with_snapshots(), cut.clone(), 0),
        ("cut, conflated", conflated(), cut.clone(), 100),
        ("cut, losing", SubscribeOptions { test_loss_every, ..with_snapshots() }, cut, 0),
    ];
    let kinds = kinds
        .map(|(name, options, url, every)| (name, options, Client::connect(&url, patient()).unwrap(), every));
    let cut_clients: Vec<Client> =
        kinds.iter().filter(|kind| kind.0.starts_with("cut")).map(|kind| kind.2.clone()).collect();
    let (is_active, published) = (AtomicBool::new(true), AtomicU64::new(0));
    let mut ended: Vec<(&str, TcpReplica, Client)> = thread::scope(|scope| {
        let read = |(name, options, client, every): (&'static str, SubscribeOptions, Client, u64)| {
            let (is_active, published) = (&is_active, &published);
            scope.spawn(move || {
                let mut replica = replica(&client, "md.a", &options);
                read_while(&mut replica, is_active, published, every);
                (name, replica, client)
            })
        };
        let threads: Vec<_> = kinds.into_iter().map(read).collect();
        let (deadline, mut rounds) = (Deadline::new(), 0);
        while rounds < 400 || cut_clients.iter().any(|client| client.connections() < 2 && !deadline.is_over())
        {
            source.publish(250);
            published.store(source.seq, Ordering::Relaxed);
            rounds += 1;
        }
        is_active.store(false, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (name, replica, client) in &mut ended {
        source.assert_equal_to(replica, name);
        let counts: ReplicaCounts = replica.counts();
        println!("{name}: {counts:?} on {} connections", client.connections());
        assert_eq!((counts.divergent, counts.refused), (0, 0), "{name}: {counts:?}");
        if name.starts_with("cut") {
            assert!(client.connections() > 1, "{name} was never cut");
        }
    }
}

#[test]
fn each_loss_is_detected_and_repaired_once() {
    let running = RunningNode::start();
    running.node.create_topic("md.a", book(8 << 20), false).unwrap();
    let mut source = Source::new(&running, "md.a", 50);
    let client = running.client();
    let options = SubscribeOptions { test_loss_every: NonZeroU32::new(50), ..with_snapshots() };
    let patient = |replica: TcpReplica| replica.with_retry_ns(PATIENCE.as_nanos() as u64);
    let mut replicas: Vec<_> = (0..10).map(|_| patient(replica(&client, "md.a", &options))).collect();
    for _ in 0..100 {
        source.publish(17);
        for replica in &mut replicas {
            replica.wait(Some(Duration::from_millis(1))).unwrap();
            replica.drain(now_ns(), usize::MAX, |_| ()).unwrap();
        }
    }
    // Record 1,700 is the last record, and it is lost. Only a heartbeat can show that it is missing.
    assert_eq!(source.seq, 1_700);
    for replica in &mut replicas {
        source.assert_equal_to(replica, "a reader that loses");
        let counts = replica.counts();
        assert_eq!((counts.resyncs, counts.gaps_healed, counts.retries), (34, 34, 0), "{counts:?}");
        assert_eq!((counts.divergent, counts.refused), (0, 0), "{counts:?}");
    }
}

#[test]
fn replica_detects_a_record_lost_after_a_checksum() {
    let running = RunningNode::start();
    running.node.create_topic("md.a", book(8 << 20), false).unwrap();
    let mut source = Source::new(&running, "md.a", 50);
    let client = running.client();
    let options = SubscribeOptions { test_loss_every: NonZeroU32::new(50), ..with_snapshots() };
    let mut replica = replica(&client, "md.a", &options);
    source.publish(49);
    let deadline = Deadline::new();
    while replica.counts().checked == 0 {
        deadline.check("the node confirms that no record is missing");
        replica.wait(Some(Duration::from_millis(10))).unwrap();
        replica.drain(now_ns(), usize::MAX, |_| ()).unwrap();
    }
    source.publish(1);
    source.assert_equal_to(&mut replica, "a reader that loses the last record");
    assert_eq!(replica.counts().resyncs, 1, "the record was not lost: {:?}", replica.counts());
}

#[test]
fn slow_conflated_subscriber_reads_the_newest_state() {
    /// How many records are published while the subscriber processes one change.
    const WORK: u64 = 25;
    const READS: usize = 100;
    let running = RunningNode::start();
    running.node.create_topic("md.a", book(64 << 10), false).unwrap();
    let mut source = Source::new(&running, "md.a", 100);
    source.fill();
    let client = running.client();
    let mut replica = replica(&client, "md.a", &conflated());
    let (is_active, published) = (AtomicBool::new(true), AtomicU64::new(source.seq));
    // For each read: the position of the state after the read, and the position of the last record that was published
    // before the read.
    let (mut positions, mut before) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        let (is_active, published) = (&is_active, &published);
        scope.spawn(|| {
            let deadline = Deadline::new();
            while positions.len() < READS && !deadline.is_over() {
                let now = published.load(Ordering::Relaxed);
                replica.wait(Some(PATIENCE)).unwrap();
                let work = |report: ReplicaReport<'_, Book>| {
                    if let ReplicaReport::Changed(change) = report {
                        positions.push(change.to.seq);
                        before.push(now);
                        let more = published.load(Ordering::Relaxed) + WORK;
                        until("more records are published", || published.load(Ordering::Relaxed) >= more);
                    }
                };
                replica.drain(now_ns(), 1, work).unwrap();
            }
            is_active.store(false, Ordering::Relaxed);
        });
        let deadline = Deadline::new();
        while is_active.load(Ordering::Relaxed) && !deadline.is_over() {
            source.publish(1);
            published.store(source.seq, Ordering::Relaxed);
        }
    });
    source.assert_equal_to(&mut replica, "the slow one");
    assert_eq!(positions.len(), READS);
    // In more than half of the reads, the state must contain all records that were published before the read two places
    // earlier. If records waited in a queue, states would be older, by up to as many records as the credit allows.
    let in_time = positions[2..].iter().zip(&before).filter(|(position, before)| position >= before).count();
    assert!(in_time > READS / 2, "{in_time} of {READS} reads gave what was new: {positions:?}, {before:?}");
    assert_eq!(replica.counts().gaps, 0);
}

#[test]
fn state_larger_than_the_credit_arrives_whole() {
    let running = RunningNode::start();
    running.node.create_topic("md.a", book(64 << 10), false).unwrap();
    let mut source = Source::new(&running, "md.a", 10_000);
    source.fill();
    let limits = ClientLimits { credit_bytes: 16 << 10, ..patient().limits };
    let client =
        Client::connect(&running.url(), ClientOptions { limits, ..ClientOptions::default() }).unwrap();
    let mut replica = replica(&client, "md.a", &with_snapshots());
    source.assert_equal_to(&mut replica, "the first state");
    for _ in 0..20 {
        source.publish(100);
        source.assert_equal_to(&mut replica, "and on");
    }
    assert!(Source::bytes(&mut source.oracle).len() > 100_000);
    assert_eq!(replica.counts().snapshots, 1);
}

#[test]
fn oversized_state_ends_only_its_subscription() {
    let running = RunningNode::start();
    running.node.create_topic("md.a", book(64 << 10), false).unwrap();
    running.node.create_topic("plain", TopicConfig::default(), false).unwrap();
    Source::new(&running, "md.a", 1_000).fill();
    let limits = ClientLimits { snapshot_bytes_max: 10_000, ..patient().limits };
    let client =
        Client::connect(&running.url(), ClientOptions { limits, ..ClientOptions::default() }).unwrap();
    let mut subscriber = client.subscribe("md.a", with_snapshots()).unwrap();
    let ended = subscriber.next_timeout(PATIENCE).map(|event| format!("{event:?}"));
    assert!(
        matches!(ended, Err(SubscribeError::Limit { limit: "snapshot_bytes_max", value: 10_000 })),
        "{ended:?}"
    );
    let mut plain = client.subscribe("plain", SubscribeOptions::default()).unwrap();
    running.node.publisher("plain").unwrap().publish("on").unwrap();
    assert!(plain.next_timeout(PATIENCE).unwrap().is_some());
    assert_eq!(client.connections(), 1);
}

#[test]
fn wildcard_replica_follows_existing_and_later_books() {
    let running = RunningNode::start();
    let names: Vec<String> = (0..12).map(|number| format!("md.{number}")).collect();
    let mut sources: Vec<Source> = Vec::new();
    for name in &names[..10] {
        running.node.create_topic(name, book(64 << 10), false).unwrap();
        sources.push(Source::new(&running, name, 50));
        sources.last_mut().unwrap().fill();
    }
    let client = running.client();
    let options = SubscribeOptions { test_loss_every: NonZeroU32::new(13), ..with_snapshots() };
    let mut replicas = [replica(&client, "md.*", &options), replica(&client, "md.*", &conflated())];
    for round in 0..100 {
        if round == 50 {
            for name in &names[10..] {
                running.node.create_topic(name, book(64 << 10), false).unwrap();
                sources.push(Source::new(&running, name, 50));
            }
        }
        sources.iter_mut().for_each(|source| source.publish(5));
        for replica in &mut replicas {
            replica.drain(now_ns(), usize::MAX, |_| ()).unwrap();
        }
    }
    for source in &mut sources {
        for replica in &mut replicas {
            source.assert_equal_to(replica, "one of many");
        }
    }
    assert!(replicas.iter().all(|replica| replica.states().count() == 12));
}

#[test]
fn errors_about_states_and_reducers_contain_the_reason() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("plain", &TopicConfig::default(), false).unwrap();
    let refused = client.subscribe("plain", with_snapshots()).unwrap_err();
    assert!(
        matches!(&refused, SubscribeError::Refused(why) if why.contains("keeps no state")),
        "{refused:?}"
    );
    client.create_topic("md.a", &book(64 << 10), false).unwrap();
    let mut publisher = client.publisher("md.a").unwrap();
    let refused = publisher.publish("no entry").unwrap_err();
    assert!(matches!(&refused, PublishError::Reducer { .. }), "{refused:?}");
    let unknown = ReducerConfig { kind: "boook".to_owned(), options: BTreeMap::new() };
    let config = TopicConfig { reducer: Some(unknown), ..TopicConfig::default() };
    let refused = client.create_topic("md.b", &config, false).unwrap_err();
    assert!(refused.to_string().contains("boook"), "{refused}");
}

#[test]
fn topic_description_shows_the_state() {
    let running = RunningNode::start();
    let client = running.client();
    let mut config = book(64 << 10);
    config.reducer.get_or_insert_default().options.insert("depth".to_owned(), "5".to_owned());
    client.create_topic("md.a", &config, false).unwrap();
    client.create_topic("md.a", &config, true).unwrap();
    let mut source = Source::new(&running, "md.a", 20);
    source.fill();
    let described = client.describe_topic("md.a").unwrap();
    assert_eq!(described.config.reducer, config.reducer);
    let (_, state) = described.settings.iter().find(|(name, _)| name == "reducer/0").unwrap();
    assert!(state.contains("20 entries"), "{state}");
    assert!(state.contains(&format!("{:016x}", source.oracle.checksum())), "{state}");
}

/// A benchmark, which only prints measurements. Run it with `--ignored --nocapture`.
#[test]
#[ignore = "a measurement: it wants the machine for itself"]
fn thousand_joining_subscribers_use_bounded_memory() {
    const READERS: usize = 1_000;
    let running = RunningNode::start();
    running.node.create_topic("md.a", book(4 << 20), false).unwrap();
    let mut source = Source::new(&running, "md.a", 10_000);
    source.fill();
    let clients: Vec<Client> = (0..10).map(|_| running.client()).collect();
    let alone = measure_publishing(&mut source, Duration::from_secs(1), &AtomicBool::new(true));
    let (is_active, before) = (AtomicBool::new(true), running.node.budget().used());
    let (joined, during_joins, grown) = thread::scope(|scope| {
        let (is_active, running, clients) = (&is_active, &running, &clients);
        let watching = scope.spawn(move || {
            let mut most = 0;
            while is_active.load(Ordering::Relaxed) {
                most = most.max(running.node.budget().used().saturating_sub(before));
                thread::sleep(Duration::from_millis(1));
            }
            most
        });
        let joining = scope.spawn(move || {
            let began = Instant::now();
            thread::scope(|scope| {
                for client in clients {
                    scope.spawn(move || join(client, READERS / clients.len()));
                }
            });
            is_active.store(false, Ordering::Relaxed);
            began.elapsed()
        });
        let during_joins = measure_publishing(&mut source, Duration::from_secs(60), is_active);
        (joining.join().unwrap(), during_joins, watching.join().unwrap())
    });
    println!("{READERS} readers in sync after {joined:?}; the node took {grown} bytes more");
    println!("p99 of a publish: {alone:?} alone, {during_joins:?} beside them");
    assert!(grown < 64 << 20, "{grown} bytes");
}

/// Publishes 1,000 records a second for the time `time`. Returns the 99th percentile of the durations of single calls.
fn measure_publishing(source: &mut Source, time: Duration, is_active: &AtomicBool) -> Duration {
    let (began, mut durations) = (Instant::now(), Vec::new());
    while began.elapsed() < time && (is_active.load(Ordering::Relaxed) || durations.is_empty()) {
        let one = Instant::now();
        source.publish(1);
        durations.push(one.elapsed());
        thread::sleep(Duration::from_millis(1));
    }
    durations.sort_unstable();
    durations[durations.len() * 99 / 100]
}

/// Starts `readers` subscribers, and waits until each has received the state and one record after it.
fn join(client: &Client, readers: usize) {
    let mut subscribers: Vec<Subscriber> =
        (0..readers).map(|_| client.subscribe("md.a", with_snapshots()).unwrap()).collect();
    for subscriber in &mut subscribers {
        let (mut has_state, mut has_record) = (false, false);
        while !(has_state && has_record) {
            match subscriber.next_timeout(PATIENCE).unwrap().unwrap() {
                Event::Notice(Notice::Snapshot(_)) => has_state = true,
                Event::Record(_) => has_record = has_state,
                Event::Notice(_) => {}
            }
        }
    }
}

/// Starts a scripted node that sends the parts `parts` of a snapshot, and then a batch of records.
fn serve_snapshot_parts(parts: Vec<(u64, u64, Vec<u8>)>) -> (Client, thread::JoinHandle<()>) {
    use dunlin_wire::{FromClient, FromNode, Position, SnapshotPart};
    ScriptedNode::serve(move |_, mut link| {
        link.next(|message| assert!(matches!(message, FromClient::Follow(_)), "{message:?}"));
        link.accept_subscription(Position { epoch: 1, seq: 0 });
        for (total, offset, bytes) in &parts {
            link.send(FromNode::Snapshot(SnapshotPart {
                channel: 1,
                position: Position { epoch: 1, seq: 9 },
                checksum: 7,
                total: *total,
                offset: *offset,
                bytes,
            }));
        }
        while link.try_next(|_| ()).is_some() {}
    })
}

#[test]
fn parts_of_a_new_snapshot_are_joined_and_old_parts_dropped() {
    let (client, node) =
        serve_snapshot_parts(vec![(6, 0, b"ab".to_vec()), (4, 0, b"12".to_vec()), (4, 2, b"34".to_vec())]);
    let mut subscriber = client.subscribe("orders.>", with_snapshots()).unwrap();
    match subscriber.next_timeout(PATIENCE).unwrap().unwrap() {
        Event::Notice(Notice::Snapshot(snapshot)) => {
            assert_eq!((snapshot.position.seq, snapshot.checksum, &snapshot.bytes[..]), (9, 7, &b"1234"[..]));
        }
        other => panic!("{other:?}"),
    }
    drop((subscriber, client));
    node.join().unwrap();
}

#[test]
fn mismatched_snapshot_parts_end_the_connection() {
    let hostile: [Vec<(u64, u64, Vec<u8>)>; 3] = [
        vec![(6, 2, b"ab".to_vec())],
        vec![(6, 0, b"ab".to_vec()), (6, 4, b"ef".to_vec())],
        vec![(6, 0, b"ab".to_vec()), (9, 2, b"cd".to_vec())],
    ];
    for parts in hostile {
        let (client, node) = serve_snapshot_parts(parts);
        let mut subscriber = client.subscribe("orders.>", with_snapshots()).unwrap();
        // The script ends when the client has closed the connection because of the malformed parts.
        while !node.is_finished() {
            let _ = subscriber.next_timeout(Duration::from_millis(10));
        }
        node.join().unwrap();
    }
}
