//! Tests that worker processes are started, drained, killed and replaced, and that none remains afterwards.
//!
//! The processes are real, but run a shell script instead of a worker. The test takes the scheduler's place, and states
//! which workers are attached.

use std::path::Path;
use std::sync::{Arc, Mutex};

use dunlin_scale::{
    InstanceId, InstanceMarket, Policy, Provider, ProviderAction, ProviderEvent, SchedulerSnapshot,
};
use dunlin_server::workers::{LocalWorkers, SchedulerLoad, WorkerCommand, Workers, WorkersLimits};
use dunlin_wait::{Deadline, PATIENCE, POLL, find, until};

fn command(script: &str) -> WorkerCommand {
    WorkerCommand {
        words: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        environment: vec![("DUNLIN_URL".to_owned(), "dunlin://127.0.0.1:1".to_owned())],
        prefix: "here".to_owned(),
    }
}

fn launch(instance: InstanceId) -> ProviderAction {
    ProviderAction::Launch { instance, market: InstanceMarket::OnDemand, is_warm: false }
}

struct WorkersTest {
    workers: LocalWorkers,
    /// The present time as the test states it to `workers`, ms.
    now_ms: u64,
    events: Vec<ProviderEvent>,
}

impl WorkersTest {
    fn new(script: &str, limits: WorkersLimits) -> WorkersTest {
        WorkersTest { workers: LocalWorkers::new(command(script), limits), now_ms: 0, events: Vec::new() }
    }

    fn act(&mut self, action: &ProviderAction) {
        self.workers.act(self.now_ms, action);
    }

    fn attach(&mut self, instance: InstanceId) {
        self.workers.update_attached(self.now_ms, [format!("here-{instance}").as_str()].into_iter());
    }

    /// Waits until there are at least `count` events, and returns all of them.
    fn wait(&mut self, count: usize) -> &[ProviderEvent] {
        let deadline = Deadline::new();
        self.workers.events(self.now_ms, &mut self.events);
        while self.events.len() < count {
            deadline.check(format!("{count} events, not only {:?}", self.events));
            std::thread::sleep(POLL);
            self.workers.events(self.now_ms, &mut self.events);
        }
        &self.events
    }
}

/// Waits until the file has a complete line, and returns its text.
fn written(path: &Path) -> String {
    find(format!("a line in {}", path.display()), || {
        std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))
    })
}

fn is_alive(pid: &str) -> bool {
    // A process that has ended, but was not reaped yet, does not count as alive.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

fn wait_until_gone(pid: &str) {
    until(format!("process {pid} is gone"), || !is_alive(pid));
}

#[test]
fn attached_worker_is_ready_and_drains_on_sigterm() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("said");
    let script = format!(
        "trap 'echo drained >> {0}; exit 0' TERM; echo $DUNLIN_WORKER_NAME $DUNLIN_URL >> {0}; while :; do sleep 0.02; done",
        file.display()
    );
    let mut fixture = WorkersTest::new(&script, WorkersLimits::default());
    fixture.act(&launch(7));
    assert_eq!(written(&file), "here-7 dunlin://127.0.0.1:1\n");
    fixture.workers.update_attached(0, ["here-8", "there-7", "here-7x"].into_iter());
    let mut none = Vec::new();
    fixture.workers.events(0, &mut none);
    assert_eq!(none, [], "others' names");
    fixture.attach(7);
    assert_eq!(fixture.wait(1), [ProviderEvent::Ready { instance: 7 }]);
    fixture.act(&ProviderAction::Drain { instance: 7, grace_ms: 60_000 });
    assert_eq!(
        fixture.wait(3)[1..],
        [ProviderEvent::Drained { instance: 7 }, ProviderEvent::Gone { instance: 7 }]
    );
    assert!(written(&file).ends_with("drained\n"), "it was asked, not killed");
    assert!(fixture.workers.is_empty());
}

#[test]
fn worker_over_its_grace_period_is_killed_with_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("child");
    let script = format!("trap '' TERM; sleep 1000 & echo $! > {}; wait; wait", file.display());
    let mut fixture = WorkersTest::new(&script, WorkersLimits::default());
    fixture.act(&launch(1));
    let child = written(&file);
    fixture.attach(1);
    fixture.act(&ProviderAction::Drain { instance: 1, grace_ms: 50 });
    fixture.now_ms += 50;
    assert_eq!(fixture.wait(2)[1], ProviderEvent::Drained { instance: 1 });
    assert!(is_alive(&child));
    fixture.act(&ProviderAction::Terminate { instance: 1 });
    assert_eq!(fixture.wait(3)[2], ProviderEvent::Gone { instance: 1 });
    wait_until_gone(&child);
}

#[test]
fn worker_that_ends_or_never_attaches_is_reported_failed() {
    let limits = WorkersLimits { ready_ms_max: 50, ..WorkersLimits::default() };
    let mut fixture = WorkersTest::new("exit 3", WorkersLimits::default());
    fixture.act(&launch(1));
    assert_eq!(fixture.wait(1), [ProviderEvent::Failed { instance: 1, is_capacity: false }]);
    let mut fixture = WorkersTest::new("sleep 1000", limits);
    fixture.act(&launch(2));
    fixture.now_ms += 50;
    assert_eq!(fixture.wait(1), [ProviderEvent::Failed { instance: 2, is_capacity: false }]);
    let nowhere = WorkerCommand { words: vec!["/nowhere/at-all".to_owned()], ..command("") };
    let mut workers = LocalWorkers::new(nowhere, limits);
    workers.act(0, &launch(3));
    let mut events = Vec::new();
    workers.events(0, &mut events);
    assert_eq!(events, [ProviderEvent::Failed { instance: 3, is_capacity: false }]);
}

