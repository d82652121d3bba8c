//! Tests of retry policies: each tenant has room for its own policies, and new policies replace unused ones.

use super::*;

fn retry(delay_ms: u32) -> Option<RetryPolicy> {
    Some(RetryPolicy { retries: 1, backoff: Backoff::Fixed { delay_ms } })
}

fn scene_with_policy_limit() -> Scene {
    let mut scene = Scene::with(SchedulerLimits { policies_max: 3, ..SchedulerLimits::default() });
    scene.set_tenant(TenantSettings::new(b"a"));
    scene.set_tenant(TenantSettings::new(b"b"));
    scene
}

fn submit(scene: &mut Scene, tenant: &str, delay_ms: u32) -> Result<u64, TaskRefusal> {
    let task = NewTask { retry: retry(delay_ms), ..work() };
    match scene.apply(TaskCommand::Submit { tenant: tenant.as_bytes(), tasks: vec![task] })? {
        CommandReply::Submitted { tasks, .. } => Ok(tasks[0].task),
        other => panic!("{other:?}"),
    }
}

fn too_many_policies() -> TaskRefusal {
    TaskRefusal::TooMany { limit: Limit::Policies, count: 4, count_max: 3 }
}

#[test]
fn retry_policies_of_cancelled_tasks_are_freed() {
    let mut scene = scene_with_policy_limit();
    for delay_ms in 0..5_000 {
        let task = submit(&mut scene, "a", delay_ms).unwrap();
        scene.must_apply(TaskCommand::Cancel { task });
    }
    scene.join(1);
    for delay_ms in 0..10 {
        submit(&mut scene, "a", delay_ms).unwrap();
        let start = scene.only_start();
        scene.complete(&start, 1).unwrap();
    }
}

#[test]
fn each_tenant_has_its_own_limit_of_retry_policies() {
    let mut scene = scene_with_policy_limit();
    let tasks: Vec<u64> = (0..3).map(|delay_ms| submit(&mut scene, "a", delay_ms).unwrap()).collect();
    assert_eq!(submit(&mut scene, "a", 3), Err(too_many_policies()));
    assert!(submit(&mut scene, "a", 2).is_ok(), "one that is in use is no other");
    scene.submit_plain();
    for delay_ms in 10..13 {
        submit(&mut scene, "b", delay_ms).unwrap();
    }
    scene.must_apply(TaskCommand::Cancel { task: tasks[0] });
    assert!(submit(&mut scene, "a", 3).is_ok());
    assert_eq!(submit(&mut scene, "a", 4), Err(too_many_policies()));
}

#[test]
fn retry_policy_is_kept_while_a_dead_letter_uses_it() {
    let mut scene = scene_with_policy_limit();
    let task = submit(&mut scene, "a", 0).unwrap();
    scene.join(1);
    let start = scene.only_start();
    scene.fail(&start, false).unwrap();
    assert_eq!(scene.stage(task), TaskStage::Dead);
    for delay_ms in 1..3 {
        submit(&mut scene, "a", delay_ms).unwrap();
    }
    assert_eq!(submit(&mut scene, "a", 3), Err(too_many_policies()));
    scene.must_apply(TaskCommand::Discard { tenant: b"a", count: 1 });
    assert!(submit(&mut scene, "a", 3).is_ok());
}

/// In this test, a retry policy of another tenant gets the number that the policy of a finished task had.
#[test]
fn finished_task_shows_no_retry_policy_of_another_task() {
    let mut scene = scene_with_policy_limit();
    let task = submit(&mut scene, "a", 1).unwrap();
    assert_eq!(scene.state.get(task).unwrap().retry, retry(1));
    scene.join(1);
    let start = scene.only_start();
    scene.complete(&start, 1).unwrap();
    let other = submit(&mut scene, "b", 2).unwrap();
    assert_eq!(scene.state.get(other).unwrap().retry, retry(2));
    assert_eq!(scene.state.get(task).unwrap().retry, None);
}

#[test]
fn restored_state_keeps_the_limit_of_retry_policies() {
    let mut scene = scene_with_policy_limit();
    let tasks: Vec<u64> = (0..3).map(|delay_ms| submit(&mut scene, "a", delay_ms).unwrap()).collect();
    scene.must_apply(TaskCommand::Cancel { task: tasks[1] });
    let blocks = |state: &SchedulerState| {
        let mut blocks: Vec<Vec<u8>> = Vec::new();
        let written: Result<(), ()> = state.freeze().write(|block| {
            blocks.push(block.to_vec());
            Ok(())
        });
        written.unwrap();
        blocks
    };
    let mut restore = StateRestore::default();
    blocks(&scene.state).iter().for_each(|block| restore.read_block(block).unwrap());
    let mut restored_scene = Scene { state: restore.finish().unwrap(), effects: TaskEffects::default() };
    for delay_ms in [7, 8] {
        assert_eq!(submit(&mut restored_scene, "a", delay_ms), submit(&mut scene, "a", delay_ms));
    }
    assert_eq!(blocks(&restored_scene.state), blocks(&scene.state));
}

#[test]
fn one_tenant_cannot_take_all_schedules() {
    let mut scene = scene_with_policy_limit();
    let schedule = |scene: &mut Scene, tenant: &[u8], name: u32| {
        let name = name.to_string();
        let (name, cron) = (name.as_bytes(), &b"0 0 1 1 *"[..]);
        scene.apply(TaskCommand::Schedule { tenant, name, cron, task: work() })
    };
    let schedules_max = SchedulerLimits::SCHEDULES_OF_TENANT_MAX;
    (0..schedules_max).for_each(|name| drop(schedule(&mut scene, b"a", name).unwrap()));
    assert!(matches!(schedule(&mut scene, b"a", schedules_max), Err(TaskRefusal::TooMany { .. })));
    assert!(schedule(&mut scene, b"a", 0).is_ok(), "an existing schedule is changed");
    assert!(schedule(&mut scene, b"b", 0).is_ok());
}
