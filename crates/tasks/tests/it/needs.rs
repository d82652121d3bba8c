//! Tests of tasks that need labels, and of workers that have labels or serve only some tenants.

use super::*;

const A100: Label<'static> = Label { key: b"gpu", value: b"a100" };
const EU: Label<'static> = Label { key: b"zone", value: b"eu" };

fn task_needing(needs: &[Label<'static>]) -> NewTask<'static> {
    NewTask { needs: needs.to_vec(), ..work() }
}

fn worker_with_labels(labels: &[Label<'static>]) -> NewWorker<'static> {
    let labels = labels.to_vec();
    NewWorker { kinds: vec![b"work"], credit: 1, ttl_ms: 600_000, labels, ..NewWorker::default() }
}

fn worker_of_tenants(tenants: &[&'static [u8]]) -> NewWorker<'static> {
    NewWorker { tenants: tenants.to_vec(), ..worker_with_labels(&[]) }
}

fn tenants(names: &[&str]) -> Scene {
    let mut scene = Scene::default();
    names.iter().for_each(|name| scene.set_tenant(TenantSettings::new(name.as_bytes())));
    scene
}

#[test]
fn task_runs_only_on_a_worker_with_all_its_needed_labels() {
    let mut scene = Scene::new();
    let (both, gpu, none) = (
        scene.submit(task_needing(&[EU, A100])),
        scene.submit(task_needing(&[A100, A100])),
        scene.submit_plain(),
    );
    let h100 = Label { value: b"h100", ..A100 };
    scene.join_with(worker_with_labels(&[h100, EU]));
    assert_eq!(scene.only_start().task, none, "the others need what it has not");
    let worker = scene.join_with(worker_with_labels(&[A100]));
    let start = scene.only_start();
    assert_eq!((start.worker, start.task), (worker, gpu));
    let worker = scene.join_with(worker_with_labels(&[A100, EU, h100]));
    let start = scene.only_start();
    assert_eq!((start.worker, start.task), (worker, both));
    let needs: Vec<_> = scene.state.get(both).unwrap().needs;
    let texts: Vec<_> = needs.iter().map(|need| (text(&need.key), text(&need.value))).collect();
    assert_eq!(texts, [("gpu".to_owned(), "a100".to_owned()), ("zone".to_owned(), "eu".to_owned())]);
}

#[test]
fn needed_labels_do_not_change_the_priority_order_of_a_tenant() {
    let mut scene = Scene::new();
    let labels = [&[A100][..], &[], &[EU], &[A100, EU]];
    let at = |at: usize| NewTask { priority: (at % 3) as u8, ..task_needing(labels[at % 4]) };
    let ids = scene.submit_all("a", (0..24).map(at).collect());
    let mut wanted: Vec<_> = ids.iter().enumerate().map(|(at, id)| (2 - at % 3, at, *id)).collect();
    wanted.sort_unstable();
    scene.join_with(worker_with_labels(&[A100, EU]));
    let mut started = Vec::new();
    for _ in &ids {
        let start = scene.only_start();
        started.push(start.task);
        scene.complete(&start, 1_000).unwrap();
    }
    let priority = |task: &u64| scene.state.get(*task).unwrap().priority;
    assert_eq!(
        started.iter().map(priority).collect::<Vec<_>>(),
        wanted.iter().map(|(.., id)| priority(id)).collect::<Vec<_>>()
    );
    assert_eq!(scene.state.tenants().next().unwrap().account.completed, 24);
}

#[test]
fn labels_of_tasks_do_not_affect_the_shares_of_tenants() {
    let mut scene = tenants(&["a", "b"]);
    scene.submit_all("a", vec![task_needing(&[A100]); 100]);
    scene.submit_all("b", vec![task_needing(&[EU]); 100]);
    scene.join_with(worker_with_labels(&[A100, EU]));
    let mut started = [0, 0];
    for _ in 0..60 {
        let start = scene.only_start();
        started[usize::from(*start.tenant == *b"b")] += 1;
        scene.complete(&start, 1_000).unwrap();
    }
    assert_eq!(started, [30, 30]);
}

#[test]
fn least_specialised_worker_is_chosen_first() {
    let mut scene = tenants(&["a", "b"]);
    let gpu = scene.join_with(worker_with_labels(&[A100]));
    let plain = scene.join_with(worker_with_labels(&[]));
    let own = scene.join_with(worker_of_tenants(&[b"a"]));
    let mut holders = Vec::new();
    for _ in 0..3 {
        scene.submit_all("a", vec![work()]);
        holders.push(scene.only_start().worker);
    }
    assert_eq!(holders, [own, plain, gpu]);
}

#[test]
fn worker_bound_to_a_tenant_takes_no_task_of_another_tenant() {
    let mut scene = tenants(&["a", "b", "c"]);
    for name in ["c", "b", "a"] {
        scene.submit_all(name, vec![work(); 3]);
    }
    let worker = NewWorker { credit: 10, ..worker_of_tenants(&[b"a", b"b", b"later"]) };
    let worker = scene.join_with(worker);
    let starts = scene.starts();
    let of = |name: &[u8]| starts.iter().filter(|start| *start.tenant == *name).count();
    assert_eq!([of(b"a"), of(b"b"), of(b"c")], [3, 3, 0]);
    let left = scene.submit_all("c", vec![work()])[0];
    assert!(scene.starts().is_empty());
    assert_eq!(
        scene.why(left),
        "waiting: all workers that could run it (1) serve only other tenants; tasks ahead of it: 3"
    );
    // This tenant is created after the worker has joined.
    scene.set_tenant(TenantSettings::new(b"later"));
    scene.submit_all("later", vec![work()]);
    assert_eq!(scene.only_start().worker, worker);
    let view = scene.state.workers().next().unwrap();
    assert_eq!(view.tenants.iter().map(|name| text(name)).collect::<Vec<_>>(), ["a", "b", "later"]);
}

#[test]
fn worker_bound_to_a_tenant_prefetches_only_tasks_of_the_tenant() {
    let mut scene = tenants(&["a", "b"]);
    scene.submit_all("b", vec![work(); 50]);
    scene.submit_all("a", vec![work(); 2]);
    let worker = scene.join_with(NewWorker { credit: 0, ..worker_of_tenants(&[b"a"]) });
    scene.must_apply(TaskCommand::Slots { worker, slots: 1, ahead: 3 });
    assert_eq!(scene.starts().len(), 1, "one more task waits, and one worker exists");
    scene.submit_all("a", vec![work(); 4]);
    scene.must_apply(TaskCommand::Slots { worker, slots: 1, ahead: 3 });
    let starts = scene.starts();
    assert_eq!(starts.len(), 3);
    assert!(starts.iter().all(|start| *start.tenant == *b"a"));
}

#[test]
fn task_explanation_names_the_label_that_no_worker_has() {
    let mut scene = Scene::new();
    let gpu = scene.submit(task_needing(&[A100]));
    assert_eq!(scene.why(gpu), "waiting: no worker serves kind work in queue default; tasks ahead of it: 0");
    scene.join_with(worker_with_labels(&[]));
    scene.join_with(worker_with_labels(&[]));
    scene.join_with(worker_with_labels(&[EU]));
    assert_eq!(
        scene.why(gpu),
        "waiting: no worker has label gpu=a100 (3 workers, 0 fit); tasks ahead of it: 0"
    );
    let both = scene.submit(task_needing(&[A100, EU]));
    assert_eq!(
        scene.why(both),
        "waiting: no worker has label gpu=a100 (3 workers, 0 fit); tasks ahead of it: 0"
    );
    scene.join_with(NewWorker { credit: 0, ..worker_with_labels(&[A100]) });
    assert_eq!(
        scene.why(both),
        "waiting: no worker has all of gpu=a100, zone=eu (4 workers, 0 fit); tasks ahead of it: 0"
    );
    let other = Label { key: b"disk", value: b"ssd" };
    let neither = scene.submit(task_needing(&[other, Label { value: b"us", ..EU }]));
    assert_eq!(
        scene.why(neither),
        "waiting: no worker has labels disk=ssd, zone=us (4 workers, 0 fit); tasks ahead of it: 0"
    );
    let large = scene.submit(NewTask { cpu_milli: 9_000, kind: b"large", ..work() });
    let worker = NewWorker { cpu_milli: 4_000, kinds: vec![b"large"], ..worker_with_labels(&[]) };
    scene.join_with(worker);
    assert_eq!(
        scene.why(large),
        "waiting: no worker is large enough for 9000 mCPU and 0 bytes (1 workers, 0 fit); tasks ahead of it: 0"
    );
}

#[test]
fn autoscaler_ignores_tasks_that_no_present_worker_can_run() {
    let mut scene = tenants(&["a", "b"]);
    scene.submit_all("a", vec![task_needing(&[A100]); 3]);
    scene.submit_all("a", vec![work(); 2]);
    scene.submit_all("b", vec![NewTask { memory_bytes: 1_000, ..work() }; 4]);
    assert_eq!(scene.state.signals().startable, 9, "without workers all tasks count");
    let busy = |worker: NewWorker<'static>| NewWorker { credit: 0, ..worker };
    scene.join_with(busy(NewWorker { memory_bytes: 999, ..worker_with_labels(&[EU]) }));
    assert_eq!(scene.state.signals().startable, 2);
    scene.join_with(busy(worker_with_labels(&[A100])));
    assert_eq!(scene.state.signals().startable, 9);
    let shapes: Vec<WorkerShape> = scene.state.workers().map(|view| WorkerShape::from(&view)).collect();
    assert_eq!(scene.state.signals_for(&shapes[..1]).startable, 2);
    assert_eq!(scene.state.signals_for(&shapes[1..]).startable, 9);
    let own = WorkerShape { tenants: vec![b"b"[..].into()], ..shapes[1].clone() };
    let kinds = &scene.state.signals_for(&[own]).kinds;
    assert_eq!((text(&kinds[0].kind), kinds[0].startable), ("work".to_owned(), 4));
    let other = WorkerShape { queues: vec![b"nobody's"[..].into()], ..shapes[1].clone() };
    assert_eq!(scene.state.signals_for(&[other]).startable, 0);
}

#[test]
fn number_of_label_sets_is_limited_per_tenant_and_in_total() {
    let mut scene = tenants(&["a"]);
    let values: Vec<String> = (0..2_000).map(|at| at.to_string()).collect();
    let task =
        |at: usize| NewTask { needs: vec![Label { key: b"host", value: values[at].as_bytes() }], ..work() };
    let of_tenant = SchedulerLimits::DEMANDS_OF_TENANT_MAX as usize;
    scene.submit_all("a", (0..of_tenant).map(task).collect());
    let refused = scene.apply(TaskCommand::Submit { tenant: b"a", tasks: vec![work(), task(of_tenant)] });
    let count = of_tenant as u64 + 1;
    let limit = Limit::DemandsOfTenant;
    assert_eq!(refused, Err(TaskRefusal::TooMany { limit, count, count_max: count - 1 }));
    scene.submit_all("a", vec![task(3), work()]);
    let all = SchedulerLimits::DEMANDS_MAX as usize;
    for from in (of_tenant..all).step_by(of_tenant) {
        let tenant = format!("t{from}");
        scene.set_tenant(TenantSettings::new(tenant.as_bytes()));
        scene.submit_all(&tenant, (from..from + of_tenant).map(task).collect());
    }
    scene.set_tenant(TenantSettings::new(b"last"));
    let refused = scene.apply(TaskCommand::Submit { tenant: b"last", tasks: vec![task(all)] });
    let (count, limit) = (all as u64 + 1, Limit::Demands);
    assert_eq!(refused, Err(TaskRefusal::TooMany { limit, count, count_max: count - 1 }));
    // Even at the limit, a task may need labels that other tasks need already.
    scene.submit_all("last", vec![task(0)]);
}

#[test]
fn limit_on_distinct_label_sets_ignores_departed_workers() {
    let mut scene = Scene::with(SchedulerLimits { pools_max: 3, ..SchedulerLimits::default() });
    scene.set_tenant(TenantSettings::new(b"a"));
    let unlabelled = scene.join_with(worker_with_labels(&[]));
    let mut others = Vec::new();
    for at in 0..20 {
        let host = at.to_string();
        let labels = vec![Label { key: b"host", value: host.as_bytes() }];
        let worker =
            NewWorker { kinds: vec![b"work"], credit: 1, ttl_ms: 9_000, labels, ..NewWorker::default() };
        others.push(scene.join_with(worker));
        if others.len() > 1 {
            scene.must_apply(TaskCommand::Leave { worker: others.remove(0) });
        }
    }
    let task = |host: &'static [u8]| task_needing(&[Label { key: b"host", value: host }]);
    scene.submit(task(b"3"));
    assert!(scene.starts().is_empty(), "the worker with that label is gone");
    scene.submit(task(b"19"));
    assert_eq!(scene.only_start().worker, others[0]);
    scene.submit_plain();
    assert_eq!(scene.only_start().worker, unlabelled);
    let third = scene.join_with(worker_with_labels(&[A100]));
    let refused = scene.apply(TaskCommand::Join { worker: worker_with_labels(&[EU]) });
    assert_eq!(refused, Err(TaskRefusal::TooMany { limit: Limit::Pools, count: 4, count_max: 3 }));
    scene.must_apply(TaskCommand::Leave { worker: third });
    scene.join_with(worker_with_labels(&[EU]));
    let restored_state = snapshots::restored(&snapshots::blocks(&scene.state)).unwrap();
    assert_eq!(snapshots::blocks(&restored_state), snapshots::blocks(&scene.state));
}

#[test]
fn schedule_submits_tasks_with_needed_labels() {
    let mut scene = Scene::new();
    scene.must_apply(TaskCommand::Schedule {
        tenant: b"a",
        name: b"n",
        cron: b"* * * * *",
        task: task_needing(&[A100]),
    });
    scene.join_with(worker_with_labels(&[]));
    scene.advance(120_000);
    assert!(scene.starts().is_empty());
    let worker = scene.join_with(worker_with_labels(&[A100]));
    assert_eq!(scene.only_start().worker, worker);
}

#[test]
fn empty_labels_and_more_than_64_labels_are_refused() {
    let mut scene = Scene::new();
    let nameless = Label { key: b"", value: b"x" };
    let submit = |task| TaskCommand::Submit { tenant: b"a", tasks: vec![task] };
    assert_eq!(scene.apply(submit(task_needing(&[nameless]))), Err(TaskRefusal::EmptyName));
    assert_eq!(
        scene.apply(TaskCommand::Join { worker: worker_with_labels(&[nameless]) }),
        Err(TaskRefusal::EmptyName)
    );
    assert_eq!(
        scene.apply(TaskCommand::Join { worker: worker_of_tenants(&[b""]) }),
        Err(TaskRefusal::EmptyName)
    );
    let many = vec![A100; 65];
    let refusal = TaskRefusal::TooMany { limit: Limit::Labels, count: 65, count_max: 64 };
    assert_eq!(scene.apply(submit(task_needing(&many))), Err(refusal));
    assert_eq!(scene.apply(TaskCommand::Join { worker: worker_with_labels(&many) }), Err(refusal));
}
