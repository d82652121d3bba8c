//! Tests that new lanes, classes and names replace unused ones.

use super::snapshots::{blocks, restored};
use super::*;

/// Creates a scene with the tenants `a` and `b`. The scene's scheduler forgets tasks as soon as they are over.
fn scene_with_two_tenants(limits: SchedulerLimits) -> Scene {
    let mut scene = Scene::with(SchedulerLimits { finished_max: 0, ..limits });
    ["a", "b"].iter().for_each(|tenant| scene.set_tenant(TenantSettings::new(tenant.as_bytes())));
    scene
}

fn submit(scene: &mut Scene, tenant: &str, kind: &str) -> Result<u64, TaskRefusal> {
    let task = NewTask::new(kind.as_bytes(), b"");
    match scene.apply(TaskCommand::Submit { tenant: tenant.as_bytes(), tasks: vec![task] })? {
        CommandReply::Submitted { tasks, .. } => Ok(tasks[0].task),
        other => panic!("{other:?}"),
    }
}

fn limit_of(refused: Result<u64, TaskRefusal>) -> Limit {
    match refused {
        Err(TaskRefusal::TooMany { limit, .. }) => limit,
        other => panic!("{other:?}"),
    }
}

/// Replaces the state by one that is restored from its snapshot. Checks that the restored state gives an equal
/// snapshot.
fn restore(scene: &mut Scene) {
    let restored_state = restored(&blocks(&scene.state)).unwrap();
    assert_eq!(blocks(&restored_state), blocks(&scene.state));
    scene.state = restored_state;
}

#[test]
fn lanes_without_tasks_do_not_count_towards_the_lane_limit() {
    let mut scene = scene_with_two_tenants(SchedulerLimits { lanes_max: 3, ..SchedulerLimits::default() });
    for number in 0..100 {
        let task = submit(&mut scene, "a", &format!("kind-{number}")).unwrap();
        scene.must_apply(TaskCommand::Cancel { task });
        if number % 10 == 0 {
            restore(&mut scene);
        }
    }
    let tasks = ["1", "2", "3"].map(|kind| submit(&mut scene, "a", kind).unwrap());
    assert_eq!(limit_of(submit(&mut scene, "a", "4")), Limit::Lanes);
    restore(&mut scene);
    assert_eq!(limit_of(submit(&mut scene, "a", "4")), Limit::Lanes);
    submit(&mut scene, "a", "3").unwrap();
    submit(&mut scene, "b", "4").unwrap();
    scene.must_apply(TaskCommand::Cancel { task: tasks[0] });
    submit(&mut scene, "a", "4").unwrap();
    assert_eq!(limit_of(submit(&mut scene, "a", "1")), Limit::Lanes);
}

#[test]
fn reused_idle_lanes_count_towards_the_lane_limit() {
    let mut scene = scene_with_two_tenants(SchedulerLimits {
        lanes_max: 2,
        classes_max: 2,
        ..SchedulerLimits::default()
    });
    for kind in ["1", "2"] {
        let task = submit(&mut scene, "a", kind).unwrap();
        scene.must_apply(TaskCommand::Cancel { task });
    }
    let batch = |kinds: &[&'static str]| TaskCommand::Submit {
        tenant: b"a",
        tasks: kinds.iter().map(|kind| NewTask::new(kind.as_bytes(), b"")).collect(),
    };
    assert!(scene.apply(batch(&["3", "1", "2"])).is_err());
    scene.must_apply(batch(&["3", "1"]));
    restore(&mut scene);
    let queues: Vec<String> = scene.state.queues().map(|queue| text(&queue.kind)).collect();
    assert_eq!(queues.len(), 2, "{queues:?}");
    assert!(queues.contains(&"3".to_owned()) && queues.contains(&"1".to_owned()), "{queues:?}");
}

