//! Tests of tasks ahead: tasks that workers hold beyond their slots.

use super::snapshots::{blocks, restored};
use super::*;

/// Adds a worker with `slots` slots that may hold `ahead` tasks ahead.
fn add_worker(scene: &mut Scene, slots: u32, ahead: u32) -> u64 {
    let worker = scene.join(0);
    scene.must_apply(TaskCommand::Slots { worker, slots, ahead });
    worker
}

fn submit_plain(scene: &mut Scene, count: usize) {
    scene.submit_all("a", vec![work(); count]);
}

/// The number of tasks that a worker holds, and the number of further tasks that the worker can take.
fn held_and_credit(scene: &Scene, worker: u64) -> (usize, u32) {
    let held = scene.state.held(worker).unwrap();
    (held.starts.len(), held.credit)
}

#[test]
fn worker_prefetches_only_if_more_tasks_wait_than_workers_exist() {
    let mut scene = Scene::new();
    let workers = [add_worker(&mut scene, 1, 1), add_worker(&mut scene, 1, 1)];
    submit_plain(&mut scene, 5);
    let starts = scene.starts();
    assert_eq!(starts.len(), 2, "every free worker has one task, and none has two");
    scene.complete(&starts[0], 1_000).unwrap();
    assert_eq!(scene.starts().len(), 1, "two wait for two workers");
    submit_plain(&mut scene, 2);
    assert_eq!(scene.starts(), [], "no worker has reported");
    scene.complete(&starts[1], 1_000).unwrap();
    let starts = scene.starts();
    assert!(starts.len() == 2 && starts.iter().all(|start| start.worker == workers[1]), "{starts:?}");
    assert_eq!((held_and_credit(&scene, workers[0]), held_and_credit(&scene, workers[1])), ((1, 0), (2, 0)));
}

#[test]
fn worker_prefetches_up_to_its_limit_while_many_tasks_wait() {
    let mut scene = Scene::new();
    let worker = add_worker(&mut scene, 2, 3);
    submit_plain(&mut scene, 12);
    let mut starts = scene.starts();
    assert_eq!(starts.len(), 2);
    let mut held_max = 0;
    for _ in 0..12 {
        let first = starts.remove(0);
        scene.complete(&first, 1_000).unwrap();
        starts.extend(scene.starts());
        let (holds, credit) = held_and_credit(&scene, worker);
        assert_eq!((holds, credit), (starts.len(), 2_u32.saturating_sub(starts.len() as u32)));
        held_max = held_max.max(holds);
    }
    assert_eq!(held_max, 5, "two at once and three ahead");
    assert_eq!(held_and_credit(&scene, worker), (0, 2));
}

#[test]
fn slots_command_sets_how_many_tasks_a_worker_may_hold() {
    let mut scene = Scene::new();
    let worker = add_worker(&mut scene, 1, 2);
    submit_plain(&mut scene, 9);
    let first = scene.only_start();
    scene.complete(&first, 1_000).unwrap();
    assert_eq!(held_and_credit(&scene, worker), (3, 0));
    scene.must_apply(TaskCommand::Slots { worker, slots: 1, ahead: 2 });
    assert_eq!(held_and_credit(&scene, worker), (3, 0), "a repeated command changes nothing");
    scene.must_apply(TaskCommand::Slots { worker, slots: 5, ahead: 0 });
    assert_eq!(held_and_credit(&scene, worker), (5, 0));
    scene.must_apply(TaskCommand::Slots { worker, slots: 2, ahead: 0 });
    for start in scene.starts() {
        scene.complete(&start, 1_000).unwrap();
        assert!(held_and_credit(&scene, worker).0 >= 2 || scene.state.signals().startable == 0);
    }
    assert!(held_and_credit(&scene, worker).0 <= 2, "tasks beyond the limit are not replaced");
    let refused = scene.apply(TaskCommand::Slots { worker, slots: 10_000, ahead: 1 });
    let count_max = u64::from(SchedulerLimits::default().credit_max);
    assert_eq!(refused, Err(TaskRefusal::TooMany { limit: Limit::Credit, count: 10_001, count_max }));
}

