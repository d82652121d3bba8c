//! Tests of clusters. Nodes are killed, added, removed, shut down one after another, restarted without their data, and
//! restored from a backup.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dunlin::journal::RealDisk;
use dunlin::state::ControlCommand;
use dunlin::topic::{Event, Position, Start, Subscribe, SubscribeOptions};
use dunlin::{Config, Node, block_on};
use dunlin_client::scheduler::{NewTask, TaskStage};
use dunlin_client::{Client, Tasks};
use dunlin_server::cluster::{ClusterClient, back_up, init, restore};
use dunlin_system_tests::port;
use dunlin_system_tests::process::PATIENCE;
use dunlin_system_tests::proxy::Proxy;

use super::cluster_under_test::{ClusterNode, ClusterUnderTest, start, start_existing, start_with};

#[test]
fn acknowledged_writes_survive_the_death_of_the_leader() {
    let mut cluster = ClusterUnderTest::of(3);
    let mut written = BTreeMap::new();
    for round in 0..3 {
        for at in 0..3 {
            let (key, value) = (format!("key-{round}-{at}"), format!("value-{round}-{at}"));
            cluster.put(at, &key, &value);
            written.insert(key, value);
        }
        let leader = cluster.leader();
        let dead = cluster.kill(leader);
        cluster.put(0, "after", &round.to_string());
        for (key, value) in &written {
            assert_eq!(cluster.get(1, key), *value, "{key}, after the leader's death");
        }
        cluster.restart(&dead);
        cluster.wait_for_voters(3);
        let restarted = cluster.members.len() - 1;
        assert_eq!(cluster.get(restarted, "after"), round.to_string(), "the dead one has caught up");
    }
}

#[test]
fn nodes_join_leave_and_rejoin_with_new_numbers() {
    let mut cluster = ClusterUnderTest::of(1);
    cluster.put(0, "first", "1");
    // This token is not reusable: only one node can join with it.
    let token = cluster.token(false);
    let join_address = cluster.members[0].address.clone();
    let join = |name: &str, address: &str| {
        start(&cluster.dir.path().join(name), address, Some((&join_address, &token)))
    };
    let second = join("2", &port::free().to_string()).expect("the node joins");
    let refused = join("3", &port::free().to_string()).err().expect("the token is used up");
    assert!(refused.contains("the cluster refused the token"), "{refused}");
    cluster.members.push(second);
    cluster.wait_for_voters(2);
    assert_eq!(cluster.get(1, "first"), "1");
    cluster.join("3").expect("the node joins");
    cluster.wait_for_voters(3);
    assert_eq!(cluster.members[2].number, 3);
    // A removed node ends with an error that tells the operator what to do. The restarted node must end with this error
    // too.
    cluster.client().remove(3).expect("the node is removed");
    let error = cluster.members[2].process.read_until("ended");
    assert!(error.contains("removed") && error.contains("empty its data directory"), "{error}");
    let (dir, address) = (cluster.members[2].dir.clone(), cluster.members[2].address.clone());
    cluster.members.remove(2);
    cluster.wait_for_voters(2);
    let error = start(&dir, &address, None).err().expect("refused");
    assert!(error.contains("removed") && error.contains("empty its data directory"), "{error}");
    assert!(cluster.client().remove(3).is_err(), "node 3 is no member");
    assert!(cluster.client().remove(9).unwrap_err().to_string().contains("there is no node 9"));
    // After the data directory was emptied, the node joins as a new node.
    std::fs::remove_dir_all(&dir).expect("the directory is emptied");
    cluster.join_at("3", &address).expect("the node joins");
    cluster.wait_for_voters(3);
    assert_eq!(cluster.members[2].number, 4, "a number is never given again");
    assert_eq!(cluster.get(2, "first"), "1");
}

