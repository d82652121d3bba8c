//! Tests of the topic of task events at the nodes of a cluster.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, RwLock, Weak};

use bytes::Bytes;
use dunlin::journal::{Disk, MemoryDisk};
use dunlin::raft::{RaftMember, RequestLane, ResponseFuture, Transport};
use dunlin::scheduler::{NewTask, TaskCommand};
use dunlin::topic::{Event, Position, Start, Subscribe, SubscribeError, SubscribeOptions};
use dunlin::{Config, Node, TASKS, Tasks, TasksLimits, block_on};
use dunlin_wait::{PATIENCE, find, until};

/// The running nodes. Each node reaches all others.
type Network = Arc<RwLock<BTreeMap<u64, Weak<Tasks>>>>;

struct TestTransport(Network);

impl Transport for TestTransport {
    fn request(&self, member: &RaftMember, _: RequestLane, request: Vec<Bytes>) -> ResponseFuture {
        let (network, to) = (Arc::clone(&self.0), member.id);
        let request = Bytes::from(request.concat());
        Box::pin(async move {
            let tasks = network.read().unwrap().get(&to).and_then(Weak::upgrade);
            let tasks = tasks.ok_or(io::ErrorKind::NotConnected)?;
            let response = tasks.receive(request).await;
            // Drop the reference on another thread: it may be the last one, and the tasks' own threads must not drop
            // the tasks.
            std::thread::spawn(move || drop(tasks));
            response
        })
    }
}

fn start(network: &Network, id: u64, disk: &Arc<dyn Disk>) -> Node {
    let mut limits = TasksLimits::default();
    limits.raft.answer_ms_max = 2_000;
    find("the node's log is free", || {
        let node = Node::start(Config::default()).unwrap();
        let transport = |_| TestTransport(Arc::clone(network));
        match Tasks::start_member(&node, id, disk, Path::new("/tasks"), transport, limits) {
            Ok(tasks) => {
                network.write().unwrap().insert(id, Arc::downgrade(&tasks));
                assert!(node.set_tasks(tasks));
                Some(node)
            }
            // The node may still be handling a request from before its stop. Its log stays locked until then.
            Err(error) if error.to_string().contains("is being written") => None,
            Err(error) => panic!("{error}"),
        }
    })
}

fn last(node: &Node) -> Position {
    node.topic(TASKS).unwrap().logs()[0].last()
}

/// Before the node has applied its log, the topic of task events has no epoch. A subscriber that began in this state
/// would later receive the notice of a new epoch, and would receive old events as new ones.
#[test]
fn task_events_cannot_be_read_before_the_log_is_applied() {
    let network = Network::default();
    let disks = [(); 2].map(|()| -> Arc<dyn Disk> { Arc::new(MemoryDisk::default()) });
    let nodes = [1, 2].map(|id| start(&network, id, &disks[id as usize - 1]));
    let tasks = nodes[0].tasks().unwrap();
    let members = [1, 2].map(|id| RaftMember { id, address: format!("node {id}") });
    block_on(tasks.shards()[0].begin(&members)).unwrap();
    let commands = [
        TaskCommand::EnsureTenant { tenant: b"acme" },
        TaskCommand::Submit { tenant: b"acme", tasks: vec![NewTask::new(b"kind", b"x")] },
    ];
    for command in &commands {
        until("the command is applied", || block_on(tasks.execute(command)).is_ok());
    }
    let before = last(&nodes[0]);
    assert!(before.seq > 0, "the task has an event");
    until("both nodes have the event", || last(&nodes[1]) >= before);
    network.write().unwrap().clear();
    nodes.iter().for_each(Node::stop);
    drop(nodes);

    // Start one node without the other. It has no majority, and does not apply its log.
    let node = start(&network, 1, &disks[0]);
    assert_eq!(last(&node).epoch, 0, "nothing is applied yet");
    let subscribe =
        |start| node.subscribe("$tasks.>", &SubscribeOptions { start, ..SubscribeOptions::default() });
    for start in [Start::Earliest, Start::Latest] {
        let refused = subscribe(start).map(drop);
        let has_no_leader =
            matches!(&refused, Err(SubscribeError::Refused(why)) if why.starts_with("NO_LEADER: "));
        assert!(has_no_leader, "{refused:?}");
    }
    let _other = start(&network, 2, &disks[1]);
    let mut opened = find("the subscription opens", || subscribe(Start::Earliest).ok());
    match opened.next_timeout(PATIENCE).unwrap() {
        Some(Event::Record(record)) => {
            assert_eq!(record.position, Position { epoch: before.epoch, seq: 1 });
        }
        other => panic!("{other:?}"),
    }
}
