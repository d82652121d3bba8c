//! Tests that a backup of tasks, which are spread over several shards, can be restored to a new cluster.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dunlin_client::scheduler::{NewTask, TaskDependency, TaskStage, TaskView, shard_of_tenant};
use dunlin_client::{Attachment, Client, TaskUsage, Tasks, WorkerOptions};
use dunlin_server::cluster::{back_up, restore};
use dunlin_system_tests::port;
use dunlin_system_tests::process::PATIENCE;

use crate::cluster_under_test::{ClusterUnderTest, start_with};

const SHARDS: u8 = 2;
const TENANTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// The stages that the tasks of the test have at the time of the backup. Each tenant has one task in each stage, in
/// this order.
const STAGES: [TaskStage; 7] = [
    TaskStage::Completed,
    TaskStage::Dead,
    TaskStage::Running,
    TaskStage::Ready,
    TaskStage::Delayed,
    TaskStage::Blocked,
    TaskStage::Cancelled,
];
const HELD: usize = 2;
const WAITS: [usize; 2] = [3, 5];
const TTL: Duration = Duration::from_secs(3);

fn submit(tasks: &Tasks, tenant: &str) -> Vec<u64> {
    let hour = Duration::from_secs(3_600);
    let later = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970") + hour;
    let new = |kind: &'static str| NewTask::new(kind.as_bytes(), tenant.as_bytes());
    let all = vec![
        new("done"),
        new("dead"),
        new("held"),
        NewTask { priority: 7, ..new("waits") },
        NewTask { not_before_ms: later.as_millis() as u64, ..new("waits") },
        NewTask { after: vec![TaskDependency::Batch { index: 3 }], ..new("waits") },
        new("waits"),
    ];
    let submitted = tasks.submit_all(tenant, all).expect("there is room").tasks;
    let ids: Vec<u64> = submitted.iter().map(|submitted| submitted.task).collect();
    tasks.cancel(ids[6]).expect("the task is waiting");
    ids
}

fn attach(client: &Client, kinds: &[&str]) -> Attachment {
    let kinds = kinds.iter().map(|&kind| kind.to_owned()).collect();
    let options = WorkerOptions { kinds, slots: 100, ttl: TTL, ..WorkerOptions::default() };
    client.tasks().attach(options).expect("a worker")
}

/// Receives three tasks of each tenant: completes the first, lets the second fail without a retry, and does not finish
/// the third.
fn run_tasks(worker: &Attachment) {
    let deadline = Instant::now() + PATIENCE;
    let mut received = 0;
    while received < 3 * TENANTS.len() {
        assert!(Instant::now() < deadline, "{received} were given");
        for assigned in worker.next_batch(100, Duration::from_millis(50)).expect("the worker is attached") {
            received += 1;
            match assigned.kind() {
                b"done" => worker.complete(&assigned, b"a result", &TaskUsage::default()),
                b"dead" => worker.fail(&assigned, b"a reason", false, &TaskUsage::default()),
                _ => {}
            }
        }
    }
    assert!(worker.flush(PATIENCE));
}

/// Returns the values of a task that a backup and a restore must not change.
fn restored_values(view: &TaskView) -> String {
    let TaskView { task, tenant, kind, payload, priority, attempts, after, .. } = view;
    let outcome = view.outcome.as_ref().map(|outcome| (&outcome.bytes, outcome.failure));
    format!("{task:x} {tenant:?} {kind:?} {payload:?} {priority} {attempts} {after:?} {outcome:?}")
}

fn views(tasks: &Tasks, ids: &[Vec<u64>]) -> Vec<TaskView> {
    ids.iter().flatten().map(|&id| tasks.get(id).expect("the task exists")).collect()
}

