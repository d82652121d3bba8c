//! Maps responses and orders to this client's workers.

use std::sync::Arc;

use dunlin_tasks::{Attached, DecodeError, Order};
use dunlin_wire::{RequestRefused, TaskOrders, Tasked};
use hashbrown::HashMap;

use crate::refusal::Refused;
use crate::tasks::Line;

/// The workers and their unanswered requests.
#[derive(Debug, Default)]
pub(super) struct Working {
    requests: HashMap<u32, Asked>,
    /// Workers by number.
    workers: HashMap<u64, Attachment>,
}

/// An attached worker, and the request that attached it.
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

    /// Passes a response to its worker. Returns `false` if no worker sent the request.
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

    /// Passes a refusal to its worker. A worker attached by this request is detached.
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
                // The worker has ended.
                None => of_worker.for_each(drop),
            }
        }
        Ok(())
    }

    /// Handles the loss of the connection.
    pub(super) fn lost(&mut self) {
        self.workers.drain().for_each(|(_, attached)| attached.line.lost());
        self.requests.drain().for_each(|(_, asked)| asked.line.lost());
    }
}
