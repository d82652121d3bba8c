//! Tracks the publisher presence of a state topic: whether publishers are connected, and since when. The owner knows
//! the presence, and reports it to mirrors.
//!
//! Invariants:
//! - The presence changes inside the log's lock, and the change wakes all sleeping cursors. A subscriber that checks
//!   the presence once more after its cursor was armed therefore misses no change.
//! - A mirror uses only the presence that its feed reports, even if publishers are connected to its own process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::event::PublisherStatus;
use crate::log::Log;

/// The number of a topic's publishers. All logs of the topic share one such value.
#[derive(Debug, Default)]
pub(crate) struct PublisherCount {
    local: AtomicU32,
    /// Number of other nodes that have publishers.
    nodes: AtomicU32,
}

/// The kind of an entry in [`PublisherCount`]: a publisher at this node, or another node that has publishers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PublisherKind {
    Local,
    /// Another node that has publishers.
    Node,
}

impl PublisherCount {
    fn counter(&self, kind: PublisherKind) -> &AtomicU32 {
        match kind {
            PublisherKind::Local => &self.local,
            PublisherKind::Node => &self.nodes,
        }
    }

    /// Counts a further publisher. Returns `true` if it is the only one of its kind.
    pub(crate) fn add(&self, kind: PublisherKind) -> bool {
        self.counter(kind).fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Counts one publisher less. Returns `true` if it was the last one of its kind.
    pub(crate) fn remove(&self, kind: PublisherKind) -> bool {
        self.counter(kind).fetch_sub(1, Ordering::Relaxed) == 1
    }

    pub(crate) fn local(&self) -> u32 {
        self.local.load(Ordering::Relaxed)
    }

    fn any(&self) -> bool {
        self.local() > 0 || self.nodes.load(Ordering::Relaxed) > 0
    }
}

/// The publisher presence in one number: twice the time of its last change, in ns, plus 1 if a publisher is connected.
/// 0 if the presence is unknown.
#[derive(Debug, Default)]
pub(super) struct PresenceTime(AtomicU64);

const UNKNOWN: u64 = 0;

impl PresenceTime {
    /// The presence for a log that was just opened: no publisher is connected since the time `ns`.
    pub(super) fn none_since(ns: u64) -> PresenceTime {
        PresenceTime(AtomicU64::new(encode(false, ns)))
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, connected: bool, since_ns: u64) {
        self.0.store(encode(connected, since_ns), Ordering::Relaxed);
    }

    pub(super) fn set_unknown(&self) {
        self.0.store(UNKNOWN, Ordering::Relaxed);
    }
}

fn encode(connected: bool, since_ns: u64) -> u64 {
    since_ns.max(1) << 1 | u64::from(connected)
}

fn is_connected(presence: u64) -> bool {
    presence & 1 == 1
}

/// The publisher presence that was last reported to a follower of the state.
#[derive(Debug, Default)]
pub(crate) struct ReportedPresence {
    presence: u64,
    /// Whether the first report is made even if a publisher is connected. A follower that resumes needs this report:
    /// the node from which it read before may have reported that no publisher was connected.
    reports_connected: bool,
}

impl ReportedPresence {
    pub(crate) fn new(reports_connected: bool) -> ReportedPresence {
        ReportedPresence { presence: UNKNOWN, reports_connected }
    }

    #[inline]
    pub(crate) fn is_due(&self, log: &Log) -> bool {
        let presence = log.publisher_presence.get();
        let is_reportable = self.presence != UNKNOWN || self.reports_connected || !is_connected(presence);
        presence != UNKNOWN && presence != self.presence && is_reportable
    }

    pub(crate) fn take(&mut self, log: &Log) -> Option<PublisherStatus> {
        if !self.is_due(log) {
            return None;
        }
        let (presence, last_append_ns) = {
            let state = log.lock();
            (log.publisher_presence.get(), state.last_append_ns)
        };
        self.presence = presence;
        (presence != UNKNOWN).then(|| PublisherStatus {
            log: Arc::clone(&log.name),
            connected: is_connected(presence),
            since_ns: presence >> 1,
            last_append_ns: (last_append_ns > 0).then_some(last_append_ns),
        })
    }
}

impl Log {
    /// Must be called after the first publisher has connected or the last one has left. Updates the presence and wakes
    /// all sleeping cursors.
    #[cold]
    pub(crate) fn handle_publisher_change(&self) {
        let now_ns = self.clock.now_ns();
        let armed = {
            let mut state = self.lock();
            if state.closed || state.is_mirror() || !self.update_presence(now_ns) {
                return;
            }
            state.take_all_sleepers()
        };
        armed.into_iter().for_each(|armed| armed.waiter.notify(armed.token));
    }

    /// At the owner, sets the presence from the number of publishers. Returns whether it has changed. Must be called
    /// inside the log's lock.
    pub(super) fn update_presence(&self, now_ns: u64) -> bool {
        let (connected, before) = (self.publishers.any(), self.publisher_presence.get());
        let has_changed = before == UNKNOWN || is_connected(before) != connected;
        if has_changed {
            self.publisher_presence.set(connected, now_ns);
        }
        has_changed
    }

    /// Updates the presence when this process takes the log over. If publishers were connected to the previous owner,
    /// they may soon reconnect. Their absence is therefore reported only later, by
    /// [`Topic::notify_publisher_change`](crate::Topic::notify_publisher_change). Must be called inside the log's lock.
    pub(super) fn update_presence_at_takeover(&self, now_ns: u64) {
        let before = self.publisher_presence.get();
        if self.is_stateful() && (before == UNKNOWN || !is_connected(before) || self.publishers.any()) {
            self.update_presence(now_ns);
        }
    }

    /// At a mirror, sets the presence that the owner has reported.
    pub fn feed_publishers(&self, publishers: &PublisherStatus) {
        self.update_mirror(|state| {
            self.publisher_presence.set(publishers.connected, publishers.since_ns);
            state.last_append_ns = state.last_append_ns.max(publishers.last_append_ns.unwrap_or_default());
        });
    }
}
