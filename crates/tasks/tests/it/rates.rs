//! Limits on how often tasks with the same value of a key start.

use super::*;

fn of(user: &'static [u8]) -> NewTask<'static> {
    NewTask { labels: vec![Label { key: b"user", value: user }], ..work() }
}

fn limited(scene: &mut Scene, rate: Rate) {
    scene.tenant(TenantSettings {
        limits: vec![KeyLimit::starting(b"user", rate)],
        ..TenantSettings::new(b"a")
    });
}

/// Completes each task at once, and advances the time from timer to timer. Returns the starts in order.
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

fn join_for_long(scene: &mut Scene, credit: u32) -> u64 {
    scene.join_with(NewWorker { kinds: vec![b"work"], credit, ttl_ms: 600_000, ..NewWorker::default() })
}

#[test]
fn rate_limit_starts_a_burst_and_then_one_task_per_interval() {
    let mut scene = Scene::default();
    limited(&mut scene, Rate { count: 3, per_ms: 1_000, burst: 2 });
    let ann = scene.submit_all("a", vec![of(b"ann"); 5]);
    let bob = scene.submit_all("a", vec![of(b"bob"); 2]);
    let nobody = scene.submit_all("a", vec![work(); 3]);
    join_for_long(&mut scene, 20);
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
    limited(&mut scene, Rate { count: 10, per_ms: 1_000, burst: 3 });
    scene.submit_all("a", vec![of(b"ann"); 50]);
    scene.advance(60_000);
    join_for_long(&mut scene, 100);
    let starts = starts_until(&mut scene, 62_000);
    let times: Vec<_> = starts.iter().map(|start| start.0 - 60_000).collect();
    let due: Vec<_> = [0, 0].into_iter().chain((0..=20).map(|at| at * 100)).collect();
    assert_eq!(times, due);
}

#[test]
fn retry_takes_a_rate_token_and_cancelling_returns_it() {
    let mut scene = Scene::default();
    limited(&mut scene, Rate::per_second(1));
    let retry = Some(RetryPolicy { retries: 3, backoff: Backoff::Fixed { delay_ms: 10 } });
    let first = scene.submit(NewTask { retry, ..of(b"ann") });
    let second = scene.submit(of(b"ann"));
    let worker = join_for_long(&mut scene, 1);
    let start = scene.one_start();
    scene.fail(&start, true).unwrap();
    scene.advance(10);
    assert_eq!((scene.stage(first), scene.stage(second)), (TaskStage::Limited, TaskStage::Limited));
    scene.advance(999);
    assert_eq!(scene.starts(), []);
    scene.advance(1_000);
    assert_eq!(scene.one_start().task, second, "it came first");
    // After its worker has left, the task's next start counts as well, and comes before starts of later
    // tasks.
    scene.done(TaskCommand::Leave { worker });
    assert_eq!(scene.stage(second), TaskStage::Limited);
    scene.advance(2_000);
    assert_eq!((scene.stage(second), scene.stage(first)), (TaskStage::Ready, TaskStage::Limited));
    scene.done(TaskCommand::Cancel { task: second });
    assert_eq!(scene.stage(first), TaskStage::Ready, "the token is still free");
    join_for_long(&mut scene, 1);
    assert_eq!(scene.one_start().task, first);
}

#[test]
fn tasks_started_before_a_rate_change_count_for_the_new_rate() {
    let mut scene = Scene::default();
    limited(&mut scene, Rate { count: 1, per_ms: 60_000, burst: 4 });
    let tasks = scene.submit_all("a", vec![of(b"ann"); 12]);
    join_for_long(&mut scene, 20);
    assert_eq!(scene.starts().len(), 4);
    assert_eq!(
        scene.why(tasks[5]),
        "waiting: at most 1 tasks with user ann may start in 60 s; 1 ahead of it, starts in about 2 min"
    );
    scene.advance(30_000);
    // Half a token has arrived; three and a half of ten are missing.
    limited(&mut scene, Rate { count: 1, per_ms: 1_000, burst: 10 });
    assert_eq!(scene.starts().len(), 6);
    assert_eq!(scene.state.next_due_ms(), Some(30_500));
    limited(&mut scene, Rate { count: 1, per_ms: 1_000, burst: 1 });
    assert_eq!(scene.state.next_due_ms(), Some(31_000), "at most the whole bucket is missing");
    scene.tenant(TenantSettings::new(b"a"));
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
    scene.tenant(TenantSettings { limits, ..TenantSettings::new(b"a") });
    scene.submit_all("a", vec![of(b"ann"); 20]);
    join_for_long(&mut scene, 20);
    let starts = starts_until(&mut scene, 20_000);
    let until = |ms: u64| starts.iter().filter(|start| start.0 <= ms).count();
    // Three tasks run at a time. Five start at once, eight within 600 ms, and one each 7.5 s from then on.
    assert_eq!((until(0), until(600), until(7_499), until(7_500), until(15_000)), (5, 8, 8, 9, 10));
}

#[test]
fn full_rate_bucket_of_a_key_value_is_dropped() {
    let mut scene = Scene::with(SchedulerLimits { finished_max: 0, ..SchedulerLimits::default() });
    limited(&mut scene, Rate { count: 1, per_ms: 5_000, burst: 2 });
    let users: Vec<String> = (0..100).map(|at| format!("user-{at}")).collect();
    let label = |value| vec![Label { key: b"user", value }];
    let worker = join_for_long(&mut scene, 1);
    for user in &users {
        let labels = label(user.as_bytes());
        scene.submit(NewTask { labels, ..work() });
        let start = scene.one_start();
        scene.complete(&start, 1_000).unwrap();
    }
    assert!(scene.state.is_empty() && scene.state.bytes() > 100 * 64, "what is remembered is counted");
    scene.advance(4_999);
    assert!(scene.state.bytes() > 0);
    scene.advance(5_000);
    assert_eq!(scene.state.bytes(), 0);
    scene.done(TaskCommand::Beat { workers: vec![worker] });
}

#[test]
fn snapshot_with_an_impossible_rate_bucket_is_refused() {
    let mut scene = Scene::default();
    limited(&mut scene, Rate::per_second(1));
    scene.submit(of(b"ann"));
    join_for_long(&mut scene, 1);
    let kept = snapshots::blocks(&scene.state);
    let last = kept.len() - 1;
    assert!(snapshots::restored(&kept).is_ok());
    let with = |at: usize, byte: u8| {
        let mut kept = kept.clone();
        let from = kept[last].len() - at;
        kept[last][from] = byte;
        snapshots::restored(&kept)
    };
    // The last 16 bytes are the missing part and its time; before them are the value, the limit and the
    // tenant.
    for (at, byte) in [(16, 0xe9), (14, 1), (8, 1), (27, 7), (31, 7)] {
        assert!(with(at, byte).is_err(), "byte {at} from the end");
    }
}

/// A model of the tokens of one value, in ms × `count`. The model counts the tokens in the bucket, while the state
/// counts the missing ones.
struct Reference {
    rate: Rate,
    level: u64,
    at_ms: u64,
}

impl Reference {
    fn new(rate: Rate) -> Reference {
        Reference { rate, level: u64::from(rate.burst) * u64::from(rate.per_ms), at_ms: 0 }
    }

    fn has_token(&mut self, now_ms: u64) -> bool {
        let flowed = (now_ms - self.at_ms) * u64::from(self.rate.count);
        let most = u64::from(self.rate.burst) * u64::from(self.rate.per_ms);
        (self.level, self.at_ms) = ((self.level + flowed).min(most), now_ms);
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

/// Checks a rate when there are more workers than tasks: every task that may start does so at once.
fn play_rate(rate: Rate, deeds: &[[u8; 3]]) {
    let mut scene = Scene::default();
    limited(&mut scene, rate);
    let mut references = [Reference::new(rate), Reference::new(rate)];
    let mut held: Vec<TaskStart> = Vec::new();
    let mut tasks = Vec::new();
    let mut worker = join_for_long(&mut scene, 9_000);
    for &[deed, which, amount] in deeds {
        let user = usize::from(which % 2);
        let now_ms = scene.state.now_ms();
        match deed % 8 {
            0..=2 => {
                let task = NewTask { timeout_ms: 3_600_000, ..of([&b"ann"[..], b"bob"][user]) };
                tasks.extend(scene.submit_all("a", vec![task; 1 + usize::from(amount % 3)]));
            }
            3 | 4 => scene.advance(now_ms + u64::from(amount)),
            5 if !held.is_empty() => {
                let start = held.remove(usize::from(which) % held.len());
                let ended =
                    if amount % 2 == 0 { scene.complete(&start, 10) } else { scene.fail(&start, true) };
                ended.unwrap();
            }
            6 if !tasks.is_empty() => {
                let task = tasks[usize::from(which) % tasks.len()];
                let _ = scene.ask(TaskCommand::Cancel { task });
            }
            7 if amount < 40 => {
                scene.done(TaskCommand::Leave { worker });
                held.clear();
                worker = join_for_long(&mut scene, 9_000);
            }
            _ => {}
        }
        let now_ms = scene.state.now_ms();
        for start in scene.starts() {
            let labels = scene.state.get(start.task).unwrap().labels;
            references[usize::from(&*labels[0].value == b"bob")].start(now_ms);
            held.push(start);
        }
        let (all, _) = scene.state.list(&TaskFilter::default(), 0, usize::MAX);
        for view in all.iter().filter(|view| view.stage == TaskStage::Limited) {
            let reference = &mut references[usize::from(&*view.labels[0].value == b"bob")];
            assert!(!reference.has_token(now_ms), "{view:?} waits although a token is free");
        }
        assert!(
            all.iter().all(|view| view.stage != TaskStage::Ready),
            "a ready task must start, with more workers than tasks"
        );
        let kept = snapshots::blocks(&scene.state);
        if amount.is_multiple_of(5) {
            scene.state = snapshots::restored(&kept).unwrap();
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn random_commands_start_every_task_that_the_rate_permits(
        (count, per_ms, burst) in (1_u32..4, 1_u32..400, 1_u32..4),
        deeds in proptest::collection::vec(proptest::prelude::any::<[u8; 3]>(), 1..150),
    ) {
        play_rate(Rate { count, per_ms, burst }, &deeds);
    }
}
