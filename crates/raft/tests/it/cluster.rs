//! A test cluster whose nodes all run in one process. Tests can cut the links between the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock, Weak};

use bytes::Bytes;
use dunlin_journal::FakeDisk;
use dunlin_raft::{
    FrozenMachine, GroupHandle, RaftGroupError, RaftLimits, RaftMember, RequestLane, ResponseFuture,
    StateMachine, Transport,
};
use dunlin_wait::{Deadline, POLL};

pub const LIMITS: RaftLimits = RaftLimits {
    heartbeat_ms: 150,
    waiting_max: 4_096,
    waiting_bytes_max: 64 << 20,
    entry_bytes_max: 1 << 20,
    command_bytes_max: 1 << 20,
    in_flight_max: 4,
    answer_ms_max: 60_000,
    log_bytes_max: 64 << 20,
    reserve_bytes: 64 << 10,
    append_bytes_max: 1 << 20,
    appends_in_flight_max: 8,
    append_ms_max: 10_000,
    snapshot_bytes_max: 1 << 30,
    block_ms_max: 10_000,
    install_ms_max: 60_000,
};

/// A state machine that stores all commands in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandRecorder {
    pub lines: Vec<Bytes>,
    pub now_ms: u64,
    /// The time at which the machine next has to act. A command sets it.
    pub due_ms: Option<u64>,
}

impl StateMachine for CommandRecorder {
    fn advance(&mut self, now_ms: u64) {
        assert!(now_ms >= self.now_ms, "time goes back from {} to {now_ms}", self.now_ms);
        self.now_ms = now_ms;
        self.due_ms = self.due_ms.filter(|due_ms| *due_ms > now_ms);
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn next_due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// Returns `true` for some entries. These entries are then applied on another thread.
    fn is_long(&self, now_ms: u64, _commands: &mut dyn Iterator<Item = &[u8]>) -> bool {
        now_ms.is_multiple_of(3)
    }

    fn grows(command: &[u8]) -> bool {
        !command.starts_with(b"forget")
    }

    fn apply(&mut self, _index: u64, command: &[u8]) -> Bytes {
        if command == b"forget" {
            self.lines.clear();
            return Bytes::new();
        }
        let command_after_forget = command.strip_prefix(b"forget nothing, ").unwrap_or(command);
        if let Some(after) = command_after_forget.strip_prefix(b"due in ") {
            let after_ms: u64 = std::str::from_utf8(after).unwrap().parse().unwrap();
            self.due_ms = Some(self.now_ms + after_ms);
        }
        self.lines.push(Bytes::copy_from_slice(command));
        Bytes::from(self.lines.len().to_string())
    }

    fn freeze(&self) -> Box<dyn FrozenMachine> {
        Box::new(self.clone())
    }

    fn restore(&mut self, blocks: &mut dyn Iterator<Item = Bytes>) -> io::Result<()> {
        let head = blocks.next().ok_or_else(|| io::Error::other("no head"))?;
        self.now_ms = u64::from_le_bytes(head[..].try_into().map_err(io::Error::other)?);
        (self.lines, self.due_ms) = (blocks.collect(), None);
        Ok(())
    }
}

impl FrozenMachine for CommandRecorder {
    fn write(&self, write_block: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        write_block(&self.now_ms.to_le_bytes())?;
        self.lines.iter().try_for_each(|line| write_block(line))
    }
}

/// The links between nodes.
#[derive(Default)]
struct Network {
    nodes: BTreeMap<u64, Weak<GroupHandle<CommandRecorder>>>,
    cut: BTreeSet<(u64, u64)>,
}

/// The transport of one node.
struct TestTransport {
    from: u64,
    network: Arc<RwLock<Network>>,
}

impl Transport for TestTransport {
    fn request(&self, member: &RaftMember, _lane: RequestLane, request: Vec<Bytes>) -> ResponseFuture {
        let request = Bytes::from(request.concat());
        let (from, to, network) = (self.from, member.id, Arc::clone(&self.network));
        Box::pin(async move {
            let is_cut = |network: &RwLock<Network>, link| network.read().unwrap().cut.contains(&link);
            if is_cut(&network, (from, to)) {
                return Err(io::ErrorKind::HostUnreachable.into());
            }
            let node = network.read().unwrap().nodes.get(&to).and_then(Weak::upgrade);
            let node = node.ok_or(io::ErrorKind::ConnectionRefused)?;
            let response = node.receive(request).await;
            // Drops the node on another thread, because the node's own threads must not drop the last reference.
            tokio::task::spawn_blocking(move || drop(node));
            if is_cut(&network, (to, from)) { Err(io::ErrorKind::TimedOut.into()) } else { response }
        })
    }
}

/// The nodes of a cluster under test, with their disks and the network between them.
pub struct TestCluster {
    network: Arc<RwLock<Network>>,
    pub disks: BTreeMap<u64, Arc<FakeDisk>>,
    pub nodes: BTreeMap<u64, Arc<GroupHandle<CommandRecorder>>>,
    limits: RaftLimits,
    pub acknowledged: Mutex<Vec<Bytes>>,
}

pub fn member(id: u64) -> RaftMember {
    RaftMember { id, address: format!("node {id}") }
}

impl TestCluster {
    /// Starts `count` nodes that form one group, and waits until the group has a leader.
    pub async fn with_nodes(count: u64, limits: RaftLimits) -> TestCluster {
        let mut cluster = TestCluster::empty(limits);
        (1..=count).for_each(|id| cluster.start(id));
        let members: Vec<RaftMember> = (1..=count).map(member).collect();
        cluster.nodes[&1].begin(&members).await.unwrap();
        cluster.leader().await;
        cluster
    }