#[test]
fn wiped_node_can_rejoin_but_an_old_copy_is_refused() {
    let mut cluster = ClusterUnderTest::of(3);
    cluster.put(0, "key", "old");
    let lost = cluster.kill(1);
    std::fs::remove_dir_all(&lost.dir).expect("the directory can be removed");
    cluster.join_at("2", &lost.address).expect("the node joins");
    cluster.wait_for_voters(3);
    let numbers: Vec<u64> = cluster.members.iter().map(|member| member.number).collect();
    assert_eq!(numbers, [1, 3, 4], "the lost one is not missed");
    cluster.put(2, "key", "new");
    // Copies the directory of a stopped node. The copy becomes stale when the node starts from its own directory.
    let stopped = cluster.kill(2);
    let copy = cluster.dir.path().join("copy");
    copy_dir(&stopped.dir, &copy);
    cluster.restart(&stopped);
    cluster.wait_for_voters(3);
    let at = cluster.members.len() - 1;
    let running = cluster.kill(at);
    let error = start(&copy, &running.address, None).err().expect("refused");
    assert!(error.contains("is stale") && error.contains("older copy"), "{error}");
    cluster.restart(&running);
    cluster.wait_for_voters(3);
    assert_eq!(cluster.get(0, "key"), "new");
}

/// Starts a node that the cluster must refuse. Returns the error with which the node's process ends.
fn refused(dir: &Path, address: &str) -> String {
    match start(dir, address, None) {
        Err(error) => error,
        Ok(mut member) => member.process.read_until("ended "),
    }
}

#[test]
fn copy_of_a_running_node_is_refused_and_the_node_continues() {
    let mut cluster = ClusterUnderTest::of(3);
    cluster.put(2, "key", "before");
    for name in ["copy", "another copy"] {
        let copy = cluster.dir.path().join(name);
        copy_dir(&cluster.members[2].dir, &copy);
        for _ in 0..2 {
            let error = refused(&copy, &port::free().to_string());
            // If the running node does not respond in time, because the machine is busy, the text is `node 3 seems to
            // run`.
            let runs = ["node 3 runs already", "node 3 seems to run"].iter().any(|runs| error.contains(runs));
            assert!(runs && error.contains("is a copy"), "{error}");
        }
    }
    cluster.wait_for_voters(3);
    cluster.put(2, "key", "meanwhile");
    for _ in 0..2 {
        let stopped = cluster.kill(2);
        cluster.restart(&stopped);
        cluster.wait_for_voters(3);
    }
    assert_eq!(cluster.get(2, "key"), "meanwhile");
    // While a node is down, its directory is copied. From now on, the node's directory is the one that is started
    // first, here the copy. The cluster must refuse a node with the other directory.
    let stopped = cluster.kill(2);
    let copy = cluster.dir.path().join("the node from now on");
    copy_dir(&stopped.dir, &copy);
    let moved = start(&copy, &port::free().to_string(), None).expect("the node starts");
    cluster.members.push(moved);
    cluster.wait_for_voters(3);
    let error = refused(&stopped.dir, &stopped.address);
    assert!(error.contains("the directory of node 3 is stale"), "{error}");
    cluster.put(2, "key", "after");
}

#[test]
fn other_nodes_learn_the_new_address_of_a_moved_node() {
    let mut cluster = ClusterUnderTest::of(3);
    for is_leader in [false, true] {
        let leader = cluster.leader();
        let at = if is_leader { leader } else { (leader + 1) % 3 };
        let stopped = cluster.kill(at);
        let moved = start(&stopped.dir, &port::free().to_string(), None).expect("the node starts");
        let (number, address) = (moved.number, moved.address.clone());
        assert_ne!(address, stopped.address);
        cluster.members.insert(1, moved);
        cluster.wait_for_voters(3);
        cluster.wait_until("all know where it is", |statuses| {
            let knows_address = |status: &dunlin_server::cluster::NodeStatus| {
                status.nodes.iter().any(|record| record.node == number && record.address == address)
            };
            statuses.len() == 3 && statuses.iter().all(knows_address)
        });
        cluster.put(1, "key", "from-there");
    }
}

/// Copies a running node's directory as `cp -a` does. If the node deletes a file during the copy, the copy may lack it.
fn copy_dir(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("the directory can be read").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            let copied = std::fs::copy(entry.path(), target);
            assert!(copied.is_ok() || !entry.path().exists(), "{copied:?}");
        }
    }
}