#[test]
fn prefetched_tasks_of_a_departed_worker_go_to_other_workers() {
    let mut scene = Scene::new();
    let departed = add_worker(&mut scene, 1, 2);
    submit_plain(&mut scene, 6);
    let first = scene.only_start();
    scene.complete(&first, 1_000).unwrap();
    let snapshot = blocks(&scene.state);
    let restored_state = restored(&snapshot).unwrap();
    assert_eq!(
        (blocks(&restored_state), restored_state.held(departed).unwrap().starts.len()),
        (snapshot.clone(), 3)
    );
    let cut = restored(&snapshot[..snapshot.len() - 1]);
    assert_eq!(cut.map(|_| ()), Err(TaskDecodeError::Short), "without tasks ahead the state is incomplete");
    scene.starts();
    scene.must_apply(TaskCommand::Leave { worker: departed });
    scene.join(9);
    assert_eq!(scene.starts().len(), 5);
}

const TASK_MS: u64 = 20;

/// Adds `count` workers, each with one slot and at most one task ahead. Each worker runs several tasks that take
/// [`TASK_MS`] each, so that the end of the worker's next task can be predicted. Returns the scene's time, ms.
fn complete_steadily(scene: &mut Scene, count: usize) -> u64 {
    for _ in 0..count {
        add_worker(scene, 1, 1);
    }
    let mut now_ms = 0;
    for _ in 0..8 {
        submit_plain(scene, count);
        now_ms += TASK_MS;
        scene.advance(now_ms);
        for start in scene.starts() {
            scene.complete(&start, TASK_MS * 1_000).unwrap();
        }
    }
    now_ms
}

/// Submits a task. Returns the worker that receives the task; `None` if the task waits.
fn submit_and_find_worker(scene: &mut Scene) -> Option<u64> {
    scene.submit_plain();
    scene.starts().pop().map(|start| start.worker)
}

#[test]
fn worker_about_to_finish_a_task_prefetches_a_pending_task() {
    let mut scene = Scene::new();
    let start_ms = complete_steadily(&mut scene, 2);
    let first = submit_and_find_worker(&mut scene).unwrap();
    scene.advance(start_ms + 8);
    let second = submit_and_find_worker(&mut scene).unwrap();
    assert_ne!(first, second, "idle workers come first");
    assert_eq!(submit_and_find_worker(&mut scene), None, "no worker is about to finish");
    scene.advance(start_ms + 15);
    assert_eq!(scene.starts(), []);
    scene.advance(start_ms + 16);
    assert_eq!(scene.only_start().worker, first);
    assert_eq!(
        submit_and_find_worker(&mut scene),
        None,
        "it has one at hand, and the other is not about to end"
    );
    scene.advance(start_ms + 24);
    assert_eq!(scene.only_start().worker, second);
    assert_eq!((held_and_credit(&scene, first), held_and_credit(&scene, second)), ((2, 0), (2, 0)));
    let restored_state = restored(&blocks(&scene.state)).unwrap();
    assert_eq!(blocks(&restored_state), blocks(&scene.state));
}

#[test]
fn worker_with_unpredictable_task_times_prefetches_nothing() {
    let mut scene = Scene::new();
    let start_ms = complete_steadily(&mut scene, 1);
    scene.submit_plain();
    let start = scene.only_start();
    // This time is long after the predicted end.
    scene.advance(start_ms + 3 * TASK_MS);
    assert_eq!(submit_and_find_worker(&mut scene), None, "the end of a late task is unknown");
    scene.complete(&start, 3 * TASK_MS * 1_000).unwrap();
    let start = scene.only_start();
    scene.advance(start_ms + 4 * TASK_MS);
    assert_eq!(submit_and_find_worker(&mut scene), None, "its last took three times as long as was foreseen");
    scene.complete(&start, TASK_MS * 1_000).unwrap();
    assert!(scene.only_start().token > start.token);
}

#[test]
fn tasks_of_a_departed_worker_start_at_other_workers() {
    let mut scene = Scene::new();
    let start_ms = complete_steadily(&mut scene, 2);
    let first = submit_and_find_worker(&mut scene).unwrap();
    scene.advance(start_ms + TASK_MS - 1);
    submit_and_find_worker(&mut scene).unwrap();
    assert_eq!(submit_and_find_worker(&mut scene), Some(first));
    scene.must_apply(TaskCommand::Leave { worker: first });
    scene.join(9);
    assert_eq!(scene.starts().len(), 2, "what it did, and what it had at hand");
    assert_eq!(submit_and_find_worker(&mut scene).map(|worker| worker == first), Some(false));
}
