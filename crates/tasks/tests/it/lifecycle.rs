//! Tests of a task's life, from its submission to its end.

use std::collections::BTreeSet;

use super::snapshots::{blocks, restored};
use super::*;

#[test]
fn task_is_assigned_to_a_worker_and_completed() {
    let mut scene = Scene::new();
    let task = scene.submit_plain();
    assert_eq!(scene.stage(task), TaskStage::Ready);
    let worker = scene.join(1);
    let start = scene.only_start();
    assert_eq!((start.task, start.worker, start.attempt), (task, worker, 1));
    assert_eq!((text(&start.kind), text(&start.payload)), ("work".into(), "payload".into()));
    assert_eq!(scene.stage(task), TaskStage::Running);
    scene.advance(20);
    scene.complete(&start, 12_000).unwrap();
    let view = scene.state.get(task).unwrap();
    let outcome = view.outcome.unwrap();
    assert_eq!(
        (view.stage, text(&outcome.bytes), outcome.run_us),
        (TaskStage::Completed, "done".into(), 12_000)
    );
    let account = scene.state.tenants().next().unwrap().account;
    assert_eq!((account.completed, account.run_us, account.cpu_us), (1, 12_000, 6_000));
    assert_eq!(account.memory_mb_ms, 12);
}

#[test]
fn idle_worker_gets_a_new_task_at_once() {
    let mut scene = Scene::new();
    scene.join(2);
    let tasks: Vec<_> = (0..3).map(|_| scene.submit_plain()).collect();
    let starts = scene.starts();
    assert_eq!(starts.iter().map(|start| start.task).collect::<Vec<_>>(), tasks[..2]);
    scene.complete(&starts[0], 1_000).unwrap();
    assert_eq!(scene.only_start().task, tasks[2]);
}

#[test]
fn failed_task_is_retried_with_delay_then_becomes_a_dead_letter() {
    let mut scene = Scene::new();
    let retry = RetryPolicy { retries: 2, backoff: Backoff::Fixed { delay_ms: 500 } };
    let task = scene.submit(NewTask { retry: Some(retry), ..work() });
    scene.join(1);
    for attempt in 1..=3 {
        let start = scene.only_start();
        assert_eq!(start.attempt, attempt);
        scene.fail(&start, true).unwrap();
        if attempt < 3 {
            assert_eq!(scene.stage(task), TaskStage::Delayed);
            let now_ms = scene.state.now_ms();
            scene.advance(now_ms + 499);
            assert_eq!(scene.starts(), []);
            scene.advance(now_ms + 500);
        }
    }
    assert_eq!(scene.stage(task), TaskStage::Dead);
    assert_eq!(scene.events_of(task).last(), Some(&TaskEventKind::Dead { why: AttemptFailure::Failed }));
}

#[test]
fn restored_scheduler_raises_fencing_tokens_by_a_billion() {
    let mut scene = Scene::new();
    scene.join(2);
    scene.submit_plain();
    let before = scene.only_start();
    scene.apply(TaskCommand::BeginRestored { unix_ms: 1 }).unwrap();
    scene.submit_plain();
    let after = scene.only_start();
    assert_eq!(after.token, before.token + 1_000_000_001);
    scene.complete(&before, 1).unwrap();
}

#[test]
fn scheduler_that_lost_its_state_reuses_no_id_or_token() {
    let (mut task_ids, mut workers, mut token) = (BTreeSet::new(), BTreeSet::new(), 0);
    for start in [7, 700_000_000, 700_000_100, u32::MAX] {
        let mut scene = Scene::new();
        scene.state = scene.state.started_at(start);
        assert!(workers.insert(scene.join(1)));
        for _ in 0..5 {
            let task = scene.submit_plain();
            assert!(task_ids.insert(task), "{task:x} after the start at {start}");
            let start = scene.only_start();
            assert!(token < start.token && start.token < 1 << 53, "{token}, then {}", start.token);
            token = start.token;
            scene.fail(&start, false).unwrap();
            // The next task uses the slot that this task had in the list of tasks.
            scene.must_apply(TaskCommand::Discard { tenant: b"a", count: 0 });
        }
        let snapshot = blocks(&scene.state);
        scene.state = restored(&snapshot).unwrap();
        assert_eq!(blocks(&scene.state), snapshot);
    }
    assert!(task_ids.iter().chain(&workers).all(|id| *id < 1 << 53), "a JSON number holds the ids");
}

