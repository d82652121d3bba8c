//! Tells whether a log belongs to a later topic that has the name of a deleted one. A subscription that reads both
//! delivers the records and the end of the deleted topic first.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::log::{Log, PublisherCount};

/// Tells whether a topic's logs still exist, for example because a subscriber reads them.
#[derive(Debug)]
pub struct TopicLiveness(Weak<PublisherCount>);

impl TopicLiveness {
    /// Whether any log of the topic, or any private mirror of such a log, still exists.
    pub fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl Log {
    /// Returns a value that tells whether the logs of this log's topic still exist.
    pub fn liveness(&self) -> TopicLiveness {
        TopicLiveness(Arc::downgrade(&self.publishers))
    }

    /// Sets that a deleted topic with the same name may still have subscribers. Must be called before a subscription
    /// reads this log.
    pub fn set_follows_deleted(&self) {
        self.follows_deleted.store(true, Ordering::Relaxed);
    }

    /// Whether [`follows_any`](Log::follows_any) looks at the other logs: a deleted topic with the same name may still
    /// have subscribers.
    pub fn may_follow(&self) -> bool {
        self.follows_deleted.load(Ordering::Relaxed)
    }

    /// Whether a subscription that reads the logs `others` has to deliver one of them to its end before it reads this
    /// log, because this log belongs to a later topic with the same name. For most logs, looks at none of `others`.
    pub fn follows_any<'a>(&self, others: impl IntoIterator<Item = &'a Log>) -> bool {
        self.may_follow() && others.into_iter().any(|other| self.follows(other))
    }

    fn follows(&self, other: &Log) -> bool {
        self.number > other.number
            && self.name.topic == other.name.topic
            && !Arc::ptr_eq(&self.publishers, &other.publishers)
    }
}
