//! Appends published records. Consecutive records of one subject are appended together, directly from the read buffer.
//!
//! If a reliable topic is full, the session stops reading until there is room or the topic's wait time has passed. It
//! also stops reading while its user exceeds the publish rate. Meanwhile the socket fills up, which slows the client
//! down.

use std::sync::Arc;
use std::time::Duration;

use dunlin::topic::{
    AckLevel, Draft, Log, OnFull, Pattern, Payload, Position, PublishError, Receipt, RecordMeta, Subject,
    SubjectError,
};
use dunlin::wire::nats::{self, HEADERS_MAX, HeaderBlock, NatsMessageHead, PublishOperation};
use dunlin::{TopicError, now_ns, steady_ns};

use super::Session;
use super::access::{publish_error, publish_violation};
use super::targets::{PublishTarget, TargetError};

/// Approximate maximum number of bytes of records that are appended together. A larger record is appended alone. The
/// records of a batch are stored in one segment.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// The maximum number of records in a batch, and the maximum number of their bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLimits {
    records: usize,
    bytes: usize,
}

impl Default for BatchLimits {
    fn default() -> BatchLimits {
        BatchLimits { records: usize::MAX, bytes: BATCH_BYTES_MAX }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct BatchRecord<'b> {
    /// Offset in the read buffer at which the operation begins.
    offset: usize,
    published: PublishOperation<'b>,
}

/// Maximum number of bytes of an operation besides the record's subject, reply subject, headers and payload.
const OPERATION_EXTRA_BYTES: usize = 64;

impl BatchRecord<'_> {
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    pub(super) fn subject(&self) -> &[u8] {
        self.published.subject
    }

    /// An upper bound of the bytes that [`encode_operation`](BatchRecord::encode_operation) appends.
    pub(super) fn operation_bytes_max(&self) -> usize {
        let PublishOperation { subject, reply, .. } = self.published;
        subject.len() + reply.map_or(0, <[u8]>::len) + self.bytes() + OPERATION_EXTRA_BYTES
    }

    /// Appends the operation with which the client published the record.
    pub(super) fn encode_operation(&self, out: &mut Vec<u8>) {
        self.published.encode(out);
    }

    fn bytes(&self) -> usize {
        self.published.payload.len() + self.published.headers.len()
    }
}

/// The records of a batch, in the order in which the client published them.
pub(super) type PublishedBatch<'b> = Vec<BatchRecord<'b>>;

/// Empties a batch but keeps its memory, so that it can be used for another batch.
pub(super) fn cleared<'b>(mut batch: PublishedBatch<'_>) -> PublishedBatch<'b> {
    batch.clear();
    batch.into_iter().map(|_| unreachable!("it is empty")).collect()
}

/// A publish that waits for room in its topic, or until the user's publish rate allows it.
#[derive(Debug)]
pub(super) struct BlockedPublish {
    /// Time at which the wait began, ns by the monotonic clock.
    began_ns: u64,
    /// Time at which the wait ends, ns by the monotonic clock. The topic then evicts its slowest subscriber, or the
    /// batch is refused.
    deadline_ns: u64,
    retry: bool,
    over_rate: bool,
}

/// Minimum pause of a session that exceeds its user's publish rate, ns. A longer pause leads to fewer and larger
/// batches.
const RATE_PAUSE_NS_MIN: u64 = 5_000_000;

/// The error of a batch that must wait; none of its records was appended. Later, the session handles again all
/// operations that begin at or after the offset `from` in the read buffer.
#[derive(Debug)]
pub(super) struct RetryFrom {
    pub(super) from: usize,
}

impl BlockedPublish {
    pub(super) fn retry(&mut self) {
        self.retry = true;
    }

    /// Handles the notification that the topic has room again.
    pub(super) fn on_room(&mut self) {
        self.retry |= !self.over_rate;
    }

    /// Whether the append must be tried again. Returns true once for each notification.
    pub(super) fn take_retry(&mut self) -> bool {
        std::mem::take(&mut self.retry)
    }
}

