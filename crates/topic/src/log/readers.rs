//! What the log does for its readers, inside its lock: find a place, let them sleep, count the
//! registered ones.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::event::{EpochChanged, Gap, Lagging, Position, Record};
use crate::log::mirror::Unfed;
use crate::log::sleepers::{Armed, SleeperId};
use crate::log::stored::Stored;
use crate::log::{Log, Owed, State};
use crate::publish::PublishError;
use crate::segment::{Pinned, Segment};
use crate::subscribe::{OnGap, Start, SubscribeError};
use crate::wake::Waiter;

/// What a cursor finds when it asks for its place.
#[derive(Debug)]
pub(crate) enum Found {
    /// Its next record lies in this segment, or will.
    Segment(Arc<Segment>),
    /// Nothing to read yet.
    Nothing,
    /// What lies before this is for no reader of this log.
    Skip(Position),
    /// Its next records are not here, but with the log's owner.
    Detour,
    /// Its next records are gone; it may go on here.
    Gap(Gap, Position),
    /// Its epoch is over; it may go on here.
    EpochChanged(EpochChanged),
    /// Nothing to read, and nothing to come.
    Closed,
}

/// Where a reader begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begin {
    pub(crate) next: Position,
    /// It wants records from this time on.
    pub(crate) appended_from_ns: u64,
    /// What it is given before any record.
    pub(crate) owed: Option<Owed>,
}

/// A registered reader's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReaderId(NonZeroU32);

/// The registered readers of a reliable log.
#[derive(Debug, Default)]
pub(super) struct Readers {
    list: Vec<Reader>,
    last_id: u32,
    /// Publishers that wait for room.
    publishers: Vec<Arc<Waiter>>,
}

#[derive(Debug)]
struct Reader {
    id: ReaderId,
    name: String,
    consumed: u64,
}

impl Readers {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Those that wait for room.
    pub(super) fn take_publishers(&mut self) -> impl Iterator<Item = Arc<Waiter>> {
        self.publishers.drain(..)
    }

    /// Whether all have consumed `last`; with `evict`, those that have not lose their place.
    pub(super) fn permit_giving_up(&mut self, last: u64, evict: bool) -> Result<(), PublishError> {
        if evict {
            self.list.retain(|reader| reader.consumed >= last);
        }
        match self.list.iter().min_by_key(|reader| reader.consumed) {
            Some(slowest) if slowest.consumed < last => Err(PublishError::Full {
                reader: slowest.name.clone(),
                needed: slowest.consumed + 1,
                waited: std::time::Duration::ZERO,
            }),
            _ => Ok(()),
        }
    }
}

impl super::State {
    pub(super) fn wake_publishers(&mut self) {
        let Some(rare) = &mut self.rare else { return };
        rare.readers.publishers.drain(..).for_each(|waiter| waiter.notify(Waiter::ROOM));
    }
}

impl Log {
    /// Where a cursor begins. One that follows the state and lacks more than the state takes is given the state.
    pub(crate) fn start(&self, start: Start, follows_state: bool) -> Result<Begin, SubscribeError> {
        let state = self.lock();
        // Whoever published it may know of a record that readers cannot see yet.
        let last = state.last();
        let oldest = state.oldest(&self.config);
        let at = |next| Begin { next, appended_from_ns: 0, owed: None };
        let newest = at(Position { seq: state.visible_next(), ..last });
        Ok(match start {
            Start::Earliest => at(oldest),
            Start::Latest => newest,
            Start::Snapshot => Begin { owed: Some(Owed::State), ..newest },
            Start::After(asked) if asked > last && !state.is_mirror() && !self.is_replicated() => {
                return Err(SubscribeError::Ahead { asked, last });
            }
            Start::After(asked)
                if follows_state && asked.epoch == last.epoch && state.is_state_cheaper(asked.seq) =>
            {
                Begin { owed: Some(Owed::Since(asked)), ..newest }
            }
            // Any number may be asked for in an epoch that is over.
            Start::After(asked) => at(Position { seq: asked.seq.saturating_add(1), ..asked }),
            Start::Time(ns) if state.stored().is_some() => {
                Begin { appended_from_ns: ns, ..at(self.stored_since(state, ns)) }
            }
            Start::Time(ns) => {
                let after = state.held.partition_point(|held| held.last_append_ns < ns);
                let seq = state.held.get(after).map(|held| held.segment.first_seq);
                let tail = || state.writer.as_ref().map_or(state.next_seq, |w| w.segment().first_seq);
                let next = Position { seq: seq.unwrap_or_else(tail).max(oldest.seq), ..oldest };
                Begin { appended_from_ns: ns, ..at(next) }
            }
        })
    }

