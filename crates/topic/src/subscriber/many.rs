//! Reads several cursors in turn. Cursors that have something to read are in a queue, and the other cursors sleep.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cursor::{Cursor, ReadOutcome, SkipBudget};
use crate::event::{LogName, Notice};
use crate::log::Log;
use crate::subscribe::{Resync, SubscribeError, SubscribeOptions};
use crate::wake::Waiter;

use super::CONSUMPTION;
use crate::cursor::Filter;

/// After this many reads of the same cursor, another cursor has its turn.
const READS_PER_CURSOR_MAX: u32 = 64;

/// The logs of newly created topics that a running subscription has to read, too.
#[derive(Debug, Default)]
pub struct NewLogs {
    waiter: Arc<Waiter>,
    arrived: Mutex<VecDeque<(Arc<Log>, Option<Filter>)>>,
    /// The list to which this subscription's number is added when logs have joined the subscription, and that number.
    arrivals: Option<(Arc<NewLogArrivals>, u32)>,
    is_for_node: bool,
}

/// The numbers of those subscriptions of a session that new logs have joined.
#[derive(Debug, Default)]
pub struct NewLogArrivals(Mutex<Vec<u32>>);

impl NewLogArrivals {
    /// Takes the numbers that were added since the last call. The new logs of such a subscription may have been taken
    /// in the meantime.
    pub fn take(&self) -> Vec<u32> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, number: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    }
}

impl NewLogs {
    /// The token with which the waiter is notified when a log joins.
    pub const TOKEN: u32 = u32::MAX;

    /// Creates an empty list with a new waiter.
    pub fn new() -> Arc<NewLogs> {
        Arc::default()
    }

    /// Creates an empty list that notifies `waiter` when logs join.
    pub fn with_waiter(waiter: Arc<Waiter>) -> Arc<NewLogs> {
        Arc::new(NewLogs { waiter, ..NewLogs::default() })
    }

    /// Creates an empty list. When logs join, it notifies `waiter`, and adds `number`, the subscription's number, to
    /// `arrivals`.
    pub fn with_arrivals(waiter: Arc<Waiter>, arrivals: Arc<NewLogArrivals>, number: u32) -> Arc<NewLogs> {
        Arc::new(NewLogs { waiter, arrivals: Some((arrivals, number)), ..NewLogs::default() })
    }

    /// Like [`with_arrivals`](NewLogs::with_arrivals), but for a subscription that feeds a mirror at another node. The
    /// other node itself reports the subscribers of its mirror.
    pub fn with_arrivals_for_node(
        waiter: Arc<Waiter>,
        arrivals: Arc<NewLogArrivals>,
        number: u32,
    ) -> Arc<NewLogs> {
        let arrivals = Some((arrivals, number));
        Arc::new(NewLogs { waiter, arrivals, is_for_node: true, ..NewLogs::default() })
    }

    /// Whether the subscription feeds a mirror at another node.
    pub fn is_for_node(&self) -> bool {
        self.is_for_node
    }

    /// Adds a log, which is read from its first record, and a filter for the log.
    pub fn add(&self, log: Arc<Log>, filter: Option<Filter>) {
        let is_first = {
            let mut arrived = self.lock();
            arrived.push_back((log, filter));
            arrived.len() == 1
        };
        if is_first && let Some((arrivals, number)) = &self.arrivals {
            arrivals.push(*number);
        }
        self.waiter.notify(NewLogs::TOKEN);
    }

    pub(super) fn waiter(&self) -> &Arc<Waiter> {
        &self.waiter
    }

    /// Takes the logs that were added since the last call, with their filters.
    pub fn take(&self) -> VecDeque<(Arc<Log>, Option<Filter>)> {
        std::mem::take(&mut self.lock())
    }

    /// The numbers of the logs that were added since the last call of [`take`](NewLogs::take).
    pub fn numbers(&self) -> HashSet<u64> {
        self.lock().iter().map(|(log, _)| log.number()).collect()
    }

