//! A log that is, or may come to be, another process's: what its feed brings, and what becomes of its readers when it changes
//! hands.
//!
//! Invariants:
//! - Positions are the owner's. What the feed lacks is a hole, told to each reader as a gap when it comes there; what no
//!   reader was to get (it lies before the feed's beginning) is passed over.
//! - From where its feed began a mirror has every record and the end of every epoch, or says what it lacks. Of what lies before it
//!   says nothing: whoever comes from there has it from the owner. Numbers of two epochs are not compared.
//! - An epoch lower than the log's own is never taken in: that is who was the owner, and does not know yet.
//! - The state of a stateful mirror is its owner's after the last record here, or the mirror has no place: readers of the state
//!   wait until it is fed one.
//! - A segment lies in one epoch. Numbers that go on from one epoch to the next keep the history readable; where they start
//!   over, the history is given up, and its readers are told how far it is known to have gone.
//!
//! Limits: [`EPOCHS_MAX`] epochs, [`SKIPS_MAX`] stretches that are passed over; what is older is forgotten, and told as a gap.

mod feeding;
mod finding;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::config::{Reliable, Retention, TopicConfig};
use crate::event::{LogName, Position};
use crate::log::sleepers::Armed;
use crate::log::{Found, Log, State};
use crate::producer::Producers;
use crate::subscribe::Start;
use crate::upstream::Upstream;

pub use feeding::FeedError;
pub(super) use finding::Unfed;

/// Epochs before the present one whose records are told apart.
const EPOCHS_MAX: usize = 64;
/// Stretches that no reader was to get.
const SKIPS_MAX: usize = 64;

/// What is known of a log that was fed, or will be.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    /// It is this process's own again, or for the first time.
    is_own: bool,
    /// It stands where its owner does, or did.
    placed: bool,
    /// It was this process's until it was handed over: who owns it next takes from here what it has not.
    was_own: bool,
    /// One reader's alone.
    private: bool,
    /// Its owner has on disk what memory here gives up.
    owner_is_durable: bool,
    /// The first record of the present epoch.
    first_seq: u64,
    /// Where its feed began: what lies before this was never here.
    fed_from: Position,
    /// Epochs that are over, oldest first.
    past: VecDeque<Past>,
    /// The epoch whose numbers started over, and the last record of it that is known.
    given_up: Option<Position>,
    skips: VecDeque<Range<u64>>,
}

/// An epoch that is over.
#[derive(Debug, Clone, Copy)]
struct Past {
    epoch: u32,
    /// After the last record that is known of it.
    next_seq: u64,
    /// Nothing else was in it.
    whole: bool,
    /// Where the next one begins.
    after: Position,
}

impl Log {
    /// From now on the log may be owned elsewhere: it takes records only while `upstream` says that it is this process's.
    pub fn join(&self, upstream: Arc<dyn Upstream>) {
        let clock = upstream.clock();
        let _ = self.upstream.set(upstream);
        self.liveness.forget();
        let mut state = self.lock();
        (state.shut_at_ns, state.shut_clock) = (0, clock);
    }

    /// From now on the log is another's. What it holds stays readable, and goes on where its feed does; where the next owner
    /// is to have all of it first and begin this epoch then, it ends here.
    pub fn hand_over(&self, owner_is_durable: bool, next_epoch: Option<u32>) {
        let armed = self.hand_over_inside(owner_is_durable, next_epoch);
        armed.into_iter().for_each(|armed| armed.waiter.notify(armed.token));
    }

    fn hand_over_inside(&self, owner_is_durable: bool, next_epoch: Option<u32>) -> Vec<Armed> {
        let mut state = self.lock();
        // The next owner says what it knows of publishers.
        self.liveness.forget();
        state.shut_at_ns = 0;
        let (epoch_first, has_records) = (state.oldest_held(), state.next_seq > 1);
        // Only who had all of an epoch can say where it ends.
        let was_own = !state.is_mirror();
        let is_new = state.mirror().is_none();
        let mirror = state.mirror_or_new();
        if mirror.first_seq == 0 {
            // It was never fed, so whatever it has is whole.
            (mirror.first_seq, mirror.fed_from) = (epoch_first.min(1), Position::default());
            mirror.placed |= has_records;
        }
        mirror.was_own |= was_own && (has_records || !is_new);
        (mirror.is_own, mirror.owner_is_durable) = (false, owner_is_durable);
        // Others know by now how far each has come: should the log come back, it begins with what they send then.
        let limits = state.limits;
        state.rare().producers = Producers::new(limits);
        state.wake_publishers();
        match next_epoch.filter(|&epoch| was_own && epoch > state.epoch) {
            Some(epoch) => {
                let next = Position { epoch, seq: state.next_seq };
                state.begin_epoch(next, true);
                state.take_all_sleepers()
            }
            None => Vec::new(),
        }
    }