#[test]
fn task_classes_without_tasks_are_freed_for_other_tenants() {
    let mut scene = scene_with_two_tenants(SchedulerLimits { classes_max: 4, ..SchedulerLimits::default() });
    let kinds: Vec<&[u8]> = vec![b"b-0", b"b-9"];
    scene.join_with(NewWorker { kinds, credit: 100, ttl_ms: 10_000, ..NewWorker::default() });
    let tasks: Vec<u64> = (0..4).map(|n| submit(&mut scene, "a", &format!("a-{n}")).unwrap()).collect();
    assert_eq!(limit_of(submit(&mut scene, "b", "b-0")), Limit::Classes);
    tasks.into_iter().for_each(|task| scene.must_apply(TaskCommand::Cancel { task }));
    restore(&mut scene);
    assert_eq!(scene.state.queues().count(), 0, "no queue of another tenant is shown");
    for number in 0..20 {
        let task = submit(&mut scene, "b", &format!("b-{number}")).unwrap();
        match number {
            0 | 9 => {
                let start = scene.only_start();
                assert_eq!((start.task, text(&start.kind)), (task, format!("b-{number}")));
                scene.complete(&start, 1).unwrap();
            }
            _ => scene.must_apply(TaskCommand::Cancel { task }),
        }
        assert!(scene.starts().is_empty());
    }
    restore(&mut scene);
    submit(&mut scene, "a", "a-0").unwrap();
}

#[test]
fn task_class_is_freed_when_its_last_task_ends() {
    let mut scene =
        scene_with_two_tenants(SchedulerLimits { lanes_max: 10_000, ..SchedulerLimits::default() });
    for number in 0..3_000_u32 {
        let value = number.to_le_bytes();
        let needs = vec![dunlin_tasks::Label { key: b"gpu", value: &value }];
        let tasks = vec![NewTask { needs, ..NewTask::new(b"k", b"") }];
        let CommandReply::Submitted { tasks, .. } =
            scene.apply(TaskCommand::Submit { tenant: b"a", tasks }).unwrap()
        else {
            panic!()
        };
        scene.must_apply(TaskCommand::Cancel { task: tasks[0].task });
    }
    restore(&mut scene);
}

#[test]
fn task_snapshots_do_not_contain_names_of_unused_kinds() {
    let mut scene = scene_with_two_tenants(SchedulerLimits {
        classes_max: 4,
        lanes_max: 4,
        pools_max: 2,
        ..SchedulerLimits::default()
    });
    let mut sizes = Vec::new();
    for number in 100..1_000 {
        let kind = format!("kind-{number}");
        let worker = scene.join_with(NewWorker {
            kinds: vec![kind.as_bytes()],
            credit: 1,
            ttl_ms: 10_000,
            ..NewWorker::default()
        });
        submit(&mut scene, "a", &kind).unwrap();
        let start = scene.only_start();
        assert_eq!(text(&start.kind), kind);
        scene.complete(&start, 1).unwrap();
        scene.must_apply(TaskCommand::Leave { worker });
        sizes.push(blocks(&scene.state).concat().len());
        if number % 100 == 0 {
            restore(&mut scene);
        }
    }
    let (early_bytes, late_bytes) = (sizes[20], sizes[sizes.len() - 1]);
    assert!(late_bytes <= early_bytes + 100, "{early_bytes} bytes of a snapshot, then {late_bytes}");
}

#[test]
fn one_tenant_may_use_only_a_part_of_the_worker_pools() {
    let mut scene = scene_with_two_tenants(SchedulerLimits { pools_max: 8, ..SchedulerLimits::default() });
    let mut join = |kind: &str, tenants: Vec<&[u8]>| {
        let kinds = vec![kind.as_bytes()];
        let worker = NewWorker { kinds, tenants, credit: 1, ttl_ms: 10_000, ..NewWorker::default() };
        match scene.apply(TaskCommand::Join { worker })? {
            CommandReply::Joined { worker } => Ok(worker),
            other => panic!("{other:?}"),
        }
    };
    let first = join("1", vec![b"a"]).unwrap();
    join("2", vec![b"a"]).unwrap();
    join("2", vec![b"a"]).unwrap();
    assert_eq!(limit_of(join("3", vec![b"a"])), Limit::PoolsOfTenant);
    assert_eq!(limit_of(join("3", vec![b"a", b"b"])), Limit::PoolsOfTenant);
    join("3", vec![b"b"]).unwrap();
    join("3", vec![]).unwrap();
    scene.must_apply(TaskCommand::Leave { worker: first });
    let kinds: Vec<&[u8]> = vec![b"3"];
    scene.join_with(NewWorker { kinds, tenants: vec![b"a"], ttl_ms: 10_000, ..NewWorker::default() });
}
