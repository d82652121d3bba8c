//! A cluster for tests: nodes in one process, and the links between them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use dunlin::journal::MemoryDisk;
use dunlin::raft::{RaftMember, RequestLane, ResponseFuture, Transport};
use dunlin::state::{ControlCommand, ControlReply, KeyEvent, KeyEvents};
use dunlin::topic::{self, Notice, Start, Subscribe, SubscribeOptions, Subscriber};
use dunlin::{Config, ControlError, ControlGroup, ControlLimits, KV, Node, block_on};
pub use dunlin_wait::until;
use dunlin_wait::{Deadline, find};

/// Limits with longer waiting times than the defaults, because several tests share two processor cores.
pub fn limits() -> ControlLimits {
    let mut limits = ControlLimits::default();
    limits.raft.answer_ms_max = 30_000;
    limits
}

pub fn put(key: &'static str, value: &'static str) -> ControlCommand<'static> {
    ControlCommand::Put { key: key.as_bytes(), value: value.as_bytes(), lease: 0 }
}

pub fn grant(control: &ControlGroup, ttl_ms: u64) -> u64 {
    match block_on(control.execute(&ControlCommand::Grant { ttl_ms })).unwrap() {
        ControlReply::Granted { lease, .. } => lease,
        other => panic!("{other:?}"),
    }
}

/// A subscriber to the changes of all keys, and the changes that it has received, as texts.
pub struct Watch {
    subscriber: Subscriber,
    pub seen: Vec<String>,
}

impl Watch {
    pub fn from_first(node: &Node) -> Watch {
        let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
        Watch { subscriber: node.subscribe(KV, &options).unwrap(), seen: Vec::new() }
    }

    pub fn of(node: &Node, options: &SubscribeOptions) -> Watch {
        Watch { subscriber: node.subscribe(KV, options).unwrap(), seen: Vec::new() }
    }

    /// Reads changes until `is_so` returns `true` for those received so far.
    pub fn until(&mut self, is_so: impl Fn(&[String]) -> bool) -> &[String] {
        let deadline = Deadline::new();
        while !is_so(&self.seen) {
            deadline.check(format_args!("{:?}", self.seen));
            match self.subscriber.next_timeout(Duration::from_millis(50)) {
                Ok(None | Some(topic::Event::Notice(Notice::Lagging(_)))) => {}
                Ok(Some(event)) => self.seen.push(event_text(&event)),
                Err(error) => self.seen.push(format!("{error}")),
            }
        }
        &self.seen
    }
}

fn event_text(event: &topic::Event<'_>) -> String {
    match event {
        topic::Event::Record(record) => {
            let events = KeyEvents::new(record.payload()).unwrap().map(|event| match event.unwrap() {
                KeyEvent::Put { key, item } => {
                    assert_eq!(item.modified, record.seq());
                    format!("{}={}", String::from_utf8_lossy(key), String::from_utf8_lossy(&item.value))
                }
                KeyEvent::Deleted { key } => format!("-{}", String::from_utf8_lossy(key)),
            });
            format!("{} {}", record.seq(), events.collect::<Vec<_>>().join(" "))
        }
        topic::Event::Notice(Notice::Gap(gap)) => format!("gap {} to {}", gap.first, gap.last),
        topic::Event::Notice(Notice::EpochChanged(changed)) => {
            format!("epoch from {}", changed.new_first.seq)
        }
        topic::Event::Notice(other) => format!("{other:?}"),
    }
}

/// The links between the nodes, and the faults of these links.
#[derive(Default)]
struct Network {
    nodes: BTreeMap<u64, Weak<ControlGroup>>,
    cut: BTreeSet<(u64, u64)>,
    /// Nodes to which no log entries are delivered.
    behind: BTreeSet<u64>,
    /// Whether the responses to requests that were forwarded to the leader are lost.
    loses_responses: bool,
}

/// The transport of the node `from`.
struct TestTransport {
    from: u64,
    network: Arc<RwLock<Network>>,
}

impl Transport for TestTransport {
    fn request(&self, member: &RaftMember, lane: RequestLane, request: Vec<Bytes>) -> ResponseFuture {
        let request = Bytes::from(request.concat());
        let (from, to, network) = (self.from, member.id, Arc::clone(&self.network));
        let carries_entries = matches!(lane, RequestLane::Log | RequestLane::Bulk);
        Box::pin(async move {
            let node = {
                let network = network.read().unwrap();
                let node = network
                    .nodes
                    .get(&to)
                    .and_then(Weak::upgrade)
                    .filter(|_| !network.cut.contains(&(from, to)))
                    .filter(|_| !carries_entries || !network.behind.contains(&to));
                node.ok_or(io::ErrorKind::NotConnected)?
            };
            let is_ours = request.first() == Some(&0xc0);
            let answer = node.receive(request).await;
            // Drop the reference on another thread: it may be the last one, and the node's own threads must not drop
            // the node.
            std::thread::spawn(move || drop(node));
            let network = network.read().unwrap();
            let is_lost = network.cut.contains(&(to, from)) || is_ours && network.loses_responses;
            if is_lost { Err(io::ErrorKind::TimedOut.into()) } else { answer }
        })
    }
}