    /// From now on the log is this process's own, in this epoch. `whole` where nothing of the epoch before is missing here. Nothing where
    /// its feed has brought a later one: that has another owner, as will be heard here, too.
    pub fn take_over(&self, epoch: u32, whole: bool) {
        let now_ns = self.clock.now_ns();
        let armed = {
            let mut state = self.lock();
            if epoch < state.epoch && state.is_mirror() {
                return;
            }
            let next = Position { epoch, seq: state.next_seq };
            if epoch > state.epoch {
                state.begin_epoch(next, whole);
            }
            state.shut_at_ns = 0;
            let mirror = state.mirror_or_new();
            (mirror.is_own, mirror.placed) = (true, true);
            self.take_over_publishers(now_ns);
            state.take_all_sleepers()
        };
        armed.into_iter().for_each(|armed| armed.waiter.notify(armed.token));
    }

    /// Whether another process owns it.
    pub fn is_mirror(&self) -> bool {
        self.lock().is_mirror()
    }

    /// Whether it stands where its owner does.
    pub fn is_placed(&self) -> bool {
        self.lock().mirror().is_none_or(|mirror| mirror.is_own || mirror.placed)
    }

    /// How many read it.
    pub fn is_read(&self) -> bool {
        self.listeners.any()
    }

    /// A mirror of the same log for one reader, which holds so many bytes that it has not read.
    pub fn mirror_for_one(of: &Log, memory_bytes: u64) -> Arc<Log> {
        let reliable = Reliable { readers_max: 1, ..Reliable::default() };
        let retention = Retention { bytes: memory_bytes, ..Retention::default() };
        let config = TopicConfig {
            retention,
            reliable: Some(reliable),
            durable: None,
            fold: None,
            ..of.config().clone()
        };
        let LogName { topic, subject_prefix, partition } = &*of.name;
        let (topic, subject_prefix) = (topic.clone(), subject_prefix.clone());
        let name = LogName { topic, subject_prefix, partition: *partition };
        let log = Log::new(name, Arc::new(config), Arc::clone(&of.budget), of.clock, 0, &of.publishers);
        if let Some(upstream) = of.upstream.get() {
            log.join(Arc::clone(upstream));
        }
        log.lock().mirror_or_new().private = true;
        Arc::new(log)
    }

    /// A mirror for one reader begins after what that reader has.
    pub fn begin_at(&self, after: Position) {
        let mut state = self.lock();
        (state.epoch, state.next_seq) = (after.epoch, after.seq.saturating_add(1));
    }

    /// Whether it is one reader's alone.
    pub(crate) fn is_private(&self) -> bool {
        self.upstream.get().is_some() && self.lock().is_private()
    }

    /// A reader has its place here.
    #[cold]
    pub(crate) fn tell_read(self: &Arc<Log>, start: Start) {
        if self.is_mirror()
            && let Some(upstream) = self.upstream.get()
        {
            upstream.is_read(self, start);
        }
    }

    /// Whether the log takes records for a while yet, as was found out by asking.
    #[cold]
    pub(crate) fn renew(&self) -> bool {
        let Some(upstream) = self.upstream.get() else { return false };
        let until_ns = upstream.owned_until_ns();
        let mut state = self.lock();
        if state.closed || state.is_mirror() {
            return false;
        }
        state.shut_at_ns = until_ns;
        upstream.clock().now_ns() < until_ns
    }
}

/// The record that follows `at`.
fn after(at: Position) -> Position {
    Position { seq: at.seq.saturating_add(1), ..at }
}

impl Mirror {
    /// It is another process's, and of all who read it here.
    fn is_shared(&self) -> bool {
        !self.is_own && !self.private
    }

    /// The epoch in which this number was given out, as far as it is known.
    fn epoch_of(&self, state: &State, seq: u64) -> u32 {
        self.past.iter().find(|past| seq < past.next_seq).map_or(state.epoch, |past| past.epoch)
    }
}

impl State {
    pub(super) fn mirror(&self) -> Option<&Mirror> {
        self.rare.as_ref()?.mirror.as_deref()
    }

    pub(super) fn is_mirror(&self) -> bool {
        self.mirror().is_some_and(|mirror| !mirror.is_own)
    }

