//! Serves a log's cursors inside the log's lock: looks up positions, puts cursors to sleep and wakes them, and tracks
//! registered subscribers.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::event::{EpochChanged, Gap, Lagging, Position, Record};
use crate::log::mirror::UnfedPolicy;
use crate::log::sleepers::{SleeperId, SleepingCursor};
use crate::log::stored::DiskProgress;
use crate::log::{CatchUpRequest, Log, LogContents};
use crate::publish::PublishError;
use crate::segment::{PinnedSegment, Segment};
use crate::store::ReadDeferred;
use crate::subscribe::{OnGap, Start, SubscribeError};
use crate::wake::Waiter;

/// By how much the owner's clock may be behind the clock of a node that has a mirror, ns.
const SKEW_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub(crate) enum Lookup {
    /// The next record is in this segment, or will be written to it.
    Segment(Arc<Segment>),
    Nothing,
    /// The next record is on disk, but cannot be read at present. The read may be repeated after the store's next call
    /// of [`Log::retry_reads`]. `retries` is the number of the store's calls before this lookup.
    Later {
        retries: u64,
    },
    /// The cursor continues at this position without a gap: no subscriber receives the records before it.
    Skip(Position),
    /// Only the log's owner has the next records. The subscriber needs a private mirror to read them.
    PrivateMirror,
    /// The next records were dropped. After the gap, the cursor may continue at this position.
    Gap(Gap, Position),
    /// The cursor's epoch has ended. The cursor may continue in the next epoch.
    EpochChanged(EpochChanged),
    /// There is nothing to read, now or later, because the log is closed.
    Closed,
}

/// Where a cursor starts, and what it delivers before the record at this position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartPoint {
    pub(crate) next: Position,
    /// Records that were appended before this time are skipped, ns since the Unix epoch.
    pub(crate) appended_from_ns: u64,
    pub(crate) request: Option<CatchUpRequest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SubscriberId(NonZeroU32);

#[derive(Debug, Default)]
pub(super) struct RegisteredSubscribers {
    list: Vec<RegisteredSubscriber>,
    last_id: u32,
    /// Publishers that wait until there is room for their records.
    publishers: Vec<Arc<Waiter>>,
}

#[derive(Debug)]
struct RegisteredSubscriber {
    id: SubscriberId,
    name: String,
    consumed: u64,
}

impl RegisteredSubscribers {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn take_publishers(&mut self) -> impl Iterator<Item = Arc<Waiter>> {
        self.publishers.drain(..)
    }

    /// Checks that all registered subscribers have consumed the records up to `last`. With `evict`, unregisters the
    /// subscribers that have not.
    pub(super) fn check_consumed(&mut self, last: u64, evict: bool) -> Result<(), PublishError> {
        if evict {
            self.list.retain(|subscriber| subscriber.consumed >= last);
        }
        match self.list.iter().min_by_key(|subscriber| subscriber.consumed) {
            Some(slowest) if slowest.consumed < last => Err(PublishError::Full {
                subscriber: slowest.name.clone(),
                needed: slowest.consumed + 1,
                waited: std::time::Duration::ZERO,
            }),
            _ => Ok(()),
        }
    }
}

impl super::LogContents {
    pub(super) fn wake_publishers(&mut self) {
        let Some(rare) = &mut self.rare else { return };
        rare.registered.publishers.drain(..).for_each(|waiter| waiter.notify(Waiter::ROOM));
    }
}

impl Log {
    /// Computes where a cursor starts. A follower of the state receives the state first if its unread records are much
    /// larger than the state.
    pub(crate) fn start(&self, start: Start, follows_state: bool) -> Result<StartPoint, SubscribeError> {
        let state = self.lock();
        // `last` also counts records that are not visible yet: a client that has published such a record may already
        // know its position and start there.
        let last = state.last();
        let oldest = state.start_before_loss(state.oldest(&self.config));
        let at = |next| StartPoint { next, appended_from_ns: 0, request: None };
        let newest = at(state.start_before_loss(Position { seq: state.visible_next(), ..last }));
        Ok(match start {
            Start::Earliest => at(oldest),
            Start::Latest => newest,
            Start::Snapshot => StartPoint { request: Some(CatchUpRequest::State), ..newest },
            Start::After(requested) if requested > last && !state.is_mirror() && !self.is_replicated() => {
                return Err(SubscribeError::Ahead { requested, last });
            }
            Start::After(requested)
                if follows_state
                    && requested.epoch == last.epoch
                    && state.is_state_cheaper(requested.seq) =>
            {
                StartPoint { request: Some(CatchUpRequest::Since(requested)), ..newest }
            }
            // The addition must not overflow: a position in a past epoch may have any sequence number, even the largest
            // one.
            Start::After(requested) => at(Position { seq: requested.seq.saturating_add(1), ..requested }),
            Start::Time(ns) if state.stored().is_some() => {
                StartPoint { appended_from_ns: ns, ..at(self.position_since(state, ns)) }
            }
            Start::Time(ns) => {
                let after = state.retained.partition_point(|retained| retained.last_append_ns < ns);
                let seq = state.retained.get(after).map(|retained| retained.segment.first_seq);
                let tail = || state.writer.as_ref().map_or(state.next_seq, |w| w.segment().first_seq);
                let seq = seq.unwrap_or_else(tail).max(oldest.seq);
                let epoch = state.mirrored_epoch_of(seq);
                StartPoint { appended_from_ns: ns, ..at(Position { epoch, seq }) }
            }
        })
    }

