//! Encodings of version 1 never change: `tests/golden/*.hex` were written once.
//!
//! `DUNLIN_WRITE_GOLDEN=1 cargo test -p dunlin-tasks` writes the files of new encodings.

use std::path::Path;

use super::*;

fn check(name: &str, bytes: &[u8]) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.hex"));
    let rows =
        bytes.chunks(16).map(|row| row.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" "));
    let hex: String = rows.map(|row| row + "\n").collect();
    if std::env::var_os("DUNLIN_WRITE_GOLDEN").is_some() && !file.exists() {
        std::fs::write(&file, &hex).unwrap();
    }
    assert_eq!(hex, std::fs::read_to_string(&file).unwrap_or_default(), "{name}");
}

fn commands() -> Vec<(&'static str, TaskCommand<'static>)> {
    let quota = Quota { reserved: 1, soft: 2, hard: 3, burst: 4 };
    let tenant = TenantSettings {
        name: b"tenant",
        weight: 5,
        queued_max: 6,
        retry_percent: 7,
        concurrency: quota,
        cpu_milli: Quota { hard: 8, ..quota },
        memory_bytes: Quota { hard: 9, ..quota },
        limits: vec![KeyLimit {
            key: b"user",
            running_max: 10,
            rate: Some(Rate { count: 1, per_ms: 2, burst: 3 }),
        }],
    };
    let task = NewTask {
        queue: b"queue",
        kind: b"kind",
        payload: b"payload",
        priority: 1,
        not_before_ms: 2,
        deadline_ms: 3,
        timeout_ms: 4,
        retry: Some(RetryPolicy { retries: 5, backoff: Backoff::Exponential { base_ms: 6, cap_ms: 7 } }),
        idempotency_key: b"key",
        after: vec![TaskDependency::Task { task: 8 }, TaskDependency::Batch { index: 9 }],
        labels: vec![Label { key: b"user", value: b"ann" }],
        cpu_milli: 10,
        memory_bytes: 11,
        subject: b"subject",
        needs: vec![],
    };
    let fixed = Some(RetryPolicy { retries: 1, backoff: Backoff::Fixed { delay_ms: 2 } });
    let decorrelated =
        Some(RetryPolicy { retries: 1, backoff: Backoff::Decorrelated { base_ms: 2, cap_ms: 3 } });
    let retries = vec![NewTask { retry: fixed, ..work() }, NewTask { retry: decorrelated, ..work() }];
    let worker = NewWorker {
        name: b"w1",
        kinds: vec![b"kind"],
        queues: vec![b"queue"],
        cpu_milli: 1,
        memory_bytes: 2,
        ttl_ms: 3,
        credit: 4,
        labels: vec![],
        tenants: vec![],
    };
    let needs = vec![Label { key: b"gpu", value: b"a100" }];
    let needing = NewTask { needs: needs.clone(), ..task.clone() };
    let labelled = NewWorker { labels: needs, tenants: vec![b"tenant"], ..worker.clone() };
    let report =
        AttemptReport { worker: 1, task: 2, token: 3, run_us: 4, cpu_us: 5, memory_bytes: 6, credit: 7 };
    vec![
        ("tenant", TaskCommand::Tenant { tenant }),
        ("submit", TaskCommand::Submit { tenant: b"tenant", tasks: vec![task.clone()] }),
        ("submit_retries", TaskCommand::Submit { tenant: b"tenant", tasks: retries }),
        ("cancel", TaskCommand::Cancel { task: 1 }),
        ("retry", TaskCommand::Retry { task: 2 }),
        ("redrive", TaskCommand::Redrive { tenant: b"tenant", count: 3 }),
        ("discard", TaskCommand::Discard { tenant: b"tenant", count: 4 }),
        ("join", TaskCommand::Join { worker }),
        ("pull", TaskCommand::Pull { worker: 5, credit: 6 }),
        ("beat", TaskCommand::Renew { workers: vec![7, 8] }),
        ("complete", TaskCommand::Complete { report, result: b"result" }),
        ("fail", TaskCommand::Fail { report, error: b"error", retry: true }),
        ("progress", TaskCommand::Progress { worker: 1, task: 2, token: 3, permille: 4, note: b"note" }),
        ("extend", TaskCommand::Extend { worker: 1, task: 2, token: 3, timeout_ms: 4 }),
        ("drain", TaskCommand::Drain { worker: 1 }),
        ("leave", TaskCommand::Leave { worker: 2 }),
        ("schedule", TaskCommand::Schedule { tenant: b"tenant", name: b"name", cron: b"* * * * *", task }),
        ("unschedule", TaskCommand::Unschedule { tenant: b"tenant", name: b"name" }),
        ("published", TaskCommand::Published { tasks: vec![1, 2] }),
        ("unpublished", TaskCommand::Unpublished { task: 1, error: b"error" }),
        ("clock", TaskCommand::Clock { unix_ms: 3 }),
        ("begin_restored", TaskCommand::BeginRestored { unix_ms: 4 }),
        ("limit", TaskCommand::Limit { limits: SchedulerLimits::default() }),
        ("found", TaskCommand::EnsureTenant { tenant: b"tenant" }),
        ("submit_needs", TaskCommand::Submit { tenant: b"tenant", tasks: vec![needing.clone(), work()] }),
        ("join_labels", TaskCommand::Join { worker: labelled }),
        (
            "schedule_needs",
            TaskCommand::Schedule { tenant: b"tenant", name: b"name", cron: b"* * * * *", task: needing },
        ),
        ("redrive_safe", TaskCommand::RedriveSafe { tenant: b"tenant", count: 3 }),
        ("slots", TaskCommand::Slots { worker: 1, slots: 2, ahead: 3 }),
        (
            "enlist",
            TaskCommand::Enlist {
                id: 4,
                worker: NewWorker { name: b"w", kinds: vec![b"kind"], ..NewWorker::default() },
            },
        ),
    ]
}

