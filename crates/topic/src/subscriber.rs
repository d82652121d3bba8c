//! The in-process subscriber.

mod many;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::config::Clock;
use crate::cursor::{ConsumeMode, Cursor, ReadOutcome};
use crate::event::{Event, LogName, Notice, Position};
use crate::spinning::SpinBudget;
use crate::subscribe::{Resync, Subscribe, SubscribeError, SubscribeOptions, Wait};
use crate::wake::{Waiter, thread_waker};

use many::ManyCursors;
pub use many::{NewLogArrivals, NewLogs};

/// Minimum number of spin-loop pauses before the first check of a waiting subscriber; a pause takes about 20 ns.
const PAUSES_MIN: u8 = 4;
/// Maximum number of spin-loop pauses before the first check. It is reached if each read returns several records.
const PAUSES_MAX: u8 = 16;

/// Reads records of one or several logs in the same process.
#[derive(Debug)]
pub struct Subscriber {
    waiter: Arc<Waiter>,
    reading: CursorSet,
    pending: Option<Box<Notice>>,
    /// The size in bytes of the record that `ready` found.
    found: u32,
    /// The size in bytes of the record that was taken last. The next call advances past this record.
    taken: u32,
    wait: Wait,
    spinning: SpinBudget,
    pauses: u8,
    clock: Clock,
}

/// The cursors of a subscriber. A single one needs no list.
#[derive(Debug)]
enum CursorSet {
    One(Cursor),
    ManyCursors(Box<ManyCursors>),
}

impl Subscriber {
    /// Creates a subscriber of one log.
    pub fn one(cursor: Cursor, wait: Wait) -> Subscriber {
        let clock = cursor.log().clock;
        Subscriber::new(Waiter::new(), CursorSet::One(cursor), wait, clock)
    }

    /// Creates a subscriber of many logs, including the logs that `newcomers` receives later.
    pub fn many(
        cursors: Vec<Cursor>,
        newcomers: Option<Arc<NewLogs>>,
        options: SubscribeOptions,
        clock: Clock,
    ) -> Subscriber {
        let wait = options.wait;
        let waiter = newcomers.as_ref().map_or_else(Waiter::new, |n| Arc::clone(n.waiter()));
        let many = ManyCursors::new(cursors, newcomers, options);
        Subscriber::new(waiter, CursorSet::ManyCursors(Box::new(many)), wait, clock)
    }

    fn new(waiter: Arc<Waiter>, reading: CursorSet, wait: Wait, clock: Clock) -> Subscriber {
        let spinning = SpinBudget::default();
        Subscriber {
            waiter,
            reading,
            pending: None,
            found: 0,
            taken: 0,
            wait,
            spinning,
            pauses: PAUSES_MIN,
            clock,
        }
    }

    /// Number of unread records in all logs.
    pub fn behind(&self) -> u64 {
        match &self.reading {
            CursorSet::One(cursor) => cursor.behind(),
            CursorSet::ManyCursors(many) => many.cursors().map(Cursor::behind).sum(),
        }
    }

    /// Passes each log and the position of its last delivered or skipped record to `each`. A record that
    /// [`ready`](Subscribe::ready) found and the caller did not take counts as unread.
    pub fn for_each_position(&mut self, mut each: impl FnMut(&Arc<LogName>, Position)) {
        let mut tell = |cursor: &mut Cursor| {
            cursor.pass_unwanted();
            each(cursor.name(), cursor.read_through());
        };
        match &mut self.reading {
            CursorSet::One(cursor) => tell(cursor),
            CursorSet::ManyCursors(many) => many.cursors_mut().for_each(tell),
        }
    }

    /// The cursor that has records.
    #[inline(always)]
    fn current(&mut self) -> Option<&mut Cursor> {
        match &mut self.reading {
            CursorSet::One(cursor) => Some(cursor),
            CursorSet::ManyCursors(many) => many.current(),
        }
    }

    #[inline(always)]
    fn step_past_taken(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        if taken > 0
            && let Some(cursor) = self.current()
        {
            cursor.advance(1, taken);
        }
    }

    /// Looks for records or a notice.
    #[inline(always)]
    fn look(&mut self) -> Result<bool, SubscribeError> {
        let fill = match &mut self.reading {
            CursorSet::One(cursor) => {
                if cursor.is_armed() && self.waiter.take_ready(|_| ()) {
                    cursor.woken();
                }
                cursor.fill()
            }
            CursorSet::ManyCursors(many) => many.fill(&self.waiter)?,
        };
        match fill {
            ReadOutcome::Records => Ok(true),
            ReadOutcome::Empty => Ok(false),
            ReadOutcome::Notice(notice) => {
                self.pending = Some(Box::new(notice));
                Ok(true)
            }
            ReadOutcome::Closed => Err(self.ended()),
        }
    }

    #[cold]
    fn ended(&self) -> SubscribeError {
        match &self.reading {
            CursorSet::One(cursor) if cursor.was_lost() => SubscribeError::Lost,
            _ => SubscribeError::Closed,
        }
    }

    fn may_have_more(&self) -> bool {
        self.pending.is_some()
            || match &self.reading {
                CursorSet::One(cursor) => {
                    cursor.may_have_more() || cursor.is_armed() && self.waiter.is_ready()
                }
                CursorSet::ManyCursors(many) => many.may_have_more() || self.waiter.is_ready(),
            }
    }

    /// Arms the cursors and sets `waker`. Returns `false` if there is something to read.
    fn sleep(&mut self, waker: &Waker) -> bool {
        self.step_past_taken();
        if self.pending.is_some() {
            return false;
        }
        let armed = match &mut self.reading {
            CursorSet::One(cursor) => cursor.arm(&self.waiter, 0),
            CursorSet::ManyCursors(many) => !many.may_have_more(),
        };
        armed && self.waiter.set_waker(waker)
    }

