//! Tests of several shards. Each shard has its own tenants, but all shards share the same workers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use proptest::prelude::*;

use super::snapshots::blocks;
use super::*;

const WORKER_TTL_MS: u64 = 1 << 40;

fn new_worker(credit: u32) -> NewWorker<'static> {
    NewWorker { kinds: vec![b"work"], credit, ttl_ms: 10_000, ..NewWorker::default() }
}

fn of_shard(shard: u8) -> Scene {
    let mut scene = Scene {
        state: SchedulerState::of_shard(SchedulerLimits::default(), shard),
        effects: TaskEffects::default(),
    };
    scene.set_tenant(TenantSettings::new(b"a"));
    scene
}

fn restored_in(shard: u8, state: &SchedulerState) -> Result<SchedulerState, TaskDecodeError> {
    let mut restore = StateRestore::of_shard(shard);
    blocks(state).iter().try_for_each(|block| restore.read_block(block))?;
    restore.finish()
}

#[test]
fn task_ids_contain_their_shard_and_default_to_shard_zero() {
    let ids = [0, 1, 15].map(|shard| of_shard(shard).submit_plain());
    assert_eq!(ids, [0x1_0000_0000, 0x1_1000_0000, 0x1_f000_0000]);
    assert_eq!(ids.map(shard_of_id), [0, 1, 15]);
    assert_eq!(Scene::new().submit_plain(), ids[0]);
}

#[test]
fn task_cannot_depend_on_a_task_of_another_shard() {
    let (mut first, mut second) = (of_shard(0), of_shard(1));
    let (task_elsewhere, own_task) = (first.submit_plain(), second.submit_plain());
    assert_eq!(
        second.apply(TaskCommand::Cancel { task: task_elsewhere }),
        Err(TaskRefusal::NoTask { task: task_elsewhere })
    );
    let after = |task| NewTask { after: vec![TaskDependency::Task { task }], ..work() };
    let submit = |task| TaskCommand::Submit { tenant: b"a", tasks: vec![after(task)] };
    let refused = TaskRefusal::DependencyElsewhere { index: 0, task: task_elsewhere };
    assert_eq!(second.apply(submit(task_elsewhere)), Err(refused));
    assert!(second.apply(submit(own_task)).is_ok());
}

#[test]
fn worker_has_one_id_in_all_shards() {
    let (mut home, mut other) = (of_shard(0), of_shard(2));
    let worker = home.join(1);
    let enlist = || TaskCommand::Enlist { id: worker, worker: new_worker(1) };
    assert_eq!(other.apply(enlist()), Ok(CommandReply::Joined { worker }));
    let task = other.submit_plain();
    let start = other.only_start();
    assert_eq!((start.worker, start.task), (worker, task));
    other.state = restored_in(2, &other.state).unwrap();
    assert_eq!(other.state.held(worker).unwrap().starts, std::slice::from_ref(&start));
    other.must_apply(TaskCommand::Drain { worker });
    other.complete(&start, 1_000).unwrap();
    assert_eq!(other.effects.orders, [WorkerOrder::Drained { worker }]);
    // The shard already knows the worker, so the command renews the worker's lease.
    other.advance(9_000);
    assert_eq!(other.apply(enlist()), Ok(CommandReply::Joined { worker }));
    other.advance(18_000);
    assert_eq!(
        other.apply(TaskCommand::Renew { workers: vec![worker] }),
        Ok(CommandReply::Renewed { gone: vec![] })
    );
    other.advance(40_000);
    assert_eq!(
        other.apply(TaskCommand::Renew { workers: vec![worker] }),
        Ok(CommandReply::Renewed { gone: vec![worker] })
    );
    assert_eq!(
        home.apply(TaskCommand::Enlist { id: worker + 1, worker: new_worker(1) }),
        Err(TaskRefusal::NoWorker { worker: worker + 1 })
    );
}