impl Session {
    /// Adds a record to the batch. If the batch has another subject, or has no room for the record, appends the batch
    /// first.
    #[inline]
    pub(super) fn add_to_batch<'b>(
        &mut self,
        published: PublishOperation<'b>,
        offset: usize,
        batch: &mut PublishedBatch<'b>,
    ) -> Result<(), RetryFrom> {
        // A record with headers or a reply subject is appended alone: headers are parsed for one record at a time, and
        // a record with a reply subject may be a request without a responder.
        let is_alone = !published.headers.is_empty() || published.reply.is_some();
        if let Some(first) = batch.first()
            && (is_alone
                || first.published.subject != published.subject
                || self.repeats.contains(first.offset) != self.repeats.contains(offset)
                || batch.len() >= self.batch_limits.records
                || offset + published.payload.len() - first.offset > self.batch_limits.bytes)
        {
            self.publish_batch(batch)?;
        }
        if let Some(reply) = published.reply
            && !std::str::from_utf8(reply).is_ok_and(|reply| Subject::parse(reply).is_ok())
        {
            self.publish_batch(batch)?;
            let reply = String::from_utf8_lossy(reply);
            let text =
                format!("Permissions Violation for Publish with Reply of \"{reply}\": not a valid subject");
            self.refuse_each(text, 1);
            return Ok(());
        }
        batch.push(BatchRecord { offset, published });
        if is_alone { self.publish_batch(batch) } else { Ok(()) }
    }

    /// Appends the batch. If the topic is full, appends no record; the batch is then handled again later.
    pub(super) fn publish_batch(&mut self, batch: &mut PublishedBatch<'_>) -> Result<(), RetryFrom> {
        let Some(first) = batch.first() else { return Ok(()) };
        self.pings = 0;
        let outcome = match first.published.headers {
            [] => self.append(batch, &[]),
            block => match headers_of(block) {
                Ok(Some(headers)) => self.append(batch, &headers),
                Ok(None) => {
                    let why = format!("the record has more than {HEADERS_MAX} headers");
                    self.refuse_publish(first.published.subject, &why, batch.len());
                    Ok(())
                }
                Err(violation) => {
                    self.fail(&violation.to_string());
                    Ok(())
                }
            },
        };
        if outcome.is_ok() {
            if self.connect.verbose && !self.repeats.contains(batch[0].offset) {
                batch.iter().for_each(|_| self.outbound.control.extend_from_slice(nats::OK));
            }
            batch.clear();
            self.subscriber_queries.clear();
            self.targets.clear_reply_target();
        }
        outcome
    }

    fn append(&mut self, batch: &PublishedBatch<'_>, headers: &[(&str, &[u8])]) -> Result<(), RetryFrom> {
        let first = &batch[0];
        let subject = first.published.subject;
        if !first.published.headers.is_empty() && !self.connect.headers {
            self.fail("message headers not supported");
            return Ok(());
        }
        if let Some(reply) = first.published.reply
            && self.connect.no_responders
            && self.may_publish(subject)
            && let Some(pattern) = pattern_of(subject)
            && !self.has_subscriber(&pattern, first.offset)?
        {
            self.end_blocked();
            self.write_no_responders(reply);
            return Ok(());
        }
        if self.is_opening(subject) {
            // The client has just subscribed to the subject, and the subscription must receive this record. The publish
            // therefore waits until the channel is open.
            self.waits_for_opening = Some(self.opened);
            return Err(RetryFrom { from: first.offset });
        }
        if self.is_reply_without_requester(subject, first.offset)? {
            self.end_blocked();
            return Ok(());
        }
        self.find_target(first)?;
        if let Some(reply) = first.published.reply {
            self.open_reply_inbox(reply, first.offset)?;
        }
        // A repeated record was already counted towards the rate.
        if self.blocked.as_ref().is_none_or(|blocked| blocked.over_rate)
            && !self.repeats.contains(first.offset)
            && self.admit(batch)? == RateOutcome::Refused
        {
            return Ok(());
        }
        self.append_admitted(batch, headers)
    }

    /// Appends records one by one, so that the refusal of one record does not affect the others.
    fn append_each(&mut self, batch: &PublishedBatch<'_>) -> Result<(), RetryFrom> {
        for (nth, record) in batch.iter().enumerate() {
            let appended = self.append_admitted(&vec![*record], &[]);
            if appended.is_err() && self.connect.verbose && !self.repeats.contains(record.offset) {
                // The earlier records of the batch were appended and are not read again, so their `+OK` is sent now.
                (0..nth).for_each(|_| self.outbound.control.extend_from_slice(nats::OK));
            }
            appended?;
        }
        Ok(())
    }

    /// Appends a batch that does not exceed the user's publish rate.
    fn append_admitted(
        &mut self,
        batch: &PublishedBatch<'_>,
        headers: &[(&str, &[u8])],
    ) -> Result<(), RetryFrom> {
        let first = &batch[0];
        let subject = first.published.subject;
        // Reads the clock once for the whole attempt. With two readings, the wait could end between them, and the batch
        // would be refused without the attempt that may evict a subscriber.
        let steady_ns = self.blocked.is_some().then(steady_ns);
        let mut appended = self.try_append(batch, headers, steady_ns);
        if let Err(AppendRefusal::Refused(PublishError::Closed)) = appended {
            // The topic was deleted. Another search may find a new topic for the subject, or create one.
            self.await_earlier_outcomes(first)?;
            self.targets.remove(subject);
            self.find_target(first)?;
            appended = self.try_append(batch, headers, steady_ns);
        }
        match appended {
            Ok(receipt) => self.appended(batch, &receipt),
            Err(AppendRefusal::Refused(full)) if full.is_retryable() => {
                return self.wait_for_room(batch, steady_ns, full);
            }
            Err(AppendRefusal::OneByOne) => return self.append_each(batch),
            Err(AppendRefusal::Refused(error)) => {
                self.targets.remove(subject);
                self.refuse_publish(subject, &error.to_string(), batch.len());
            }
            Err(AppendRefusal::TargetError(TargetError::InvalidSubject)) => {
                self.refuse_subject(subject, batch.len())
            }
            Err(AppendRefusal::TargetError(TargetError::Refused(TopicError::Forbidden { .. }))) => {
                self.refuse_each(publish_violation(subject), batch.len());
            }
            Err(AppendRefusal::TargetError(TargetError::Refused(error))) => {
                self.refuse_publish(subject, &error.to_string(), batch.len());
            }
            Err(AppendRefusal::TargetError(TargetError::NoReceiver)) => {}
        }
        self.end_blocked();
        Ok(())
    }

    /// Finds the topic for the batch. If another thread has to find the topic, starts a search. No record of the batch
    /// is then appended before the search ends.
    fn find_target(&mut self, first: &BatchRecord<'_>) -> Result<(), RetryFrom> {
        let PublishOperation { subject, payload, .. } = first.published;
        if let Some(inbox) = self.find_reply_inbox(subject, first.offset)? {
            self.targets.set_reply_target(subject, &inbox);
            return Ok(());
        }
        match self.targets.start_search(&self.node, subject, payload.len()) {
            Some(target_search) => {
                self.target_search = Some(target_search);
                Err(RetryFrom { from: first.offset })
            }
            None => Ok(()),
        }
    }

    /// If a publish waits, ends the wait, and sets the timer for the next `PING` instead.
    pub(super) fn end_blocked(&mut self) {
        if self.blocked.take().is_some() {
            self.start_ping_timer();
        }
    }

    /// Sets the limits on a batch to what the user's publish rates allow at once.
    pub(super) fn set_batch_limits(&mut self) {
        let step = self.login().map_or((u64::MAX, u64::MAX), |login| login.account().step());
        let records = usize::try_from(step.0).unwrap_or(usize::MAX);
        let bytes = usize::try_from(step.1).unwrap_or(usize::MAX).min(BATCH_BYTES_MAX);
        self.batch_limits = BatchLimits { records, bytes };
    }

    /// Checks the user's publish rate. If the batch exceeds the rate, the publish waits. If the publish has already
    /// waited too long, the batch is refused.
    fn admit(&mut self, batch: &PublishedBatch<'_>) -> Result<RateOutcome, RetryFrom> {
        let Some(account) = self.metered_account() else { return Ok(RateOutcome::Within) };
        let bytes = batch.iter().map(BatchRecord::bytes).sum::<usize>() as u64;
        let Err(refused) = account.admit_publish(batch.len() as u64, bytes) else {
            self.end_blocked();
            return Ok(RateOutcome::Within);
        };
        let [retry_after_ms, per_s, _] = refused.numbers;
        let now_ns = steady_ns();
        let patience_ns = u64::from(self.shared.limits.nats.rate_wait_ms_max) * 1_000_000;
        let (began_ns, deadline_ns) = match &self.blocked {
            Some(blocked) => (blocked.began_ns, blocked.deadline_ns),
            None => (now_ns, now_ns.saturating_add(patience_ns)),
        };
        if now_ns >= deadline_ns {
            let why = format!("{} of {per_s} is reached; retry in {retry_after_ms} ms", refused.text);
            self.end_blocked();
            self.refuse_publish(batch[0].published.subject, &why, batch.len());
            return Ok(RateOutcome::Refused);
        }
        let pause_ns = (retry_after_ms * 1_000_000).max(RATE_PAUSE_NS_MIN).min(deadline_ns - now_ns);
        self.blocked = Some(BlockedPublish { began_ns, deadline_ns, retry: false, over_rate: true });
        self.timer.set_ms(pause_ns.div_ceil(1_000_000) as u32);
        Err(RetryFrom { from: batch[0].offset })
    }

    /// Whether the user may publish to this subject; true for an invalid subject. A record that the user may not
    /// publish is refused later, by the append.
    fn may_publish(&self, subject: &[u8]) -> bool {
        let subject = std::str::from_utf8(subject).ok().and_then(|subject| Subject::parse(subject).ok());
        subject.is_none_or(|subject| self.node.may_publish(subject).is_ok())
    }

    /// Instead of publishing a request that nobody would receive, sends the status "no responders" to the client that
    /// made the request.
    fn write_no_responders(&mut self, reply: &[u8]) {
        let Ok(reply) = std::str::from_utf8(reply) else { return };
        let Ok(subject) = Subject::parse(reply) else { return };
        self.commands.add_scan(self.subscriptions.len());
        let requester =
            self.subscriptions.values().find(|subscription| subscription.pattern.matches(subject));
        let Some(requester) = requester else { return };
        let message = NatsMessageHead { subject: [reply, ""], sid: &requester.sid, reply: None };
        message.encode_with_headers(&mut self.outbound.control, NO_RESPONDERS.len(), 0);
        self.outbound.control.extend_from_slice(NO_RESPONDERS);
        self.outbound.control.extend_from_slice(b"\r\n");
    }

    /// Appends a batch. If the topic is full, the session is added to the sessions that wait for room, and the append
    /// is tried once more, because there may be room by now. `steady_ns` is the monotonic time if the batch has waited
    /// before.
    fn try_append(
        &mut self,
        batch: &PublishedBatch<'_>,
        headers: &[(&str, &[u8])],
        steady_ns: Option<u64>,
    ) -> Result<Receipt, AppendRefusal> {
        let now_ns = now_ns();
        let PublishOperation { subject, payload, .. } = batch[0].published;
        let targets_max = self.shared.limits.nats.targets_max;
        if !self.connect.echo && !self.targets.contains(subject) {
            // The client does not want its own records. If the record's topic is new, the client's subscription must
            // begin to read the topic now, so that the session remembers this record as the client's own.
            self.targets.find(&self.node, subject, payload.len(), targets_max)?;
            self.read_new_logs();
        }
        let PublishTarget { topic, tail } =
            self.targets.find(&self.node, subject, payload.len(), targets_max)?;
        let drafts = batch.iter().map(|record| draft(&record.published, tail, headers));
        let evicts = topic.config().reliable.is_some_and(|reliable| reliable.on_full == OnFull::Evict);
        let log = &topic.logs()[PARTITION];
        if batch.len() > 1 && log.is_stateful() && log.is_mirror() {
            // Another node owns the topic, and would refuse the whole batch if it refused one record.
            return Err(AppendRefusal::OneByOne);
        }
        self.pressure.note(log.pressure(), batch);
        let evict =
            evicts && self.blocked.as_ref().is_some_and(|blocked| steady_ns >= Some(blocked.deadline_ns));
        let mut appended = topic.append_drafts(now_ns, PARTITION, evict, drafts.clone());
        if appended.as_ref().is_err_and(PublishError::is_retryable) {
            topic.await_room(PARTITION, &self.waiter);
            appended = topic.append_drafts(now_ns, PARTITION, evict, drafts);
        }
        match appended {
            Err(error) if batch.len() > 1 && error.concerns_one_record() => Err(AppendRefusal::OneByOne),
            appended => Ok(appended?),
        }
    }

    /// Handles records that were appended. If the client does not want to receive its own records, remembers their
    /// positions.
    fn appended(&mut self, batch: &PublishedBatch<'_>, receipt: &Receipt) {
        // The position of a forwarded record is unknown until the owner has responded.
        if receipt.acknowledged == AckLevel::ByOwner {
            return self.track_forwarded(batch, receipt);
        }
        if self.connect.echo || self.own.is_empty() {
            return;
        }
        let targets_max = self.shared.limits.nats.targets_max;
        let Ok(target) = self.targets.find(&self.node, batch[0].subject(), 0, targets_max) else { return };
        let log = Arc::clone(&target.topic.logs()[PARTITION]);
        self.add_own(&log, receipt.position, batch.len());
    }

    /// Remembers `count` records that the client itself published, the last of them at `last`. Does so only if the
    /// client reads the records' log and does not want to receive its own records.
    pub(super) fn add_own(&mut self, log: &Log, last: Position, count: usize) {
        let channels = &self.channels;
        let next_of = |number| channels.get(&number).map(|channel| channel.cursor.next());
        if self.own.add(log, last, count, next_of) > self.shared.limits.nats.own_ranges_max {
            self.close_slow_consumer();
        }
    }

    fn wait_for_room(
        &mut self,
        batch: &PublishedBatch<'_>,
        steady_ns: Option<u64>,
        full: PublishError,
    ) -> Result<(), RetryFrom> {
        let now_ns = steady_ns.unwrap_or_else(dunlin::steady_ns);
        let BatchRecord { offset: from, published: PublishOperation { subject, .. } } = batch[0];
        let (began_ns, deadline_ns) = match &self.blocked {
            Some(blocked) => (blocked.began_ns, blocked.deadline_ns),
            None => (now_ns, now_ns.saturating_add(self.wait_max_ns(subject))),
        };
        if now_ns >= deadline_ns {
            self.end_blocked();
            let full = full.with_waited(Duration::from_nanos(now_ns - began_ns));
            self.refuse_publish(subject, &full.to_string(), batch.len());
            return Ok(());
        }
        self.blocked = Some(BlockedPublish { began_ns, deadline_ns, retry: false, over_rate: false });
        let left_ms = (deadline_ns - now_ns).div_ceil(1_000_000).min(self.shared.limits.nats.ping_ms.into());
        self.timer.set_ms(left_ms as u32);
        Err(RetryFrom { from })
    }

    fn wait_max_ns(&mut self, subject: &[u8]) -> u64 {
        let targets_max = self.shared.limits.nats.targets_max;
        let target = self.targets.find(&self.node, subject, 0, targets_max);
        target.map_or(0, |target| target.topic.room_wait_max().as_nanos().min(u64::MAX.into()) as u64)
    }

    /// Sends one error for each refused record, because only errors tell a NATS client about refusals.
    pub(super) fn refuse_publish(&mut self, subject: &[u8], why: &str, records: usize) {
        self.refuse_each(publish_error(subject, why), records);
    }

    /// Sends errors for records with an invalid subject. Like nats-server, sends `Invalid Publish Subject` only to
    /// clients that set `"pedantic": true`, because client libraries close the connection after this error.
    fn refuse_subject(&mut self, subject: &[u8], records: usize) {
        match Subject::parse(&String::from_utf8_lossy(subject)).err() {
            Some(long @ SubjectError::TooLong { .. }) => {
                self.refuse_publish(subject, &long.to_string(), records)
            }
            _ if self.connect.pedantic => self.refuse_each(INVALID_SUBJECT.to_owned(), records),
            Some(why) => self.refuse_publish(subject, &why.to_string(), records),
            None => self.refuse_publish(subject, "the subject is not UTF-8", records),
        }
    }
}

