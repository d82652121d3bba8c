//! Publishing one record: its frame is made, checked as one from outside, and appended; where there is no room or the disk
//! is to have it first, the call waits and nobody else does.

use std::cell::RefCell;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dunlin::topic::frame::Meta;
use dunlin::topic::{
    Acknowledged, CheckedRun, Log, OnFull, ProducerMark, PublishError, Receipt, RunAppend, StoredState,
    Subject, Topic, Waiter,
};
use dunlin::wire::ErrorCode;
use dunlin::{Node, Owner, Refused, now_ns};

use super::proto::dunlin as v1;

/// The token that progress of the disk notifies.
const STORED: u32 = 1;
/// A frame's memory is kept for the next one up to here.
const KEPT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Where frames are made.
    static FRAME: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Where records go that have this subject. A topic that was made for them stays if one of them is taken.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) topic: Arc<Owner>,
    tail: String,
}

impl Target {
    /// The topic that owns the subject; made where the node does that for a record with such a payload.
    pub(super) fn find(node: &Node, subject: &str, payload: &[u8]) -> Result<Target, Refused> {
        let parsed = Subject::parse(subject);
        let parsed = parsed.map_err(|error| Refused::new(ErrorCode::Subject, error.to_string()))?;
        let topic = node.owner_for(parsed, payload.len()).map_err(|error| Refused::from(&error))?;
        let tail =
            subject.strip_prefix(topic.logs()[0].name().subject_prefix.as_str()).unwrap_or("").to_owned();
        Ok(Target { topic: Arc::new(topic), tail })
    }
}

/// A record on its way into a topic.
#[derive(Debug, Clone, Copy)]
pub(super) struct Incoming<'a> {
    pub(super) record: &'a v1::Draft,
    pub(super) mark: Option<ProducerMark>,
    pub(super) expect_last: Option<u64>,
}

pub(super) fn mark(producer: v1::Producer) -> ProducerMark {
    ProducerMark { producer: producer.id, producer_epoch: producer.epoch, producer_seq: producer.seq }
}

/// Appends the record, waiting for room as long as its topic has patience.
pub(super) async fn append(target: &Target, incoming: Incoming<'_>) -> Result<Receipt, Refused> {
    match with_frame(target, incoming.record, |frame| try_append(target, &incoming, frame, false))? {
        Err(PublishError::Full { .. } | PublishError::DiskBehind { .. }) => {
            let frame = with_frame(target, incoming.record, <[u8]>::to_vec)?;
            wait_for_room(target, &incoming, &frame).await
        }
        appended => appended.map_err(|error| Refused::from(&error)),
    }
}

/// Makes the record's frame and shows it to `look`.
fn with_frame<R>(target: &Target, record: &v1::Draft, look: impl FnOnce(&[u8]) -> R) -> Result<R, Refused> {
    if !record.reply.is_empty() {
        let parsed = Subject::parse(&record.reply);
        parsed.map_err(|error| Refused::new(ErrorCode::Subject, format!("reply: {error}")))?;
    }
    let headers: Vec<_> =
        record.headers.iter().map(|header| (header.name.as_str(), &header.value[..])).collect();
    let meta = Meta {
        event_time_ns: record.event_time_ns,
        expires_ns: record.expires_ns,
        subject_tail: &target.tail,
        key: record.key.as_deref(),
        reply: (!record.reply.is_empty()).then_some(record.reply.as_str()),
        headers: &headers,
    };
    let encoded = meta.measure(record.payload.len()).map_err(|error| Refused::from(&error))?;
    FRAME.with_borrow_mut(|frame| {
        frame.clear();
        frame.resize(encoded.padded(), 0);
        meta.encode(encoded, 0, &record.payload, frame);
        let looked = look(frame);
        frame.shrink_to(KEPT_BYTES_MAX);
        Ok(looked)
    })
}

fn try_append(
    target: &Target,
    incoming: &Incoming<'_>,
    frame: &[u8],
    evict: bool,
) -> Result<Receipt, PublishError> {
    let topic = &target.topic;
    let run = CheckedRun::check(frame, 1, topic.config().record_bytes_max as usize)?;
    let partition = topic.partition_of(incoming.record.key.as_deref());
    let (mark, expect_last) = (incoming.mark, incoming.expect_last);
    topic.append_run(now_ns(), RunAppend { run, partition, mark, expect_last, evict })
}

/// Tries again whenever there may be room, until the topic's patience ends.
async fn wait_for_room(target: &Target, incoming: &Incoming<'_>, frame: &[u8]) -> Result<Receipt, Refused> {
    let topic = &target.topic;
    let evicts = topic.config().reliable.is_some_and(|reliable| reliable.on_full == OnFull::Evict);
    let waiter = Waiter::new();
    let began_ns = now_ns();
    let deadline_ns = began_ns.saturating_add(topic.patience().as_nanos() as u64);
    loop {
        topic.await_room(topic.partition_of(incoming.record.key.as_deref()), &waiter);
        let now_ns = now_ns();
        let waited = Duration::from_nanos(now_ns.saturating_sub(began_ns));
        let is_over = now_ns >= deadline_ns;
        let refused = match try_append(target, incoming, frame, is_over && evicts) {
            Err(PublishError::Full { reader, needed, .. }) => PublishError::Full { reader, needed, waited },
            Err(PublishError::DiskBehind { unstored_bytes, .. }) => {
                PublishError::DiskBehind { unstored_bytes, waited }
            }
            appended => return appended.map_err(|error| Refused::from(&error)),
        };
        if is_over {
            return Err(Refused::from(&refused));
        }
        let left = Duration::from_nanos(deadline_ns - now_ns);
        // Which of the two it was is seen by looking.
        let _ = tokio::time::timeout(left, notified(&waiter)).await;
    }
}

/// Waits until the record's level of acknowledgement is reached.
pub(super) async fn stored(topic: &Topic, receipt: &Receipt) -> Result<(), Refused> {
    if receipt.acknowledged == Acknowledged::Memory {
        return Ok(());
    }
    let log = &topic.logs()[usize::from(receipt.partition)];
    let waiting = Waiting { log, waiter: Waiter::new() };
    loop {
        match log.await_stored(receipt.position, receipt.acknowledged, &waiting.waiter, STORED) {
            StoredState::Reached => return Ok(()),
            StoredState::Failed(error) => return Err(Refused::from(&error)),
            StoredState::Waiting => notified(&waiting.waiter).await,
        }
    }
}

/// Leaves the log's list when the call is given up.
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