#[test]
fn snapshot_is_restored_only_by_its_own_shard() {
    let mut scene = of_shard(3);
    scene.must_apply(TaskCommand::Enlist { id: 0x1_0000_0000, worker: new_worker(2) });
    let tasks: Vec<u64> = (0..5).map(|_| scene.submit_plain()).collect();
    let restored_state = restored_in(3, &scene.state).unwrap();
    assert_eq!(blocks(&restored_state), blocks(&scene.state));
    assert!(tasks.iter().all(|task| restored_state.get(*task).is_ok()));
    assert!(restored_in(0, &scene.state).is_err());
    let mut home = of_shard(0);
    home.join(1);
    assert!(restored_in(3, &home.state).is_err());
}

#[test]
fn worker_from_another_shard_keeps_its_tenant_restriction() {
    let labels = vec![Label { key: b"gpu", value: b"a100" }];
    let worker = NewWorker { labels, tenants: vec![b"a"], ..new_worker(1) };
    let command = TaskCommand::Enlist { id: 0x1_0000_0000, worker };
    let mut bytes = Vec::new();
    command.encode(&mut bytes);
    assert_eq!(TaskCommand::decode(&bytes).as_ref(), Ok(&command));
    let mut scene = of_shard(1);
    scene.set_tenant(TenantSettings::new(b"b"));
    scene.must_apply(command);
    scene.submit_all("b", vec![work()]);
    assert_eq!(scene.starts(), [], "the worker serves other tenants");
    let task = scene.submit_plain();
    assert_eq!(scene.only_start().task, task);
}

#[test]
fn shard_gets_no_slots_of_workers_that_refuse_its_tenants() {
    let (mut home, mut other) = (of_shard(0), of_shard(1));
    other.set_tenant(TenantSettings::new(b"b"));
    let new = || NewWorker { tenants: vec![b"a"], ..new_worker(0) };
    let worker = home.join_with(new());
    other.must_apply(TaskCommand::Enlist { id: worker, worker: new() });
    other.submit_all("b", vec![work(); 100]);
    home.submit_all("a", vec![work(); 100]);
    let mut allocator = SlotAllocator::default();
    allocator.set_worker(worker, 6, 0);
    let demands = [&home, &other].map(|scene| DemandSnapshot::new(&scene.state, &[worker]));
    assert_eq!(allocator.allocate(0, &demands), [vec![(worker, 6, 0)], vec![]]);
}

/// Several shards in simulated time. All workers are attached to one node, which allocates the workers' slots to the
/// shards. A task's payload states for how many ms the task runs.
struct Cluster {
    shards: Vec<Scene>,
    allocator: SlotAllocator,
    now_ms: u64,
    /// The end time, shard and id of each running task.
    running: BinaryHeap<Reverse<(u64, usize, u64)>>,
    starts: BTreeMap<u64, TaskStart>,
    /// The number of running tasks and the number of slots of each worker.
    load: BTreeMap<u64, (u32, u32)>,
    /// Worker time that each tenant has received, ms.
    received_ms: BTreeMap<String, u64>,
    /// A bit mask of the shards that ignore allocations.
    unreachable: u16,
}

impl Cluster {
    fn new(shards: u8, workers: u32, slots: u32, memory_bytes: u64) -> Cluster {
        let scene = |shard| Scene {
            state: SchedulerState::of_shard(SchedulerLimits::default(), shard),
            effects: TaskEffects::default(),
        };
        let mut shards: Vec<Scene> = (0..shards).map(scene).collect();
        let (mut allocator, mut load) = (SlotAllocator::default(), BTreeMap::new());
        for _ in 0..workers {
            let new = || NewWorker { ttl_ms: WORKER_TTL_MS, memory_bytes, ..new_worker(0) };
            let limits = SchedulerLimits { worker_ttl_ms_max: WORKER_TTL_MS, ..SchedulerLimits::default() };
            shards.iter_mut().for_each(|shard| shard.must_apply(TaskCommand::Limit { limits }));
            let id = shards[0].join_with(new());
            shards[1..]
                .iter_mut()
                .for_each(|shard| shard.must_apply(TaskCommand::Enlist { id, worker: new() }));
            allocator.set_worker(id, slots, 0);
            load.insert(id, (0, slots));
        }
        let (running, starts, received_ms) = Default::default();
        Cluster { shards, allocator, now_ms: 0, running, starts, load, received_ms, unreachable: 0 }
    }

