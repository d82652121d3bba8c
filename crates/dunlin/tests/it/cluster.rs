//! Tests of a cluster of up to three nodes in one process. Each node publishes to topics of the others. A single value
//! contains the state on which the cluster agrees, and threads replace the connections between nodes. Records travel in
//! the same way as between processes: as frames, through cursors and responses.

mod aside;
mod dead_letters;
mod deleted;
mod order;
mod owners;
mod restored;
mod states;
mod takeovers;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use dunlin::journal::{Disk, FakeDisk};
use dunlin::state::{
    ControlCommand, ControlEffects, ControlReply, ControlState, KeyEvents, Placement, node_key,
};
use dunlin::topic::{
    BatchAppend, CheckedBatch, ConsumeMode, Cursor, DurableOptions, Event, NewLogs, Notice, Pattern,
    Position, ProducerMark, Publish, PublishError, Start, Subject, Subscribe, SubscribeOptions, Subscriber,
    TopicConfig, WaitStrategy, Waiter,
};
use dunlin::{
    ClusterCommandError, Config, InFlightBatch, MirrorFeed, MirrorFeedOutcome, MirrorFeedStart,
    MissingTopicPolicy, Node, Ownership, OwnershipLimits, PeerNodes, RemoteMembership, block_on,
    forbid_waiting, now_ns,
};
use dunlin_wait::{PATIENCE, POLL, until};

/// The nodes, the state on which they agree, and the faults of their connections.
#[derive(Debug)]
struct TestHub {
    state: Mutex<ControlState>,
    began: Instant,
    nodes: Mutex<HashMap<u64, (Node, Arc<Ownership>)>>,
    /// Nodes whose connections to all other nodes are cut.
    cut: Mutex<HashSet<u64>>,
    /// Nodes that send no records to other nodes' mirrors.
    silent_feeds: Mutex<HashSet<u64>>,
    /// Nodes that append forwarded batches, but whose responses are lost.
    lost_responses: Mutex<HashSet<u64>>,
    /// Pairs of nodes. Records from the first to the second node of a pair are held back on their way.
    in_transit: Mutex<HashSet<(u64, u64)>>,
    /// Nodes that do not receive changes of the agreed state for now, each with the changes that are held back.
    held_changes: Mutex<HashMap<u64, Vec<Vec<u8>>>>,
    /// The number of batches that were forwarded in vain: the other node was cut off, or its response was lost.
    failed_forwards: AtomicU64,
    /// Pairs of nodes. The next feed from the second node of a pair to the first one ends at once.
    ending_feeds: Mutex<HashSet<(u64, u64)>>,
    /// If set, the topic `t` moves to the second node just before the first node's next feed begins.
    moves_before_feed: Mutex<Option<(u64, u64)>>,
    /// Nodes whose requests for an owner receive no response. `has_requested` says whether such a node has sent a
    /// request.
    ignored_nodes: Mutex<HashSet<u64>>,
    has_requested: AtomicBool,
    /// If set, forwarded batches are collected here, and the test responds to them; `None` if they are delivered.
    captured: Mutex<Option<Vec<InFlightBatch>>>,
    /// Memberships in `share` groups that nodes have requested from other nodes. Only a test sends records to these
    /// members.
    memberships: Mutex<Vec<Arc<RemoteMembership>>>,
}

/// One node's connections to the other nodes.
#[derive(Debug)]
struct NodePeers {
    hub: Weak<TestHub>,
    id: u64,
    lanes: Mutex<HashMap<u64, mpsc::Sender<InFlightBatch>>>,
}

impl TestHub {
    fn is_cut(&self, one: u64, other: u64) -> bool {
        let cut = self.cut.lock().unwrap();
        cut.contains(&one) || cut.contains(&other)
    }

    fn node(&self, id: u64) -> Node {
        self.nodes.lock().unwrap()[&id].0.clone()
    }

