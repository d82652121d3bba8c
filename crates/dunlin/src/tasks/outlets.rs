//! Those of this node's connections that workers are attached to: what a worker is to do is handed to its own, where every
//! node's machine finds out by itself.
//!
//! Invariants:
//! - A worker has one connection; the one that attached last.
//! - A connection is woken when its line of orders is no longer empty, once for all orders of an entry of the log.
//!
//! Limits: orders wait in a line as long as their workers' credit; payloads are the state's own, not copies.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dunlin_tasks::{Order, State};
use dunlin_topic::Waiter;

/// So many workers more than twice as many as were left last, and connections that are no more are left out.
const SWEPT_MIN: usize = 64;

/// The orders that wait for a connection. Dropped, its workers are handed nothing; what they are given waits for them with the
/// cluster, for as long as they live.
#[derive(Debug)]
pub struct Outlet {
    orders: Mutex<VecDeque<Order>>,
    waiter: Arc<Waiter>,
    token: u32,
}

impl Outlet {
    /// One that notifies `waiter` by `token`.
    pub fn new(waiter: Arc<Waiter>, token: u32) -> Arc<Outlet> {
        Arc::new(Outlet { orders: Mutex::default(), waiter, token })
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

    fn forget(&self, worker: u64) {
        lock(&self.orders).retain(|order| order.worker() != worker);
    }

    fn wake(&self) {
        self.waiter.notify(self.token);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module. By the worker.
#[derive(Debug, Default)]
pub(super) struct Outlets(Mutex<Attached>);

#[derive(Debug, Default)]
struct Attached {
    by_worker: HashMap<u64, Weak<Outlet>>,
    /// How many there were when those of connections that are no more were left out last.
    swept: usize,
}

impl Outlets {
    /// From now on what the worker is to do is handed to this outlet.
    pub(super) fn attach(&self, worker: u64, outlet: &Arc<Outlet>) {
        let mut attached = lock(&self.0);
        if attached.by_worker.len() > 2 * attached.swept + SWEPT_MIN {
            attached.by_worker.retain(|_, outlet| outlet.strong_count() > 0);
            attached.swept = attached.by_worker.len();
        }
        let before = attached.by_worker.insert(worker, Arc::downgrade(outlet));
        drop(attached);
        if let Some(before) = before.and_then(|before| before.upgrade()) {
            before.forget(worker);
        }
    }

    /// Hands each order to who it is for, where that is one of this node's.
    pub(super) fn hand_out(&self, orders: impl Iterator<Item = Order>) {
        let attached = lock(&self.0);
        let mut woken: Vec<Arc<Outlet>> = Vec::new();
        // A worker that answers much at once is given as much.
        let mut orders = orders.peekable();
        while let Some(worker) = orders.peek().map(Order::worker) {
            let of_worker = std::iter::from_fn(|| orders.next_if(|order| order.worker() == worker));
            let Some(outlet) = attached.by_worker.get(&worker).and_then(Weak::upgrade) else {
                of_worker.for_each(drop);
                continue;
            };
            if outlet.push(of_worker) {
                woken.push(outlet);
            }
        }
        drop(attached);
        woken.iter().for_each(|outlet| outlet.wake());
    }

    /// The state has become another at once: workers are told again all they hold. What they have of it they know.
    pub(super) fn look(&self, state: &State) {
        let workers: Vec<u64> = lock(&self.0).by_worker.keys().copied().collect();
        let held = workers.into_iter().filter_map(|worker| state.held(worker).ok());
        self.hand_out(held.flat_map(|held| held.starts.into_iter().map(Order::Start).chain(held.stops)));
    }
}
