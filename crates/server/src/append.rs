//! Appends records for those listeners that handle each request in its own async task. While a task waits for room in
//! the topic or for the disk, its thread runs other tasks.
//!
//! [`try_append`] never waits, so its frames may be in a buffer that the thread's tasks share.
//! [`append_when_there_is_room`] may wait, so its frames need a buffer of their own.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dunlin::topic::{
    AckLevel, AckProgress, BatchAppend, CheckedBatch, Log, OnFull, Position, ProducerMark, PublishError,
    Receipt, StateClaim, Topic, Waiter, format_duration,
};
use dunlin::{Node, now_ns, steady_ns};

/// Token of the notification that records were written to the disk.
const STORED: u32 = 1;
/// How long a publisher waits until its records are stored. If another node owns the topic, a record may first wait for
/// room at that node; the publisher then waits longer by the limit of that wait.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);

/// The frames for one append to one partition, and the conditions of the append.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppendRequest<'a> {
    pub(crate) frames: &'a [u8],
    pub(crate) count: u32,
    pub(crate) partition: usize,
    pub(crate) mark: Option<ProducerMark>,
    pub(crate) expect_last: Option<u64>,
    /// The position of the publisher's last acknowledged record in the partition, if the request states one. The
    /// receipt then reports whether the topic's epoch has changed since that record.
    pub(crate) after: Option<Position>,
    /// A handle of the node that has the publisher's permissions.
    pub(crate) node: &'a Node,
    /// The part of the record's subject after the topic's prefix.
    pub(crate) tail: &'a str,
}

impl AppendRequest<'_> {
    /// Checks the publisher's permission, which may have changed while the append waited.
    fn check_permission(&self, topic: &Topic) -> Result<(), PublishError> {
        let prefix = &topic.logs()[0].name().subject_prefix;
        Ok(self.node.may_publish_parts(prefix, self.tail)?)
    }
}

/// Marks the receipt if its epoch differs from the epoch of `after`, the publisher's last acknowledged record.
pub(crate) fn with_epoch_change(receipt: Receipt, after: Option<Position>) -> Receipt {
    Receipt { new_epoch: after.is_some_and(|last| last.epoch != receipt.position.epoch), ..receipt }
}

/// Appends either all frames or none. Then waits until the topic's acknowledgement level is reached; if another node
/// owns the topic, waits for that node's response.
pub(crate) async fn append(topic: &Topic, request: AppendRequest<'_>) -> Result<Receipt, PublishError> {
    request.check_permission(topic)?;
    let receipt = match try_append(topic, request) {
        Err(refused) if can_retry_append(&refused) => append_when_there_is_room(topic, request).await,
        appended => appended,
    }?;
    wait_until_stored(topic, &receipt).await.map(|receipt| with_epoch_change(receipt, request.after))
}

/// Appends either all frames or none, without waiting.
pub(crate) fn try_append(topic: &Topic, request: AppendRequest<'_>) -> Result<Receipt, PublishError> {
    attempt(topic, request, false)
}

/// Whether [`append_when_there_is_room`] may succeed after this refusal.
pub(crate) fn can_retry_append(refused: &PublishError) -> bool {
    refused.is_retryable()
}

fn attempt(topic: &Topic, request: AppendRequest<'_>, evict: bool) -> Result<Receipt, PublishError> {
    let AppendRequest { frames, count, partition, mark, expect_last, after, .. } = request;
    let run = CheckedBatch::check(frames, count, topic.config().record_bytes_max as usize)?;
    let claim = after.filter(|_| topic.config().reducer.is_some()).map(StateClaim::after);
    let claim = claim.as_ref();
    topic.append_batch(
        now_ns(),
        BatchAppend { batch: run, partition, mark, expect_last, claim, evict, relayed: false },
    )
}

/// Tries the append whenever the topic may have room, until the topic's wait time is over.
pub(crate) async fn append_when_there_is_room(
    topic: &Topic,
    request: AppendRequest<'_>,
) -> Result<Receipt, PublishError> {
    let evicts = topic.config().reliable.is_some_and(|reliable| reliable.on_full == OnFull::Evict);
    let waiter = Waiter::new();
    let began_ns = steady_ns();
    let wait_max_ns = u64::try_from(topic.room_wait_max().as_nanos()).unwrap_or(u64::MAX);
    let deadline_ns = began_ns.saturating_add(wait_max_ns);
    loop {
        topic.await_room(request.partition, &waiter);
        let steady_ns = steady_ns();
        let is_due = steady_ns >= deadline_ns;
        let waited = Duration::from_nanos(steady_ns.saturating_sub(began_ns));
        request.check_permission(topic)?;
        let refused = match attempt(topic, request, is_due && evicts) {
            Err(refused) if refused.is_retryable() => refused.with_waited(waited),
            appended => return appended,
        };
        if is_due {
            return Err(refused);
        }
        let remaining = Duration::from_nanos(deadline_ns - steady_ns);
        // The loop tries again after a notification as well as after the timeout.
        let _ = tokio::time::timeout(remaining, wait_for_notification(&waiter)).await;
    }
}

/// Waits until the topic's acknowledgement level is reached; if another node owns the topic, waits for that node's
/// response. Returns the final receipt.
pub(crate) async fn wait_until_stored(topic: &Topic, receipt: &Receipt) -> Result<Receipt, PublishError> {
    if receipt.acknowledged == AckLevel::Memory {
        return Ok(*receipt);
    }
    let log = &topic.logs()[usize::from(receipt.partition)];
    let waiting = StoredWait { log, waiter: Waiter::new() };
    let stored = async {
        loop {
            match log.poll_ack(receipt.position, receipt.acknowledged, &waiting.waiter, STORED) {
                AckProgress::Reached => return Ok(*receipt),
                AckProgress::ByOwner(receipt) => return Ok(receipt),
                AckProgress::Failed(error) => return Err(error),
                AckProgress::Waiting => wait_for_notification(&waiting.waiter).await,
            }
        }
    };
    let timeout = match receipt.acknowledged {
        AckLevel::ByOwner => STORE_TIMEOUT.saturating_add(topic.room_wait_max()),
        _ => STORE_TIMEOUT,
    };
    let unknown =
        || PublishError::Unknown(format!("the record was not stored within {}", format_duration(timeout)));
    tokio::time::timeout(timeout, stored).await.unwrap_or_else(|_| Err(unknown()))
}

/// A waiter that is notified when records are stored. When this value is dropped, the waiter is removed from the log's
/// waiters.
struct StoredWait<'a> {
    log: &'a Log,
    waiter: Arc<Waiter>,
}

impl Drop for StoredWait<'_> {
    fn drop(&mut self) {
        self.log.remove_ack_waiter(&self.waiter);
    }
}

/// Waits until `waiter` is notified.
async fn wait_for_notification(waiter: &Waiter) {
    std::future::poll_fn(|cx| {
        while !waiter.take_ready(|_| ()) {
            if waiter.set_waker(cx.waker()) {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    })
    .await;
}