    /// Finds `next`, or says why it cannot be read. A registered reader has consumed all before it.
    pub(crate) fn find(&self, next: Position, on_gap: OnGap, reader: Option<ReaderId>) -> Found {
        let mut state = self.lock();
        state.consumed_before(next, reader);
        if self.config.durable.is_some() {
            return self.find_stored(state, next, on_gap);
        }
        if state.mirror().is_some() {
            return self.find_mirrored(&state, next, on_gap, Unfed::Elsewhere);
        }
        // Publishers of a reliable topic wait for its readers before a segment goes, not before a number of records.
        let oldest =
            if self.config.reliable.is_some() { state.oldest_held() } else { state.oldest_seq(&self.config) };
        let go_on = match on_gap {
            OnGap::Newest | OnGap::Snapshot => state.next_seq,
            OnGap::Oldest | OnGap::Fail => oldest,
        };
        let go_on = Position { epoch: state.epoch, seq: go_on };
        let end = Position { epoch: state.epoch, seq: state.next_seq };
        if next > end && self.is_replicated() {
            return if state.closed { Found::Closed } else { Found::Nothing };
        }
        if next.epoch != state.epoch {
            return Found::EpochChanged(EpochChanged {
                log: Arc::clone(&self.name),
                old: next.epoch,
                last_seen: next.seq.saturating_sub(1),
                known_through: None,
                new_first: go_on,
            });
        }
        if next.seq < oldest {
            let log = Arc::clone(&self.name);
            let gap = Gap { log, epoch: next.epoch, first: next.seq, last: go_on.seq - 1 };
            return Found::Gap(gap, go_on);
        }
        match state.segment_of(next.seq) {
            Some(segment) => Found::Segment(Arc::clone(segment)),
            None if state.closed => Found::Closed,
            None => Found::Nothing,
        }
    }

    /// Whether this record, which was acknowledged once, is known not to be part of what the log goes on from: the log began
    /// anew, or lost its end.
    pub fn has_lost(&self, record: Position) -> bool {
        self.lacks(&self.lock(), record)
    }

    /// Refuses a publisher with [`PublishError::StateLost`] whose last acknowledged record is not part of the log's state.
    pub(super) fn check_state(&self, state: &State, record: Position) -> Result<(), PublishError> {
        if record.epoch != state.epoch && self.is_stateful() && self.lacks(state, record) {
            return Err(PublishError::StateLost(self.name.topic.to_string()));
        }
        Ok(())
    }