/// Each round of this test makes a backup, then assigns ids to further tasks and to a worker, and then restores the
/// backup. The ids that were assigned after the backup must not be assigned again.
#[test]
fn restored_state_reuses_no_task_or_worker_id() {
    let mut scene = Scene::new();
    // Ids of tasks and of workers are numbered separately.
    let (mut task_ids, mut workers) = (BTreeSet::new(), BTreeSet::from([scene.join(1)]));
    for round in 0..4 {
        let dead_letter = |scene: &mut Scene| {
            let task = scene.submit_plain();
            let start = scene.only_start();
            scene.fail(&start, false).unwrap();
            task
        };
        assert!(task_ids.insert(dead_letter(&mut scene)));
        let backup = blocks(&scene.state);
        for _ in 0..5 {
            // In its first pass, this loop frees the slot of a task that is in the backup. In each later pass, it frees
            // the slot of the previous pass's task.
            scene.must_apply(TaskCommand::Discard { tenant: b"a", count: 0 });
            let task = dead_letter(&mut scene);
            assert!(task_ids.insert(task), "{task:x} in round {round}");
        }
        let new = scene.submit_all("a", vec![NewTask { not_before_ms: u64::MAX >> 1, ..work() }; 3]);
        for id in new {
            assert!(task_ids.insert(id), "{id:x} in round {round}");
        }
        assert!(workers.insert(scene.join(0)), "a worker in round {round}");
        if round < 2 {
            assert!(task_ids.iter().all(|id| *id < 1 << 53), "a JSON number holds the ids after one restore");
        }
        scene = Scene { state: restored(&backup).unwrap(), ..Scene::default() };
        scene.must_apply(TaskCommand::BeginRestored { unix_ms: 1 });
        let snapshot = blocks(&scene.state);
        scene.state = restored(&snapshot).unwrap();
        assert_eq!(blocks(&scene.state), snapshot);
    }
}

#[test]
fn retry_delays_grow_and_their_jitter_depends_on_the_task() {
    let exponential =
        RetryPolicy { retries: 20, backoff: Backoff::Exponential { base_ms: 100, cap_ms: 5_000 } };
    let delays = |task| (1..=10).map(move |attempt| exponential.delay_ms(task, attempt, 0));
    assert!(delays(1).eq(delays(1)));
    assert!(!delays(1).eq(delays(2)));
    for (attempt, delay_ms) in (0..10).zip(delays(7)) {
        assert!(delay_ms <= (100 << attempt).min(5_000));
    }
    let means = (1..=3).map(|attempt| {
        (0..1_000).map(|t| u64::from(exponential.delay_ms(t, attempt, 0))).sum::<u64>() / 1_000
    });
    for (mean, most) in means.zip([100, 200, 400]) {
        assert!((most * 45 / 100..most * 55 / 100).contains(&mean), "{mean} of {most}");
    }
    let decorrelated =
        RetryPolicy { retries: 20, backoff: Backoff::Decorrelated { base_ms: 50, cap_ms: 2_000 } };
    let mut last_ms = 0;
    for attempt in 1..100 {
        let delay_ms = decorrelated.delay_ms(3, attempt, last_ms);
        assert!(delay_ms >= 50 && delay_ms <= (last_ms.max(50) * 3).min(2_000), "{delay_ms} after {last_ms}");
        last_ms = delay_ms;
    }
}

#[test]
fn task_becomes_a_dead_letter_if_its_failure_forbids_retries() {
    let mut scene = Scene::new();
    let task = scene.submit_plain();
    scene.join(1);
    let start = scene.only_start();
    scene.fail(&start, false).unwrap();
    assert_eq!(scene.stage(task), TaskStage::Dead);
}

#[test]
fn excess_retries_of_a_tenant_get_the_longest_delay() {
    let mut scene = Scene::default();
    scene.set_tenant(TenantSettings { retry_percent: 1, ..TenantSettings::new(b"a") });
    let retry = RetryPolicy { retries: 9, backoff: Backoff::Exponential { base_ms: 10, cap_ms: 60_000 } };
    scene.submit_all("a", vec![NewTask { retry: Some(retry), ..work() }; 50]);
    scene.join(50);
    for start in scene.starts() {
        scene.fail(&start, true).unwrap();
    }
    let delays = scene.effects.events.iter().filter_map(|event| match event.kind {
        TaskEventKind::Retrying { delay_ms, .. } => Some(delay_ms),
        _ => None,
    });
    let (short, long): (Vec<u32>, Vec<u32>) = delays.partition(|&delay_ms| delay_ms <= 10);
    assert_eq!((short.len(), long), (10, vec![60_000; 40]));
}

