//! Tests that workers join, renew their leases, leave and die.

use super::*;

#[test]
fn tasks_of_a_dead_worker_move_and_its_results_are_refused() {
    let mut scene = Scene::new();
    let tasks: Vec<_> = (0..3).map(|_| scene.submit_plain()).collect();
    scene.join(3);
    let lost_starts = scene.starts();
    let other = scene.join(5);
    scene.advance(9_000);
    scene.must_apply(TaskCommand::Renew { workers: vec![other] });
    scene.advance(10_000);
    let restarted = scene.starts();
    assert_eq!(
        restarted.iter().map(|start| (start.worker, start.task, start.attempt)).collect::<Vec<_>>(),
        tasks.iter().map(|&task| (other, task, 1)).collect::<Vec<_>>()
    );
    assert_eq!(
        scene.complete(&lost_starts[0], 1),
        Err(TaskRefusal::NoWorker { worker: lost_starts[0].worker })
    );
    assert_eq!(scene.events_of(tasks[0])[2], TaskEventKind::Lost { times: 1 });
}

#[test]
fn reply_to_a_heartbeat_lists_an_expired_worker_as_gone() {
    let mut scene = Scene::new();
    let worker = scene.join(1);
    assert_eq!(
        scene.apply(TaskCommand::Renew { workers: vec![worker] }),
        Ok(CommandReply::Renewed { gone: vec![] })
    );
    scene.advance(10_000);
    assert_eq!(
        scene.apply(TaskCommand::Renew { workers: vec![worker] }),
        Ok(CommandReply::Renewed { gone: vec![worker] })
    );
    let restarted = scene.join(1);
    assert_ne!(restarted, worker, "ids of what is gone do not come again");
}

#[test]
fn task_that_kills_three_workers_becomes_a_dead_letter() {
    let mut scene = Scene::new();
    let task = scene.submit_plain();
    for death in 1..=3 {
        let worker = scene.join(1);
        assert_eq!(scene.only_start().task, task);
        scene.must_apply(TaskCommand::Leave { worker });
        assert_eq!(scene.stage(task), if death < 3 { TaskStage::Ready } else { TaskStage::Dead });
    }
    assert_eq!(scene.events_of(task).last(), Some(&TaskEventKind::Dead { why: AttemptFailure::Poisoned }));
    assert_eq!(scene.state.workers().count(), 0);
}

#[test]
fn draining_worker_gets_no_task_and_learns_when_it_is_drained() {
    let mut scene = Scene::new();
    let tasks = [scene.submit_plain(), scene.submit_plain()];
    let worker = scene.join(1);
    let start = scene.only_start();
    scene.must_apply(TaskCommand::Drain { worker });
    assert_eq!(scene.effects.orders, []);
    scene.complete(&start, 1_000).unwrap();
    assert_eq!(scene.effects.orders, [WorkerOrder::Drained { worker }]);
    assert_eq!(scene.stage(tasks[1]), TaskStage::Ready);
    scene.must_apply(TaskCommand::Pull { worker, credit: 1 });
    assert_eq!(scene.stage(tasks[1]), TaskStage::Ready);
    assert_eq!(scene.state.signals().workers, 0);
    scene.must_apply(TaskCommand::Leave { worker });
}

#[test]
fn idle_worker_drains_at_once() {
    let mut scene = Scene::new();
    let worker = scene.join(1);
    scene.must_apply(TaskCommand::Drain { worker });
    assert_eq!(scene.effects.orders, [WorkerOrder::Drained { worker }]);
}

#[test]
fn result_is_counted_once_and_only_from_the_assigned_worker() {
    let mut scene = Scene::new();
    let task = scene.submit_plain();
    scene.join(1);
    let start = scene.only_start();
    let other = scene.join(1);
    let stranger = TaskStart { worker: other, ..start.clone() };
    assert_eq!(scene.complete(&stranger, 1), Err(TaskRefusal::NotHeld { worker: other, task }));
    let invented = TaskStart { token: 999, ..start.clone() };
    assert_eq!(scene.complete(&invented, 1), Err(TaskRefusal::NotHeld { worker: start.worker, task }));
    scene.complete(&start, 1_000).unwrap();
    // The reply to the report was lost. The repeated report is not refused, and changes nothing.
    let before = snapshots::blocks(&scene.state);
    assert_eq!(scene.complete(&start, 1_000), Ok(CommandReply::Done));
    assert_eq!(scene.fail(&start, true), Err(TaskRefusal::Over { task }));
    assert_eq!(snapshots::blocks(&scene.state), before);
    assert_eq!(scene.state.tenants().next().unwrap().account.completed, 1);
}

