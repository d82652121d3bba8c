//! Appends published records. Consecutive records of one subject are appended together, directly from the read buffer.
//!
//! If a reliable topic is full, the session stops reading until there is room or the topic's wait time is over. The
//! same holds for a user over the publish rate. NATS has no acknowledgements, so the session sends no error: the full
//! socket slows the client down.

use std::sync::Arc;

use dunlin::topic::{
    AckLevel, Draft, OnFull, Pattern, Payload, PublishError, Receipt, RecordMeta, Subject, SubjectError,
};
use dunlin::wire::nats::{self, HEADERS_MAX, HeaderBlock, NatsMessageHead, PublishOperation};
use dunlin::{TopicError, now_ns, steady_ns};

use super::Session;
use super::access::{publish_error, publish_violation};
use super::reading::SCANNED_PER_OPERATION;
use super::targets::{PublishTarget, TargetError};

/// Approximate maximum number of payload bytes of records that are appended together; a single larger record is
/// appended alone. The records of a batch share a segment.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// Maximum size of a batch: number of records, and bytes.
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

impl BatchRecord<'_> {
    fn bytes(&self) -> usize {
        self.published.payload.len() + self.published.headers.len()
    }
}

/// The records of a batch, in order.
pub(super) type PublishedBatch<'b> = Vec<BatchRecord<'b>>;

/// Empties a batch so that its memory can be reused for another one.
pub(super) fn cleared<'b>(mut batch: PublishedBatch<'_>) -> PublishedBatch<'b> {
    batch.clear();
    batch.into_iter().map(|_| unreachable!("it is empty")).collect()
}

/// A publish that waits for room in its topic, or until the user's publish rate allows it.
#[derive(Debug)]
pub(super) struct BlockedPublish {
    /// Time at which the wait ends, ns by the monotonic clock. The topic then evicts records, or the batch is refused.
    deadline_ns: u64,
    retry: bool,
    over_rate: bool,
}

/// Minimum pause of a session that exceeds its user's publish rate, ns. With a longer pause, the session publishes
/// fewer and larger batches.
const RATE_PAUSE_NS_MIN: u64 = 5_000_000;

/// The batch has to wait, and none of its records was appended. Later, the session handles all operations from this
/// offset on once more.
#[derive(Debug)]
pub(super) struct RetryFrom {
    pub(super) from: usize,
}

impl BlockedPublish {
    pub(super) fn retry(&mut self) {
        self.retry = true;
    }

    /// Stores that a topic has room again.
    pub(super) fn on_room(&mut self) {
        self.retry |= !self.over_rate;
    }

    /// Whether to try the append again. Returns true once for each notification.
    pub(super) fn take_retry(&mut self) -> bool {
        std::mem::take(&mut self.retry)
    }
}

