//! Hands orders to the connections of this node's workers. The state machine of every node determines the orders of all
//! workers.
//!
//! Invariants:
//! - A worker has one connection: the latest one. Orders of all shards go to this connection.
//! - A connection is woken if its queue was empty. One wake-up covers all orders of a log entry and follows the
//!   responses to that entry. A worker that completes a task usually receives its next task by the same entry. The
//!   worker's connection then writes the response and the order together.
//!
//! Limits: a queue is bounded by its workers' credit. Payloads are shared with the state.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dunlin_tasks::{HeldTasks, SchedulerState, TaskStart, WorkerOrder};
use dunlin_topic::Waiter;
use tokio::runtime::Handle;

/// Ended connections are removed when the number of workers is higher than twice the number after the last removal,
/// plus this number.
const SWEEP_MIN: usize = 64;

/// A queue of orders that one connection carries to its workers. After the queue is dropped, its workers receive no
/// orders, but their tasks stay assigned while their leases last.
#[derive(Debug)]
pub struct WorkerOrderQueue {
    orders: Mutex<VecDeque<WorkerOrder>>,
    /// The queue's workers. For each, the end of its lease when it last sent a message through this connection.
    workers: Mutex<HashMap<u64, u64>>,
    waiter: Arc<Waiter>,
    token: u32,
}

impl WorkerOrderQueue {
    /// Creates an empty queue, which notifies `waiter` with `token` when orders arrive.
    pub fn new(waiter: Arc<Waiter>, token: u32) -> Arc<WorkerOrderQueue> {
        Arc::new(WorkerOrderQueue { orders: Mutex::default(), workers: Mutex::default(), waiter, token })
    }

    /// Passes orders to `each`, oldest first, until `each` returns `false` because it has no room for another.
    pub fn take(&self, mut each: impl FnMut(&WorkerOrder) -> bool) {
        let mut orders = lock(&self.orders);
        while let Some(first) = orders.front() {
            let has_room = each(first);
            orders.pop_front();
            if !has_room {
                return;
            }
        }
    }

    /// Whether the queue has no orders.
    pub fn is_empty(&self) -> bool {
        lock(&self.orders).is_empty()
    }

    /// Adds orders. Returns whether the queue was empty before and has orders now.
    fn push(&self, new_orders: impl Iterator<Item = WorkerOrder>) -> bool {
        let mut orders = lock(&self.orders);
        let was_empty = orders.is_empty();
        orders.extend(new_orders);
        was_empty && !orders.is_empty()
    }

    /// Adds a worker that attached through this connection.
    pub(super) fn add_worker(&self, worker: u64, state: &SchedulerState) {
        if let Ok(end_ms) = state.lease_end_ms(worker) {
            lock(&self.workers).insert(worker, end_ms);
        }
    }

    /// Updates the leases of the queue's workers. Removes unknown workers.
    pub(super) fn refresh_leases(&self, state: &SchedulerState) {
        lock(&self.workers).retain(|worker, end_ms| {
            let now = state.lease_end_ms(*worker);
            now.map(|now_ms| *end_ms = now_ms).is_ok()
        });
    }

    /// Removes workers that have left or whose leases have ended.
    pub(super) fn remove_ended(&self, state: &SchedulerState) {
        lock(&self.workers).retain(|worker, _| state.lease_end_ms(*worker).is_ok());
    }

    /// Returns those workers of the queue that have sent nothing through any connection since the last call of
    /// `refresh_leases`. Their leases have not changed since then.
    pub(super) fn silent_workers(&self, state: &SchedulerState) -> Vec<u64> {
        let workers = lock(&self.workers);
        let silent = workers.iter().filter(|(worker, end_ms)| state.lease_end_ms(**worker) == Ok(**end_ms));
        silent.map(|(worker, _)| *worker).collect()
    }

    /// Whether a worker has attached through this connection.
    pub fn has_workers(&self) -> bool {
        !lock(&self.workers).is_empty()
    }

