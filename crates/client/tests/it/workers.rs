//! Tests of tasks and workers, with a real node.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use dunlin::{Config, Node, NodeLimits, TasksLimits};
use dunlin_client::scheduler::{
    AttemptFailure, AttemptReport, Backoff, KeyLimit, Label, ListFilter, NewTask, NewWorker, RetryPolicy,
    SubmittedTask, TaskCommand, TaskStage, TaskView, TenantSettings, shard_of_tenant,
};
use dunlin_client::topic::{Event, Subscribe, SubscribeOptions};
use dunlin_client::{ErrorCode, Task, TaskFailure, TaskUsage, Tasks, TasksError, Worker, WorkerOptions};
use dunlin_wait::{PATIENCE, find, until};

use crate::running_node::RunningNode;

const MS: Duration = Duration::from_millis(1);

/// Starts a node that creates topics and tenants automatically when they are first used.
fn start() -> RunningNode {
    RunningNode::with_node(Node::start(Config::default()).unwrap())
}

fn wait_until_ended(tasks: &Tasks, task: u64) -> TaskView {
    find("the task is over", || {
        let found = tasks.get(task).unwrap();
        matches!(found.stage, TaskStage::Completed | TaskStage::Cancelled | TaskStage::Dead).then_some(found)
    })
}

fn options(kind: &str, slots: u32) -> WorkerOptions {
    WorkerOptions { kinds: vec![kind.to_owned()], slots, ..WorkerOptions::default() }
}

fn immediate_retries() -> Option<RetryPolicy> {
    Some(RetryPolicy { retries: 2, backoff: Backoff::Fixed { delay_ms: 1 } })
}

#[test]
fn blocking_and_async_handlers_complete_their_tasks() {
    let node = start();
    let client = node.client();
    let worker = Worker::new(&node.client())
        .handle("length", |task: Task| async move { Ok::<_, TaskFailure>(task.payload().len().to_string()) })
        .handle_blocking("upper", |task: &Task| Ok(task.payload().to_ascii_uppercase()))
        .slots(3)
        .name("w");
    let stop = worker.stop_handle();
    let running = thread::spawn(move || worker.run().unwrap());
    let tasks = client.tasks();
    let length = tasks.submit("acme", NewTask::new(b"length", b"hello")).unwrap().task;
    let many: Vec<Vec<u8>> = (0..500).map(|number: u32| format!("text {number}").into_bytes()).collect();
    let new = many.iter().map(|text| NewTask::new(b"upper", text)).collect();
    let submitted = tasks.submit_all("other", new).unwrap();
    assert_eq!(&*wait_until_ended(&tasks, length).outcome.unwrap().bytes, b"5");
    for (submitted_task, text) in submitted.tasks.iter().zip(&many) {
        let ended = wait_until_ended(&tasks, submitted_task.task);
        assert_eq!(ended.stage, TaskStage::Completed);
        assert_eq!(&*ended.outcome.unwrap().bytes, text.to_ascii_uppercase());
    }
    let workers = tasks.workers().unwrap();
    assert_eq!((workers.len(), &*workers[0].name), (1, &b"w"[..]));
    stop.stop();
    let load = running.join().unwrap();
    assert_eq!((load.assigned, load.answered, load.stale, load.lost), (501, 501, 0, 0));
    let tenants = tasks.tenants("").unwrap();
    let completed = |name: &[u8]| tenants.iter().find(|t| *t.name == *name).unwrap().account.completed;
    assert_eq!((completed(b"acme"), completed(b"other")), (1, 500));
}

/// Starts a node that distributes its tasks over four shards.
fn sharded() -> RunningNode {
    let tasks = TasksLimits { shards: 4, ..TasksLimits::default() };
    let limits = NodeLimits { tasks, ..NodeLimits::default() };
    RunningNode::with_node(Node::start(Config { limits, ..Config::default() }).unwrap())
}

