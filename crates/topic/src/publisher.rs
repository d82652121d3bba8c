//! Publishes to a topic in the same process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use dunlin_frame::format_duration;

use crate::claim::StateClaim;
use crate::config::{OnFull, saturating_ns};
use crate::log::{AckProgress, AppendOptions, AppendOutcome, Log, ProducerMark};
use crate::publish::{AckLevel, Draft, Publish, PublishError, Receipt};
use crate::spinning::SPIN_US_DEFAULT;
use crate::topic::{PublisherRegistration, Topic};
use crate::wake::{Waiter, thread_waker};

/// How long a publisher waits at most for a disk that neither stores its records nor reports a failure.
const STORE_WAIT_MAX: Duration = Duration::from_secs(30);

/// Maximum number of sent records without an outcome that a publisher remembers. At the limit, `send` waits for the
/// outcome of the oldest record.
const UNSTORED_MAX: usize = 4_096;
/// A publisher that waits for room at the owner checks at least this often whether there is room, ns.
const ROOM_CHECK_NS: u64 = 50_000_000;

/// Publishes records to a topic in the same process.
#[derive(Debug)]
pub struct Publisher {
    topic: PublisherRegistration,
    subject_tail: String,
    producer: Option<ProducerMark>,
    /// For each partition, the publisher's claim that the partition's state includes its last acknowledged record.
    /// Empty if the topic keeps no state.
    claims: Box<[Arc<StateClaim>]>,
    waiter: Option<Arc<Waiter>>,
    last: Option<Receipt>,
    /// Receipts of sent records whose outcome is not known yet. The list has every forwarded record. Of the records
    /// that were appended to a partition of a durable topic, it has only the last one.
    unstored: VecDeque<Receipt>,
    waits_for_room: bool,
    waits_for_disk: bool,
    /// Whether registered subscribers that leave no room are unregistered at once, without the topic's wait time.
    evicts: bool,
}

impl Publisher {
    pub(crate) fn new(topic: PublisherRegistration, subject_tail: String) -> Publisher {
        let claims = topic.claims();
        let (waiter, unstored) = (None, VecDeque::new());
        let (waits_for_room, waits_for_disk, evicts) = (true, true, false);
        Publisher {
            topic,
            subject_tail,
            producer: None,
            claims,
            waiter,
            last: None,
            unstored,
            waits_for_room,
            waits_for_disk,
            evicts,
        }
    }

    /// From now on, numbers the records as a producer, beginning with the number in `mark`, so that the log recognizes
    /// retries.
    pub fn with_producer(mut self, mark: ProducerMark) -> Publisher {
        self.producer = Some(mark);
        self
    }

    /// From now on, an append to a full topic does not wait for room: it is refused at once. With `evicts`, a topic
    /// with [`OnFull::Evict`] instead unregisters the subscribers that leave no room.
    pub fn without_room_wait(mut self, evicts: bool) -> Publisher {
        let can_evict =
            self.topic.config().reliable.is_some_and(|reliable| reliable.on_full == OnFull::Evict);
        (self.waits_for_room, self.evicts) = (false, evicts && can_evict);
        self
    }

    /// From now on, `publish` returns as soon as the record is in memory, even if the topic is durable, and the receipt
    /// states this level. The disk stores the record soon after.
    pub fn without_disk_wait(mut self) -> Publisher {
        self.waits_for_disk = false;
        self
    }

    /// The topic to which the publisher appends.
    pub fn topic(&self) -> &Arc<Topic> {
        &self.topic
    }

    /// Calls `attempt` to append `count` records to the partition. If there is no room, waits for room and tries again.
    #[inline(always)]
    fn append(
        &mut self,
        partition: usize,
        count: u64,
        expect_last: Option<u64>,
        attempt: impl Fn(&Log, AppendOptions) -> Result<AppendOutcome, PublishError>,
    ) -> Result<Receipt, PublishError> {
        let log = &self.topic.logs()[partition];
        let append = AppendOptions {
            now_ns: log.clock.now_ns(),
            mark: self.producer,
            expect_last,
            after: match self.claims.get(partition) {
                Some(claim) => claim.last(self.topic.name())?,
                None => None,
            },
            evict: self.evicts,
            as_owner: false,
        };
        let appended = match attempt(log, append) {
            Err(refused) if refused.is_retryable() && self.waits_for_room => {
                let waiter = self.waiter.get_or_insert_with(Waiter::new);
                wait_for_room(&self.topic, log, waiter, append, attempt)
            }
            other => other,
        };
        let appended = appended.map_err(|error| self.reset_lost_claim(partition, error))?;
        if let Some(claim) = self.claims.get(partition)
            && self.topic.ack_level() == AckLevel::Memory
        {
            claim.record_ack(appended.position);
        }
        if let Some(mark) = &mut self.producer {
            mark.producer_seq += count;
        }
        Ok(Receipt {
            partition: partition as u16,
            position: appended.position,
            duplicate: appended.duplicate,
            acknowledged: self.topic.ack_level(),
            new_epoch: false,
        })
    }
}

