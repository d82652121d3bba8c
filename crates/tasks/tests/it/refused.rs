//! Tests that refused commands change nothing.

use super::*;

#[test]
fn invalid_commands_are_refused_with_a_reason_and_no_effect() {
    let limits = SchedulerLimits {
        payload_bytes_max: 100,
        batch_max: 10,
        worker_ttl_ms_max: 10_000,
        name_bytes_max: 50,
        ..SchedulerLimits::default()
    };
    let mut scene = Scene::with(limits);
    scene.set_tenant(TenantSettings::new(b"a"));
    scene.advance(5_000);
    let cancelled = scene.submit_plain();
    scene.must_apply(TaskCommand::Cancel { task: cancelled });
    let long = [b'x'; 101];
    let submit = |task| TaskCommand::Submit { tenant: b"a", tasks: vec![work(), task] };
    let on = |index| vec![TaskDependency::Batch { index }];
    let worker = NewWorker { kinds: vec![b"work"], ttl_ms: 1_000, ..NewWorker::default() };
    let publish = NewTask { kind: PUBLISH, ..work() };
    let quota = Quota { reserved: 5, hard: 4, ..Quota::default() };
    let cases: Vec<(TaskCommand<'_>, &str)> = vec![
        (TaskCommand::Submit { tenant: b"nobody", tasks: vec![work()] }, "the tenant does not exist"),
        (
            TaskCommand::Submit { tenant: &long, tasks: vec![work()] },
            "a name of 101 bytes is longer than name_bytes_max = 50",
        ),
        (
            TaskCommand::Submit { tenant: b"a", tasks: vec![work(); 11] },
            "11 items exceed the limit batch_max = 10",
        ),
        (
            submit(NewTask { payload: &long, ..work() }),
            "a payload of 101 bytes is longer than payload_bytes_max = 100",
        ),
        (
            submit(NewTask { memory_bytes: u64::MAX, ..work() }),
            "a task needs 18446744073709551615 bytes of memory, more than need_bytes_max = 1099511627776",
        ),
        (
            submit(NewTask { kind: b"", ..work() }),
            "a name (of a tenant, queue, kind, label or schedule) needs at least one byte",
        ),
        (
            submit(NewTask { queue: &long, ..work() }),
            "a name of 101 bytes is longer than name_bytes_max = 50",
        ),
        (submit(NewTask { priority: 10, ..work() }), "priority 10 is not one of 0 to 9"),
        (submit(NewTask { deadline_ms: 4_000, ..work() }), "the deadline passed 1000 ms ago"),
        (
            submit(NewTask { after: on(1), ..work() }),
            "task 1 of the batch waits for itself through other tasks",
        ),
        (
            submit(NewTask { after: on(2), ..work() }),
            "task 1 of the batch waits for a task whose index is outside the batch: indexes start at 0",
        ),
        (
            submit(NewTask { after: vec![TaskDependency::Task { task: 99 }], ..work() }),
            "task 1 of the batch waits for task 63, which is not known: the tenant never had it, or it ended too long ago",
        ),
        (
            submit(NewTask { after: vec![TaskDependency::Task { task: cancelled }], ..work() }),
            "task 1 of the batch waits for task 100000000, which was cancelled",
        ),
        (
            submit(publish),
            "a task of kind `publish` needs a subject, and a task of another kind must not have one",
        ),
        (
            submit(NewTask { subject: b"s", ..work() }),
            "a task of kind `publish` needs a subject, and a task of another kind must not have one",
        ),
        (
            submit(NewTask { labels: vec![Label { key: b"k", value: b"" }; 65], ..work() }),
            "65 items exceed the limit labels_max = 64",
        ),
        (
            TaskCommand::Tenant {
                tenant: TenantSettings { concurrency: quota, ..TenantSettings::new(b"b") },
            },
            "a quota needs reserved ≤ soft ≤ hard, and a burst needs a hard limit",
        ),
        (
            TaskCommand::Tenant { tenant: TenantSettings { weight: 0, ..TenantSettings::new(b"b") } },
            "a tenant's weight must be 1 to 10,000",
        ),
        (
            TaskCommand::Tenant {
                tenant: TenantSettings {
                    limits: vec![KeyLimit::starting(b"user", Rate { burst: 0, ..Rate::per_second(1) })],
                    ..TenantSettings::new(b"b")
                },
            },
            "the count, time and burst of a rate must be at least 1",
        ),
        (
            TaskCommand::Join { worker: NewWorker { kinds: vec![], ..worker.clone() } },
            "a worker must name at least one kind of task",
        ),
        (
            TaskCommand::Join { worker: NewWorker { ttl_ms: 10_001, ..worker.clone() } },
            "a worker's time to live must be 1 to worker_ttl_ms_max = 10000 ms",
        ),
        (
            TaskCommand::Join { worker: NewWorker { credit: 10_001, ..worker } },
            "10001 items exceed the limit credit_max = 10000",
        ),
        (
            TaskCommand::Pull { worker: 7, credit: 1 },
            "worker 7 does not exist: it left, or was not renewed within its time to live; its tasks went to other workers",
        ),
        (TaskCommand::Cancel { task: 7 }, "task 7 does not exist, or ended too long ago"),
        (TaskCommand::Retry { task: cancelled }, "task 100000000 is not a dead letter"),
        (TaskCommand::Unschedule { tenant: b"a", name: b"n" }, "the schedule does not exist"),
        (
            TaskCommand::Schedule { tenant: b"a", name: b"n", cron: b"whenever", task: work() },
            "the cron expression is not valid, or never matches a time",
        ),
        (
            TaskCommand::Schedule { tenant: b"a", name: b"n", cron: b"0 0 30 2 *", task: work() },
            "the cron expression is not valid, or never matches a time",
        ),
        (
            TaskCommand::Schedule {
                tenant: b"a",
                name: b"n",
                cron: b"* * * * *",
                task: NewTask { not_before_ms: 1, ..work() },
            },
            "a schedule's task must not have dependencies, times or an idempotency key",
        ),
    ];
    scene.effects.clear();
    let before = snapshots::blocks(&scene.state);
    for (command, reason) in cases {
        let refused = scene.apply(command.clone()).expect_err(reason);
        assert_eq!(refused.to_string(), reason);
        assert_eq!(snapshots::blocks(&scene.state), before, "{command:?} left a trace");
        assert_eq!(scene.effects, TaskEffects::default());
    }
}