#[test]
fn submitters_and_workers_reach_the_tasks_of_all_four_shards() {
    let node = sharded();
    let tasks = node.client().tasks();
    let names: Vec<String> = (0..8).map(|number| format!("tenant-{number}")).collect();
    let shards: BTreeSet<u8> = names.iter().map(|name| shard_of_tenant(name.as_bytes(), 4)).collect();
    assert_eq!(shards.len(), 4, "each shard has tasks");
    let submit = |name: &String| tasks.submit_all(name, vec![NewTask::new(b"k", b"x"); 25]).unwrap();
    let submitted: Vec<u64> =
        names.iter().flat_map(|name| submit(name).tasks).map(|submitted_task| submitted_task.task).collect();
    let listed = |stage| {
        let (mut listed, mut from) = (BTreeSet::new(), Some(0));
        while let Some(at) = from {
            let page = tasks.list(&ListFilter { stage, ..ListFilter::default() }, at, 30, false).unwrap();
            listed.extend(page.tasks.iter().map(|task| task.task));
            from = page.next;
        }
        listed
    };
    assert_eq!(listed(None), submitted.iter().copied().collect());
    assert!(tasks.why(submitted[77]).unwrap().contains("no worker serves kind k"));
    assert_eq!(tasks.queues("").unwrap().iter().map(|queue| queue.ready).sum::<u64>(), 200);

    let attachment = node.client().tasks().attach(options("k", 1)).unwrap();
    let mut done = BTreeSet::new();
    while done.len() < submitted.len() {
        let assigned = attachment.next(PATIENCE).unwrap().expect("a task");
        assert!(done.insert(assigned.task()), "no task is assigned twice");
        assert!(attachment.next(Duration::ZERO).unwrap().is_none(), "the worker has one slot");
        attachment.complete(&assigned, b"", &TaskUsage::default());
    }
    attachment.flush(PATIENCE);
    assert_eq!(listed(Some(TaskStage::Completed)), done);
    let tenants = tasks.tenants("").unwrap();
    assert!(tenants.len() == 8 && tenants.iter().all(|tenant| tenant.account.completed == 25), "{tenants:?}");
    let workers = tasks.workers().unwrap();
    assert_eq!((workers.len(), workers[0].done), (1, 200));
    // The worker counts as drained only when each shard of the tasks has drained it.
    let last = tasks.submit("tenant-3", NewTask::new(b"k", b"last")).unwrap().task;
    let assigned = attachment.next(PATIENCE).unwrap().expect("the last");
    attachment.drain();
    assert!(!attachment.wait_drained(100 * MS), "the worker holds a task of a shard");
    attachment.complete(&assigned, b"", &TaskUsage::default());
    assert!(attachment.wait_drained(PATIENCE));
    assert_eq!(wait_until_ended(&tasks, last).stage, TaskStage::Completed);
}

#[test]
fn failing_task_becomes_a_dead_letter_after_its_retries() {
    let node = start();
    let attempts = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&attempts);
    let worker = Worker::new(&node.client())
        .handle_blocking("fails", move |_: &Task| -> Result<Vec<u8>, TaskFailure> {
            counter.fetch_add(1, Ordering::Relaxed);
            Err(TaskFailure::new("no"))
        })
        .handle_blocking("panics", |_: &Task| -> Result<Vec<u8>, TaskFailure> { panic!("a bug") })
        .handle_blocking("hopeless", |_: &Task| -> Result<Vec<u8>, TaskFailure> {
            Err(TaskFailure::for_good("never"))
        });
    let stop = worker.stop_handle();
    let running = thread::spawn(move || worker.run().unwrap());
    let tasks = node.client().tasks();
    let fails = NewTask { retry: immediate_retries(), ..NewTask::new(b"fails", b"") };
    let fails = tasks.submit("t", fails).unwrap().task;
    let ended = wait_until_ended(&tasks, fails);
    assert_eq!((ended.stage, ended.attempts, attempts.load(Ordering::Relaxed)), (TaskStage::Dead, 3, 3));
    assert_eq!(&*ended.outcome.unwrap().bytes, b"no");
    let hopeless = tasks.submit("t", NewTask::new(b"hopeless", b"")).unwrap().task;
    let ended = wait_until_ended(&tasks, hopeless);
    assert_eq!((ended.stage, ended.attempts), (TaskStage::Dead, 1));
    let panics = NewTask { retry: immediate_retries(), ..NewTask::new(b"panics", b"") };
    let panics = tasks.submit("t", panics).unwrap().task;
    assert_eq!(wait_until_ended(&tasks, panics).stage, TaskStage::Dead);
    assert_eq!(tasks.redrive("t", 0).unwrap(), (3, false));
    assert_eq!(wait_until_ended(&tasks, fails).stage, TaskStage::Dead);
    assert!(tasks.why(fails).unwrap().contains("no"), "{}", tasks.why(fails).unwrap());
    stop.stop();
    running.join().unwrap();
}

