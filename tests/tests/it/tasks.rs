//! Tests that every task is completed in the end, even if workers and nodes are killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dunlin_client::scheduler::{
    Backoff, NewTask, RetryPolicy, TaskStage, TaskView, TenantTotals, shard_of_tenant,
};
use dunlin_client::{Client, ClientOptions, Tasks, TasksError};
use dunlin_system_tests::port;
use dunlin_system_tests::process::{PATIENCE, Process};
use dunlin_wait::until;

use crate::cluster_under_test::{ClusterNode, ClusterUnderTest};
use crate::processes::{Node, role};
use crate::tier;

const MS: Duration = Duration::from_millis(1);

fn connect(url: &str) -> Client {
    Client::connect(url, ClientOptions { name: "test".to_owned(), ..ClientOptions::default() })
        .expect("the node accepts connections")
}

fn start_worker(url: &str, arguments: &[&str]) -> Process {
    let mut worker = role("worker", &[&["worker", url], arguments].concat());
    worker.read_until("READY");
    worker
}

fn wait_for_end(tasks: &Tasks, task: u64) -> TaskView {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match tasks.get(task) {
            Ok(found)
                if matches!(found.stage, TaskStage::Completed | TaskStage::Cancelled | TaskStage::Dead) =>
            {
                return found;
            }
            Ok(found) => assert!(Instant::now() < deadline, "{found:?}: {:?}", tasks.why(task)),
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        thread::sleep(10 * MS);
    }
}

fn submit(tasks: &Tasks, count: usize, payload: &[u8]) -> Vec<u64> {
    let new = (0..count).map(|_| NewTask::new(b"work", payload)).collect();
    tasks.submit_all("t", new).expect("there is room").tasks.iter().map(|submitted| submitted.task).collect()
}

/// Parses the lines in which workers report completed tasks. Returns each task's number and token.
fn parse_done(lines: impl IntoIterator<Item = String>) -> Vec<(u64, u64)> {
    let read = |line: String| {
        let (task, token) = line.strip_prefix("did ")?.split_once(' ')?;
        Some((u64::from_str_radix(task, 16).ok()?, token.parse().ok()?))
    };
    lines.into_iter().filter_map(read).collect()
}

#[test]
fn tasks_of_a_killed_worker_go_to_another_worker() {
    let node = Node::start_anywhere(&[]);
    let tasks = connect(&node.url()).tasks();
    // The worker's lease (`ttl`) is so long that it does not end before the kill, even on a slow machine.
    let mut first = start_worker(&node.url(), &["slots=8", "work=60000", "ttl=5000"]);
    let ids = submit(&tasks, 8, b"");
    until("the worker has 8 tasks", || tasks.signals().expect("the node answers").held == 8);
    let tokens: BTreeMap<u64, u32> = ids.iter().map(|&id| (id, tasks.get(id).unwrap().attempts)).collect();
    assert!(tokens.values().all(|attempts| *attempts == 1));
    first.kill();
    let mut second = start_worker(&node.url(), &["slots=8", "ttl=60000"]);
    for &id in &ids {
        let finished = wait_for_end(&tasks, id);
        assert_eq!((finished.stage, finished.lost), (TaskStage::Completed, 1), "{finished:?}");
    }
    second.write_line("drain");
    assert_eq!(second.read_until("drained"), "8 8 0 0");
    node.kill();
}

