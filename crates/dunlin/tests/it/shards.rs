//! Tests of tasks on a node with several shards.

use std::path::Path;
use std::sync::Arc;

use dunlin::journal::{Disk, FakeDisk};
use dunlin::scheduler::{
    CommandReply, NewTask, TaskCommand, TaskQuery, TaskQueryResult, WorkerOrder, shard_of_id,
};
use dunlin::topic::Waiter;
use dunlin::{
    Config, Node, NodeLimits, StorageError, TasksLimits, WorkerAttachment, WorkerOrderQueue, block_on,
};

fn open(disk: &FakeDisk, shards: u8) -> Result<Node, StorageError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let tasks = TasksLimits { shards, ..TasksLimits::default() };
    let config = Config { limits: NodeLimits { tasks, ..NodeLimits::default() }, ..Config::default() };
    Node::open(config, disk, Path::new("/data")).map(|(node, _)| node)
}

fn submit(node: &Node, tenant: &str) -> u64 {
    let (tasks, tenant) = (node.tasks().unwrap(), tenant.as_bytes());
    block_on(tasks.execute(&TaskCommand::EnsureTenant { tenant })).unwrap();
    match block_on(tasks.execute(&TaskCommand::Submit { tenant, tasks: vec![NewTask::new(b"k", b"x")] })) {
        Ok(CommandReply::Submitted { tasks, .. }) => tasks[0].task,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tasks_survive_a_restart_only_with_the_same_shard_count() {
    let disk = FakeDisk::new(1);
    let node = open(&disk, 3).unwrap();
    let submitted: Vec<u64> = (0..9).map(|number| submit(&node, &format!("tenant-{number}"))).collect();
    assert!((0..3).all(|shard| submitted.iter().any(|task| shard_of_id(*task) == shard)));
    node.stop();
    drop(node);

    for shards in [1, 2, 4] {
        let refused = open(&disk, shards).unwrap_err().to_string();
        assert!(refused.contains(&format!("tasks.shards = {shards}")), "{refused}");
        assert!(refused.contains("has 3 shards of tasks: set tasks.shards = 3"), "{refused}");
    }
    assert!(open(&FakeDisk::new(2), 17).unwrap_err().to_string().contains("expected 1 to 16"));

    let node = open(&disk, 3).unwrap();
    for task in submitted {
        assert!(matches!(
            node.tasks().unwrap().answer(&TaskQuery::Get { task }),
            Ok(TaskQueryResult::Task { .. })
        ));
    }
}

/// In this test, a draining worker's connection ends before the worker has received the message that it is drained.
#[test]
fn worker_that_attaches_again_learns_that_it_is_drained() {
    for shards in [1, 3] {
        let node = open(&FakeDisk::new(1), shards).unwrap();
        let tasks = node.tasks().unwrap();
        let kinds = vec![b"k".to_vec()];
        let mut attachment =
            WorkerAttachment { kinds, slots: 1, ttl_ms: 60_000, ..WorkerAttachment::default() };
        let orders_of_connection = |attachment: &mut WorkerAttachment| {
            let (queue, mut life) = (WorkerOrderQueue::new(Waiter::new(), 1), 0);
            let attached = block_on(tasks.attach(attachment, &queue, |attached| life = attached.epoch));
            (attachment.worker, attachment.life) = (attached.unwrap(), life);
            let mut orders = Vec::new();
            queue.take(|order| {
                orders.push(order.clone());
                true
            });
            orders
        };
        assert!(orders_of_connection(&mut attachment).is_empty());
        let worker = attachment.worker;
        block_on(tasks.execute(&TaskCommand::Drain { worker })).unwrap();
        assert_eq!(orders_of_connection(&mut attachment), [WorkerOrder::Drained { worker }]);
    }
}