#[test]
fn redrive_in_steps_restarts_no_task_twice() {
    let node = start();
    let tasks = node.client().tasks();
    let dead = || tasks.tenants("t").unwrap()[0].dead;
    tasks.submit_all("t", vec![NewTask::new(b"k", b""); 3]).unwrap();
    // A task becomes poisoned when three workers have ended while they ran it.
    for _ in 0..3 {
        let attachment = node.client().tasks().attach(options("k", 3)).unwrap();
        let mut assigned = Vec::new();
        while assigned.len() < 3 {
            assigned.extend(attachment.next_batch(3, PATIENCE).unwrap());
        }
    }
    until("the tasks are poisoned", || dead() == 3);
    // The cluster restarts 10,000 dead letters in one step. Make more of them.
    for count in [2_000, 2_000, 2_000, 2_000, 2_000, 10] {
        find("the tasks are submitted before their deadline", || {
            let deadline_ms = dunlin::now_ns() / 1_000_000 + 1_000;
            tasks.submit_all("t", vec![NewTask { deadline_ms, ..NewTask::new(b"k", b"") }; count]).ok()
        });
    }
    until("the tasks are dead letters", || dead() == 10_013);
    let fail = |_: &Task| -> Result<Vec<u8>, TaskFailure> { Err(TaskFailure::for_good("no")) };
    let worker = Worker::new(&node.client()).slots(64).handle_blocking("k", fail);
    let stop = worker.stop_handle();
    let running = thread::spawn(move || worker.run().unwrap());
    assert_eq!(tasks.redrive_many("t", u64::MAX, false).unwrap(), 10_010);
    until("the tasks have failed again", || dead() == 10_013);
    assert_eq!(tasks.redrive_many("t", u64::MAX, true).unwrap(), 10_013);
    stop.stop();
    running.join().unwrap();
}

#[test]
fn worker_receives_only_tasks_of_its_labels_and_tenants() {
    let node = start();
    let tasks = node.client().tasks();
    let needs = vec![Label { key: b"gpu", value: b"a100" }];
    let new = NewTask { needs: needs.clone(), ..NewTask::new(b"k", b"") };
    let matching = tasks.submit("acme", new.clone()).unwrap().task;
    let other_tenant = tasks.submit("other", new.clone()).unwrap().task;
    let plain = node.client().tasks().attach(options("k", 4)).unwrap();
    let unlabeled = tasks.submit("acme", NewTask::new(b"k", b"")).unwrap().task;
    assert_eq!(plain.next(PATIENCE).unwrap().unwrap().task(), unlabeled);
    let labels = vec![("gpu".to_owned(), "a100".to_owned())];
    let options_with_labels = WorkerOptions { labels, tenants: vec!["acme".to_owned()], ..options("k", 4) };
    let gpu = node.client().tasks().attach(options_with_labels).unwrap();
    assert_eq!(gpu.next(PATIENCE).unwrap().unwrap().task(), matching);
    assert!(
        tasks.why(other_tenant).unwrap().contains("serve only other tenants"),
        "{}",
        tasks.why(other_tenant).unwrap()
    );
    tasks.schedule("acme", "n", "0 0 1 1 *", new).unwrap();
    let view = tasks.get(matching).unwrap();
    assert_eq!((&*view.needs[0].key, &*view.needs[0].value), (&b"gpu"[..], &b"a100"[..]));
    assert!(plain.next(50 * MS).unwrap().is_none() && gpu.next(50 * MS).unwrap().is_none());
}

#[test]
fn task_of_a_departed_worker_moves_and_the_old_token_is_refused() {
    let node = start();
    let tasks = node.client().tasks();
    let task = tasks.submit("t", NewTask::new(b"k", b"payload")).unwrap().task;
    let first = node.client().tasks().attach(options("k", 1)).unwrap();
    let assigned = first.next(PATIENCE).unwrap().unwrap();
    assert_eq!(
        (assigned.task(), assigned.payload(), assigned.tenant(), assigned.attempt()),
        (task, &b"payload"[..], &b"t"[..], 1)
    );
    let worker = first.load().worker;
    drop(first);
    let second = node.client().tasks().attach(options("k", 1)).unwrap();
    let again = second.next(PATIENCE).unwrap().unwrap();
    assert_eq!(again.task(), task);
    assert!(again.token() > assigned.token());
    let answer = |worker, token| AttemptReport {
        worker,
        task,
        token,
        run_us: 0,
        cpu_us: 0,
        memory_bytes: 0,
        credit: 0,
    };
    let stale = |worker, token| {
        let command = TaskCommand::Complete { report: answer(worker, token), result: b"stolen" };
        tasks.command(&command).unwrap_err().code()
    };
    assert_eq!(stale(worker, assigned.token()), Some(ErrorCode::NoWorker), "the worker has left");
    let second_worker = second.load().worker;
    assert_eq!(stale(second_worker, assigned.token()), Some(ErrorCode::StaleToken));
    second.complete(&again, b"done", &TaskUsage::default());
    assert!(second.flush(PATIENCE));
    assert_eq!(&*wait_until_ended(&tasks, task).outcome.unwrap().bytes, b"done");
    let ended =
        TaskCommand::Fail { report: answer(second_worker, again.token()), error: b"late", retry: true };
    assert_eq!(tasks.command(&ended).unwrap_err().code(), Some(ErrorCode::TaskOver));
}

