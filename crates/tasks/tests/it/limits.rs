//! Tests of quotas, limits by key and memory limits.

use super::*;

fn running_count(scene: &Scene, tenant: &str) -> u64 {
    scene.state.tenants().find(|view| &*view.name == tenant.as_bytes()).unwrap().used[0]
}

#[test]
fn hard_quota_caps_a_tenant_and_other_tenants_use_the_rest() {
    let mut scene = Scene::default();
    scene.set_tenant(TenantSettings { concurrency: Quota::at_most(3), ..TenantSettings::new(b"a") });
    scene.set_tenant(TenantSettings::new(b"b"));
    scene.submit_all("a", vec![work(); 20]);
    scene.submit_all("b", vec![work(); 20]);
    scene.join(10);
    assert_eq!((running_count(&scene, "a"), running_count(&scene, "b")), (3, 7));
    scene.set_tenant(TenantSettings { concurrency: Quota::at_most(5), ..TenantSettings::new(b"a") });
    scene.join(10);
    assert_eq!((running_count(&scene, "a"), running_count(&scene, "b")), (5, 15));
    // A lowered quota does not stop running tasks, but no further task starts until the use is below the quota.
    scene.set_tenant(TenantSettings { concurrency: Quota::at_most(2), ..TenantSettings::new(b"a") });
    for start in scene.starts() {
        scene.complete(&start, 1_000).unwrap();
        assert!(running_count(&scene, "a") <= 5);
    }
    assert_eq!(running_count(&scene, "a"), 2);
}

#[test]
fn tenant_beyond_its_soft_quota_is_served_after_other_tenants() {
    let mut scene = Scene::default();
    scene.set_tenant(TenantSettings {
        concurrency: Quota { soft: 2, ..Quota::default() },
        ..TenantSettings::new(b"a")
    });
    scene.set_tenant(TenantSettings::new(b"b"));
    scene.submit_all("a", vec![work(); 20]);
    scene.submit_all("b", vec![work(); 5]);
    scene.join(7);
    assert_eq!((running_count(&scene, "a"), running_count(&scene, "b")), (2, 5));
    scene.join(3);
    assert_eq!((running_count(&scene, "a"), running_count(&scene, "b")), (5, 5));
}

#[test]
fn reserved_quota_stays_free_for_its_tenant() {
    let mut scene = Scene::default();
    scene.set_tenant(TenantSettings {
        concurrency: Quota { reserved: 4, ..Quota::default() },
        ..TenantSettings::new(b"a")
    });
    scene.set_tenant(TenantSettings::new(b"b"));
    scene.submit_all("b", vec![work(); 50]);
    scene.join(10);
    assert_eq!(running_count(&scene, "b"), 6);
    scene.submit_all("a", vec![work(); 50]);
    assert_eq!((running_count(&scene, "a"), running_count(&scene, "b")), (4, 6));
    // When the capacity is no longer reserved for tenant `a`, tenant `b` may use it.
    let starts = scene.starts();
    starts
        .iter()
        .filter(|start| start.token <= 6)
        .for_each(|start| scene.complete(start, 1_000).map(drop).unwrap());
    assert!(running_count(&scene, "a") >= 4);
    scene.set_tenant(TenantSettings::new(b"a"));
    assert_eq!(running_count(&scene, "a") + running_count(&scene, "b"), 10);
}

#[test]
fn tenant_that_used_little_may_exceed_its_quota_for_some_time() {
    let mut scene = Scene::default();
    let quota = Quota { hard: 4, burst: 2, ..Quota::default() };
    scene.set_tenant(TenantSettings { concurrency: quota, ..TenantSettings::new(b"a") });
    scene.advance(10_000); // 4 unused tasks for 10 s save 40,000 task-ms; the maximum is 2 × 60 s.
    scene.submit_all("a", vec![NewTask { timeout_ms: 3_600_000, ..work() }; 500]);
    scene.join_with(NewWorker { kinds: vec![b"work"], credit: 50, ttl_ms: 600_000, ..NewWorker::default() });
    assert_eq!(running_count(&scene, "a"), 6);
    let mut now_ms = 10_000;
    let mut last_burst_ms = 0;
    while now_ms < 60_000 {
        now_ms += 100;
        scene.advance(now_ms);
        let starts = scene.starts();
        // Completes the two tasks that have run longest.
        for start in starts.iter().take(2) {
            scene.complete(start, 1_000).unwrap();
        }
        scene.effects.orders.splice(0..0, starts.into_iter().skip(2).map(WorkerOrder::Start));
        assert!(running_count(&scene, "a") <= 6);
        if running_count(&scene, "a") > 4 {
            last_burst_ms = now_ms;
        }
    }
    // The saved burst allows 2 tasks beyond the quota for about 20 s after the first 10 s.
    assert!((28_000..36_000).contains(&last_burst_ms), "{last_burst_ms}");
}