#[test]
fn worker_gets_only_tasks_of_its_kinds_and_queues() {
    let mut scene = Scene::new();
    let rare = scene.submit(NewTask { kind: b"rare", ..work() });
    let night = scene.submit(NewTask { queue: b"night", ..work() });
    let ttl_ms = 10_000;
    scene.join_with(NewWorker {
        kinds: vec![b"work"],
        queues: vec![b"default"],
        credit: 5,
        ttl_ms,
        ..NewWorker::default()
    });
    assert_eq!(scene.starts(), []);
    scene.join_with(NewWorker {
        kinds: vec![b"work", b"rare"],
        queues: vec![b"night"],
        credit: 5,
        ttl_ms,
        ..NewWorker::default()
    });
    assert_eq!(scene.only_start().task, night);
    scene.join_with(NewWorker { kinds: vec![b"rare"], credit: 5, ttl_ms, ..NewWorker::default() });
    assert_eq!(scene.only_start().task, rare);
}

#[test]
fn worker_gets_only_tasks_that_fit_its_free_resources() {
    let mut scene = Scene::new();
    let big = || NewTask { memory_bytes: 600, cpu_milli: 500, ..work() };
    scene.submit_all("a", vec![big(), big(), big()]);
    let new_worker = NewWorker {
        memory_bytes: 1_000,
        cpu_milli: 2_000,
        kinds: vec![b"work"],
        credit: 8,
        ttl_ms: 9_000,
        ..NewWorker::default()
    };
    scene.join_with(new_worker.clone());
    let first = scene.only_start();
    scene.join_with(new_worker);
    let second = scene.only_start();
    assert_ne!(first.worker, second.worker);
    scene.complete(&first, 1_000).unwrap();
    assert_eq!(scene.only_start().worker, first.worker);
}

#[test]
fn workers_may_declare_any_amount_of_memory() {
    let mut scene = Scene::new();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            scene.join_with(NewWorker {
                memory_bytes: u64::MAX,
                kinds: vec![b"work"],
                credit: 1,
                ttl_ms: 9_000,
                ..NewWorker::default()
            })
        })
        .collect();
    let task = scene.submit(NewTask { memory_bytes: 5_000, ..work() });
    assert_eq!(scene.only_start().task, task);
    for worker in workers {
        scene.must_apply(TaskCommand::Leave { worker });
    }
    assert_eq!(scene.state.workers().count(), 0);
}

#[test]
fn tenants_may_reserve_any_number_of_slots_and_bytes() {
    let mut scene = Scene::new();
    let all = Quota { reserved: u64::MAX, ..Quota::default() };
    for name in [b"b", b"c", b"d"] {
        scene.set_tenant(TenantSettings { concurrency: all, memory_bytes: all, ..TenantSettings::new(name) });
    }
    scene.submit_plain();
    let reserved = scene.submit_all("b", vec![work()])[0];
    let worker = scene.join(1);
    assert_eq!(scene.only_start().task, reserved, "all is reserved for other tenants than `a`");
    let mut allocator = SlotAllocator::default();
    allocator.set_worker(worker, 1, 0);
    allocator.allocate(0, &[DemandSnapshot::new(&scene.state, &[worker])]);
    for name in [b"b", b"c", b"d"] {
        scene.set_tenant(TenantSettings::new(name));
    }
    scene.join(1);
    scene.only_start();
}

#[test]
fn oversized_task_does_not_block_smaller_ones() {
    let mut scene = Scene::new();
    scene.set_tenant(TenantSettings::new(b"b"));
    scene.submit(NewTask { memory_bytes: 5_000, ..work() });
    scene.join_with(NewWorker {
        memory_bytes: 1_000,
        kinds: vec![b"work"],
        credit: 8,
        ttl_ms: 9_000,
        ..NewWorker::default()
    });
    let small = scene.submit_all("b", vec![work()])[0];
    assert_eq!(scene.only_start().task, small);
}

#[test]
fn autoscaler_is_told_only_of_tasks_that_may_start() {
    let mut scene = Scene::default();
    scene.set_tenant(TenantSettings {
        concurrency: Quota::at_most(5),
        limits: vec![KeyLimit::running(b"user", 2)],
        ..TenantSettings::new(b"a")
    });
    let labels = vec![Label { key: b"user", value: b"u" }];
    scene.submit_all("a", vec![NewTask { labels, ..work() }; 10]);
    assert_eq!(scene.state.signals().startable, 2);
    scene.submit_all("a", vec![work(); 10]);
    let first = scene.submit_plain();
    scene.submit_all(
        "a",
        vec![
            NewTask { not_before_ms: 9_000, ..work() },
            NewTask { after: vec![TaskDependency::Task { task: first }], ..work() },
        ],
    );
    assert_eq!(scene.state.signals().startable, 5);
    let worker = scene.join(1);
    let signals = scene.state.signals();
    assert_eq!((signals.startable, signals.held, signals.workers), (4, 1, 1));
    assert_eq!((signals.idle.len(), signals.grace_ms), (0, 300_000));
    let start = scene.only_start();
    scene.must_apply(TaskCommand::Drain { worker });
    scene.complete(&start, 1_000).unwrap();
    let idle =
        scene.join_with(NewWorker { kinds: vec![b"none"], credit: 1, ttl_ms: 9_000, ..NewWorker::default() });
    assert_eq!(scene.state.signals().idle, [(idle, 0)]);
}