/// The pattern that matches only this subject. `None` if the subject is invalid; the append then refuses the record.
fn pattern_of(subject: &[u8]) -> Option<Pattern> {
    let subject = std::str::from_utf8(subject).ok().and_then(|subject| Subject::parse(subject).ok());
    subject.map(Pattern::from)
}

/// The headers of the message that tells a requester that there is no responder.
const NO_RESPONDERS: &[u8] = b"NATS/1.0 503\r\n\r\n";

/// nats-server's text for an invalid subject. Sent only to clients that set `"pedantic": true`.
const INVALID_SUBJECT: &str = "Invalid Publish Subject";

/// How far subscribers are behind the client's records. From this, the session computes how long it pauses reading.
///
/// Only subscribers that receive no notices count, and only if their lag is at least [`PRESSURE_LAG_BYTES`]. `behind`
/// is the largest of these lags, bytes. `published` is the number of bytes that the client has published to topics with
/// such a lag.
#[derive(Debug, Default)]
pub(super) struct SubscriberPressure {
    behind: u64,
    published: usize,
}

impl SubscriberPressure {
    #[inline]
    fn note(&mut self, behind: u64, batch: &PublishedBatch<'_>) {
        if behind >= PRESSURE_LAG_BYTES {
            self.behind = self.behind.max(behind);
            self.published += batch.iter().map(BatchRecord::bytes).sum::<usize>();
        }
    }