#[test]
fn node_of_another_cluster_is_refused_with_advice() {
    let (one, mut other) = (ClusterUnderTest::of(1), ClusterUnderTest::of(1));
    let token = one.token(true);
    // A new node tries to join the second cluster with a token of the first cluster.
    let join_address = other.members[0].address.clone();
    let dir = one.dir.path().join("2");
    let refused =
        start(&dir, &port::free().to_string(), Some((&join_address, &token))).err().expect("refused");
    assert!(refused.contains("belongs to another cluster than the token"), "{refused}");
    // A node of the second cluster tries to join the first cluster, with its own directory and a token of the first
    // cluster.
    let node = other.kill(0);
    let join_address = one.members[0].address.clone();
    let refused = start(&node.dir, &node.address, Some((&join_address, &token))).err().expect("refused");
    assert!(refused.contains("but the join token is for another cluster"), "{refused}");
    // A node tries to start at an address that a running node uses.
    other.restart(&node);
    let used_address = &one.members[0].address;
    let refused = start(&dir, used_address, Some((&join_address, &token))).err().expect("refused");
    assert!(refused.contains("cannot listen"), "{refused}");
}

fn submit(tasks: &Tasks, count: usize) -> Vec<u64> {
    let new = (0..count).map(|_| NewTask::new(b"work", b"")).collect();
    tasks.submit_all("t", new).expect("there is room").tasks.iter().map(|submitted| submitted.task).collect()
}

/// Returns the epoch of the topic that contains the task events.
fn tasks_epoch(client: &Client) -> u32 {
    let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
    let mut events = client.subscribe("$tasks.>", options).expect("the subscription is accepted");
    loop {
        if let Event::Record(record) =
            events.next_timeout(PATIENCE).expect("the subscription is open").expect("a record arrives")
        {
            return record.position.epoch;
        }
    }
}

/// Returns the positions and append times of the last `count` task events.
fn task_events(client: &Client, count: usize) -> Vec<(Position, u64)> {
    let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
    let mut events = client.subscribe("$tasks.>", options).expect("the subscription is accepted");
    let mut read = Vec::new();
    while read.len() < count {
        if let Event::Record(record) =
            events.next_timeout(PATIENCE).expect("the subscription is open").expect("a record arrives")
        {
            read.push((record.position, record.frame.append_time_ns()));
        }
    }
    read
}

#[test]
fn task_events_keep_their_times_over_a_node_restart() {
    let mut cluster = ClusterUnderTest::of(1);
    let client = cluster.members[0].connect();
    submit(&client.tasks(), 1);
    submit(&client.tasks(), 1);
    let before = task_events(&client, 2);
    drop(client);
    let dead = cluster.kill(0);
    cluster.restart(&dead);
    assert_eq!(task_events(&cluster.members[0].connect(), 2), before);
}

#[test]
fn backup_is_restored_to_a_new_cluster() {
    let mut cluster = ClusterUnderTest::of(2);
    for number in 0..20 {
        cluster.put(number % 2, &format!("key-{number}"), &number.to_string());
    }
    let client = cluster.members[0].connect();
    let waiting = submit(&client.tasks(), 3);
    let file = cluster.dir.path().join("backup");
    let revision = back_up(&cluster.client(), &file, 0).expect("a backup");
    assert!(revision >= 20, "{revision}");
    cluster.put(0, "key-0", "after-the-backup");
    submit(&client.tasks(), 1);
    let old_epoch = tasks_epoch(&client);
    let dir = cluster.dir.path().join("restored");
    let address = port::free().to_string();
    restore(&file, &dir, &address).expect("the backup is restored");
    assert!(restore(&file, &dir, &address).unwrap_err().to_string().contains("is not empty"));
    let cut = cluster.dir.path().join("cut");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() - 9]).unwrap();
    let other = cluster.dir.path().join("other");
    assert!(restore(&cut, &other, &address).is_err() && !other.join("cluster").exists());

    let old_cluster = cluster.client().cluster().to_owned();
    let first = start(&dir, &address, None).expect("the new cluster starts");
    let tempdir = tempfile::tempdir().unwrap();
    let mut new = ClusterUnderTest { dir: tempdir, members: vec![first] };
    let later = back_up(&new.client(), &new.dir.path().join("later"), 0).expect("a backup");
    assert!(later > revision + 1_000_000_000, "revisions after the backup are not reused: {later}");
    new.wait_for_voters(1);
    assert_ne!(new.client().cluster(), old_cluster);
    for number in 0..20 {
        assert_eq!(new.get(0, &format!("key-{number}")), number.to_string());
    }
    let client = new.members[0].connect();
    let stages = waiting.iter().map(|&task| client.tasks().get(task).map(|found| found.stage));
    assert_eq!(stages.collect::<Result<Vec<_>, _>>().expect("the tasks exist"), [TaskStage::Ready; 3]);
    submit(&client.tasks(), 1);
    assert!(tasks_epoch(&client) > old_epoch, "what follows a backup is another life");
    new.join("2").expect("others join it");
    new.wait_for_voters(2);
    assert_eq!(new.get(1, "key-7"), "7");
    assert!(new.members[1].number > 2, "numbers of the old cluster's nodes are not given again");
    assert_eq!(cluster.get(1, "key-0"), "after-the-backup", "the old one knows nothing of it");
}