    /// Puts back logs for which no cursor was created yet.
    fn return_logs(&self, rest: VecDeque<(Arc<Log>, Option<Filter>)>) {
        {
            let mut arrived = self.lock();
            let later = std::mem::replace(&mut *arrived, rest);
            arrived.extend(later);
        }
        self.waiter.notify(NewLogs::TOKEN);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Arc<Log>, Option<Filter>)>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cursors of a subscriber that reads several logs.
#[derive(Debug)]
pub(super) struct ManyCursors {
    /// The cursors; `None` in places that are free. A cursor's index in this list is also its token.
    cursors: Vec<Option<Cursor>>,
    /// The free places in `cursors`.
    free: Vec<u32>,
    /// The indexes of the cursors that have something to read, in the order in which they are read.
    ready: VecDeque<u32>,
    /// The indexes of the cursors that are read only after the end of a deleted topic with the same name.
    held: VecDeque<u32>,
    current: Option<u32>,
    reads: u32,
    new_logs: Option<Arc<NewLogs>>,
    options: SubscribeOptions,
}

impl ManyCursors {
    pub(super) fn new(
        cursors: Vec<Cursor>,
        new_logs: Option<Arc<NewLogs>>,
        options: SubscribeOptions,
    ) -> ManyCursors {
        let ready = (0..cursors.len() as u32).collect();
        let cursors = cursors.into_iter().map(Some).collect();
        ManyCursors {
            cursors,
            free: Vec::new(),
            ready,
            held: VecDeque::new(),
            current: None,
            reads: 0,
            new_logs,
            options,
        }
    }

    pub(super) fn cursors(&self) -> impl Iterator<Item = &Cursor> {
        self.cursors.iter().flatten()
    }

    /// The cursors, without those that wait for the end of another log.
    pub(super) fn started_cursors_mut(&mut self) -> impl Iterator<Item = &mut Cursor> {
        let held = &self.held;
        let cursors = self.cursors.iter_mut().enumerate();
        cursors
            .filter(move |(token, _)| !held.contains(&(*token as u32)))
            .filter_map(|(_, cursor)| cursor.as_mut())
    }

    /// Whether the subscriber has to deliver another log to its end before it reads the log of `cursor`.
    fn is_held(&self, cursor: &Cursor) -> bool {
        cursor.log().follows_any(self.cursors().map(|other| &**other.log()))
    }

    /// Queues those cursors that have waited for the end of this log and need not wait any longer.
    fn queue_released(&mut self, ended: &Log) {
        for token in std::mem::take(&mut self.held) {
            let Some(Some(cursor)) = self.cursors.get(token as usize) else { continue };
            if !cursor.log().follows_any([ended]) || self.is_held(cursor) {
                self.held.push_back(token);
            } else {
                self.ready.push_back(token);
            }
        }
    }

    #[inline(always)]
    pub(super) fn current(&mut self) -> Option<&mut Cursor> {
        let token = self.current?;
        self.cursors.get_mut(token as usize)?.as_mut()
    }

    pub(super) fn may_have_more(&self) -> bool {
        self.current.is_some() || !self.ready.is_empty()
    }

    /// Finds a cursor that has something to read, makes it the current one, and returns the result of its read.
    pub(super) fn fill(
        &mut self,
        waiter: &Arc<Waiter>,
        skips: &mut SkipBudget,
    ) -> Result<ReadOutcome, SubscribeError> {
        self.take_notified(waiter)?;
        loop {
            if self.must_switch_cursor()
                && let Some(token) = self.current.take()
            {
                self.release(token);
                self.ready.push_back(token);
            }
            if self.current.is_none() {
                self.current = self.ready.pop_front();
                self.reads = 0;
                // The entry may be of an earlier log, whose place in `cursors` a held cursor has taken.
                if self.current.is_some_and(|token| self.held.contains(&token)) {
                    self.current = None;
                    continue;
                }
            }
            let Some(token) = self.current else { return Ok(self.empty_outcome()) };
            self.reads += 1;
            let Some(Some(cursor)) = self.cursors.get_mut(token as usize) else {
                self.current = None;
                continue;
            };
            match cursor.fill_within(skips) {
                ReadOutcome::Skipped => {
                    self.current = None;
                    self.ready.push_back(token);
                    return Ok(ReadOutcome::Skipped);
                }
                ReadOutcome::Empty if cursor.arm(waiter, token) => self.current = None,
                ReadOutcome::Empty => {}
                ReadOutcome::Closed if cursor.has_ended_at_gap() => return Err(SubscribeError::Lost),
                ReadOutcome::Closed => self.remove(token, waiter),
                ReadOutcome::Notice(notice @ Notice::Deleted { .. }) => {
                    self.remove(token, waiter);
                    return Ok(ReadOutcome::Notice(notice));
                }
                found => return Ok(found),
            }
        }
    }

