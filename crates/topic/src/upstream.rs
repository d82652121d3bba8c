//! The interface from a log to the log's owner at another node. Through it, records are forwarded to the owner, and
//! mirrors are fed.
//!
//! A log that another node owns is a *mirror*. A mirror has the records that its feed delivers, at the same positions
//! as at the owner, and is read like any other log. Records that are published to a mirror are forwarded to the owner.
//! Their outcome arrives later, like that of records of durable topics ([`Log::poll_ack`]).
//!
//! Logs know nothing of nodes and connections. The node that uses this crate implements [`Upstream`].

use std::fmt::Debug;
use std::sync::Arc;

use crate::claim::StateClaim;
use crate::config::Clock;
use crate::log::{AckProgress, Log, ProducerMark};
use crate::publish::PublishError;
use crate::subscribe::Start;
use crate::wake::Waiter;

/// The way from a log to its owner, in this or another process. No method is called inside a log's lock.
pub trait Upstream: Send + Sync + Debug {
    /// The time until which this process owns the log, in ns by [`Upstream::clock`]; 0 if another process owns the log.
    fn owned_until_ns(&self) -> u64;

    /// The clock for the ownership lease. It differs from the log's own clock, which follows the time of day: with that
    /// clock, an owner could continue beyond the end of its lease after the time of day was set back.
    fn clock(&self) -> Clock;

    /// Forwards a batch to the owner, after all batches that were forwarded before. Returns a ticket for the batch's
    /// outcome. Does not block.
    ///
    /// # Errors
    /// [`PublishError::OwnerBehind`] if too many forwarded bytes have no response yet.
    fn forward(&self, batch: ForwardedBatch<'_>) -> Result<u64, PublishError>;

    /// The outcome of the batch with this ticket. Before the outcome is known, returns [`AckProgress::Waiting`], and
    /// notifies `waiter` with `token` when another call may give a different result. After the outcome was returned
    /// once, the ticket is forgotten.
    fn outcome(&self, ticket: u64, waiter: &Arc<Waiter>, token: u32) -> AckProgress;

    /// Ends all notifications of `waiter`, both for outcomes and for room.
    fn leave(&self, waiter: &Arc<Waiter>);

    /// Registers `waiter`, which is notified with [`Waiter::ROOM`] when further batches can be forwarded.
    fn await_room(&self, waiter: &Arc<Waiter>);

    /// Starts the feed of the mirror `log` for a subscriber that is about to read from `start`. Waits, for a limited
    /// time, until the mirror has reached the owner's position, so that the subscriber misses no record.
    fn start_feed(&self, log: &Arc<Log>, start: Start);

    /// Called when the first publisher of a state topic has connected to this node, or the last one has left.
    fn publishers_changed(&self) {}

    /// Returns a private mirror of `log` for one subscriber, which is fed from `start`. A subscriber needs a private
    /// mirror if the shared mirror lacks the records after the subscriber's start, or if publishers must wait for the
    /// subscriber (`registered`). `keeps_history` states whether the owner keeps history for the subscriber, as
    /// [`SubscribeOptions::keeps_history`](crate::SubscribeOptions::keeps_history) does. Returns `None` if no private
    /// mirror is available at present.
    fn private_mirror(
        &self,
        log: &Arc<Log>,
        start: Start,
        registered: bool,
        keeps_history: bool,
    ) -> Option<Arc<Log>>;
}

/// A batch of records that a log forwards to its owner at another node.
#[derive(Debug, Clone, Copy)]
pub struct ForwardedBatch<'a> {
    /// The partition to which the records belong.
    pub partition: usize,
    /// The bytes of the frames, which are whole and valid.
    pub frames: &'a [u8],
    /// Number of frames.
    pub count: u32,
    /// The producer of the batch and the number of its first record, if the publisher is a producer.
    pub mark: Option<ProducerMark>,
    /// The condition of the append, if any: the sequence number that the log's last record must have.
    pub expect_last: Option<u64>,
    /// The publisher's claim that the partition's state includes its last acknowledged record, if the topic keeps a
    /// state.
    pub claim: Option<&'a Arc<StateClaim>>,
    /// Whether another node has forwarded the batch to this node, because the other node considers this node the owner.
    /// Such a batch is not forwarded again.
    pub relayed: bool,
}