    /// How long to pause reading from the client, ms; `None` if no pause is needed. The pause limits the client's rate
    /// to [`PACE_BYTES_MS`], and to a half or a quarter of this if the lag is larger. A subscriber that works can read
    /// at this rate. A subscriber that is stuck does not block the publisher for long.
    pub(super) fn take_pause_ms(&mut self) -> Option<u32> {
        let shift = (self.behind / PRESSURE_LAG_BYTES).max(1).ilog2().min(2);
        let ms = self.published / (PACE_BYTES_MS >> shift);
        if ms == 0 {
            return None;
        }
        *self = SubscriberPressure::default();
        Some(ms as u32)
    }
}

/// Publishers are slowed down if a subscriber's lag is at least this, bytes.
const PRESSURE_LAG_BYTES: u64 = 8 << 20;
/// The rate to which a publisher is slowed down while the lag is below twice [`PRESSURE_LAG_BYTES`], bytes per ms.
const PACE_BYTES_MS: usize = 32 << 10;

/// The partition of records without a key.
pub(super) const PARTITION: usize = 0;

/// The result of checking the user's publish rate for a batch.
#[derive(Debug, PartialEq, Eq)]
enum RateOutcome {
    Within,
    Refused,
}

#[derive(Debug)]
enum AppendRefusal {
    TargetError(TargetError),
    Refused(PublishError),
    /// A record of the batch is refused or may be refused, so the records must be appended one by one.
    OneByOne,
}