#[test]
fn warm_worker_process_attaches_after_it_is_woken() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("heard");
    // Over the socket on its standard input, the process first reports that it is prepared, and then reads the call.
    let script = format!(
        "test $DUNLIN_WORKER_WARM = 1 && echo prepared >&0; read line; echo $line > {0}; sleep 1000",
        file.display()
    );
    let mut fixture = WorkersTest::new(&script, WorkersLimits::default());
    fixture.act(&ProviderAction::Launch { instance: 1, market: InstanceMarket::OnDemand, is_warm: true });
    assert_eq!(fixture.wait(1), [ProviderEvent::Prepared { instance: 1 }]);
    assert!(!file.exists(), "nobody called yet");
    fixture.act(&ProviderAction::Wake { instance: 1 });
    assert_eq!(written(&file), "work\n");
    fixture.attach(1);
    assert_eq!(fixture.wait(2)[1], ProviderEvent::Ready { instance: 1 });
}

#[test]
fn warm_worker_fails_if_it_is_late_or_dies_or_attaches_early() {
    let warm =
        |instance| ProviderAction::Launch { instance, market: InstanceMarket::OnDemand, is_warm: true };
    let failed = |instance| ProviderEvent::Failed { instance, is_capacity: false };
    let mut fixture =
        WorkersTest::new("sleep 1000", WorkersLimits { ready_ms_max: 50, ..WorkersLimits::default() });
    fixture.act(&warm(1));
    fixture.now_ms += 50;
    assert_eq!(fixture.wait(1), [failed(1)]);
    let mut fixture = WorkersTest::new("echo prepared >&0; read line", WorkersLimits::default());
    fixture.act(&warm(2));
    assert_eq!(fixture.wait(1), [ProviderEvent::Prepared { instance: 2 }]);
    let (_, pid) = fixture.workers.process_ids().next().unwrap();
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert_eq!(fixture.wait(2)[1], ProviderEvent::Gone { instance: 2 });
    fixture.act(&ProviderAction::Wake { instance: 2 });
    assert_eq!(fixture.wait(3)[2], failed(2));
    // This command ignores the warm pool: it attaches before it is called.
    let mut fixture = WorkersTest::new("sleep 1000", WorkersLimits::default());
    fixture.act(&warm(3));
    fixture.attach(3);
    assert_eq!(fixture.wait(2), [failed(3), ProviderEvent::Gone { instance: 3 }]);
}

#[test]
fn worker_process_that_ends_or_sends_nothing_is_reported_gone() {
    let limits = WorkersLimits { silent_ms_max: 50, ..WorkersLimits::default() };
    let mut fixture = WorkersTest::new("sleep 1000", limits);
    fixture.act(&launch(1));
    fixture.act(&launch(2));
    fixture.workers.update_attached(0, ["here-1", "here-2"].into_iter());
    fixture.wait(2);
    let pids: Vec<u32> = fixture.workers.process_ids().map(|(_, pid)| pid).collect();
    let pid = rustix::process::Pid::from_raw(pids[0] as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert_eq!(fixture.wait(3)[2], ProviderEvent::Gone { instance: 1 });
    // From now on, worker 2 is not attached. After 50 ms, it must be killed.
    fixture.attach(9);
    fixture.now_ms += 50;
    assert_eq!(fixture.wait(4)[3], ProviderEvent::Gone { instance: 2 });
}

#[test]
fn worker_count_follows_backlog_and_workers_end_with_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lives");
    let script = format!(
        "trap 'echo asked >> {0}; exit 0' TERM; echo began >> {0}; while :; do sleep 0.02; done",
        file.display()
    );
    let waiting = Arc::new(Mutex::new(0_u64));
    let backlog = Arc::clone(&waiting);
    // The simulated scheduler reports all workers as attached, so that each process is ready at once. While tasks wait,
    // it reports that the workers are busy.
    let read_load = move || {
        let startable = *backlog.lock().unwrap();
        let workers: Vec<(u64, String)> = (1..60).map(|worker| (worker, format!("here-{worker}"))).collect();
        let mut snapshot = SchedulerSnapshot::default();
        snapshot.signals.startable = startable;
        snapshot.signals.oldest_ms = startable;
        snapshot.signals.held = u64::from(startable > 0);
        snapshot.signals.credit = u64::from(startable == 0);
        snapshot.signals.idle = workers.iter().filter(|_| startable == 0).map(|(id, _)| (*id, 0)).collect();
        Some(SchedulerLoad { snapshot, workers })
    };
    let mut policy = Policy::local(2, 6);
    (policy.scale_out.detect_ms, policy.scale_in.cooldown_ms, policy.scale_in.decide_ms) = (100, 300, 100);
    let workers = Workers::start(policy, command(&script), WorkersLimits::default(), read_load).unwrap();
    let wait_for_workers = |expected: u64| {
        until(format!("{expected} workers"), || {
            (workers.ready(), workers.processes()) == (expected, expected)
        });
    };
    wait_for_workers(2);
    *waiting.lock().unwrap() = 100_000;
    wait_for_workers(6);
    *waiting.lock().unwrap() = 0;
    wait_for_workers(2);
    workers.stop(PATIENCE);
    let lives = std::fs::read_to_string(&file).unwrap();
    let count = |what: &str| lives.lines().filter(|line| *line == what).count();
    assert!(count("asked") >= count("began"), "each ended as it was asked to: {lives}");
}
