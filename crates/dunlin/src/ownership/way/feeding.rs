//! What feeds a topic's mirrors: when it begins, who waits for it, and what becomes of them when it ends.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use dunlin_control::Kind;
use dunlin_topic::{Log, Start, Topic};

use super::Way;
use crate::clock::now_ns;
use crate::ownership::feed::Feed;
use crate::ownership::{Ownership, keeper, lock};
use crate::waiting;

/// How far the clock of an owner may be behind this node's.
const SKEW_NS: u64 = 1_000_000_000;

impl Way {
    /// Has the mirrors fed, if somebody reads them and nothing feeds them.
    pub(in crate::ownership) fn feed_if_read(&self) {
        let (Some(ownership), Some(this)) = (self.ownership.upgrade(), self.this.upgrade()) else { return };
        let Some(topic) = self.topic() else { return };
        if topic.logs().iter().any(|log| log.is_read()) {
            self.begin_feed(&ownership, &this, &topic, Start::Latest);
        }
    }

    pub(super) fn begin_feed(
        &self,
        ownership: &Arc<Ownership>,
        this: &Arc<Way>,
        topic: &Topic,
        start: Start,
    ) {
        let feed = {
            let mut state = lock(&self.state);
            let needs_none = state.feed.is_some() || state.owner == ownership.id || self.is_over();
            if needs_none || !ownership.is_alive(state.owner) {
                return;
            }
            let logs: Vec<_> = topic.logs().iter().map(Arc::downgrade).collect();
            let start = match (start, state.read_since_ns) {
                // A place is one log's: the others begin now, and who goes on in one of them has a mirror of its own.
                (Start::After(_), _) if logs.len() > 1 => Start::Latest,
                // Whoever waited since before the owner came back gets what it has taken since.
                (Start::Latest, Some(since_ns)) => Start::Time(since_ns.saturating_sub(SKEW_NS)),
                (start, _) => start,
            };
            let feed = Feed::new(this, logs, start, state.owner, ownership.limits.unread_max);
            Arc::clone(state.feed.insert(Arc::new(feed)))
        };
        let from = feed.from;
        ownership.peers.feed(from, feed);
    }

    /// Whoever waits for a mirror may look again.
    pub(in crate::ownership) fn placed(&self, feed: &Feed) {
        let mut state = lock(&self.state);
        if feed.private.is_none() {
            state.read_since_ns = None;
        }
        drop(state);
        self.placing.notify_all();
        if let Some(ownership) = self.ownership.upgrade() {
            ownership.was_in_time(feed.from);
        }
    }

    /// Waits until a mirror stands where its owner does, as long as that may be soon. Where it was waited for in vain just now
    /// nobody waits, nor on a thread that serves connections ([`Node::open_cursor`](crate::Node::open_cursor)).
    pub(super) fn await_placing(&self, ownership: &Ownership, log: &Log, is_unplaced: impl Fn(&Log) -> bool) {
        if !waiting::is_allowed() {
            return;
        }
        let owner = self.owner().0;
        let may_be_soon =
            (self.kind == Kind::Volatile || ownership.is_alive(owner)) && !ownership.is_late(owner);
        let wait_max = if may_be_soon { ownership.limits.mirror_wait_max } else { Duration::ZERO };
        let state = lock(&self.state);
        let waited = self.placing.wait_timeout_while(state, wait_max, |_| is_unplaced(log));
        let (mut state, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
        if timed_out.timed_out() && is_unplaced(log) {
            state.read_since_ns.get_or_insert_with(now_ns);
            drop(state);
            if may_be_soon {
                ownership.was_late(owner);
            }
        }
    }

    /// A feed has ended. What is still read is fed anew; else what the mirrors hold is given up.
    pub(in crate::ownership) fn feed_ended(&self, feed: &Arc<Feed>, why: &str) {
        let Some(ownership) = self.ownership.upgrade() else { return };
        if feed.private.is_some() {
            lock(&self.state).why = why.to_owned();
            return self.feed_private_again(&ownership, feed);
        }
        let topic = self.topic();
        {
            let mut state = lock(&self.state);
            state.why = why.to_owned();
            if state.feed.take_if(|last| Arc::ptr_eq(last, feed)).is_none() {
                return;
            }
            if self.is_over() {
                drop(state);
                return feed.close();
            }
            // Whoever comes to read has it fed anew, which waits for this: so nothing is given up that a feed goes on from. Nor what
            // the next owner has not taken from here yet: it feeds nobody before it has.
            if let Some(topic) = topic
                && feed.stood()
                && state.draining.is_none()
                && !topic.logs().iter().any(|log| log.is_read())
            {
                topic.logs().iter().for_each(|log| log.starve());
            }
        }
        ownership.keeper.look_at_after(&self.this, keeper::PAUSE);
    }

    fn feed_private_again(&self, ownership: &Arc<Ownership>, feed: &Arc<Feed>) {
        if self.is_over() {
            return feed.close();
        }
        if feed.logs.iter().any(|log| log.strong_count() > 0) {
            let next = feed.again(self.owner().0);
            ownership.keeper.feed_after(next, keeper::PAUSE);
        }
    }
}
