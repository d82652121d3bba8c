//! Those of this node's connections that workers are attached to: what a worker is to do is handed to its own, where every
//! node's machine finds out by itself.
//!
//! Invariants:
//! - A worker has one connection; the one that attached last. What all shards have for it goes there.
//! - A connection is woken when its line of orders is no longer empty, once for all orders of an entry of the log, and behind the answers to
//!   that entry's commands: a worker that answers is nearly always given its next task by the same entry, and its connection then writes once.
//!
//! Limits: orders wait in a line as long as their workers' credit; payloads are the state's own, not copies.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dunlin_tasks::{Order, State};
use dunlin_topic::Waiter;
use tokio::runtime::Handle;

/// So many workers more than twice as many as were left last, and connections that are no more are left out.
const SWEPT_MIN: usize = 64;

/// The orders that wait for a connection. Dropped, its workers are handed nothing; what they are given waits for them with the
/// cluster, for as long as they live.
#[derive(Debug)]
pub struct Outlet {
    orders: Mutex<VecDeque<Order>>,
    /// Its workers, and when each was to be taken for dead when it was heard of last through this connection.
    workers: Mutex<HashMap<u64, u64>>,
    waiter: Arc<Waiter>,
    token: u32,
}

impl Outlet {
    /// One that notifies `waiter` by `token`.
    pub fn new(waiter: Arc<Waiter>, token: u32) -> Arc<Outlet> {
        Arc::new(Outlet { orders: Mutex::default(), workers: Mutex::default(), waiter, token })
    }

    /// Hands out orders, the oldest first, as long as `each` says that there is room for another.
    pub fn take(&self, mut each: impl FnMut(&Order) -> bool) {
        let mut orders = lock(&self.orders);
        while let Some(first) = orders.front() {
            let has_room = each(first);
            orders.pop_front();
            if !has_room {
                return;
            }
        }
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        lock(&self.orders).is_empty()
    }

    /// Whether it was empty before, and is not now.
    fn push(&self, more: impl Iterator<Item = Order>) -> bool {
        let mut orders = lock(&self.orders);
        let was_empty = orders.is_empty();
        orders.extend(more);
        was_empty && !orders.is_empty()
    }

    /// A worker has just come, by this connection.
    pub(super) fn came(&self, worker: u64, state: &State) {
        if let Ok(end_ms) = state.lease_end_ms(worker) {
            lock(&self.workers).insert(worker, end_ms);
        }
    }

    /// Some of its workers have just been heard of. Those that are known no more are left out.
    pub(super) fn heard(&self, state: &State) {
        lock(&self.workers).retain(|worker, end_ms| {
            let now = state.lease_end_ms(*worker);
            now.map(|now_ms| *end_ms = now_ms).is_ok()
        });
    }

    /// Its workers that nobody has heard of since, by whatever connection.
    pub(super) fn silent(&self, state: &State) -> Vec<u64> {
        let workers = lock(&self.workers);
        let silent = workers.iter().filter(|(worker, end_ms)| state.lease_end_ms(**worker) == Ok(**end_ms));
        silent.map(|(worker, _)| *worker).collect()
    }

    /// Whether a worker has come by it.
    pub fn has_workers(&self) -> bool {
        !lock(&self.workers).is_empty()
    }

    fn forget(&self, worker: u64) {
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

/// See the module. By the worker.
#[derive(Debug)]
pub(super) struct Outlets {
    attached: Mutex<Attached>,
    shards: u8,
}

#[derive(Debug, Default)]
struct Attached {
    by_worker: HashMap<u64, Line>,
    /// How many there were when those of connections that are no more were left out last.
    swept: usize,
}

/// The way to a worker.
#[derive(Debug, Default)]
struct Line {
    outlet: Weak<Outlet>,
    /// A bit for each shard of which it holds nothing more, now that it drains.
    drained: u16,
}

impl Line {
    /// Whether a shard's order is to be handed on: it has drained when it has so in all of them.
    fn passes(&mut self, shard: u8, shards: u8, order: &Order) -> bool {
        if let Order::Drained { .. } = order {
            self.drained |= 1 << shard;
            return self.drained.count_ones() == u32::from(shards);
        }
        true
    }
}

impl Outlets {
    pub(super) fn new(shards: u8) -> Outlets {
        Outlets { attached: Mutex::default(), shards }
    }

    /// Whether it is attached to this node.
    pub(super) fn has(&self, worker: u64) -> bool {
        lock(&self.attached).by_worker.get(&worker).is_some_and(|line| line.outlet.strong_count() > 0)
    }

    /// From now on what the worker is to do is handed to this outlet.
    pub(super) fn attach(&self, worker: u64, outlet: &Arc<Outlet>) {
        let mut attached = lock(&self.attached);
        if attached.by_worker.len() > 2 * attached.swept + SWEPT_MIN {
            attached.by_worker.retain(|_, line| line.outlet.strong_count() > 0);
            attached.swept = attached.by_worker.len();
        }
        let line = Line { outlet: Arc::downgrade(outlet), drained: 0 };
        let before = attached.by_worker.insert(worker, line);
        drop(attached);
        if let Some(before) = before.and_then(|before| before.outlet.upgrade()) {
            before.forget(worker);
        }
    }

    /// Hands each order of a shard to who it is for, where that is one of this node's, and wakes them soon.
    pub(super) fn hand_out(&self, shard: u8, orders: impl Iterator<Item = Order>) {
        let mut attached = lock(&self.attached);
        let mut woken: Vec<Arc<Outlet>> = Vec::new();
        // A worker that answers much at once is given as much.
        let mut orders = orders.peekable();
        while let Some(worker) = orders.peek().map(Order::worker) {
            let of_worker = std::iter::from_fn(|| orders.next_if(|order| order.worker() == worker));
            let line = attached.by_worker.get_mut(&worker);
            let Some((outlet, line)) = line.and_then(|line| Some((line.outlet.upgrade()?, line))) else {
                of_worker.for_each(drop);
                continue;
            };
            if outlet.push(of_worker.filter(|order| line.passes(shard, self.shards, order))) {
                woken.push(outlet);
            }
        }
        drop(attached);
        if !woken.is_empty() {
            wake_behind_answers(woken);
        }
    }

    /// The state has become another at once: workers are told again all they hold. What they have of it they know.
    pub(super) fn look(&self, state: &State) {
        let workers: Vec<u64> = lock(&self.attached).by_worker.keys().copied().collect();
        let held = workers.into_iter().filter_map(|worker| state.held(worker).ok());
        let orders = held.flat_map(|held| held.starts.into_iter().map(Order::Start).chain(held.stops));
        self.hand_out(state.shard(), orders);
    }
}

/// Wakes connections once the thread that took an entry in has given out what it answered. Those that have been woken by that, and have taken
/// their orders along, are left alone.
fn wake_behind_answers(woken: Vec<Arc<Outlet>>) {
    let wake = |woken: &[Arc<Outlet>]| {
        woken.iter().filter(|outlet| !outlet.is_empty()).for_each(|outlet| outlet.wake());
    };
    match Handle::try_current() {
        Ok(runtime) => {
            runtime.spawn(async move {
                // The answers go by a task of this thread that is ready by then.
                tokio::task::yield_now().await;
                wake(&woken);
            });
        }
        Err(_no_runtime) => wake(&woken),
    }
}