#[test]
fn single_node_becomes_a_cluster_and_keeps_its_data() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("1");
    std::fs::create_dir_all(&data).unwrap();
    {
        let (node, _) = Node::open(Config::default(), Arc::new(RealDisk), &data).expect("a node");
        let put = ControlCommand::Put { key: b"key", value: b"alone", lease: 0 };
        block_on(node.control().unwrap().execute(&put)).unwrap();
        node.stop();
    }
    let first = start(&data, &port::free().to_string(), None).expect("the node starts");
    let mut cluster = ClusterUnderTest { dir, members: vec![first] };
    assert_eq!(cluster.get(0, "key"), "alone");
    cluster.join("2").expect("the node joins");
    cluster.wait_for_voters(2);
    assert_eq!(cluster.get(1, "key"), "alone");
    // The test opens a node in a member's directory, but without a cluster listener. This node must refuse control
    // requests, and must not found a cluster of its own.
    let node = cluster.kill(1);
    let (opened, _) = Node::open(Config::default(), Arc::new(RealDisk), &node.dir).expect("a node");
    let refused = opened.control().unwrap_err().to_string();
    assert!(refused.contains("--cluster-listen"), "{refused}");
}

/// The cluster must refuse to remove a node if those of the remaining nodes that are running would be no majority.
/// After such a removal, a node that is down would be needed for a majority. If the disk of this node were lost, the
/// cluster could never recover.
#[test]
fn removal_that_leaves_no_majority_is_refused() {
    let mut cluster = ClusterUnderTest::of(3);
    let dead = cluster.kill(2);
    let refused = cluster.client().remove(2).expect_err("node 3 is down").to_string();
    assert!(
        refused.contains("2 of the remaining voters (1, 3) must respond, but these do not: 3."),
        "{refused}"
    );
    cluster.put(1, "key", "two-of-three-live");
    cluster.restart(&dead);
    cluster.wait_for_voters(3);
    cluster.client().remove(2).expect("node 3 is back");
    cluster.put(0, "key", "two-of-two-live");
}

/// A cluster of two nodes can remove a node only if the removed node votes for the removal. The removal must be
/// completed even if all connections are cut before it ends.
#[test]
fn removal_of_a_node_completes_after_connections_are_cut() {
    let listen = [(); 2].map(|()| port::free());
    let proxies = listen.map(|at| Proxy::with_delay(at, Duration::from_millis(50)));
    let options = |at: usize| [format!("advertise={}", proxies[at].address)];
    let dir = tempfile::tempdir().unwrap();
    let first = start_with(&dir.path().join("1"), &listen[0].to_string(), None, &options(0)).unwrap();
    let mut cluster = ClusterUnderTest { dir, members: vec![first] };
    let (two, token) = (cluster.dir.path().join("2"), cluster.token(false));
    let join = Some((&*cluster.members[0].address, &*token));
    let second = start_with(&two, &listen[1].to_string(), join, &options(1)).unwrap();
    cluster.members.push(second);
    cluster.wait_for_voters(2);
    let client = cluster.client();
    let removal = thread::spawn(move || client.remove(2));
    dunlin_wait::until("node 2 is marked as removed", || {
        let status = fetch(&cluster.members[0], "/v1/node/cluster");
        status["nodes"].as_array().unwrap().iter().any(|node| node["node"] == 2 && !node["removed"].is_null())
    });
    proxies.iter().for_each(Proxy::cut);
    // The connection of this request was cut too, so the request's result is ignored.
    let _ = removal.join().unwrap();
    cluster.wait_until("only node 1 votes", |statuses| {
        statuses.iter().any(|status| status.node == 1 && status.voters == [1])
    });
}

