//! Appending published records: consecutive records of one subject are appended together, straight from the read
//! buffer.
//!
//! If a reliable topic is full, the session stops reading until there is room or the topic's wait time is over. The
//! same holds for a user over the publish rate: NATS has no acknowledgements. The full socket therefore slows the
//! client down, and no error is sent.

use std::sync::Arc;

use dunlin::topic::{
    AckLevel, Draft, Meta, OnFull, Pattern, Payload, PublishError, Receipt, Subject, SubjectError,
};
use dunlin::wire::nats::{self, HEADERS_MAX, HeaderBlock, NatsMessageHead, PublishOperation};
use dunlin::{TopicError, now_ns};

use super::Session;
use super::access::{not_to_publish, publish_refused};
use super::reading::SCANNED_PER_OPERATION;
use super::targets::{PublishTarget, TargetError};

/// Payload bytes of records that are appended together, or one larger record: they share a segment.
const RUN_BYTES_MAX: usize = 64 << 10;

/// How long a batch may become.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLimits {
    records: usize,
    bytes: usize,
}

impl Default for BatchLimits {
    fn default() -> BatchLimits {
        BatchLimits { records: usize::MAX, bytes: RUN_BYTES_MAX }
    }
}

/// A record of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchRecord<'b> {
    /// Where the operation begins in the read buffer.
    begins: usize,
    published: PublishOperation<'b>,
}

impl BatchRecord<'_> {
    fn bytes(&self) -> usize {
        self.published.payload.len() + self.published.headers.len()
    }
}

/// The records of a batch, in order.
pub(super) type PublishedBatch<'b> = Vec<BatchRecord<'b>>;

/// An empty batch that reuses the memory of another batch.
pub(super) fn emptied<'b>(mut run: PublishedBatch<'_>) -> PublishedBatch<'b> {
    run.clear();
    run.into_iter().map(|_| unreachable!("it is empty")).collect()
}

/// A publish that waits for room in its topic, or until the user's rate allows it.
#[derive(Debug)]
pub(super) struct BlockedPublish {
    /// The time at which the wait ends and the batch is refused.
    deadline_ns: u64,
    try_again: bool,
    over_rate: bool,
}

/// The shortest pause of a session that exceeds its user's rate. A longer pause lets the session publish in fewer,
/// larger steps.
const HELD_NS_MIN: u64 = 5_000_000;

/// The batch waits, and none of its records was appended. The session will handle the operations from this offset on
/// again.
#[derive(Debug)]
pub(super) struct RetryFrom {
    pub(super) from: usize,
}

impl BlockedPublish {
    pub(super) fn try_again(&mut self) {
        self.try_again = true;
    }

    /// Notes that some topic has room.
    pub(super) fn room(&mut self) {
        self.try_again |= !self.over_rate;
    }

    /// Whether to try again; true once for each notification.
    pub(super) fn may_try_again(&mut self) -> bool {
        std::mem::take(&mut self.try_again)
    }
}

