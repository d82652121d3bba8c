//! Reads the logs of one subscription for its response.
//!
//! Logs with new records are in a queue, and are read in turn. A log without new records is not read until it notifies
//! the subscription's waiter. Records are read only when the client can receive them. If the client does not read, the
//! subscription keeps its positions, and reports a gap if records have left the log meanwhile.
//!
//! Invariant: between two calls, the subscription holds no segment of a log.
//!
//! Limits: `channels_max` logs; `batch_bytes_max` bytes in a batch, unless a single record is larger.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin::topic::{
    ConsumeMode, Cursor, Filter, Log, MemoryCharge, NewLogs, Notice, Pattern, Position, ReadOutcome,
    RecordSpanContent, SkipBudget, Snapshot, Start, SubscribeError, SubscribeOptions, Waiter,
};
use dunlin::wire::ErrorCode;
use dunlin::{CursorFuture, Refused};
use tokio::runtime::Handle;
use tonic::{Code, Status};

use super::connection::StreamRegistration;
use super::outgoing::OutgoingMessages;
use super::records::RecordBatch;
use super::status::status;
use super::writer::EventWriter;
use crate::access::SubscriptionAccess;
use crate::charging::charge_subscriptions;
use crate::departures::DepartureKind;
use crate::session::turn::{LOGS_PER_TURN, TurnWork, pause_after};
use crate::shared::STOP;

/// When new records wake a subscription, the subscription wakes at most this many others, as in Dunlin's own protocol.
const PASSED_WAKES_MAX: usize = 16;
/// Token with which the waiter is notified that the client has unsubscribed.
pub(super) const UNSUBSCRIBED: u32 = u32::MAX - 3;
/// Maximum number of logs whose start positions are in one message.
const START_LOGS_MAX: usize = 512;
/// Maximum number of bytes of a state in one message.
const STATE_PART_BYTES: usize = 32 << 10;
/// Maximum number of times that logs are read before other tasks of the thread run. Without this limit, a watch that
/// skips all records would keep the thread.
const READS_PER_POLL: usize = 64;
/// Approximate maximum number of records that are read from a log at a time.
const RECORDS_PER_READ: u64 = 1_024;
/// Interval at which a subscriber that skips records of a log receives its position in that log.
const ADVANCE_AFTER: Duration = Duration::from_secs(1);

/// The positions at which a resumed subscription continues, by topic and partition.
pub(super) type ResumePositions = HashMap<(String, u16), Position>;

/// The parameters with which [`SubscriptionReader::new`] starts a subscription.
#[derive(Debug)]
pub(super) struct ReaderSetup {
    pub(super) options: SubscribeOptions,
    pub(super) patterns: Vec<Pattern>,
    /// The existing logs, each of them once.
    pub(super) logs: Vec<(Arc<Log>, Option<Filter>)>,
    pub(super) newcomers: Option<Arc<NewLogs>>,
    pub(super) resumed: Option<ResumePositions>,
    pub(super) waiter: Arc<Waiter>,
    pub(super) validity: Option<SubscriptionAccess>,
    pub(super) registration: StreamRegistration,
    pub(super) channels_max: usize,
    pub(super) batch_bytes_max: usize,
}

/// A subscription and its position in each log.
#[derive(Debug)]
pub(super) struct SubscriptionReader {
    options: SubscribeOptions,
    /// The patterns of the subjects to read. If there are several, a log of a new topic can be in `newcomers` once for
    /// each of them.
    patterns: Vec<Pattern>,
    /// The subscription's logs. A log notifies the waiter with its index in this list as the token.
    channels: Vec<Option<Box<Channel>>>,
    /// Logs whose start positions are not known yet, perhaps because another node must find them.
    opening: Vec<(Arc<Log>, CursorFuture)>,
    /// The cursors of logs that are read only after the end of a deleted topic with the same name.
    held: Vec<(Cursor, MemoryCharge)>,
    open_channels: usize,
    queue: VecDeque<u32>,
    /// The logs that have notified the subscription, and are not in the queue yet.
    woken: VecDeque<u32>,
    newcomers: Option<Arc<NewLogs>>,
    /// The numbers of the newest topic's logs, if there are several patterns.
    newest: Vec<u64>,
    resumed: Option<ResumePositions>,
    waiter: Arc<Waiter>,
    channels_max: usize,
    batch_bytes_max: usize,
    /// Number of logs whose start positions the client has received; `None` when it has received all.
    announced: Option<usize>,
    /// Timer after which the client receives its positions in the logs of `skipped`.
    advance: Option<Pin<Box<tokio::time::Sleep>>>,
    skipped: Vec<u32>,
    validity: Option<SubscriptionAccess>,
    registration: StreamRegistration,
}

