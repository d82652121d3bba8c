//! Tests of limits on how often tasks with the same value of a key start.

use super::*;

fn task_of_user(user: &'static [u8]) -> NewTask<'static> {
    NewTask { labels: vec![Label { key: b"user", value: user }], ..work() }
}

fn set_rate(scene: &mut Scene, rate: Rate) {
    scene.set_tenant(TenantSettings {
        limits: vec![KeyLimit::starting(b"user", rate)],
        ..TenantSettings::new(b"a")
    });
}

/// Completes each task as soon as the task starts. Advances the time from timer to timer until `end_ms`. Returns the
/// time (ms) and the task of each start, in the order of the starts.
fn starts_until(scene: &mut Scene, end_ms: u64) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    loop {
        let now_ms = scene.state.now_ms();
        for start in scene.starts() {
            all.push((now_ms, start.task));
            scene.complete(&start, 1_000).unwrap();
        }
        match scene.state.next_due_ms() {
            _ if !scene.effects.orders.is_empty() => {}
            Some(due_ms) if due_ms <= end_ms => scene.advance(due_ms),
            _ => return all,
        }
    }
}

fn join_for_ten_minutes(scene: &mut Scene, credit: u32) -> u64 {
    scene.join_with(NewWorker { kinds: vec![b"work"], credit, ttl_ms: 600_000, ..NewWorker::default() })
}

#[test]
fn rate_limit_allows_a_burst_and_then_one_task_per_interval() {
    let mut scene = Scene::default();
    set_rate(&mut scene, Rate { count: 3, per_ms: 1_000, burst: 2 });
    let ann = scene.submit_all("a", vec![task_of_user(b"ann"); 5]);
    let bob = scene.submit_all("a", vec![task_of_user(b"bob"); 2]);
    let nobody = scene.submit_all("a", vec![work(); 3]);
    join_for_ten_minutes(&mut scene, 20);
    let starts = starts_until(&mut scene, 10_000);
    let at = |now_ms: u64| {
        starts.iter().filter(|start| start.0 == now_ms).map(|start| start.1).collect::<Vec<_>>()
    };
    assert_eq!(
        at(0),
        [&ann[..2], &bob, &nobody].concat(),
        "each user has a bucket; tasks without a user have no limit"
    );
    assert_eq!((at(334), at(667), at(1_000)), (vec![ann[2]], vec![ann[3]], vec![ann[4]]));
    assert_eq!(starts.len(), 10);
}

#[test]
fn rate_limit_applies_to_a_backlog_when_workers_arrive() {
    let mut scene = Scene::default();
    set_rate(&mut scene, Rate { count: 10, per_ms: 1_000, burst: 3 });
    scene.submit_all("a", vec![task_of_user(b"ann"); 50]);
    scene.advance(60_000);
    join_for_ten_minutes(&mut scene, 100);
    let starts = starts_until(&mut scene, 62_000);
    let times: Vec<_> = starts.iter().map(|start| start.0 - 60_000).collect();
    let due: Vec<_> = [0, 0].into_iter().chain((0..=20).map(|at| at * 100)).collect();
    assert_eq!(times, due);
}

#[test]
fn rate_limit_counts_retries_but_not_cancelled_tasks() {
    let mut scene = Scene::default();
    set_rate(&mut scene, Rate::per_second(1));
    let retry = Some(RetryPolicy { retries: 3, backoff: Backoff::Fixed { delay_ms: 10 } });
    let first = scene.submit(NewTask { retry, ..task_of_user(b"ann") });
    let second = scene.submit(task_of_user(b"ann"));
    let worker = join_for_ten_minutes(&mut scene, 1);
    let start = scene.only_start();
    scene.fail(&start, true).unwrap();
    scene.advance(10);
    assert_eq!((scene.stage(first), scene.stage(second)), (TaskStage::Limited, TaskStage::Limited));
    scene.advance(999);
    assert_eq!(scene.starts(), []);
    scene.advance(1_000);
    assert_eq!(scene.only_start().task, second, "it came first");
    // When the worker has left, the task must start again. This second start counts for the rate too, and comes before
    // the first starts of later tasks.
    scene.must_apply(TaskCommand::Leave { worker });
    assert_eq!(scene.stage(second), TaskStage::Limited);
    scene.advance(2_000);
    assert_eq!((scene.stage(second), scene.stage(first)), (TaskStage::Ready, TaskStage::Limited));
    scene.must_apply(TaskCommand::Cancel { task: second });
    assert_eq!(scene.stage(first), TaskStage::Ready, "the token is still free");
    join_for_ten_minutes(&mut scene, 1);
    assert_eq!(scene.only_start().task, first);
}

