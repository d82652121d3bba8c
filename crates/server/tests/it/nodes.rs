//! Tests clusters of three nodes, which have listeners and real connections to each other. A client of any protocol
//! must reach every topic through any node. All nodes use the same agreed state; its replication is tested elsewhere.

mod deleted_topics;
mod full_topics;
mod nats;
mod owner_changes;
mod publishers;
mod reloading;
mod replies;
mod requests;
mod starting;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use dunlin::state::{ControlCommand, ControlEffects, ControlReply, ControlState, KeyEvents, node_key};
use dunlin::topic::{
    Draft, Event, Notice, Payload, Position, Publish, PublishError, RecordMeta, Start, Subscribe,
    SubscribeOptions, TopicConfig,
};
use dunlin::{
    ClusterCommandError, Config, InFlightBatch, InterestQuery, MirrorFeed, Node, Ownership, OwnershipLimits,
    PeerNodes, PublisherPresence, RemoteMembership,
};
use dunlin_client::{Client, ClientOptions};
use dunlin_server::grpc::proto::dunlin::start::At;
use dunlin_server::grpc::proto::dunlin::subscribe_response::Event as GrpcEvent;
use dunlin_server::peers::NodeLinks;
use dunlin_server::{Protocol, Server, ServerConfig};
use dunlin_wait::{PATIENCE, POLL, until};
use serde_json::json;

use crate::HEARTBEAT_MS;
use crate::clients::patient_options;
use crate::grpc;
use crate::http::{Peer as HttpPeer, socket::Socket};
use crate::nats_peer::NatsPeer;

struct Member {
    node: Node,
    ownership: Arc<Ownership>,
    server: Option<Server>,
}

/// A cluster for tests: the agreed state that all nodes share, the nodes, and their addresses.
struct TestCluster {
    limits: OwnershipLimits,
    state: Mutex<ControlState>,
    members: Mutex<HashMap<u64, Member>>,
    urls: Mutex<HashMap<u64, String>>,
    /// For each node that does not receive changes at present, the changes that it has not received.
    late: Mutex<HashMap<u64, Vec<Vec<u8>>>>,
    /// A function that is called with each batch before node 1 forwards it.
    forwarding: Mutex<Option<Forwarding>>,
    /// How many times nodes have requested records for a mirror.
    feeds_started: AtomicU64,
}

type Forwarding = Arc<dyn Fn(&InFlightBatch) + Send + Sync>;

/// The connections of a node to the other nodes. Before node 1 forwards a batch, the test's function is called.
#[derive(Debug)]
struct HookedLinks {
    id: u64,
    links: NodeLinks,
    cluster: Weak<TestCluster>,
}

impl std::fmt::Debug for TestCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestCluster")
    }
}

impl PeerNodes for HookedLinks {
    fn propose(&self, command: &ControlCommand<'_>) -> Result<ControlReply, ClusterCommandError> {
        self.links.propose(command)
    }

    fn propose_all(&self, commands: &[ControlCommand<'_>]) -> Vec<Result<ControlReply, ClusterCommandError>> {
        self.links.propose_all(commands)
    }

    fn forward_batch(&self, to: u64, run: InFlightBatch) {
        let cluster = self.cluster.upgrade().filter(|_| self.id == 1);
        let forwarding = cluster.and_then(|cluster| cluster.forwarding.lock().unwrap().clone());
        forwarding.into_iter().for_each(|forwarding| forwarding(&run));
        self.links.forward_batch(to, run);
    }

    fn feed_mirrors(&self, from: u64, feed: Arc<MirrorFeed>) {
        let cluster = self.cluster.upgrade();
        cluster.into_iter().for_each(|cluster| _ = cluster.feeds_started.fetch_add(1, Ordering::Relaxed));
        self.links.feed_mirrors(from, feed);
    }

    fn join(&self, to: u64, membership: Arc<RemoteMembership>) {
        self.links.join(to, membership);
    }

    fn announce(&self, to: u64, presence: Arc<PublisherPresence>) {
        self.links.announce(to, presence);
    }

    fn query_interest(&self, to: u64, query: InterestQuery) {
        self.links.query_interest(to, query);
    }

    fn node_left(&self, node: u64) {
        self.links.node_left(node);
    }

    fn node_joined(&self, node: u64) {
        self.links.node_joined(node);
    }
}

impl TestCluster {
    fn of(count: u64) -> Arc<TestCluster> {
        TestCluster::with(count, OwnershipLimits::default())
    }