/// A subscription's state in one of its logs.
#[derive(Debug)]
struct Channel {
    cursor: Cursor,
    /// The position that the client has after it has received everything that was sent.
    reported: Position,
    /// The state that is being sent, and the number of its bytes that were sent.
    sending: Option<(Snapshot, usize)>,
    /// Whether this log is in the reader's list `skipped`.
    skipped: bool,
    _charge: MemoryCharge,
}

/// The state of a log after it was read once.
enum ReadProgress {
    More,
    /// Many records were skipped, and there may be more. Other logs are read first.
    Skipped,
    Sleeps,
    Ended,
}

impl SubscriptionReader {
    pub(super) async fn new(setup: ReaderSetup) -> Result<SubscriptionReader, Refused> {
        let ReaderSetup {
            options,
            patterns,
            logs,
            newcomers,
            resumed,
            waiter,
            validity,
            registration,
            channels_max,
            batch_bytes_max,
        } = setup;
        let mut reader = SubscriptionReader {
            options,
            patterns,
            channels: Vec::with_capacity(logs.len()),
            opening: Vec::new(),
            held: Vec::new(),
            open_channels: 0,
            queue: VecDeque::new(),
            woken: VecDeque::new(),
            newcomers,
            newest: Vec::new(),
            resumed,
            waiter,
            channels_max,
            batch_bytes_max,
            announced: Some(0),
            advance: None,
            skipped: Vec::new(),
            validity,
            registration,
        };
        for (opened, (log, filter)) in logs.into_iter().enumerate() {
            let start = reader.start_of(&log);
            reader.open(log, filter, start, false)?;
            pause_after(opened).await;
        }
        for (added, (_, opening)) in std::mem::take(&mut reader.opening).into_iter().enumerate() {
            reader.add(opening.await)?;
            pause_after(added).await;
        }
        Ok(reader)
    }

    /// Reports to operators why the subscription was cut off. Ordinary ends are not reported.
    pub(super) fn record_end(&self, status: &Status) {
        if !matches!(status.code(), Code::Ok | Code::Unavailable | Code::Aborted) {
            self.registration.record_departure(DepartureKind::CutOff, &self.options.name, status.message());
        }
    }

    /// The position at which the subscription begins to read `log`, which is older than the subscription.
    fn start_of(&mut self, log: &Log) -> Start {
        let name = log.name();
        match &mut self.resumed {
            Some(resumed) => match resumed.remove(&(name.topic.clone(), name.partition)) {
                Some(position) => Start::After(position),
                None => self.options.for_new_log(log).1,
            },
            None => self.options.start,
        }
    }

    fn open(
        &mut self,
        log: Arc<Log>,
        filter: Option<Filter>,
        start: Start,
        is_new: bool,
    ) -> Result<(), Refused> {
        if self.open_channels + self.opening.len() + self.held.len() >= self.channels_max {
            return Err(Refused::limit("channels_max", self.channels_max as u64));
        }
        // The options for new logs also apply to all logs of a resumed subscription.
        let late = (is_new || self.resumed.is_some()).then(|| self.options.for_new_log(&log).0);
        let options = late.as_ref().unwrap_or(&self.options);
        let node = &self.registration.shared().node;
        let cursor = node.open_cursor(Arc::clone(&log), options, start, filter, ConsumeMode::Reads);
        self.opening.push((log, cursor));
        Ok(())
    }