#[test]
fn worker_keeps_its_tasks_over_a_lost_connection() {
    let mut node = start();
    let (tasks, client) = (node.client().tasks(), node.client());
    let attachment = client.tasks().attach(options("k", 10)).unwrap();
    let ids: Vec<u64> = (0..10).map(|_| tasks.submit("t", NewTask::new(b"k", b"")).unwrap().task).collect();
    let mut assigned = Vec::new();
    while assigned.len() < 10 {
        assigned.extend(attachment.next_batch(10, PATIENCE).unwrap());
    }
    let worker = attachment.load().worker;
    let before = client.connections();
    node.cut();
    for (number, assigned) in assigned.iter().enumerate() {
        attachment.complete(assigned, number.to_string().as_bytes(), &TaskUsage::default());
    }
    assert!(attachment.flush(PATIENCE));
    assert!(client.connections() > before, "the connection was cut");
    let load = attachment.load();
    assert_eq!((load.worker, load.assigned, load.answered, load.stale, load.lost), (worker, 10, 10, 0, 0));
    for (number, assigned) in assigned.iter().enumerate() {
        let ended = wait_until_ended(&tasks, assigned.task());
        assert_eq!(&*ended.outcome.unwrap().bytes, number.to_string().as_bytes());
    }
    assert!(ids.iter().all(|id| assigned.iter().any(|assigned| assigned.task() == *id)));
}

#[test]
fn cancelled_task_receives_a_stop_request() {
    let node = start();
    let tasks = node.client().tasks();
    let attachment = node.client().tasks().attach(options("k", 1)).unwrap();
    let running = tasks.submit("t", NewTask::new(b"k", b"")).unwrap().task;
    let waiting = tasks.submit("t", NewTask::new(b"k", b"")).unwrap().task;
    let assigned = attachment.next(PATIENCE).unwrap().unwrap();
    assert_eq!((assigned.task(), assigned.is_stopped()), (running, false));
    assert_eq!(tasks.cancel(waiting).unwrap(), 1);
    tasks.cancel(running).unwrap();
    until("the task is stopped", || assigned.is_stopped());
    attachment.fail(&assigned, b"stopped", true, &TaskUsage::default());
    assert!(attachment.flush(PATIENCE));
    for task in [running, waiting] {
        assert_eq!(wait_until_ended(&tasks, task).stage, TaskStage::Cancelled);
    }
}

#[test]
fn draining_worker_finishes_its_tasks_and_takes_no_new_task() {
    let node = start();
    let tasks = node.client().tasks();
    let attachment = node.client().tasks().attach(options("k", 2)).unwrap();
    let first = tasks.submit("t", NewTask::new(b"k", b"")).unwrap().task;
    let assigned = attachment.next(PATIENCE).unwrap().unwrap();
    attachment.drain();
    assert!(attachment.flush(PATIENCE) && !attachment.is_drained());
    let second = tasks.submit("t", NewTask::new(b"k", b"")).unwrap().task;
    assert!(attachment.next(200 * MS).unwrap().is_none());
    attachment.complete(&assigned, b"", &TaskUsage::default());
    assert!(attachment.wait_drained(PATIENCE));
    assert_eq!(wait_until_ended(&tasks, first).stage, TaskStage::Completed);
    assert_eq!(tasks.get(second).unwrap().stage, TaskStage::Ready);
    assert!(tasks.why(second).unwrap().starts_with("waiting"), "{}", tasks.why(second).unwrap());
}