    /// Wakes the next sleepers before this subscriber does anything else.
    fn pass_wake_on(&mut self) -> Result<(), SubscribeError> {
        match &mut self.reading {
            CursorSet::One(cursor) if cursor.is_armed() && self.waiter.take_ready(|_| ()) => cursor.woken(),
            CursorSet::One(_) => {}
            CursorSet::ManyCursors(many) => many.take_notified(&self.waiter)?,
        }
        Ok(())
    }

    /// Sleeps until something may be available. Returns `false` at the deadline.
    fn park(&mut self, deadline_ns: u64) -> bool {
        let waker = thread_waker();
        while self.sleep(&waker) {
            let left_ns = match deadline_ns {
                u64::MAX => u64::MAX,
                deadline_ns => deadline_ns.saturating_sub(self.clock.now_ns()),
            };
            match left_ns {
                0 if self.waiter.clear_waker() => return false,
                0 => return true,
                u64::MAX => thread::park(),
                ns => thread::park_timeout(Duration::from_nanos(ns)),
            }
        }
        true
    }

    /// Spins as the options say. Returns whether something arrived.
    ///
    /// Each check takes the cache line of the commit word from the publisher. The publisher then waits for this cache
    /// line. The first check therefore comes late. While each read returns several records, the first check comes even
    /// later, so that the publisher can write a few more records before it.
    fn spin(&self, began_ns: u64, deadline_ns: u64) -> bool {
        let spin_until_ns = match (self.wait, self.spinning.budget_ns()) {
            (Wait::Parked, _) | (Wait::Default, 0) => return self.may_have_more(),
            (Wait::Spin, _) => deadline_ns,
            (Wait::Default, budget_ns) => deadline_ns.min(began_ns + budget_ns),
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
            if self.clock.now_ns() >= spin_until_ns {
                return false;
            }
        }
    }
}

impl Subscribe for Subscriber {
    #[inline(always)]
    fn ready(&mut self) -> Result<bool, SubscribeError> {
        self.step_past_taken();
        if self.pending.is_some() {
            return Ok(true);
        }
        while self.look()? {
            if self.pending.is_some() {
                return Ok(true);
            }
            let Some(cursor) = self.current() else { return Ok(false) };
            match cursor.peek() {
                Some((Some(_), bytes)) => {
                    self.found = bytes;
                    return Ok(true);
                }
                Some((None, expired)) => cursor.skip(1, expired),
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
        self.taken = std::mem::take(&mut self.found);
        let record = self.current().and_then(|cursor| cursor.under()).map(|(record, _)| record);
        Event::Record(record.expect("an event is available after `ready` has returned true"))
    }

    #[inline(always)]
    fn drain(&mut self, max: usize, mut each: impl FnMut(Event<'_>)) -> Result<usize, SubscribeError> {
        self.step_past_taken();
        let one = match &mut self.reading {
            CursorSet::One(cursor) => {
                cursor.look_again();
                true
            }
            CursorSet::ManyCursors(_) => false,
        };
        let mut given = 0;
        while given < max {
            if let Some(notice) = self.pending.take() {
                each(Event::Notice(*notice));
                given += 1;
                // Looks up no more records than it delivers, so that a gap covers all records that are lost before its
                // delivery.
                continue;
            }
            match self.look() {
                Ok(true) if self.pending.is_some() => continue,
                Ok(true) => {}
                Ok(false) => break,
                // Returns the delivered events first. The next call returns the error.
                Err(_) if given > 0 => break,
                Err(ended) => return Err(ended),
            }
            if let Some(cursor) = self.current() {
                given += cursor.drain(max - given, |record| each(Event::Record(record)));
                // Leaves records that have arrived in the meantime to the next call. If this call read them, the
                // subscriber would follow the publisher record by record and slow down the publisher.
                if one && given > 0 && given < max && cursor.has_caught_up() {
                    break;
                }
            }
        }
        if let Some(cursor) = self.current() {
            cursor.release();
        }
        self.pauses = if given > 1 { (self.pauses * 2).min(PAUSES_MAX) } else { PAUSES_MIN };
        Ok(given)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, SubscribeError> {
        self.step_past_taken();
        let timeout_ns = timeout.map_or(u64::MAX, |t| t.as_nanos().min(u64::MAX.into()) as u64);
        let learns = self.wait == Wait::Default;
        let began_ns = if learns || timeout_ns < u64::MAX { self.clock.now_ns() } else { 0 };
        let deadline_ns = began_ns.saturating_add(timeout_ns);
        if self.spin(began_ns, deadline_ns) {
            self.spinning.caught();
            return Ok(true);
        }
        let woken = self.park(deadline_ns);
        if woken {
            self.pass_wake_on()?;
        }
        if learns {
            self.spinning.parked(self.clock.now_ns().saturating_sub(began_ns));
        }
        Ok(woken)
    }

    fn resync(&mut self, log: &LogName, resync: Resync) -> Result<(), SubscribeError> {
        self.step_past_taken();
        match &mut self.reading {
            CursorSet::One(cursor) => cursor.resync(resync),
            CursorSet::ManyCursors(many) => many.resync(log, resync),
        }
        Ok(())
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SubscribeError>> {
        if self.may_have_more() || !self.sleep(cx.waker()) {
            Poll::Ready(self.pass_wake_on())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        match &mut self.reading {
            CursorSet::One(cursor) => cursor.leave(&self.waiter, 0),
            CursorSet::ManyCursors(many) => many.leave(&self.waiter),
        }
    }
}

/// How in-process subscribers consume records.
pub(crate) const CONSUMPTION: ConsumeMode = ConsumeMode::Reads;
