//! Passes the node's responses and orders about tasks to the workers of this client to which they belong.

use std::sync::Arc;

use dunlin_tasks::{AttachResponse, TaskDecodeError, WorkerOrder};
use dunlin_wire::{RequestRefused, TaskOrders, TasksResult};
use hashbrown::HashMap;

use crate::refusal::RefusedError;
use crate::tasks::WorkerInbox;

#[derive(Debug, Default)]
pub(super) struct WorkerTable {
    requests: HashMap<u32, WorkerRequest>,
    /// The attached workers, by their numbers in the cluster.
    workers: HashMap<u64, AttachedWorker>,
}

#[derive(Debug)]
struct AttachedWorker {
    inbox: Arc<WorkerInbox>,
    request: u32,
}

#[derive(Debug)]
struct WorkerRequest {
    inbox: Arc<WorkerInbox>,
    attaches: bool,
}

impl WorkerTable {
    pub(super) fn add(&mut self, number: u32, inbox: &Arc<WorkerInbox>, attaches: bool) {
        self.requests.insert(number, WorkerRequest { inbox: Arc::clone(inbox), attaches });
    }

    /// Whether a worker uses this request number: for a request without a response, or for the request that attached
    /// the worker.
    pub(super) fn has_request(&self, number: u32) -> bool {
        self.requests.contains_key(&number)
            || self.workers.values().any(|attached| attached.request == number)
    }

    pub(super) fn remove(&mut self, inbox: &Arc<WorkerInbox>) {
        self.requests.retain(|_, request| !Arc::ptr_eq(&request.inbox, inbox));
        self.workers.retain(|_, other| !Arc::ptr_eq(&other.inbox, inbox));
    }

    /// Passes a response to the worker that sent the request. Returns `false` if no worker did.
    pub(super) fn handle_result(&mut self, result: &TasksResult<'_>) -> Result<bool, TaskDecodeError> {
        let Some(WorkerRequest { inbox, attaches }) = self.requests.remove(&result.request) else {
            return Ok(false);
        };
        if attaches {
            let attached = AttachResponse::decode(result.bytes.0)?;
            self.workers.retain(|_, other| !Arc::ptr_eq(&other.inbox, &inbox));
            let attachment = AttachedWorker { inbox: Arc::clone(&inbox), request: result.request };
            self.workers.insert(attached.worker, attachment);
            inbox.push_attached(Ok(attached));
        } else {
            inbox.push_response(result.request, Ok(result.bytes.0.to_vec()));
        }
        Ok(true)
    }

    /// Passes a refusal to the worker that sent the request. If the refused request is the one that attached a worker,
    /// the worker is detached. Returns `false` if no worker sent the request.
    pub(super) fn handle_refusal(&mut self, refused: &RequestRefused<'_>) -> bool {
        let Some(WorkerRequest { inbox, attaches }) = self.requests.remove(&refused.request) else {
            return self.handle_ended(refused);
        };
        let why = RefusedError::new(&refused.refusal);
        match attaches {
            true => inbox.push_attached(Err(why)),
            false => inbox.push_response(refused.request, Err(why)),
        }
        true
    }

    fn handle_ended(&mut self, refused: &RequestRefused<'_>) -> bool {
        let mut ended = self.workers.extract_if(|_, attached| attached.request == refused.request);
        let Some((_, AttachedWorker { inbox, .. })) = ended.next() else { return false };
        inbox.push_attached(Err(RefusedError::new(&refused.refusal)));
        true
    }

    pub(super) fn dispatch_orders(&mut self, orders: &TaskOrders<'_>) -> Result<(), TaskDecodeError> {
        let mut orders = WorkerOrder::decode_all(orders.bytes.0)?.into_iter().peekable();
        while let Some(worker) = orders.peek().map(WorkerOrder::worker) {
            let of_worker = std::iter::from_fn(|| orders.next_if(|order| order.worker() == worker));
            match self.workers.get(&worker) {
                Some(attached) => attached.inbox.push_orders(of_worker),
                // The worker has ended, so the node's orders to it are dropped.
                None => of_worker.for_each(drop),
            }
        }
        Ok(())
    }

    pub(super) fn handle_disconnect(&mut self) {
        self.workers.drain().for_each(|(_, attached)| attached.inbox.set_lost());
        self.requests.drain().for_each(|(_, request)| request.inbox.set_lost());
    }
}
