//! Whether anybody reads a log, and which of its subjects: whoever asks something wants to know that somebody hears it.
//!
//! Limit: one entry for each reader that skips subjects.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::cursor::Filter;
use crate::log::Log;

/// The cursors of one log.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    /// Those that skip no subject.
    all: AtomicU32,
    /// What the others take. Most logs have none.
    some: OnceLock<Box<Mutex<Vec<Filter>>>>,
}

impl Listeners {
    pub(crate) fn enter(&self, filter: Option<&Filter>) {
        match filter {
            None => drop(self.all.fetch_add(1, Ordering::Relaxed)),
            Some(filter) => lock(self.some.get_or_init(Box::default)).push(filter.clone()),
        }
    }

    pub(crate) fn leave(&self, filter: Option<&Filter>) {
        match (filter, self.some.get()) {
            (None, _) => drop(self.all.fetch_sub(1, Ordering::Relaxed)),
            (Some(filter), Some(some)) => {
                let mut some = lock(some);
                if let Some(at) = some.iter().position(|other| Arc::ptr_eq(&other.wants, &filter.wants)) {
                    some.swap_remove(at);
                }
            }
            (Some(_), None) => {}
        }
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        self.all.load(Ordering::Relaxed) > 0 || self.some.get().is_some_and(|some| !lock(some).is_empty())
    }

    fn hear(&self, tail: &str) -> bool {
        self.all.load(Ordering::Relaxed) > 0
            || self.some.get().is_some_and(|some| lock(some).iter().any(|filter| (filter.wants)(tail)))
    }
}

impl Log {
    /// Whether anybody reads, or will read, what is published to the subject with this tail; a group does as long as it stands.
    pub fn has_listener(&self, tail: &str) -> bool {
        self.listeners.hear(tail)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_takes_the_subject_hears_it_and_only_until_it_leaves() {
        let listeners = Listeners::default();
        let eu = Filter::new(|tail: &str| tail == "eu");
        listeners.enter(Some(&eu));
        assert!(listeners.hear("eu") && !listeners.hear("us"));
        listeners.enter(None);
        assert!(listeners.hear("us"));
        listeners.leave(None);
        listeners.leave(Some(&eu));
        assert!(!listeners.hear("eu") && !listeners.hear("us"));
    }
}