    /// Sends changes of the agreed state to all nodes that are not cut off.
    fn deliver_changes(&self, effects: ControlEffects) {
        let nodes: Vec<_> =
            self.nodes.lock().unwrap().iter().map(|(id, (_, ownership))| (*id, ownership.clone())).collect();
        for change in effects.changes {
            for (id, ownership) in &nodes {
                if self.cut.lock().unwrap().contains(id) {
                    continue;
                }
                let mut held_changes = self.held_changes.lock().unwrap();
                match held_changes.get_mut(id) {
                    Some(changes) => changes.push(change.bytes.to_vec()),
                    None => {
                        drop(held_changes);
                        ownership.apply_events(KeyEvents::new(&change.bytes).unwrap());
                    }
                }
            }
        }
    }

    fn apply(&self, command: Option<&ControlCommand<'_>>) -> Result<ControlReply, ClusterCommandError> {
        let mut effects = ControlEffects::default();
        let reply = {
            let mut state = self.state.lock().unwrap();
            state.advance(self.began.elapsed().as_millis() as u64, &mut effects);
            command.map(|command| state.apply(command, &mut effects))
        };
        self.deliver_changes(effects);
        Ok(reply.transpose()?.unwrap_or(ControlReply::Done))
    }
}

impl PeerNodes for NodePeers {
    fn propose(&self, command: &ControlCommand<'_>) -> Result<ControlReply, ClusterCommandError> {
        let hub =
            self.hub.upgrade().ok_or_else(|| ClusterCommandError::Away("the test is over".to_owned()))?;
        if hub.cut.lock().unwrap().contains(&self.id) {
            return Err(ClusterCommandError::Away("cut off".to_owned()));
        }
        while matches!(command, ControlCommand::Place { .. })
            && hub.ignored_nodes.lock().unwrap().contains(&self.id)
        {
            hub.has_requested.store(true, Ordering::Relaxed);
            thread::sleep(POLL);
        }
        hub.apply(Some(command))
    }

    fn forward_batch(&self, to: u64, batch: InFlightBatch) {
        if let Some(hub) = self.hub.upgrade()
            && let Some(captured) = &mut *hub.captured.lock().unwrap()
        {
            return captured.push(batch);
        }
        let mut lanes = self.lanes.lock().unwrap();
        let lane = lanes.entry(to).or_insert_with(|| {
            let (send, receive) = mpsc::channel::<InFlightBatch>();
            let (hub, id) = (Weak::clone(&self.hub), self.id);
            thread::spawn(move || receive.iter().for_each(|batch| deliver(&hub, id, to, batch)));
            send
        });
        lane.send(batch).unwrap();
    }

    fn feed_mirrors(&self, from: u64, feed: Arc<MirrorFeed>) {
        let (hub, id) = (Weak::clone(&self.hub), self.id);
        if let Some(hub) = hub.upgrade() {
            let moves = hub.moves_before_feed.lock().unwrap().take_if(|(of, _)| *of == id);
            if let Some((_, to)) = moves {
                let ownership = hub.nodes.lock().unwrap()[&id].1.clone();
                ownership.move_topic("t", to).unwrap();
            }
        }
        thread::spawn(move || {
            let why = run_feed(&hub, id, from, &feed).map_or_else(|why| why, |()| "enough".to_owned());
            feed.ended(&why);
        });
    }

    fn join(&self, _to: u64, membership: Arc<RemoteMembership>) {
        if let Some(hub) = self.hub.upgrade() {
            hub.memberships.lock().unwrap().push(membership);
        }
    }
}

fn deliver(hub: &Weak<TestHub>, id: u64, to: u64, batch: InFlightBatch) {
    let Some(hub) = hub.upgrade() else { return };
    while hub.in_transit.lock().unwrap().contains(&(id, to)) {
        thread::sleep(POLL);
    }
    if hub.is_cut(id, to) {
        hub.failed_forwards.fetch_add(1, Ordering::Relaxed);
        return batch.not_appended("cut off");
    }
    let Some(topic) = hub.node(to).topic(&batch.topic) else { return batch.not_appended("unknown there") };
    let checked = CheckedBatch::check(&batch.frames, batch.count, 1 << 20).unwrap();
    let (partition, mark, expect_last) = (batch.partition, batch.mark, batch.expect_last);
    let append = BatchAppend {
        batch: checked,
        partition,
        mark,
        expect_last,
        claim: None,
        evict: false,
        relayed: true,
    };
    match topic.append_batch(now_ns(), append) {
        Err(PublishError::OwnerAway(why)) => batch.not_appended(&why),
        outcome if hub.is_cut(id, to) || hub.lost_responses.lock().unwrap().contains(&to) => {
            drop(outcome);
            hub.failed_forwards.fetch_add(1, Ordering::Relaxed);
            batch.response_lost("the answer was lost");
        }
        outcome => batch.complete(outcome),
    }
}