#[test]
fn draining_worker_without_a_node_ends_when_idle() {
    let node = start();
    let tasks = node.client().tasks();
    let idle = node.client().tasks().attach(options("other", 1)).unwrap();
    let busy = node.client().tasks().attach(options("k", 1)).unwrap();
    tasks.submit("t", NewTask::new(b"k", b"")).unwrap();
    let assigned = busy.next(PATIENCE).unwrap().unwrap();
    until("the worker is attached", || idle.is_attached());
    drop(node);
    idle.drain();
    busy.drain();
    assert!(idle.wait_drained(PATIENCE));
    assert!(!busy.is_drained(), "the worker has a task");
    busy.complete(&assigned, b"", &TaskUsage::default());
    assert!(busy.wait_drained(PATIENCE));
}

#[test]
fn tenant_limit_caps_the_running_tasks_of_a_tenant() {
    let node = start();
    let tasks = node.client().tasks();
    let limits = vec![KeyLimit::running(b"tenant", 2)];
    tasks.set_tenant(TenantSettings { limits, ..TenantSettings::new(b"t") }).unwrap();
    let attachment = node.client().tasks().attach(options("k", 10)).unwrap();
    let new = (0..5).map(|_| NewTask::new(b"k", b"")).collect();
    let submitted = tasks.submit_all("t", new).unwrap();
    let mut assigned = Vec::new();
    while assigned.len() < 2 {
        assigned.extend(attachment.next_batch(10, PATIENCE).unwrap());
    }
    assert!(attachment.next(100 * MS).unwrap().is_none(), "two of five may run");
    assert_eq!(assigned.len(), 2);
    assert!(tasks.why(submitted.tasks[4].task).unwrap().contains("2 of 2"));
    attachment.complete(&assigned[0], b"", &TaskUsage::default());
    assert!(attachment.next(PATIENCE).unwrap().is_some());
    let filter = ListFilter { tenant: b"t", stage: Some(TaskStage::Limited), ..ListFilter::default() };
    assert_eq!(tasks.list(&filter, 0, 0, false).unwrap().tasks.len(), 2);
    assert_eq!(tasks.signals().unwrap().held, 2);
}

#[test]
fn invalid_task_requests_are_refused_with_their_codes() {
    let node = start();
    let tasks = node.client().tasks();
    let code = |result: Result<SubmittedTask, TasksError>| result.unwrap_err().code();
    let submit = |task| code(tasks.submit("t", task));
    let large = vec![0; (1 << 20) + 1];
    assert_eq!(submit(NewTask::new(b"k", &large)), Some(ErrorCode::TaskTooLarge));
    assert_eq!(submit(NewTask { priority: 10, ..NewTask::new(b"k", b"") }), Some(ErrorCode::BadTask));
    assert_eq!(submit(NewTask { deadline_ms: 1, ..NewTask::new(b"k", b"") }), Some(ErrorCode::BadTask));
    assert_eq!(submit(NewTask::new(b"", b"")), Some(ErrorCode::BadTask));
    assert_eq!(tasks.get(77).unwrap_err().code(), Some(ErrorCode::NoTask));
    assert_eq!(tasks.cancel(77).unwrap_err().code(), Some(ErrorCode::NoTask));
    tasks.set_tenant(TenantSettings { queued_max: 2, ..TenantSettings::new(b"small") }).unwrap();
    let new = |count: usize| (0..count).map(|_| NewTask::new(b"k", b"")).collect::<Vec<_>>();
    let full = tasks.submit_all("small", new(3)).unwrap_err();
    assert_eq!(full.code(), Some(ErrorCode::QueueFull));
    let TasksError::Refused(refused) = full else { panic!("{full}") };
    assert!(refused.numbers[0] > 0, "the refusal says when to try again");
    let endless = node.client().tasks().attach(WorkerOptions::default()).unwrap();
    assert!(matches!(endless.next(PATIENCE), Err(TasksError::Ended(_))), "a worker that can do nothing");
    let key = |key| NewTask { idempotency_key: key, ..NewTask::new(b"k", b"") };
    let first = tasks.submit("t", key(b"once")).unwrap();
    let second = tasks.submit("t", key(b"once")).unwrap();
    assert_eq!((first.known, second.known, first.task), (false, true, second.task));
}

