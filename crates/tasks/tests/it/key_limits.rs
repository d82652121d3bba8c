//! Tests of limits by key: the places in a group go first to tasks that some worker could run.

use super::*;

fn labelled_ann(task: NewTask<'static>) -> NewTask<'static> {
    NewTask { labels: vec![Label { key: b"user", value: b"ann" }], ..task }
}

fn gpu_task_of_ann() -> NewTask<'static> {
    let needs = vec![Label { key: b"gpu", value: b"a100" }];
    labelled_ann(NewTask { needs, ..work() })
}

fn rare_task_of_ann() -> NewTask<'static> {
    labelled_ann(NewTask { kind: b"rare", ..work() })
}

fn worker_for_kind(kind: &'static [u8], credit: u32) -> NewWorker<'static> {
    NewWorker { kinds: vec![kind], credit, ttl_ms: 600_000, ..NewWorker::default() }
}

fn scene_with_limit_of_one() -> Scene {
    let mut scene = Scene::default();
    scene.set_tenant(TenantSettings {
        limits: vec![KeyLimit::running(b"user", 1)],
        ..TenantSettings::new(b"a")
    });
    scene
}

#[test]
fn key_limit_first_admits_a_task_that_a_worker_can_run() {
    let mut scene = scene_with_limit_of_one();
    scene.join_with(worker_for_kind(b"work", 1));
    let (gpu, plain) = (scene.submit(gpu_task_of_ann()), scene.submit(labelled_ann(work())));
    let start = scene.only_start();
    assert_eq!(start.task, plain);
    assert_eq!(
        scene.why(gpu),
        "waiting: no worker has label gpu=a100 (1 workers, 0 fit); in addition: 1 of 1 allowed tasks with user ann are \
         running; tasks ahead of it: 0"
    );
    let third = scene.submit(labelled_ann(work()));
    assert_eq!(
        scene.why(third),
        "waiting: 1 of 1 allowed tasks with user ann are running; tasks ahead of it: 0"
    );
    scene.complete(&start, 1_000).unwrap();
    let start = scene.only_start();
    assert_eq!((start.task, scene.stage(gpu)), (third, TaskStage::Limited));
    // No other task needs the place any more, so the task that no worker could run gets it. The autoscaler then sees
    // the kind for which a worker is needed.
    scene.complete(&start, 1_000).unwrap();
    assert_eq!(scene.stage(gpu), TaskStage::Ready);
    assert_eq!(
        scene.why(gpu),
        "waiting: no worker has label gpu=a100 (1 workers, 0 fit); tasks ahead of it: 0"
    );
    let labels = vec![Label { key: b"gpu", value: b"a100" }];
    scene.join_with(NewWorker { labels, ..worker_for_kind(b"work", 1) });
    assert_eq!(scene.only_start().task, gpu);
}

/// Advances the time past the moments at which the token and the delayed task are due.
#[test]
fn delayed_task_that_no_worker_can_run_blocks_no_key_limit() {
    let mut scene = Scene::default();
    let limit =
        KeyLimit { rate: Some(Rate { count: 1, per_ms: 100, burst: 1 }), ..KeyLimit::running(b"user", 1) };
    scene.set_tenant(TenantSettings { limits: vec![limit], ..TenantSettings::new(b"a") });
    scene.join_with(worker_for_kind(b"work", 1));
    scene.submit(labelled_ann(work()));
    let first = scene.only_start();
    let plain = scene.submit(labelled_ann(work()));
    let gpu = scene.submit(NewTask { not_before_ms: 50, ..gpu_task_of_ann() });
    scene.complete(&first, 1_000).unwrap();
    assert_eq!(
        (scene.starts().len(), scene.stage(plain), scene.stage(gpu)),
        (0, TaskStage::Limited, TaskStage::Delayed)
    );
    scene.advance(200);
    assert_eq!((scene.only_start().task, scene.stage(gpu)), (plain, TaskStage::Limited));
}

#[test]
fn task_loses_its_place_in_a_limit_when_no_worker_can_run_it() {
    let mut scene = scene_with_limit_of_one();
    scene.join_with(worker_for_kind(b"work", 1));
    let (first, last) =
        (scene.join_with(worker_for_kind(b"rare", 0)), scene.join_with(worker_for_kind(b"rare", 0)));
    let (reserved, waiting) = (scene.submit(rare_task_of_ann()), scene.submit(labelled_ann(work())));
    assert_eq!((scene.stage(reserved), scene.stage(waiting)), (TaskStage::Ready, TaskStage::Limited));
    assert_eq!(
        scene.why(waiting),
        "waiting: 0 of 1 allowed tasks with user ann are running, 1 more wait for a worker; tasks ahead of it: 0"
    );
    scene.must_apply(TaskCommand::Leave { worker: first });
    assert_eq!(scene.starts(), [], "another worker could still run it");
    scene.must_apply(TaskCommand::Leave { worker: last });
    assert_eq!((scene.only_start().task, scene.stage(reserved)), (waiting, TaskStage::Limited));
}

#[test]
fn key_limit_lets_a_new_worker_start_the_task_it_can_run() {
    let mut scene = scene_with_limit_of_one();
    let (reserved, waiting) = (scene.submit(rare_task_of_ann()), scene.submit(labelled_ann(work())));
    assert_eq!(
        scene.stage(reserved),
        TaskStage::Ready,
        "no worker could run either: first come, first served"
    );
    scene.join_with(worker_for_kind(b"work", 1));
    assert_eq!((scene.only_start().task, scene.stage(reserved)), (waiting, TaskStage::Limited));
}

#[test]
fn task_too_large_for_all_workers_does_not_block_smaller_ones() {
    let mut scene = scene_with_limit_of_one();
    scene.join_with(NewWorker { memory_bytes: 100, ..worker_for_kind(b"work", 1) });
    let large = scene.submit(labelled_ann(NewTask { memory_bytes: 1_000, ..work() }));
    let small = scene.submit(labelled_ann(NewTask { memory_bytes: 10, ..work() }));
    assert_eq!((scene.only_start().task, scene.stage(large)), (small, TaskStage::Limited));
    assert!(scene.why(large).starts_with("waiting: no worker is large enough for 0 mCPU and 1000 bytes"));
}

#[test]
fn task_without_a_worker_gives_up_its_place_in_the_limit() {
    let mut scene = scene_with_limit_of_one();
    scene.join_with(worker_for_kind(b"work", 1));
    scene.join_with(NewWorker { tenants: vec![b"b"], ..worker_for_kind(b"rare", 1) });
    let (reserved, next) = (scene.submit(rare_task_of_ann()), scene.submit(labelled_ann(work())));
    assert_eq!((scene.only_start().task, scene.stage(reserved)), (next, TaskStage::Limited));
}

#[test]
fn task_without_a_suitable_worker_takes_no_rate_token() {
    let mut scene = Scene::default();
    let rate = Rate { count: 1, per_ms: 1_000, burst: 1 };
    scene.set_tenant(TenantSettings {
        limits: vec![KeyLimit::starting(b"user", rate)],
        ..TenantSettings::new(b"a")
    });
    scene.join_with(worker_for_kind(b"work", 2));
    let (gpu, plain) = (scene.submit(gpu_task_of_ann()), scene.submit(labelled_ann(work())));
    assert_eq!((scene.only_start().task, scene.stage(gpu)), (plain, TaskStage::Limited));
    let next = scene.submit(labelled_ann(work()));
    scene.advance(1_000);
    assert_eq!(scene.only_start().task, next);
}

#[test]
fn task_that_loses_a_place_in_one_limit_loses_all_its_places() {
    let mut scene = Scene::default();
    let limits = vec![KeyLimit::running(b"user", 1), KeyLimit::running(b"site", 1)];
    scene.set_tenant(TenantSettings { limits, ..TenantSettings::new(b"a") });
    scene.join_with(worker_for_kind(b"work", 2));
    let site = Label { key: b"site", value: b"x" };
    let mut both = gpu_task_of_ann();
    both.labels.push(site);
    let reserved = scene.submit(both);
    let at_site = scene.submit(NewTask { labels: vec![site], needs: gpu_task_of_ann().needs, ..work() });
    assert_eq!((scene.stage(reserved), scene.stage(at_site)), (TaskStage::Ready, TaskStage::Limited));
    let plain = scene.submit(labelled_ann(work()));
    assert_eq!((scene.only_start().task, scene.stage(reserved)), (plain, TaskStage::Limited));
    assert_eq!(scene.stage(at_site), TaskStage::Ready);
}

#[test]
fn new_ageing_limit_does_not_reorder_waiting_tasks() {
    let mut scene = scene_with_limit_of_one();
    let tasks: Vec<u64> =
        (0..4_u8).map(|priority| scene.submit(labelled_ann(NewTask { priority, ..work() }))).collect();
    let limits = SchedulerLimits { ageing_ms: 1, ..scene.state.limits() };
    scene.must_apply(TaskCommand::Limit { limits });
    scene.must_apply(TaskCommand::Cancel { task: tasks[3] });
    scene.join(1);
    let mut started = Vec::new();
    for _ in 0..3 {
        let start = scene.only_start();
        started.push(start.task);
        scene.complete(&start, 1_000).unwrap();
    }
    assert_eq!(started, [tasks[0], tasks[2], tasks[1]]);
}