fn run_feed(hub: &Weak<TestHub>, id: u64, from: u64, feed: &Arc<MirrorFeed>) -> Result<(), String> {
    let options = |start| SubscribeOptions { start, local_only: true, ..feed.options() };
    let subscribe = |hub: &TestHub| {
        let start = match feed.start_position() {
            MirrorFeedStart::At(start) => start,
            MirrorFeedStart::After(held) => Start::After(held[0].1),
        };
        hub.node(from).subscribe(&feed.pattern, &options(start)).map_err(|error| error.to_string())
    };
    let is_reachable =
        |hub: &Arc<TestHub>| !hub.is_cut(id, from) && !hub.silent_feeds.lock().unwrap().contains(&from);
    let reachable_hub = || {
        let hub = hub.upgrade().ok_or("the test is over")?;
        if is_reachable(&hub) { Ok(hub) } else { Err("cut off") }
    };
    if !feed.is_needed() || reachable_hub()?.ending_feeds.lock().unwrap().remove(&(id, from)) {
        return Ok(());
    }
    let mut subscriber = subscribe(&*reachable_hub()?)?;
    let mut after = Vec::new();
    subscriber.for_each_position(|log, at| after.push((Arc::clone(log), at)));
    feed.on_accepted(&after);
    let mut frame = Vec::new();
    while feed.is_needed() {
        reachable_hub()?;
        let event = subscriber.next_timeout(POLL).map_err(|error| error.to_string())?;
        let Some(event) = event else { continue };
        loop {
            match feed.apply(&event, &mut frame) {
                MirrorFeedOutcome::Applied => break,
                MirrorFeedOutcome::Retry if feed.is_needed() => thread::sleep(POLL),
                _ => return Ok(()),
            }
        }
    }
    Ok(())
}

/// A cluster of nodes in this process.
struct TestCluster {
    hub: Arc<TestHub>,
    limits: OwnershipLimits,
}

impl TestCluster {
    /// Starts nodes with long leases. Even on a slow machine, they stay members until a test [ends their
    /// lease](TestCluster::end_lease).
    fn of(nodes: u64) -> TestCluster {
        TestCluster::with(
            nodes,
            OwnershipLimits { lease_ttl: Duration::from_secs(120), ..OwnershipLimits::default() },
        )
    }

    /// Starts nodes with short leases, which end soon after the last renewal.
    fn with_short_leases(nodes: u64) -> TestCluster {
        TestCluster::with(
            nodes,
            OwnershipLimits { lease_ttl: Duration::from_secs(2), ..OwnershipLimits::default() },
        )
    }

    fn with(nodes: u64, limits: OwnershipLimits) -> TestCluster {
        let hub = Arc::new(TestHub {
            state: Mutex::default(),
            began: Instant::now(),
            nodes: Mutex::default(),
            cut: Mutex::default(),
            silent_feeds: Mutex::default(),
            lost_responses: Mutex::default(),
            in_transit: Mutex::default(),
            held_changes: Mutex::default(),
            failed_forwards: AtomicU64::default(),
            ending_feeds: Mutex::default(),
            moves_before_feed: Mutex::default(),
            ignored_nodes: Mutex::default(),
            has_requested: AtomicBool::default(),
            captured: Mutex::default(),
            memberships: Mutex::default(),
        });
        let limits = OwnershipLimits { unread_max: Duration::from_millis(200), ..limits };
        let cluster = TestCluster { hub, limits };
        (1..=nodes).for_each(|id| cluster.start(id));
        let ticking = Arc::downgrade(&cluster.hub);
        thread::spawn(move || {
            while let Some(hub) = ticking.upgrade() {
                hub.apply(None).unwrap();
                drop(hub);
                thread::sleep(POLL);
            }
        });
        until("all nodes are members", || {
            (1..=nodes).all(|id| cluster.ownership(id).nodes().len() == nodes as usize)
        });
        cluster
    }