#[test]
fn refusal_text_names_the_field_that_is_too_long_or_invalid() {
    let mut scene = Scene::new();
    let (long, longer) = ([b'x'; 300], [b'y'; 400]);
    let label = Label { key: b"k", value: &long };
    let tenant = TenantSettings::new(b"b");
    let quota = Quota { reserved: 5, soft: 6, hard: 4, burst: 1 };
    let worker = NewWorker { kinds: vec![&b"work"[..], &long[..]], ttl_ms: 1_000, ..NewWorker::default() };
    let submit = |task| TaskCommand::Submit { tenant: b"a", tasks: vec![work(), task] };
    let too_long =
        |field: &str| format!("the {field} is too long: name_bytes_max = 255, but the size is 300");
    let cases = [
        (TaskCommand::Submit { tenant: &long, tasks: vec![work()] }, too_long("tenant")),
        (submit(NewTask { kind: &long, subject: &longer, ..work() }), too_long("kind")),
        (submit(NewTask { needs: vec![label], ..work() }), too_long("value of a needed label")),
        (TaskCommand::Join { worker }, too_long("kind")),
        (
            TaskCommand::Schedule { tenant: b"a", name: &long, cron: b"* * * * *", task: work() },
            too_long("schedule"),
        ),
        (
            TaskCommand::Tenant { tenant: TenantSettings { weight: 10_001, ..tenant.clone() } },
            "weight 10001 is not one of 1 to 10000".to_owned(),
        ),
        (
            TaskCommand::Tenant { tenant: TenantSettings { memory_bytes: quota, ..tenant } },
            "a quota needs reserved ≤ soft ≤ hard, and a burst needs a hard limit; \
             memory_bytes: reserved 5, soft 6, hard 4, burst 1"
                .to_owned(),
        ),
    ];
    for (command, text) in cases {
        let excess = ExcessValues::of(&command).expect("a value exceeds its limit");
        let refused = scene.apply(command).expect_err(&text);
        assert_eq!(excess.text(&refused), Some(text));
        assert_eq!(excess.text(&TaskRefusal::NoTenant), None, "another reason");
    }
    assert_eq!(ExcessValues::of(&submit(work())), None);
}

#[test]
fn dependency_cycle_is_refused_and_a_long_chain_is_accepted() {
    let mut scene = Scene::new();
    let link = |count: u32, closes: bool| -> Vec<NewTask<'static>> {
        let after = |index: u32| match index {
            0 if closes => vec![TaskDependency::Batch { index: count - 1 }],
            0 => vec![],
            index => vec![TaskDependency::Batch { index: index - 1 }],
        };
        (0..count).map(|index| NewTask { after: after(index), ..work() }).collect()
    };
    let refused = scene.apply(TaskCommand::Submit { tenant: b"a", tasks: link(5_000, true) });
    assert_eq!(refused, Err(TaskRefusal::Cycle { index: 0 }));
    let chain = scene.submit_all("a", link(5_000, false));
    // Cancels the chain from its first task to its last.
    scene.must_apply(TaskCommand::Cancel { task: chain[0] });
    assert!(chain.iter().all(|&task| scene.stage(task) == TaskStage::Cancelled));
}

#[test]
fn task_that_depends_on_its_own_duplicate_is_refused() {
    let mut scene = Scene::new();
    let keyed = |after| NewTask { idempotency_key: b"k", after, ..work() };
    let tasks = vec![keyed(vec![TaskDependency::Batch { index: 1 }]), keyed(vec![])];
    let refused = scene.apply(TaskCommand::Submit { tenant: b"a", tasks });
    assert_eq!(refused, Err(TaskRefusal::Cycle { index: 0 }));
    // Dependencies of the repeated task do not count.
    let tasks = vec![keyed(vec![]), keyed(vec![TaskDependency::Batch { index: 0 }])];
    assert!(scene.apply(TaskCommand::Submit { tenant: b"a", tasks }).is_ok());
}

#[test]
fn forward_clock_jump_expires_workers_but_loses_no_task() {
    let mut scene = Scene::new();
    let tasks: Vec<_> = (0..10).map(|_| scene.submit_plain()).collect();
    let worker = scene.join(4);
    let starts = scene.starts();
    scene.advance(1 << 50);
    assert_eq!(scene.complete(&starts[0], 1), Err(TaskRefusal::NoWorker { worker }));
    assert!(tasks.iter().all(|&task| scene.stage(task) == TaskStage::Ready));
    scene.advance(5); // An earlier time is ignored.
    assert_eq!(scene.state.now_ms(), 1 << 50);
    scene.join(20);
    for start in scene.starts() {
        scene.complete(&start, 5).unwrap();
    }
    assert!(tasks.iter().all(|&task| scene.stage(task) == TaskStage::Completed));
}
