//! Mirrors: logs that another node owns or may own. This module handles what a mirror receives from the owner (its
//! feed), and what the subscribers of a mirror receive when the owner changes.
//!
//! Invariants:
//! - A mirror's records have the same positions as the owner's records. If the feed lacks records, each subscriber
//!   receives a gap. Records before the start of the feed are skipped without a gap, because no subscriber requested
//!   them.
//! - From the start of its feed, a mirror has each record and knows the end of each epoch, or reports what is missing.
//!   Subscribers that need earlier records read them from the owner.
//! - The mirror ignores records of a lower epoch than its own: they come from an earlier owner that does not know its
//!   successor yet.
//! - The state of a mirror equals the owner's state after the mirror's last record. If the two states differ, followers
//!   of the state wait until the mirror has received the owner's state.
//! - A segment belongs to one epoch. If a new epoch continues the sequence numbers of the old one, the history stays
//!   readable. If the sequence numbers restart at 1, the mirror drops the history, and tells subscribers which record
//!   of the old epoch was the last one that the mirror received.
//!
//! Limits: a mirror remembers [`EPOCHS_MAX`] past epochs and [`SKIPS_MAX`] skipped ranges. If a subscriber needs older
//! ones, it receives a gap.

mod feed;
mod lookup;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::config::{ReliableOptions, Retention, TopicConfig};
use crate::event::{LogName, Position};
use crate::log::sleepers::SleepingCursor;
use crate::log::{Log, LogContents, Lookup};
use crate::producer::Producers;
use crate::subscribe::Start;
use crate::subscribers::LogSubscribers;
use crate::upstream::Upstream;

pub use feed::MirrorFeedError;
pub(super) use lookup::UnfedPolicy;

const EPOCHS_MAX: usize = 64;
const SKIPS_MAX: usize = 64;

/// The data of a log that is or was a mirror: its feed, its epochs, and the ranges that it skipped.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    is_owner: bool,
    /// Whether the mirror's feed has begun. Only then is the mirror's position a position in the owner's log.
    feed_started: bool,
    /// Whether this process owned the log until it handed the log over. The next owner then copies the records from
    /// this process.
    was_owner: bool,
    /// The last epoch in which this process owned the log before it handed the log over; 0 if it has never handed the
    /// log over.
    owned_epoch: u32,
    /// Whether this is a private mirror, which serves only one subscriber.
    private: bool,
    /// Whether the topic is durable at its owner, which may then have dropped records from its disk.
    owner_is_durable: bool,
    /// Whether the owner retains more records than this mirror. If a subscriber needs records that the mirror has
    /// dropped, the subscriber reads them at the owner.
    owner_retains_more: bool,
    /// For a private mirror: the range of records that the owner retained when it warned the mirror's feed of a loss.
    at_owner: Option<Range<u64>>,
    /// The first sequence number of the present epoch.
    first_seq: u64,
    /// The position at which the feed started. The mirror has never had the records before it.
    fed_from: Position,
    past: VecDeque<PastEpoch>,
    /// The last epoch before the sequence numbers restarted at 1. The mirror has dropped the records of this epoch.
    dropped_epoch: Option<PastEpoch>,
    /// The position from which the owner's records are missing; set if the mirror was closed before it had received
    /// them all.
    lost_from: Option<Position>,
    /// Ranges of sequence numbers that were skipped, because no subscriber of this mirror had requested them.
    skipped: VecDeque<Range<u64>>,
}

#[derive(Debug, Clone, Copy)]
struct PastEpoch {
    epoch: u32,
    /// The sequence number after the mirror's last known record of this epoch.
    next_seq: u64,
    /// Whether it is certain that the epoch had no record at `next_seq` or later.
    is_complete: bool,
    next_start: Position,
}

impl Log {
    /// Lets other nodes become the owner of the log: from now on, the log accepts records only while `upstream`
    /// confirms that this process is the owner.
    pub fn set_upstream(&self, upstream: Arc<dyn Upstream>) {
        let clock = upstream.clock();
        let _ = self.upstream.set(upstream);
        self.publisher_presence.set_unknown();
        let mut state = self.lock();
        (state.owned_until_ns, state.ownership_clock) = (0, clock);
    }