    fn start(&self, id: u64) {
        self.add_node(id, Node::start(Config::default()).unwrap());
    }

    fn add_node(&self, id: u64, node: Node) {
        let ownership = self.join_with(id, node);
        ownership.apply_state(&self.hub.state.lock().unwrap().clone());
        ownership.begin_membership(Vec::new()).unwrap();
        until("the node is a member", || ownership.has_lease());
    }

    /// Starts a node that knows nothing of the cluster's state and is not a member yet.
    fn join(&self, id: u64) -> Arc<Ownership> {
        self.join_with(id, Node::start(Config::default()).unwrap())
    }

    fn join_with(&self, id: u64, node: Node) -> Arc<Ownership> {
        let peers = NodePeers { hub: Arc::downgrade(&self.hub), id, lanes: Mutex::default() };
        let ownership = node.join_cluster(id, Arc::new(peers), self.limits);
        self.hub.nodes.lock().unwrap().insert(id, (node, Arc::clone(&ownership)));
        ownership
    }

    fn node(&self, id: u64) -> Node {
        self.hub.node(id)
    }

    fn ownership(&self, id: u64) -> Arc<Ownership> {
        self.hub.nodes.lock().unwrap()[&id].1.clone()
    }

    /// Creates a topic that the node `id` owns.
    fn create_topic_at(&self, id: u64, name: &str) {
        self.node(id).create_topic(name, TopicConfig::default(), false).unwrap();
        let nodes: Vec<u64> = self.hub.nodes.lock().unwrap().keys().copied().collect();
        until("all nodes know the topic", || {
            nodes.iter().all(|&other| self.node(other).topic(name).is_some())
        });
        if self.owner(name).0 != id {
            self.ownership(id).move_topic(name, id).unwrap();
            self.until_owned_by(name, id);
        }
    }

    fn owner(&self, name: &str) -> (u64, u32) {
        let state = self.hub.state.lock().unwrap();
        let placement = state.placement(name.as_bytes()).unwrap();
        (placement.owner, placement.epoch)
    }

    fn until_owned_by(&self, name: &str, id: u64) {
        let nodes: Vec<u64> = self.hub.nodes.lock().unwrap().keys().copied().collect();
        let reached = |other: &u64| {
            let topic = self.node(*other).topic(name).unwrap();
            self.ownership(*other).owner_of(&topic).0 == id || self.hub.is_cut(*other, id)
        };
        until("all nodes know the owner", || nodes.iter().all(reached));
        until("the owner knows", || !self.node(id).topic(name).unwrap().logs()[0].is_mirror());
    }

    fn cut(&self, id: u64) {
        self.hub.cut.lock().unwrap().insert(id);
    }

    /// Ends the lease of the node `id`, whose connections are cut.
    fn end_lease(&self, id: u64) {
        let lease = self.hub.state.lock().unwrap().get(&node_key(id)).unwrap().lease;
        self.hub.apply(Some(&ControlCommand::Revoke { lease })).unwrap();
    }

    /// Waits until `times` more batches have been forwarded in vain.
    fn until_failed_forwards(&self, times: u64) {
        let before = self.hub.failed_forwards.load(Ordering::Relaxed);
        until("forwarded batches get no response", || {
            self.hub.failed_forwards.load(Ordering::Relaxed) >= before + times
        });
    }

    fn reconnect(&self, id: u64) {
        self.hub.cut.lock().unwrap().remove(&id);
        let state = self.hub.state.lock().unwrap().clone();
        self.ownership(id).apply_state(&state);
    }
}

fn from(start: Start) -> SubscribeOptions {
    SubscribeOptions { start, ..SubscribeOptions::default() }
}