/// Tries again whenever a subscriber or the disk has made room, until the topic's wait time is over.
#[cold]
fn wait_for_room(
    topic: &Topic,
    log: &Log,
    waiter: &Arc<Waiter>,
    append: AppendOptions,
    attempt: impl Fn(&Log, AppendOptions) -> Result<AppendOutcome, PublishError>,
) -> Result<AppendOutcome, PublishError> {
    let can_evict = topic.config().reliable.is_some_and(|reliable| reliable.on_full == OnFull::Evict);
    let began_ns = log.clock.steady_ns();
    let deadline_ns = began_ns.saturating_add(saturating_ns(topic.room_wait_max()));
    loop {
        log.await_room(waiter);
        let (now_ns, steady_ns) = (log.clock.now_ns(), log.clock.steady_ns());
        let evict = steady_ns >= deadline_ns && can_evict;
        match attempt(log, AppendOptions { now_ns, evict, ..append }) {
            Err(refused) if refused.is_retryable() && steady_ns >= deadline_ns => {
                return Err(refused.with_waited(Duration::from_nanos(steady_ns - began_ns)));
            }
            Err(refused) if refused.is_retryable() => {
                park_until_notified(log, waiter, steady_ns, deadline_ns)
            }
            other => return other,
        }
    }
}

fn park_until_notified(log: &Log, waiter: &Arc<Waiter>, began_ns: u64, deadline_ns: u64) {
    let spin_until_ns = began_ns + u64::from(SPIN_US_DEFAULT) * 1_000;
    while !waiter.is_ready() && log.clock.steady_ns() < spin_until_ns {
        std::hint::spin_loop();
    }
    while waiter.set_waker(&thread_waker()) {
        let now_ns = log.clock.steady_ns();
        if now_ns >= deadline_ns {
            return;
        }
        thread::park_timeout(Duration::from_nanos(deadline_ns - now_ns));
    }
    waiter.take_ready(|_| ());
}