    /// Starts a cluster of `count` nodes. Leases last longer than a test, unless the test ends them.
    fn with(count: u64, limits: OwnershipLimits) -> Arc<TestCluster> {
        let limits = OwnershipLimits { lease_ttl: Duration::from_secs(600), ..limits };
        let cluster = Arc::new(TestCluster {
            limits,
            state: Mutex::default(),
            members: Mutex::default(),
            urls: Mutex::default(),
            late: Mutex::default(),
            forwarding: Mutex::default(),
            feeds_started: AtomicU64::default(),
        });
        (1..=count).for_each(|id| cluster.start(id));
        until("all take part", || {
            let members = cluster.members.lock().unwrap();
            members.values().all(|member| member.ownership.nodes().len() == count as usize)
        });
        cluster
    }

    fn start(self: &Arc<TestCluster>, id: u64) {
        self.start_with(id, Node::start(Config::default()).unwrap());
    }

    fn start_with(self: &Arc<TestCluster>, id: u64, node: Node) {
        self.start_without_state(id, node);
        self.catch_up(id);
    }

    /// Starts a node that does not know the agreed state until [`catch_up`](TestCluster::catch_up) is called for it.
    fn start_without_state(self: &Arc<TestCluster>, id: u64, node: Node) {
        let anywhere = || vec![([127, 0, 0, 1], 0).into()];
        let mut config = ServerConfig {
            tcp: anywhere(),
            nats: anywhere(),
            http: anywhere(),
            grpc: anywhere(),
            threads: 1,
            ..ServerConfig::default()
        };
        config.limits.heartbeat_ms = HEARTBEAT_MS;
        let server = Server::start(node.clone(), config).unwrap();
        let (command_cluster, lookup_cluster) = (Arc::downgrade(self), Arc::downgrade(self));
        let gone = || ClusterCommandError::Away("the test is over".to_owned());
        let send_command = move |command: &ControlCommand<'_>| {
            let cluster = command_cluster.upgrade().ok_or_else(gone)?;
            // A node that the test has stopped must not send commands.
            let is_running = cluster.urls.lock().unwrap().contains_key(&id);
            if is_running { cluster.apply(command) } else { Err(gone()) }
        };
        let send_commands =
            move |commands: &[ControlCommand<'_>]| commands.iter().map(&send_command).collect();
        let reach = move |to: u64| {
            let url = lookup_cluster.upgrade()?.urls.lock().unwrap().get(&to)?.clone();
            Some((url.parse().unwrap(), ClientOptions::default()))
        };
        let links = HookedLinks {
            id,
            links: NodeLinks::new(id, send_commands, reach),
            cluster: Arc::downgrade(self),
        };
        let ownership = node.join_cluster(id, Arc::new(links), self.limits);
        // Other nodes may connect only from now on. Earlier, the server would have taken them for ordinary clients.
        let url = format!("dunlin://{}", server.tcp_addresses()[0]);
        self.urls.lock().unwrap().insert(id, url);
        self.members.lock().unwrap().insert(id, Member { node, ownership, server: Some(server) });
    }

    fn catch_up(&self, id: u64) {
        let ownership = self.members.lock().unwrap()[&id].ownership.clone();
        ownership.apply_state(&self.state.lock().unwrap().clone());
        ownership.begin_membership(Vec::new()).unwrap();
        until("it takes part", || ownership.has_lease());
    }