impl Session {
    /// Adds a record to the batch. If the batch has another subject or would become too long, the batch is appended
    /// first.
    #[inline]
    pub(super) fn add_to_batch<'b>(
        &mut self,
        published: PublishOperation<'b>,
        offset: usize,
        batch: &mut PublishedBatch<'b>,
    ) -> Result<(), RetryFrom> {
        // A record with headers or a reply subject is appended alone. Headers are parsed for one record at a time, and
        // a request may have no responder.
        let is_alone = !published.headers.is_empty() || published.reply.is_some();
        if let Some(first) = batch.first()
            && (is_alone
                || first.published.subject != published.subject
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

    /// Appends the batch. If its topic is full, no record is appended, and the batch is read again later.
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
            if self.connect.verbose {
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
            // The client has just subscribed, and its new subscription must receive this record.
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
        if self.blocked.as_ref().is_none_or(|blocked| blocked.over_rate)
            && self.admit(batch)? == RateOutcome::Refused
        {
            return Ok(());
        }
        self.append_admitted(batch, headers)
    }

    /// Appends records one by one, so that one refused record does not cause the others to be refused.
    fn append_each(&mut self, batch: &PublishedBatch<'_>) -> Result<(), RetryFrom> {
        for (nth, record) in batch.iter().enumerate() {
            let appended = self.append_admitted(&vec![*record], &[]);
            if appended.is_err() && self.connect.verbose {
                // Sends `+OK` for the records before the one that must be retried; they are not read again.
                (0..nth).for_each(|_| self.outbound.control.extend_from_slice(nats::OK));
            }
            appended?;
        }
        Ok(())
    }

    /// Appends a batch that the user's publish rate allows.
    fn append_admitted(
        &mut self,
        batch: &PublishedBatch<'_>,
        headers: &[(&str, &[u8])],
    ) -> Result<(), RetryFrom> {
        let first = &batch[0];
        let subject = first.published.subject;
        // An attempt reads the clock once, so that the last attempt may evict subscribers.
        let steady_ns = self.blocked.is_some().then(steady_ns);
        let mut appended = self.try_append(batch, headers, steady_ns);
        if let Err(AppendRefusal::Refused(PublishError::Closed)) = appended {
            // The topic was deleted. A later search may find, or create, another topic of this name.
            self.targets.remove(subject);
            self.find_target(first)?;
            appended = self.try_append(batch, headers, steady_ns);
        }
        match appended {
            Ok(receipt) => self.appended(subject, &receipt, batch.len()),
            Err(AppendRefusal::Refused(full)) if full.is_retryable() => {
                return self.wait_for_room(batch, steady_ns, &full);
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

    /// If finding the topic has to wait, searches for it on another thread. No record of the batch is appended before
    /// the search ends.
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

    /// Ends the wait of a publish, if there is one, and its use of the session's timer.
    fn end_blocked(&mut self) {
        if self.blocked.take().is_some() {
            self.start_ping_timer();
        }
    }

    /// Sets the maximum batch size that the user's publish rates allow.
    pub(super) fn set_batch_limits(&mut self) {
        let step = self.login().map_or((u64::MAX, u64::MAX), |login| login.account().step());
        let records = usize::try_from(step.0).unwrap_or(usize::MAX);
        let bytes = usize::try_from(step.1).unwrap_or(usize::MAX).min(BATCH_BYTES_MAX);
        self.batch_limits = BatchLimits { records, bytes };
    }

    /// Checks the user's publish rate. If it is exceeded, the session pauses. If the pause would be too long, the batch
    /// is refused.
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
        let deadline_ns = match &self.blocked {
            Some(blocked) => blocked.deadline_ns,
            None => now_ns.saturating_add(patience_ns),
        };
        if now_ns >= deadline_ns {
            let why = format!("{} of {per_s} is reached; retry in {retry_after_ms} ms", refused.text);
            self.end_blocked();
            self.refuse_publish(batch[0].published.subject, &why, batch.len());
            return Ok(RateOutcome::Refused);
        }
        let pause_ns = (retry_after_ms * 1_000_000).max(RATE_PAUSE_NS_MIN).min(deadline_ns - now_ns);
        self.blocked = Some(BlockedPublish { deadline_ns, retry: false, over_rate: true });
        self.timer.set_ms(pause_ns.div_ceil(1_000_000) as u32);
        Err(RetryFrom { from: batch[0].offset })
    }

    /// Whether the user may publish to this subject. Without the permission, the record is refused when it is appended.
    fn may_publish(&self, subject: &[u8]) -> bool {
        let subject = std::str::from_utf8(subject).ok().and_then(|subject| Subject::parse(subject).ok());
        subject.is_none_or(|subject| self.node.may_publish(subject).is_ok())
    }

    /// Sends a requester the status that there is no responder. The request is not published.
    fn write_no_responders(&mut self, reply: &[u8]) {
        let Ok(reply) = std::str::from_utf8(reply) else { return };
        let Ok(subject) = Subject::parse(reply) else { return };
        self.work += self.subscriptions.len() / SCANNED_PER_OPERATION;
        let requester =
            self.subscriptions.values().find(|subscription| subscription.pattern.matches(subject));
        let Some(requester) = requester else { return };
        let message = NatsMessageHead { subject: [reply, ""], sid: &requester.sid, reply: None };
        message.encode_with_headers(&mut self.outbound.control, NO_RESPONDERS.len(), 0);
        self.outbound.control.extend_from_slice(NO_RESPONDERS);
        self.outbound.control.extend_from_slice(b"\r\n");
    }

    /// Appends a batch. If the topic is full, adds the session to the topic's list of waiters and tries once more,
    /// because room may have become free in between. `steady_ns` is the monotonic time if the record has waited.
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
            // A new subscription of this client must recognize the record as the client's own, so its channel is opened
            // first.
            self.targets.find(&self.node, subject, payload.len(), targets_max)?;
            self.read_new_logs();
        }
        let PublishTarget { topic, tail } =
            self.targets.find(&self.node, subject, payload.len(), targets_max)?;
        let drafts = batch.iter().map(|record| draft(&record.published, tail, headers));
        let evicts = topic.config().reliable.is_some_and(|reliable| reliable.on_full == OnFull::Evict);
        let log = &topic.logs()[PARTITION];
        if batch.len() > 1 && log.is_stateful() && log.is_mirror() {
            // The owner would refuse the whole batch because of one record.
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

    /// Marks the appended records as the connection's own, if the client does not want to receive them.
    fn appended(&mut self, subject: &[u8], receipt: &Receipt, count: usize) {
        // A forwarded record has no position yet, so it cannot be marked as the connection's own.
        if receipt.acknowledged == AckLevel::ByOwner {
            return self.track_forwarded(subject, receipt, count);
        }
        if self.connect.echo || self.own.is_empty() {
            return;
        }
        let targets_max = self.shared.limits.nats.targets_max;
        let Ok(target) = self.targets.find(&self.node, subject, 0, targets_max) else { return };
        let log = Arc::clone(&target.topic.logs()[PARTITION]);
        let last = receipt.position.seq;
        let channels = &self.channels;
        let next_of = |number| channels.get(&number).map(|channel| channel.cursor.next().seq);
        let ranges = self.own.add(&log, last + 1 - count as u64..=last, next_of);
        if ranges > self.shared.limits.nats.own_ranges_max {
            self.close_slow_consumer();
        }
    }

    fn wait_for_room(
        &mut self,
        batch: &PublishedBatch<'_>,
        steady_ns: Option<u64>,
        full: &PublishError,
    ) -> Result<(), RetryFrom> {
        let now_ns = steady_ns.unwrap_or_else(dunlin::steady_ns);
        let BatchRecord { offset: from, published: PublishOperation { subject, .. } } = batch[0];
        let deadline_ns = match &self.blocked {
            Some(blocked) => blocked.deadline_ns,
            None => now_ns.saturating_add(self.wait_max_ns(subject)),
        };
        if now_ns >= deadline_ns {
            self.end_blocked();
            self.refuse_publish(subject, &full.to_string(), batch.len());
            return Ok(());
        }
        self.blocked = Some(BlockedPublish { deadline_ns, retry: false, over_rate: false });
        let left_ms = (deadline_ns - now_ns).div_ceil(1_000_000).min(self.shared.limits.nats.ping_ms.into());
        self.timer.set_ms(left_ms as u32);
        Err(RetryFrom { from })
    }

    fn wait_max_ns(&mut self, subject: &[u8]) -> u64 {
        let targets_max = self.shared.limits.nats.targets_max;
        let target = self.targets.find(&self.node, subject, 0, targets_max);
        target.map_or(0, |target| target.topic.room_wait_max().as_nanos().min(u64::MAX.into()) as u64)
    }

    /// Sends one error for each refused record, because NATS has no acknowledgements.
    pub(super) fn refuse_publish(&mut self, subject: &[u8], why: &str, records: usize) {
        self.refuse_each(publish_error(subject, why), records);
    }

    /// Like nats-server, sends `Invalid Publish Subject` only to pedantic clients, because client libraries
    /// close after this error.
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

/// The pattern that matches exactly this subject; `None` if the subject is invalid, which the append then refuses.
fn pattern_of(subject: &[u8]) -> Option<Pattern> {
    let subject = std::str::from_utf8(subject).ok().and_then(|subject| Subject::parse(subject).ok());
    subject.map(Pattern::from)
}

/// The headers of the reply to a request that has no responder.
const NO_RESPONDERS: &[u8] = b"NATS/1.0 503\r\n\r\n";

/// nats-server's text for an invalid subject; sent only to pedantic clients.
const INVALID_SUBJECT: &str = "Invalid Publish Subject";

/// Figures from which a publisher's pause is computed: the largest lag, in bytes, of subscribers that are far behind
/// and receive no notices, and the number of bytes that the client published to their topics.
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

    /// How long to pause reading from the client, ms; `None` if no pause is needed. The pause limits the client to
    /// [`PACE_BYTES_MS`] at first, and to a quarter of this rate as the subscriber's lag grows. A working subscriber
    /// can read at this rate. A stuck subscriber does not block the publisher for long.
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

/// Lag of a subscriber from which its publishers are slowed down, bytes.
const PRESSURE_LAG_BYTES: u64 = 8 << 20;
/// Rate to which a publisher is slowed down at first, bytes per millisecond.
const PACE_BYTES_MS: usize = 32 << 10;

/// The partition of records without a key.
pub(super) const PARTITION: usize = 0;

/// Whether the user's publish rate allows a batch.
#[derive(Debug, PartialEq, Eq)]
enum RateOutcome {
    Within,
    Refused,
}

#[derive(Debug)]
enum AppendRefusal {
    TargetError(TargetError),
    Refused(PublishError),
    /// At least one record of the batch is or may be refused, so the records are appended one by one.
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
    // The reply subject was already checked when the record was added to the batch.
    let reply = published.reply.and_then(|reply| std::str::from_utf8(reply).ok());
    let meta = RecordMeta { subject_tail: tail, reply, headers, ..RecordMeta::default() };
    Draft { meta, payload: Payload::Copied(published.payload) }
}

type Headers<'a> = Vec<(&'a str, &'a [u8])>;

/// Parses a block of headers; `None` if it has too many headers.
fn headers_of(block: &[u8]) -> Result<Option<Headers<'_>>, nats::Violation> {
    let headers: Vec<_> =
        HeaderBlock::parse(block)?.iter().take(HEADERS_MAX + 1).collect::<Result<_, _>>()?;
    Ok((headers.len() <= HEADERS_MAX).then_some(headers))
}