    fn lacks(&self, state: &State, record: Position) -> bool {
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

    /// Looks at the record of this sequence, expired or not; `None` when it is not there, or no longer.
    ///
    /// It walks to the record from the beginning of its segment: who reads one after another uses a
    /// [`Cursor`](crate::Cursor).
    pub fn read<R>(&self, seq: u64, look: impl FnOnce(Record<'_>) -> R) -> Option<R> {
        let (segment, epoch) = {
            let state = self.lock();
            match state.segment_of(seq).map(Arc::clone) {
                Some(segment) => (segment, state.epoch),
                None => self.load_one(state, seq)?,
            }
        };
        let before = usize::try_from(seq - segment.first_seq).ok()?;
        let pinned = Pinned::new(segment).ok()?;
        let lying = pinned.frames(0).nth(before)?;
        let position = Position { epoch, seq };
        Some(look(Record { position, prev_seq: seq - 1, frame: lying.frame, log: &self.name }))
    }

    /// Puts a cursor to sleep, unless there is something for it.
    pub(crate) fn arm(
        &self,
        next: Position,
        waiter: &Arc<Waiter>,
        token: u32,
        reader: Option<ReaderId>,
    ) -> Option<SleeperId> {
        let mut state = self.lock();
        state.consumed_before(next, reader);
        if state.has_news(next) {
            return None;
        }
        Some(state.sleepers.push(Armed { waiter: Arc::clone(waiter), token }))
    }

    /// Takes a cursor off the list; `false` when it was taken off before, to be woken.
    pub(crate) fn disarm(&self, sleeper: SleeperId, waiter: &Arc<Waiter>, token: u32) -> bool {
        self.lock().sleepers.remove(sleeper, waiter, token).is_some()
    }

    /// Wakes the cursor; where nobody sleeps on it, the next one too: its reader is somewhere else, and may come
    /// back late.
    #[cold]
    pub(super) fn wake(&self, mut armed: Armed) {
        while !armed.waiter.wake(armed.token) {
            let Some(next) = self.lock().sleepers.take_overdue() else { return };
            armed = next;
        }
    }

    /// Wakes the next two that have something to read: whoever was woken owes that to those behind it.
    pub(crate) fn pass_wake_on(&self) {
        let next = {
            let mut state = self.lock();
            [state.sleepers.take_overdue(), state.sleepers.take_overdue()]
        };
        next.into_iter().flatten().for_each(|armed| self.wake(armed));
    }

    /// [`pass_wake_on`](Log::pass_wake_on) for whom it costs little to wake others: up to `wakes` of them.
    pub(crate) fn pass_wake_on_to(&self, wakes: usize) {
        let next: Vec<Armed> = {
            let mut state = self.lock();
            std::iter::from_fn(|| state.sleepers.take_overdue()).take(wakes).collect()
        };
        next.into_iter().for_each(|armed| self.wake(armed));
    }

    /// Wakes those that a publish should have woken, were it not for a reader that was woken before them and never
    /// came to pass it on.
    pub(super) fn wake_overdue(&self) {
        if self.lock().sleepers.has_overdue() {
            self.pass_wake_on();
        }
    }

    /// Whether whoever is to read `next` would be told something.
    pub(crate) fn has_news(&self, next: Position) -> bool {
        self.lock().has_news(next)
    }

    /// What a reader that is to read `next` is told when it lags, and counts as told; nothing if its epoch is over.
    pub(crate) fn lagging(&self, next: Position) -> Option<Lagging> {
        let mut state = self.lock();
        if next.epoch != state.epoch {
            return None;
        }
        state.rare().losses.warnings += 1;
        let end = state.visible_next();
        Some(Lagging {
            log: Arc::clone(&self.name),
            behind: end.saturating_sub(next.seq),
            retained: end.saturating_sub(state.oldest_seq(&self.config)),
        })
    }

    /// Counts a reader among those the publisher waits for. Only on reliable topics.
    pub(crate) fn register(&self, name: &str, next: Position) -> Result<Option<ReaderId>, SubscribeError> {
        let Some(reliable) = &self.config.reliable else { return Ok(None) };
        let mut state = self.lock();
        let consumed = if next.epoch == state.epoch { next.seq.saturating_sub(1) } else { 0 };
        let readers = &mut state.rare().readers;
        if readers.list.len() >= reliable.readers_max.into() {
            return Err(SubscribeError::Limit { limit: "readers_max", value: reliable.readers_max.into() });
        }
        readers.last_id = readers.last_id.checked_add(1).unwrap_or(1);
        let id = ReaderId(NonZeroU32::new(readers.last_id).unwrap_or(NonZeroU32::MIN));
        readers.list.push(Reader { id, name: name.to_owned(), consumed });
        Ok(Some(id))
    }

    /// A registered reader says how far it has come.
    pub(crate) fn consume(&self, reader: ReaderId, through: u64) {
        self.lock().consumed(reader, through);
    }

    /// A registered reader leaves.
    pub(crate) fn unregister(&self, reader: ReaderId) {
        let mut state = self.lock();
        if let Some(rare) = &mut state.rare {
            rare.readers.list.retain(|r| r.id != reader);
        }
        state.wake_publishers();
    }

    /// Has `waiter` notified when a registered reader makes room.
    ///
    /// The tail is sealed, so that a reader at its end comes by and says that it has consumed it.
    pub fn await_room(&self, waiter: &Arc<Waiter>) {
        if let Some(upstream) = self.upstream.get() {
            upstream.await_room(waiter);
        }
        let mut state = self.lock();
        if self.config.reliable.is_some() {
            state.seal();
        }
        if let Some(rare) = &mut state.rare
            && !rare.readers.publishers.iter().any(|waiting| Arc::ptr_eq(waiting, waiter))
        {
            rare.readers.publishers.push(Arc::clone(waiter));
        }
        let store = state.stored_mut().and_then(Stored::ask_for_room);
        drop(state);
        if let Some(store) = store {
            store.appended();
        }
    }
}

impl super::State {
    /// Whether whoever is to read `next` would be told something. In a mirror it may come to lie ahead.
    pub(super) fn has_news(&self, next: Position) -> bool {
        let visible = Position { epoch: self.epoch, seq: self.visible_next() };
        self.has_ended() || next < visible
    }

    /// What lies before `next` is consumed; a place in an epoch that is over says nothing of this one.
    fn consumed_before(&mut self, next: Position, reader: Option<ReaderId>) {
        if let Some(reader) = reader
            && next.epoch == self.epoch
        {
            self.consumed(reader, next.seq.saturating_sub(1));
        }
    }

    fn consumed(&mut self, reader: ReaderId, through: u64) {
        let Some(rare) = &mut self.rare else { return };
        let Some(known) = rare.readers.list.iter_mut().find(|r| r.id == reader) else { return };
        if through > known.consumed {
            known.consumed = through;
            self.wake_publishers();
        }
    }
}
