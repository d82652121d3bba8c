//! Publishing in process.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use crate::config::{OnFull, saturating_ns};
use crate::log::{Append, Appended, Log, ProducerMark};
use crate::publish::{Acknowledged, Draft, Publish, PublishError, Receipt};
use crate::subscribe::SPIN_US_DEFAULT;
use crate::topic::Topic;
use crate::wake::{Waiter, thread_waker};

/// Appends to a topic of the same process.
#[derive(Debug)]
pub struct Publisher {
    topic: Arc<Topic>,
    subject_tail: String,
    producer: Option<ProducerMark>,
    waiter: Option<Arc<Waiter>>,
    last: Option<Receipt>,
}

impl Publisher {
    pub(crate) fn new(topic: Arc<Topic>, subject_tail: String) -> Publisher {
        Publisher { topic, subject_tail, producer: None, waiter: None, last: None }
    }

    /// Numbers its records from here on, so that a retry by whoever takes over is found out.
    pub fn identified(mut self, mark: ProducerMark) -> Publisher {
        self.producer = Some(mark);
        self
    }

    /// The topic published to.
    pub fn topic(&self) -> &Arc<Topic> {
        &self.topic
    }

    /// Appends to the partition, waiting for the readers of a reliable topic.
    #[inline(always)]
    fn append(
        &mut self,
        partition: usize,
        count: u64,
        expect_last: Option<u64>,
        attempt: impl Fn(&Log, Append) -> Result<Appended, PublishError>,
    ) -> Result<Receipt, PublishError> {
        let log = &self.topic.logs()[partition];
        let append = Append { now_ns: log.clock.now_ns(), mark: self.producer, expect_last, evict: false };
        let appended = match attempt(log, append) {
            Err(full @ PublishError::Full { .. }) => {
                let waiter = self.waiter.get_or_insert_with(Waiter::new);
                wait_for_room(&self.topic, log, waiter, append, full, attempt)?
            }
            other => other?,
        };
        if let Some(mark) = &mut self.producer {
            mark.producer_seq += count;
        }
        Ok(Receipt {
            partition: partition as u16,
            position: appended.position,
            duplicate: appended.duplicate,
            acknowledged: Acknowledged::Memory,
        })
    }
}

/// Tries again whenever a reader has made room, until the topic's patience ends.
#[cold]
fn wait_for_room(
    topic: &Topic,
    log: &Log,
    waiter: &Arc<Waiter>,
    append: Append,
    full: PublishError,
    attempt: impl Fn(&Log, Append) -> Result<Appended, PublishError>,
) -> Result<Appended, PublishError> {
    let Some(reliable) = &topic.config().reliable else { return Err(full) };
    let began_ns = log.clock.now_ns();
    let deadline_ns = began_ns.saturating_add(saturating_ns(reliable.wait_max));
    loop {
        log.await_room(waiter);
        let now_ns = log.clock.now_ns();
        let evict = now_ns >= deadline_ns && reliable.on_full == OnFull::Evict;
        match attempt(log, Append { now_ns, evict, ..append }) {
            Err(PublishError::Full { reader, needed, .. }) if now_ns >= deadline_ns => {
                let waited = Duration::from_nanos(now_ns - began_ns);
                return Err(PublishError::Full { reader, needed, waited });
            }
            Err(PublishError::Full { .. }) => park_until_notified(log, waiter, now_ns, deadline_ns),
            other => return other,
        }
    }
}

fn park_until_notified(log: &Log, waiter: &Arc<Waiter>, began_ns: u64, deadline_ns: u64) {
    let spin_until_ns = began_ns + u64::from(SPIN_US_DEFAULT) * 1_000;
    while !waiter.is_ready() && log.clock.now_ns() < spin_until_ns {
        std::hint::spin_loop();
    }
    while waiter.set_waker(&thread_waker()) {
        let now_ns = log.clock.now_ns();
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
        self.publish_draft(None, draft.into())
    }

    fn publish_batch(&mut self, drafts: &[Draft<'_>]) -> Result<Receipt, PublishError> {
        let partition = self.topic.partition_of(drafts.first().and_then(|d| d.meta.key));
        if self.topic.logs().len() > 1
            && drafts.iter().any(|d| self.topic.partition_of(d.meta.key) != partition)
        {
            return Err(PublishError::Batch("its keys lie in several partitions"));
        }
        let count = drafts.len() as u64;
        if self.subject_tail.is_empty() {
            return self.append(partition, count, None, |log, append| log.append_batch(append, drafts));
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
        let outcome = self.append(partition, count, None, |log, append| log.append_batch(append, &with_tail));
        drop(with_tail);
        self.subject_tail = tail;
        outcome
    }

    fn publish_expecting<'a>(
        &mut self,
        last_seq: u64,
        draft: impl Into<Draft<'a>>,
    ) -> Result<Receipt, PublishError> {
        self.publish_draft(Some(last_seq), draft.into())
    }

    #[inline(always)]
    fn send<'a>(&mut self, draft: impl Into<Draft<'a>>) -> Result<(), PublishError> {
        self.last = Some(self.publish_draft(None, draft.into())?);
        Ok(())
    }

    fn flush(&mut self) -> Result<Option<Receipt>, PublishError> {
        Ok(self.last.take())
    }

    fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<Result<Option<Receipt>, PublishError>> {
        Poll::Ready(self.flush())
    }
}

impl Publisher {
    #[inline(always)]
    fn publish_draft(&mut self, expect: Option<u64>, draft: Draft<'_>) -> Result<Receipt, PublishError> {
        let partition = self.topic.partition_of(draft.meta.key);
        if self.subject_tail.is_empty() {
            return self.append(partition, 1, expect, |log, append| log.append(append, &draft));
        }
        let tail = std::mem::take(&mut self.subject_tail);
        let outcome = {
            let mut draft = draft;
            draft.meta.subject_tail = &tail;
            self.append(partition, 1, expect, |log, append| log.append(append, &draft))
        };
        self.subject_tail = tail;
        outcome
    }
}
