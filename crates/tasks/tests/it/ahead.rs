//! Tasks that workers hold ahead of their slots.

use super::snapshots::{blocks, restored};
use super::*;

/// Adds a worker with `slots` slots and `ahead` tasks ahead.
fn worker(scene: &mut Scene, slots: u32, ahead: u32) -> u64 {
    let worker = scene.join(0);
    scene.done(TaskCommand::Slots { worker, slots, ahead });
    worker
}

fn plain(scene: &mut Scene, count: usize) {
    scene.submit_all("a", vec![work(); count]);
}

/// The number of tasks that a worker holds, and the number of further tasks that it takes.
fn held(scene: &Scene, worker: u64) -> (usize, u32) {
    let held = scene.state.held(worker).unwrap();
    (held.starts.len(), held.credit)
}

#[test]
fn worker_prefetches_only_if_more_tasks_wait_than_workers_exist() {
    let mut scene = Scene::new();
    let workers = [worker(&mut scene, 1, 1), worker(&mut scene, 1, 1)];
    plain(&mut scene, 5);
    let starts = scene.starts();
    assert_eq!(starts.len(), 2, "every free worker has one task, and none has two");
    scene.complete(&starts[0], 1_000).unwrap();
    assert_eq!(scene.starts().len(), 1, "two wait for two workers");
    plain(&mut scene, 2);
    assert_eq!(scene.starts(), [], "no worker has reported");
    scene.complete(&starts[1], 1_000).unwrap();
    let starts = scene.starts();
    assert!(starts.len() == 2 && starts.iter().all(|start| start.worker == workers[1]), "{starts:?}");
    assert_eq!((held(&scene, workers[0]), held(&scene, workers[1])), ((1, 0), (2, 0)));
}

#[test]
fn worker_with_backlog_holds_prefetched_tasks_up_to_its_limit() {
    let mut scene = Scene::new();
    let worker = worker(&mut scene, 2, 3);
    plain(&mut scene, 12);
    let mut starts = scene.starts();
    assert_eq!(starts.len(), 2);
    let mut most = 0;
    for _ in 0..12 {
        let first = starts.remove(0);
        scene.complete(&first, 1_000).unwrap();
        starts.extend(scene.starts());
        let (holds, credit) = held(&scene, worker);
        assert_eq!((holds, credit), (starts.len(), 2_u32.saturating_sub(starts.len() as u32)));
        most = most.max(holds);
    }
    assert_eq!(most, 5, "two at once and three ahead");
    assert_eq!(held(&scene, worker), (0, 2));
}

#[test]
fn slots_command_sets_how_many_tasks_a_worker_may_hold() {
    let mut scene = Scene::new();
    let worker = worker(&mut scene, 1, 2);
    plain(&mut scene, 9);
    let first = scene.one_start();
    scene.complete(&first, 1_000).unwrap();
    assert_eq!(held(&scene, worker), (3, 0));
    scene.done(TaskCommand::Slots { worker, slots: 1, ahead: 2 });
    assert_eq!(held(&scene, worker), (3, 0), "a repeated command changes nothing");
    scene.done(TaskCommand::Slots { worker, slots: 5, ahead: 0 });
    assert_eq!(held(&scene, worker), (5, 0));
    scene.done(TaskCommand::Slots { worker, slots: 2, ahead: 0 });
    for start in scene.starts() {
        scene.complete(&start, 1_000).unwrap();
        assert!(held(&scene, worker).0 >= 2 || scene.state.signals().startable == 0);
    }
    assert!(held(&scene, worker).0 <= 2, "tasks beyond the limit are not replaced");
    let refused = scene.ask(TaskCommand::Slots { worker, slots: 10_000, ahead: 1 });
    let count_max = u64::from(SchedulerLimits::default().credit_max);
    assert_eq!(refused, Err(TaskRefusal::TooMany { limit: Limit::Credit, count: 10_001, count_max }));
}