/// Waits for the next `count` events of the subscriber, and returns them as texts.
fn next_events(subscriber: &mut Subscriber, count: usize) -> Vec<String> {
    let mut events = Vec::new();
    while events.len() < count {
        let event = subscriber.next_timeout(PATIENCE).unwrap();
        events.push(match event.unwrap_or_else(|| panic!("nothing after {events:?}")) {
            Event::Record(record) => String::from_utf8_lossy(record.payload()).into_owned(),
            Event::Notice(Notice::EpochChanged(changed)) => {
                format!("epoch after {} of {:?}", changed.last_seen, changed.known_through)
            }
            Event::Notice(other) => format!("{other:?}"),
        });
    }
    events
}

fn publish(node: &Node, subject: &str, payload: &str) -> Position {
    node.publisher(subject).unwrap().publish(payload).unwrap().position
}

#[test]
fn records_from_any_node_reach_all_nodes_in_one_order() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(2, "t");
    let mut readers = [1, 2, 3].map(|id| cluster.node(id).subscribe("t", &from(Start::Latest)).unwrap());
    for (n, id) in [1, 2, 3, 1, 3].into_iter().enumerate() {
        assert_eq!(publish(&cluster.node(id), "t", &format!("{n} by {id}")).seq, n as u64 + 1);
    }
    let all = ["0 by 1", "1 by 2", "2 by 3", "3 by 1", "4 by 3"];
    readers.iter_mut().for_each(|reader| assert_eq!(next_events(reader, 5), all));
    for id in [1, 2, 3] {
        let mut late = cluster.node(id).subscribe("t", &from(Start::Earliest)).unwrap();
        assert_eq!(next_events(&mut late, 5), all, "from the earliest, at node {id}");
    }
}

#[test]
fn slow_reader_of_a_topic_of_another_node_loses_no_record() {
    let cluster = TestCluster::of(2);
    let retention = dunlin::topic::Retention { bytes: 32 << 20, ..Default::default() };
    cluster.node(1).create_topic("t", TopicConfig { retention, ..TopicConfig::default() }, false).unwrap();
    until("both nodes know the topic", || cluster.node(2).topic("t").is_some());
    let mut publisher = cluster.node(1).publisher("t").unwrap();
    let mut payload = vec![b' '; 4_000];
    for n in 1..=4_000_u64 {
        payload[..8].copy_from_slice(format!("{n:08}").as_bytes());
        publisher.publish(payload.as_slice()).unwrap();
    }
    assert_eq!(cluster.node(1).topic("t").unwrap().logs()[0].info().oldest_seq, 1, "at the owner");
    let mut reader = cluster.node(2).subscribe("t", &from(Start::Earliest)).unwrap();
    assert!(reader.wait(Some(PATIENCE)).unwrap(), "the mirror is fed before the subscriber reads");
    for n in 1..=4_000_u64 {
        assert_eq!(next_events(&mut reader, 1)[0].trim(), format!("{n:08}"));
    }
}

/// Begins to read a topic at the moment at which it is notified of the topic.
struct ImmediateReader {
    newcomers: Arc<NewLogs>,
    reading: Mutex<Option<Subscriber>>,
}

impl Wake for ImmediateReader {
    fn wake(self: Arc<ImmediateReader>) {
        for (log, filter) in self.newcomers.take() {
            let cursor = Cursor::new(log, &from(Start::Earliest), filter, ConsumeMode::Reads).unwrap();
            *self.reading.lock().unwrap() = Some(Subscriber::one(cursor, WaitStrategy::Parked));
        }
    }
}

#[test]
fn waiting_subscriber_reads_a_topic_created_at_another_node() {
    let cluster = TestCluster::of(2);
    let waiter = Waiter::new();
    let immediate_reader = Arc::new(ImmediateReader {
        newcomers: NewLogs::with_waiter(waiter.clone()),
        reading: Mutex::default(),
    });
    assert!(waiter.set_waker(&Waker::from(Arc::clone(&immediate_reader))));
    let newcomers = || Arc::clone(&immediate_reader.newcomers);
    let waiting = cluster.node(2).select(
        &Pattern::parse("t.*").unwrap(),
        Start::Latest,
        MissingTopicPolicy::Await,
        newcomers,
    );
    assert!(waiting.unwrap().logs.is_empty());
    cluster.create_topic_at(1, "t.t");
    until("it is read", || immediate_reader.reading.lock().unwrap().is_some());
    publish(&cluster.node(1), "t.t", "first");
    let mut reading = immediate_reader.reading.lock().unwrap().take().unwrap();
    // Skip notices: the subscriber may have begun to read before the owner's epoch was known.
    let is_record = |event: &String| !event.starts_with("epoch");
    assert_eq!(
        std::iter::repeat_with(|| next_events(&mut reading, 1).remove(0)).find(is_record).unwrap(),
        "first"
    );
}