#[test]
fn new_rate_limit_includes_tasks_started_before_the_change() {
    let mut scene = Scene::default();
    set_rate(&mut scene, Rate { count: 1, per_ms: 60_000, burst: 4 });
    let tasks = scene.submit_all("a", vec![task_of_user(b"ann"); 12]);
    join_for_ten_minutes(&mut scene, 20);
    assert_eq!(scene.starts().len(), 4);
    assert_eq!(
        scene.why(tasks[5]),
        "waiting: at most 1 tasks with user ann may start in 1 min; tasks ahead of it: 1; it starts in about 2 min"
    );
    scene.advance(30_000);
    // Half a token has arrived. Of the ten tokens of the new rate, three and a half are missing.
    set_rate(&mut scene, Rate { count: 1, per_ms: 1_000, burst: 10 });
    assert_eq!(scene.starts().len(), 6);
    assert_eq!(scene.state.next_due_ms(), Some(30_500));
    set_rate(&mut scene, Rate { count: 1, per_ms: 1_000, burst: 1 });
    assert_eq!(scene.state.next_due_ms(), Some(31_000), "at most the whole bucket is missing");
    scene.set_tenant(TenantSettings::new(b"a"));
    assert_eq!(scene.starts().len(), 2, "without a limit all start");
}

#[test]
fn task_starts_only_if_all_limits_of_its_keys_allow_it() {
    let mut scene = Scene::default();
    let limits = vec![
        KeyLimit::starting(b"user", Rate { count: 5, per_ms: 1_000, burst: 5 }),
        KeyLimit::starting(b"user", Rate { count: 8, per_ms: 60_000, burst: 8 }),
        KeyLimit {
            key: b"tenant",
            running_max: 3,
            rate: Some(Rate { count: 100, per_ms: 1_000, burst: 100 }),
        },
    ];
    scene.set_tenant(TenantSettings { limits, ..TenantSettings::new(b"a") });
    scene.submit_all("a", vec![task_of_user(b"ann"); 20]);
    join_for_ten_minutes(&mut scene, 20);
    let starts = starts_until(&mut scene, 20_000);
    let starts_by = |ms: u64| starts.iter().filter(|start| start.0 <= ms).count();
    // Three tasks run at a time. Five start immediately, eight within 600 ms, and then one every 7.5 s.
    assert_eq!(
        (starts_by(0), starts_by(600), starts_by(7_499), starts_by(7_500), starts_by(15_000)),
        (5, 8, 8, 9, 10)
    );
}

#[test]
fn rate_bucket_of_a_limit_key_is_dropped_when_it_is_full_again() {
    let mut scene = Scene::with(SchedulerLimits { finished_max: 0, ..SchedulerLimits::default() });
    set_rate(&mut scene, Rate { count: 1, per_ms: 5_000, burst: 2 });
    let users: Vec<String> = (0..100).map(|at| format!("user-{at}")).collect();
    let label = |value| vec![Label { key: b"user", value }];
    let worker = join_for_ten_minutes(&mut scene, 1);
    for user in &users {
        let labels = label(user.as_bytes());
        scene.submit(NewTask { labels, ..work() });
        let start = scene.only_start();
        scene.complete(&start, 1_000).unwrap();
    }
    assert!(scene.state.is_empty() && scene.state.bytes() > 100 * 64, "what is remembered is counted");
    scene.advance(4_999);
    assert!(scene.state.bytes() > 0);
    scene.advance(5_000);
    assert_eq!(scene.state.bytes(), 0);
    scene.must_apply(TaskCommand::Renew { workers: vec![worker] });
}

#[test]
fn snapshot_with_an_invalid_rate_bucket_is_refused() {
    let mut scene = Scene::default();
    set_rate(&mut scene, Rate::per_second(1));
    scene.submit(task_of_user(b"ann"));
    join_for_ten_minutes(&mut scene, 1);
    let snapshot = snapshots::blocks(&scene.state);
    let last = snapshot.len() - 1;
    assert!(snapshots::restored(&snapshot).is_ok());
    let restore_with_byte = |at: usize, byte: u8| {
        let mut snapshot = snapshot.clone();
        let from = snapshot[last].len() - at;
        snapshot[last][from] = byte;
        snapshots::restored(&snapshot)
    };
    // The last 16 bytes are what the bucket lacks, and the time of its last update. The bytes before them are the
    // value, the limit and the tenant.
    for (at, byte) in [(16, 0xe9), (14, 1), (8, 1), (27, 7), (31, 7)] {
        assert!(restore_with_byte(at, byte).is_err(), "byte {at} from the end");
    }
}

/// A model of the token bucket for one value of the limited key, in ms × `count`. The model counts the tokens in the
/// bucket, while the state counts the missing ones.
struct BucketModel {
    rate: Rate,
    level: u64,
    at_ms: u64,
}