#[test]
fn timed_out_task_is_stopped_and_its_late_result_refused() {
    let mut scene = Scene::new();
    let task = scene.submit(NewTask { timeout_ms: 1_000, ..work() });
    let worker = scene.join(1);
    let start = scene.only_start();
    scene.must_apply(TaskCommand::Extend { worker, task, token: start.token, timeout_ms: 2_000 });
    scene.advance(1_500);
    assert_eq!(scene.stage(task), TaskStage::Running);
    scene.advance(2_000);
    let stop = WorkerOrder::Stop { worker, task, token: start.token };
    assert_eq!(scene.effects.orders, [stop]);
    assert_eq!(scene.stage(task), TaskStage::Delayed);
    scene.must_apply(TaskCommand::Pull { worker, credit: 1 });
    scene.advance(9_000);
    let again = scene.only_start();
    assert_eq!((again.task, again.attempt), (task, 2));
    let late = scene.complete(&start, 1_000);
    assert_eq!(late, Err(TaskRefusal::StaleToken { task, token: start.token }));
    scene.complete(&again, 1_000).unwrap();
    assert_eq!(scene.stage(task), TaskStage::Completed);
}

#[test]
fn task_waits_for_its_start_time_and_dies_at_its_deadline() {
    let mut scene = Scene::new();
    let later = scene.submit(NewTask { not_before_ms: 5_000, ..work() });
    let hurried = scene.submit(NewTask { deadline_ms: 3_000, kind: b"rare", ..work() });
    scene.join(2);
    scene.advance(2_999);
    assert_eq!((scene.stage(later), scene.stage(hurried)), (TaskStage::Delayed, TaskStage::Ready));
    scene.advance(3_000);
    assert_eq!(scene.stage(hurried), TaskStage::Dead);
    assert_eq!(scene.starts(), []);
    scene.advance(5_000);
    assert_eq!(scene.only_start().task, later);
    // A restarted dead letter has no deadline.
    scene.must_apply(TaskCommand::Retry { task: hurried });
    assert_eq!(scene.stage(hurried), TaskStage::Ready);
}

#[test]
fn retry_beyond_the_deadline_is_not_scheduled() {
    let mut scene = Scene::new();
    let retry = RetryPolicy { retries: 5, backoff: Backoff::Fixed { delay_ms: 4_000 } };
    let task = scene.submit(NewTask { deadline_ms: 4_000, retry: Some(retry), ..work() });
    scene.join(1);
    let start = scene.only_start();
    scene.fail(&start, true).unwrap();
    assert_eq!(scene.stage(task), TaskStage::Dead);
}

#[test]
fn tasks_run_after_the_tasks_on_which_they_depend() {
    let mut scene = Scene::new();
    let on = |index| TaskDependency::Batch { index };
    let tasks = scene.submit_all(
        "a",
        vec![
            NewTask { after: vec![on(1), on(2)], ..work() },
            NewTask { after: vec![on(3)], ..work() },
            NewTask { after: vec![on(3)], ..work() },
            work(),
        ],
    );
    let last = scene.submit(NewTask { after: vec![TaskDependency::Task { task: tasks[0] }], ..work() });
    scene.join(4);
    let mut order = Vec::new();
    loop {
        let starts = scene.starts();
        if starts.is_empty() {
            break;
        }
        for start in &starts {
            scene.complete(start, 1_000).unwrap();
        }
        order.push(starts.into_iter().map(|start| start.task).collect::<Vec<_>>());
    }
    assert_eq!(order, [vec![tasks[3]], vec![tasks[1], tasks[2]], vec![tasks[0]], vec![last]]);
}

