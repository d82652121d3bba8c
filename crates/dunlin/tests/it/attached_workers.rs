//! Tests of workers that attach to a node over the same connection.

use dunlin::scheduler::TaskCommand;
use dunlin::topic::Waiter;
use dunlin::{WorkerAttachment, WorkerOrderQueue, block_on};

use crate::node;

#[test]
fn connection_forgets_workers_that_left() {
    let node = node();
    let (tasks, queue) = (node.tasks().unwrap(), WorkerOrderQueue::new(Waiter::new(), 1));
    let kinds = vec![b"k".to_vec()];
    let attachment = WorkerAttachment { kinds, slots: 1, ttl_ms: 60_000, ..WorkerAttachment::default() };
    let attach = || block_on(tasks.attach(&attachment, &queue, drop)).unwrap();
    for _ in 0..3 {
        let worker = attach();
        assert_eq!(queue.worker_count(), 1);
        block_on(tasks.execute(&TaskCommand::Leave { worker })).unwrap();
    }
    let (first, second) = (attach(), attach());
    assert!(queue.worker_count() == 2 && queue.has_worker(first) && queue.has_worker(second));
}