#[test]
fn memory_and_cpu_quotas_cap_running_tasks() {
    let mut scene = Scene::default();
    scene.set_tenant(TenantSettings {
        memory_bytes: Quota::at_most(1_000),
        cpu_milli: Quota::at_most(4_000),
        ..TenantSettings::new(b"a")
    });
    scene.submit_all("a", vec![NewTask { memory_bytes: 300, cpu_milli: 1_000, ..work() }; 10]);
    scene.join(10);
    let used = scene.state.tenants().next().unwrap().used;
    assert_eq!(used, [3, 3_000, 900]);
    for start in scene.starts() {
        scene.complete(&start, 1_000).unwrap();
        assert!(scene.state.tenants().next().unwrap().used[2] <= 1_000);
    }
}

#[test]
fn key_limit_delays_only_tasks_with_the_same_key_value() {
    let mut scene = Scene::default();
    let limits = vec![KeyLimit::running(b"user", 2), KeyLimit::running(b"tenant", 6)];
    scene.set_tenant(TenantSettings { limits: limits.clone(), ..TenantSettings::new(b"a") });
    let of = |value| NewTask { labels: vec![Label { key: b"user", value }], ..work() };
    let ann = scene.submit_all("a", vec![of(b"ann"); 5]);
    let bob = scene.submit_all("a", vec![of(b"bob"); 5]);
    let nobody = scene.submit_all("a", vec![work(); 5]);
    scene.join(20);
    let starts = scene.starts();
    let tasks: Vec<_> = starts.iter().map(|start| start.task).collect();
    assert_eq!(tasks, [&ann[..2], &bob[..2], &nobody[..2]].concat());
    assert_eq!(scene.stage(ann[2]), TaskStage::Limited);
    scene.complete(&starts[0], 1_000).unwrap();
    assert_eq!(scene.only_start().task, ann[2]);
    // The limits change while tasks run; these tasks still count.
    let limits = vec![KeyLimit::running(b"user", 1)];
    scene.set_tenant(TenantSettings { limits, ..TenantSettings::new(b"a") });
    let rest: Vec<_> = scene.starts().iter().map(|start| start.task).collect();
    assert_eq!(rest, nobody[2..]);
    scene.complete(&starts[1], 1_000).unwrap();
    assert_eq!(scene.starts(), [], "another task of ann still runs");
    scene.must_apply(TaskCommand::Cancel { task: ann[3] });
    let limits = vec![KeyLimit::running(b"user", 3)];
    scene.set_tenant(TenantSettings { limits, ..TenantSettings::new(b"a") });
    let rest: Vec<_> = scene.starts().iter().map(|start| start.task).collect();
    assert_eq!(rest, [ann[4], bob[2]]);
}

#[test]
fn every_outcome_of_a_task_frees_its_place_in_the_key_limit() {
    let mut scene = Scene::default();
    let limits = vec![KeyLimit::running(b"kind", 1)];
    scene.set_tenant(TenantSettings { limits, ..TenantSettings::new(b"a") });
    let retry = Some(RetryPolicy { retries: 1, backoff: Backoff::Fixed { delay_ms: 100_000 } });
    let tasks = scene.submit_all("a", vec![NewTask { retry, timeout_ms: 2_000, ..work() }; 6]);
    let worker = scene.join(1);
    let start = scene.only_start();
    scene.fail(&start, true).unwrap(); // The task fails, and waits for its retry.
    assert_eq!(scene.only_start().task, tasks[1]);
    scene.advance(2_000); // The task exceeds its timeout.
    scene.must_apply(TaskCommand::Pull { worker, credit: 1 });
    let start = scene.starts().pop().unwrap();
    assert_eq!(start.task, tasks[2]);
    scene.must_apply(TaskCommand::Cancel { task: tasks[2] });
    scene.fail(&start, true).unwrap(); // A cancelled task stops.
    assert_eq!(scene.starts().pop().unwrap().task, tasks[3]);
    scene.must_apply(TaskCommand::Leave { worker }); // The task's worker leaves, and the task keeps its place.
    assert_eq!((scene.stage(tasks[3]), scene.stage(tasks[4])), (TaskStage::Ready, TaskStage::Limited));
    scene.must_apply(TaskCommand::Cancel { task: tasks[3] }); // The task is cancelled while it waits.
    assert_eq!(scene.stage(tasks[4]), TaskStage::Ready);
}