    /// Hands the log over to another node. The log's records stay readable, and the log continues as a mirror.
    ///
    /// `owner_is_durable` states whether the topic is durable at the next owner. `next_epoch` is set if the next owner
    /// copies all records and then begins a new epoch. It is the number of this new epoch. The present epoch then ends
    /// at the handover.
    pub fn hand_over(&self, owner_is_durable: bool, next_epoch: Option<u32>) {
        let armed = self.hand_over_locked(owner_is_durable, next_epoch);
        armed.into_iter().for_each(|armed| armed.waiter.notify(armed.token));
    }

    fn hand_over_locked(&self, owner_is_durable: bool, next_epoch: Option<u32>) -> Vec<SleepingCursor> {
        let mut state = self.lock();
        // From now on, the feed from the next owner reports whether publishers are connected.
        self.publisher_presence.set_unknown();
        state.owned_until_ns = 0;
        let (epoch, epoch_first, has_records) = (state.epoch, state.oldest_in_memory(), state.next_seq > 1);
        // Only the process that was the owner had all records of the epoch, and knows where the epoch ends.
        let was_owner = !state.is_mirror();
        let is_new = state.mirror().is_none();
        let mirror = state.mirror_or_new();
        if mirror.first_seq == 0 {
            // The log was never a mirror, so it has had all records from the beginning.
            (mirror.first_seq, mirror.fed_from) = (epoch_first.min(1), Position::default());
            mirror.feed_started |= has_records;
        }
        if was_owner && (has_records || !is_new) {
            (mirror.was_owner, mirror.owned_epoch) = (true, epoch);
        }
        (mirror.is_owner, mirror.owner_is_durable) = (false, owner_is_durable);
        // Forget the producers and their numbers. If this process becomes the owner again, it accepts any number as a
        // producer's first one.
        let limits = state.limits;
        state.rare().producers = Producers::new(limits);
        state.wake_publishers();
        match next_epoch.filter(|&epoch| was_owner && epoch > state.epoch) {
            Some(epoch) => {
                let next = Position { epoch, seq: state.next_seq };
                state.begin_epoch(next, true);
                state.take_all_sleepers()
            }
            None => Vec::new(),
        }
    }

    /// Makes this process the log's owner in the epoch `epoch`. `is_complete` states that this log has all records of
    /// the previous epoch. Does nothing if the feed has already delivered records of a later epoch, which has another
    /// owner.
    pub fn take_over(&self, epoch: u32, is_complete: bool) {
        let now_ns = self.clock.now_ns();
        let armed = {
            let mut state = self.lock();
            if epoch < state.epoch && state.is_mirror() {
                return;
            }
            let next = Position { epoch, seq: state.next_seq };
            if epoch > state.epoch {
                state.begin_epoch(next, is_complete);
            }
            state.owned_until_ns = 0;
            state.rare().owned_from = (next, state.last_append_ns);
            let mirror = state.mirror_or_new();
            (mirror.is_owner, mirror.feed_started) = (true, true);
            self.update_presence_at_takeover(now_ns);
            state.take_all_sleepers()
        };
        armed.into_iter().for_each(|armed| armed.waiter.notify(armed.token));
    }

    /// Sets that the owner retains more records than this mirror. A record that the mirror drops is then still at the
    /// owner, so the mirror sends no lag warnings to its subscribers.
    pub(crate) fn set_owner_retains_more(&self) {
        self.lock().mirror_or_new().owner_retains_more = true;
    }

    /// Whether another process owns the log.
    pub fn is_mirror(&self) -> bool {
        self.lock().is_mirror()
    }

    /// The newest epoch whose records a group at this process may deliver. For a log that this process has handed over
    /// to another process, the epoch of the handover; otherwise, the present epoch.
    pub fn owned_through(&self) -> u32 {
        let state = self.lock();
        match state.mirror() {
            Some(mirror) if !mirror.is_owner && mirror.owned_epoch > 0 => mirror.owned_epoch,
            _ => state.epoch,
        }
    }

