//! Finds the worker of this client to which a response or an order of the node belongs.

use std::sync::Arc;

use dunlin_tasks::{AttachResponse, TaskDecodeError, WorkerOrder};
use dunlin_wire::{RequestRefused, TaskOrders, TasksResult};
use hashbrown::HashMap;

use crate::refusal::RefusedError;
use crate::tasks::WorkerInbox;

/// The workers and their unanswered requests.
#[derive(Debug, Default)]
pub(super) struct WorkerTable {
    requests: HashMap<u32, WorkerRequest>,
    /// Workers by number.
    workers: HashMap<u64, AttachedWorker>,
}

/// An attached worker, and the request that attached it.
#[derive(Debug)]
struct AttachedWorker {
    line: Arc<WorkerInbox>,
    request: u32,
}

#[derive(Debug)]
struct WorkerRequest {
    line: Arc<WorkerInbox>,
    attaches: bool,
}

impl WorkerTable {
    pub(super) fn add(&mut self, number: u32, line: &Arc<WorkerInbox>, attaches: bool) {
        self.requests.insert(number, WorkerRequest { line: Arc::clone(line), attaches });
    }

    pub(super) fn remove(&mut self, line: &Arc<WorkerInbox>) {
        self.requests.retain(|_, asked| !Arc::ptr_eq(&asked.line, line));
        self.workers.retain(|_, other| !Arc::ptr_eq(&other.line, line));
    }

    /// Passes a response to its worker. Returns `false` if no worker sent the request.
    pub(super) fn tasked(&mut self, tasked: &TasksResult<'_>) -> Result<bool, TaskDecodeError> {
        let Some(WorkerRequest { line, attaches }) = self.requests.remove(&tasked.request) else {
            return Ok(false);
        };
        if attaches {
            let attached = AttachResponse::decode(tasked.bytes.0)?;
            self.workers.retain(|_, other| !Arc::ptr_eq(&other.line, &line));
            let attachment = AttachedWorker { line: Arc::clone(&line), request: tasked.request };
            self.workers.insert(attached.worker, attachment);
            line.attached(Ok(attached));
        } else {
            line.answered(tasked.request, Ok(tasked.bytes.0.to_vec()));
        }
        Ok(true)
    }

    /// Passes a refusal to its worker. A worker attached by this request is detached.
    pub(super) fn refused(&mut self, refused: &RequestRefused<'_>) -> bool {
        let Some(WorkerRequest { line, attaches }) = self.requests.remove(&refused.request) else {
            return self.ended(refused);
        };
        let why = RefusedError::new(&refused.refusal);
        match attaches {
            true => line.attached(Err(why)),
            false => line.answered(refused.request, Err(why)),
        }
        true
    }

    fn ended(&mut self, refused: &RequestRefused<'_>) -> bool {
        let mut ended = self.workers.extract_if(|_, attached| attached.request == refused.request);
        let Some((_, AttachedWorker { line, .. })) = ended.next() else { return false };
        line.attached(Err(RefusedError::new(&refused.refusal)));
        true
    }

    pub(super) fn ordered(&mut self, orders: &TaskOrders<'_>) -> Result<(), TaskDecodeError> {
        let mut orders = WorkerOrder::decode_all(orders.bytes.0)?.into_iter().peekable();
        while let Some(worker) = orders.peek().map(WorkerOrder::worker) {
            let of_worker = std::iter::from_fn(|| orders.next_if(|order| order.worker() == worker));
            match self.workers.get(&worker) {
                Some(attached) => attached.line.ordered(of_worker),
                // The worker has ended: drop the message.
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