    fn apply(&self, command: &ControlCommand<'_>) -> Result<ControlReply, ClusterCommandError> {
        let mut effects = ControlEffects::default();
        let reply = self.state.lock().unwrap().apply(command, &mut effects);
        let ownerships: Vec<_> =
            self.members.lock().unwrap().values().map(|member| Arc::clone(&member.ownership)).collect();
        for change in effects.changes {
            for ownership in &ownerships {
                let held_back = self.late.lock().unwrap().get_mut(&ownership.id()).map(|late| {
                    late.push(change.bytes.to_vec());
                });
                if held_back.is_none() {
                    ownership.apply_events(KeyEvents::new(&change.bytes).unwrap());
                }
            }
        }
        Ok(reply?)
    }

    /// From now on, the node receives no changes of the agreed state, until
    /// [`release_changes`](TestCluster::release_changes) is called for it.
    fn hold_back_changes(&self, id: u64) {
        self.late.lock().unwrap().insert(id, Vec::new());
    }

    fn release_changes(&self, id: u64) {
        let held_back = self.late.lock().unwrap().remove(&id);
        let ownership = self.members.lock().unwrap()[&id].ownership.clone();
        held_back
            .into_iter()
            .flatten()
            .for_each(|bytes| ownership.apply_events(KeyEvents::new(&bytes).unwrap()));
    }

    fn node(&self, id: u64) -> Node {
        self.members.lock().unwrap()[&id].node.clone()
    }

    fn client(&self, id: u64) -> Client {
        let url = self.urls.lock().unwrap()[&id].clone();
        Client::connect(&url, patient_options()).unwrap()
    }

    /// Connects a NATS client to this node, and completes the handshake.
    fn nats(&self, id: u64) -> NatsPeer {
        NatsPeer::open(self.members.lock().unwrap()[&id].server.as_ref().unwrap())
    }

    /// Creates a topic, and makes the node `id` its owner.
    fn create_topic_at(&self, id: u64, name: &str, config: TopicConfig) {
        self.node(id).create_topic(name, config, false).unwrap();
        let moved = self.members.lock().unwrap()[&id].ownership.clone();
        moved.move_topic(name, id).unwrap();
        let known = |member: &Member| {
            let topic = member.node.topic(name);
            topic.is_some_and(|topic| member.ownership.owner_of(&topic).0 == id)
        };
        until("all know the topic", || self.members.lock().unwrap().values().all(known));
        until("the owner has it", || !self.node(id).topic(name).unwrap().logs()[0].is_mirror());
    }

    fn owner(&self, name: &str) -> u64 {
        self.state.lock().unwrap().placement(name.as_bytes()).unwrap().owner
    }

    /// Stops a node and ends its lease, so that other nodes can take over its topics.
    fn kill(&self, id: u64) {
        self.stop_with_lease(id);
        let lease = self.state.lock().unwrap().get(&node_key(id)).map(|item| item.lease);
        self.apply(&ControlCommand::Revoke { lease: lease.expect("it takes part") }).unwrap();
    }