#[test]
fn task_that_kills_workers_becomes_a_dead_letter() {
    let node = Node::start_anywhere(&[]);
    let tasks = connect(&node.url()).tasks();
    let poisoned = submit(&tasks, 1, b"poison")[0];
    let harmless = submit(&tasks, 20, b"bread");
    let stop = Arc::new(AtomicBool::new(false));
    let (url, stopped) = (node.url(), Arc::clone(&stop));
    // Restarts the worker whenever it has ended, as a supervisor would.
    let supervisor = thread::spawn(move || {
        let mut deaths = 0;
        while !stopped.load(Ordering::Relaxed) {
            let mut worker = role("worker", &["worker", &url, "slots=1", "ttl=500", "die=poison"]);
            while worker.exit_status().is_none() && !stopped.load(Ordering::Relaxed) {
                thread::sleep(10 * MS);
            }
            deaths += usize::from(!stopped.load(Ordering::Relaxed));
            worker.kill();
        }
        deaths
    });
    let finished = wait_for_end(&tasks, poisoned);
    assert_eq!((finished.stage, finished.lost), (TaskStage::Dead, 3), "{finished:?}");
    harmless.iter().for_each(|&id| assert_eq!(wait_for_end(&tasks, id).stage, TaskStage::Completed));
    stop.store(true, Ordering::Relaxed);
    assert!(supervisor.join().unwrap() >= 3);
    assert_eq!(tasks.tenants("t").unwrap()[0].dead, 1);
    node.kill();
}

#[test]
fn worker_completes_every_acknowledged_task_despite_node_kills() {
    let dir = tempfile::tempdir().unwrap();
    let data = format!("data={}", dir.path().display());
    let address = port::free();
    let mut node = Node::start_with(address, &[&data]);
    let client = connect(&node.url());
    let tasks = client.tasks();
    let mut worker = start_worker(&node.url(), &["slots=4", "work=2", "ttl=20000"]);
    let mut ids = submit(&tasks, 400, b"first");
    for round in 0..3 {
        let completed = || tasks.tenants("t").map_or(0, |tenants| tenants[0].account.completed);
        until("some are done", || completed() >= 50 * (round + 1));
        node.kill();
        node = Node::start_with(address, &[&data]);
        let deadline = Instant::now() + PATIENCE;
        // The response may be lost with the connection. The tasks are then submitted once more.
        ids.extend(loop {
            let new = (0..50).map(|_| NewTask::new(b"work", b"later")).collect();
            match tasks.submit_all("t", new) {
                Ok(done) => {
                    break done.tasks.into_iter().map(|submitted| submitted.task).collect::<Vec<u64>>();
                }
                Err(error) => assert!(Instant::now() < deadline, "round {round}: {error}"),
            }
        });
    }
    ids.iter().for_each(|&id| assert_eq!(wait_for_end(&tasks, id).stage, TaskStage::Completed));
    worker.write_line("drain");
    let lines = worker.finish(PATIENCE);
    let done = parse_done(lines.clone());
    let distinct: BTreeSet<(u64, u64)> = done.iter().copied().collect();
    assert_eq!(done.len(), distinct.len(), "nothing is done twice under one token");
    assert!(ids.iter().all(|id| distinct.iter().any(|(task, _)| task == id)));
    assert!(lines.iter().any(|line| line.starts_with("drained")), "{lines:?}");
    let account = tasks.tenants("t").unwrap()[0].account;
    assert_eq!(account.completed, account.submitted, "each is completed once");
    node.kill();
}

/// A cluster whose nodes can be killed. A killed node can be restarted with the same listeners as before.
struct TaskCluster {
    nodes: ClusterUnderTest,
    listeners: Vec<String>,
    shards: u8,
}

impl TaskCluster {
    fn of(count: usize) -> TaskCluster {
        TaskCluster::with_shards(count, 1)
    }

    fn with_shards(count: usize, shards: u8) -> TaskCluster {
        let listeners: Vec<String> = (0..count).map(|_| port::free().to_string()).collect();
        let options: Vec<_> = listeners.iter().map(|listener| options(listener, shards)).collect();
        let nodes = ClusterUnderTest::with(&options);
        TaskCluster { nodes, listeners, shards }
    }

    fn url(&self) -> String {
        format!("dunlin://{}", self.listeners.join(","))
    }

    /// Waits until a node leads the cluster's tasks. Returns the index of this node.
    fn leader(&mut self) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for at in 0..self.nodes.members.len() {
                let response = self.nodes.request(at, "tasks", "tasks ");
                let leader_number = response.trim().parse::<u64>().ok();
                let found = self.nodes.members.iter().position(|member| Some(member.number) == leader_number);
                if let Some(found) = found {
                    return found;
                }
            }
            assert!(Instant::now() < deadline, "no leader of the tasks");
            thread::sleep(20 * MS);
        }
    }

    fn restart(&mut self, member: &ClusterNode, listener: &str) {
        let options = options(listener, self.shards);
        let restarted = crate::cluster_under_test::start_with(&member.dir, &member.address, None, &options);
        self.nodes.members.push(restarted.expect("the node starts again"));
    }

    fn listener(&self, at: usize) -> String {
        self.nodes.members[at].listener("tcp")
    }
}

