//! Subscribers that read topics in the same process.

mod many;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::config::Clock;
use crate::cursor::{ConsumeMode, Cursor, ReadOutcome, SkipBudget};
use crate::event::{Event, LogName, Notice, Position};
use crate::spinning::SpinBudget;
use crate::subscribe::{Resync, Subscribe, SubscribeError, SubscribeOptions, WaitStrategy};
use crate::wake::{Waiter, thread_waker};

use many::ManyCursors;
pub use many::{NewLogArrivals, NewLogs};

/// When a subscriber begins to wait, it makes at least this many spin-loop pauses before it first checks for records. A
/// pause takes about 20 ns.
const PAUSES_MIN: u8 = 4;
/// Maximum number of spin-loop pauses before the first check. The number grows up to this value as long as each read
/// returns several records.
const PAUSES_MAX: u8 = 16;

/// A subscriber that reads one or several logs in the same process.
#[derive(Debug)]
pub struct Subscriber {
    waiter: Arc<Waiter>,
    cursors: CursorSet,
    pending: Option<Box<Notice>>,
    /// The size of the record that `ready` has found, bytes.
    found_bytes: u32,
    /// The size of the record that `take` has returned, bytes. The next call advances the cursor past this record.
    taken_bytes: u32,
    wait: WaitStrategy,
    spinning: SpinBudget,
    pauses: u8,
    clock: Clock,
    /// Whether a read returns without an event when it has skipped as many records as its budget allows.
    limits_skips: bool,
}

/// The cursors of a subscriber. A subscriber of one log needs no list.
#[derive(Debug)]
enum CursorSet {
    One(Cursor),
    ManyCursors(Box<ManyCursors>),
}

impl Subscriber {
    /// Creates a subscriber of one log.
    pub fn one(cursor: Cursor, wait: WaitStrategy) -> Subscriber {
        let clock = cursor.log().clock;
        Subscriber::new(Waiter::new(), CursorSet::One(cursor), wait, clock)
    }

    /// Creates a subscriber of several logs, including those that are added to `new_logs` later.
    pub fn many(
        cursors: Vec<Cursor>,
        new_logs: Option<Arc<NewLogs>>,
        options: SubscribeOptions,
        clock: Clock,
    ) -> Subscriber {
        let wait = options.wait;
        let waiter = new_logs.as_ref().map_or_else(Waiter::new, |n| Arc::clone(n.waiter()));
        let many = ManyCursors::new(cursors, new_logs, options);
        Subscriber::new(waiter, CursorSet::ManyCursors(Box::new(many)), wait, clock)
    }

    fn new(waiter: Arc<Waiter>, cursors: CursorSet, wait: WaitStrategy, clock: Clock) -> Subscriber {
        let spinning = SpinBudget::default();
        Subscriber {
            waiter,
            cursors,
            pending: None,
            found_bytes: 0,
            taken_bytes: 0,
            wait,
            spinning,
            pauses: PAUSES_MIN,
            clock,
            limits_skips: false,
        }
    }

    /// From now on, a read returns without an event when it has skipped as many records as a [`SkipBudget`] allows.
    /// There may be more to read then, so [`poll_ready`](Subscribe::poll_ready) and [`wait`](Subscribe::wait) return at
    /// once. Call this method if the subscriber's thread has other work to do.
    pub fn limit_skips(&mut self) {
        self.limits_skips = true;
    }

    /// Total number of unread records in all logs.
    pub fn lag(&self) -> u64 {
        match &self.cursors {
            CursorSet::One(cursor) => cursor.lag(),
            CursorSet::ManyCursors(many) => many.cursors().map(Cursor::lag).sum(),
        }
    }

    /// Passes each log to `each`, with the position of the last record that was delivered or skipped. A record that
    /// [`ready`](Subscribe::ready) has found does not count until it is taken. Leaves out the logs of a topic that
    /// are read only after the end of a deleted topic with the same name.
    pub fn for_each_position(&mut self, mut each: impl FnMut(&Arc<LogName>, Position)) {
        let mut pass = |cursor: &mut Cursor| {
            cursor.skip_unwanted();
            each(cursor.name(), cursor.read_through());
        };
        match &mut self.cursors {
            CursorSet::One(cursor) => pass(cursor),
            CursorSet::ManyCursors(many) => many.started_cursors_mut().for_each(pass),
        }
    }

    /// The cursor that is being read.
    #[inline(always)]
    fn current(&mut self) -> Option<&mut Cursor> {
        match &mut self.cursors {
            CursorSet::One(cursor) => Some(cursor),
            CursorSet::ManyCursors(many) => many.current(),
        }
    }