    /// Stops a node, but does not end its lease. Other nodes cannot take over its topics then.
    fn stop_with_lease(&self, id: u64) {
        self.urls.lock().unwrap().remove(&id);
        let member = self.members.lock().unwrap().remove(&id);
        let Some(mut member) = member else { return };
        drop(member.server.take());
        member.node.stop();
    }
}

fn start_at(start: Start) -> SubscribeOptions {
    SubscribeOptions { start, ..SubscribeOptions::default() }
}

/// Reads until the record with the number `last` arrives. Returns the numbers of all records, and all notices.
fn read_until(subscriber: &mut impl Subscribe, last: u64) -> (Vec<u64>, Vec<Notice>) {
    let (mut numbers, mut notices) = (Vec::new(), Vec::new());
    while numbers.last() != Some(&last) {
        match subscriber.next_timeout(PATIENCE).unwrap() {
            Some(Event::Record(record)) => {
                numbers.push(u64::from_le_bytes(record.payload()[..8].try_into().unwrap()));
            }
            Some(Event::Notice(notice)) => notices.push(notice),
            None => panic!("nothing after {:?}, {notices:?}", numbers.last()),
        }
    }
    (numbers, notices)
}

#[test]
fn client_can_use_a_topic_that_another_node_owns() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(3, "t", TopicConfig::default());
    let mut readers = [1, 2, 3].map(|id| cluster.client(id).subscribe("t", start_at(Start::Latest)).unwrap());
    let mut publisher = cluster.client(1).publisher("t").unwrap();
    for n in 1..=20_000_u64 {
        publisher.send(&n.to_le_bytes()).unwrap();
    }
    let receipt = publisher.flush().unwrap().unwrap();
    assert_eq!(receipt.position.seq, 20_000);
    assert_eq!(
        cluster.client(2).publisher("t").unwrap().publish(&20_001_u64.to_le_bytes()).unwrap().position.seq,
        20_001
    );
    for reader in &mut readers {
        let (numbers, notices) = read_until(reader, 20_001);
        assert!(numbers.iter().copied().eq(1..=20_001), "{} records", numbers.len());
        assert!(!notices.iter().any(|notice| matches!(notice, Notice::Gap(_) | Notice::EpochChanged(_))));
    }
    let mut late = cluster.client(2).subscribe("t", start_at(Start::Earliest)).unwrap();
    assert!(read_until(&mut late, 20_001).0.into_iter().eq(1..=20_001), "and from the first");
    let refused = cluster.client(2).publisher("t").unwrap().publish_expecting(7, &[0; 8]);
    assert_eq!(refused, Err(PublishError::SeqMoved { expected: 7, last_seq: 20_001 }));
}

#[test]
fn owner_delivers_records_although_it_learns_of_the_topic_last() {
    let cluster = TestCluster::patient(3);
    cluster.hold_back_changes(1);
    let config = TopicConfig { pattern: Some("wide.>".to_owned()), ..TopicConfig::default() };
    cluster.node(2).create_topic("wide", config, false).unwrap();
    let former_owner = cluster.members.lock().unwrap()[&2].ownership.clone();
    former_owner.move_topic("wide", 1).unwrap();
    let mut reader = cluster.nats(3);
    reader.send_line("SUB wide.a 1");
    until("the owner was asked for records twice", || cluster.feeds_started.load(Ordering::Relaxed) > 1);
    cluster.release_changes(1);
    until("the owner knows the topic", || cluster.node(1).topic("wide").is_some());
    reader.ping();
    cluster.node(1).publisher("wide.a").unwrap().publish("1").unwrap();
    assert_eq!(reader.text(), ("wide.a".to_owned(), "1".to_owned()));
}

#[test]
fn first_records_of_a_subject_at_three_nodes_create_one_topic() {
    let cluster = TestCluster::of(3);
    let mut wide = cluster.client(2).subscribe("made.>", start_at(Start::Latest)).unwrap();
    for id in [1, 2, 3] {
        let mut publisher = cluster.client(id).publisher("made.here").unwrap();
        publisher.publish(&id.to_le_bytes()).unwrap();
    }
    let (numbers, _) = read_until(&mut wide, 3);
    assert_eq!(numbers, [1, 2, 3]);
}

#[test]
fn owner_killed_under_load_loses_only_reported_records() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(1, "t", TopicConfig::default());
    let mut readers = [2, 3].map(|id| cluster.client(id).subscribe("t", start_at(Start::Latest)).unwrap());
    let client = cluster.client(2);
    let publishing = thread::spawn(move || {
        let mut publisher = client.publisher("t").unwrap();
        let mut unsure = BTreeSet::new();
        for n in 1..=4_000_u64 {
            match publisher.publish(&n.to_le_bytes()) {
                Ok(_) => {}
                Err(error) => {
                    unsure.insert(n);
                    assert!(
                        matches!(error, PublishError::OwnerAway(_) | PublishError::Unknown(_)),
                        "{error}"
                    );
                }
            }
        }
        unsure
    });
    until("some are published", || cluster.node(1).topic("t").unwrap().logs()[0].last().seq > 200);
    cluster.kill(1);
    let unsure = publishing.join().unwrap();
    assert_ne!(cluster.owner("t"), 1);
    for reader in &mut readers {
        let (numbers, notices) = read_until(reader, 4_000);
        let is_reported = notices
            .iter()
            .any(|notice| matches!(notice, Notice::EpochChanged(changed) if changed.known_through.is_none()));
        assert!(is_reported, "{notices:?}");
        let got: BTreeSet<u64> = numbers.iter().copied().collect();
        let missing: Vec<u64> = (1..=4_000).filter(|n| !got.contains(n) && !unsure.contains(n)).collect();
        // The killed owner had acknowledged the missing records before it sent them to the mirrors. These records must
        // be consecutive, and the notice above reports them.
        assert!(missing.windows(2).all(|pair| pair[1] == pair[0] + 1), "{missing:?}");
        assert!(numbers.is_sorted(), "in the order in which they were published");
    }
}