    /// Adds the logs whose start positions have been found.
    fn poll_opening(&mut self, cx: &mut Context<'_>) -> Result<(), Refused> {
        let mut at = 0;
        while let Some((_, opening)) = self.opening.get_mut(at) {
            match Pin::new(opening).poll(cx) {
                Poll::Pending => at += 1,
                Poll::Ready(cursor) => {
                    drop(self.opening.swap_remove(at));
                    self.add(cursor)?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, cursor: Result<Cursor, SubscribeError>) -> Result<(), Refused> {
        let cursor = cursor.map_err(|error| Refused::from(&error))?;
        let charge = charge_subscriptions(self.registration.node(), 1, self.options.name.len());
        self.open_channel(cursor, charge.map_err(|error| Refused::from(&error))?);
        Ok(())
    }

    /// Starts to read a log. If the subscription must first deliver all of another log, keeps the log in `held`
    /// instead.
    fn open_channel(&mut self, cursor: Cursor, charge: MemoryCharge) {
        let channels = self.channels.iter().flatten().map(|channel| &**channel.cursor.log());
        let others = channels.chain(self.opening.iter().map(|(log, _)| &**log));
        if cursor.log().follows_any(others.chain(self.held.iter().map(|(cursor, _)| &**cursor.log()))) {
            return self.held.push((cursor, charge));
        }
        let reported = cursor.read_through();
        let channel = Box::new(Channel { cursor, reported, sending: None, skipped: false, _charge: charge });
        self.queue.push_back(self.channels.len() as u32);
        self.channels.push(Some(channel));
        self.open_channels += 1;
    }

    /// Opens the held channels that waited for the end of this log, except for those that must wait longer.
    fn open_held_channels(&mut self, ended: &Log) {
        let (mut held, mut at) = (Vec::new(), 0);
        while let Some((cursor, _)) = self.held.get(at) {
            if cursor.log().follows_any([ended]) {
                held.push(self.held.swap_remove(at));
            } else {
                at += 1;
            }
        }
        held.sort_by_key(|(cursor, _)| cursor.log().number());
        held.into_iter().for_each(|(cursor, charge)| self.open_channel(cursor, charge));
    }

    /// The waiter that new records notify.
    pub(super) fn waiter(&self) -> &Arc<Waiter> {
        &self.waiter
    }

    /// Writes about one batch of messages to `out`. Returns `Pending` when there is nothing to send, and an error when
    /// the subscription has ended.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut OutgoingMessages,
        writer: &mut impl EventWriter,
    ) -> Poll<Result<(), Status>> {
        loop {
            if let Some(Err(refused)) = self.validity.as_mut().map(SubscriptionAccess::check) {
                return Poll::Ready(Err(status(&refused)));
            }
            self.handle_notifications().map_err(|refused| status(&refused))?;
            self.poll_opening(cx).map_err(|refused| status(&refused))?;
            self.write_start_positions(out, writer);
            let mut reads = 0;
            let mut skips = SkipBudget::default();
            while out.len() < self.batch_bytes_max
                && reads < READS_PER_POLL
                && !skips.is_spent()
                && let Some(number) = self.queue.pop_front()
            {
                self.read_channel(number, &mut skips, out, writer)?;
                reads += 1;
            }
            self.advance_skipped(cx, out, writer)?;
            if !out.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if self.open_channels == 0 && self.opening.is_empty() && self.newcomers.is_none() {
                return Poll::Ready(Err(status(&Refused::from(&SubscribeError::Closed))));
            }
            let is_turn_over = reads == READS_PER_POLL || skips.is_spent() || !self.woken.is_empty();
            if is_turn_over && !(self.queue.is_empty() && self.woken.is_empty()) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.queue.is_empty() && self.waiter.set_waker(cx.waker()) {
                return Poll::Pending;
            }
        }
    }

    fn handle_notifications(&mut self) -> Result<(), Refused> {
        let (mut has_new_logs, mut stop, mut unsubscribed) = (false, false, false);
        let SubscriptionReader { waiter, woken, .. } = self;
        waiter.take_ready(|token| match token {
            NewLogs::TOKEN => has_new_logs = true,
            STOP => stop = true,
            UNSUBSCRIBED => unsubscribed = true,
            number => woken.push_back(number),
        });
        let mut work = TurnWork::default();
        while !work.is_spent()
            && let Some(number) = self.woken.pop_front()
        {
            work.add(1);
            if let Some(Some(channel)) = self.channels.get_mut(number as usize) {
                channel.cursor.handle_wake_many(PASSED_WAKES_MAX);
                self.queue.push_back(number);
            }
        }
        if unsubscribed {
            return Err(Refused::new(ErrorCode::Ended, ""));
        }
        if stop {
            return Err(Refused::new(ErrorCode::ShuttingDown, ""));
        }
        let arrived = self.newcomers.as_ref().filter(|_| has_new_logs).map(|newcomers| newcomers.take());
        for (log, filter) in arrived.into_iter().flatten() {
            let Some(filter) = self.filter_of_new(&log, filter) else { continue };
            let start = match &self.resumed {
                Some(_) => self.start_of(&log),
                None => self.options.for_new_log(&log).1,
            };
            self.open(log, filter, start, true)?;
        }
        Ok(())
    }

    /// The filter for a log of a new topic, which selects the subjects of all patterns; `filter` is that of one
    /// pattern. Returns `None` if the log has arrived before, because of another pattern. The logs of a topic arrive
    /// one after another, without other topics in between.
    fn filter_of_new(&mut self, log: &Log, filter: Option<Filter>) -> Option<Option<Filter>> {
        if self.patterns.len() <= 1 {
            return Some(filter);
        }
        if self.newest.contains(&log.number()) {
            return None;
        }
        if log.name().partition == 0 {
            self.newest.clear();
        }
        self.newest.push(log.number());
        let node = self.registration.node();
        let of_patterns = self.patterns.iter().filter_map(|pattern| node.readable_filter(pattern, log));
        Some(Filter::any_of(std::iter::once(filter).chain(of_patterns).collect()))
    }

    fn write_start_positions(&mut self, out: &mut OutgoingMessages, writer: &mut impl EventWriter) {
        while let Some(first) = self.announced {
            if out.len() >= self.batch_bytes_max {
                return;
            }
            let end = self.channels.len().min(first + START_LOGS_MAX);
            let channels = self.channels[first..end].iter().flatten();
            let logs: Vec<_> = channels.map(|channel| (&**channel.cursor.name(), channel.reported)).collect();
            let more = end < self.channels.len();
            writer.write_start(out, &logs, more);
            self.announced = more.then_some(end);
        }
    }

    fn read_channel(
        &mut self,
        number: u32,
        skips: &mut SkipBudget,
        out: &mut OutgoingMessages,
        writer: &mut impl EventWriter,
    ) -> Result<(), Status> {
        let Some(Some(channel)) = self.channels.get_mut(number as usize) else { return Ok(()) };
        if self.announced.is_some() {
            self.queue.push_back(number);
            return Ok(());
        }
        let progress = channel.read(skips, out, writer, self.batch_bytes_max);
        channel.cursor.release();
        match progress? {
            ReadProgress::More => self.queue.push_back(number),
            ReadProgress::Skipped => {
                self.queue.push_back(number);
                // The client receives its position at the next interval, even while more records are skipped.
                if !std::mem::replace(&mut channel.skipped, true) {
                    self.skipped.push(number);
                }
            }
            ReadProgress::Sleeps => {
                if !channel.cursor.arm(&self.waiter, number) {
                    self.queue.push_back(number);
                }
                // Records that the subscriber skips do not wake the subscription, so a timer checks for them.
                let skips =
                    channel.cursor.is_armed_by_subject() || channel.cursor.read_through() != channel.reported;
                if skips && !std::mem::replace(&mut channel.skipped, true) {
                    self.skipped.push(number);
                }
            }
            ReadProgress::Ended => {
                let lost = channel.cursor.has_ended_at_gap();
                channel.cursor.leave(&self.waiter, number);
                let ended = Arc::clone(channel.cursor.log());
                self.channels[number as usize] = None;
                self.open_channels -= 1;
                if lost {
                    return Err(status(&Refused::from(&SubscribeError::Lost)));
                }
                self.open_held_channels(&ended);
            }
        }
        Ok(())
    }

    /// Sends the client's positions in those logs where it skipped records, at most once in each [`ADVANCE_AFTER`].
    fn advance_skipped(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut OutgoingMessages,
        writer: &mut impl EventWriter,
    ) -> Result<(), Status> {
        while !self.skipped.is_empty() {
            let timer = self.advance.get_or_insert_with(|| Box::pin(tokio::time::sleep(ADVANCE_AFTER)));
            if timer.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            self.advance = None;
            for number in std::mem::take(&mut self.skipped) {
                let Some(Some(channel)) = self.channels.get_mut(number as usize) else { continue };
                channel.cursor.skip_unwanted();
                channel.skipped = channel.cursor.is_armed_by_subject();
                if channel.skipped {
                    self.skipped.push(number);
                }
                let through = channel.cursor.read_through();
                if channel.sending.is_none() && through != channel.reported {
                    channel.reported = through;
                    let log = Arc::clone(channel.cursor.name());
                    writer.write_notice(out, &Notice::Advance { log, through })?;
                }
            }
        }
        Ok(())
    }
}

impl Channel {
    fn read(
        &mut self,
        skips: &mut SkipBudget,
        out: &mut OutgoingMessages,
        writer: &mut impl EventWriter,
        batch_bytes_max: usize,
    ) -> Result<ReadProgress, Status> {
        let mut records = 0;
        while out.len() < batch_bytes_max && records < RECORDS_PER_READ {
            if self.sending.is_some() {
                self.send_state(out, writer);
                continue;
            }
            match self.cursor.fill_within(skips) {
                ReadOutcome::Records => records += self.write_span(out, writer, batch_bytes_max),
                ReadOutcome::Skipped => return Ok(ReadProgress::Skipped),
                ReadOutcome::Empty => return Ok(ReadProgress::Sleeps),
                ReadOutcome::Closed => return Ok(ReadProgress::Ended),
                ReadOutcome::Notice(Notice::Snapshot(snapshot)) => self.sending = Some((snapshot, 0)),
                ReadOutcome::Notice(notice) => {
                    writer.write_notice(out, &notice)?;
                    match &notice {
                        Notice::Checksum(_) | Notice::Lagging(_) | Notice::Publishers(_) => {}
                        _ => self.reported = self.cursor.read_through(),
                    }
                    if matches!(notice, Notice::Deleted { .. }) {
                        return Ok(ReadProgress::Ended);
                    }
                }
            }
        }
        Ok(ReadProgress::More)
    }

    /// Encodes one span of consecutive records. Returns the number of these records.
    fn write_span(
        &mut self,
        out: &mut OutgoingMessages,
        writer: &mut impl EventWriter,
        batch_bytes_max: usize,
    ) -> u64 {
        let span_bytes_max = batch_bytes_max.saturating_sub(out.len()).max(1);
        let Some(span) = self.cursor.spans(span_bytes_max).next() else { return 0 };
        let (count, bytes) = (u64::from(span.count), span.advance_bytes);
        if matches!(span.content, RecordSpanContent::Skipped | RecordSpanContent::Lost) {
            self.cursor.skip(count, bytes);
            return count;
        }
        let first = self.cursor.next();
        let skipped = first.seq - 1 - self.cursor.prev_seq();
        writer.write_records(
            out,
            &RecordBatch { log: self.cursor.name(), first, skipped, content: span.content },
        );
        self.cursor.advance(count, bytes);
        self.reported = self.cursor.read_through();
        count
    }

    fn send_state(&mut self, out: &mut OutgoingMessages, writer: &mut impl EventWriter) {
        let Some((snapshot, offset)) = &mut self.sending else { return };
        *offset += writer.write_state(out, snapshot, *offset, STATE_PART_BYTES);
        if *offset == snapshot.bytes.len() {
            self.reported = self.cursor.read_through();
            self.sending = None;
        }
    }
}

impl Drop for SubscriptionReader {
    fn drop(&mut self) {
        let (channels, waiter) = (std::mem::take(&mut self.channels), Arc::clone(&self.waiter));
        match Handle::try_current() {
            Ok(runtime) if channels.len() > LOGS_PER_TURN => {
                drop(runtime.spawn(leave_logs(channels, waiter)))
            }
            _ => {
                let open = channels.into_iter().enumerate();
                open.for_each(|(number, channel)| leave_log(number, channel, &waiter));
            }
        }
    }
}

/// Leaves the logs of a subscription that has ended, with pauses in which the thread's other sessions run.
async fn leave_logs(channels: Vec<Option<Box<Channel>>>, waiter: Arc<Waiter>) {
    for (number, channel) in channels.into_iter().enumerate() {
        leave_log(number, channel, &waiter);
        pause_after(number).await;
    }
}

fn leave_log(number: usize, channel: Option<Box<Channel>>, waiter: &Arc<Waiter>) {
    if let Some(mut channel) = channel {
        channel.cursor.leave(waiter, number as u32);
    }
}