    #[inline(always)]
    fn advance_past_taken(&mut self) {
        let bytes = std::mem::take(&mut self.taken_bytes);
        if bytes > 0
            && let Some(cursor) = self.current()
        {
            cursor.advance(1, bytes);
        }
    }

    #[inline(always)]
    fn poll_cursors(&mut self, skips: &mut SkipBudget) -> Result<bool, SubscribeError> {
        loop {
            let fill = match &mut self.cursors {
                CursorSet::One(cursor) => {
                    if cursor.is_armed() && self.waiter.take_ready(|_| ()) {
                        cursor.handle_wake();
                    }
                    cursor.fill_within(skips)
                }
                CursorSet::ManyCursors(many) => many.fill(&self.waiter, skips)?,
            };
            return match fill {
                ReadOutcome::Records => Ok(true),
                ReadOutcome::Empty => Ok(false),
                ReadOutcome::Skipped if self.limits_skips => Ok(false),
                ReadOutcome::Skipped => {
                    *skips = SkipBudget::default();
                    continue;
                }
                ReadOutcome::Notice(notice) => {
                    self.pending = Some(Box::new(notice));
                    Ok(true)
                }
                ReadOutcome::Closed => Err(self.end_error()),
            };
        }
    }

    #[cold]
    fn end_error(&self) -> SubscribeError {
        match &self.cursors {
            CursorSet::One(cursor) if cursor.has_ended_at_gap() => SubscribeError::Lost,
            _ => SubscribeError::Closed,
        }
    }

    fn may_have_more(&self) -> bool {
        self.pending.is_some()
            || match &self.cursors {
                CursorSet::One(cursor) => {
                    cursor.may_have_more() || cursor.is_armed() && self.waiter.is_ready()
                }
                CursorSet::ManyCursors(many) => many.may_have_more() || self.waiter.is_ready(),
            }
    }

    /// Arms the cursors and sets `waker`, so that the next event wakes it. Returns `false` if there is already
    /// something to read.
    fn sleep(&mut self, waker: &Waker) -> bool {
        self.advance_past_taken();
        if self.pending.is_some() {
            return false;
        }
        let armed = match &mut self.cursors {
            CursorSet::One(cursor) => cursor.arm(&self.waiter, 0),
            CursorSet::ManyCursors(many) => !many.may_have_more(),
        };
        armed && self.waiter.set_waker(waker)
    }

    /// If this subscriber was woken, wakes the next sleeping cursors, before it does anything else.
    fn pass_on_wake(&mut self) -> Result<(), SubscribeError> {
        match &mut self.cursors {
            CursorSet::One(cursor) if cursor.is_armed() && self.waiter.take_ready(|_| ()) => {
                cursor.handle_wake()
            }
            CursorSet::One(_) => {}
            CursorSet::ManyCursors(many) => many.take_notified(&self.waiter)?,
        }
        Ok(())
    }

    /// Parks the thread until there may be something to read. Returns `false` if the deadline passes first.
    fn park(&mut self, deadline_ns: u64) -> bool {
        let waker = thread_waker();
        while self.sleep(&waker) {
            let remaining_ns = match deadline_ns {
                u64::MAX => u64::MAX,
                deadline_ns => deadline_ns.saturating_sub(self.clock.steady_ns()),
            };
            match remaining_ns {
                0 if self.waiter.clear_waker() => return false,
                0 => return true,
                u64::MAX => thread::park(),
                ns => thread::park_timeout(Duration::from_nanos(ns)),
            }
        }
        true
    }

    /// Spins for as long as the wait strategy allows, but not beyond the deadline. Returns whether there may be
    /// something to read.
    ///
    /// Each check takes the cache line with the committed length from the publisher, which has to wait for this cache
    /// line at its next commit. The first check is therefore delayed. As long as each read returns several records, the
    /// delay is longer, so that the publisher can commit a few more records before the first check.
    fn spin(&self, began_ns: u64, deadline_ns: u64) -> bool {
        let spin_until_ns = match (self.wait, self.spinning.budget_ns()) {
            (WaitStrategy::Parked, _) | (WaitStrategy::Default, 0) => return self.may_have_more(),
            (WaitStrategy::Spin, _) => deadline_ns,
            (WaitStrategy::Default, budget_ns) => deadline_ns.min(began_ns + budget_ns),
        };
        (0..self.pauses).for_each(|_| std::hint::spin_loop());
        if self.may_have_more() {
            return true;
        }
        loop {
            for _ in 0..64 {
                std::hint::spin_loop();
                if self.may_have_more() {
                    return true;
                }
            }
            if self.clock.steady_ns() >= spin_until_ns {
                return false;
            }
        }
    }
}