    /// Computes where this owner starts the feed of a mirror. The mirror's subscribers have waited for an owner since
    /// the time `since_ns`.
    ///
    /// This owner's clock may be up to [`SKEW_NS`] behind the mirror's. The feed therefore also includes records that
    /// this owner appended up to [`SKEW_NS`] before `since_ns`. The feed does not include records from before this
    /// process became the owner, because subscribers may have received those already.
    pub(crate) fn feed_start(&self, since_ns: u64) -> Result<StartPoint, SubscribeError> {
        let (first, last_ns) =
            self.lock().rare.as_ref().map_or_else(Default::default, |rare| rare.owned_from);
        if since_ns <= last_ns {
            return self.start(Start::Time(since_ns), false);
        }
        let begin = self.start(Start::Time(since_ns.saturating_sub(SKEW_NS)), false)?;
        Ok(StartPoint { next: begin.next.max(first), ..begin })
    }

    /// Looks up the record at `next`. If `subscriber` is set, also marks all records before `next` as consumed by this
    /// registered subscriber.
    pub(crate) fn find(&self, next: Position, on_gap: OnGap, subscriber: Option<SubscriberId>) -> Lookup {
        let mut state = self.lock();
        state.mark_consumed_before(next, subscriber);
        if self.config.durable.is_some() {
            return self.find_stored(state, next, on_gap);
        }
        if state.mirror().is_some() {
            return self.find_mirrored(&state, next, on_gap, UnfedPolicy::ReadFromOwner);
        }
        // A reliable topic drops a segment only after its subscribers have consumed it, whatever the maximum number of
        // records. Subscribers may therefore read all records that are in memory.
        let oldest = if self.config.reliable.is_some() {
            state.oldest_in_memory()
        } else {
            state.oldest_seq(&self.config)
        };
        let resume_at = match on_gap {
            OnGap::Newest | OnGap::Snapshot => state.next_seq,
            OnGap::Oldest | OnGap::Fail => oldest,
        };
        let resume_at = Position { epoch: state.epoch, seq: resume_at };
        let end = Position { epoch: state.epoch, seq: state.next_seq };
        if next > end && self.is_replicated() {
            return if state.closed { Lookup::Closed } else { Lookup::Nothing };
        }
        if next.epoch != state.epoch {
            return Lookup::EpochChanged(EpochChanged {
                log: Arc::clone(&self.name),
                old: next.epoch,
                last_seen: next.seq.saturating_sub(1),
                known_through: None,
                new_first: resume_at,
            });
        }
        if next.seq < oldest {
            let log = Arc::clone(&self.name);
            let gap = Gap { log, epoch: next.epoch, first: next.seq, last: resume_at.seq - 1 };
            return Lookup::Gap(gap, resume_at);
        }
        match state.segment_of(next.seq) {
            Some(segment) => Lookup::Segment(Arc::clone(segment)),
            None if state.closed => Lookup::Closed,
            None => Lookup::Nothing,
        }
    }

    /// Whether the log is known to lack this acknowledged record, because the log restarted without the record or lost
    /// its last records.
    pub fn has_lost(&self, record: Position) -> bool {
        self.lacks(&self.lock(), record)
    }

    /// Fails with [`PublishError::StateLost`] if the log's state lacks `record`, the publisher's last acknowledged
    /// record.
    pub(super) fn check_state(&self, state: &LogContents, record: Position) -> Result<(), PublishError> {
        if record.epoch != state.epoch && self.is_stateful() && self.lacks(state, record) {
            return Err(PublishError::StateLost(self.name.topic.to_string()));
        }
        Ok(())
    }