    fn shard_of(&self, tenant: &str) -> usize {
        usize::from(shard_of_tenant(tenant.as_bytes(), self.shards.len() as u8))
    }

    fn set_tenant(&mut self, name: &str, weight: u32) {
        let shard = self.shard_of(name);
        self.shards[shard].set_tenant(TenantSettings { weight, ..TenantSettings::new(name.as_bytes()) });
    }

    fn submit(&mut self, tenant: &str, count: usize, run_ms: u64) {
        let (shard, payload) = (self.shard_of(tenant), run_ms.to_string());
        let task = NewTask::new(b"work", payload.as_bytes());
        self.shards[shard].submit_all(tenant, vec![task; count]);
    }

    fn demands(&self) -> Vec<DemandSnapshot> {
        let workers = self.allocator.workers();
        self.shards.iter().map(|shard| DemandSnapshot::new(&shard.state, &workers)).collect()
    }

    fn allocate_slots(&mut self) {
        let before = self.demands();
        for (shard, slots) in self.allocator.allocate(self.now_ms, &before).into_iter().enumerate() {
            if self.unreachable >> shard & 1 == 1 {
                continue;
            }
            for (worker, slots, ahead) in slots {
                self.shards[shard].must_apply(TaskCommand::Slots { worker, slots, ahead });
            }
        }
        let now = self.demands();
        self.allocator.update_pending(&before, &now);
    }

    /// Allocates slots every 5 ms until `until_ms`, and runs the tasks that workers receive.
    fn run(&mut self, until_ms: u64) {
        while self.now_ms < until_ms {
            if self.now_ms.is_multiple_of(5) {
                self.allocate_slots();
            }
            self.start_tasks();
            self.now_ms += 1;
            while let Some(&Reverse((ends_ms, shard, task))) = self.running.peek()
                && ends_ms <= self.now_ms
            {
                self.running.pop();
                let start = self.starts.remove(&task).unwrap();
                self.load.get_mut(&start.worker).unwrap().0 -= 1;
                let run_ms: u64 = text(&start.payload).parse().unwrap();
                *self.received_ms.entry(text(&start.tenant)).or_default() += run_ms;
                self.shards[shard].complete(&start, run_ms * 1_000).unwrap();
            }
            self.shards.iter_mut().for_each(|shard| shard.advance(self.now_ms));
        }
    }

    fn start_tasks(&mut self) {
        for at in 0..self.shards.len() {
            for start in self.shards[at].starts() {
                let run_ms: u64 = text(&start.payload).parse().unwrap();
                let (load, slots) = self.load.get_mut(&start.worker).unwrap();
                *load += 1;
                assert!(*load <= *slots, "{load} tasks in {slots} slots");
                self.running.push(Reverse((self.now_ms + run_ms, at, start.task)));
                self.starts.insert(start.task, start);
            }
            self.shards[at].effects.clear();
        }
    }

    fn slots_of(&self, shard: usize) -> u64 {
        self.shards[shard].state.workers().map(|worker| worker.held + worker.credit).sum()
    }
}

/// Runs several tenants of each weight that always have waiting tasks. Returns the fairness index of the worker time
/// that the tenants received.
fn fairness(shards: u8, workers: u32, slots: u32, run_ms: u64, ms: u64) -> f64 {
    let mut cluster = Cluster::new(shards, workers, slots, 0);
    let tenants: Vec<(String, u32)> = (0..24).map(|n| (format!("tenant-{n}"), 1 + n % 3)).collect();
    for (tenant, weight) in &tenants {
        cluster.set_tenant(tenant, *weight);
        for _ in 0..20 {
            cluster.submit(tenant, 1_000, run_ms);
        }
    }
    cluster.run(ms);
    let received: Vec<f64> = tenants.iter().map(|(tenant, _)| cluster.received_ms[tenant] as f64).collect();
    let weights: Vec<f64> = tenants.iter().map(|(_, weight)| f64::from(*weight)).collect();
    let least_ms = u64::from(workers * slots) * ms * 9 / 10;
    let all: f64 = received.iter().sum();
    assert!(all >= least_ms as f64, "slots stand idle: {all} ms of work, of {least_ms} at least");
    jain(&received, &vec![f64::MAX; received.len()], &weights)
}

