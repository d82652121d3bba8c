//! The worker's inbox: the thread that reads the connection passes the node's messages for a worker to the worker's
//! thread.

use std::sync::Mutex;

use dunlin_tasks::{AttachResponse, WorkerOrder};

use crate::follow::{HandleWaker, lock};
use crate::refusal::RefusedError;

/// The messages that the worker has not handled yet, and the waker of its thread.
#[derive(Debug, Default)]
pub(crate) struct WorkerInbox {
    pub(super) waker: HandleWaker,
    messages: Mutex<WorkerMessages>,
}

/// The messages that have arrived since the worker's thread last took them. Each kind of message has its own list, in
/// order of arrival.
#[derive(Debug, Default)]
pub(super) struct WorkerMessages {
    /// Whether the connection was lost, and with it the responses to all open requests. The messages in the lists
    /// arrived before the loss.
    pub(super) is_lost: bool,
    pub(super) attached: Option<Result<AttachResponse, RefusedError>>,
    /// Orders of the node, such as to run or to stop a task.
    pub(super) orders: Vec<WorkerOrder>,
    /// Responses to requests: the number of each request, and the bytes of the response.
    pub(super) responses: Vec<(u32, Result<Vec<u8>, RefusedError>)>,
    /// Whether another thread has asked the worker's thread to end its wait.
    pub(super) is_woken: bool,
}

impl WorkerInbox {
    pub(super) fn has_messages(&self) -> bool {
        let messages = lock(&self.messages);
        messages.is_lost
            || messages.is_woken
            || messages.attached.is_some()
            || !messages.orders.is_empty()
            || !messages.responses.is_empty()
    }

    pub(super) fn take(&self) -> WorkerMessages {
        std::mem::take(&mut *lock(&self.messages))
    }

    pub(super) fn wake(&self) {
        lock(&self.messages).is_woken = true;
        self.waker.wake();
    }

    pub(crate) fn push_attached(&self, attached: Result<AttachResponse, RefusedError>) {
        lock(&self.messages).attached = Some(attached);
        self.waker.wake();
    }

    pub(crate) fn push_orders(&self, orders: impl Iterator<Item = WorkerOrder>) {
        lock(&self.messages).orders.extend(orders);
        self.waker.wake();
    }

    pub(crate) fn push_response(&self, request: u32, response: Result<Vec<u8>, RefusedError>) {
        lock(&self.messages).responses.push((request, response));
        self.waker.wake();
    }

    pub(crate) fn set_lost(&self) {
        lock(&self.messages).is_lost = true;
        self.waker.wake();
    }
}