/// A cluster of nodes in this process, whose connections can be cut.
pub struct TestCluster {
    network: Arc<RwLock<Network>>,
    disks: BTreeMap<u64, Arc<MemoryDisk>>,
    pub nodes: BTreeMap<u64, Node>,
    limits: ControlLimits,
}

fn member(id: u64) -> RaftMember {
    RaftMember { id, address: format!("node {id}") }
}

impl TestCluster {
    pub fn of(count: u64, limits: ControlLimits) -> TestCluster {
        let (network, disks, nodes) = Default::default();
        let mut cluster = TestCluster { network, disks, nodes, limits };
        (1..=count).for_each(|id| cluster.start(id));
        let members: Vec<RaftMember> = (1..=count).map(member).collect();
        block_on(cluster.control(1).begin(&members)).unwrap();
        cluster.leader();
        cluster
    }

    /// Starts the node `id` on the disk that it had before, or on an empty one.
    pub fn start(&mut self, id: u64) {
        let (disk, dir) = (Arc::clone(self.disks.entry(id).or_default()), Path::new("/control"));
        let (node, control) = find("the node's log is free", || {
            let transport = TestTransport { from: id, network: Arc::clone(&self.network) };
            let node = Node::start(Config::default()).unwrap();
            match ControlGroup::start_member(&node, id, disk.clone(), dir, transport, self.limits) {
                Ok(control) => Some((node, control)),
                // The node may still be handling a request from before its stop. Its log stays locked until then.
                Err(error) if error.to_string().contains("is being written") => None,
                Err(error) => panic!("{error}"),
            }
        });
        self.network.write().unwrap().nodes.insert(id, Arc::downgrade(&control));
        assert!(node.set_control(control));
        self.nodes.insert(id, node);
    }

    pub fn control(&self, id: u64) -> &ControlGroup {
        self.nodes[&id].control().unwrap()
    }

    pub fn join(&mut self, id: u64) {
        let leader = self.leader();
        self.start(id);
        block_on(self.control(leader).add_learner(&member(id))).unwrap();
    }

    /// Stops the node `id`. Its disk stays.
    pub fn stop(&mut self, id: u64) {
        self.network.write().unwrap().nodes.remove(&id);
        self.nodes.remove(&id).unwrap().stop();
    }

    /// Cuts all links of the node `id` if `cut` is set, otherwise restores them.
    pub fn isolate(&self, id: u64, cut: bool) {
        let mut network = self.network.write().unwrap();
        for &other in self.nodes.keys().filter(|other| **other != id) {
            for link in [(id, other), (other, id)] {
                if cut {
                    network.cut.insert(link)
                } else {
                    network.cut.remove(&link)
                };
            }
        }
    }

    /// If `withholds` is set, the node receives heartbeats, but no log entries. Otherwise it receives log entries
    /// again.
    pub fn withhold_log(&self, id: u64, withholds: bool) {
        let mut network = self.network.write().unwrap();
        if withholds {
            network.behind.insert(id)
        } else {
            network.behind.remove(&id)
        };
    }

    pub fn lose_responses(&self, loses_responses: bool) {
        self.network.write().unwrap().loses_responses = loses_responses;
    }

    /// Returns the leader as soon as all nodes name the same one.
    pub fn leader(&self) -> u64 {
        self.leader_among(&self.nodes.keys().copied().collect::<Vec<_>>())
    }

    pub fn leader_among(&self, ids: &[u64]) -> u64 {
        find(format_args!("a leader among {ids:?}"), || {
            let seen: BTreeSet<_> = ids.iter().map(|id| self.control(*id).status().unwrap().leader).collect();
            match Vec::from_iter(seen)[..] {
                [Some(leader)] if ids.contains(&leader) => Some(leader),
                _ => None,
            }
        })
    }

    pub fn followers(&self) -> Vec<u64> {
        let leader = self.leader();
        self.nodes.keys().copied().filter(|id| *id != leader).collect()
    }

    /// Executes a command at the leader of the nodes `ids`. Tries again while there is no leader or the outcome is
    /// unknown.
    pub fn execute_among(&self, ids: &[u64], command: &ControlCommand<'_>) -> ControlReply {
        find("the command is executed", || {
            let leader = self.leader_among(ids);
            match block_on(self.control(leader).execute(command)) {
                Ok(reply) => Some(reply),
                Err(ControlError::Unknown | ControlError::NoLeader { .. }) => None,
                Err(other) => panic!("{other}"),
            }
        })
    }
}