#[test]
fn dependents_of_a_dead_letter_wait_until_redrive_or_discard() {
    for redriven in [true, false] {
        let mut scene = Scene::new();
        let after = vec![TaskDependency::Batch { index: 0 }];
        let tasks = scene.submit_all("a", vec![work(), NewTask { after: after.clone(), ..work() }]);
        let dependent =
            scene.submit(NewTask { after: vec![TaskDependency::Task { task: tasks[1] }], ..work() });
        scene.join(1);
        let start = scene.only_start();
        scene.fail(&start, false).unwrap();
        assert_eq!((scene.stage(tasks[0]), scene.stage(tasks[1])), (TaskStage::Dead, TaskStage::Blocked));
        if redriven {
            let changed = scene.apply(TaskCommand::Redrive { tenant: b"a", count: 0 });
            assert_eq!(changed, Ok(CommandReply::Changed { tasks: 1, more: false }));
            let start = scene.only_start();
            scene.complete(&start, 1_000).unwrap();
            assert_eq!(scene.only_start().task, tasks[1]);
        } else {
            scene.must_apply(TaskCommand::Discard { tenant: b"a", count: 0 });
            assert_eq!(scene.state.get(tasks[0]), Err(TaskRefusal::NoTask { task: tasks[0] }));
            assert_eq!(
                (scene.stage(tasks[1]), scene.stage(dependent)),
                (TaskStage::Cancelled, TaskStage::Cancelled)
            );
        }
    }
}

#[test]
fn cancelled_task_uses_quota_until_its_worker_confirms() {
    let mut scene = Scene::new();
    let task = scene.submit_plain();
    let next = scene.submit(NewTask { after: vec![TaskDependency::Task { task }], ..work() });
    let worker = scene.join(1);
    let start = scene.only_start();
    scene.must_apply(TaskCommand::Cancel { task });
    assert_eq!(scene.effects.orders, [WorkerOrder::Stop { worker, task, token: start.token }]);
    assert_eq!((scene.stage(task), scene.stage(next)), (TaskStage::Stopping, TaskStage::Blocked));
    assert_eq!(scene.state.tenants().next().unwrap().used[0], 1);
    scene.fail(&start, true).unwrap();
    assert_eq!((scene.stage(task), scene.stage(next)), (TaskStage::Cancelled, TaskStage::Cancelled));
    assert_eq!(scene.state.tenants().next().unwrap().used[0], 0);
    assert_eq!(scene.apply(TaskCommand::Cancel { task }), Err(TaskRefusal::Over { task }));
}

#[test]
fn cancelled_task_ends_at_its_timeout_without_confirmation() {
    let mut scene = Scene::new();
    let task = scene.submit(NewTask { timeout_ms: 1_000, ..work() });
    scene.join(1);
    scene.starts();
    scene.must_apply(TaskCommand::Cancel { task });
    scene.advance(999);
    assert_eq!(scene.stage(task), TaskStage::Stopping);
    scene.advance(1_000);
    assert_eq!(scene.stage(task), TaskStage::Cancelled);
}

#[test]
fn idempotency_key_returns_its_task_while_the_task_is_kept() {
    let mut scene = Scene::with(SchedulerLimits { finished_ms: 10_000, ..SchedulerLimits::default() });
    scene.set_tenant(TenantSettings::new(b"a"));
    scene.set_tenant(TenantSettings::new(b"b"));
    let keyed = || NewTask { idempotency_key: b"order 7", ..work() };
    let first = scene.submit(keyed());
    let reply = scene.apply(TaskCommand::Submit { tenant: b"a", tasks: vec![keyed(), work(), keyed()] });
    let Ok(CommandReply::Submitted { tasks, .. }) = reply else { panic!("{reply:?}") };
    assert_eq!([tasks[0], tasks[2]], [SubmittedTask { task: first, known: true }; 2]);
    assert!(!tasks[1].known);
    assert_ne!(scene.submit_all("b", vec![keyed()])[0], first, "keys of different tenants are independent");
    scene.join(9);
    for start in scene.starts() {
        scene.complete(&start, 1_000).unwrap();
    }
    scene.advance(9_999);
    assert_eq!(scene.submit(keyed()), first);
    scene.advance(10_000);
    assert_ne!(scene.submit(keyed()), first);
    let duplicates = scene.submit_all("a", vec![NewTask { idempotency_key: b"8", ..work() }; 2]);
    assert_eq!(duplicates[0], duplicates[1]);
}