#[test]
fn tenants_share_all_workers_fairly_over_all_shards() {
    for (shards, workers, slots) in [(2, 40, 1), (4, 40, 1), (4, 5, 8), (16, 40, 1)] {
        let jain = fairness(shards, workers, slots, 12, 12_000);
        assert!(jain >= 0.99, "{shards} shards, {workers} workers of {slots}: {jain}");
    }
}

#[test]
fn single_worker_with_one_slot_serves_all_shards_fairly() {
    let jain = fairness(4, 1, 1, 4, 120_000);
    assert!(jain >= 0.99, "{jain}");
}

#[test]
fn slots_move_within_110_ms_to_a_shard_with_new_demand() {
    let mut cluster = Cluster::new(2, 20, 1, 0);
    let tenants = ["acme", "tenant-1"];
    assert_ne!(cluster.shard_of(tenants[0]), cluster.shard_of(tenants[1]));
    tenants.iter().for_each(|tenant| cluster.set_tenant(tenant, 1));
    cluster.submit(tenants[0], 1_000, 10);
    cluster.submit(tenants[0], 1_000, 10);
    cluster.run(300);
    let [first, second] = tenants.map(|tenant| cluster.shard_of(tenant));
    assert_eq!((cluster.slots_of(first), cluster.slots_of(second)), (20, 0), "one has nothing to do");
    cluster.submit(tenants[1], 1_000, 10);
    cluster.run(300 + 110);
    assert_eq!((cluster.slots_of(first), cluster.slots_of(second)), (10, 10));
    // The slots move back when the tasks are done.
    cluster.run(2_000);
    assert_eq!(cluster.slots_of(first) + cluster.slots_of(second), 20);
}

#[test]
fn light_load_moves_no_slot_between_shards() {
    let mut cluster = Cluster::new(4, 8, 1, 0);
    let tenants = ["acme", "default", "tenant-2", "tenant-1"];
    tenants.iter().for_each(|tenant| cluster.set_tenant(tenant, 1));
    cluster.run(10);
    let slots: Vec<u64> = (0..4).map(|shard| cluster.slots_of(shard)).collect();
    assert_eq!(slots, [2; 4], "unused slots are shared evenly");
    for round in 1..50 {
        tenants.iter().for_each(|tenant| cluster.submit(tenant, 2, 5));
        cluster.run(10 + round * 20);
        assert!((0..4).all(|shard| cluster.slots_of(shard) == 2));
    }
    assert!(tenants.iter().all(|tenant| cluster.received_ms[*tenant] == 49 * 2 * 5));
}

#[test]
fn reattached_worker_has_the_slots_that_it_now_declares() {
    let mut cluster = Cluster::new(2, 1, 6, 0);
    let worker = cluster.allocator.workers()[0];
    let slots = |cluster: &Cluster| (0..2).map(|shard| cluster.slots_of(shard)).sum::<u64>();
    cluster.run(10);
    assert_eq!(slots(&cluster), 6);
    cluster.allocator.set_worker(worker, 4, 0);
    cluster.run(20);
    assert_eq!(slots(&cluster), 4);
    cluster.shards[0].must_apply(TaskCommand::Pull { worker, credit: 1 });
    for tenant in ["acme", "tenant-1"] {
        cluster.set_tenant(tenant, 1);
        cluster.submit(tenant, 1_000, 10);
    }
    cluster.load.insert(worker, (0, 5));
    cluster.run(1_000);
    assert_eq!(slots(&cluster), 5);
}