#[test]
fn slow_client_reads_a_remote_history_without_loss() {
    let cluster = TestCluster::of(2);
    let retention = dunlin::topic::Retention { bytes: 32 << 20, ..Default::default() };
    cluster.create_topic_at(1, "t", TopicConfig { retention, ..TopicConfig::default() });
    let mut publisher = cluster.node(1).publisher("t").unwrap();
    let mut payload = vec![0; 4_000];
    for n in 1..=4_000_u64 {
        payload[..8].copy_from_slice(&n.to_le_bytes());
        publisher.publish(payload.as_slice()).unwrap();
    }
    let mut reader = cluster.client(2).subscribe("t", start_at(Start::Earliest)).unwrap();
    until("its node reads on before it does", || {
        let topic = cluster.node(1).topic("t").unwrap();
        topic.subscribers().iter().any(|reader| reader.lag < 4_000)
    });
    let (numbers, notices) = read_until(&mut reader, 4_000);
    let holes: Vec<_> = numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1).collect();
    assert!(
        numbers.iter().copied().eq(1..=4_000),
        "from {:?}, holes {holes:?}, {notices:?}",
        numbers.first()
    );
}

#[test]
fn subscriber_resumes_every_partition_through_any_node() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "t", TopicConfig { partitions: 4, ..TopicConfig::default() });
    let mut publisher = cluster.client(2).publisher("t").unwrap();
    let mut publish = |from: u64| {
        for n in from..from + 200 {
            let (key, payload) = (n.to_le_bytes(), n.to_le_bytes());
            let meta = RecordMeta { key: Some(&key), ..RecordMeta::default() };
            publisher.publish(Draft { meta, payload: Payload::Copied(&payload) }).unwrap();
        }
    };
    publish(1);
    let mut positions = HashMap::new();
    let mut before = cluster.client(1).subscribe("t", start_at(Start::Earliest)).unwrap();
    for _ in 1..=200 {
        let Some(Event::Record(record)) = before.next_timeout(PATIENCE).unwrap() else { panic!("a record") };
        positions.insert(Arc::clone(record.log), record.position);
    }
    assert_eq!(positions.len(), 4);
    publish(201);
    let stood = positions.clone().into_iter().collect();
    let mut after = cluster.client(2).subscribe_nowait("t", start_at(Start::Latest), stood);
    for _ in 201..=400 {
        let Some(Event::Record(record)) = after.next_timeout(PATIENCE).unwrap() else { panic!("a record") };
        let at = positions.get_mut(record.log).unwrap();
        assert_eq!(record.position, Position { seq: at.seq + 1, ..*at }, "of {:?}", record.log);
        *at = record.position;
    }
}

/// Starts a cluster in which node 3 does not run, but has a lease. No other node may therefore own the topic `dead`.
fn cluster_with_silent_owner() -> Arc<TestCluster> {
    let mirror_wait_max = Duration::from_secs(600);
    let cluster = TestCluster::with(3, OwnershipLimits { mirror_wait_max, ..OwnershipLimits::default() });
    cluster.create_topic_at(2, "live", TopicConfig::default());
    cluster.create_topic_at(3, "dead", TopicConfig::default());
    cluster.stop_with_lease(3);
    cluster
}