    /// Whether this worker has attached through this connection and is not known to have ended.
    pub fn has_worker(&self, worker: u64) -> bool {
        lock(&self.workers).contains_key(&worker)
    }

    /// Number of workers that have attached through this connection. Workers that have ended are removed when the next
    /// worker attaches, or when a worker of this connection sends a heartbeat.
    pub fn worker_count(&self) -> usize {
        lock(&self.workers).len()
    }

    fn remove_worker(&self, worker: u64) {
        lock(&self.orders).retain(|order| order.worker() != worker);
        lock(&self.workers).remove(&worker);
    }

    fn wake(&self) {
        self.waiter.notify(self.token);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node's order queues, by the workers that they serve.
#[derive(Debug)]
pub(super) struct Dispatcher {
    attached: Mutex<AttachedWorkers>,
    shards: u8,
}

#[derive(Debug, Default)]
struct AttachedWorkers {
    by_worker: HashMap<u64, WorkerConnection>,
    /// The number of workers after the last sweep.
    workers_after_sweep: usize,
}

/// The queue of a worker's connection, and the shards that have no more tasks for the worker.
#[derive(Debug, Default)]
struct WorkerConnection {
    order_queue: Weak<WorkerOrderQueue>,
    /// A bit for each shard that has no more tasks for the draining worker.
    drained: u16,
}

impl WorkerConnection {
    /// Whether to pass on a shard's order. A worker receives `Drained` only when all shards have reported it.
    fn forwards(&mut self, shard: u8, shards: u8, order: &WorkerOrder) -> bool {
        if let WorkerOrder::Drained { .. } = order {
            self.drained |= 1 << shard;
            return self.drained.count_ones() == u32::from(shards);
        }
        true
    }
}

impl Dispatcher {
    pub(super) fn new(shards: u8) -> Dispatcher {
        Dispatcher { attached: Mutex::default(), shards }
    }

    /// Whether the worker is attached to this node.
    pub(super) fn has(&self, worker: u64) -> bool {
        lock(&self.attached)
            .by_worker
            .get(&worker)
            .is_some_and(|connection| connection.order_queue.strong_count() > 0)
    }

    /// From now on, passes the worker's orders to this queue.
    pub(super) fn attach(&self, worker: u64, order_queue: &Arc<WorkerOrderQueue>) {
        let mut attached = lock(&self.attached);
        if attached.by_worker.len() > 2 * attached.workers_after_sweep + SWEEP_MIN {
            attached.by_worker.retain(|_, connection| connection.order_queue.strong_count() > 0);
            attached.workers_after_sweep = attached.by_worker.len();
        }
        let connection = WorkerConnection { order_queue: Arc::downgrade(order_queue), drained: 0 };
        let previous = attached.by_worker.insert(worker, connection);
        drop(attached);
        if let Some(previous) = previous.and_then(|previous| previous.order_queue.upgrade()) {
            previous.remove_worker(worker);
        }
    }

    /// Passes a shard's orders to the workers of this node, and wakes their connections soon afterwards.
    pub(super) fn dispatch(&self, shard: u8, orders: impl Iterator<Item = WorkerOrder>) {
        let mut attached = lock(&self.attached);
        let mut woken: Vec<Arc<WorkerOrderQueue>> = Vec::new();
        // Consecutive orders for the same worker are added to its queue together.
        let mut orders = orders.peekable();
        while let Some(worker) = orders.peek().map(WorkerOrder::worker) {
            let worker_orders = std::iter::from_fn(|| orders.next_if(|order| order.worker() == worker));
            let connection = attached.by_worker.get_mut(&worker);
            let Some((order_queue, connection)) =
                connection.and_then(|connection| Some((connection.order_queue.upgrade()?, connection)))
            else {
                worker_orders.for_each(drop);
                continue;
            };
            if order_queue.push(worker_orders.filter(|order| connection.forwards(shard, self.shards, order)))
            {
                woken.push(order_queue);
            }
        }
        drop(attached);
        if !woken.is_empty() {
            wake_after_responses(woken);
        }
    }

    /// Called when a state was replaced by a restored one. Passes all orders to the workers again, and stops each task
    /// that its worker no longer has. Workers ignore orders that they have carried out already.
    pub(super) fn redispatch(&self, before: &SchedulerState, state: &SchedulerState) {
        let workers: Vec<u64> = lock(&self.attached).by_worker.keys().copied().collect();
        let assignments = workers.into_iter().filter_map(|worker| Some((worker, state.held(worker).ok()?)));
        let orders = assignments.flat_map(|(worker, held)| {
            let lost = lost_tasks(&before.held(worker).unwrap_or_default(), &held);
            let lost = lost.into_iter().map(move |(task, token)| WorkerOrder::Stop { worker, task, token });
            let drained = held.is_drained().then_some(WorkerOrder::Drained { worker });
            lost.chain(held.starts.into_iter().map(WorkerOrder::Start)).chain(held.stops).chain(drained)
        });
        self.dispatch(state.shard(), orders);
    }
}

/// The tasks and tokens that a worker had before and no longer has.
fn lost_tasks(before: &HeldTasks, held: &HeldTasks) -> Vec<(u64, u64)> {
    let number = |start: &TaskStart| (start.task, start.token);
    let still: HashSet<(u64, u64)> = held.starts.iter().map(number).collect();
    before.starts.iter().map(number).filter(|one| !still.contains(one)).collect()
}

/// Wakes connections after the responses to the log entry were sent. A connection that has taken its orders in the
/// meantime is not woken.
fn wake_after_responses(woken: Vec<Arc<WorkerOrderQueue>>) {
    let wake = |woken: &[Arc<WorkerOrderQueue>]| {
        woken.iter().filter(|order_queue| !order_queue.is_empty()).for_each(|order_queue| order_queue.wake());
    };
    match Handle::try_current() {
        Ok(runtime) => {
            runtime.spawn(async move {
                // Another task of this thread sends the responses. Yielding lets that task, which is ready, run first.
                tokio::task::yield_now().await;
                wake(&woken);
            });
        }
        Err(_no_runtime) => wake(&woken),
    }
}

#[cfg(test)]
mod tests {
    use dunlin_tasks::{NewTask, NewWorker, TaskCommand, TaskEffects};

    use super::*;

    /// A follower that was behind receives a snapshot instead of the commands.
    #[test]
    fn dispatcher_sends_orders_that_a_snapshot_has_skipped() {
        let (mut state, mut effects) = (SchedulerState::default(), TaskEffects::default());
        let (worker, tenant) =
            (NewWorker { kinds: vec![b"k"], credit: 1, ttl_ms: 60_000, ..NewWorker::default() }, b"a");
        let tasks = vec![NewTask { timeout_ms: 1_000, ..NewTask::new(b"k", b"x") }];
        let commands = [
            TaskCommand::EnsureTenant { tenant },
            TaskCommand::Join { worker },
            TaskCommand::Submit { tenant, tasks },
        ];
        commands.iter().for_each(|command| drop(state.apply(command, &mut effects).unwrap()));
        let Some(WorkerOrder::Start(start)) = effects.orders.pop() else { panic!("{effects:?}") };
        let (before, worker, task, token) = (state.clone(), start.worker, start.task, start.token);
        state.apply(&TaskCommand::Drain { worker }, &mut effects).unwrap();
        state.advance(1_000, &mut effects);

        let (dispatcher, queue) = (Dispatcher::new(1), WorkerOrderQueue::new(Waiter::new(), 1));
        dispatcher.attach(worker, &queue);
        dispatcher.redispatch(&before, &state);
        let mut orders = Vec::new();
        queue.take(|order| {
            orders.push(order.clone());
            true
        });
        assert_eq!(orders, [WorkerOrder::Stop { worker, task, token }, WorkerOrder::Drained { worker }]);
    }
}
