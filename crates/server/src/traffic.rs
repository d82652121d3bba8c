//! Counts connections by protocol, and HTTP responses by method and status.
//!
//! Limits: one entry for each protocol, and one for each combination of a known HTTP method and a status.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::protocol::Protocol;

/// The HTTP methods that are counted under their names. Other methods are counted together as `other`.
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"];

/// Counters of connections and of HTTP responses.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    listeners: [ConnectionCounters; Protocol::ALL.len()],
    refused: AtomicU64,
    responses: Mutex<BTreeMap<(&'static str, u16), u64>>,
}

/// Counters of one protocol's connections.
#[derive(Debug, Default)]
struct ConnectionCounters {
    open: AtomicU64,
    accepted: AtomicU64,
}

/// Counts a connection as open until the value is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection(Arc<Traffic>, Protocol);

impl Traffic {
    /// Counts a connection that was accepted.
    pub(crate) fn count_accepted(self: &Arc<Traffic>, protocol: Protocol) -> OpenConnection {
        let counters = self.counters(protocol);
        counters.accepted.fetch_add(1, Ordering::Relaxed);
        counters.open.fetch_add(1, Ordering::Relaxed);
        OpenConnection(Arc::clone(self), protocol)
    }

    /// Counts a connection that was refused, because there are too many sessions or the node is still starting.
    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an HTTP response.
    pub(crate) fn count_response(&self, method: &str, status: u16) {
        let method = METHODS.iter().find(|known| **known == method).copied().unwrap_or("other");
        *self
            .responses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry((method, status))
            .or_default() += 1;
    }

    /// For each protocol, the number of connections that are open, and the number accepted since the start.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = (Protocol, u64, u64)> {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Protocol::ALL.into_iter().map(move |protocol| {
            let counters = self.counters(protocol);
            (protocol, read(&counters.open), read(&counters.accepted))
        })
    }

    pub(crate) fn refusals(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The number of HTTP responses, by method and status.
    pub(crate) fn responses(&self) -> Vec<(&'static str, u16, u64)> {
        let responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner);
        responses.iter().map(|((method, status), count)| (*method, *status, *count)).collect()
    }

    fn counters(&self, protocol: Protocol) -> &ConnectionCounters {
        &self.listeners[protocol as usize]
    }
}

impl OpenConnection {
    /// From now on, counts the connection as one of `protocol`.
    pub(crate) fn switch_to(self, protocol: Protocol) -> OpenConnection {
        self.0.count_accepted(protocol)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.counters(self.1).open.fetch_sub(1, Ordering::Relaxed);
    }
}