impl TestCluster {
    /// Calls `until`. During the call, records are published to the topic `live` at its owner. Returns the result of
    /// `until`.
    fn while_publishing<T>(&self, until: impl FnOnce() -> T) -> T {
        let over = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let publisher = self.node(2).publisher("live").unwrap();
                let mut publisher = publisher;
                while !over.load(Ordering::Relaxed) {
                    publisher.publish(&1_u64.to_le_bytes()).unwrap();
                    thread::sleep(POLL);
                }
            });
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(until));
            over.store(true, Ordering::Relaxed);
            outcome.unwrap()
        })
    }

    fn address(&self, id: u64, protocol: Protocol) -> std::net::SocketAddr {
        let members = self.members.lock().unwrap();
        let server = members[&id].server.as_ref().unwrap();
        server.addresses().iter().find(|(other, _)| *other == protocol).unwrap().1
    }
}

#[test]
fn silent_owner_delays_only_its_own_tcp_subscribers() {
    let cluster = cluster_with_silent_owner();
    let waits = cluster.client(1);
    // This subscription waits for its start position until the owner is back, which never happens in this test.
    thread::spawn(move || drop(waits.subscribe("dead", start_at(Start::Latest))));
    let reads = cluster.client(1);
    cluster.while_publishing(|| {
        let mut reader = reads.subscribe("live", start_at(Start::Latest)).unwrap();
        assert!(matches!(reader.next_timeout(PATIENCE), Ok(Some(Event::Record(_)))));
    });
}

#[test]
fn silent_owner_delays_only_its_own_nats_subscribers() {
    let cluster = cluster_with_silent_owner();
    let mut peer = NatsPeer::at(cluster.address(1, Protocol::Nats));
    assert!(peer.line().starts_with("INFO"));
    peer.send(b"CONNECT {\"verbose\":false}\r\nSUB dead 1\r\nSUB live 2\r\nPING\r\n");
    // The node delivers this record, although another subscription of the same client still waits for the owner of the
    // topic `dead`.
    cluster.while_publishing(|| assert!(peer.line().starts_with("MSG live 2 ")));
}

#[test]
fn silent_owner_delays_only_its_own_http_subscribers() {
    let cluster = cluster_with_silent_owner();
    let mut waits = HttpPeer::connect(cluster.address(1, Protocol::Http));
    waits.head("GET", "/v1/topics/dead/events", &[]);
    let mut reads =
        HttpPeer::connect(cluster.address(1, Protocol::Http)).events("/v1/topics/live/events", &[]);
    cluster.while_publishing(|| drop(reads.next()));
}

#[test]
fn silent_owner_delays_only_its_own_websocket_subscribers() {
    let cluster = cluster_with_silent_owner();
    let mut socket = Socket::json_at(cluster.address(1, Protocol::Http));
    socket.send_json(&json!({"op": "subscribe", "id": 1, "pattern": "dead"}));
    socket.send_json(&json!({"op": "subscribe", "id": 2, "pattern": "live"}));
    cluster.while_publishing(|| {
        let message = std::iter::repeat_with(|| socket.receive_json())
            .find(|message| message["op"] == "record")
            .unwrap();
        assert_eq!(message["id"], 2);
    });
}

#[test]
fn silent_owner_delays_only_its_own_grpc_subscribers() {
    let cluster = cluster_with_silent_owner();
    cluster.while_publishing(|| {
        grpc::run(async {
            let address = format!("http://{}", cluster.address(1, Protocol::Grpc));
            let channel = tonic::transport::Endpoint::from_shared(address).unwrap().connect().await.unwrap();
            let mut client = grpc::GrpcClient::new(channel);
            let mut waits = client.clone();
            let waiting = tokio::spawn(async move {
                drop(waits.subscribe(grpc::subscribe(&["dead"], At::Latest(true))).await);
            });
            let reads = client.subscribe(grpc::subscribe(&["live"], At::Latest(true))).await;
            let mut stream = reads.unwrap().into_inner();
            while !matches!(grpc::next(&mut stream).await, Ok(GrpcEvent::Records(_))) {}
            waiting.abort();
        });
    });
}