    /// Whether it takes what another process has of it: what was deleted there and made anew is another log.
    fn is_fed(&self) -> bool {
        self.is_mirror() && !self.closed
    }

    /// Whether publishers wait for whoever reads it, without having asked.
    pub(super) fn is_private(&self) -> bool {
        self.mirror().is_some_and(|mirror| mirror.private)
    }

    fn mirror_or_new(&mut self) -> &mut Mirror {
        self.rare().mirror.get_or_insert_default()
    }

    /// The epoch of a number, where the log changed hands.
    pub(super) fn mirrored_epoch_of(&self, seq: u64) -> u32 {
        self.mirror().map_or(self.epoch, |mirror| mirror.epoch_of(self, seq))
    }

    /// Whether a reader that has all through `at` can go on here.
    fn reaches(&self, mirror: &Mirror, at: Position) -> bool {
        let known = at.epoch == self.epoch || mirror.past.iter().any(|past| past.epoch == at.epoch);
        known && self.was_here(mirror, after(at))
    }

    /// Whether all from `next` on was here, and is, where that is no reason for a gap.
    fn was_here(&self, mirror: &Mirror, next: Position) -> bool {
        next >= mirror.fed_from && (!mirror.owner_is_durable || next.seq >= self.oldest_held())
    }

    /// It stands where its owner does, or did.
    fn is_placed(&self) -> bool {
        self.mirror().is_some_and(|mirror| mirror.placed)
    }

    /// Whether these records lead on from the state here, or from none.
    fn state_goes_on(&mut self, first: Position) -> bool {
        match first.epoch > self.epoch {
            true if first.seq == 1 => {
                self.clear_fold();
                true
            }
            true => false,
            false => first.seq <= self.next_seq,
        }
    }

    /// The state is not its owner's: the next one that is fed counts, wherever it stands.
    fn lose_state(&mut self) {
        self.mirror_or_new().placed = false;
    }

    /// What is held from here on comes again. Readers that have it wait for what follows.
    fn go_back_to(&mut self, next_seq: u64) {
        self.give_up_all();
        self.next_seq = next_seq;
        self.mirror_or_new().skips.clear();
    }

    /// The feed begins where the log stands now.
    fn is_fed_from_here(&mut self) {
        let here = Position { epoch: self.epoch, seq: self.next_seq };
        let mirror = self.mirror_or_new();
        (mirror.placed, mirror.fed_from) = (true, here);
    }

    fn at_the_end(&self, seq: u64) -> Found {
        match self.segment_of(seq) {
            Some(segment) => Found::Segment(Arc::clone(segment)),
            None if self.closed => Found::Closed,
            None => Found::Nothing,
        }
    }

    /// The first record that is held of those after `seq`, or where the next one will stand.
    fn first_after(&self, seq: u64, config: &TopicConfig) -> u64 {
        let segments = self.held.iter().map(|held| &held.segment);
        let segments = segments.chain(self.writer.as_ref().map(|writer| writer.segment()));
        let first = segments.map(|segment| segment.first_seq).find(|&first| first > seq);
        first.unwrap_or(self.next_seq).max(self.oldest_seq(config).min(self.next_seq))
    }

    /// What lies before `next_seq` is lost: readers are told when they come there.
    fn leave_out(&mut self, next_seq: u64) {
        self.seal();
        self.next_seq = next_seq;
    }

    /// What lies before `next_seq` was for no reader here.
    fn skip_to(&mut self, next_seq: u64) {
        let skip = self.next_seq..next_seq;
        self.leave_out(next_seq);
        let mirror = self.mirror_or_new();
        if mirror.skips.len() >= SKIPS_MAX {
            mirror.skips.pop_front();
        }
        mirror.skips.push_back(skip);
    }

    /// `whole` where nothing of the epoch that ends is missing here.
    fn begin_epoch(&mut self, first: Position, whole: bool) {
        self.seal();
        let (epoch, next_seq) = (self.epoch, self.next_seq);
        if first.seq < next_seq {
            // The same numbers again: what is held could not be told from what comes.
            self.give_up_all();
            let mirror = self.mirror_or_new();
            mirror.past.clear();
            mirror.skips.clear();
            mirror.given_up = Some(Position { epoch, seq: next_seq - 1 });
        } else {
            let mirror = self.mirror_or_new();
            if mirror.past.len() >= EPOCHS_MAX {
                mirror.past.pop_front();
            }
            mirror.past.push_back(Past { epoch, next_seq, whole, after: first });
        }
        (self.epoch, self.next_seq) = (first.epoch, first.seq);
        self.mirror_or_new().first_seq = first.seq;
    }
}
