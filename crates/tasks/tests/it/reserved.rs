//! Tests that a worker is reserved for a large task. Without the reservation, small tasks would keep the large task
//! waiting for ever.

use super::*;

fn task_of_size(cpu_milli: u32) -> NewTask<'static> {
    NewTask { cpu_milli, ..work() }
}

fn worker() -> NewWorker<'static> {
    NewWorker { kinds: vec![b"work"], credit: 8, cpu_milli: 4_000, ttl_ms: 600_000, ..NewWorker::default() }
}

/// Submits small tasks all the time, and one large task of tenant `b`. Each task takes 4 s. In each second, one task
/// ends on each worker. Returns the large task, the second in which this task started, and the number of completed
/// tasks.
fn flood(scene: &mut Scene, seconds: u64) -> (u64, Option<u64>, u64) {
    let large = scene.submit_all("b", vec![task_of_size(4_000)])[0];
    let mut running: Vec<TaskStart> = scene.starts();
    let (mut start_second, mut completed) = (None, 0);
    for second in 1..=seconds {
        scene.advance(second * 1_000);
        let mut workers_seen = std::collections::BTreeSet::new();
        let (next, rest): (Vec<_>, Vec<_>) =
            running.into_iter().partition(|start| workers_seen.insert(start.worker));
        running = rest;
        for start in next {
            scene.complete(&start, 4_000_000).unwrap();
            scene.submit_all("a", vec![task_of_size(1_000)]);
            completed += 1;
        }
        let starts = scene.starts();
        if starts.iter().any(|start| start.task == large) {
            start_second = start_second.or(Some(second));
        }
        running.extend(starts);
    }
    (large, start_second, completed)
}

fn scene_with_two_tenants(workers: usize) -> Scene {
    let mut scene = Scene::new();
    scene.set_tenant(TenantSettings::new(b"b"));
    scene.submit_all("a", vec![task_of_size(1_000); 50]);
    for _ in 0..workers {
        scene.join_with(worker());
    }
    scene
}

#[test]
fn large_task_runs_despite_a_stream_of_small_ones() {
    for workers in [1, 2, 8] {
        let mut scene = scene_with_two_tenants(workers);
        let (_, start_second, _) = flood(&mut scene, 60);
        let start_second = start_second.unwrap_or_else(|| panic!("never, on {workers} workers"));
        // After 5 s, one worker is reserved for the large task. The tasks that this worker runs at that time end within
        // 4 s.
        assert!((5..=11).contains(&start_second), "after {start_second} s on {workers} workers");
    }
}

#[test]
fn only_one_worker_idles_to_make_room_for_a_large_task() {
    let mut scene = scene_with_two_tenants(8);
    let (_, start_second, completed) = flood(&mut scene, 60);
    assert!(start_second.is_some());
    // One worker takes no new task for some seconds, and then takes the large task in place of several small ones.
    assert!(completed >= 60 * 8 - 16, "{completed}");
}

#[test]
fn worker_reserved_for_a_cancelled_task_takes_other_tasks() {
    let mut scene = scene_with_two_tenants(1);
    let large = scene.submit_all("b", vec![task_of_size(4_000)])[0];
    let running = scene.starts();
    assert_eq!(running.len(), 4);
    scene.advance(6_000);
    scene.complete(&running[0], 1_000).unwrap();
    assert_eq!(scene.starts(), []);
    let why = scene.why(large);
    assert_eq!(
        why,
        "waiting: a worker is reserved for it, and takes no other task until 4000 mCPU and 0 bytes are free"
    );
    scene.must_apply(TaskCommand::Cancel { task: large });
    assert_eq!(scene.starts().len(), 1, "a small one");
}

#[test]
fn no_worker_is_reserved_for_a_task_larger_than_every_worker() {
    let mut scene = scene_with_two_tenants(1);
    scene.submit_all("b", vec![task_of_size(5_000)]);
    let running = scene.starts();
    scene.advance(60_000);
    scene.complete(&running[0], 1_000).unwrap();
    assert_eq!(scene.starts().len(), 1);
}

#[test]
fn reservation_of_a_departed_worker_moves_to_another_worker() {
    let mut scene = scene_with_two_tenants(2);
    let large = scene.submit_all("b", vec![task_of_size(4_000)])[0];
    let running = scene.starts();
    scene.advance(6_000);
    scene.complete(&running[0], 1_000).unwrap();
    scene.must_apply(TaskCommand::Leave { worker: running[0].worker });
    // The remaining worker is then reserved for the large task.
    let others: Vec<_> = running.iter().filter(|start| start.worker != running[0].worker).collect();
    for start in others {
        scene.complete(start, 1_000).unwrap();
    }
    assert!(scene.starts().iter().any(|start| start.task == large));
}