#[test]
fn prefetched_tasks_of_a_departed_worker_go_to_other_workers() {
    let mut scene = Scene::new();
    let gone = worker(&mut scene, 1, 2);
    plain(&mut scene, 6);
    let first = scene.one_start();
    scene.complete(&first, 1_000).unwrap();
    let kept = blocks(&scene.state);
    let again = restored(&kept).unwrap();
    assert_eq!((blocks(&again), again.held(gone).unwrap().starts.len()), (kept.clone(), 3));
    let cut = restored(&kept[..kept.len() - 1]);
    assert_eq!(cut.map(|_| ()), Err(TaskDecodeError::Short), "without tasks ahead the state is incomplete");
    scene.starts();
    scene.done(TaskCommand::Leave { worker: gone });
    scene.join(9);
    assert_eq!(scene.starts().len(), 5);
}

const TASK_MS: u64 = 20;

/// Adds `count` workers with one slot and one task ahead. Each runs several tasks of [`TASK_MS`], so that its ends can
/// be predicted. Returns the time.
fn steady(scene: &mut Scene, count: usize) -> u64 {
    for _ in 0..count {
        worker(scene, 1, 1);
    }
    let mut now_ms = 0;
    for _ in 0..8 {
        plain(scene, count);
        now_ms += TASK_MS;
        scene.advance(now_ms);
        for start in scene.starts() {
            scene.complete(&start, TASK_MS * 1_000).unwrap();
        }
    }
    now_ms
}

/// The worker that receives a task submitted now.
fn given(scene: &mut Scene) -> Option<u64> {
    scene.plain();
    scene.starts().pop().map(|start| start.worker)
}

#[test]
fn pending_task_goes_to_the_worker_about_to_finish() {
    let mut scene = Scene::new();
    let began_ms = steady(&mut scene, 2);
    let first = given(&mut scene).unwrap();
    scene.advance(began_ms + 8);
    let second = given(&mut scene).unwrap();
    assert_ne!(first, second, "idle workers come first");
    assert_eq!(given(&mut scene), None, "no worker is about to finish");
    scene.advance(began_ms + 15);
    assert_eq!(scene.starts(), []);
    scene.advance(began_ms + 16);
    assert_eq!(scene.one_start().worker, first);
    assert_eq!(given(&mut scene), None, "it has one at hand, and the other is not about to end");
    scene.advance(began_ms + 24);
    assert_eq!(scene.one_start().worker, second);
    assert_eq!((held(&scene, first), held(&scene, second)), ((2, 0), (2, 0)));
    let again = restored(&blocks(&scene.state)).unwrap();
    assert_eq!(blocks(&again), blocks(&scene.state));
}

#[test]
fn worker_with_unpredictable_task_times_prefetches_nothing() {
    let mut scene = Scene::new();
    let began_ms = steady(&mut scene, 1);
    scene.plain();
    let start = scene.one_start();
    // This time is long after the predicted end.
    scene.advance(began_ms + 3 * TASK_MS);
    assert_eq!(given(&mut scene), None, "the end of a late task is unknown");
    scene.complete(&start, 3 * TASK_MS * 1_000).unwrap();
    let start = scene.one_start();
    scene.advance(began_ms + 4 * TASK_MS);
    assert_eq!(given(&mut scene), None, "its last took three times as long as was foreseen");
    scene.complete(&start, TASK_MS * 1_000).unwrap();
    assert!(scene.one_start().token > start.token);
}

#[test]
fn tasks_of_a_worker_that_leaves_start_at_other_workers() {
    let mut scene = Scene::new();
    let began_ms = steady(&mut scene, 2);
    let first = given(&mut scene).unwrap();
    scene.advance(began_ms + TASK_MS - 1);
    given(&mut scene).unwrap();
    assert_eq!(given(&mut scene), Some(first));
    scene.done(TaskCommand::Leave { worker: first });
    scene.join(9);
    assert_eq!(scene.starts().len(), 2, "what it did, and what it had at hand");
    assert_eq!(given(&mut scene).map(|worker| worker == first), Some(false));
}