    /// Whether the log's position is a position in the owner's log: this process owns the log, or the feed of this
    /// mirror has begun.
    pub fn is_positioned(&self) -> bool {
        self.lock().mirror().is_none_or(|mirror| mirror.is_owner || mirror.feed_started)
    }

    /// Whether the log was closed without the owner's last records.
    #[cold]
    pub(crate) fn lacks_end(&self) -> bool {
        self.lock().end_after_loss().is_some()
    }

    /// Whether the log has any subscriber.
    pub fn has_subscribers(&self) -> bool {
        self.subscribers.any()
    }

    /// Creates a private mirror of the log `of`. It holds up to `memory_bytes` bytes that its subscriber has not read.
    pub fn private_mirror(of: &Log, memory_bytes: u64) -> Arc<Log> {
        let reliable = ReliableOptions { subscribers_max: 1, ..ReliableOptions::default() };
        let retention = Retention { bytes: memory_bytes, ..Retention::default() };
        let config = TopicConfig {
            retention,
            reliable: Some(reliable),
            durable: None,
            reducer: None,
            ..of.config().clone()
        };
        let LogName { topic, subject_prefix, partition } = &*of.name;
        let (topic, subject_prefix) = (topic.clone(), subject_prefix.clone());
        let name = LogName { topic, subject_prefix, partition: *partition };
        let mut log = Log::new(name, Arc::new(config), Arc::clone(&of.budget), of.clock, 0, &of.publishers);
        log.number = of.number;
        log.follows_deleted = of.follows_deleted.load(Relaxed).into();
        log.subscribers = LogSubscribers::for_private_mirror(&of.subscribers);
        log.listed_subscribers = of.listed_subscribers.share();
        log.share_losses_of(of);
        if let Some(upstream) = of.upstream.get() {
            log.set_upstream(Arc::clone(upstream));
        }
        log.lock().mirror_or_new().private = true;
        let private = Arc::new(log);
        of.listed_subscribers.add_private_mirror(&private);
        private
    }

    /// Sets the position of a private mirror before its feed begins: its first record follows the position `after`.
    pub fn start_after(&self, after: Position) {
        let mut state = self.lock();
        (state.epoch, state.next_seq) = (after.epoch, after.seq.saturating_add(1));
    }

    /// Whether the log is a private mirror, whose only subscriber is always registered. Takes no lock.
    pub(crate) fn is_private(&self) -> bool {
        self.subscribers.is_private()
    }

    /// Whether the feed of this mirror has begun, at this position or an earlier one.
    pub(crate) fn was_fed(&self, next: Position) -> bool {
        self.lock().mirror().is_some_and(|mirror| mirror.feed_started && next >= mirror.fed_from)
    }

    /// If the log is a mirror, asks the upstream to start its feed, for a subscriber with this start.
    #[cold]
    pub(crate) fn request_feed(self: &Arc<Log>, start: Start) {
        if self.is_mirror()
            && let Some(upstream) = self.upstream.get()
        {
            upstream.start_feed(self, start);
        }
    }

    /// Asks the upstream until when this process owns the log. Returns whether the log accepts records.
    #[cold]
    pub(crate) fn renew_ownership(&self) -> bool {
        let Some(upstream) = self.upstream.get() else { return false };
        let until_ns = upstream.owned_until_ns();
        let mut state = self.lock();
        if state.closed || state.is_mirror() {
            return false;
        }
        state.owned_until_ns = until_ns;
        upstream.clock().now_ns() < until_ns
    }
}

fn after(at: Position) -> Position {
    Position { seq: at.seq.saturating_add(1), ..at }
}

impl Mirror {
    /// The first sequence number of the present epoch.
    pub(super) fn first_seq(&self) -> u64 {
        self.first_seq.max(1)
    }

