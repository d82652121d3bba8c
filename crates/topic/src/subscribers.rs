//! The subscribers of a log, and the subjects that they read. With this list, a request checks whether there is a
//! responder for its subject.
//!
//! Cursors that feed the mirrors of other nodes are counted separately, because only the node of a mirror knows whether
//! the mirror has subscribers. The subscriber of a private mirror is also listed at the mirrored log, because requests
//! look there.
//!
//! Limit: one entry for each cursor with a filter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::cursor::Filter;
use crate::log::Log;

/// The cursors that read one log: their number, and their filters.
#[derive(Debug, Default)]
pub(crate) struct LogSubscribers {
    /// Two numbers of cursors that have no entry in `filters`. The lower half counts all such cursors. The upper half
    /// counts only the ones that feed the mirrors of other nodes.
    unfiltered: AtomicU64,
    /// The filters of all cursors that do not feed the mirror of another node. On most logs, no cursor has a filter.
    filters: OnceLock<Box<Mutex<Vec<Filter>>>>,
    /// The cursors of all private mirrors of the log. The log and its private mirrors share this list.
    private_mirrors: OnceLock<Arc<LogSubscribers>>,
    is_private: bool,
}

/// The unit of the upper half of `LogSubscribers::unfiltered`, which counts cursors that feed the mirrors of other
/// nodes. Both numbers are in one word, so that they can be read together.
const NODE_UNIT: u64 = 1 << 32;

/// The number that one cursor adds to `LogSubscribers::unfiltered`.
fn unit(feeds_node: bool) -> u64 {
    if feeds_node { NODE_UNIT + 1 } else { 1 }
}

impl LogSubscribers {
    /// Creates the list for a new private mirror. `log` is the list of the mirrored log, in which the cursors of the
    /// private mirror also count.
    pub(crate) fn for_private_mirror(log: &LogSubscribers) -> LogSubscribers {
        let private_mirrors = Arc::clone(log.private_mirrors.get_or_init(Arc::default));
        LogSubscribers {
            private_mirrors: private_mirrors.into(),
            is_private: true,
            ..LogSubscribers::default()
        }
    }

    /// Whether the log is a private mirror.
    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// Adds a cursor. `feeds_node` states whether the cursor feeds the mirror of another node.
    pub(crate) fn add(&self, filter: Option<&Filter>, feeds_node: bool) {
        match filter.filter(|_| !feeds_node) {
            None => drop(self.unfiltered.fetch_add(unit(feeds_node), Ordering::Relaxed)),
            Some(filter) => lock(self.filters.get_or_init(Box::default)).push(filter.clone()),
        }
        if self.is_private {
            self.private_mirrors().inspect(|list| list.add(filter, feeds_node));
        }
    }

    /// Removes a cursor that was added with the same arguments.
    pub(crate) fn remove(&self, filter: Option<&Filter>, feeds_node: bool) {
        match (filter.filter(|_| !feeds_node), self.filters.get()) {
            (None, _) => drop(self.unfiltered.fetch_sub(unit(feeds_node), Ordering::Relaxed)),
            (Some(filter), Some(filters)) => {
                let mut filters = lock(filters);
                if let Some(at) =
                    filters.iter().position(|other| Arc::ptr_eq(&other.accepts, &filter.accepts))
                {
                    filters.swap_remove(at);
                }
            }
            (Some(_), None) => {}
        }
        if self.is_private {
            self.private_mirrors().inspect(|list| list.remove(filter, feeds_node));
        }
    }

    fn private_mirrors(&self) -> Option<&LogSubscribers> {
        self.private_mirrors.get().map(Arc::as_ref)
    }

    /// Whether any cursor is listed.
    pub(crate) fn any(&self) -> bool {
        self.unfiltered.load(Ordering::Relaxed) > 0
            || self.filters.get().is_some_and(|filters| !lock(filters).is_empty())
    }

    fn accepts(&self, tail: &str) -> bool {
        self.unfiltered.load(Ordering::Relaxed) > 0 || self.filter_accepts(tail) || self.private_accepts(tail)
    }

    fn accepts_locally(&self, tail: &str) -> bool {
        let counts = self.unfiltered.load(Ordering::Relaxed);
        counts % NODE_UNIT > counts / NODE_UNIT || self.filter_accepts(tail) || self.private_accepts(tail)
    }

    fn filter_accepts(&self, tail: &str) -> bool {
        self.filters.get().is_some_and(|filters| lock(filters).iter().any(|filter| (filter.accepts)(tail)))
    }

    fn private_accepts(&self, tail: &str) -> bool {
        self.private_mirrors().is_some_and(|list| list.accepts_locally(tail))
    }
}

impl Log {
    /// Whether any subscriber reads the subject with this tail. A group counts as a subscriber as long as it exists,
    /// even without members.
    pub fn has_subscriber(&self, tail: &str) -> bool {
        self.subscribers.accepts(tail)
    }

    /// Like [`has_subscriber`](Log::has_subscriber), but cursors that feed the mirrors of other nodes do not count.
    pub fn has_local_subscriber(&self, tail: &str) -> bool {
        self.subscribers.accepts_locally(tail)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_stays_subscribed_until_its_last_reader_leaves() {
        let subscribers = LogSubscribers::default();
        let eu = Filter::new(|tail: &str| tail == "eu");
        subscribers.add(Some(&eu), false);
        assert!(subscribers.accepts("eu") && !subscribers.accepts("us"));
        subscribers.add(None, false);
        assert!(subscribers.accepts("us"));
        subscribers.remove(None, false);
        subscribers.remove(Some(&eu), false);
        assert!(!subscribers.accepts("eu") && !subscribers.accepts("us"));
    }

    #[test]
    fn subscriber_of_a_private_mirror_counts_as_local_subscriber() {
        let subscribers = LogSubscribers::default();
        let eu = Filter::new(|tail: &str| tail == "eu");
        let private = LogSubscribers::for_private_mirror(&subscribers);
        private.add(Some(&eu), false);
        assert!(subscribers.accepts_locally("eu") && !subscribers.accepts_locally("us"));
        assert!(private.any() && !subscribers.any(), "the log itself has no subscriber");
        private.remove(Some(&eu), false);
        assert!(!subscribers.accepts_locally("eu"));
    }

    #[test]
    fn mirror_of_another_node_counts_as_remote_subscriber_only() {
        let subscribers = LogSubscribers::default();
        subscribers.add(None, true);
        assert!(subscribers.any() && subscribers.accepts("eu") && !subscribers.accepts_locally("eu"));
    }

    #[test]
    fn log_counts_mirrors_and_local_subscribers_separately() {
        let subscribers = LogSubscribers::default();
        subscribers.add(None, true);
        assert!(subscribers.any() && subscribers.accepts("eu") && !subscribers.accepts_locally("eu"));
        subscribers.add(None, false);
        assert!(subscribers.accepts_locally("eu"));
        subscribers.remove(None, false);
        assert!(subscribers.any() && !subscribers.accepts_locally("eu"));
        subscribers.remove(None, true);
        assert!(!subscribers.any());
    }
}
