//! Keeps track of the logs of deleted topics that subscribers still read.
//!
//! Limit: a log is kept for `deleted_age_max`, or until its last subscriber leaves, if this is earlier.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use dunlin_topic::{Log, Topic};

use crate::clock::steady_ns;

/// The logs of deleted topics, each with the time until which its records stay readable, by the monotonic clock.
#[derive(Debug)]
pub(crate) struct DeletedLogs {
    logs: Mutex<Vec<(u64, Weak<Log>)>>,
    age_ns_max: u64,
}

impl DeletedLogs {
    pub(crate) fn new(age_max: Duration) -> DeletedLogs {
        DeletedLogs { logs: Mutex::default(), age_ns_max: age_max.as_nanos().min(u64::MAX.into()) as u64 }
    }

    pub(crate) fn add(&self, topic: &Topic) {
        let until_ns = steady_ns().saturating_add(self.age_ns_max);
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.extend(topic.logs().iter().map(|log| (until_ns, Arc::downgrade(log))));
    }

    /// Drops the records of logs whose time has passed. Records that a subscriber is reading right now stay until the
    /// next call.
    pub(crate) fn drop_expired(&self) {
        let (mut expired, now_ns) = (Vec::new(), steady_ns());
        self.logs.lock().unwrap_or_else(PoisonError::into_inner).retain(|(until_ns, log)| {
            if *until_ns <= now_ns {
                expired.extend(log.upgrade());
            }
            log.strong_count() > 0
        });
        expired.iter().for_each(|log| log.drop_closed());
    }
}