#[test]
fn publishing_task_repeats_its_publication_until_confirmed() {
    let mut scene = Scene::new();
    let task = NewTask { kind: PUBLISH, subject: b"orders.late", not_before_ms: 3_000, ..work() };
    let task = scene.submit(task);
    scene.advance(2_999);
    assert_eq!(scene.effects.publishes, []);
    scene.advance(3_000);
    let publish =
        TaskPublication { task, subject: b"orders.late"[..].into(), payload: b"payload"[..].into() };
    assert_eq!(scene.effects.publishes, std::slice::from_ref(&publish));
    scene.advance(8_000);
    assert_eq!(scene.effects.publishes, [publish.clone(), publish]);
    scene.must_apply(TaskCommand::Published { tasks: vec![task, 77] });
    assert_eq!(scene.stage(task), TaskStage::Completed);
    scene.advance(50_000);
    assert_eq!(scene.effects.publishes.len(), 2);
}

#[test]
fn publishing_task_does_not_publish_after_its_deadline() {
    let mut scene = Scene::new();
    let task = scene.submit(NewTask { kind: PUBLISH, subject: b"orders.late", deadline_ms: 7_000, ..work() });
    scene.advance(5_000);
    assert_eq!(scene.effects.publishes.len(), 2);
    scene.advance(50_000);
    assert_eq!(scene.effects.publishes.len(), 2);
    assert_eq!(scene.stage(task), TaskStage::Dead);
    assert_eq!(scene.state.get(task).unwrap().outcome.unwrap().failure, Some(AttemptFailure::Deadline));
}

#[test]
fn task_becomes_a_dead_letter_if_its_publication_is_refused() {
    let mut scene = Scene::new();
    let task = scene.submit(NewTask { kind: PUBLISH, subject: b"orders.late", ..work() });
    scene.must_apply(TaskCommand::Unpublished { task, error: b"no permission" });
    assert_eq!(scene.stage(task), TaskStage::Dead);
    assert_eq!(text(&scene.state.get(task).unwrap().outcome.unwrap().bytes), "no permission");
    scene.advance(50_000);
    assert_eq!(scene.effects.publishes.len(), 1, "the publication is not repeated");
    scene.must_apply(TaskCommand::Unpublished { task: 77, error: b"" });
}

#[test]
fn dependency_on_a_task_of_another_tenant_is_refused_as_unknown() {
    let mut scene = Scene::new();
    let others = scene.submit_plain();
    scene.set_tenant(TenantSettings::new(b"b"));
    let after = |task| vec![NewTask { after: vec![TaskDependency::Task { task }], ..work() }];
    let submit = |scene: &mut Scene, task| {
        scene.apply(TaskCommand::Submit { tenant: b"b", tasks: after(task) }).unwrap_err()
    };
    let unknown = |task| TaskRefusal::DependencyUnknown { index: 0, task };
    for task in [others + 7, others] {
        assert_eq!(submit(&mut scene, task), unknown(task));
    }
    scene.must_apply(TaskCommand::Cancel { task: others });
    assert_eq!(submit(&mut scene, others), unknown(others));
}

#[test]
fn task_progress_is_shown_and_published_as_an_event() {
    let mut scene = Scene::new();
    let task = scene.submit_plain();
    let worker = scene.join(1);
    let token = scene.only_start().token;
    scene.must_apply(TaskCommand::Progress { worker, task, token, permille: 420, note: b"page 42" });
    let (permille, note) = scene.state.get(task).unwrap().progress;
    assert_eq!((permille, text(&note.unwrap())), (420, "page 42".into()));
    assert_eq!(scene.events_of(task).last(), Some(&TaskEventKind::Progressed { permille: 420 }));
}

#[test]
fn numbers_of_dead_letters_and_finished_tasks_are_limited() {
    let limits = SchedulerLimits { dead_max: 3, finished_max: 2, ..SchedulerLimits::default() };
    let mut scene = Scene::with(limits);
    scene.set_tenant(TenantSettings::new(b"a"));
    scene.join(20);
    scene.submit_all("a", vec![NewTask { labels: vec![Label { key: b"k", value: b"v" }], ..work() }; 20]);
    for (at, start) in scene.starts().into_iter().enumerate() {
        let _ = if at % 2 == 0 { scene.complete(&start, 9) } else { scene.fail(&start, false) };
    }
    assert_eq!(scene.state.len(), 5);
    scene.must_apply(TaskCommand::Discard { tenant: b"a", count: 0 });
    scene.advance(1 << 40);
    assert_eq!((scene.state.len(), scene.state.bytes()), (0, 0));
}