#[test]
fn duplicate_submission_to_an_overfull_queue_is_slowed_by_3_s() {
    let mut scene = Scene::new();
    let known = || vec![NewTask { idempotency_key: b"key", ..work() }];
    scene.submit_all("a", known());
    scene.submit_all("a", vec![work(); 9]);
    scene.set_tenant(TenantSettings { queued_max: 1, ..TenantSettings::new(b"a") });
    let reply = scene.apply(TaskCommand::Submit { tenant: b"a", tasks: known() });
    assert!(
        matches!(reply, Ok(CommandReply::Submitted { slow_down_ms: 3_000, .. })),
        "ten times the limit: {reply:?}"
    );
}

#[test]
fn nearly_full_queue_first_slows_and_then_refuses_submitters() {
    let mut scene = Scene::default();
    scene.set_tenant(TenantSettings { queued_max: 100, ..TenantSettings::new(b"a") });
    let mut submit = |count, priority| {
        let tasks = vec![NewTask { priority, ..work() }; count];
        scene.apply(TaskCommand::Submit { tenant: b"a", tasks }).map(|reply| match reply {
            CommandReply::Submitted { slow_down_ms, .. } => slow_down_ms,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(submit(70, 5), Ok(0));
    assert_eq!(submit(10, 5), Ok(1_000));
    assert_eq!(submit(10, 4), Ok(2_000));
    assert!(matches!(submit(1, 4), Err(TaskRefusal::QueueFull { queued: 90, queued_max: 100, .. })));
    assert_eq!(submit(10, 9), Ok(3_000));
    assert!(matches!(submit(1, 9), Err(TaskRefusal::QueueFull { retry_after_ms: 60_000, .. })));
    // If ten tasks of a tenant start each second, a refusal contains a delay of about a tenth of a second for each task
    // over the limit.
    scene.join(1);
    for second in 1..=60 {
        scene.advance(second * 100);
        let start = scene.only_start();
        scene.complete(&start, 100_000).unwrap();
    }
    let worker = scene.state.workers().next().unwrap().worker;
    scene.must_apply(TaskCommand::Renew { workers: vec![worker] });
    let tasks = vec![work(); 81];
    let Err(TaskRefusal::QueueFull { retry_after_ms, queued: 39, .. }) =
        scene.apply(TaskCommand::Submit { tenant: b"a", tasks })
    else {
        panic!()
    };
    assert!((1_500..2_700).contains(&retry_after_ms), "{retry_after_ms}");
}

#[test]
fn submission_over_the_byte_limit_of_all_tasks_is_refused() {
    let mut scene = Scene::with(SchedulerLimits { state_bytes_max: 10_000, ..SchedulerLimits::default() });
    scene.set_tenant(TenantSettings::new(b"a"));
    let refused = scene.apply(TaskCommand::Submit { tenant: b"a", tasks: vec![work(); 100] });
    assert!(matches!(refused, Err(TaskRefusal::NoRoom { bytes_max: 10_000, .. })));
    assert_eq!(scene.state.len(), 0);
}

fn scene_with_little_room() -> Scene {
    let mut scene = Scene::with(SchedulerLimits { state_bytes_max: 20_000, ..SchedulerLimits::default() });
    ["a", "b", "c"].iter().for_each(|tenant| scene.set_tenant(TenantSettings::new(tenant.as_bytes())));
    scene
}

/// Submits tasks one by one until a task is refused. Returns the number of tasks that were accepted.
fn fill(scene: &mut Scene, tenant: &[u8]) -> usize {
    let accepted =
        (0..1_000).find(|_| scene.apply(TaskCommand::Submit { tenant, tasks: vec![work()] }).is_err());
    let refused = scene.apply(TaskCommand::Submit { tenant, tasks: vec![work()] }).unwrap_err();
    assert!(refused.to_string().contains("tasks.bytes_max"), "{refused}");
    accepted.expect("the tenant has a limit")
}

#[test]
fn one_tenant_cannot_use_up_the_memory_for_tasks() {
    let mut scene = scene_with_little_room();
    let (a, b) = (fill(&mut scene, b"a"), fill(&mut scene, b"b"));
    assert!(a > 20 && a > 3 * b && b > 3, "{a}, {b}");
    let refused = scene.apply(TaskCommand::Submit { tenant: b"a", tasks: vec![work()] });
    assert!(matches!(refused, Err(TaskRefusal::NoShare { .. })), "{refused:?}");
    scene.must_apply(TaskCommand::Submit { tenant: b"c", tasks: vec![work()] });
    let restored_state = snapshots::restored(&snapshots::blocks(&scene.state)).unwrap();
    let counted =
        |state: &SchedulerState| (state.bytes(), [0, 1, 2].map(|tenant| state.bytes_of_tenant(tenant)));
    assert_eq!(counted(&restored_state), counted(&scene.state), "a snapshot keeps the tenants");
}

#[test]
fn completion_of_tasks_makes_room_in_a_full_task_state() {
    let mut scene = scene_with_little_room();
    let count = fill(&mut scene, b"a");
    let bytes_max = scene.state.limits().state_bytes_max;
    scene.join(1);
    for _ in 0..count {
        let start = scene.only_start();
        scene.apply(TaskCommand::Complete { report: report(&start, 1), result: &[b'x'; 4_000] }).unwrap();
        assert!(scene.state.bytes() <= bytes_max, "{}", scene.state.bytes());
    }
    assert_eq!(scene.state.bytes_of_tenant(0), 0);
    let refilled = fill(&mut scene, b"a");
    assert!(refilled + 1 >= count, "{refilled} of {count}");
    assert!(scene.state.bytes() <= bytes_max, "{}", scene.state.bytes());
}

#[test]
fn task_errors_and_notes_are_truncated_if_the_state_is_full() {
    let mut scene = scene_with_little_room();
    fill(&mut scene, b"a");
    scene.join(1);
    let long = [b'x'; 10_000];
    for _ in 0..5 {
        let start = scene.only_start();
        let TaskStart { worker, task, token, .. } = start;
        scene.must_apply(TaskCommand::Progress { worker, task, token, permille: 1, note: &long });
        scene.must_apply(TaskCommand::Fail { report: report(&start, 1), error: &long, retry: false });
        assert_eq!(scene.stage(task), TaskStage::Dead);
    }
    let bytes = scene.state.bytes();
    assert!(bytes < 20_000 + 2 * long.len() as u64, "one of each filled it, the others were cut: {bytes}");
    scene.must_apply(TaskCommand::Discard { tenant: b"a", count: 0 });
    scene.submit_plain();
}

#[test]
fn schedules_count_towards_the_state_limit_until_removed() {
    let mut scene = scene_with_little_room();
    let payload = [b'x'; 4_000];
    let task = || NewTask::new(b"work", &payload);
    let schedule = |name| TaskCommand::Schedule { tenant: b"a", name, cron: b"* * * * *", task: task() };
    [b"1", b"2", b"3"].iter().for_each(|name| scene.must_apply(schedule(*name)));
    assert!(matches!(scene.apply(schedule(b"4")), Err(TaskRefusal::NoShare { .. })));
    scene.must_apply(schedule(b"3"));
    let restored_state = snapshots::restored(&snapshots::blocks(&scene.state)).unwrap();
    assert_eq!(
        (restored_state.bytes(), restored_state.bytes_of_tenant(0)),
        (scene.state.bytes(), scene.state.bytes())
    );
    [b"1", b"2", b"3"]
        .iter()
        .for_each(|name| scene.must_apply(TaskCommand::Unschedule { tenant: b"a", name: *name }));
    assert_eq!(scene.state.bytes(), 0);
}
