//! The subscribers of a log and the subjects they read. Requests use this list to check whether a responder
//! exists.
//!
//! The list counts the feeds of other nodes' mirrors apart, because only those nodes know whether their
//! mirrors have subscribers.
//!
//! Limit: one entry for each cursor with a filter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::cursor::Filter;
use crate::log::Log;

/// The cursors of one log.
#[derive(Debug, Default)]
pub(crate) struct LogSubscribers {
    /// Cursors without a filter; the upper half counts those that feed mirrors.
    all: AtomicU64,
    /// The filters of the other cursors. Most logs have none.
    some: OnceLock<Box<Mutex<Vec<Filter>>>>,
}

/// The count of one mirror feed. Both counts share one word, so that they are read together.
const MIRROR: u64 = 1 << 32;

/// The increment for one cursor without a filter.
fn one(feeds_mirror: bool) -> u64 {
    if feeds_mirror { MIRROR + 1 } else { 1 }
}

impl LogSubscribers {
    pub(crate) fn enter(&self, filter: Option<&Filter>, feeds_mirror: bool) {
        match filter {
            None => drop(self.all.fetch_add(one(feeds_mirror), Ordering::Relaxed)),
            Some(filter) => lock(self.some.get_or_init(Box::default)).push(filter.clone()),
        }
    }

    pub(crate) fn leave(&self, filter: Option<&Filter>, feeds_mirror: bool) {
        match (filter, self.some.get()) {
            (None, _) => drop(self.all.fetch_sub(one(feeds_mirror), Ordering::Relaxed)),
            (Some(filter), Some(some)) => {
                let mut some = lock(some);
                if let Some(at) = some.iter().position(|other| Arc::ptr_eq(&other.wants, &filter.wants)) {
                    some.swap_remove(at);
                }
            }
            (Some(_), None) => {}
        }
    }

    /// Whether there is any cursor.
    pub(crate) fn any(&self) -> bool {
        self.all.load(Ordering::Relaxed) > 0 || self.some.get().is_some_and(|some| !lock(some).is_empty())
    }

    fn hear(&self, tail: &str) -> bool {
        self.all.load(Ordering::Relaxed) > 0 || self.some_hear(tail)
    }

    fn hear_here(&self, tail: &str) -> bool {
        let all = self.all.load(Ordering::Relaxed);
        all % MIRROR > all / MIRROR || self.some_hear(tail)
    }

    fn some_hear(&self, tail: &str) -> bool {
        self.some.get().is_some_and(|some| lock(some).iter().any(|filter| (filter.wants)(tail)))
    }
}

impl Log {
    /// Whether a subscriber reads, or will read, the subject with this tail. A group counts as long as it
    /// exists.
    pub fn has_subscriber(&self, tail: &str) -> bool {
        self.subscribers.hear(tail)
    }

    /// Like [`has_subscriber`](Log::has_subscriber), but without the mirrors of other nodes.
    pub fn has_local_subscriber(&self, tail: &str) -> bool {
        self.subscribers.hear_here(tail)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_is_read_until_its_last_subscriber_leaves() {
        let subscribers = LogSubscribers::default();
        let eu = Filter::new(|tail: &str| tail == "eu");
        subscribers.enter(Some(&eu), false);
        assert!(subscribers.hear("eu") && !subscribers.hear("us"));
        subscribers.enter(None, false);
        assert!(subscribers.hear("us"));
        subscribers.leave(None, false);
        subscribers.leave(Some(&eu), false);
        assert!(!subscribers.hear("eu") && !subscribers.hear("us"));
    }

    #[test]
    fn mirror_does_not_count_as_a_local_subscriber() {
        let subscribers = LogSubscribers::default();
        subscribers.enter(None, true);
        assert!(subscribers.any() && subscribers.hear("eu") && !subscribers.hear_here("eu"));
        subscribers.enter(None, false);
        assert!(subscribers.hear_here("eu"));
        subscribers.leave(None, false);
        assert!(subscribers.any() && !subscribers.hear_here("eu"));
        subscribers.leave(None, true);
        assert!(!subscribers.any());
    }
}