#[test]
fn idempotency_key_of_another_or_cancelled_task_is_refused() {
    let mut scene = Scene::new();
    let keyed = || NewTask { idempotency_key: b"order 7", ..work() };
    let submit = |tasks| TaskCommand::Submit { tenant: b"a", tasks };
    let task = scene.submit(keyed());
    for other in [
        NewTask { payload: b"another", ..keyed() },
        NewTask { kind: b"another", ..keyed() },
        NewTask { queue: b"another", ..keyed() },
    ] {
        let refused = scene.apply(submit(vec![work(), other.clone()]));
        assert_eq!(refused, Err(TaskRefusal::KeyReused { index: 1, task }), "{other:?}");
    }
    let batch = vec![
        NewTask { idempotency_key: b"8", ..work() },
        work(),
        NewTask { idempotency_key: b"8", payload: b"another", ..work() },
    ];
    assert_eq!(scene.apply(submit(batch)), Err(TaskRefusal::KeyInBatch { index: 2, before: 0 }));
    assert_eq!(scene.submit(NewTask { priority: 9, ..keyed() }), task, "what is to be done is the same");
    scene.must_apply(TaskCommand::Cancel { task });
    assert_eq!(scene.apply(submit(vec![keyed()])), Err(TaskRefusal::KeyCancelled { index: 0, task }));
}

#[test]
fn task_time_in_seconds_or_microseconds_is_refused() {
    let mut scene = Scene::new();
    let now_ms = 1_795_000_000_000;
    scene.must_apply(TaskCommand::Clock { unix_ms: now_ms });
    for (at_ms, side) in [(now_ms / 1_000, "before"), (now_ms * 1_000, "after"), (1, "before")] {
        let far = TaskRefusal::TimeFar { at_ms, now_ms };
        let expected = format!("the time {at_ms} is more than ten years {side} now ({now_ms}, ");
        assert!(far.to_string().starts_with(&expected), "{far}");
        let refused = Err(far);
        for task in [NewTask { not_before_ms: at_ms, ..work() }, NewTask { deadline_ms: at_ms, ..work() }] {
            assert_eq!(scene.apply(TaskCommand::Submit { tenant: b"a", tasks: vec![task] }), refused);
        }
    }
    let year_ms = 365 * 86_400_000;
    scene.submit(NewTask { not_before_ms: now_ms - year_ms, deadline_ms: now_ms + year_ms, ..work() });
}

#[test]
fn safe_retry_of_dead_tasks_excludes_tasks_that_killed_workers() {
    let mut scene = Scene::with(SchedulerLimits { poison_max: 1, ..SchedulerLimits::default() });
    scene.set_tenant(TenantSettings::new(b"a"));
    let poisoned = scene.submit_plain();
    let worker = scene.join(1);
    assert_eq!(scene.only_start().task, poisoned);
    scene.must_apply(TaskCommand::Leave { worker });
    scene.join(1);
    let failed = scene.submit_plain();
    let start = scene.only_start();
    scene.fail(&start, false).unwrap();
    assert_eq!([poisoned, failed].map(|task| scene.stage(task)), [TaskStage::Dead; 2]);
    let safe = scene.apply(TaskCommand::RedriveSafe { tenant: b"a", count: 0 });
    assert_eq!(safe, Ok(CommandReply::Changed { tasks: 1, more: false }));
    assert_eq!([poisoned, failed].map(|task| scene.stage(task)), [TaskStage::Dead, TaskStage::Running]);
    let all = scene.apply(TaskCommand::Redrive { tenant: b"a", count: 0 });
    assert_eq!(all, Ok(CommandReply::Changed { tasks: 1, more: false }));
    assert_eq!(scene.stage(poisoned), TaskStage::Ready);
}

