//! Passes orders to the connections of this node's workers. An order tells a worker, for example, to start or stop a
//! task. The state machine of every node computes the orders of all workers. This module passes on the orders of its
//! own node's workers.
//!
//! Invariants:
//! - A worker has one connection: the latest one. The orders of all shards go to this connection.
//! - A connection is woken if its queue was empty. One wake-up covers all orders of a log entry, and follows the
//!   responses to that entry. A worker that completes a task usually receives its next task by the same entry. The
//!   worker's connection then writes the response and the order together.
//!
//! Limits: the number of orders in a queue is limited by the number of tasks that its workers may have. Payloads are
//! shared with the state.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dunlin_tasks::{HeldTasks, SchedulerState, TaskStart, WorkerOrder};
use dunlin_topic::Waiter;
use tokio::runtime::Handle;

/// Workers whose connections have ended are removed by a sweep. A sweep is made when the number of workers exceeds
/// twice the number after the last sweep, plus this number.
const SWEEP_MIN: usize = 64;

/// A queue of orders that one connection carries to its workers. After the queue is dropped, its workers receive no
/// orders, but their tasks stay assigned while their leases last.
#[derive(Debug)]
pub struct WorkerOrderQueue {
    orders: Mutex<VecDeque<WorkerOrder>>,
    /// The workers of the connection. For each, the end of its lease, as of the worker's last message through this
    /// connection.
    workers: Mutex<HashMap<u64, u64>>,
    waiter: Arc<Waiter>,
    token: u32,
}

impl WorkerOrderQueue {
    /// Creates an empty queue. When orders arrive, `waiter` is notified with `token`.
    pub fn new(waiter: Arc<Waiter>, token: u32) -> Arc<WorkerOrderQueue> {
        Arc::new(WorkerOrderQueue { orders: Mutex::default(), workers: Mutex::default(), waiter, token })
    }

    /// Takes orders, the oldest first, and passes them to `each`. Stops after an order for which `each` returns
    /// `false`: there is no room for another one.
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

    /// Whether no orders wait in the queue.
    pub fn is_empty(&self) -> bool {
        lock(&self.orders).is_empty()
    }

    /// Adds orders. Returns whether the queue was empty before and is not empty now.
    fn push(&self, new_orders: impl Iterator<Item = WorkerOrder>) -> bool {
        let mut orders = lock(&self.orders);
        let was_empty = orders.is_empty();
        orders.extend(new_orders);
        was_empty && !orders.is_empty()
    }

    /// Adds a worker that has attached through this connection.
    pub(super) fn add_worker(&self, worker: u64, state: &SchedulerState) {
        if let Ok(end_ms) = state.lease_end_ms(worker) {
            lock(&self.workers).insert(worker, end_ms);
        }
    }

    /// Updates the ends of the workers' leases. Removes workers that no longer exist.
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

    /// Returns the workers of this queue whose leases end at the same time as at the last call of `refresh_leases`.
    /// Since then, these workers have sent nothing through any connection.
    pub(super) fn silent_workers(&self, state: &SchedulerState) -> Vec<u64> {
        let workers = lock(&self.workers);
        let silent = workers.iter().filter(|(worker, end_ms)| state.lease_end_ms(**worker) == Ok(**end_ms));
        silent.map(|(worker, _)| *worker).collect()
    }

    /// Whether some worker has attached through this connection and is not known to have ended.
    pub fn has_workers(&self) -> bool {
        !lock(&self.workers).is_empty()
    }

    /// Whether this worker has attached through this connection and is not known to have ended.
    pub fn has_worker(&self, worker: u64) -> bool {
        lock(&self.workers).contains_key(&worker)
    }

    /// The number of workers that have attached through this connection. A worker that has ended counts until the next
    /// worker attaches, or until a worker of this connection sends a heartbeat.
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

/// Holds, for each worker that is attached to this node, the order queue of the worker's connection.
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

/// A worker's connection: its order queue, and which shards have no more tasks for the worker.
#[derive(Debug, Default)]
struct WorkerConnection {
    order_queue: Weak<WorkerOrderQueue>,
    /// If the worker is draining, a bit for each shard that has no more tasks for it.
    drained: u16,
}

impl WorkerConnection {
    /// Whether to pass a shard's order to the worker. The worker receives one `Drained`, after all shards have sent it.
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

    /// Whether the worker is attached to this node and its connection exists.
    pub(super) fn has(&self, worker: u64) -> bool {
        lock(&self.attached)
            .by_worker
            .get(&worker)
            .is_some_and(|connection| connection.order_queue.strong_count() > 0)
    }

    /// Passes all later orders for the worker to `order_queue`.
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

    /// Passes orders of a shard to the queues of this node's workers. Wakes the workers' connections soon afterwards.
    pub(super) fn dispatch(&self, shard: u8, orders: impl Iterator<Item = WorkerOrder>) {
        let mut attached = lock(&self.attached);
        let mut woken: Vec<Arc<WorkerOrderQueue>> = Vec::new();
        // Add consecutive orders for the same worker to the worker's queue at once.
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

    /// Called when a snapshot has replaced the state `before` by `state`. Passes all orders to the workers again, and
    /// stops the tasks that their workers no longer have. Workers ignore orders that they have already carried out.
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

/// The tasks, with their tokens, that a worker had in `before` and no longer has in `held`.
fn lost_tasks(before: &HeldTasks, held: &HeldTasks) -> Vec<(u64, u64)> {
    let number = |start: &TaskStart| (start.task, start.token);
    let still: HashSet<(u64, u64)> = held.starts.iter().map(number).collect();
    before.starts.iter().map(number).filter(|one| !still.contains(one)).collect()
}

/// Wakes connections, but only after the responses to the log entry were sent. A connection that has taken its orders
/// before these responses is not woken.
fn wake_after_responses(woken: Vec<Arc<WorkerOrderQueue>>) {
    let wake = |woken: &[Arc<WorkerOrderQueue>]| {
        woken.iter().filter(|order_queue| !order_queue.is_empty()).for_each(|order_queue| order_queue.wake());
    };
    match Handle::try_current() {
        Ok(runtime) => {
            runtime.spawn(async move {
                // Another async task of this thread sends the responses, and is ready to run. Let it run first.
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

    /// A follower that is far behind receives a snapshot instead of commands. It therefore does not compute the orders
    /// that result from these commands.
    #[test]
    fn dispatcher_sends_missed_orders_after_a_snapshot() {
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