    /// Position of the first known record in the epochs after `epoch`. `None` if it is not known that `epoch` has
    /// ended. `oldest` returns the position of the oldest retained record.
    pub(super) fn first_after(&self, epoch: u32, oldest: impl FnOnce() -> Position) -> Option<Position> {
        if self.past.front().is_some_and(|first| first.epoch > epoch) {
            return Some(oldest());
        }
        self.past.iter().map(|past| past.next_start).find(|first| first.epoch > epoch)
    }

    /// Whether the log is a shared mirror, which may have several subscribers.
    fn is_shared(&self) -> bool {
        !self.is_owner && !self.private
    }

    /// The start of the earliest known epoch after `epoch`. If sequence numbers have restarted at 1, only epochs since
    /// the restart count.
    fn epoch_start_after(&self, epoch: u32) -> Option<Position> {
        let since = self.dropped_epoch.map_or(0, |dropped| dropped.epoch).max(epoch);
        let starts = self.past.iter().chain(&self.dropped_epoch).map(|past| past.next_start);
        starts.chain([self.fed_from]).filter(|start| start.epoch > since).min()
    }

    fn epoch_of(&self, state: &LogContents, seq: u64) -> u32 {
        self.past.iter().find(|past| seq < past.next_seq).map_or(state.epoch, |past| past.epoch)
    }
}

impl LogContents {
    pub(super) fn mirror(&self) -> Option<&Mirror> {
        self.rare.as_ref()?.mirror.as_deref()
    }

    pub(super) fn is_mirror(&self) -> bool {
        self.mirror().is_some_and(|mirror| !mirror.is_owner)
    }

    /// Whether the log accepts records from the owner. A closed log does not: if a topic with the same name is created
    /// again, its records go to another log.
    fn accepts_feed(&self) -> bool {
        self.is_mirror() && !self.closed
    }

    /// Whether only the owner knows when subscribers of this log are about to lose records. This is the case if the log
    /// is a mirror that loses nothing by dropping records: the owner retains them, or the only subscriber has read
    /// them.
    pub(super) fn is_warned_by_owner(&self) -> bool {
        self.mirror().is_some_and(|mirror| !mirror.is_owner && (mirror.private || mirror.owner_retains_more))
    }

    /// The range of records to state in a lag warning: the records that the owner retains, if the owner has warned the
    /// feed of this mirror; otherwise, the records that can be read in this log.
    pub(super) fn warned_range(&self, config: &TopicConfig) -> Range<u64> {
        let at_owner = self.mirror().and_then(|mirror| mirror.at_owner.clone());
        at_owner.unwrap_or_else(|| self.oldest_seq(config)..self.visible_next())
    }

    fn mirror_or_new(&mut self) -> &mut Mirror {
        self.rare().mirror.get_or_insert_default()
    }

    /// The epoch of the record with this sequence number, in a log that may have changed owners.
    pub(super) fn mirrored_epoch_of(&self, seq: u64) -> u32 {
        self.mirror().map_or(self.epoch, |mirror| mirror.epoch_of(self, seq))
    }

    /// Whether a subscriber that has read everything up to `at` can continue in this log.
    fn can_continue_after(&self, mirror: &Mirror, at: Position) -> bool {
        let known = at.epoch == self.epoch || mirror.past.iter().any(|past| past.epoch == at.epoch);
        known && self.had_records_from(mirror, after(at))
    }

    /// Whether this mirror has received the record at `next` and all later records. If the topic is durable at its
    /// owner, the mirror must in addition still have them.
    fn had_records_from(&self, mirror: &Mirror, next: Position) -> bool {
        next >= mirror.fed_from && (!mirror.owner_is_durable || next.seq >= self.oldest_in_memory())
    }

    /// Returns `start` or, if the log was closed without the owner's last records, the position of this loss if that is
    /// earlier. A new subscriber then receives the report of the loss.
    pub(super) fn start_before_loss(&self, start: Position) -> Position {
        let lost_from = self.mirror().and_then(|mirror| mirror.lost_from);
        lost_from.map_or(start, |lost_from| start.min(lost_from))
    }