#[test]
fn publishing_task_publishes_its_record_and_its_events() {
    let node = start();
    let client = node.client();
    let mut events = client.subscribe("$tasks.acme", SubscribeOptions::default()).unwrap();
    let mut alarms = client.subscribe("alarms", SubscribeOptions::default()).unwrap();
    let tasks = client.tasks();
    let publish = NewTask { subject: b"alarms", ..NewTask::new(b"publish", b"wake up") };
    let task = tasks.submit("acme", publish).unwrap().task;
    let Some(Event::Record(record)) = alarms.next_timeout(PATIENCE).unwrap() else { panic!("nothing") };
    assert_eq!(record.payload(), b"wake up");
    assert_eq!(wait_until_ended(&tasks, task).stage, TaskStage::Completed);
    let mut texts = Vec::new();
    while texts.len() < 3 {
        let Some(Event::Record(record)) = events.next_timeout(PATIENCE).unwrap() else { panic!("{texts:?}") };
        texts.push(String::from_utf8(record.payload().to_vec()).unwrap());
    }
    for (text, what) in texts.iter().zip(["submitted", "publishing", "completed"]) {
        assert!(text.contains(&format!("\"task\":\"{task:x}\"")), "{text}");
        assert!(text.contains(&format!("\"event\":\"{what}\"")), "{text}");
    }
}

#[test]
fn attempt_without_a_result_ends_at_its_timeout() {
    let node = start();
    let tasks = node.client().tasks();
    let join = NewWorker { kinds: vec![b"k"], ttl_ms: 300, ..NewWorker::default() };
    let joined = tasks.command(&TaskCommand::Join { worker: join });
    assert_eq!(joined.unwrap_err().code(), Some(ErrorCode::BadTask), "a worker attaches");
    let task = NewTask { timeout_ms: 100, retry: immediate_retries(), ..NewTask::new(b"k", b"") };
    let task = tasks.submit("t", task).unwrap().task;
    let attachment = node.client().tasks().attach(options("k", 1)).unwrap();
    let mut tokens = Vec::new();
    while tasks.get(task).unwrap().stage != TaskStage::Dead {
        let Some(assigned) = attachment.next(10 * MS).unwrap() else { continue };
        tokens.push(assigned.token());
        until("the task is stopped", || assigned.is_stopped());
        // The cluster does not accept the late result, but the worker's slot becomes free.
        attachment.complete(&assigned, b"late", &TaskUsage::default());
    }
    assert_eq!(tokens.len(), 3);
    assert!(tokens.is_sorted());
    assert!(attachment.flush(PATIENCE));
    assert_eq!((attachment.load().answered, attachment.load().stale), (0, 3));
    let outcome = tasks.get(task).unwrap().outcome.unwrap();
    assert_eq!(outcome.failure, Some(AttemptFailure::TimedOut));
    let next = tasks.submit("t", NewTask::new(b"k", b"")).unwrap().task;
    assert_eq!(attachment.next(PATIENCE).unwrap().unwrap().task(), next);
}

/// Each of the sizes exceeds another limit: of the scheduler, of the cluster's log, and of a request.
#[test]
fn oversized_result_ends_its_task_without_a_retry() {
    let node = start();
    let tasks = node.client().tasks();
    let attachment = node.client().tasks().attach(options("k", 1)).unwrap();
    let expected_texts = [
        ((1 << 20) + 1, "result_bytes_max = 1048576, but the size is 1048577"),
        (9 << 20, "command_bytes_max = 8388608, but the size is 94"),
        (17 << 20, "run_bytes_max = 16777216, but the size is 178"),
    ];
    for (bytes, why) in expected_texts {
        let new = NewTask { retry: immediate_retries(), ..NewTask::new(b"k", b"") };
        let task = tasks.submit("t", new).unwrap().task;
        let assigned = attachment.next(PATIENCE).unwrap().unwrap();
        assert_eq!(assigned.task(), task);
        attachment.complete(&assigned, &vec![7; bytes], &TaskUsage::default());
        let ended = wait_until_ended(&tasks, task);
        let outcome = ended.outcome.unwrap();
        assert_eq!((ended.stage, outcome.failure), (TaskStage::Dead, Some(AttemptFailure::Failed)));
        let text = String::from_utf8_lossy(&outcome.bytes);
        assert!(text.contains(why), "{text}");
    }
    assert!(attachment.flush(PATIENCE));
    let load = attachment.load();
    assert_eq!((load.unanswered, load.answered, load.stale, load.lost), (0, 3, 0, 0));
    attachment.drain();
    assert!(attachment.wait_drained(PATIENCE));
}
