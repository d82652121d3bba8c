//! What came from the node for one worker, on its way from whoever reads the connection to the worker's own thread.

use std::sync::Mutex;

use dunlin_tasks::{Attached, Order};

use crate::follow::{Waiting, lock};
use crate::refusal::Refused;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Line {
    pub(super) waiting: Waiting,
    news: Mutex<News>,
}

/// What came since the last look, in the order in which it came, kind by kind.
#[derive(Debug, Default)]
pub(super) struct News {
    /// The connection is gone, with all that had no answer. What stands here besides came before.
    pub(super) is_lost: bool,
    /// What came of the worker's attaching.
    pub(super) attached: Option<Result<Attached, Refused>>,
    pub(super) orders: Vec<Order>,
    /// Answers to requests: the message's bytes.
    pub(super) answers: Vec<(u32, Result<Vec<u8>, Refused>)>,
    /// Somebody of this side wants the thread to look.
    pub(super) is_poked: bool,
}

impl Line {
    pub(super) fn has_news(&self) -> bool {
        let news = lock(&self.news);
        news.is_lost
            || news.is_poked
            || news.attached.is_some()
            || !news.orders.is_empty()
            || !news.answers.is_empty()
    }

    pub(super) fn take(&self) -> News {
        std::mem::take(&mut *lock(&self.news))
    }

    pub(super) fn poke(&self) {
        lock(&self.news).is_poked = true;
        self.waiting.wake();
    }

    pub(crate) fn attached(&self, attached: Result<Attached, Refused>) {
        lock(&self.news).attached = Some(attached);
        self.waiting.wake();
    }

    pub(crate) fn ordered(&self, orders: impl Iterator<Item = Order>) {
        lock(&self.news).orders.extend(orders);
        self.waiting.wake();
    }

    pub(crate) fn answered(&self, request: u32, answer: Result<Vec<u8>, Refused>) {
        lock(&self.news).answers.push((request, answer));
        self.waiting.wake();
    }

    pub(crate) fn lost(&self) {
        lock(&self.news).is_lost = true;
        self.waiting.wake();
    }
}