fn options(listener: &str, shards: u8) -> Vec<String> {
    vec![format!("listener={listener}"), format!("shards={shards}")]
}

/// Starts a thread that submits batches of tasks until `stop` is set. Each batch is for one tenant; the tenants take
/// turns. The tasks have idempotency keys. The thread stores the number of acknowledged tasks in `acknowledged`.
///
/// The thread returns all task ids in the responses, and the number of tasks in the acknowledged batches.
fn start_submitter(
    url: String,
    tenants: &'static [&'static str],
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
) -> thread::JoinHandle<(Vec<u64>, usize)> {
    thread::spawn(move || {
        let tasks = connect(&url).tasks();
        let (mut ids, mut sent) = (Vec::new(), 0);
        while !stop.load(Ordering::Relaxed) {
            let keys: Vec<String> = (0..10).map(|number| format!("{sent}-{number}")).collect();
            let retry = Some(RetryPolicy { retries: 100, backoff: Backoff::Fixed { delay_ms: 10 } });
            let new = keys.iter().map(|key| NewTask {
                idempotency_key: key.as_bytes(),
                retry,
                ..NewTask::new(b"work", key.as_bytes())
            });
            // A batch whose outcome is unknown is submitted again. The idempotency keys prevent duplicates.
            match tasks.submit_all(tenants[sent % tenants.len()], new.collect()) {
                Ok(done) => {
                    ids.extend(done.tasks.iter().map(|submitted| submitted.task));
                    sent += 1;
                    acknowledged.store(ids.len(), Ordering::Relaxed);
                    thread::sleep(10 * MS);
                }
                Err(TasksError::Refused(refused)) if refused.retry() == dunlin_client::RetryAdvice::No => {
                    panic!("{refused}");
                }
                Err(_) => thread::sleep(10 * MS),
            }
        }
        (ids, sent * 10)
    })
}

#[test]
fn killing_the_leader_under_load_loses_and_repeats_no_task() {
    kill_leaders_under_load(1, &["t"], 2);
}

mod long {
    use super::*;

    #[test]
    fn killing_the_leader_under_load_loses_and_repeats_no_task() {
        kill_leaders_under_load(1, &["t"], 20);
    }

    #[test]
    fn killing_the_leader_of_two_shards_loses_and_repeats_no_task() {
        kill_leaders_of_two_shards(5);
    }
}

#[test]
fn killing_the_leader_of_two_shards_loses_and_repeats_no_task() {
    kill_leaders_of_two_shards(1);
}

fn kill_leaders_of_two_shards(times: u64) {
    let tenants = &["acme", "tenant-1", "default", "tenant-2"];
    let shards: BTreeSet<u8> = tenants.iter().map(|tenant| shard_of_tenant(tenant.as_bytes(), 2)).collect();
    assert_eq!(shards.len(), 2, "both have something to do");
    kill_leaders_under_load(2, tenants, times);
}