/// Even without `auto_create`, publishing creates the topic of NATS services. In a debug build, the node panics if a
/// listener's thread blocks.
#[test]
fn creating_the_nats_service_topic_blocks_no_listener_thread() {
    let cluster = TestCluster::of(1);
    cluster.add_node(2, Node::start(Config { auto_create: false, ..Config::default() }).unwrap());
    let node = cluster.node(2);
    let listener = thread::spawn(move || {
        forbid_waiting();
        node.owning_topic_for_no_reply_async(Subject::parse("$SRV.PING").unwrap(), 0)
    });
    let topic = block_on(listener.join().unwrap()).unwrap();
    assert_eq!(topic.name(), "$SRV");
}

#[test]
fn subscriber_gets_records_when_the_owner_becomes_reachable() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "t");
    cluster.hub.silent_feeds.lock().unwrap().insert(1);
    let mut reader = cluster.node(2).subscribe("t", &from(Start::Latest)).unwrap();
    publish(&cluster.node(1), "t", "meanwhile");
    cluster.hub.silent_feeds.lock().unwrap().clear();
    assert_eq!(next_events(&mut reader, 1), ["meanwhile"]);
}

#[test]
fn publish_waits_while_the_response_of_the_owner_is_missing() {
    let limits = OwnershipLimits { owner_wait_max: Duration::from_secs(1), ..OwnershipLimits::default() };
    let cluster = TestCluster::with(2, OwnershipLimits { lease_ttl: Duration::from_secs(120), ..limits });
    cluster.create_topic_at(1, "t");
    cluster.hub.lost_responses.lock().unwrap().insert(1);
    let node = cluster.node(2);
    let mark = ProducerMark { producer: 7, producer_epoch: 1, producer_seq: 1 };
    let publishing = thread::spawn(move || node.publisher("t").unwrap().with_producer(mark).publish("once"));
    // Wait longer than a publisher waits for an owner.
    let until_ns = now_ns() + 2 * cluster.limits.owner_wait_max.as_nanos() as u64;
    while now_ns() < until_ns {
        cluster.until_failed_forwards(1);
    }
    cluster.hub.lost_responses.lock().unwrap().clear();
    assert_eq!(publishing.join().unwrap().unwrap().position.seq, 1);
    assert_eq!(cluster.node(1).topic("t").unwrap().logs()[0].last().seq, 1, "the record is there once");
}

#[test]
fn record_retried_after_an_unknown_outcome_is_stored_once() {
    let cluster = TestCluster::of(1);
    let disk: Arc<dyn Disk> = Arc::new(FakeDisk::new(1));
    cluster.add_node(2, Node::open(Config::default(), disk, Path::new("/data")).unwrap().0);
    let config = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    cluster.node(2).create_topic("t", config, false).unwrap();
    until("the other node knows both", || {
        cluster.node(1).topic("t").is_some() && cluster.ownership(1).nodes().len() == 2
    });
    assert_eq!(cluster.owner("t").0, 2);
    cluster.hub.lost_responses.lock().unwrap().insert(2);
    let mark = ProducerMark { producer: 7, producer_epoch: 1, producer_seq: 1 };
    let publish = || cluster.node(1).publisher("t").unwrap().with_producer(mark).publish("once");
    let outcome = publish();
    assert!(matches!(outcome, Err(PublishError::Unknown(_))), "{outcome:?}");
    cluster.hub.lost_responses.lock().unwrap().clear();
    assert_eq!(publish().unwrap().position.seq, 1);
    assert_eq!(cluster.node(2).topic("t").unwrap().logs()[0].last().seq, 1, "the record is there once");
}