/// Returns the JSON with which the HTTP listener of a node responds to a request.
fn fetch(node: &ClusterNode, path: &str) -> serde_json::Value {
    let mut stream = TcpStream::connect(node.listener("http")).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", node.listener("http"))
        .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Usually, nodes learn of a dead node by the end of its lease. Without a majority, no lease ends. The nodes must
/// nevertheless notice that the killed leader is dead.
#[test]
fn node_without_a_majority_does_not_name_the_dead_leader() {
    let mut cluster = ClusterUnderTest::of(3);
    let leader = cluster.leader();
    let dead = cluster.kill(leader);
    let second_dead = cluster.kill(1);
    let remaining = cluster.members[0].number;
    cluster.wait_until("the node knows no leader", |statuses| {
        statuses.len() == 1 && statuses[0].leader.is_none()
    });
    let status = fetch(&cluster.members[0], "/v1/node/cluster");
    let alive = status["nodes"].as_array().unwrap().iter().filter(|node| node["alive"] == true);
    assert_eq!(alive.map(|node| node["node"].as_u64().unwrap()).collect::<Vec<_>>(), [remaining], "{status}");
    let mut silent = [dead.number, second_dead.number];
    silent.sort_unstable();
    let reason = format!("2 of its 3 voters must respond, but these do not: {}, {}", silent[0], silent[1]);
    assert!(status["missing"].as_str().unwrap().contains(&reason), "{status}");
    cluster.restart(&second_dead);
    cluster.wait_until("another leads", |statuses| {
        statuses.len() == 2 && statuses.iter().all(|status| status.leader.is_some())
    });
}

/// A node that founded a cluster and then lost its data directory must not found a second cluster at the old address.
#[test]
fn cluster_founder_that_lost_its_data_directory_does_not_start() {
    let mut cluster = ClusterUnderTest::of(2);
    cluster.put(0, "key", "1");
    let founder = cluster.kill(0);
    std::fs::remove_dir_all(&founder.dir).unwrap();
    let refused = start_existing(&founder.dir, &founder.address).err().expect("the node must not start");
    assert!(refused.contains("is not the data directory of a cluster's node"), "{refused}");
    assert!(!founder.dir.join("cluster").exists());
    let error = init(&cluster.members[0].dir, "127.0.0.1:1")
        .expect_err("the directory belongs to a node")
        .to_string();
    assert!(error.contains("is node 2 of cluster"), "{error}");
}

#[test]
fn key_writes_continue_while_leaders_end_one_after_another() {
    let mut cluster = ClusterUnderTest::of(3);
    cluster.put(0, "key", "0");
    for round in 1..=3 {
        let at = cluster.leader();
        cluster.members[at].process.write_line("end");
        let mut stopping = cluster.members.remove(at);
        stopping.process.read_until("ended in order");
        // A node that shuts down ends only when another node leads, so no client waits for an election. Therefore, at
        // least one of the remaining nodes leads now. On a busy machine, the other one may not yet know the leader.
        let survey = ClusterClient::open(&cluster.members[0].dir).unwrap().survey();
        let mut statuses = survey.iter().filter_map(|node| node.status.as_ref().ok());
        assert!(statuses.any(|status| status.leader == Some(status.node)), "{survey:?}");
        cluster.put(0, "key", &round.to_string());
        assert!(stopping.process.finish(PATIENCE).is_empty());
        cluster.restart(&stopping);
        cluster.wait_for_voters(3);
        assert_eq!(cluster.get(2, "key"), round.to_string());
    }
}
