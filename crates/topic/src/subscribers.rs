//! The subscribers of a log and the subjects they read. Requests use this list to check whether a responder
//! exists.
//!
//! The list counts the feeds of other nodes' mirrors separately, because only those nodes know whether their mirrors
//! have subscribers. The only subscriber of a private mirror is also listed with the mirrored log, because requests
//! check that log.
//!
//! Limit: one entry for each cursor with a filter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::cursor::Filter;
use crate::log::Log;

/// The cursors of one log.
#[derive(Debug, Default)]
pub(crate) struct LogSubscribers {
    /// Number of cursors without a filter. The upper half counts cursors that feed other nodes' mirrors.
    all: AtomicU64,
    /// The filters of the other cursors. Most logs have none.
    some: OnceLock<Box<Mutex<Vec<Filter>>>>,
    /// The cursors of all private mirrors of the log. A private mirror shares this list with its log.
    private: OnceLock<Arc<LogSubscribers>>,
    is_private: bool,
}

/// The unit of the count in the upper half of `LogSubscribers::all`, which counts cursors that feed other nodes'
/// mirrors. Both counts share one word, so that they are read together.
const NODE: u64 = 1 << 32;

/// The value that one cursor without a filter adds to `LogSubscribers::all`.
fn one(is_of_node: bool) -> u64 {
    if is_of_node { NODE + 1 } else { 1 }
}

impl LogSubscribers {
    /// The subscribers of a new private mirror. They are also subscribers of the log.
    pub(crate) fn for_private_mirror(log: &LogSubscribers) -> LogSubscribers {
        let private = Arc::clone(log.private.get_or_init(Arc::default));
        LogSubscribers { private: private.into(), is_private: true, ..LogSubscribers::default() }
    }

    /// Adds a cursor. `is_of_node` says whether it feeds a mirror at another node.
    pub(crate) fn enter(&self, filter: Option<&Filter>, is_of_node: bool) {
        match filter.filter(|_| !is_of_node) {
            None => drop(self.all.fetch_add(one(is_of_node), Ordering::Relaxed)),
            Some(filter) => lock(self.some.get_or_init(Box::default)).push(filter.clone()),
        }
        if self.is_private {
            self.private_list().inspect(|list| list.enter(filter, is_of_node));
        }
    }

    /// Removes a cursor that was added with the same arguments.
    pub(crate) fn leave(&self, filter: Option<&Filter>, is_of_node: bool) {
        match (filter.filter(|_| !is_of_node), self.some.get()) {
            (None, _) => drop(self.all.fetch_sub(one(is_of_node), Ordering::Relaxed)),
            (Some(filter), Some(some)) => {
                let mut some = lock(some);
                if let Some(at) = some.iter().position(|other| Arc::ptr_eq(&other.wants, &filter.wants)) {
                    some.swap_remove(at);
                }
            }
            (Some(_), None) => {}
        }
        if self.is_private {
            self.private_list().inspect(|list| list.leave(filter, is_of_node));
        }
    }

    fn private_list(&self) -> Option<&LogSubscribers> {
        self.private.get().map(Arc::as_ref)
    }

    /// Whether there is any cursor.
    pub(crate) fn any(&self) -> bool {
        self.all.load(Ordering::Relaxed) > 0 || self.some.get().is_some_and(|some| !lock(some).is_empty())
    }

    fn hear(&self, tail: &str) -> bool {
        self.all.load(Ordering::Relaxed) > 0 || self.some_hear(tail) || self.private_hear(tail)
    }

    fn hear_here(&self, tail: &str) -> bool {
        let all = self.all.load(Ordering::Relaxed);
        all % NODE > all / NODE || self.some_hear(tail) || self.private_hear(tail)
    }

    fn some_hear(&self, tail: &str) -> bool {
        self.some.get().is_some_and(|some| lock(some).iter().any(|filter| (filter.wants)(tail)))
    }

    fn private_hear(&self, tail: &str) -> bool {
        self.private_list().is_some_and(|list| list.hear_here(tail))
    }
}

impl Log {
    /// Whether a subscriber reads, or will read, the subject with this tail. A group counts as a subscriber as long as
    /// it exists.
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
    fn subject_counts_as_read_until_its_last_subscriber_leaves() {
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
    fn subscriber_of_a_private_mirror_counts_as_local_subscriber() {
        let subscribers = LogSubscribers::default();
        let eu = Filter::new(|tail: &str| tail == "eu");
        let private = LogSubscribers::for_private_mirror(&subscribers);
        private.enter(Some(&eu), false);
        assert!(subscribers.hear_here("eu") && !subscribers.hear_here("us"));
        assert!(private.any() && !subscribers.any(), "the log itself has no subscriber");
        private.leave(Some(&eu), false);
        assert!(!subscribers.hear_here("eu"));
    }

    #[test]
    fn mirror_of_another_node_counts_as_remote_subscriber_only() {
        let subscribers = LogSubscribers::default();
        subscribers.enter(None, true);
        assert!(subscribers.any() && subscribers.hear("eu") && !subscribers.hear_here("eu"));
    }

    #[test]
    fn log_counts_mirrors_and_local_subscribers_separately() {
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
