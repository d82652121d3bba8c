//! The interface between a log and its owner at another node: forwarding records and feeding mirrors.
//!
//! A log that another node owns is a *mirror*. A mirror holds the records that its feed delivers, at the owner's
//! positions, and is read like any other log. Published records are forwarded to the owner. Their outcome arrives
//! later, as for durable topics ([`Log::poll_ack`]).
//!
//! Logs know nothing of nodes and connections; the embedding node supplies an [`Upstream`].

use std::fmt::Debug;
use std::sync::Arc;

use crate::claim::StateClaim;
use crate::config::Clock;
use crate::log::{AckProgress, Log, ProducerMark};
use crate::publish::PublishError;
use crate::subscribe::Start;
use crate::wake::Waiter;

/// The route from a log to its owner in this or another process. No method is called inside a log's lock.
pub trait Upstream: Send + Sync + Debug {
    /// The time, in ns by [`Upstream::clock`], until which this process owns the log; 0 if another process owns it.
    fn owned_until_ns(&self) -> u64;

    /// The clock of the ownership lease, which is not the log's own clock. The log's clock follows the time of day. If
    /// the time of day were set back, an owner would continue beyond the end of its lease.
    fn clock(&self) -> Clock;

    /// Forwards a batch to the owner, after all earlier batches. Returns a ticket for the batch's outcome. Does not
    /// block.
    ///
    /// # Errors
    /// [`PublishError::OwnerBehind`] if too many bytes have no response yet.
    fn forward(&self, batch: ForwardedBatch<'_>) -> Result<u64, PublishError>;

    /// The outcome of the batch with this ticket. Returns [`AckProgress::ByOwner`] once, and then forgets the ticket.
    /// Until then, notifies `waiter` with `token` when another call may give a different result.
    fn outcome(&self, ticket: u64, waiter: &Arc<Waiter>, token: u32) -> AckProgress;

    /// Stops all notifications of `waiter`, for outcomes and for room.
    fn leave(&self, waiter: &Arc<Waiter>);

    /// Notifies `waiter` with [`Waiter::ROOM`] when there is room for more batches.
    fn await_room(&self, waiter: &Arc<Waiter>);

    /// Starts the feed of the mirror `log`, before a subscriber starts to read the mirror at `start`. Waits, for a
    /// limited time, until the mirror has reached the owner's position, so that the subscriber misses no record.
    fn start_feed(&self, log: &Arc<Log>, start: Start);

    /// The log calls this method when the first publisher of a state topic has connected at this node, or the last one
    /// has left.
    fn publishers_changed(&self) {}

    /// A private mirror for one subscriber, fed from `start`. A subscriber needs a private mirror if the shared mirror
    /// lacks the records from its start, or if publishers must wait for the subscriber. `None` if no private mirror is
    /// available at present.
    fn private_mirror(&self, log: &Arc<Log>, start: Start, registered: bool) -> Option<Arc<Log>>;
}

/// A batch of records to forward to the log's owner at another node.
#[derive(Debug, Clone, Copy)]
pub struct ForwardedBatch<'a> {
    /// The partition.
    pub partition: usize,
    /// Whole, valid frames.
    pub frames: &'a [u8],
    /// Number of frames.
    pub count: u32,
    /// The publisher's identity, and the publisher's number for the first record of the batch.
    pub mark: Option<ProducerMark>,
    /// The condition of the append, if any: the sequence number that the log's last record must have.
    pub expect_last: Option<u64>,
    /// The publisher's claim on the partition's state, if the topic keeps one.
    pub claim: Option<&'a Arc<StateClaim>>,
    /// Whether another node forwarded the batch because it considers this node the owner. This node does not forward
    /// such a batch again.
    pub relayed: bool,
}
