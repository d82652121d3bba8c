//! Whose answers and orders are whose, among this client's workers.

use std::sync::Arc;

use dunlin_tasks::{Attached, DecodeError, Order};
use dunlin_wire::{RequestRefused, TaskOrders, Tasked};
use hashbrown::HashMap;

use crate::refusal::Refused;
use crate::tasks::Line;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Working {
    requests: HashMap<u32, Asked>,
    /// By their numbers.
    workers: HashMap<u64, Attachment>,
}

/// A worker's, and the request by which it was attached.
#[derive(Debug)]
struct Attachment {
    line: Arc<Line>,
    request: u32,
}

#[derive(Debug)]
struct Asked {
    line: Arc<Line>,
    attaches: bool,
}

impl Working {
    pub(super) fn add(&mut self, number: u32, line: &Arc<Line>, attaches: bool) {
        self.requests.insert(number, Asked { line: Arc::clone(line), attaches });
    }

    pub(super) fn remove(&mut self, line: &Arc<Line>) {
        self.requests.retain(|_, asked| !Arc::ptr_eq(&asked.line, line));
        self.workers.retain(|_, other| !Arc::ptr_eq(&other.line, line));
    }

    /// Whether it was a worker's. From here on its orders are known for its own.
    pub(super) fn tasked(&mut self, tasked: &Tasked<'_>) -> Result<bool, DecodeError> {
        let Some(Asked { line, attaches }) = self.requests.remove(&tasked.request) else { return Ok(false) };
        if attaches {
            let attached = Attached::decode(tasked.bytes.0)?;
            self.workers.retain(|_, other| !Arc::ptr_eq(&other.line, &line));
            let attachment = Attachment { line: Arc::clone(&line), request: tasked.request };
            self.workers.insert(attached.worker, attachment);
            line.attached(Ok(attached));
        } else {
            line.answered(tasked.request, Ok(tasked.bytes.0.to_vec()));
        }
        Ok(true)
    }

    /// The same for what is refused as a whole. A worker that was attached by the request is so no longer.
    pub(super) fn refused(&mut self, refused: &RequestRefused<'_>) -> bool {
        let Some(Asked { line, attaches }) = self.requests.remove(&refused.request) else {
            return self.ended(refused);
        };
        let why = Refused::new(&refused.refusal);
        match attaches {
            true => line.attached(Err(why)),
            false => line.answered(refused.request, Err(why)),
        }
        true
    }

    fn ended(&mut self, refused: &RequestRefused<'_>) -> bool {
        let mut ended = self.workers.extract_if(|_, attached| attached.request == refused.request);
        let Some((_, Attachment { line, .. })) = ended.next() else { return false };
        line.attached(Err(Refused::new(&refused.refusal)));
        true
    }

    pub(super) fn ordered(&mut self, orders: &TaskOrders<'_>) -> Result<(), DecodeError> {
        let mut orders = Order::decode_all(orders.bytes.0)?.into_iter().peekable();
        while let Some(worker) = orders.peek().map(Order::worker) {
            let of_worker = std::iter::from_fn(|| orders.next_if(|order| order.worker() == worker));
            match self.workers.get(&worker) {
                Some(attached) => attached.line.ordered(of_worker),
                // What is for a worker that has ended, it left behind.
                None => of_worker.for_each(drop),
            }
        }
        Ok(())
    }

    /// The connection is gone.
    pub(super) fn lost(&mut self) {
        self.workers.drain().for_each(|(_, attached)| attached.line.lost());
        self.requests.drain().for_each(|(_, asked)| asked.line.lost());
    }
}