#[test]
fn task_view_shows_every_submitted_setting() {
    let mut scene = Scene::new();
    scene.must_apply(TaskCommand::Clock { unix_ms: 1_795_000_000_000 });
    let retry = RetryPolicy { retries: 7, backoff: Backoff::Fixed { delay_ms: 250 } };
    let task = scene.submit(NewTask {
        not_before_ms: 1_795_000_060_000,
        timeout_ms: 90_000,
        retry: Some(retry),
        idempotency_key: b"order 7",
        ..work()
    });
    let view = scene.state.get(task).unwrap();
    assert_eq!((view.timeout_ms, view.retry, &*view.idempotency_key), (90_000, Some(retry), &b"order 7"[..]));
    assert_eq!(view.not_before_ms.map(|at| scene.state.unix_ms_of(at)), Some(1_795_000_060_000));
    let publish = scene.submit(NewTask { kind: PUBLISH, subject: b"orders.late", ..work() });
    let view = scene.state.get(publish).unwrap();
    assert_eq!((&*view.subject, view.not_before_ms), (&b"orders.late"[..], None));
}

#[test]
fn scheduler_knows_if_a_command_may_change_too_many_tasks() {
    let mut scene = Scene::new();
    scene.submit_all("a", vec![work(); 3]);
    let may_change_more = |command: &TaskCommand<'_>, count| {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        scene.state.may_change_more(&mut [&b""[..], &bytes].into_iter(), count)
    };
    let tenant = &b"a"[..];
    for command in [
        TaskCommand::Tenant { tenant: TenantSettings::new(tenant) },
        TaskCommand::Cancel { task: 1 },
        TaskCommand::Redrive { tenant, count: 0 },
        TaskCommand::Discard { tenant, count: 0 },
        TaskCommand::Leave { worker: 1 },
        TaskCommand::RedriveSafe { tenant, count: 0 },
    ] {
        assert!(may_change_more(&command, 2) && !may_change_more(&command, 3), "{command:?}");
    }
    assert!(!may_change_more(&TaskCommand::Pull { worker: 1, credit: 1 }, 0));
}

#[test]
fn scheduler_knows_how_many_tasks_a_result_changes() {
    let mut scene = Scene::new();
    let first = scene.submit_plain();
    let after = |task| NewTask { after: vec![TaskDependency::Task { task }], ..work() };
    let waiting = scene.submit_all("a", vec![after(first); 3]);
    scene.submit_all("a", vec![after(waiting[0]); 2]);
    scene.join(1);
    let start = scene.only_start();
    let count_of = |scene: &Scene, command: &TaskCommand<'_>| {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let exceeds = |count: &usize| scene.state.may_change_more(&mut [&bytes[..]].into_iter(), *count);
        (0..6).take_while(exceeds).count()
    };
    let completed = TaskCommand::Complete { report: report(&start, 1_000), result: b"" };
    let failed = TaskCommand::Fail { report: report(&start, 1_000), error: b"", retry: false };
    assert_eq!(count_of(&scene, &completed), 3, "the direct dependents become ready");
    assert_eq!(count_of(&scene, &failed), 0, "the dependents continue to wait");
    scene.must_apply(TaskCommand::Cancel { task: first });
    assert_eq!(count_of(&scene, &failed), 5, "all dependents are cancelled");
    // Seven changes: the worker's timer, the worker's task, and the five tasks that wait for this task.
    let due_ms = scene.state.next_due_ms().unwrap();
    assert!(scene.state.has_more_due(due_ms, 6) && !scene.state.has_more_due(due_ms, 7));
}

#[test]
fn scheduler_foresees_the_effects_of_dropping_a_dead_letter() {
    let mut scene = Scene::with(SchedulerLimits { dead_max: 1, ..SchedulerLimits::default() });
    scene.set_tenant(TenantSettings::new(b"a"));
    let first = scene.submit_plain();
    let after = NewTask { after: vec![TaskDependency::Task { task: first }], ..work() };
    scene.submit_all("a", vec![after; 3]);
    scene.submit_plain();
    scene.join(2);
    let (of_first, of_last): (Vec<_>, Vec<_>) =
        scene.starts().into_iter().partition(|start| start.task == first);
    scene.fail(&of_first[0], false).unwrap();
    assert_eq!(scene.stage(first), TaskStage::Dead);
    let mut bytes = Vec::new();
    TaskCommand::Fail { report: report(&of_last[0], 1_000), error: b"", retry: false }.encode(&mut bytes);
    let exceeds = |count| scene.state.may_change_more(&mut [&bytes[..]].into_iter(), count);
    assert!(exceeds(2) && !exceeds(3));
}