    fn lacks(&self, state: &LogContents, record: Position) -> bool {
        if record.epoch == state.epoch {
            return false;
        }
        match (state.stored(), state.mirror()) {
            (Some(_), _) if record.epoch > state.epoch => !self.is_replicated(),
            (Some(stored), _) => record.seq >= state.next_seq || stored.lacks(record),
            (None, Some(mirror)) => mirror.lacks(state.epoch, record),
            (None, None) => true,
        }
    }

    /// Passes the record with this sequence number to `read`, even if the record has expired. Returns `None` if the
    /// record is not retained, or cannot be read at present.
    ///
    /// Each call walks through the record's segment from its beginning. To read many records, use a
    /// [`Cursor`](crate::Cursor).
    pub fn read<R>(&self, seq: u64, read: impl FnOnce(Record<'_>) -> R) -> Option<R> {
        self.try_read(seq, read).ok().flatten()
    }

    /// Like [`read`](Log::read), but returns an error if the record cannot be read at present, and `None` only if it is
    /// not retained.
    ///
    /// # Errors
    /// [`ReadDeferred`] if a later call may succeed.
    pub fn try_read<R>(
        &self,
        seq: u64,
        read: impl FnOnce(Record<'_>) -> R,
    ) -> Result<Option<R>, ReadDeferred> {
        let (segment, epoch) = {
            let state = self.lock();
            match state.segment_of(seq).map(Arc::clone) {
                Some(segment) => (segment, state.mirrored_epoch_of(seq)),
                None => match self.load_record(state, seq)? {
                    Some(loaded) => loaded,
                    None => return Ok(None),
                },
            }
        };
        // If this fails, the segment's buffer was freed after the lookup. A repeated lookup finds the record elsewhere,
        // or not at all.
        let pinned = PinnedSegment::new(segment).map_err(|_| ReadDeferred)?;
        let before = usize::try_from(seq - pinned.first_seq()).ok();
        let Some(entry) = before.and_then(|before| pinned.frames(0).nth(before)) else { return Ok(None) };
        let position = Position { epoch, seq };
        Ok(Some(read(Record { position, prev_seq: seq - 1, frame: entry.frame, log: &self.name })))
    }

    /// Puts a cursor whose next record is `next` to sleep, unless there is something to read. `subscriber` has consumed
    /// all records before `next`. `retries` is set if the last lookup returned [`Lookup::Later`]; the cursor then
    /// sleeps until the store lets it repeat the read.
    pub(crate) fn arm(
        &self,
        next: Position,
        waiter: &Arc<Waiter>,
        token: u32,
        subscriber: Option<SubscriberId>,
        retries: Option<u64>,
    ) -> Option<SleeperId> {
        let mut state = self.lock();
        state.mark_consumed_before(next, subscriber);
        if retries.map_or_else(|| state.has_events(next), |retries| state.has_retried(retries)) {
            return None;
        }
        Some(state.sleepers.push(SleepingCursor { waiter: Arc::clone(waiter), token }))
    }

    /// Removes a sleeping cursor. Returns `false` if the log has already removed it to wake it.
    pub(crate) fn disarm(&self, sleeper: SleeperId, waiter: &Arc<Waiter>, token: u32) -> bool {
        self.lock().sleepers.remove(sleeper, waiter, token).is_some()
    }

    /// Wakes a cursor. If no thread or task waits for this cursor's notification at the moment, the cursor may be read
    /// late. The next sleeping cursor is then woken, too.
    #[cold]
    pub(super) fn wake(&self, mut armed: SleepingCursor) {
        while !armed.waiter.wake(armed.token) {
            let Some(next) = self.lock().sleepers.take_overdue() else { return };
            armed = next;
        }
    }

    /// Wakes the next two cursors that have something to read. Every woken cursor calls this function, so that in the
    /// end all sleeping cursors are woken.
    pub(crate) fn wake_next_two(&self) {
        let next = {
            let mut state = self.lock();
            [state.sleepers.take_overdue(), state.sleepers.take_overdue()]
        };
        next.into_iter().flatten().for_each(|armed| self.wake(armed));
    }

    /// Like [`wake_next_two`](Log::wake_next_two), but wakes up to `wakes` cursors, for callers that can handle several
    /// wake-ups at little cost.
    pub(crate) fn wake_next(&self, wakes: usize) {
        let next: Vec<SleepingCursor> = {
            let mut state = self.lock();
            std::iter::from_fn(|| state.sleepers.take_overdue()).take(wakes).collect()
        };
        next.into_iter().for_each(|armed| self.wake(armed));
    }

    /// Wakes cursors that have something to read and that an earlier cursor should have woken, but did not.
    pub(super) fn wake_overdue(&self) {
        if self.lock().sleepers.has_overdue() {
            self.wake_next_two();
        }
    }

    pub(crate) fn has_events(&self, next: Position) -> bool {
        self.lock().has_events(next)
    }

    /// Counts a lag warning, and returns it, for a cursor whose next record is `next`. Returns `None` and counts
    /// nothing if the epoch of `next` has ended, or if the log was closed without the owner's last records.
    pub(crate) fn count_lag_warning(&self, next: Position) -> Option<Lagging> {
        let mut state = self.lock();
        if next.epoch != state.epoch || state.end_after_loss().is_some() {
            return None;
        }
        state.rare().losses.warnings += 1;
        let range = state.warned_range(&self.config);
        if self.is_private() {
            // The mirror's only subscriber receives the owner's warning now. After the subscriber has read the mirror's
            // records, it must not receive this warning a second time.
            self.warn_before.store(0, Ordering::Relaxed);
        }
        Some(Lagging {
            log: Arc::clone(&self.name),
            behind: range.end.saturating_sub(next.seq),
            retained: range.end.saturating_sub(range.start),
        })
    }

    /// Registers a subscriber of a reliable topic whose next record is `next`, so that publishers wait for it. Returns
    /// `None` if the topic is not reliable.
    pub(crate) fn register(
        &self,
        name: &str,
        next: Position,
    ) -> Result<Option<SubscriberId>, SubscribeError> {
        let Some(reliable) = &self.config.reliable else { return Ok(None) };
        let mut state = self.lock();
        let consumed = if next.epoch == state.epoch { next.seq.saturating_sub(1) } else { 0 };
        let registered = &mut state.rare().registered;
        if registered.list.len() >= reliable.subscribers_max.into() {
            return Err(SubscribeError::Limit {
                limit: "subscribers_max",
                value: reliable.subscribers_max.into(),
            });
        }
        registered.last_id = registered.last_id.checked_add(1).unwrap_or(1);
        let id = SubscriberId(NonZeroU32::new(registered.last_id).unwrap_or(NonZeroU32::MIN));
        registered.list.push(RegisteredSubscriber { id, name: name.to_owned(), consumed });
        Ok(Some(id))
    }

    /// Stores that a registered subscriber has consumed all records up to `through`.
    pub(crate) fn consume(&self, subscriber: SubscriberId, through: u64) {
        self.lock().mark_consumed(subscriber, through);
    }

    pub(crate) fn unregister(&self, subscriber: SubscriberId) {
        let mut state = self.lock();
        if let Some(rare) = &mut state.rare {
            rare.registered.list.retain(|r| r.id != subscriber);
        }
        state.wake_publishers();
    }

    /// Registers `waiter`, which is notified when a registered subscriber, the disk or the owner makes room.
    ///
    /// On a reliable topic, also seals the last segment. A subscriber that has read this segment then has to look up
    /// its next record, and thereby reports which records it has consumed.
    pub fn await_room(&self, waiter: &Arc<Waiter>) {
        let mut state = self.lock();
        let is_forwarded = state.has_ownership_ended();
        if self.config.reliable.is_some() {
            state.seal();
        }
        if let Some(rare) = &mut state.rare
            && !rare.registered.publishers.iter().any(|waiting| Arc::ptr_eq(waiting, waiter))
        {
            rare.registered.publishers.push(Arc::clone(waiter));
        }
        let store = state.stored_mut().and_then(DiskProgress::request_room);
        drop(state);
        if let Some(store) = store {
            store.notify_staged();
        }
        // The waiter waits for room at the owner only if this process is not the owner. Otherwise, the upstream would
        // notify the waiter at once, although neither a subscriber nor the disk has made room.
        if is_forwarded && let Some(upstream) = self.upstream.get() {
            upstream.await_room(waiter);
        }
    }
}

impl super::LogContents {
    /// Whether there is a record or another event for a cursor whose next record is `next`. In a mirror, `next` may be
    /// ahead of the log.
    pub(super) fn has_events(&self, next: Position) -> bool {
        let visible = Position { epoch: self.epoch, seq: self.visible_next() };
        self.has_ended() || next < visible
    }

    /// Marks all records before `next` as consumed by `subscriber`, if `next` is in the present epoch.
    fn mark_consumed_before(&mut self, next: Position, subscriber: Option<SubscriberId>) {
        if let Some(subscriber) = subscriber
            && next.epoch == self.epoch
        {
            self.mark_consumed(subscriber, next.seq.saturating_sub(1));
        }
    }

    fn mark_consumed(&mut self, subscriber: SubscriberId, through: u64) {
        let Some(rare) = &mut self.rare else { return };
        let Some(known) = rare.registered.list.iter_mut().find(|r| r.id == subscriber) else { return };
        if through > known.consumed {
            known.consumed = through;
            self.wake_publishers();
        }
    }
}
