//! Copies the records that a topic's owner sends into one mirror, which is this node's copy of the topic.

use std::sync::Arc;

use dunlin::topic::{Event, LogName, Position, Subscribe};
use dunlin::{MirrorFeed, MirrorFeedOutcome, MirrorFeedStart};
use dunlin_client::{Client, Subscriber};

/// After this many events of one feed, the other feeds are served.
const EVENTS_AT_ONCE_MAX: usize = 1_024;

/// A running feed: the subscription at the topic's owner whose records go into a mirror.
pub(super) struct MirrorFeedLink {
    feed: Arc<MirrorFeed>,
    subscriber: Subscriber,
    is_started: bool,
    /// Whether the feed had more events when it was last served.
    is_behind: bool,
    frame: Vec<u8>,
    /// Set while the record in `frame` has to wait for the subscriber of a private mirror. Contains the record's log,
    /// its position, and the sequence number of the record before it.
    blocked_record: Option<(Arc<LogName>, Position, u64)>,
}

impl MirrorFeedLink {
    pub(super) fn start(client: &Client, feed: Arc<MirrorFeed>) -> MirrorFeedLink {
        let mut options = feed.options();
        let after = match feed.start_position() {
            MirrorFeedStart::At(start) => {
                options.start = start;
                Vec::new()
            }
            MirrorFeedStart::After(positions) => positions,
        };
        let subscriber = client.subscribe_to_placement(&feed.pattern, options, after, feed.placement());
        MirrorFeedLink {
            feed,
            subscriber,
            is_started: false,
            is_behind: false,
            frame: Vec::new(),
            blocked_record: None,
        }
    }

    /// Handles the events that have arrived. Returns whether the feed continues.
    pub(super) fn advance(&mut self) -> bool {
        if let Some(why) = self.feed.unneeded_reason() {
            self.feed.ended(why);
            return false;
        }
        match self.receive_events() {
            Ok(continues) => {
                if !continues {
                    self.feed.ended("this node owns the topic now");
                }
                continues
            }
            Err(why) => {
                self.feed.ended(&why);
                false
            }
        }
    }

    /// Handles the events that had arrived before the connection ended, and then ends the feed.
    pub(super) fn end(mut self, why: &str) {
        self.is_behind = true;
        while self.is_behind && self.feed.is_needed() && matches!(self.receive_events(), Ok(true)) {}
        self.feed.ended(why);
    }

    fn receive_events(&mut self) -> Result<bool, String> {
        self.is_behind = false;
        if !self.is_started {
            match self.subscriber.start_positions() {
                // The owner has not created the topic yet, although this node already knows the topic.
                Some(after) if after.is_empty() => {
                    return Err("the topic's owner does not know the topic yet".to_owned());
                }
                Some(after) => {
                    self.feed.on_accepted(&after);
                    self.is_started = true;
                }
                // If the owner has refused the subscription, `refused` returns the reason; otherwise, no response has
                // arrived yet.
                None => {
                    return self.subscriber.refused().map_or(Ok(true), |refused| Err(refused.to_string()));
                }
            }
        }
        if let Some((log, position, prev_seq)) = &self.blocked_record {
            match self.feed.apply_record(log, *position, *prev_seq, &self.frame) {
                MirrorFeedOutcome::Retry => return Ok(true),
                MirrorFeedOutcome::Ended => return Ok(false),
                MirrorFeedOutcome::Applied => self.blocked_record = None,
            }
        }
        for _ in 0..EVENTS_AT_ONCE_MAX {
            let event = self.subscriber.try_next().map_err(|error| error.to_string())?;
            let Some(event) = event else { return Ok(true) };
            match self.feed.apply(&event, &mut self.frame) {
                MirrorFeedOutcome::Applied => {}
                MirrorFeedOutcome::Ended => return Ok(false),
                MirrorFeedOutcome::Retry => {
                    if let Event::Record(record) = event {
                        self.blocked_record =
                            Some((Arc::clone(record.log), record.position, record.prev_seq));
                    }
                    return Ok(true);
                }
            }
        }
        self.is_behind = true;
        Ok(true)
    }
}