#[test]
fn command_encoding_does_not_change() {
    for (name, command) in commands() {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        assert_eq!(TaskCommand::decode(&bytes).as_ref(), Ok(&command));
        check(name, &bytes);
    }
}

#[test]
fn encodings_of_replies_events_and_snapshots_do_not_change() {
    let replies = [
        ("reply_done", CommandReply::Done),
        (
            "reply_submitted",
            CommandReply::Submitted { tasks: vec![SubmittedTask { task: 1, known: true }], slow_down_ms: 2 },
        ),
        ("reply_joined", CommandReply::Joined { worker: 3 }),
        ("reply_beaten", CommandReply::Renewed { gone: vec![4] }),
        ("reply_changed", CommandReply::Changed { tasks: 5, more: true }),
    ];
    for (name, reply) in replies {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        assert_eq!(CommandReply::decode(&bytes), Ok(reply));
        check(name, &bytes);
    }
    let refusal = TaskRefusal::TooMany { limit: Limit::Lanes, count: 2, count_max: 1 };
    let mut bytes = Vec::new();
    refusal.encode(&mut bytes);
    assert_eq!(TaskRefusal::decode(&bytes), Ok(refusal));
    check("refusal", &bytes);
    let event = TaskEvent {
        task: 1,
        tenant: 2,
        at_ms: 3,
        kind: TaskEventKind::Retrying { why: AttemptFailure::TimedOut, delay_ms: 4 },
    };
    let mut bytes = Vec::new();
    event.encode(&mut bytes);
    assert_eq!(TaskEvent::decode(&bytes), Ok(event));
    check("event", &bytes);
    let mut scene = Scene::new();
    let limits = vec![KeyLimit::starting(b"queue", Rate::per_second(2))];
    scene.set_tenant(TenantSettings { limits, ..TenantSettings::new(b"b") });
    scene.submit_all("b", vec![work(), work()]);
    scene.join(1);
    scene.starts();
    scene.submit_all("a", vec![NewTask { idempotency_key: b"k", ..work() }, work(), work()]);
    scene.join(2);
    let start = scene.starts().remove(0);
    scene.complete(&start, 1_000).unwrap();
    check("snapshot", &snapshots::blocks(&scene.state).concat());
    let needs = vec![Label { key: b"gpu", value: b"a100" }];
    scene.submit_all("a", vec![NewTask { needs: needs.clone(), ..work() }]);
    let worker = NewWorker {
        kinds: vec![b"work"],
        ttl_ms: 1,
        labels: needs,
        tenants: vec![b"b"],
        ..NewWorker::default()
    };
    scene.join_with(worker);
    check("snapshot_needs", &snapshots::blocks(&scene.state).concat());
}

/// Restores a snapshot that an older version wrote. The snapshot's format has no labels of workers, and no labels that
/// tasks need.
#[test]
fn older_task_snapshot_without_needed_labels_can_be_read() {
    let kept = include_str!("../golden/snapshot.hex");
    let bytes: Vec<u8> = kept.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    // Each block begins with the version and the block's kind. The first block is the header. It contains, for each
    // other kind of block, the number of entries.
    let mut scene = Scene::new();
    let limits = vec![KeyLimit::starting(b"queue", Rate::per_second(2))];
    scene.set_tenant(TenantSettings { limits, ..TenantSettings::new(b"b") });
    scene.submit_all("b", vec![work(), work()]);
    scene.join(1);
    scene.starts();
    scene.submit_all("a", vec![NewTask { idempotency_key: b"k", ..work() }, work(), work()]);
    scene.join(2);
    let start = scene.starts().remove(0);
    scene.complete(&start, 1_000).unwrap();
    let mut blocks = Vec::new();
    let mut rest = &bytes[..];
    for block in snapshots::blocks(&scene.state) {
        let (here, after) = rest.split_at(block.len());
        blocks.push(here.to_vec());
        rest = after;
    }
    assert!(rest.is_empty());
    let restored = snapshots::restored(&blocks).unwrap();
    assert_eq!(snapshots::blocks(&restored).concat(), bytes);
    assert!(restored.workers().all(|worker| worker.labels.is_empty() && worker.tenants.is_empty()));
}