impl Publish for Publisher {
    #[inline(always)]
    fn publish<'a>(&mut self, draft: impl Into<Draft<'a>>) -> Result<Receipt, PublishError> {
        let receipt = self.publish_draft(None, draft.into())?;
        self.wait_acknowledged(receipt)
    }

    fn publish_batch(&mut self, drafts: &[Draft<'_>]) -> Result<Receipt, PublishError> {
        let partition = self.topic.partition_of(drafts.first().and_then(|d| d.meta.key));
        if self.topic.logs().len() > 1
            && drafts.iter().any(|d| self.topic.partition_of(d.meta.key) != partition)
        {
            return Err(PublishError::Batch(
                "the keys of the batch's records belong to several partitions: publish the records one by \
                 one",
            ));
        }
        let receipt = self.append_batch(partition, drafts)?;
        self.wait_acknowledged(receipt)
    }

    fn publish_expecting<'a>(
        &mut self,
        last_seq: u64,
        draft: impl Into<Draft<'a>>,
    ) -> Result<Receipt, PublishError> {
        let receipt = self.publish_draft(Some(last_seq), draft.into())?;
        self.wait_acknowledged(receipt)
    }

    #[inline(always)]
    fn send<'a>(&mut self, draft: impl Into<Draft<'a>>) -> Result<(), PublishError> {
        let receipt = self.publish_draft(None, draft.into())?;
        if receipt.acknowledged != AckLevel::Memory {
            self.last = Some(receipt);
            return self.track_unstored(&receipt);
        }
        self.last = Some(receipt);
        Ok(())
    }

    fn flush(&mut self) -> Result<Option<Receipt>, PublishError> {
        while let Some(sent) = self.unstored.pop_front() {
            let outcome = self.wait_stored(sent);
            self.settle(&sent, outcome)?;
        }
        Ok(self.last.take())
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Receipt>, PublishError>> {
        while let Some(&sent) = self.unstored.front() {
            match self.poll_stored(sent, cx.waker()) {
                Poll::Ready(outcome) => {
                    self.unstored.pop_front();
                    self.settle(&sent, outcome)?;
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(self.last.take()))
    }
}

impl Publisher {
    #[inline(always)]
    fn publish_draft(&mut self, expect: Option<u64>, draft: Draft<'_>) -> Result<Receipt, PublishError> {
        let partition = self.topic.partition_of(draft.meta.key);
        if self.subject_tail.is_empty() {
            let appended = self.append(partition, 1, expect, |log, append| log.append(append, &draft));
            return match appended {
                Err(PublishError::Elsewhere) => self.forward(partition, expect, std::slice::from_ref(&draft)),
                appended => appended,
            };
        }
        let tail = std::mem::take(&mut self.subject_tail);
        let outcome = {
            let mut draft = draft;
            draft.meta.subject_tail = &tail;
            match self.append(partition, 1, expect, |log, append| log.append(append, &draft)) {
                Err(PublishError::Elsewhere) => self.forward(partition, expect, std::slice::from_ref(&draft)),
                appended => appended,
            }
        };
        self.subject_tail = tail;
        outcome
    }

    fn append_batch(&mut self, partition: usize, drafts: &[Draft<'_>]) -> Result<Receipt, PublishError> {
        let count = drafts.len() as u64;
        if self.subject_tail.is_empty() {
            let appended =
                self.append(partition, count, None, |log, append| log.append_drafts(append, drafts.iter()));
            return match appended {
                Err(PublishError::Elsewhere) => self.forward(partition, None, drafts),
                appended => appended,
            };
        }
        let tail = std::mem::take(&mut self.subject_tail);
        let with_tail: Vec<Draft<'_>> = drafts
            .iter()
            .map(|draft| {
                let mut draft = draft.clone();
                draft.meta.subject_tail = &tail;
                draft
            })
            .collect();
        let appended =
            self.append(partition, count, None, |log, append| log.append_drafts(append, with_tail.iter()));
        let outcome = match appended {
            Err(PublishError::Elsewhere) => self.forward(partition, None, &with_tail),
            appended => appended,
        };
        drop(with_tail);
        self.subject_tail = tail;
        outcome
    }
}

/// The part of a publisher that waits for the disk, and for owners at other nodes.
impl Publisher {
    /// Handles the outcome of a sent record. If the record is the last one that was sent, the receipt in the outcome
    /// replaces `last`; if the record was refused, `last` is removed.
    fn settle(&mut self, sent: &Receipt, outcome: Result<Receipt, PublishError>) -> Result<(), PublishError> {
        let is_last = self.last.is_some_and(|last| {
            (last.partition, last.position, last.acknowledged)
                == (sent.partition, sent.position, sent.acknowledged)
        });
        if is_last {
            self.last = outcome.as_ref().ok().copied();
        }
        outcome.map(drop)
    }

    /// Waits until the record has reached the acknowledgement level in the receipt, and returns the receipt.
    #[inline(always)]
    fn wait_acknowledged(&mut self, receipt: Receipt) -> Result<Receipt, PublishError> {
        match receipt.acknowledged {
            AckLevel::Memory => Ok(receipt),
            AckLevel::ByOwner => self.wait_stored(receipt),
            _ if self.waits_for_disk => self.wait_stored(receipt),
            _ => Ok(Receipt { acknowledged: AckLevel::Memory, ..receipt }),
        }
    }

    /// If the error says that the state was lost, starts a new claim without a last record. The caller receives the
    /// error, and is expected to publish the state again.
    #[cold]
    fn reset_lost_claim(&mut self, partition: usize, error: PublishError) -> PublishError {
        if let (PublishError::StateLost(_), Some(claim)) = (&error, self.claims.get_mut(partition)) {
            *claim = Arc::default();
        }
        error
    }

    /// Forwards drafts to the log's owner, or appends them if this process has become the owner. Waits while too many
    /// forwarded bytes have no response yet.
    #[cold]
    fn forward(
        &mut self,
        partition: usize,
        expect_last: Option<u64>,
        drafts: &[Draft<'_>],
    ) -> Result<Receipt, PublishError> {
        let (frames, count) = self.topic.encode(drafts.iter())?;
        let log = &self.topic.logs()[partition];
        let began_ns = log.clock.steady_ns();
        let deadline_ns = began_ns.saturating_add(saturating_ns(self.topic.room_wait_max()));
        let now_ns = log.clock.now_ns();
        let mut append =
            AppendOptions { now_ns, mark: self.producer, expect_last, ..AppendOptions::default() };
        let receipt = loop {
            let claim = self.claims.get(partition);
            match self.topic.append_encoded(partition, append, claim, &frames, count) {
                Err(refused) if refused.is_retryable() && self.waits_for_room => {
                    let waiter = self.waiter.get_or_insert_with(Waiter::new);
                    append.now_ns = log.clock.now_ns();
                    let steady_ns = log.clock.steady_ns();
                    if steady_ns >= deadline_ns {
                        return Err(refused.with_waited(Duration::from_nanos(steady_ns - began_ns)));
                    }
                    log.await_room(waiter);
                    let next_check_ns = steady_ns + ROOM_CHECK_NS;
                    park_until_notified(log, waiter, steady_ns, deadline_ns.min(next_check_ns));
                }
                Err(refused) => return Err(self.reset_lost_claim(partition, refused)),
                Ok(receipt) => break receipt,
            }
        };
        if let Some(mark) = &mut self.producer {
            mark.producer_seq += u64::from(count);
        }
        Ok(receipt)
    }

    #[cold]
    fn track_unstored(&mut self, receipt: &Receipt) -> Result<(), PublishError> {
        let is_same = |other: &&mut Receipt| {
            receipt.acknowledged != AckLevel::ByOwner
                && (other.partition, other.acknowledged) == (receipt.partition, receipt.acknowledged)
        };
        match self.unstored.iter_mut().find(is_same) {
            Some(other) => other.position = receipt.position.max(other.position),
            // Every forwarded record is remembered, because each has its own outcome.
            None => self.unstored.push_back(*receipt),
        }
        if self.unstored.len() > UNSTORED_MAX
            && let Some(sent) = self.unstored.pop_front()
        {
            let outcome = self.wait_stored(sent);
            self.settle(&sent, outcome)?;
        }
        Ok(())
    }

    #[cold]
    fn wait_stored(&mut self, receipt: Receipt) -> Result<Receipt, PublishError> {
        let Receipt { partition, position: at, acknowledged: level, .. } = receipt;
        let log = &self.topic.logs()[usize::from(partition)];
        let waiter = self.waiter.get_or_insert_with(Waiter::new);
        let began_ns = log.clock.steady_ns();
        let wait_max = match level {
            // At the owner, the record may first have to wait for room in the topic.
            AckLevel::ByOwner => STORE_WAIT_MAX.saturating_add(self.topic.room_wait_max()),
            _ => STORE_WAIT_MAX,
        };
        let deadline_ns = began_ns.saturating_add(saturating_ns(wait_max));
        log.store_staged();
        loop {
            match log.poll_ack(at, level, waiter, Waiter::ROOM) {
                AckProgress::Reached => {
                    self.claims.get(usize::from(partition)).inspect(|claim| claim.record_ack(at));
                    return Ok(receipt);
                }
                AckProgress::ByOwner(receipt) => return Ok(receipt),
                AckProgress::Failed(error) => {
                    return Err(self.reset_lost_claim(usize::from(partition), error));
                }
                AckProgress::Waiting => {}
            }
            let now_ns = log.clock.steady_ns();
            if now_ns >= deadline_ns {
                log.remove_ack_waiter(waiter);
                return Err(PublishError::Unknown(format!(
                    "the record was not stored within {}",
                    format_duration(wait_max)
                )));
            }
            park_until_notified(log, waiter, now_ns, deadline_ns);
        }
    }

    fn poll_stored(&mut self, receipt: Receipt, waker: &Waker) -> Poll<Result<Receipt, PublishError>> {
        let Receipt { partition, position: at, acknowledged: level, .. } = receipt;
        let log = &self.topic.logs()[usize::from(partition)];
        let waiter = self.waiter.get_or_insert_with(Waiter::new);
        loop {
            match log.poll_ack(at, level, waiter, Waiter::ROOM) {
                AckProgress::Reached => {
                    self.claims.get(usize::from(partition)).inspect(|claim| claim.record_ack(at));
                    return Poll::Ready(Ok(receipt));
                }
                AckProgress::ByOwner(receipt) => return Poll::Ready(Ok(receipt)),
                AckProgress::Failed(error) => {
                    return Poll::Ready(Err(self.reset_lost_claim(usize::from(partition), error)));
                }
                AckProgress::Waiting if waiter.set_waker(waker) => return Poll::Pending,
                AckProgress::Waiting => drop(waiter.take_ready(|_| ())),
            }
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if let Some(waiter) = &self.waiter {
            self.topic.logs().iter().for_each(|log| log.remove_ack_waiter(waiter));
        }
    }
}