impl Subscribe for Subscriber {
    #[inline(always)]
    fn ready(&mut self) -> Result<bool, SubscribeError> {
        self.advance_past_taken();
        if self.pending.is_some() {
            return Ok(true);
        }
        let mut skips = SkipBudget::default();
        while self.poll_cursors(&mut skips)? {
            if self.pending.is_some() {
                return Ok(true);
            }
            let Some(cursor) = self.current() else { return Ok(false) };
            match cursor.peek() {
                Some((Some(_), bytes)) => {
                    self.found_bytes = bytes;
                    return Ok(true);
                }
                Some((None, expired)) => {
                    cursor.skip(1, expired);
                    skips.count(expired);
                    if self.limits_skips && skips.is_spent() {
                        return Ok(false);
                    }
                }
                None => return Ok(false),
            }
        }
        Ok(false)
    }

    #[inline(always)]
    fn take(&mut self) -> Event<'_> {
        if let Some(notice) = self.pending.take() {
            return Event::Notice(*notice);
        }
        self.taken_bytes = std::mem::take(&mut self.found_bytes);
        let record = self.current().and_then(|cursor| cursor.peek_any()).map(|(record, _)| record);
        Event::Record(record.expect("an event is available after `ready` has returned true"))
    }

    #[inline(always)]
    fn drain(&mut self, max: usize, mut each: impl FnMut(Event<'_>)) -> Result<usize, SubscribeError> {
        self.advance_past_taken();
        let is_single = match &mut self.cursors {
            CursorSet::One(cursor) => {
                cursor.refresh();
                true
            }
            CursorSet::ManyCursors(_) => false,
        };
        let mut delivered = 0;
        let mut skips = SkipBudget::default();
        while delivered < max {
            if let Some(notice) = self.pending.take() {
                each(Event::Notice(*notice));
                delivered += 1;
                // The notice is delivered before any further record is looked up. A gap therefore covers all records
                // that are lost until it is delivered.
                continue;
            }
            match self.poll_cursors(&mut skips) {
                Ok(true) if self.pending.is_some() => continue,
                Ok(true) => {}
                Ok(false) => break,
                // The events that were already passed are returned first. The next call returns the error.
                Err(_) if delivered > 0 => break,
                Err(ended) => return Err(ended),
            }
            if let Some(cursor) = self.current() {
                delivered += cursor.drain(max - delivered, |record| each(Event::Record(record)));
                // Records that have arrived during this call are left to the next call. Otherwise, the subscriber would
                // follow the publisher record by record, and slow it down.
                if is_single && delivered > 0 && delivered < max && cursor.has_caught_up() {
                    break;
                }
            }
        }
        if let Some(cursor) = self.current() {
            cursor.release();
        }
        self.pauses = if delivered > 1 { (self.pauses * 2).min(PAUSES_MAX) } else { PAUSES_MIN };
        Ok(delivered)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, SubscribeError> {
        self.advance_past_taken();
        let timeout_ns = timeout.map_or(u64::MAX, |t| t.as_nanos().min(u64::MAX.into()) as u64);
        let adapts = self.wait == WaitStrategy::Default;
        let began_ns = if adapts || timeout_ns < u64::MAX { self.clock.steady_ns() } else { 0 };
        let deadline_ns = began_ns.saturating_add(timeout_ns);
        if self.spin(began_ns, deadline_ns) {
            self.spinning.record_spun();
            return Ok(true);
        }
        let woken = self.park(deadline_ns);
        if woken {
            self.pass_on_wake()?;
        }
        if adapts {
            self.spinning.record_parked(self.clock.steady_ns().saturating_sub(began_ns));
        }
        Ok(woken)
    }

    fn resync(&mut self, log: &LogName, resync: Resync) -> Result<(), SubscribeError> {
        self.advance_past_taken();
        match &mut self.cursors {
            CursorSet::One(cursor) => cursor.resync(resync),
            CursorSet::ManyCursors(many) => many.resync(log, resync),
        }
        Ok(())
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SubscribeError>> {
        if self.may_have_more() || !self.sleep(cx.waker()) {
            Poll::Ready(self.pass_on_wake())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        match &mut self.cursors {
            CursorSet::One(cursor) => cursor.leave(&self.waiter, 0),
            CursorSet::ManyCursors(many) => many.leave(&self.waiter),
        }
    }
}

/// How in-process subscribers consume records: by reading.
pub(crate) const CONSUMPTION: ConsumeMode = ConsumeMode::Reads;
