//! The inbox of a worker. The thread that reads the connection puts the node's messages for the worker there, and the
//! thread that drives the worker takes them.

use std::sync::Mutex;

use dunlin_tasks::{AttachResponse, WorkerOrder};

use crate::follow::{HandleWaker, lock};
use crate::refusal::RefusedError;

/// The messages that the worker has not handled yet, and the waker of the thread that drives the worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerInbox {
    pub(super) waker: HandleWaker,
    messages: Mutex<WorkerMessages>,
}

/// The messages that have arrived since they were last taken. Each kind of message has a list of its own, in order of
/// arrival.
#[derive(Debug, Default)]
pub(super) struct WorkerMessages {
    /// Whether the connection was lost after these messages had arrived. Requests without a response were lost with the
    /// connection.
    pub(super) is_lost: bool,
    pub(super) attached: Option<Result<AttachResponse, RefusedError>>,
    /// Orders of the node, such as to run or to stop a task.
    pub(super) orders: Vec<WorkerOrder>,
    /// The responses to requests. Each entry is the number of a request, and the bytes of its response or its refusal.
    pub(super) responses: Vec<(u32, Result<Vec<u8>, RefusedError>)>,
    /// Whether another thread has asked the thread that drives the worker to end its wait.
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