fn wait_for_completion(tasks: &Tasks, id: u64) {
    let deadline = Instant::now() + PATIENCE;
    while tasks.get(id).expect("the task exists").stage != TaskStage::Completed {
        assert!(Instant::now() < deadline, "{:?}", tasks.why(id));
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the cluster's status, as the node with the HTTP listener `listener` reports it.
fn fetch_cluster(listener: &str) -> serde_json::Value {
    let mut stream = TcpStream::connect(listener).expect("the port is open");
    let request = format!("GET /v1/node/cluster HTTP/1.1\r\nHost: {listener}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the node reads the request");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("the node sends a response");
    let (start, end) = (response.find('{').expect("JSON"), response.rfind('}').expect("JSON"));
    serde_json::from_str(&response[start..=end]).expect("JSON")
}

/// Waits until the node with the HTTP listener `listener` leads all shards.
fn wait_for_own_leadership(listener: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = fetch_cluster(listener);
        let shards = status["tasks_shards"].as_array().expect("shards");
        assert_eq!(shards.len(), usize::from(SHARDS), "{status}");
        if shards.iter().all(|shard| shard["leader"] == status["id"]) {
            return;
        }
        assert!(Instant::now() < deadline, "{status}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn tasks_of_all_shards_are_restored_in_their_states() {
    let options = vec![format!("shards={SHARDS}")];
    let cluster = ClusterUnderTest::with(std::slice::from_ref(&options));
    let client = cluster.members[0].connect();
    let tasks = client.tasks();
    let shards: Vec<u8> = TENANTS.iter().map(|name| shard_of_tenant(name.as_bytes(), SHARDS)).collect();
    assert!(shards.contains(&0) && shards.contains(&1), "{shards:?}");
    let ids: Vec<Vec<u64>> = TENANTS.iter().map(|tenant| submit(&tasks, tenant)).collect();
    let worker = attach(&client, &["done", "dead", "held"]);
    run_tasks(&worker);
    let before = views(&tasks, &ids);
    let stages = |views: &[TaskView]| views.iter().map(|view| view.stage).collect::<Vec<_>>();
    assert_eq!(stages(&before), STAGES.repeat(TENANTS.len()));
    let file = cluster.dir.path().join("backup");
    back_up(&cluster.client(), &file, 0).expect("a backup");
    let submit_one = |tasks: &Tasks, tenant: &&str| {
        let new = NewTask::new(b"more", b"");
        tasks.submit_all(tenant, vec![new]).expect("there is room").tasks[0].task
    };
    let not_in_backup: Vec<u64> = TENANTS.iter().map(|tenant| submit_one(&tasks, tenant)).collect();
    drop((worker, tasks, client));

    let dir = cluster.dir.path().join("restored");
    let address = port::free().to_string();
    restore(&file, &dir, &address).expect("the backup is restored");
    let refused =
        start_with(&dir, &address, None, &["shards=1".to_owned()]).err().expect("the start is refused");
    assert!(refused.contains("set tasks.shards = 2"), "{refused}");
    let node = start_with(&dir, &address, None, &options).expect("the new cluster starts");
    let client = node.connect();
    let tasks = client.tasks();
    let after = views(&tasks, &ids);
    for ((before, after), stage) in before.iter().zip(&after).zip(STAGES.iter().cycle()) {
        // The new cluster may already have declared the worker of a running task dead. Then the task waits for another
        // worker, and the attempt does not count.
        let is_lost = *stage == TaskStage::Running && after.stage == TaskStage::Ready && after.lost == 1;
        if !is_lost {
            assert_eq!((after.stage, restored_values(after)), (*stage, restored_values(before)));
        }
    }
    wait_for_own_leadership(&node.listener("http"));
    let accounts = tasks.tenants("").expect("tenants");
    assert_eq!(accounts.len(), TENANTS.len());
    assert!(accounts.iter().all(|tenant| tenant.account.submitted == 7 && tenant.account.completed == 1));

    // The new cluster runs the unfinished tasks. A task that was running at the time of the backup runs a second time,
    // after the lease of its first worker has ended.
    let worker = attach(&client, &["held", "waits", "done", "dead"]);
    let mut done = 0;
    let deadline = Instant::now() + PATIENCE;
    while done < (1 + WAITS.len()) * TENANTS.len() {
        assert!(Instant::now() < deadline, "{done} were given");
        let assigned = worker.next_batch(100, Duration::from_millis(50)).expect("the worker is attached");
        assert!(
            assigned.iter().all(|assigned| matches!(assigned.kind(), b"held" | b"waits")),
            "{assigned:?}"
        );
        worker.complete_all(&assigned, &TaskUsage::default());
        done += assigned.len();
    }
    assert!(worker.flush(PATIENCE));
    for tenant_ids in &ids {
        [HELD].iter().chain(&WAITS).for_each(|&at| wait_for_completion(&tasks, tenant_ids[at]));
        assert_eq!(tasks.get(tenant_ids[4]).expect("the task exists").stage, TaskStage::Delayed);
    }
    for tenant in &TENANTS {
        let task = submit_one(&tasks, tenant);
        assert!(!not_in_backup.contains(&task), "{task:x} is given again");
    }
}

/// A restored cluster must elect a leader at once, without waiting for an election timeout. Before it serves clients,
/// its revision must be above all revisions of the old cluster.
#[test]
fn restored_cluster_has_a_leader_before_it_serves_clients() {
    let cluster = ClusterUnderTest::with(&[Vec::new()]);
    let kv = cluster.members[0].connect().kv();
    kv.put("a", "1").expect("a leader");
    let file = cluster.dir.path().join("backup");
    back_up(&cluster.client(), &file, 0).expect("a backup");
    let last = kv.put("a", "2").expect("a leader");
    let dir = cluster.dir.path().join("restored");
    let address = port::free().to_string();
    restore(&file, &dir, &address).expect("the backup is restored");
    // With this heartbeat interval, an election timeout would be longer than 10 s.
    let node =
        start_with(&dir, &address, None, &["heartbeat=10000".to_owned()]).expect("the new cluster starts");
    let read = node.connect().kv().stale().get("a").expect("the state is there").expect("the key is there");
    assert_eq!(&*read.value, b"1");
    let (_, revision) = node.connect().kv().stale().revision().expect("the state is there");
    assert!(revision > last, "{revision} after {last}");
    assert!(node.connect().kv().put("a", "3").expect("a leader") > revision);
}