fn kill_leaders_under_load(shards: u8, tenants: &'static [&'static str], times: u64) {
    let mut cluster = TaskCluster::with_shards(3, shards);
    let url = cluster.url();
    let mut workers: Vec<Process> =
        (0..2).map(|_| start_worker(&url, &["slots=4", "work=1", "ttl=5000"])).collect();
    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let submitter = start_submitter(url.clone(), tenants, Arc::clone(&stop), Arc::clone(&acknowledged));
    let wait_for_tasks = |tasks: usize| {
        let (expected, deadline) = (acknowledged.load(Ordering::Relaxed) + tasks, Instant::now() + PATIENCE);
        while acknowledged.load(Ordering::Relaxed) < expected {
            assert!(Instant::now() < deadline, "no {tasks} more tasks are acknowledged");
            thread::sleep(MS);
        }
    };
    for _ in tier::seeds(times) {
        wait_for_tasks(50);
        let leader = cluster.leader();
        let listener = cluster.listener(leader);
        let killed = cluster.nodes.kill(leader);
        // First waits until another node leads. From then on, workers must complete further tasks.
        cluster.leader();
        cluster.restart(&killed, &listener);
    }
    wait_for_tasks(100);
    stop.store(true, Ordering::Relaxed);
    let (ids, sent) = submitter.join().unwrap();
    assert!(ids.len() > 100, "the topic was under load: {}", ids.len());
    let distinct: BTreeSet<u64> = ids.iter().copied().collect();
    assert_eq!(distinct.len(), sent, "a batch that was submitted again is the same");
    let tasks = connect(&url).tasks();
    let deadline = Instant::now() + PATIENCE;
    let accounts: Vec<TenantTotals> = loop {
        match tasks.tenants("") {
            Ok(found) => {
                let accounts: Vec<TenantTotals> = found.iter().map(|tenant| tenant.account).collect();
                if accounts.iter().all(|account| account.completed == account.submitted) {
                    break accounts;
                }
                assert!(Instant::now() < deadline, "{found:?}");
            }
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        thread::sleep(50 * MS);
    };
    assert_eq!(accounts.len(), tenants.len());
    let completed: u64 = accounts.iter().map(|account| account.completed).sum();
    assert!(completed >= sent as u64, "none that was acknowledged is lost: {accounts:?}");
    assert!(accounts.iter().all(|account| account.dead == 0), "{accounts:?}");
    for &id in &distinct {
        assert_eq!(wait_for_end(&tasks, id).stage, TaskStage::Completed);
    }
    let mut done = Vec::new();
    for worker in &mut workers {
        worker.write_line("drain");
        done.extend(parse_done(worker.finish(PATIENCE)));
    }
    let distinct_done: BTreeSet<(u64, u64)> = done.iter().copied().collect();
    assert_eq!(done.len(), distinct_done.len(), "nothing is done twice under one token");
}

#[test]
fn worker_at_a_follower_gets_tasks_submitted_at_other_nodes() {
    let mut cluster = TaskCluster::of(3);
    let leader = cluster.leader();
    let follower = (0..3).find(|at| *at != leader).expect("there are three");
    let at = |cluster: &TaskCluster, at: usize| format!("dunlin://{}", cluster.listener(at));
    let mut worker = start_worker(&at(&cluster, follower), &["slots=4"]);
    let tasks = connect(&at(&cluster, leader)).tasks();
    let ids = submit(&tasks, 100, b"x");
    ids.iter().for_each(|&id| assert_eq!(wait_for_end(&tasks, id).stage, TaskStage::Completed));
    worker.write_line("drain");
    assert_eq!(worker.read_until("drained"), "100 100 0 0");
}

#[test]
fn refusal_of_a_wrong_shard_count_names_the_right_count() {
    let mut cluster = TaskCluster::with_shards(1, 2);
    let nodes = &cluster.nodes;
    let (token, join_address) = (nodes.token(true), nodes.members[0].address.clone());
    let dir = nodes.dir.path().join("other");
    let join = Some((join_address.as_str(), token.as_path()));
    let address = port::free().to_string();
    let refused = crate::cluster_under_test::start_with(&dir, &address, join, &["shards=1".to_owned()]);
    let error = refused.err().expect("the start is refused");
    assert!(error.contains("has 2 shards of tasks, not 1: set tasks.shards = 2"), "{error}");

    // If a member restarts with another number of shards, the member is refused too.
    let listener = cluster.listener(0);
    let killed = cluster.nodes.kill(0);
    let restarted =
        crate::cluster_under_test::start_with(&killed.dir, &killed.address, None, &options(&listener, 3));
    let error = restarted.err().expect("the start is refused");
    assert!(error.contains("tasks.shards = 3") && error.contains("set tasks.shards = 2"), "{error}");
    cluster.restart(&killed, &listener);
}