#[test]
fn worker_with_declared_memory_serves_shards_in_turn() {
    let mut cluster = Cluster::new(2, 1, 4, 1 << 30);
    let tenants = ["acme", "tenant-1"];
    tenants.iter().for_each(|tenant| cluster.set_tenant(tenant, 1));
    for tenant in tenants {
        (0..10).for_each(|_| cluster.submit(tenant, 1_000, 10));
    }
    for at in 1..=400 {
        cluster.run(at * 50);
        assert!((0..2).any(|shard| cluster.slots_of(shard) == 0));
    }
    let [first, second] = tenants.map(|tenant| cluster.received_ms[tenant] as f64);
    assert!((0.8..1.25).contains(&(first / second)), "{first} against {second}");
}

#[test]
fn query_results_of_all_shards_are_joined() {
    let (mut home, mut other) = (of_shard(0), of_shard(1));
    let [busy, idle] = [home.join(1), home.join(1)];
    for id in [busy, idle] {
        other.must_apply(TaskCommand::Enlist { id, worker: new_worker(1) });
    }
    other.set_tenant(TenantSettings::new(b"b"));
    other.submit_all("b", vec![work(); 2]);
    other.must_apply(TaskCommand::Slots { worker: idle, slots: 0, ahead: 0 });
    home.submit_plain();
    let ask = |query: TaskQuery<'_>| {
        let parts = [&home, &other].map(|shard| shard.state.answer(&query).unwrap());
        TaskQueryResult::join(parts.into()).unwrap()
    };
    let TaskQueryResult::Workers { workers } = ask(TaskQuery::Workers) else { panic!() };
    let held: Vec<(u64, u64)> = workers.iter().map(|worker| (worker.worker, worker.held)).collect();
    assert_eq!(held.iter().map(|(_, held)| held).sum::<u64>(), 3);
    assert_eq!(held.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [busy, idle]);
    let TaskQueryResult::Signals { signals } = ask(TaskQuery::Signals) else { panic!() };
    assert_eq!((signals.held, signals.workers, signals.startable), (3, 2, 0));
    assert_eq!(signals.idle, []);
    let TaskQueryResult::Tenants { tenants } = ask(TaskQuery::Tenants { tenant: b"" }) else { panic!() };
    assert_eq!(tenants.iter().map(|tenant| text(&tenant.name)).collect::<Vec<_>>(), ["a", "a", "b"]);
    let TaskQueryResult::Status { tasks, .. } = ask(TaskQuery::Status) else { panic!() };
    assert_eq!(tasks, 3);
    assert_eq!(TaskQueryResult::join(vec![]), None);
    let other = TaskQueryResult::Why { why: String::new() };
    assert_eq!(TaskQueryResult::join(vec![ask(TaskQuery::Workers), other]), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn unreachable_shards_neither_lose_nor_duplicate_slots(
        steps in prop::collection::vec((0..8u16, 0..6usize, 1..40usize, 1..80u64), 1..30),
    ) {
        const SLOTS: u64 = 4 * 3;
        let mut cluster = Cluster::new(3, 4, 3, 0);
        let tenants: Vec<String> = (0..6).map(|n| format!("tenant-{n}")).collect();
        tenants.iter().for_each(|tenant| cluster.set_tenant(tenant, 1));
        for (unreachable, tenant, tasks, ms) in steps {
            cluster.submit(&tenants[tenant], tasks, 1 + 7 * tenant as u64);
            cluster.unreachable = unreachable;
            // Each start asserts that no worker has more tasks than slots.
            cluster.run(cluster.now_ms + ms);
            let slots: u64 = (0..3).map(|shard| cluster.slots_of(shard)).sum();
            prop_assert!(slots <= SLOTS, "{slots} slots of {SLOTS}");
        }
        cluster.unreachable = 0;
        tenants.iter().for_each(|tenant| cluster.submit(tenant, 1_000, 10));
        cluster.run(cluster.now_ms + 400);
        prop_assert_eq!((0..3).map(|shard| cluster.slots_of(shard)).sum::<u64>(), SLOTS);
    }
}
