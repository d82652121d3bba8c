//! Messages from the node for one worker, passed from the reading thread to the worker's thread.

use std::sync::Mutex;

use dunlin_tasks::{AttachResponse, WorkerOrder};

use crate::follow::{HandleWaker, lock};
use crate::refusal::RefusedError;

/// The messages that the worker has not handled yet, and the waker of its thread.
#[derive(Debug, Default)]
pub(crate) struct WorkerInbox {
    pub(super) waiting: HandleWaker,
    news: Mutex<WorkerMessages>,
}

/// The messages since the thread last took them, by kind, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct WorkerMessages {
    /// Whether the connection was lost, with all unanswered requests. The other messages arrived before the loss.
    pub(super) is_lost: bool,
    /// The response to attaching.
    pub(super) attached: Option<Result<AttachResponse, RefusedError>>,
    /// Orders of the node, such as to run or to stop a task.
    pub(super) orders: Vec<WorkerOrder>,
    /// Responses to requests, as message bytes.
    pub(super) answers: Vec<(u32, Result<Vec<u8>, RefusedError>)>,
    /// Whether another thread asks the worker's thread to continue.
    pub(super) is_poked: bool,
}

impl WorkerInbox {
    pub(super) fn has_news(&self) -> bool {
        let news = lock(&self.news);
        news.is_lost
            || news.is_poked
            || news.attached.is_some()
            || !news.orders.is_empty()
            || !news.answers.is_empty()
    }

    pub(super) fn take(&self) -> WorkerMessages {
        std::mem::take(&mut *lock(&self.news))
    }

    pub(super) fn poke(&self) {
        lock(&self.news).is_poked = true;
        self.waiting.wake();
    }

    pub(crate) fn attached(&self, attached: Result<AttachResponse, RefusedError>) {
        lock(&self.news).attached = Some(attached);
        self.waiting.wake();
    }

    pub(crate) fn ordered(&self, orders: impl Iterator<Item = WorkerOrder>) {
        lock(&self.news).orders.extend(orders);
        self.waiting.wake();
    }

    pub(crate) fn answered(&self, request: u32, answer: Result<Vec<u8>, RefusedError>) {
        lock(&self.news).answers.push((request, answer));
        self.waiting.wake();
    }

    pub(crate) fn lost(&self) {
        lock(&self.news).is_lost = true;
        self.waiting.wake();
    }
}