impl Session {
    /// Adds a record to the batch. A batch with another subject, or a long one, is appended first.
    #[inline]
    pub(super) fn add_to_run<'b>(
        &mut self,
        published: PublishOperation<'b>,
        begins: usize,
        run: &mut PublishedBatch<'b>,
    ) -> Result<(), RetryFrom> {
        // A record with headers or a reply subject is appended alone: headers are parsed for one record at a time, and
        // a request may have no responder.
        let is_alone = !published.headers.is_empty() || published.reply.is_some();
        if let Some(first) = run.first()
            && (is_alone
                || first.published.subject != published.subject
                || run.len() >= self.step.records
                || begins + published.payload.len() - first.begins > self.step.bytes)
        {
            self.publish_run(run)?;
        }
        if let Some(reply) = published.reply
            && !std::str::from_utf8(reply).is_ok_and(|reply| Subject::parse(reply).is_ok())
        {
            self.publish_run(run)?;
            let reply = String::from_utf8_lossy(reply);
            let text =
                format!("Permissions Violation for Publish with Reply of \"{reply}\": not a valid subject");
            self.refuse_each(text, 1);
            return Ok(());
        }
        run.push(BatchRecord { begins, published });
        if is_alone { self.publish_run(run) } else { Ok(()) }
    }

    /// Appends the batch. If its topic is full, appends no record of it, and reads the batch again.
    pub(super) fn publish_run(&mut self, run: &mut PublishedBatch<'_>) -> Result<(), RetryFrom> {
        let Some(first) = run.first() else { return Ok(()) };
        self.pings = 0;
        let outcome = match first.published.headers {
            [] => self.append(run, &[]),
            block => match headers_of(block) {
                Ok(Some(headers)) => self.append(run, &headers),
                Ok(None) => {
                    let why = format!("the record has more than {HEADERS_MAX} headers");
                    self.refuse_publish(first.published.subject, &why, run.len());
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
                run.iter().for_each(|_| self.outbound.control.extend_from_slice(nats::OK));
            }
            run.clear();
            self.subscriber_queries.clear();
            self.targets.end_reply();
        }
        outcome
    }

    fn append(&mut self, run: &PublishedBatch<'_>, headers: &[(&str, &[u8])]) -> Result<(), RetryFrom> {
        let first = &run[0];
        let subject = first.published.subject;
        if !first.published.headers.is_empty() && !self.connect.headers {
            self.fail("message headers not supported");
            return Ok(());
        }
        if let Some(reply) = first.published.reply
            && self.connect.no_responders
            && self.may_publish(subject)
            && let Some(asked) = pattern_of(subject)
            && !self.has_subscriber(&asked, first.begins)?
        {
            self.blocked = None;
            self.write_no_responders(reply);
            return Ok(());
        }
        if self.is_opening(subject) {
            // The client's new subscription must receive this record.
            self.waits_for_opening = Some(self.opened);
            return Err(RetryFrom { from: first.begins });
        }
        if self.is_reply_without_requester(subject, first.begins)? {
            self.blocked = None;
            return Ok(());
        }
        self.find_target(first)?;
        if let Some(reply) = first.published.reply {
            self.open_reply_inbox(reply, first.begins)?;
        }
        if self.blocked.as_ref().is_none_or(|blocked| blocked.over_rate)
            && self.admit(run)? == RateOutcome::Refused
        {
            return Ok(());
        }
        self.append_admitted(run, headers)
    }

    /// Appends records one by one, so that a refused record takes no others with it.
    fn append_each(&mut self, run: &PublishedBatch<'_>) -> Result<(), RetryFrom> {
        for (nth, record) in run.iter().enumerate() {
            let appended = self.append_admitted(&vec![*record], &[]);
            if appended.is_err() && self.connect.verbose {
                // The records before the failed one are not read again.
                (0..nth).for_each(|_| self.outbound.control.extend_from_slice(nats::OK));
            }
            appended?;
        }
        Ok(())
    }

    /// Appends a batch that the user's rate allows.
    fn append_admitted(
        &mut self,
        run: &PublishedBatch<'_>,
        headers: &[(&str, &[u8])],
    ) -> Result<(), RetryFrom> {
        let first = &run[0];
        let subject = first.published.subject;
        let now_ns = now_ns();
        let mut appended = self.try_append(run, headers, now_ns);
        if let Err(AppendRefusal::Refused(PublishError::Closed)) = appended {
            // The topic was deleted; another topic of that name may exist, or can be created.
            self.targets.forget(subject);
            self.find_target(first)?;
            appended = self.try_append(run, headers, now_ns);
        }
        match appended {
            Ok(receipt) => self.appended(subject, &receipt, run.len()),
            Err(AppendRefusal::Refused(full)) if full.may_pass() => {
                return self.wait_for_room(run, now_ns, &full);
            }
            Err(AppendRefusal::OneByOne) => return self.append_each(run),
            Err(AppendRefusal::Refused(error)) => {
                self.targets.forget(subject);
                self.refuse_publish(subject, &error.to_string(), run.len());
            }
            Err(AppendRefusal::TargetError(TargetError::Unsound)) => self.refuse_subject(subject, run.len()),
            Err(AppendRefusal::TargetError(TargetError::Refused(TopicError::Forbidden { .. }))) => {
                self.refuse_each(not_to_publish(subject), run.len());
            }
            Err(AppendRefusal::TargetError(TargetError::Refused(error))) => {
                self.refuse_publish(subject, &error.to_string(), run.len());
            }
            Err(AppendRefusal::TargetError(TargetError::Nobody)) => {}
        }
        self.blocked = None;
        Ok(())
    }

    /// Finds the topic on a thread that may wait, if finding it has to wait. No record of the batch is
    /// appended before.
    fn find_target(&mut self, first: &BatchRecord<'_>) -> Result<(), RetryFrom> {
        let PublishOperation { subject, payload, .. } = first.published;
        if let Some(inbox) = self.find_reply_inbox(subject, first.begins)? {
            self.targets.reply_to(subject, &inbox);
            return Ok(());
        }
        match self.targets.begin_finding(&self.node, subject, payload.len()) {
            Some(finding) => {
                self.finding = Some(finding);
                Err(RetryFrom { from: first.begins })
            }
            None => Ok(()),
        }
    }

    /// Sets the largest batch that the user's rates allow.
    pub(super) fn set_step(&mut self) {
        let step = self.login().map_or((u64::MAX, u64::MAX), |login| login.account().step());
        let records = usize::try_from(step.0).unwrap_or(usize::MAX);
        let bytes = usize::try_from(step.1).unwrap_or(usize::MAX).min(RUN_BYTES_MAX);
        self.step = BatchLimits { records, bytes };
    }

    /// Checks the user's publish rate. Over the rate, the session pauses; if the pause would be too long, the batch
    /// is refused.
    fn admit(&mut self, run: &PublishedBatch<'_>) -> Result<RateOutcome, RetryFrom> {
        let Some(account) = self.metered() else { return Ok(RateOutcome::Within) };
        let bytes = run.iter().map(BatchRecord::bytes).sum::<usize>() as u64;
        let Err(refused) = account.admit_publish(run.len() as u64, bytes) else {
            if self.blocked.take().is_some() {
                self.start_ping_timer();
            }
            return Ok(RateOutcome::Within);
        };
        let [retry_after_ms, per_s, _] = refused.numbers;
        let now_ns = now_ns();
        let patience_ns = u64::from(self.shared.limits.nats.rate_wait_ms_max) * 1_000_000;
        let deadline_ns = match &self.blocked {
            Some(blocked) => blocked.deadline_ns,
            None => now_ns.saturating_add(patience_ns),
        };
        if now_ns >= deadline_ns {
            let why = format!("{} of {per_s} is reached; retry in {retry_after_ms} ms", refused.text);
            self.blocked = None;
            self.start_ping_timer();
            self.refuse_publish(run[0].published.subject, &why, run.len());
            return Ok(RateOutcome::Refused);
        }
        let held_ns = (retry_after_ms * 1_000_000).max(HELD_NS_MIN).min(deadline_ns - now_ns);
        self.blocked = Some(BlockedPublish { deadline_ns, try_again: false, over_rate: true });
        self.timer.set_ms(held_ns.div_ceil(1_000_000) as u32);
        Err(RetryFrom { from: run[0].begins })
    }

    /// Whether the user may publish. A user without permission is refused when the record is appended.
    fn may_publish(&self, subject: &[u8]) -> bool {
        let subject = std::str::from_utf8(subject).ok().and_then(|subject| Subject::parse(subject).ok());
        subject.is_none_or(|subject| self.node.may_publish(subject).is_ok())
    }

    /// Sends the no-responders status to a requester; the request is not published.
    fn write_no_responders(&mut self, reply: &[u8]) {
        let Ok(reply) = std::str::from_utf8(reply) else { return };
        let Ok(subject) = Subject::parse(reply) else { return };
        self.work += self.subscriptions.len() / SCANNED_PER_OPERATION;
        let asker = self.subscriptions.values().find(|subscription| subscription.pattern.matches(subject));
        let Some(asker) = asker else { return };
        let message = NatsMessageHead { subject: [reply, ""], sid: &asker.sid, reply: None };
        message.say_with_headers(&mut self.outbound.control, NOBODY.len(), 0);
        self.outbound.control.extend_from_slice(NOBODY);
        self.outbound.control.extend_from_slice(b"\r\n");
    }

    /// Appends a record. If the topic is full, adds the session to the topic's list of waiters, and tries once more.
    fn try_append(
        &mut self,
        run: &PublishedBatch<'_>,
        headers: &[(&str, &[u8])],
        now_ns: u64,
    ) -> Result<Receipt, AppendRefusal> {
        let PublishOperation { subject, payload, .. } = run[0].published;
        let targets_max = self.shared.limits.nats.targets_max;
        if !self.connect.echo && !self.targets.knows(subject) {
            // A new subscription of this client must know that this record is its own, so the channel is opened
            // first.
            self.targets.find(&self.node, subject, payload.len(), targets_max)?;
            self.take_newcomers();
        }
        let PublishTarget { topic, tail } =
            self.targets.find(&self.node, subject, payload.len(), targets_max)?;
        let drafts = run.iter().map(|record| draft(&record.published, tail, headers));
        let evicts = topic.config().reliable.is_some_and(|reliable| reliable.on_full == OnFull::Evict);
        let log = &topic.logs()[PARTITION];
        if run.len() > 1 && log.is_stateful() && log.is_mirror() {
            // The owner would refuse the whole batch for one record.
            return Err(AppendRefusal::OneByOne);
        }
        self.pressure.note(log.pressure(), run);
        let evict = evicts && self.blocked.as_ref().is_some_and(|blocked| now_ns >= blocked.deadline_ns);
        let mut appended = topic.append_drafts(now_ns, PARTITION, evict, drafts.clone());
        if appended.as_ref().is_err_and(PublishError::may_pass) {
            topic.await_room(PARTITION, &self.waiter);
            appended = topic.append_drafts(now_ns, PARTITION, evict, drafts);
        }
        match appended {
            Err(error) if run.len() > 1 && error.is_of_one_record() => Err(AppendRefusal::OneByOne),
            appended => Ok(appended?),
        }
    }

    /// Remembers own records, for a client that does not want to receive them.
    fn appended(&mut self, subject: &[u8], receipt: &Receipt, count: usize) {
        // A forwarded record has no position yet.
        if receipt.acknowledged == AckLevel::ByOwner {
            return self.batch_forwarded(subject, receipt, count);
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
        run: &PublishedBatch<'_>,
        now_ns: u64,
        full: &PublishError,
    ) -> Result<(), RetryFrom> {
        let BatchRecord { begins: from, published: PublishOperation { subject, .. } } = run[0];
        let deadline_ns = match &self.blocked {
            Some(blocked) => blocked.deadline_ns,
            None => now_ns.saturating_add(self.patience_of(subject)),
        };
        if now_ns >= deadline_ns {
            self.blocked = None;
            self.start_ping_timer();
            self.refuse_publish(subject, &full.to_string(), run.len());
            return Ok(());
        }
        self.blocked = Some(BlockedPublish { deadline_ns, try_again: false, over_rate: false });
        let left_ms = (deadline_ns - now_ns).div_ceil(1_000_000).min(self.shared.limits.nats.ping_ms.into());
        self.timer.set_ms(left_ms as u32);
        Err(RetryFrom { from })
    }

    fn patience_of(&mut self, subject: &[u8]) -> u64 {
        let targets_max = self.shared.limits.nats.targets_max;
        let target = self.targets.find(&self.node, subject, 0, targets_max);
        target.map_or(0, |target| target.topic.patience().as_nanos().min(u64::MAX.into()) as u64)
    }

    /// Sends an error for each record: NATS has no acknowledgements.
    pub(super) fn refuse_publish(&mut self, subject: &[u8], why: &str, records: usize) {
        self.refuse_each(publish_refused(subject, why), records);
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

/// Returns `None` if the subject is invalid; the append refuses it then.
fn pattern_of(subject: &[u8]) -> Option<Pattern> {
    let subject = std::str::from_utf8(subject).ok().and_then(|subject| Subject::parse(subject).ok());
    subject.map(Pattern::from)
}

/// The headers of the response to a request without responders.
const NOBODY: &[u8] = b"NATS/1.0 503\r\n\r\n";

/// nats-server's text for pedantic clients.
const INVALID_SUBJECT: &str = "Invalid Publish Subject";

/// The bytes published to topics that have a far-behind subscriber without notices, and the largest lag of
/// such a subscriber in bytes.
#[derive(Debug, Default)]
pub(super) struct SubscriberPressure {
    behind: u64,
    published: usize,
}

impl SubscriberPressure {
    #[inline]
    fn note(&mut self, behind: u64, run: &PublishedBatch<'_>) {
        if behind >= PRESSED_BYTES {
            self.behind = self.behind.max(behind);
            self.published += run.iter().map(BatchRecord::bytes).sum::<usize>();
        }
    }

    /// How long to pause reading from the client, ms. The client publishes at [`PACE_BYTES_MS`] at first, and at a
    /// quarter of this rate if the subscriber is far behind. A subscriber that reads can follow at this rate. A stuck
    /// subscriber does not block the publisher for long.
    pub(super) fn take_pause_ms(&mut self) -> Option<u32> {
        let shift = (self.behind / PRESSED_BYTES).max(1).ilog2().min(2);
        let ms = self.published / (PACE_BYTES_MS >> shift);
        if ms == 0 {
            return None;
        }
        *self = SubscriberPressure::default();
        Some(ms as u32)
    }
}

/// A subscriber that is this many bytes behind slows publishers down.
const PRESSED_BYTES: u64 = 8 << 20;
/// Rate of a slowed publisher at first, bytes per millisecond.
const PACE_BYTES_MS: usize = 32 << 10;

/// Records without a key are in the first partition.
pub(super) const PARTITION: usize = 0;

/// Whether the user's rate allows a batch.
#[derive(Debug, PartialEq, Eq)]
enum RateOutcome {
    Within,
    Refused,
}

#[derive(Debug)]
enum AppendRefusal {
    TargetError(TargetError),
    Refused(PublishError),
    /// One record is refused, or may be: the records are appended one by one.
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
    // The subject was checked when the record was added.
    let reply = published.reply.and_then(|reply| std::str::from_utf8(reply).ok());
    let meta = Meta { subject_tail: tail, reply, headers, ..Meta::default() };
    Draft { meta, payload: Payload::Copied(published.payload) }
}

type Headers<'a> = Vec<(&'a str, &'a [u8])>;

/// Returns `None` if there are too many headers.
fn headers_of(block: &[u8]) -> Result<Option<Headers<'_>>, nats::Violation> {
    let headers: Vec<_> =
        HeaderBlock::parse(block)?.iter().take(HEADERS_MAX + 1).collect::<Result<_, _>>()?;
    Ok((headers.len() <= HEADERS_MAX).then_some(headers))
}
