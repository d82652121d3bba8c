//! Feeds one mirror with the records that its topic's owner sends.

use std::sync::Arc;

use dunlin::topic::{Event, LogName, Position, Subscribe};
use dunlin::{FeedOutcome, FeedStart, MirrorFeed};
use dunlin_client::{Client, Subscriber};

/// Maximum number of events of one feed that are handled before the next feed is served.
const TURN_EVENTS: usize = 1_024;

/// A running feed of a mirror over the connection to the topic's owner.
pub(super) struct MirrorFeedLink {
    feed: Arc<MirrorFeed>,
    subscriber: Subscriber,
    stands: bool,
    /// Whether events remained when the feed was last served.
    is_behind: bool,
    frame: Vec<u8>,
    /// Set while the record in `frame` waits for the subscriber of a private mirror: the record's log, its position,
    /// and the sequence number before it.
    stuck: Option<(Arc<LogName>, Position, u64)>,
}

impl MirrorFeedLink {
    pub(super) fn begin(client: &Client, feed: Arc<MirrorFeed>) -> MirrorFeedLink {
        let mut options = feed.options();
        let after = match feed.beginning() {
            FeedStart::At(start) => {
                options.start = start;
                Vec::new()
            }
            FeedStart::After(held) => held,
        };
        let subscriber = client.subscribe_at_once(&feed.pattern, options, after);
        MirrorFeedLink { feed, subscriber, stands: false, is_behind: false, frame: Vec::new(), stuck: None }
    }

    /// Handles the received events. Returns whether the feed continues.
    pub(super) fn go_on(&mut self) -> bool {
        if !self.feed.is_wanted() {
            self.feed.ended("the mirror has no subscribers");
            return false;
        }
        match self.take_some() {
            Ok(goes_on) => {
                if !goes_on {
                    self.feed.ended("this node owns the topic now");
                }
                goes_on
            }
            Err(why) => {
                self.feed.ended(&why);
                false
            }
        }
    }

    /// Handles the events that were received before the connection ended.
    pub(super) fn end(mut self, why: &str) {
        self.is_behind = true;
        while self.is_behind && self.feed.is_wanted() && matches!(self.take_some(), Ok(true)) {}
        self.feed.ended(why);
    }

    fn take_some(&mut self) -> Result<bool, String> {
        self.is_behind = false;
        if !self.stands {
            match self.subscriber.start_positions() {
                Some(after) => {
                    self.feed.stands(&after);
                    self.stands = true;
                }
                // If the owner refused the subscription, `refused` returns the reason.
                None => {
                    return self.subscriber.refused().map_or(Ok(true), |refused| Err(refused.to_string()));
                }
            }
        }
        if let Some((log, position, prev_seq)) = &self.stuck {
            match self.feed.take_record(log, *position, *prev_seq, &self.frame) {
                FeedOutcome::Later => return Ok(true),
                FeedOutcome::Over => return Ok(false),
                FeedOutcome::Whole => self.stuck = None,
            }
        }
        for _ in 0..TURN_EVENTS {
            let event = self.subscriber.try_next().map_err(|error| error.to_string())?;
            let Some(event) = event else { return Ok(true) };
            match self.feed.take(&event, &mut self.frame) {
                FeedOutcome::Whole => {}
                FeedOutcome::Over => return Ok(false),
                FeedOutcome::Later => {
                    if let Event::Record(record) = event {
                        self.stuck = Some((Arc::clone(record.log), record.position, record.prev_seq));
                    }
                    return Ok(true);
                }
            }
        }
        self.is_behind = true;
        Ok(true)
    }
}
