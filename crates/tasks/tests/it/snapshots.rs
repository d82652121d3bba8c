//! Tests of snapshots: a state is written as blocks of bytes and restored from them.

use std::convert::Infallible;

use super::*;

pub fn blocks(state: &SchedulerState) -> Vec<Vec<u8>> {
    blocks_of(&state.freeze())
}

fn blocks_of(frozen: &FrozenSchedulerState) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    let Ok(()) = frozen.write(|block| {
        blocks.push(block.to_vec());
        Ok::<_, Infallible>(())
    });
    blocks
}

pub fn restored(blocks: &[Vec<u8>]) -> Result<SchedulerState, TaskDecodeError> {
    let mut restore = StateRestore::default();
    blocks.iter().try_for_each(|block| restore.read_block(block))?;
    restore.finish()
}

/// Creates a scene whose state has every kind of item.
pub fn full() -> Scene {
    let mut scene = Scene::default();
    let rate = Rate { count: 1, per_ms: 150, burst: 2 };
    let limits = vec![KeyLimit::running(b"user", 2), KeyLimit::starting(b"user", rate)];
    scene.set_tenant(TenantSettings {
        limits,
        concurrency: Quota { reserved: 2, ..Quota::at_most(9) },
        ..TenantSettings::new(b"a")
    });
    scene.set_tenant(TenantSettings::new(b"b"));
    let user = |at: usize| if at.is_multiple_of(2) { &b"ann"[..] } else { b"bob" };
    for at in 0..1_000 {
        let labels = if at % 3 == 0 { vec![Label { key: b"user", value: user(at) }] } else { vec![] };
        let after = if at % 5 == 1 { vec![TaskDependency::Batch { index: 1 }] } else { vec![] };
        let task = NewTask {
            labels,
            after,
            priority: (at % 10) as u8,
            not_before_ms: (at % 7 * 100) as u64,
            ..work()
        };
        scene.submit_all(["a", "b"][at % 2], vec![task, work()]);
    }
    scene.join(6);
    scene.join(7);
    let needs = vec![Label { key: b"gpu", value: b"a100" }];
    scene.submit_all("b", vec![NewTask { needs: needs.clone(), ..work() }]);
    let (kinds, tenants) = (vec![&b"work"[..]], vec![&b"b"[..]]);
    scene.join_with(NewWorker {
        kinds,
        tenants,
        labels: needs,
        credit: 1,
        ttl_ms: 9_000,
        ..NewWorker::default()
    });
    scene.must_apply(TaskCommand::Schedule { tenant: b"b", name: b"n", cron: b"* * * * *", task: work() });
    for (at, start) in scene.starts().into_iter().enumerate().take(6) {
        let _ = if at % 2 == 0 { scene.complete(&start, 900) } else { scene.fail(&start, at == 1) };
    }
    scene
}

#[test]
fn restored_state_behaves_like_the_original() {
    let mut scene = full();
    let snapshot = blocks(&scene.state);
    assert!(snapshot.len() > 9, "in several blocks: {}", snapshot.len());
    let mut restored_scene = Scene { state: restored(&snapshot).unwrap(), ..Scene::default() };
    assert_eq!(
        (restored_scene.state.bytes(), blocks(&restored_scene.state)),
        (scene.state.bytes(), snapshot)
    );
    scene.effects.clear();
    for now_ms in [100, 200, 9_000, 10_000, 60_000, 500_000] {
        scene.advance(now_ms);
        restored_scene.advance(now_ms);
        let (worker, restored_worker) = (scene.join(5), restored_scene.join(5));
        assert_eq!(worker, restored_worker);
        assert_eq!(scene.effects, restored_scene.effects);
        for start in scene.starts().into_iter().zip(restored_scene.starts()) {
            assert_eq!(scene.complete(&start.0, 700), restored_scene.complete(&start.1, 700));
        }
        assert_eq!(blocks(&scene.state), blocks(&restored_scene.state));
        assert_eq!(scene.state.next_due_ms(), restored_scene.state.next_due_ms());
    }
}

/// A task stores the index of the limit that last held it back. It still stores this index after the limit was removed.
#[test]
fn state_with_tasks_of_a_removed_limit_can_be_restored() {
    let mut scene = Scene::default();
    let limits = vec![KeyLimit::running(b"queue", 9), KeyLimit::running(b"kind", 1)];
    scene.set_tenant(TenantSettings { limits, ..TenantSettings::new(b"a") });
    scene.join(1);
    let tasks = scene.submit_all("a", vec![work(); 2]);
    assert_eq!(scene.stage(tasks[1]), TaskStage::Limited);
    let start = scene.only_start();
    scene.complete(&start, 1_000).unwrap();
    assert_eq!(scene.only_start().task, tasks[1]);
    scene.set_tenant(TenantSettings::new(b"a"));
    let snapshot = blocks(&scene.state);
    assert_eq!(blocks(&restored(&snapshot).unwrap()), snapshot);
}

#[test]
fn changing_a_state_does_not_change_its_frozen_copy() {
    let mut scene = full();
    let frozen = scene.state.freeze();
    let before = blocks(&scene.state);
    scene.advance(1_000_000);
    scene.join(100);
    assert_eq!(before, blocks_of(&frozen));
}

#[test]
fn snapshot_with_a_missing_repeated_or_cut_block_is_refused() {
    let snapshot = blocks(&full().state);
    for at in 0..snapshot.len() {
        let mut shorter = snapshot.clone();
        shorter.remove(at);
        assert!(restored(&shorter).is_err(), "without block {at}");
        let mut longer = snapshot.clone();
        longer.insert(at, snapshot[at].clone());
        assert!(restored(&longer).is_err(), "block {at} twice");
    }
    for (at, block) in snapshot.iter().enumerate() {
        let mut cut = snapshot.clone();
        cut[at].truncate(block.len() - 1);
        assert!(restored(&cut).is_err(), "block {at} cut");
    }
    assert!(restored(&[]).is_err());
}

#[test]
fn snapshot_writing_stops_at_the_first_error() {
    let mut written = 0;
    let stopped = full().state.freeze().write(|_| {
        written += 1;
        if written == 2 { Err("full") } else { Ok(()) }
    });
    assert_eq!((stopped, written), (Err("full"), 2));
}
