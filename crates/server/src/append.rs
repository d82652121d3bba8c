//! Appending for doors whose requests are tasks of their own: where there is no room, or the disk is to have a record
//! first, the task waits, and its thread serves others.
//!
//! [`try_append`] is apart from [`append_when_there_is_room`], so that frames may lie in memory of the thread while nobody
//! has to wait.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dunlin::topic::{
    Acknowledged, CheckedRun, Log, OnFull, Position, ProducerMark, PublishError, Receipt, RunAppend,
    StateClaim, StoredState, Topic, Waiter,
};
use dunlin::{Node, now_ns};

/// The token that progress of the disk notifies.
const STORED: u32 = 1;
/// How long a publisher waits for a disk that neither stores what was appended nor fails.
const STORED_PATIENCE: Duration = Duration::from_secs(30);

/// Frames for one partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToAppend<'a> {
    pub(crate) frames: &'a [u8],
    pub(crate) count: u32,
    pub(crate) partition: usize,
    pub(crate) mark: Option<ProducerMark>,
    pub(crate) expect_last: Option<u64>,
    /// The publisher's last acknowledged record of the partition, where it says so: it is told if that is lost.
    pub(crate) after: Option<Position>,
    /// The node as the publisher may use it, and what the record's subject has behind the topic's prefix.
    pub(crate) node: &'a Node,
    pub(crate) tail: &'a str,
}

impl ToAppend<'_> {
    /// The publisher may do it now: it was asked before, but what was waited for since may have taken long.
    fn check_permission(&self, topic: &Topic) -> Result<(), PublishError> {
        let prefix = &topic.logs()[0].name().subject_prefix;
        Ok(self.node.may_publish_parts(prefix, self.tail)?)
    }
}

/// The receipt of a record that was published after another.
pub(crate) fn receipt_after(receipt: Receipt, after: Option<Position>) -> Receipt {
    Receipt { new_epoch: after.is_some_and(|last| last.epoch != receipt.position.epoch), ..receipt }
}

/// Appends the frames, all or none, and waits until they have the level at which the topic acknowledges, or its owner
/// elsewhere has answered.
pub(crate) async fn append(topic: &Topic, what: ToAppend<'_>) -> Result<Receipt, PublishError> {
    what.check_permission(topic)?;
    let receipt = match try_append(topic, what) {
        Err(refused) if may_be_taken_later(&refused) => append_when_there_is_room(topic, what).await,
        appended => appended,
    }?;
    stored(topic, &receipt).await.map(|receipt| receipt_after(receipt, what.after))
}

/// Appends the frames now, all or none.
pub(crate) fn try_append(topic: &Topic, what: ToAppend<'_>) -> Result<Receipt, PublishError> {
    attempt(topic, what, false)
}

/// Whether [`append_when_there_is_room`] may take what was refused so.
pub(crate) fn may_be_taken_later(refused: &PublishError) -> bool {
    refused.may_pass()
}

fn attempt(topic: &Topic, what: ToAppend<'_>, evict: bool) -> Result<Receipt, PublishError> {
    let ToAppend { frames, count, partition, mark, expect_last, after, .. } = what;
    let run = CheckedRun::check(frames, count, topic.config().record_bytes_max as usize)?;
    let claim = after.filter(|_| topic.config().fold.is_some()).map(StateClaim::after);
    let claim = claim.as_ref();
    topic.append_run(now_ns(), RunAppend { run, partition, mark, expect_last, claim, evict, relayed: false })
}

/// Tries again whenever there may be room, until the topic's patience ends.
pub(crate) async fn append_when_there_is_room(
    topic: &Topic,
    what: ToAppend<'_>,
) -> Result<Receipt, PublishError> {
    let evicts = topic.config().reliable.is_some_and(|reliable| reliable.on_full == OnFull::Evict);
    let waiter = Waiter::new();
    let began_ns = now_ns();
    let patience_ns = u64::try_from(topic.patience().as_nanos()).unwrap_or(u64::MAX);
    let deadline_ns = began_ns.saturating_add(patience_ns);
    loop {
        topic.await_room(what.partition, &waiter);
        let now_ns = now_ns();
        let is_over = now_ns >= deadline_ns;
        let waited = Duration::from_nanos(now_ns.saturating_sub(began_ns));
        what.check_permission(topic)?;
        let refused = match attempt(topic, what, is_over && evicts) {
            Err(refused) if refused.may_pass() => refused.after(waited),
            appended => return appended,
        };
        if is_over {
            return Err(refused);
        }
        let left = Duration::from_nanos(deadline_ns - now_ns);
        // Which of the two it was is seen by looking.
        let _ = tokio::time::timeout(left, notified(&waiter)).await;
    }
}

/// Waits until the records have the level at which the topic acknowledges, or its owner elsewhere has answered; the
/// receipt that is due then.
pub(crate) async fn stored(topic: &Topic, receipt: &Receipt) -> Result<Receipt, PublishError> {
    if receipt.acknowledged == Acknowledged::Memory {
        return Ok(*receipt);
    }
    let log = &topic.logs()[usize::from(receipt.partition)];
    let waiting = Waiting { log, waiter: Waiter::new() };
    let reached = async {
        loop {
            match log.await_stored(receipt.position, receipt.acknowledged, &waiting.waiter, STORED) {
                StoredState::Reached => return Ok(*receipt),
                StoredState::Answered(receipt) => return Ok(receipt),
                StoredState::Failed(error) => return Err(error),
                StoredState::Waiting => notified(&waiting.waiter).await,
            }
        }
    };
    let unknown = || PublishError::Unknown(format!("not stored within {STORED_PATIENCE:?}"));
    tokio::time::timeout(STORED_PATIENCE, reached).await.unwrap_or_else(|_| Err(unknown()))
}

/// Leaves the log's list when the request is given up.
struct Waiting<'a> {
    log: &'a Log,
    waiter: Arc<Waiter>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.log.leave_stored(&self.waiter);
    }
}

/// Waits for a notification.
async fn notified(waiter: &Waiter) {
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