    /// Whether another cursor has its turn. A conflated cursor delivers everything with one read, other cursors have
    /// several reads.
    fn must_switch_cursor(&self) -> bool {
        let current = self.current.and_then(|token| self.cursors.get(token as usize)?.as_ref());
        self.reads >= if current.is_some_and(Cursor::is_conflated) { 1 } else { READS_PER_CURSOR_MAX }
    }

    /// The result of a read if no cursor has anything to read. If all logs were deleted and no other log can join, the
    /// subscription has ended.
    fn empty_outcome(&self) -> ReadOutcome {
        let ended = self.new_logs.is_none() && self.cursors.iter().all(Option::is_none);
        if ended { ReadOutcome::Closed } else { ReadOutcome::Empty }
    }

    pub(super) fn take_notified(&mut self, waiter: &Waiter) -> Result<(), SubscribeError> {
        let mut has_new_logs = false;
        waiter.take_ready(|token| {
            if token == NewLogs::TOKEN {
                has_new_logs = true;
            } else if let Some(Some(cursor)) = self.cursors.get_mut(token as usize) {
                cursor.handle_wake();
                self.ready.push_back(token);
            }
        });
        if has_new_logs { self.add_new_logs() } else { Ok(()) }
    }

    fn add_new_logs(&mut self) -> Result<(), SubscribeError> {
        let Some(new_logs) = &self.new_logs else { return Ok(()) };
        let mut arrived = new_logs.take();
        while let Some((log, filter)) = arrived.pop_front() {
            let (options, start) = self.options.for_new_log(&log);
            let cursor = match Cursor::with_start(log, &options, start, filter, CONSUMPTION) {
                Ok(cursor) => cursor,
                Err(refused) => {
                    new_logs.return_logs(arrived);
                    return Err(refused);
                }
            };
            let is_held = self.is_held(&cursor);
            let token = self.free.pop().unwrap_or(self.cursors.len() as u32);
            match self.cursors.get_mut(token as usize) {
                Some(slot) => *slot = Some(cursor),
                None => self.cursors.push(Some(cursor)),
            }
            let waiting = if is_held { &mut self.held } else { &mut self.ready };
            waiting.push_back(token);
        }
        Ok(())
    }

    fn release(&mut self, token: u32) {
        if let Some(Some(cursor)) = self.cursors.get_mut(token as usize) {
            cursor.release();
        }
    }

    fn remove(&mut self, token: u32, waiter: &Arc<Waiter>) {
        self.current = None;
        if let Some(mut cursor) = self.cursors.get_mut(token as usize).and_then(Option::take) {
            cursor.leave(waiter, token);
            self.free.push(token);
            self.queue_released(cursor.log());
        }
    }

    pub(super) fn resync(&mut self, log: &LogName, resync: Resync) {
        for (token, cursor) in self.cursors.iter_mut().enumerate() {
            if let Some(cursor) = cursor
                && **cursor.name() == *log
                && !self.held.contains(&(token as u32))
            {
                cursor.resync(resync);
                self.ready.push_back(token as u32);
            }
        }
    }

    pub(super) fn leave(&mut self, waiter: &Arc<Waiter>) {
        for (token, cursor) in self.cursors.iter_mut().enumerate() {
            if let Some(cursor) = cursor {
                cursor.leave(waiter, token as u32);
            }
        }
    }
}