impl From<TargetError> for AppendRefusal {
    fn from(none: TargetError) -> AppendRefusal {
        AppendRefusal::TargetError(none)
    }
}

impl From<PublishError> for AppendRefusal {
    fn from(error: PublishError) -> AppendRefusal {
        AppendRefusal::Refused(error)
    }
}

#[inline]
fn draft<'a>(
    published: &PublishOperation<'a>,
    tail: &'a str,
    headers: &'a [(&'a str, &'a [u8])],
) -> Draft<'a> {
    // The reply subject is valid: it was checked when the record was added to the batch.
    let reply = published.reply.and_then(|reply| std::str::from_utf8(reply).ok());
    let meta = RecordMeta { subject_tail: tail, reply, headers, ..RecordMeta::default() };
    Draft { meta, payload: Payload::Copied(published.payload) }
}

type Headers<'a> = Vec<(&'a str, &'a [u8])>;

/// Parses a message's block of headers; `None` if it has too many headers.
fn headers_of(block: &[u8]) -> Result<Option<Headers<'_>>, nats::Violation> {
    let headers: Vec<_> =
        HeaderBlock::parse(block)?.iter().take(HEADERS_MAX + 1).collect::<Result<_, _>>()?;
    Ok((headers.len() <= HEADERS_MAX).then_some(headers))
}