impl BucketModel {
    fn new(rate: Rate) -> BucketModel {
        BucketModel { rate, level: u64::from(rate.burst) * u64::from(rate.per_ms), at_ms: 0 }
    }

    fn has_token(&mut self, now_ms: u64) -> bool {
        let added = (now_ms - self.at_ms) * u64::from(self.rate.count);
        let level_max = u64::from(self.rate.burst) * u64::from(self.rate.per_ms);
        (self.level, self.at_ms) = ((self.level + added).min(level_max), now_ms);
        self.level >= u64::from(self.rate.per_ms)
    }

    fn start(&mut self, now_ms: u64) {
        assert!(
            self.has_token(now_ms),
            "a start at {now_ms} without a token: {} of {:?}",
            self.level,
            self.rate
        );
        self.level -= u64::from(self.rate.per_ms);
    }
}

/// Checks a rate while there are more workers than tasks, so that every task that may start does so immediately.
fn check_rate(rate: Rate, steps: &[[u8; 3]]) {
    let mut scene = Scene::default();
    set_rate(&mut scene, rate);
    let mut buckets = [BucketModel::new(rate), BucketModel::new(rate)];
    let mut running: Vec<TaskStart> = Vec::new();
    let mut tasks = Vec::new();
    let mut worker = join_for_ten_minutes(&mut scene, 9_000);
    for &[kind, which, amount] in steps {
        let user = usize::from(which % 2);
        let now_ms = scene.state.now_ms();
        match kind % 8 {
            0..=2 => {
                let task = NewTask { timeout_ms: 3_600_000, ..task_of_user([&b"ann"[..], b"bob"][user]) };
                tasks.extend(scene.submit_all("a", vec![task; 1 + usize::from(amount % 3)]));
            }
            3 | 4 => scene.advance(now_ms + u64::from(amount)),
            5 if !running.is_empty() => {
                let start = running.remove(usize::from(which) % running.len());
                let ended =
                    if amount % 2 == 0 { scene.complete(&start, 10) } else { scene.fail(&start, true) };
                ended.unwrap();
            }
            6 if !tasks.is_empty() => {
                let task = tasks[usize::from(which) % tasks.len()];
                let _ = scene.apply(TaskCommand::Cancel { task });
            }
            7 if amount < 40 => {
                scene.must_apply(TaskCommand::Leave { worker });
                running.clear();
                worker = join_for_ten_minutes(&mut scene, 9_000);
            }
            _ => {}
        }
        let now_ms = scene.state.now_ms();
        for start in scene.starts() {
            let labels = scene.state.get(start.task).unwrap().labels;
            buckets[usize::from(&*labels[0].value == b"bob")].start(now_ms);
            running.push(start);
        }
        let (all, _) = scene.state.list(&TaskFilter::default(), 0, usize::MAX);
        for view in all.iter().filter(|view| view.stage == TaskStage::Limited) {
            let bucket = &mut buckets[usize::from(&*view.labels[0].value == b"bob")];
            assert!(!bucket.has_token(now_ms), "{view:?} waits although a token is free");
        }
        assert!(
            all.iter().all(|view| view.stage != TaskStage::Ready),
            "a ready task must start, with more workers than tasks"
        );
        let snapshot = snapshots::blocks(&scene.state);
        if amount.is_multiple_of(5) {
            scene.state = snapshots::restored(&snapshot).unwrap();
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn random_tasks_start_as_soon_as_the_rate_permits(
        (count, per_ms, burst) in (1_u32..4, 1_u32..400, 1_u32..4),
        steps in proptest::collection::vec(proptest::prelude::any::<[u8; 3]>(), 1..150),
    ) {
        check_rate(Rate { count, per_ms, burst }, &steps);
    }
}

/// In this test, the cluster could not write for a second. All tokens of this second then become available in one step
/// of the clock.
#[test]
fn rate_limit_allows_many_tasks_after_a_long_pause() {
    let count = 10_000;
    let mut scene = Scene::default();
    let rate = Rate { count, per_ms: 1_000, burst: count };
    scene.set_tenant(TenantSettings {
        limits: vec![KeyLimit::starting(b"tenant", rate)],
        ..TenantSettings::new(b"a")
    });
    let worker = join_for_ten_minutes(&mut scene, count);
    (0..2).for_each(|_| drop(scene.submit_all("a", vec![work(); count as usize])));
    assert_eq!(scene.starts().len(), count as usize);
    scene.must_apply(TaskCommand::Leave { worker });
    let ready = |scene: &Scene| scene.state.tenants().map(|tenant| tenant.ready).sum::<u64>();
    assert_eq!(ready(&scene), 0, "all tokens are used");
    scene.advance(1_000);
    assert_eq!(ready(&scene), u64::from(count));
}
