//! Tests of the routing of commands and queries to shards.

use super::*;

const SHARDS: u8 = 3;

fn shards() -> Vec<Scene> {
    let scene = |shard| Scene {
        state: SchedulerState::of_shard(SchedulerLimits::default(), shard),
        effects: TaskEffects::default(),
    };
    (0..SHARDS).map(scene).collect()
}

/// Sends a command to its shards, as a node does.
fn apply(shards: &mut [Scene], command: &TaskCommand<'_>) -> TaskCommandOutcome {
    let all = 0..shards.len();
    let at = match command.route(SHARDS) {
        ShardRoute::One(shard) => usize::from(shard)..usize::from(shard) + 1,
        ShardRoute::All => all,
    };
    let outcomes = shards[at].iter_mut().map(|shard| shard.state.apply(command, &mut shard.effects).into());
    TaskCommandOutcome::join(outcomes.collect()).unwrap()
}

fn answer(shards: &[Scene], query: &TaskQuery<'_>) -> TaskQueryResult {
    match query.route(SHARDS) {
        ShardRoute::One(shard) => {
            let found = shards[usize::from(shard)].state.answer(&query.clone().within(shard)).unwrap();
            found.from_within(shard, SHARDS, query)
        }
        ShardRoute::All => {
            TaskQueryResult::join(shards.iter().map(|shard| shard.state.answer(query).unwrap()).collect())
                .unwrap()
        }
    }
}

fn done(reply: CommandReply) -> TaskCommandOutcome {
    TaskCommandOutcome::Done { reply }
}

fn submit(shards: &mut [Scene], tenant: &str) -> u64 {
    let tenant = tenant.as_bytes();
    apply(shards, &TaskCommand::EnsureTenant { tenant });
    match apply(shards, &TaskCommand::Submit { tenant, tasks: vec![work()] }) {
        TaskCommandOutcome::Done { reply: CommandReply::Submitted { tasks, .. } } => tasks[0].task,
        other => panic!("{other:?}"),
    }
}

#[test]
fn task_is_found_by_id_and_by_tenant_in_any_shard() {
    let mut shards = shards();
    let names: Vec<String> = (0..30).map(|number| format!("tenant-{number}")).collect();
    let tasks: Vec<u64> = names.iter().map(|name| submit(&mut shards, name)).collect();
    assert!((0..SHARDS).all(|shard| tasks.iter().any(|task| shard_of_id(*task) == shard)));
    for (name, &task) in names.iter().zip(&tasks) {
        assert_eq!(shard_of_id(task), shard_of_tenant(name.as_bytes(), SHARDS));
        let TaskQueryResult::Task { task: view, .. } = answer(&shards, &TaskQuery::Get { task }) else {
            panic!()
        };
        assert_eq!(*view.tenant, *name.as_bytes());
        let TaskQueryResult::Tenants { tenants } =
            answer(&shards, &TaskQuery::Tenants { tenant: name.as_bytes() })
        else {
            panic!()
        };
        assert_eq!(tenants.len(), 1);
    }
    let TaskQueryResult::Tenants { tenants } = answer(&shards, &TaskQuery::Tenants { tenant: b"" }) else {
        panic!()
    };
    assert_eq!(tenants.len(), names.len());
    assert_eq!(apply(&mut shards, &TaskCommand::Cancel { task: tasks[7] }), done(CommandReply::Done));
    let unknown_task = 0x1_f000_0000;
    assert_eq!(
        apply(&mut shards, &TaskCommand::Cancel { task: unknown_task }),
        TaskCommandOutcome::Refused { refusal: TaskRefusal::NoTask { task: unknown_task } }
    );
}

#[test]
fn paged_task_list_contains_each_task_of_all_shards_once() {
    let mut shards = shards();
    let mut submitted: Vec<u64> =
        (0..57).map(|number| submit(&mut shards, &format!("t-{}", number % 19))).collect();
    let (mut listed, mut from, mut listed_of_tenant) = (Vec::new(), Some(0), 0);
    while let Some(at) = from {
        let query = TaskQuery::List { filter: ListFilter::default(), from: at, limit: 5, whole: false };
        let TaskQueryResult::Tasks { tasks, next, .. } = answer(&shards, &query) else { panic!() };
        listed.extend(tasks.iter().map(|task| task.task));
        from = next;
    }
    let mut from = Some(0);
    while let Some(at) = from {
        let filter = ListFilter { tenant: b"t-3", ..ListFilter::default() };
        let query = TaskQuery::List { filter, from: at, limit: 1, whole: false };
        let TaskQueryResult::Tasks { tasks, next, .. } = answer(&shards, &query) else { panic!() };
        listed_of_tenant += tasks.len();
        from = next;
    }
    submitted.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, submitted);
    assert_eq!(listed_of_tenant, 3);
    let beyond = TaskQuery::List { filter: ListFilter::default(), from: 9 << 28, limit: 5, whole: false };
    assert_eq!(beyond.route(SHARDS), ShardRoute::One(9), "no such shard: the list is over");
}

#[test]
fn worker_missing_from_one_shard_is_reported_as_gone() {
    let mut shards = shards();
    let new = || NewWorker { kinds: vec![b"work"], ttl_ms: 10_000, ..NewWorker::default() };
    let TaskCommandOutcome::Done { reply: CommandReply::Joined { worker: id } } =
        apply(&mut shards, &TaskCommand::Join { worker: new() })
    else {
        panic!()
    };
    shards[1..].iter_mut().for_each(|shard| shard.must_apply(TaskCommand::Enlist { id, worker: new() }));
    let renew = TaskCommand::Renew { workers: vec![id] };
    assert_eq!(apply(&mut shards, &renew), done(CommandReply::Renewed { gone: vec![] }));
    shards[2].must_apply(TaskCommand::Leave { worker: id });
    assert_eq!(apply(&mut shards, &renew), done(CommandReply::Renewed { gone: vec![id] }));
    assert_eq!(apply(&mut shards, &TaskCommand::Drain { worker: id }), done(CommandReply::Done));
    assert_eq!(apply(&mut shards, &TaskCommand::Leave { worker: id }), done(CommandReply::Done));
    assert!((0..3).all(|shard| shards[shard].state.workers().next().is_none()));
}