    /// If the log was closed without the owner's last records: where its subscribers end, after the report of the loss.
    /// The position may belong to a later topic, and is before that topic's first record.
    pub(super) fn end_after_loss(&self) -> Option<Position> {
        let lost_from = self.mirror().and_then(|mirror| mirror.lost_from);
        lost_from.map(|_| Position { epoch: self.epoch, seq: 1 })
    }

    fn feed_started(&self) -> bool {
        self.mirror().is_some_and(|mirror| mirror.feed_started)
    }

    fn state_continues_with(&mut self, first: Position) -> bool {
        match first.epoch > self.epoch {
            true if first.seq == 1 => {
                self.clear_state();
                true
            }
            true => false,
            false => first.seq <= self.next_seq,
        }
    }

    /// Marks the state as wrong. The next state from the feed then replaces the wrong state, even if the new state's
    /// position is earlier.
    fn invalidate_state(&mut self) {
        self.mirror_or_new().feed_started = false;
    }

    /// Drops all records and continues at `next_seq`, because the feed delivers the records from there again.
    /// Subscribers that have already read some of them wait for later records.
    fn rewind_to(&mut self, next_seq: u64) {
        self.drop_all();
        self.next_seq = next_seq;
        self.mirror_or_new().skipped.clear();
    }

    fn start_feed_at_end(&mut self) {
        let end = Position { epoch: self.epoch, seq: self.next_seq };
        let mirror = self.mirror_or_new();
        (mirror.feed_started, mirror.fed_from) = (true, end);
    }

    fn find_at_end(&self, seq: u64) -> Lookup {
        match self.segment_of(seq) {
            Some(segment) => Lookup::Segment(Arc::clone(segment)),
            None if self.closed => Lookup::Closed,
            None => Lookup::Nothing,
        }
    }

    /// The first sequence number of the first retained segment that begins after `seq`. Without such a segment, the
    /// sequence number of the next record.
    fn first_after(&self, seq: u64, config: &TopicConfig) -> u64 {
        let segments = self.retained.iter().map(|retained| &retained.segment);
        let segments = segments.chain(self.writer.as_ref().map(|writer| writer.segment()));
        let first = segments.map(|segment| segment.first_seq).find(|&first| first > seq);
        first.unwrap_or(self.next_seq).max(self.oldest_seq(config).min(self.next_seq))
    }

    /// Continues at `next_seq`, because the records before it are missing. Subscribers receive a gap.
    fn leave_gap_to(&mut self, next_seq: u64) {
        self.seal();
        self.next_seq = next_seq;
    }

    /// Continues at `next_seq` without a gap, because no subscriber of this log requested the records before it.
    fn skip_to(&mut self, next_seq: u64) {
        let range = self.next_seq..next_seq;
        self.leave_gap_to(next_seq);
        let mirror = self.mirror_or_new();
        if mirror.skipped.len() >= SKIPS_MAX {
            mirror.skipped.pop_front();
        }
        mirror.skipped.push_back(range);
    }

    /// Begins a new epoch, whose first record is at `first`. `is_complete` states that this log has all records of the
    /// old epoch.
    fn begin_epoch(&mut self, first: Position, is_complete: bool) {
        self.seal();
        let (epoch, next_seq) = (self.epoch, self.next_seq);
        if first.seq < next_seq {
            // The sequence numbers restart, so new records will have the same numbers as old ones. The old records are
            // dropped.
            self.drop_all();
            let mirror = self.mirror_or_new();
            mirror.past.clear();
            mirror.skipped.clear();
            mirror.dropped_epoch = Some(PastEpoch { epoch, next_seq, is_complete, next_start: first });
        } else {
            let mirror = self.mirror_or_new();
            if mirror.past.len() >= EPOCHS_MAX {
                mirror.past.pop_front();
            }
            mirror.past.push_back(PastEpoch { epoch, next_seq, is_complete, next_start: first });
        }
        (self.epoch, self.next_seq) = (first.epoch, first.seq);
        self.mirror_or_new().first_seq = first.seq;
    }
}