    /// A test cluster without nodes.
    pub fn empty(limits: RaftLimits) -> TestCluster {
        let acknowledged = Mutex::default();
        let (network, disks, nodes) = Default::default();
        TestCluster { network, disks, nodes, limits, acknowledged }
    }

    /// Starts a node with the disk that it had when it last ran. A node that starts for the first time gets an empty
    /// disk.
    pub fn start(&mut self, id: u64) {
        let disk = self.disks.entry(id).or_insert_with(|| Arc::new(FakeDisk::new(id)));
        let transport = TestTransport { from: id, network: Arc::clone(&self.network) };
        let group = GroupHandle::start(
            id,
            disk.clone(),
            Path::new("/raft"),
            CommandRecorder::default(),
            transport,
            self.limits,
        );
        let group = Arc::new(group.unwrap());
        self.network.write().unwrap().nodes.insert(id, Arc::downgrade(&group));
        self.nodes.insert(id, group);
    }

    /// Crashes a node, which loses unsynced data.
    pub async fn crash(&mut self, id: u64) {
        self.end(id, true).await;
    }

    /// Ends a node, either by a power cut or by a regular shutdown.
    pub async fn end(&mut self, id: u64, is_power_cut: bool) {
        let node = self.nodes.remove(&id).unwrap();
        self.network.write().unwrap().nodes.remove(&id);
        if is_power_cut {
            self.disks[&id].crash();
        }
        tokio::task::spawn_blocking(move || drop(node)).await.unwrap();
    }

    /// Cuts or restores all links between a node and the others.
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

    /// Waits until all reachable nodes agree on the leader, and returns the leader.
    pub async fn leader(&self) -> u64 {
        self.leader_among(&self.nodes.keys().copied().collect::<Vec<_>>()).await
    }

    pub async fn leader_among(&self, ids: &[u64]) -> u64 {
        let deadline = Deadline::new();
        loop {
            let leaders: BTreeSet<Option<u64>> =
                ids.iter().map(|id| self.nodes[id].status().leader).collect();
            if let [Some(leader)] = Vec::from_iter(leaders)[..]
                && ids.contains(&leader)
            {
                return leader;
            }
            deadline.check(format_args!("a leader among {ids:?}"));
            tokio::time::sleep(POLL).await;
        }
    }

    /// Proposes a line to these nodes until one of them acknowledges it. If the outcome of a proposal is unknown, the
    /// line is proposed again, so it may be applied twice.
    pub async fn propose_line_among(&self, ids: &[u64], line: &str) {
        let deadline = Deadline::new();
        loop {
            let leader = self.leader_among(ids).await;
            let outcome = self.nodes[&leader].propose(Bytes::from(line.to_owned())).await;
            match outcome {
                Ok(_) => return self.acknowledged.lock().unwrap().push(Bytes::from(line.to_owned())),
                Err(
                    RaftGroupError::NotLeader { .. } | RaftGroupError::Unknown | RaftGroupError::NoQuorum(_),
                ) => {}
                Err(other) => panic!("{other}"),
            }
            deadline.check(format_args!("{line}: {outcome:?}"));
            tokio::time::sleep(POLL).await;
        }
    }

    pub async fn propose_line(&self, line: &str) {
        self.propose_line_among(&self.nodes.keys().copied().collect::<Vec<_>>(), line).await;
    }

    /// Waits until all nodes have equal lists of lines. Checks that the list includes all acknowledged lines, in order.
    /// Returns the list.
    pub async fn wait_until_equal(&self) -> Vec<Bytes> {
        let deadline = Deadline::new();
        loop {
            let all: Vec<CommandRecorder> =
                self.nodes.values().map(|node| node.with(CommandRecorder::clone)).collect();
            if all.iter().all(|log| log.lines == all[0].lines) {
                let lines = all[0].lines.clone();
                let acknowledged = self.acknowledged.lock().unwrap();
                let mut remaining = lines.iter();
                if acknowledged.iter().all(|line| remaining.any(|applied| applied == line)) {
                    return lines;
                }
            }
            let statuses: Vec<_> = self.nodes.values().map(|node| node.status()).collect();
            deadline.check(format_args!("{all:?} for {:?}: {statuses:#?}", self.acknowledged));
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until `condition` holds. `what` describes it in the error.
    pub async fn wait_until(&self, what: &str, condition: impl Fn(&TestCluster) -> bool) {
        let deadline = Deadline::new();
        while !condition(self) {
            deadline.check(what);
            tokio::time::sleep(POLL).await;
        }
    }
}
